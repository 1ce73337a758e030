/* JSON input: positions, duplicates, depth. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"

static lathe_status load(const char *text, json_t **out)
{
    return lathe_json_load("a.json", text, (int64_t)strlen(text), out);
}

Test(json, reads_an_object)
{
    json_t *root = NULL;
    cr_assert_eq(load("{\"a\": [1, 2.5, \"x\"]}", &root), LATHE_OK);
    cr_assert_eq(json_array_size(json_object_get(root, "a")), 3);
    json_decref(root);
}

Test(json, errors_name_file_line_and_column)
{
    json_t *root = NULL;
    cr_assert_eq(load("{\n  \"a\": ,\n}", &root), LATHE_E_PARSE);
    cr_assert_null(root);
    cr_assert_eq(strncmp(lathe_error_message(), "a.json:2:", 9), 0, "%s", lathe_error_message());
}

Test(json, refuses_duplicate_keys)
{
    json_t *root = NULL;
    cr_assert_eq(load("{\"a\": 1, \"a\": 2}", &root), LATHE_E_PARSE);
    cr_assert_not_null(strstr(lathe_error_message(), "duplicate"), "%s", lathe_error_message());
}

Test(json, refuses_cut_empty_and_trailing_text)
{
    json_t *root = NULL;
    cr_assert_eq(load("{\"a\": ", &root), LATHE_E_PARSE);
    cr_assert_eq(load("", &root), LATHE_E_PARSE);
    cr_assert_eq(load("{} x", &root), LATHE_E_PARSE);
}

Test(json, refuses_nul_bytes)
{
    static const char text[] = "{\"a\": 1,\n \0 \"b\": 2}";
    json_t *root;
    cr_assert_eq(lathe_json_load("x.json", text, (int64_t)sizeof text - 1, &root), LATHE_E_PARSE);
    cr_assert_str_eq(lathe_error_message(), "x.json:2:2: a NUL byte");
}

Test(json, depth_is_bounded_and_brackets_in_strings_are_text)
{
    char text[2000] = "";
    json_t *root = NULL;
    memset(text, '[', 300);
    cr_assert_eq(load(text, &root), LATHE_E_PARSE);
    cr_assert_str_eq(lathe_error_message(), "a.json:1:257: nested deeper than 256");
    memset(text, 0, sizeof text);
    text[0] = '"';
    memset(text + 1, '[', 300);
    text[301] = '"';
    cr_assert_eq(load(text, &root), LATHE_OK);
    json_decref(root);
}

Test(json, a_missing_file_is_not_found)
{
    json_t *root = NULL;
    cr_assert_eq(lathe_json_load_file("/proc/self/nothing/x.json", &root), LATHE_E_NOT_FOUND);
    cr_assert_not_null(strstr(lathe_error_message(), "/proc/self/nothing/x.json"));
}
