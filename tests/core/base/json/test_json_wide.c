/* Integers beyond 64 bits keep their digits where they are written out again. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"
#include "base/json/json_wide.h"

static json_t *load(const char *text)
{
    json_t *root = NULL;
    cr_assert_eq(lathe_json_load_exact("a.json", text, (int64_t)strlen(text), 0, &root), LATHE_OK,
                 "%s", lathe_error_message());
    return root;
}

static void expect_same(const char *text)
{
    lathe_buffer out = LATHE_BUFFER_INIT;
    json_t *root = load(text);
    lathe_json_write_exact(root, &out);
    cr_expect_eq(out.status, LATHE_OK);
    cr_expect_str_eq(out.data, text);
    lathe_buffer_fini(&out);
    json_decref(root);
}

Test(json_wide, digits_are_kept_wherever_the_integer_is)
{
    expect_same("{\"a\":[1,-123456789012345678901,\"12345678901234567890\",{\"b\":"
                "18446744073709551616}],\"c\":9223372036854775808,\"d\":-9223372036854775808}");
    expect_same("-9223372036854775809");
    expect_same("[{},[],null,true,1.5,9999999999999999999999]");
    expect_same("{\"a\\\"99999999999999999999\":\"\\\\\",\"99999999999999999999\":"
                "99999999999999999999}");
}

Test(json_wide, other_values_have_no_digits)
{
    json_t *root = load("[1, 1.5, \"12345678901234567890\", {\"a\": \"1\"}, {\"\\u00ff\": \"1\"}, "
                        "12345678901234567890.0, 1e30, 12345678901234567890]");
    for (size_t i = 0; i < 7; i++)
        cr_expect_null(lathe_json_wide(json_array_get(root, i)), "%zu", i);
    cr_expect_str_eq(lathe_json_wide(json_array_get(root, 7)), "12345678901234567890");
    cr_expect_null(lathe_json_wide(NULL));
    json_decref(root);
}

Test(json_wide, an_integer_has_no_zeros_before_it)
{
    static const char *const wrong[] = {"[00000000000000000000001]", "[-012345678901234567890]",
                                        "[12345678901234567890x]", "[--12345678901234567890]"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        json_t *root = NULL;
        cr_expect_eq(lathe_json_load_exact("a.json", wrong[i], (int64_t)strlen(wrong[i]), 0, &root),
                     LATHE_E_PARSE, "%s", wrong[i]);
        cr_expect_null(root);
    }
}

Test(json_wide, a_real_number_beyond_a_double_is_refused_at_its_place)
{
    json_t *root = NULL;
    const char *text = "{\"a\": 12345678901234567890,\n \"b\": 1e400}";
    cr_assert_eq(lathe_json_load_exact("a.json", text, (int64_t)strlen(text), 0, &root),
                 LATHE_E_PARSE);
    cr_expect_eq(strncmp(lathe_error_message(), "a.json:2:", 9), 0, "%s", lathe_error_message());
    cr_expect_not_null(strstr(lathe_error_message(), "real number overflow"), "%s",
                       lathe_error_message());
}
