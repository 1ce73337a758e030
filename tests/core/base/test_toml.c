/* TOML input: kinds, places, order, errors. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/toml.h"

static lathe_arena arena;

static void teardown(void)
{
    lathe_arena_fini(&arena);
}

static lathe_status load(const char *text, lathe_toml_node **out)
{
    return lathe_toml_load("run.toml", text, (int64_t)strlen(text), &arena, out);
}

TestSuite(toml, .fini = teardown);

Test(toml, every_kind_with_the_place_of_key_and_value)
{
    lathe_toml_node *root = NULL;
    cr_assert_eq(load("[train]\nz = 3\n  a = 0.5 # x\nname = \"h\\u00e9\"\non = true\n"
                      "day = 2024-01-02\n[data]\nsets = [{p = \"a\"}, {p = \"b\"}]\n",
                      &root),
                 LATHE_OK, "%s", lathe_error_message());
    const lathe_toml_node *train = lathe_toml_find(root, "train");
    cr_assert_eq(train->kind, LATHE_TOML_TABLE);
    cr_assert_eq(train->key_line, 1);
    cr_assert_eq(train->key_column, 2);
    const lathe_toml_node *z = train->children[0];
    cr_assert_str_eq(z->key, "z", "children come in the order of the file");
    cr_assert(z->kind == LATHE_TOML_INT && z->i == 3 && z->f == 3.0);
    cr_assert(z->line == 2 && z->column == 5 && z->key_line == 2 && z->key_column == 1);
    const lathe_toml_node *a = train->children[1];
    cr_assert(a->kind == LATHE_TOML_FLOAT && a->f == 0.5 && a->key_column == 3 && a->column == 7);
    cr_assert_str_eq(lathe_toml_find(train, "name")->s, "h\xC3\xA9");
    cr_assert_eq(lathe_toml_find(train, "on")->i, 1);
    cr_assert_eq(lathe_toml_find(train, "day")->kind, LATHE_TOML_TIME);
    cr_assert_str_eq(lathe_toml_find(train, "day")->s, "2024-01-02");
    const lathe_toml_node *sets = lathe_toml_find(lathe_toml_find(root, "data"), "sets");
    cr_assert(sets->kind == LATHE_TOML_ARRAY && sets->n_children == 2);
    const lathe_toml_node *p = lathe_toml_find(sets->children[1], "p");
    cr_assert(p->line == 8 && p->key_column == 21, "%d:%d", p->line, p->key_column);
    cr_assert_null(lathe_toml_find(root, "none"));
    cr_assert_null(lathe_toml_find(z, "none"));
}

/* The reader of the value refuses it together with other errors (core/plug/schema_value.c). */
Test(toml, numbers_beyond_64_bits_are_nodes_of_their_own)
{
    static const char *const texts[] = {"9223372036854775808",
                                        "-9223372036854775809",
                                        "0xFFFFFFFFFFFFFFFF",
                                        "+99_999_999_999_999_999_999",
                                        "1e999",
                                        "-1.5e+400"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        lathe_toml_node *root = NULL;
        char text[256];
        snprintf(text, sizeof text, "# \xC3\xA9\na = 1\nb = [\"\xC3\xA9\", %s, 7]\nc = 2",
                 texts[i]);
        cr_assert_eq(load(text, &root), LATHE_OK, "%s", lathe_error_message());
        const lathe_toml_node *list = lathe_toml_find(root, "b"), *big = list->children[1];
        cr_expect_eq(big->kind, LATHE_TOML_BIG, "%s", texts[i]);
        cr_expect_str_eq(big->s, texts[i]);
        cr_expect(big->line == 3 && big->column == 11, "%d:%d", big->line, big->column);
        cr_expect_eq(list->children[2]->i, 7);
        cr_expect_eq(lathe_toml_find(root, "c")->i, 2);
        cr_expect_eq(load(texts[i], &root), LATHE_E_PARSE);
    }
}

