/* Datasets: the files that a path, a folder or a pattern stands for, and the format that is
 * assumed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "config/config.h"
#include "data/records/dataset.h"

static char root[64];
static lathe_arena arena;

static char *at(const char *name)
{
    return lathe_path_join(&arena, root, name);
}

static void put(const char *name)
{
    cr_assert_eq(lathe_file_write_atomic(at(name), "x", 1), LATHE_OK);
}

static void setup(void)
{
    strcpy(root, "/tmp/lathe_dataset_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(lathe_dir_create(at("d/e/f")), LATHE_OK);
    cr_assert_eq(lathe_dir_create(at("d/.hidden")), LATHE_OK);
    put("b.txt");
    put("a.txt");
    put("a.jsonl");
    put("c[1].txt");
    put("d/a.txt");
    put("d/e/b.txt");
    put("d/e/f/c.md");
    put("d/.hidden/a.txt");
}

static void teardown(void)
{
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    lathe_arena_fini(&arena);
}

TestSuite(dataset, .init = setup, .fini = teardown);

/* The files of a dataset, as names below the root one after another. */
static const char *files(const char *path, int32_t type, int32_t *out_type)
{
    const lathe_dataset dataset = {.path = at(path), .type = type};
    lathe_sources sources;
    const lathe_status status = lathe_sources_list(&dataset, &arena, &sources);
    if (status != LATHE_OK)
        return lathe_error_message();
    char *text = lathe_arena_strdup(&arena, "");
    for (int64_t i = 0; i < sources.n; i++)
        text = lathe_arena_printf(&arena, "%s%s%s", text, i ? " " : "",
                                  sources.list[i].path + strlen(root) + 1);
    if (out_type)
        *out_type = sources.type;
    return text;
}

Test(dataset, patterns_match_as_in_a_shell_and_come_sorted)
{
    cr_expect_str_eq(files("*.txt", LATHE_DATASET_AUTO, NULL), "a.txt b.txt c[1].txt");
    cr_expect_str_eq(files("?.txt", LATHE_DATASET_AUTO, NULL), "a.txt b.txt");
    cr_expect_str_eq(files("[b-z]*.txt", LATHE_DATASET_AUTO, NULL), "b.txt c[1].txt");
    cr_expect_str_eq(files("[!b]*.txt", LATHE_DATASET_AUTO, NULL), "a.txt c[1].txt");
    /* an existing name has precedence */
    cr_expect_str_eq(files("c[1].txt", LATHE_DATASET_AUTO, NULL), "c[1].txt");
    cr_expect_str_eq(files("*/a.txt", LATHE_DATASET_AUTO, NULL), "d/a.txt");
    cr_expect_str_eq(files("**/a.txt", LATHE_DATASET_AUTO, NULL), "a.txt d/a.txt");
    cr_expect_str_eq(files("**/**/b.txt", LATHE_DATASET_AUTO, NULL), "b.txt d/e/b.txt");
    cr_expect_str_eq(files("d/**", LATHE_DATASET_AUTO, NULL), "d/a.txt d/e/b.txt d/e/f/c.md");
    cr_expect_str_eq(files("d/*", LATHE_DATASET_AUTO, NULL), "d/a.txt d/e/b.txt d/e/f/c.md");
    cr_expect_str_eq(files("d/.h*/*", LATHE_DATASET_AUTO, NULL), "d/.hidden/a.txt");
}

Test(dataset, no_match_is_reported_with_the_path)
{
    char want[160];
    snprintf(want, sizeof want, "%s/*.csv: no file matches this pattern", root);
    cr_expect_str_eq(files("*.csv", LATHE_DATASET_AUTO, NULL), want);
    snprintf(want, sizeof want, "%s/none: no such file or folder to take data from", root);
    cr_expect_str_eq(files("none", LATHE_DATASET_AUTO, NULL), want);
    snprintf(want, sizeof want, "%s/d: the folder holds no *.csv or *.tsv", root);
    cr_expect_str_eq(files("d", LATHE_DATASET_CSV, NULL), want);
}

Test(dataset, unset_types_follow_the_names_when_all_agree)
{
    int32_t type = -9;
    cr_expect_str_eq(files("a.jsonl", LATHE_DATASET_AUTO, &type), "a.jsonl");
    cr_expect_eq(type, LATHE_DATASET_JSONL);
    files("d", LATHE_DATASET_AUTO, &type);
    cr_expect_eq(type, LATHE_DATASET_TEXT);
    files("a.*", LATHE_DATASET_AUTO, &type); /* a.jsonl and a.txt */
    cr_expect_eq(type, LATHE_DATASET_TEXT);
    files("a.txt", LATHE_DATASET_JSON, &type);
    cr_expect_eq(type, LATHE_DATASET_JSON, "what is set stays");
    static const struct {
        const char *name;
        int32_t type;
    } table[] = {{"n/x.ndjson", LATHE_DATASET_JSONL},
                 {"j/x.json", LATHE_DATASET_JSON},
                 {"c/x.csv", LATHE_DATASET_CSV},
                 {"c/y.tsv", LATHE_DATASET_CSV}};
    for (int i = 0; i < 4; i++) {
        char folder[2] = {table[i].name[0], 0};
        cr_assert_eq(lathe_dir_create(at(folder)), LATHE_OK);
        put(table[i].name);
        files(folder, LATHE_DATASET_AUTO, &type);
        cr_expect_eq(type, table[i].type, "%s", table[i].name);
    }
}

