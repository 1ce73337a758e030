/* The members of a JSON record compared with jansson: which texts are JSON, and the values of
 * members. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_record.h"

static lathe_json_record record;

static const char *const wanted[2] = {"text", "a\"b"};

/* Reads a copy of text at the end of a memory block, so that a read past the end is detected. */
static int read_copy(const char *text, int64_t n, lathe_json_member members[2], char **out_copy)
{
    char *copy = malloc((size_t)n + 1) + 1;
    memcpy(copy, text, (size_t)n);
    *out_copy = copy - 1;
    return lathe_json_record_read(&record, copy, n, wanted, 2, members);
}

static void compare_member(const lathe_json_member *m, const json_t *want, const char *text)
{
    cr_assert_eq(m->found, want != NULL, "%s", text);
    cr_assert_eq(m->is_string, json_is_string(want), "%s", text);
    if (!m->is_string)
        return;
    char *got = malloc((size_t)m->string.n_raw + 1);
    const int64_t n = lathe_json_unescape(m->string.text, m->string.n_raw, got);
    cr_assert_eq(n, m->string.n, "%s", text);
    cr_assert_eq((size_t)n, json_string_length(want), "%s", text);
    cr_assert_arr_eq(got, json_string_value(want), (size_t)n);
    cr_assert(m->string.escaped || n == m->string.n_raw);
    free(got);
}

/* Returns 1 if both accept, 0 if both refuse. Numbers too large for jansson are still numbers. */
static int compare(const char *text, int64_t n)
{
    lathe_json_member members[2];
    json_error_t error;
    char *copy;
    json_t *tree = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    const int read = read_copy(text, n, members, &copy);
    if (!tree && json_error_code(&error) == json_error_numeric_overflow) {
        free(copy);
        return read;
    }
    cr_assert_eq(read, tree != NULL, "\"%.*s\": read %d at %d, %s; jansson %s", (int)n, text, read,
                 (int)(record.walk.at - copy - 1), record.walk.what,
                 tree ? "takes it" : error.text);
    if (read && json_is_object(tree))
        for (int k = 0; k < 2; k++)
            compare_member(&members[k], json_object_get(tree, wanted[k]), text);
    json_decref(tree);
    free(copy);
    return read;
}

