/* lathe_lineage_read on manifests whose fields are not what Lathe writes: every byte of them is
 * sealed, so that only the reader stands between them and the user. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "checkpoint/lineage/lineage.h"
#include "files/safetensors/manifest.h"

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/lathe_lineage_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    cr_assert_eq(lathe_dir_remove(folder), LATHE_OK);
}

TestSuite(lineage_fields, .init = make_folder, .fini = remove_folder, .timeout = 60);

static void put(const char *name, const char *text)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(lathe_file_write_atomic(path, text, (int64_t)strlen(text)), LATHE_OK);
}

/* Makes the checkpoint folder/<name> with this meta. */
static void put_checkpoint(const char *name, const char *meta)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(lathe_dir_create(path), LATHE_OK);
    cr_assert_eq(lathe_manifest_write(path, meta), LATHE_OK);
}

static json_t *read_one(const char *name, int64_t *n_damaged)
{
    char path[160];
    json_t *out = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(lathe_lineage_read(path, 1, &out, n_damaged), LATHE_OK);
    return out;
}

Test(lineage_fields, of_another_form_are_damage_and_never_a_crash)
{
    static const struct {
        const char *meta;
        int n_damaged;
    } cases[] = {
        {"{}", 0},
        {"[]", 0},
        {"7", 0},
        {"{\"parents\": []}", 0},
        {"{\"parents\": 7}", 1},
        {"{\"parents\": {}}", 1},
        {"{\"parents\": [7]}", 1},
        {"{\"parents\": [{}]}", 1},
        {"{\"parents\": [{\"path\": 7}]}", 1},
        {"{\"parents\": [{\"path\": \"\"}]}", 0},
        {"{\"parents\": [{\"path\": \"/nothing\"}]}", 0},
        {"{\"parents\": [{\"path\": \"relative/nothing\", \"files\": {}}]}", 0},
        {"{\"parents\": [{\"path\": \"/tmp\", \"files\": 7}]}", 1},
        {"{\"parents\": [{\"path\": \"/tmp\", \"files\": {\"../etc/passwd\": {\"bytes\": 1, "
         "\"sha256\": \"00\"}}}]}",
         1},
        {"{\"parents\": [{\"path\": \"/tmp\", \"files\": {\"a\": {\"bytes\": \"1\", \"sha256\": "
         "7}}}]}",
         1},
        {"{\"parents\": [{\"path\": \"/tmp\", \"roles\": {\"a\": 1}, \"manifest\": 7, \"files\": "
         "{}}]}",
         0},
        {"{\"folder\": 7, \"parents\": [{\"path\": \"/nothing/a\", \"files\": {\"a\": {\"bytes\": "
         "1, "
         "\"sha256\": \"00\"}}}]}",
         0},
        {"{\"data\": {\"files\": 7}, \"validation\": [], \"resumed\": {\"path\": []}}", 0},
        {"{\"data\": {\"files\": [7, {}, {\"path\": \"x\", \"sha256\": \"00\"}, "
         "{\"path\": \"/dev/zero\", \"sha256\": \"00\", \"bytes\": 0}]}}",
         1},
        {"{\"config\": {\"model\": {\"path\": \"/nothing\"}, \"stage\": 7, \"train\": []}}", 0},
        {"{\"config\": 7, \"step\": \"four\", \"figures\": [1], \"lathe\": {}}", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t n = -1;
        put_checkpoint("step-00000001", cases[i].meta);
        json_t *node = read_one("step-00000001", &n);
        cr_expect_eq(n, cases[i].n_damaged, "%s: %lld", cases[i].meta, (long long)n);
        json_decref(node);
    }
}

/* a is made of b, and b of a. */
Test(lineage_fields, of_a_circle_end)
{
    char meta[300];
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(meta, sizeof meta,
                 "{\"parents\": [{\"roles\": [\"model\"], \"path\": \"%s/%s\"}]}", folder,
                 i ? "a" : "b");
        put_checkpoint(i ? "b" : "a", meta);
    }
    json_t *node = read_one("a", &n);
    cr_expect_eq(n, 1);
    char *text = json_dumps(node, 0);
    cr_expect_not_null(strstr(text, "this folder is its own ancestor"), "%s", text);
    free(text);
    json_decref(node);
}

Test(lineage_fields, of_a_chain_that_is_too_long_end)
{
    char name[32], meta[300];
    int64_t n = 0;
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "c%d", i);
        snprintf(meta, sizeof meta, "{\"parents\": [{\"path\": \"%s/c%d\"}]}", folder, i + 1);
        put_checkpoint(name, meta);
    }
    json_t *node = read_one("c0", &n);
    cr_expect_eq(n, 1);
    json_decref(node);
}

/* 256 neighbours are looked at, not every folder of the disk. */
Test(lineage_fields, of_a_missing_parent_do_not_search_forever)
{
    char name[160];
    int64_t n = 0;
    for (int i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "%s/d%d", folder, i);
        cr_assert_eq(lathe_dir_create(name), LATHE_OK);
    }
    put("weights.safetensors", "x");
    put_checkpoint("run",
                   "{\"parents\": [{\"path\": \"/nothing\", \"files\": {\"model.safetensors\": "
                   "{\"bytes\": 1, \"sha256\": \"00\"}}}]}");
    json_t *node = read_one("run", &n);
    const json_t *parent = json_array_get(json_object_get(node, "parents"), 0);
    cr_expect_str_eq(json_string_value(json_object_get(parent, "state")), "missing");
    cr_expect_eq(n, 0);
    json_decref(node);
}