Test(toml, a_number_beyond_64_bits_may_end_the_text)
{
    lathe_toml_node *root = NULL, *literal = NULL;
    cr_assert_eq(load("\xEF\xBB\xBF"
                      "a = 9223372036854775808",
                      &root),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(lathe_toml_find(root, "a")->kind, LATHE_TOML_BIG);
    cr_expect_gt(lathe_toml_find(root, "a")->f, 9.2e18);
    cr_assert_eq(lathe_toml_literal("9223372036854775808", &arena, &literal), LATHE_OK);
    cr_expect_eq(literal->kind, LATHE_TOML_BIG);
}

Test(toml, many_numbers_beyond_64_bits_are_refused_by_the_parser)
{
    char text[2048] = "a = [";
    lathe_toml_node *root = NULL;
    for (int i = 0; i < 40; i++)
        strcat(text, "99999999999999999999, ");
    strcat(text, "1]");
    cr_expect_eq(load(text, &root), LATHE_E_PARSE);
    cr_expect_not_null(strstr(lathe_error_message(), "not representable in 64 bits"));
}

Test(toml, an_empty_text_is_an_empty_table)
{
    lathe_toml_node *root = NULL;
    cr_assert_eq(load("", &root), LATHE_OK);
    cr_assert_eq(root->kind, LATHE_TOML_TABLE);
    cr_assert_eq(root->n_children, 0);
}

Test(toml, errors_name_file_line_and_column)
{
    lathe_toml_node *root = NULL;
    cr_assert_eq(load("[train]\na = 1\nb = = 2\n", &root), LATHE_E_PARSE);
    cr_assert_null(root);
    cr_assert_eq(strncmp(lathe_error_message(), "run.toml:3:5: ", 14), 0, "%s",
                 lathe_error_message());
    cr_assert_eq(load("a = 1\na = 2\n", &root), LATHE_E_PARSE);
    cr_assert_eq(strncmp(lathe_error_message(), "run.toml:2:", 11), 0, "%s", lathe_error_message());
    cr_assert_eq(load("a = \"x\n", &root), LATHE_E_PARSE);
    cr_assert_eq(load("a = \"\xff\"", &root), LATHE_E_PARSE);
    cr_assert_eq(load("a = \"x\\u0000y\"", &root), LATHE_E_PARSE);
    cr_assert_not_null(strstr(lathe_error_message(), "NUL"));
}

Test(toml, depth_is_bounded)
{
    static char text[200000];
    lathe_toml_node *root = NULL;
    strcpy(text, "a = ");
    memset(text + 4, '[', 100);
    memset(text + 104, ']', 100);
    cr_assert_eq(load(text, &root), LATHE_E_PARSE);
    for (size_t i = 0; i + 1 < sizeof text; i += 2)
        memcpy(text + i, "a.", 2);
    text[sizeof text - 6] = '\0';
    strcat(text, "=1");
    cr_assert_eq(load(text, &root), LATHE_E_PARSE);
    cr_assert_not_null(strstr(lathe_error_message(), "dots"), "%s", lathe_error_message());
    memset(text, '[', 100000);
    cr_assert_eq(load(text, &root), LATHE_E_PARSE);
}

Test(toml, literals_are_one_value)
{
    lathe_toml_node *value = NULL;
    cr_assert_eq(lathe_toml_literal("0.9", &arena, &value), LATHE_OK);
    cr_assert(value->kind == LATHE_TOML_FLOAT && value->f == 0.9);
    cr_assert_eq(lathe_toml_literal("[1, 2]", &arena, &value), LATHE_OK);
    cr_assert_eq(value->n_children, 2);
    cr_assert_eq(lathe_toml_literal("adamw", &arena, &value), LATHE_E_PARSE);
    cr_assert_eq(lathe_toml_literal("1\nx = 2", &arena, &value), LATHE_E_PARSE);
    cr_assert_eq(lathe_toml_literal("", &arena, &value), LATHE_E_PARSE);
    cr_assert_null(value);
}

Test(toml, set_replaces_or_appends)
{
    lathe_toml_node *root = NULL, *one = NULL, *two = NULL;
    cr_assert_eq(load("a = 1", &root), LATHE_OK);
    cr_assert_eq(lathe_toml_literal("5", &arena, &one), LATHE_OK);
    cr_assert_eq(lathe_toml_literal("6", &arena, &two), LATHE_OK);
    one->key = "a";
    two->key = "b";
    cr_assert_eq(lathe_toml_set(root, one, &arena), LATHE_OK);
    cr_assert_eq(lathe_toml_set(root, two, &arena), LATHE_OK);
    cr_assert_eq(root->n_children, 2);
    cr_assert_eq(lathe_toml_find(root, "a")->i, 5);
    cr_assert_eq(lathe_toml_find(root, "b")->i, 6);
}

Test(toml, becomes_json)
{
    lathe_toml_node *root = NULL;
    lathe_buffer out = LATHE_BUFFER_INIT;
    cr_assert_eq(load("b = [1, 0.1, true, \"q\\\"\"]\na = {x = nan, y = 3.0}", &root), LATHE_OK);
    lathe_toml_json(root, &out);
    cr_assert_str_eq(out.data,
                     "{\"b\": [1, 0.1, true, \"q\\\"\"], \"a\": {\"x\": null, \"y\": 3.0}}");
    lathe_buffer_fini(&out);
}

Test(toml, doubles_survive_json)
{
    const double values[] = {0.1, 1.0 / 3.0, 3e-4, 1e300, -0.0, 5e-324, 123456789.123};
    for (int i = 0; i < 7; i++) {
        lathe_buffer out = LATHE_BUFFER_INIT;
        lathe_buffer_json_double(&out, values[i]);
        const double back = strtod(out.data, NULL);
        cr_assert_eq(memcmp(&back, &values[i], sizeof back), 0, "%s", out.data);
        lathe_buffer_fini(&out);
    }
}