Test(json_record, takes_what_json_is)
{
    static const char *const good[] = {
        "{}",
        " {\t\"text\" : \"x\" , \"a\\\"b\":\"\"}\r ",
        "{\"t\\u0065xt\": \"\\u00e9\\ud83d\\ude00\\n\\/\\\\\\\"\\u0000z\"}",
        "{\"text\": null, \"x\": [1, -0, 0.5, 1e5, 1E-7, -2.5e+3, true, false, [], {}]}",
        "{\"x\": {\"text\": \"inner\"}, \"text\": \"outer\"}",
        "{\"x\": [{\"text\": 1}, {\"text\": 2}]}",
        "{\"text\": {\"text\": \"inner\"}}",
        "{\"text\": [\"a\"], \"a\\u0022b\": 1}",
        "{\"\": 1, \"text\": \"\xc3\xa9\xf0\x9f\x98\x80\xe2\x82\xac\"}",
        "{\"a\": 1, \"A\": 2, \"aa\": 3, \"\xc3\xa9\": 4, \"\xc3\xa8\": 5, \"\\u00ea\": 6}",
        "{\"id\": 123456789012345678901234567890, \"x\": 1e999}",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        cr_expect_eq(compare(good[i], (int64_t)strlen(good[i])), 1, "%s: %s", good[i],
                     record.walk.what);
    lathe_json_record_fini(&record);
}

Test(json_record, refuses_what_json_is_not_and_says_where)
{
    static const struct {
        const char *text, *what;
        int at;
    } bad[] = {
        {"{", "a key in quotes", 1},
        {"{\"a\"}", "':' expected", 4},
        {"{\"a\":}", "unexpected token", 5},
        {"{\"a\":1,}", "a key in quotes", 7},
        {"{\"a\":1 \"b\":2}", "'}' or ',' expected", 7},
        {"{\"a\":[1 2]}", "']' or ',' expected", 8},
        {"{\"a\":[1,]}", "unexpected token", 8},
        {"{\"a\":1}}", "the end of the record", 7},
        {"{\"a\":1]", "'}' or ',' expected", 6},
        {"{\"a\":01}", "invalid number", 7},
        {"{\"a\":-}", "invalid number", 6},
        {"{\"a\":1.}", "invalid number", 7},
        {"{\"a\":1e}", "invalid number", 7},
        {"{\"a\":+1}", "unexpected token near '+'", 5},
        {"{\"a\":.5}", "unexpected token", 5},
        {"{\"a\":NaN}", "unexpected token", 5},
        {"{\"a\":truE}", "unexpected token", 5},
        {"{\"a\":\"\x01\"}", "control character 0x01", 6},
        {"{\"a\":\"\\x\"}", "invalid escape", 6},
        {"{\"a\":\"\\u12g4\"}", "invalid escape", 6},
        {"{\"a\":\"\\ud800\"}", "invalid escape", 6},
        {"{\"a\":\"\\udc00\"}", "invalid escape", 6},
        {"{\"a\":\"\\ud800\\u0041\"}", "invalid escape", 6},
        {"{\"a\":\"\xff\"}", "byte 0xff is not UTF-8", 6},
        {"{\"a\":\"\xed\xa0\x80\"}", "is not UTF-8", 6},
        {"{\"a\":\"\xc0\x80\"}", "is not UTF-8", 6},
        {"{\"a\":\"x", "a string without an end", 7},
        {"{\"a\\u0000\":1}", "a NUL in a key", 1},
        {"{\"a\":1,\"b\":2,\"a\":3}", "duplicate key \"a\"", 13},
        {"{\"x\":{\"a\":1,\"\\u0061\":2}}", "duplicate key", 12},
        {"\xef\xbb\xbf{}", "a byte order mark", 0},
        {"", "expected a value", 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lathe_json_member members[2];
        char *copy;
        const int64_t n = (int64_t)strlen(bad[i].text);
        cr_expect_eq(compare(bad[i].text, n), 0, "%s", bad[i].text);
        cr_expect_eq(read_copy(bad[i].text, n, members, &copy), 0);
        cr_expect(strstr(record.walk.what, bad[i].what), "%s: \"%s\"", bad[i].text,
                  record.walk.what);
        cr_expect_eq(record.walk.at - copy - 1, bad[i].at, "%s: at %d", bad[i].text,
                     (int)(record.walk.at - copy - 1));
        free(copy);
    }
    lathe_json_record_fini(&record);
}

/* Changes, removes and doubles bytes of a text that contains every form. */
Test(json_record, agrees_with_jansson_on_changed_texts)
{
    static const char base[] =
        "{\"text\": \"\\u00e9\\ud83d\\ude00 \xc3\xa9\", \"a\\\"b\": [{\"k\": -1.5e+3, \"l\": {}}, "
        "true], \"n\": 0, \"text2\": \"\", \"t\\u0065xt3\": null}";
    static const char bytes[] = "\"\\{}[],:u0d8e+-. \n\x01\xc3\xf0";
    const int64_t n = (int64_t)sizeof base - 1;
    char text[2 * sizeof base];
    uint64_t seed = 7;
    int taken = 0;
    for (int round = 0; round < 60000; round++) {
        int64_t length = n;
        memcpy(text, base, (size_t)n);
        for (int edits = round % 3; edits >= 0; edits--) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const int64_t at = (int64_t)(seed >> 33) % length, from = (int64_t)(seed >> 13 & 0xff);
            const int64_t run = from % 9 < length - at ? from % 9 : length - at;
            switch (seed >> 60 & 3) {
            case 0:
                text[at] = bytes[(seed >> 40) % (sizeof bytes - 1)];
                break;
            case 1:
                memmove(text + at, text + at + run, (size_t)(length - at - run));
                length -= run < length - 1 ? run : 0;
                break;
            default:
                memmove(text + at + run, text + at, (size_t)(length - at));
                length += run;
            }
        }
        taken += compare(text, length);
    }
    cr_expect_gt(taken, 500);
    lathe_json_record_fini(&record);
}

/* Objects with many keys: all different, or one key twice at any position. */
Test(json_record, finds_a_key_twice_among_many)
{
    enum { N = 3000 };
    char *text = malloc(N * 16 + 64);
    for (int twice = -1; twice < N; twice += twice < 0 ? 1 : 611) {
        int64_t n = sprintf(text, "{\"a\": [{");
        for (int i = 0; i < N; i++)
            n += sprintf(text + n, "\"k%d\":%d,", (i * 7919) % N, i);
        n += twice < 0 ? sprintf(text + n, "\"last\":0}]}")
                       : sprintf(text + n, "\"\\u006b%d\":0}]}", twice);
        cr_expect_eq(compare(text, n), twice < 0, "%d", twice);
    }
    free(text);
    lathe_json_record_fini(&record);
}

Test(json_record, bounds_its_depth)
{
    for (int depth = LATHE_JSON_DEPTH - 1; depth <= LATHE_JSON_DEPTH + 1; depth++) {
        char *text = malloc((size_t)depth * 6 + 16);
        int64_t n = 0;
        for (int i = 0; i < depth - 1; i++)
            n += sprintf(text + n, i % 2 ? "[" : "{\"a\":");
        n += sprintf(text + n, "[]");
        for (int i = depth - 2; i >= 0; i--)
            text[n++] = i % 2 ? ']' : '}';
        cr_expect_eq(compare(text, n), depth <= LATHE_JSON_DEPTH, "%d", depth);
        free(text);
    }
    lathe_json_record_fini(&record);
}

Test(json_record, lists_its_keys)
{
    static const char text[] = "{\"a\": {\"inner\": \"x:y\"}, \"b\" : [\"c\"], \"d\": \":\"}";
    char list[64];
    lathe_json_record_keys(text, sizeof text - 1, list, sizeof list);
    cr_expect_str_eq(list, "a, b, d");
    lathe_json_record_keys(text, sizeof text - 1, list, 12);
    cr_expect_str_eq(list, "a, b, ...");
    lathe_json_record_keys("{}", 2, list, sizeof list);
    cr_expect_str_eq(list, "");
}
