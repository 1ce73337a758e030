/* Schema checking, suggestions, diagnostics. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "plug/schema_check.h"
#include "plug/suggest.h"

static lathe_arena arena;
static lathe_diags diags;
static lathe_value *values;

static const lathe_field fields[] = {
    {"lr", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "1e-3", 0.0, 10.0, NULL, "1", "rate"},
    {"beta", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.9", 0.0, 1.0, NULL, "1", "decay"},
    LATHE_FIELD_INT("steps", NULL, 1, 1e18, "steps", "how many"),
    LATHE_FIELD_BOOL("nesterov", "true", "look ahead"),
    LATHE_FIELD_STRING("mode", "\"fast\"", "fast|exact", "how"),
    {"targets", LATHE_T_STRING_LIST, 0, "[\"q\", \"v\"]", LATHE_NO_RANGE, NULL, NULL, "where"},
    {"betas", LATHE_T_FLOAT_LIST, 0, "[0.9, 0.95]", 0.0, 1.0, NULL, "1", "decays"},
    {"extra", LATHE_T_TABLE, 0, NULL, LATHE_NO_RANGE, NULL, NULL, "anything"},
    {"rank", LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, LATHE_NO_RANGE, NULL, "1", "inner size"},
};
enum { LR, BETA, STEPS, NESTEROV, MODE, TARGETS, BETAS, EXTRA, RANK, N };

static void teardown(void)
{
    lathe_arena_fini(&arena);
    lathe_diags_fini(&diags);
}

TestSuite(schema, .fini = teardown);

static void check(const char *text)
{
    lathe_toml_node *root = NULL;
    const lathe_schema_scope scope = {
        .section = "optimizer", .skipped = "name", .place = {"run.toml", 1, 2}};
    lathe_diags_fini(&diags);
    cr_assert_eq(lathe_toml_load("run.toml", text, (int64_t)strlen(text), &arena, &root), LATHE_OK,
                 "%s", lathe_error_message());
    cr_assert_eq(lathe_schema_check(&scope, root, fields, N, &arena, &diags, &values), LATHE_OK);
    lathe_diags_sort(&diags);
}

static void printed(const char *want)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_diags_print(&diags, &text);
    cr_assert_not_null(text.data, "no diagnostics");
    cr_assert_str_eq(text.data, want, "got:\n%s", text.data);
    lathe_buffer_fini(&text);
}

Test(schema, defaults_and_explicit_values)
{
    check("name = \"adam\"\nrank = 8\nbeta = 0\nsteps = 100\n");
    cr_assert_eq(diags.n, 0);
    cr_assert(values[LR].f == 1e-3 && values[LR].is_set && !values[LR].is_explicit);
    cr_assert(values[BETA].f == 0.0 && values[BETA].is_explicit, "an integer is a number");
    cr_assert(values[STEPS].i == 100 && values[STEPS].f == 100.0);
    cr_assert(values[NESTEROV].i == 1);
    cr_assert_str_eq(values[MODE].s, "fast");
    cr_assert(values[TARGETS].n == 2 && strcmp(values[TARGETS].strs[1], "v") == 0);
    cr_assert(values[BETAS].n == 2 && values[BETAS].nums[1] == 0.95);
    cr_assert(!values[EXTRA].is_set && values[EXTRA].type == LATHE_T_TABLE);
}

Test(schema, all_errors_come_at_once_with_their_places)
{
    check("lrr = 1\n"
          "lr = 0\n"
          "beta = 1.0\n"
          "steps = 5.0\n"
          "nesterov = 1\n"
          "mode = \"fsat\"\n"
          "targets = [\"q\", 3]\n"
          "betas = [0.5, 1.5]\n"
          "extra = 3\n"
          "zzz = 1\n");
    printed("run.toml:1:1: error: unknown key 'lrr' in [optimizer] (did you mean 'lr'?)\n"
            "run.toml:1:2: error: optimizer.rank is required: inner size\n"
            "run.toml:2:6: error: optimizer.lr is 0, expected above 0 and at most 10\n"
            "run.toml:3:8: error: optimizer.beta is 1, expected at least 0 and below 1\n"
            "run.toml:4:9: error: optimizer.steps is a floating number, expected an integer: "
            "write 5\n"
            "run.toml:5:12: error: optimizer.nesterov is an integer, expected true or false\n"
            "run.toml:6:8: error: optimizer.mode is \"fsat\", expected one of fast, exact "
            "(did you mean 'fast'?)\n"
            "run.toml:7:11: error: optimizer.targets holds an integer, expected strings only\n"
            "run.toml:8:9: error: optimizer.betas is 1.5, expected at least 0 and at most 1\n"
            "run.toml:9:9: error: optimizer.extra is an integer, expected a table: anything\n"
            "run.toml:10:1: error: unknown key 'zzz' in [optimizer]\n");
    cr_assert_eq(diags.n_errors, 11);
    cr_assert_not(values[LR].is_set);
    cr_assert_eq(lathe_diags_status(&diags), LATHE_E_CONFIG);
    cr_assert_eq(strncmp(lathe_error_message(), "run.toml:1:1: error:", 20), 0);
}

Test(schema, nan_and_bounds_without_an_upper_end)
{
    check("rank = 1\nlr = nan\nsteps = 0\n");
    printed("run.toml:2:6: error: optimizer.lr is not a number\n"
            "run.toml:3:9: error: optimizer.steps is 0, expected at least 1\n");
    check("rank = 1\nlr = inf\n");
    printed("run.toml:2:6: error: optimizer.lr is inf, expected above 0 and at most 10\n");
}

Test(schema, tables_become_json)
{
    check("rank = 1\nextra = { a = 1, b = [true, \"x\"] }\n");
    cr_assert_str_eq(values[EXTRA].s, "{\"a\": 1, \"b\": [true, \"x\"]}");
    check("rank = 1\nextra = [1]\n");
    cr_assert_eq(diags.n_errors, 1);
}

Test(schema, typed_values_are_taken_as_the_field_wants_them)
{
    lathe_toml_node mode = {.kind = LATHE_TOML_INT, .key = "mode", .origin = "--o.mode", .s = "7"};
    lathe_toml_node targets = {
        .kind = LATHE_TOML_STRING, .key = "targets", .origin = "--o.targets", .s = "a,b"};
    lathe_toml_node rank = {.kind = LATHE_TOML_INT, .key = "rank", .i = 2, .f = 2.0};
    lathe_toml_node *children[] = {&mode, &targets, &rank};
    const lathe_toml_node table = {.kind = LATHE_TOML_TABLE, .children = children, .n_children = 3};
    const lathe_schema_scope scope = {.section = "o", .place = {"run.toml", 0, 0}};
    cr_assert_eq(lathe_schema_check(&scope, &table, fields, N, &arena, &diags, &values), LATHE_OK);
    printed("--o.mode: error: o.mode is \"7\", expected one of fast, exact\n");
    cr_assert_eq(values[TARGETS].n, 2);
    cr_assert_str_eq(values[TARGETS].strs[1], "b");
}

Test(schema, values_become_json)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    check("rank = 1\n");
    for (int i = 0; i < N; i++) {
        lathe_value_json(&values[i], &text);
        lathe_buffer_puts(&text, ";");
    }
    cr_assert_str_eq(text.data, "0.001;0.9;null;true;\"fast\";[\"q\", \"v\"];[0.9, 0.95];null;1;",
                     "%s", text.data);
    lathe_buffer_fini(&text);
}

static lathe_status validate(lathe_field field)
{
    return lathe_schema_validate(&field, 1);
}

Test(schema, a_list_of_fields_is_checked_itself)
{
    cr_assert_eq(lathe_schema_validate(fields, N), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_schema_validate(NULL, 0), LATHE_OK);
    cr_assert_eq(lathe_schema_validate(NULL, 2), LATHE_E_PLUGIN);
    cr_assert_eq(validate((lathe_field)LATHE_FIELD_BOOL("Bad", "true", "x")), LATHE_E_PLUGIN);
    cr_assert_eq(validate((lathe_field)LATHE_FIELD_BOOL("name", "true", "x")), LATHE_E_PLUGIN);
    cr_assert_eq(validate((lathe_field)LATHE_FIELD_BOOL("a", "yes", "x")), LATHE_E_PLUGIN);
    cr_assert_eq(validate((lathe_field)LATHE_FIELD_INT("a", "5", 6, 9, "1", "x")), LATHE_E_PLUGIN);
    const lathe_field twice[] = {fields[LR], fields[LR]};
    cr_assert_eq(lathe_schema_validate(twice, 2), LATHE_E_PLUGIN);
}

Test(suggest, counts_edits)
{
    cr_assert_eq(lathe_edit_distance("kitten", "sitting"), 3);
    cr_assert_eq(lathe_edit_distance("", "abc"), 3);
    cr_assert_eq(lathe_edit_distance("abc", "abc"), 0);
    cr_assert_eq(lathe_edit_distance("lr", "rl"), 1, "a swap is one edit");
    char long_word[200];
    memset(long_word, 'x', 199);
    long_word[199] = '\0';
    cr_assert_eq(lathe_edit_distance(long_word, "x"), 1000);
}

Test(suggest, only_what_was_probably_meant)
{
    const char *const words[] = {"lr", "weight_decay", NULL, "max_steps", "adamw"};
    cr_assert_str_eq(lathe_suggest("lrr", words, 5), "lr");
    cr_assert_str_eq(lathe_suggest("weightdecay", words, 5), "weight_decay");
    cr_assert_str_eq(lathe_suggest("adam", words, 5), "adamw");
    cr_assert_null(lathe_suggest("zebra", words, 5));
    cr_assert_null(lathe_suggest("a", words, 5));
    cr_assert_null(lathe_suggest("x", words, 0));
}
