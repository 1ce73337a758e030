/* lathe/kit/json_text.h: members, strings and truth of JSON texts; texts that are no JSON. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "lathe/kit/json_text.h"

static lathe_chars chars(const char *text)
{
    return (lathe_chars){text, (int64_t)strlen(text)};
}

static void expect(lathe_chars value, const char *want)
{
    cr_expect(value.bytes == (int64_t)strlen(want) &&
                  memcmp(value.data, want, (size_t)value.bytes) == 0,
              "%.*s instead of %s", (int)value.bytes, value.data, want);
}

Test(json_text, walks_over_members_in_order)
{
    static const char *const keys[] = {"\"a\"", "\"b \\\"}\"", "\"c\"", "\"d\""};
    static const char *const values[] = {"1.5e-07", "{\"x\": [1, \"]}\"]}", "[]", "\"\\\\\""};
    lathe_json_members it = lathe_json_open(
        chars("{\"a\": 1.5e-07, \"b \\\"}\": {\"x\": [1, \"]}\"]}, \"c\":[] ,\n\"d\" : \"\\\\\"}"));
    for (int i = 0; i < 4; i++) {
        cr_assert(lathe_json_next(&it), "member %d", i);
        cr_expect_eq(it.n, i + 1);
        expect(it.key, keys[i]);
        expect(it.value, values[i]);
    }
    cr_expect_not(lathe_json_next(&it));
    cr_expect_not(lathe_json_next(&it));
}

Test(json_text, walks_over_elements_of_a_list)
{
    lathe_json_members it = lathe_json_open(chars("[null, [1, 2], true]"));
    cr_assert(lathe_json_next(&it));
    cr_expect_null(it.key.data);
    expect(it.value, "null");
    cr_assert(lathe_json_next(&it));
    expect(it.value, "[1, 2]");
    cr_assert(lathe_json_next(&it));
    expect(it.value, "true");
    cr_expect_not(lathe_json_next(&it));
}

Test(json_text, other_values_have_no_members)
{
    static const char *const texts[] = {"{}", "[]", "\"{}\"", "3", "null", ""};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        lathe_json_members it = lathe_json_open(chars(texts[i]));
        cr_expect_not(lathe_json_next(&it), "%s", texts[i]);
    }
}

Test(json_text, finds_a_member_by_its_name)
{
    const lathe_chars object = chars("{\"x\": {\"name\": 1}, \"n\\u00e4me\": 2, \"name\": \"f\"}");
    expect(lathe_json_get(object, "name"), "\"f\"");
    expect(lathe_json_get(object, "n\xc3\xa4me"), "2");
    cr_expect_null(lathe_json_get(object, "nam").data);
    cr_expect_null(lathe_json_get(chars("[\"name\"]"), "name").data);
}

Test(json_text, reads_the_characters_of_strings)
{
    static const char want[] = "a\"\\/\b\f\n\r\t\x01\xc3\xbc\xe2\x82\xac\xf0\x9f\x99\x82z";
    char text[64], room[4];
    int64_t n = 0;
    lathe_chars part, inside = lathe_json_inside(chars(
                          "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001\\u00FC\\u20ac\\ud83d\\ude42z\""));
    while ((part = lathe_json_part(&inside, room)).bytes > 0) {
        cr_assert_leq(n + part.bytes, (int64_t)sizeof text);
        memcpy(text + n, part.data, (size_t)part.bytes);
        n += part.bytes;
    }
    cr_assert_eq(n, (int64_t)sizeof want - 1);
    cr_expect_arr_eq(text, want, (size_t)n);
    cr_expect(lathe_json_is(chars("\"a\\nb\""), "a\nb"));
    cr_expect_not(lathe_json_is(chars("\"a\\nb\""), "a\nbc"));
    cr_expect_not(lathe_json_is(chars("\"a\\nb\""), "a\n"));
    cr_expect(lathe_json_is(chars("\"\""), ""));
    cr_expect_not(lathe_json_is(chars("a"), "a"));
}

Test(json_text, a_surrogate_alone_is_the_replacement_character)
{
    cr_expect(lathe_json_is(chars("\"\\ud83d\""), "\xef\xbf\xbd"));
    cr_expect(lathe_json_is(chars("\"\\ude42\""), "\xef\xbf\xbd"));
    cr_expect(lathe_json_is(chars("\"\\ud83d\\u0041\""), "\xef\xbf\xbd"
                                                         "A"));
}

Test(json_text, holds_what_a_template_takes_as_true)
{
    static const char *const yes[] = {"1",    "-0.5", "1e-07", "\"0\"",        "[0]",
                                      "true", "[[]]", "10",    "{\"a\": null}"};
    static const char *const no[] = {"0", "0.0", "-0", "0e5", "\"\"", "[]", "{}", "false", "null"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        cr_expect(lathe_json_holds(chars(yes[i])), "%s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
        cr_expect_not(lathe_json_holds(chars(no[i])), "%s", no[i]);
    cr_expect_not(lathe_json_holds((lathe_chars){NULL, 0}));
}

/* Each prefix of a text, and each with one byte replaced, in memory that ends with it. */
static int64_t walk(lathe_chars value, int depth)
{
    lathe_json_members it = lathe_json_open(value);
    lathe_chars inside = lathe_json_inside(value);
    char room[4];
    int64_t n = lathe_json_holds(value) + lathe_json_is(value, "\xc3\xbc");
    while (lathe_json_part(&inside, room).bytes > 0)
        n++;
    while (lathe_json_next(&it)) {
        cr_assert(it.value.data >= value.data &&
                  it.value.data + it.value.bytes <= value.data + value.bytes);
        n += depth > 0 ? walk(it.value, depth - 1) + walk(it.key, 0) : 1;
    }
    return n;
}

Test(json_text, reads_nothing_outside_a_broken_text)
{
    static const char text[] =
        "{\"a\\u00fc\\ud83d\\ude42\\\"\": [1, {\"b\": [\"\\\\\", -2.5e3]}, null], \"\": \"x\\n\"}";
    static const char others[] = "{}[]\",:\\u\xc3\0";
    const size_t size = sizeof text - 1;
    for (size_t n = 0; n <= size; n++) {
        char *part = malloc(n + (n == 0));
        cr_assert_not_null(part);
        memcpy(part, text, n);
        cr_expect_geq(walk((lathe_chars){part, (int64_t)n}, 8), 0);
        free(part);
    }
    for (size_t at = 0; at < size; at++)
        for (size_t k = 0; k < sizeof others; k++) {
            char *changed = malloc(size);
            cr_assert_not_null(changed);
            memcpy(changed, text, size);
            changed[at] = others[k];
            cr_expect_geq(walk((lathe_chars){changed, (int64_t)size}, 8), 0);
            free(changed);
        }
}
