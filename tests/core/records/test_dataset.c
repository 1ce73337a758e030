/* Datasets: the files that a path, a folder or a pattern stands for, and the format that is
 * assumed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "records/dataset.h"

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