/* ---- datasets of a configuration ---- */

static lathe_registry *registry;
static lathe_config *config;

/* Loads a run file that has `text` in its section [data]. */
static lathe_status load(const char *text, lathe_diags *diags)
{
    const char *file = lathe_arena_printf(&arena, "[data]\n%s\n", text);
    cr_assert_eq(lathe_registry_create(&registry), LATHE_OK);
    cr_assert_eq(lathe_file_write_atomic(at("run.toml"), file, (int64_t)strlen(file)), LATHE_OK);
    return lathe_config_load(at("run.toml"), NULL, 0, 0, registry, diags, &config);
}

static void unload(lathe_diags *diags)
{
    lathe_config_destroy(config);
    lathe_registry_destroy(registry);
    lathe_diags_fini(diags);
}

Test(dataset, of_a_configuration_has_what_its_table_and_the_tables_inside_say)
{
    lathe_diags diags = {0};
    lathe_dataset *list;
    int64_t n;
    cr_assert_eq(load("datasets = [{ path = \"/a\" }, { path = \"/b.jsonl\", columns = { chosen = "
                      "\"win\", label = \"good\", messages = \"talk\" } }, { path = \"/c\", type = "
                      "\"jsonl\", weight = 0.5, format = { prompt = \"\", completion = \"{x}\" } "
                      "}, { path = \"/d\", format = \"{y}\" }]\n"
                      "validation = { path = \"/v\", columns = { text = \"body\" } }",
                      &diags),
                 LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_datasets_read(config, "datasets", &arena, &list, &n), LATHE_OK);
    cr_assert_eq(n, 4);
    cr_expect_str_eq(list[0].path, "/a");
    cr_expect_eq(list[0].type, LATHE_DATASET_AUTO);
    cr_expect_eq(list[0].weight, 1.0);
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++) {
        cr_expect_null(list[0].columns[c]);
        cr_expect_null(list[0].formats[c]);
    }
    cr_expect_eq(list[0].n_input_columns, 0);
    cr_expect_eq(list[1].type, LATHE_DATASET_AUTO);
    cr_expect_str_eq(list[1].columns[LATHE_COLUMN_CHOSEN], "win");
    cr_expect_null(list[1].columns[LATHE_COLUMN_TEXT]);
    cr_expect_str_eq(list[1].messages, "talk");
    cr_assert_eq(list[1].n_input_columns, 1);
    cr_expect_str_eq(list[1].input_columns[0].input, "label");
    cr_expect_str_eq(list[1].input_columns[0].field, "good");
    cr_expect_eq(list[2].type, LATHE_DATASET_JSONL);
    cr_expect_eq(list[2].weight, 0.5);
    cr_expect_null(list[2].columns[LATHE_COLUMN_CHOSEN]);
    cr_expect_str_eq(list[2].formats[LATHE_COLUMN_PROMPT], "");
    cr_expect_str_eq(list[2].formats[LATHE_COLUMN_COMPLETION], "{x}");
    cr_expect_str_eq(list[3].formats[LATHE_COLUMN_TEXT], "{y}");
    cr_assert_eq(lathe_datasets_read(config, "validation", &arena, &list, &n), LATHE_OK);
    cr_assert_eq(n, 1);
    cr_expect_str_eq(list[0].columns[LATHE_COLUMN_TEXT], "body");
    cr_expect_eq(list[0].type, LATHE_DATASET_AUTO);
    cr_expect_eq(list[0].weight, 1.0);
    unload(&diags);
}

static void refused(const char *text, const char *says)
{
    lathe_diags diags = {0};
    config = NULL;
    cr_expect_eq(load(text, &diags), LATHE_E_CONFIG, "%s", text);
    cr_expect(strstr(lathe_error_message(), says), "\"%s\" lacks \"%s\"", lathe_error_message(),
              says);
    unload(&diags);
}

Test(dataset, of_a_configuration_that_is_wrong_is_refused_at_its_key)
{
    refused("datasets = [{ type = \"text\" }]", "data.datasets.path");
    refused("datasets = [{ path = \"a\", typ = 1 }]",
            "run.toml:2:27: error: unknown key 'typ' in [data.datasets]");
    refused("datasets = [{ path = \"a\", type = \"parquet\" }]", "text, jsonl, json");
    refused("datasets = [{ path = \"a\", weight = -1 }]", "data.datasets.weight is -1");
    refused("datasets = [{ path = \"a\", weight = 0 }]", "data.datasets.weight is 0");
    refused("datasets = [{ path = \"a\", weight = \"2\" }]", "data.datasets.weight");
    refused("datasets = [{ path = \"a\", format = { txt = \"b\" } }]",
            "unknown key 'txt' in [data.datasets.format]");
    refused("datasets = [{ path = \"a\", columns = { text = \"\" } }]",
            "run.toml:2:46: error: data.datasets.columns.text is empty; expected the name of a "
            "column of the data");
    refused("datasets = [{ path = \"a\", columns = { label = \"\" } }]",
            "data.datasets.columns.label is empty");
}
