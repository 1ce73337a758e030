/* The registry: which plugins are found, which are refused, and why. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "plug/kind.h"
#include "plug/registry.h"
#include "plug/schema_check.h"
#include "plug/select.h"

#define FIXTURES LATHE_TEST_BUILD "/tests/fixtures"

static lathe_registry *registry;
static lathe_arena arena;
static char folder[64];

static void setup(void)
{
    (void)unsetenv("LATHE_PLUGIN_PATH");
    cr_assert_eq(lathe_registry_create(&registry), LATHE_OK);
}

static void teardown(void)
{
    lathe_registry_destroy(registry);
    lathe_arena_fini(&arena);
    if (folder[0] != '\0')
        cr_assert_eq(lathe_dir_remove(folder), LATHE_OK);
}

TestSuite(registry, .init = setup, .fini = teardown);

static void add(const char *tree)
{
    cr_assert_eq(lathe_registry_add_path(registry, tree), LATHE_OK, "%s", lathe_error_message());
}

/* Checks that opening bad/optimizer/<name> fails with a message that begins with its path and
 * contains `part`. */
static void refused(const char *name, const char *part)
{
    const lathe_component *found = NULL;
    char path[512];
    (void)snprintf(path, sizeof path, FIXTURES "/bad/optimizer/%s.so: ", name);
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, name, &found), LATHE_E_PLUGIN);
    cr_assert_null(found);
    cr_assert_not_null(strstr(lathe_error_message(), part), "%s", lathe_error_message());
    cr_assert_eq(strncmp(lathe_error_message(), path, strlen(path)), 0, "%s",
                 lathe_error_message());
}

/* Copies a good plugin to a new folder under /tmp. */
static char *copy_plugin(void)
{
    char *text = NULL;
    int64_t bytes = 0;
    strcpy(folder, "/tmp/lathe_reg_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(lathe_dir_create(lathe_path_join(&arena, folder, "optimizer")), LATHE_OK);
    char *path = lathe_path_join(&arena, folder, "optimizer/plain.so");
    cr_assert_eq(lathe_file_read(FIXTURES "/good/optimizer/plain.so", 0, &text, &bytes), LATHE_OK);
    cr_assert_eq(lathe_file_write_atomic(path, text, bytes), LATHE_OK);
    cr_assert_eq(chmod(path, 0644), 0);
    free(text);
    return path;
}

/* A debugger, a profiler and dladdr() show a plugin under its own path, although it was loaded by
 * descriptor. */
Test(registry, a_loaded_plugin_is_known_by_its_own_path)
{
    const lathe_component *found = NULL;
    Dl_info info;
    add(FIXTURES "/good");
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, "plain", &found), LATHE_OK);
    cr_assert_neq(dladdr(found->plugin, &info), 0);
    cr_assert_str_eq(info.dli_fname, FIXTURES "/good/optimizer/plain.so");
}

Test(registry, finds_by_name_and_opens_nothing_else)
{
    const lathe_component *found = NULL, *again = NULL, **list = NULL;
    int64_t n = 0;
    add(FIXTURES "/good");
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, "plain", &found), LATHE_OK,
                 "%s", lathe_error_message());
    cr_assert_str_eq(found->plugin->name, "plain");
    cr_assert_str_eq(found->path, FIXTURES "/good/optimizer/plain.so");
    cr_assert_eq(lathe_registry_list(registry, 0, &arena, &list, &n), LATHE_OK);
    cr_assert_eq(n, 1);
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, "plain", &again), LATHE_OK);
    cr_assert_eq(found, again);
}

Test(registry, an_unknown_name_lists_the_existing_names_and_the_folders)
{
    const lathe_component *found = NULL;
    add(FIXTURES "/good");
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, "plian", &found),
                 LATHE_E_NOT_FOUND);
    cr_assert_not_null(strstr(lathe_error_message(), "did you mean 'plain'?"), "%s",
                       lathe_error_message());
    cr_assert_not_null(strstr(lathe_error_message(), "plane"));
    cr_assert_not_null(strstr(lathe_error_message(), FIXTURES "/good/optimizer"));
}

Test(registry, a_name_cannot_lead_out_of_the_folder)
{
    const lathe_component *found = NULL;
    add(FIXTURES "/good");
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, "../optimizer/plain", &found),
                 LATHE_E_NOT_FOUND);
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, "", &found),
                 LATHE_E_NOT_FOUND);
}

Test(registry, refuses_each_bad_plugin_with_its_reason)
{
    add(FIXTURES "/bad");
    refused("no_symbol", "exports no lathe_plugin_v1");
    refused("wrong_major", "built for ABI major 99, this core has 1");
    refused("short_size", "40 bytes, expected at least 104");
    refused("wrong_name", "calls itself 'another'");
    refused("wrong_kind", "is of kind scheduler");
    refused("new_revision", "revision 77");
    refused("short_table", "16 bytes");
    refused("bad_default", "default true of lr");
    refused("missing_library", "liblathe_fixture_gone.so");
    refused("two_symbols", "exports helper beside lathe_plugin_v1");
    refused("entry_function", "as a function");
    refused("entry_small", "of 4 bytes");
    refused("calls_exit", "calls exit()");
    refused("no_slots", "optimizer.slots is NULL; every optimizer has it");
    refused("no_step", "optimizer.step is NULL; every optimizer has it");
    int64_t n = 0;
    (void)lathe_registry_refusals(registry, &n);
    cr_assert_eq(n, 15);
}

Test(registry, a_scan_records_the_bad_and_keeps_the_good)
{
    const lathe_component **list = NULL;
    int64_t n = 0;
    add(FIXTURES "/good");
    add(FIXTURES "/bad");
    add(FIXTURES "/other");
    cr_assert_eq(lathe_registry_scan(registry, LATHE_KIND_OPTIMIZER), LATHE_OK);
    cr_assert_eq(lathe_registry_scan(registry, LATHE_KIND_OPTIMIZER), LATHE_OK);
    const lathe_refusal *refusals = lathe_registry_refusals(registry, &n);
    int64_t n_bad = 0, n_hidden = 0;
    for (int64_t i = 0; i < n; i++) {
        n_bad += strncmp(refusals[i].path, FIXTURES "/bad", strlen(FIXTURES "/bad")) == 0;
        if (refusals[i].is_note &&
            strcmp(refusals[i].path, FIXTURES "/other/optimizer/plain.so") == 0)
            n_hidden++;
    }
    cr_assert_eq(n_bad, 15);
    cr_assert_eq(n_hidden, 1, "the second of the same name is noted");
    cr_assert_eq(lathe_registry_list(registry, LATHE_KIND_OPTIMIZER, &arena, &list, &n), LATHE_OK);
    cr_assert_geq(n, 2);
    int seen = 0;
    for (int64_t i = 0; i < n; i++) {
        seen += strncmp(list[i]->path, FIXTURES "/good", strlen(FIXTURES "/good")) == 0;
        cr_assert(i == 0 || strcmp(list[i - 1]->plugin->name, list[i]->plugin->name) < 0);
    }
    cr_assert_eq(seen, 2, "of adamw the built-in one is used");
}

Test(registry, refuses_files_that_others_may_write)
{
    const lathe_component *found = NULL;
    const char *path = copy_plugin();
    add(folder);
    cr_assert_eq(chmod(path, 0664), 0);
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, "plain", &found),
                 LATHE_E_PLUGIN);
    cr_assert_not_null(strstr(lathe_error_message(), "its group may write it"));
    cr_assert_eq(chmod(path, 0646), 0);
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, "plain", &found),
                 LATHE_E_PLUGIN);
    cr_assert_not_null(strstr(lathe_error_message(), "anyone may write it"));
    cr_assert_eq(chmod(path, 0644), 0);
    cr_assert_eq(chmod(lathe_path_join(&arena, folder, "optimizer"), 0777), 0);
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, "plain", &found),
                 LATHE_E_PLUGIN);
    cr_assert_not_null(strstr(lathe_error_message(), "its folder"));
    cr_assert_eq(chmod(lathe_path_join(&arena, folder, "optimizer"), 0755), 0);
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, "plain", &found), LATHE_OK);
}

Test(registry, honours_a_pin)
{
    const lathe_component *found = NULL;
    char hex[65];
    const char *path = copy_plugin();
    add(folder);
    cr_assert_eq(lathe_sha256_file(path, hex), LATHE_OK);
    hex[0] = hex[0] == 'a' ? 'b' : 'a';
    cr_assert_eq(lathe_registry_pin(registry, "optimizer/plain", hex), LATHE_OK);
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, "plain", &found),
                 LATHE_E_PLUGIN);
    cr_assert_not_null(strstr(lathe_error_message(), "pinned to"));
    cr_assert_eq(lathe_sha256_file(path, hex), LATHE_OK);
    cr_assert_eq(lathe_registry_pin(registry, "optimizer/plain", hex), LATHE_OK);
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, "plain", &found), LATHE_OK);
    cr_assert_eq(lathe_registry_pin(registry, "optimizer/plain", "abc"), LATHE_E_ARG);
    cr_assert_eq(lathe_registry_pin(registry, "toaster/plain", hex), LATHE_E_ARG);
    cr_assert_eq(lathe_registry_pin(registry, "plain", hex), LATHE_E_ARG);
}

Test(registry, searches_added_then_environment_then_its_own_folder)
{
    const lathe_component *found = NULL;
    int64_t n = 0;
    lathe_registry *other = NULL;
    cr_assert_eq(
        setenv("LATHE_PLUGIN_PATH", "relative::" FIXTURES "/other:" FIXTURES "/good:/no", 1), 0);
    cr_assert_eq(lathe_registry_create(&other), LATHE_OK);
    const char *const *paths = lathe_registry_paths(other, &n);
    cr_assert_geq(n, 2);
    cr_assert_str_eq(paths[0], FIXTURES "/other");
    cr_assert_str_eq(paths[1], FIXTURES "/good");
    const lathe_refusal *refusals = lathe_registry_refusals(other, &n);
    cr_assert_eq(n, 2, "a relative folder is refused, and one that is not there");
    cr_assert_str_eq(refusals[0].path, "relative");
    cr_assert_str_eq(refusals[1].path, "/no");
    cr_assert_str_eq(refusals[1].reason, "LATHE_PLUGIN_PATH: '/no' is skipped, no such folder");
    cr_assert_eq(lathe_registry_add_path(other, FIXTURES "/bad"), LATHE_OK);
    cr_assert_eq(lathe_registry_add_path(other, FIXTURES "/good"), LATHE_OK);
    cr_assert_eq(lathe_registry_add_path(other, FIXTURES "/bad"), LATHE_OK);
    paths = lathe_registry_paths(other, &n);
    cr_assert_str_eq(paths[0], FIXTURES "/bad");
    cr_assert_str_eq(paths[1], FIXTURES "/good");
    cr_assert_str_eq(paths[2], FIXTURES "/other");
    cr_assert_eq(lathe_registry_find(other, LATHE_KIND_OPTIMIZER, "plain", &found), LATHE_OK);
    cr_assert_str_eq(found->path, FIXTURES "/good/optimizer/plain.so");
    cr_assert_eq(lathe_registry_add_path(other, "/no/such/folder"), LATHE_E_NOT_FOUND);
    lathe_registry_destroy(other);
}

Test(registry, names_are_listed_without_opening)
{
    const char **names = NULL;
    int64_t n = 0;
    int bad = 0;
    add(FIXTURES "/bad");
    cr_assert_eq(lathe_registry_names(registry, LATHE_KIND_OPTIMIZER, &arena, &names, &n),
                 LATHE_OK);
    for (int64_t i = 0; i < n; i++)
        bad += strcmp(names[i], "wrong_major") == 0;
    cr_assert_eq(bad, 1);
    (void)lathe_registry_refusals(registry, &n);
    cr_assert_eq(n, 0);
}

Test(registry, a_family_stands_for_its_members_and_the_score_decides)
{
    const lathe_component **list = NULL, *best = NULL;
    const char *why = NULL;
    int64_t n = 0;
    add(FIXTURES "/good");
    cr_assert_eq(lathe_registry_candidates(registry, LATHE_KIND_DEVICE, "tpu", &arena, &list, &n),
                 LATHE_OK);
    cr_assert_eq(n, 1);
    cr_assert_eq(lathe_registry_candidates(registry, LATHE_KIND_DEVICE, "mill", &arena, &list, &n),
                 LATHE_OK);
    cr_assert_eq(n, 2);
    cr_assert_eq(lathe_select_device(registry, "mill", &arena, &best, &why), LATHE_OK);
    cr_assert_str_eq(best->plugin->name, "mill_high");
    cr_assert_str_eq(why, "score 500");
    cr_assert_eq(lathe_select_device(registry, "mill_low", &arena, &best, &why), LATHE_OK);
    cr_assert_str_eq(best->plugin->name, "mill_low");
    cr_assert_str_eq(why, "score 100");
    cr_assert_eq(lathe_select_device(registry, "tpu", &arena, &best, &why), LATHE_E_UNSUPPORTED);
    cr_assert_not_null(
        strstr(lathe_error_message(), "device \"tpu\" cannot run on this machine ("));
    cr_assert_not_null(strstr(lathe_error_message(), "tpu: score 0"), "%s", lathe_error_message());
    cr_assert_eq(lathe_select_device(registry, "qpu", &arena, &best, &why), LATHE_E_NOT_FOUND);
}

Test(instance, is_made_from_values_and_errors_name_the_plugin)
{
    const lathe_component *found = NULL;
    lathe_value *values = NULL;
    lathe_instance instance = {0};
    lathe_diags diags = {0};
    const lathe_schema_scope scope = {.section = "optimizer"};
    setup();
    add(FIXTURES "/good");
    cr_assert_eq(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, "plain", &found), LATHE_OK);
    cr_assert_eq(lathe_schema_check(&scope, NULL, found->plugin->fields, found->plugin->n_fields,
                                    &arena, &diags, &values),
                 LATHE_OK);
    cr_assert_eq(diags.n, 0);
    cr_assert_eq(lathe_instance_init(&instance, found, values), LATHE_OK);
    cr_assert_not_null(instance.self);
    cr_assert_eq(instance.table, found->plugin->table);
    free(instance.self); /* the fixture's destroy does not free */
    lathe_instance_fini(&instance);
    values[0].f = 1e-6;
    cr_assert_eq(lathe_instance_init(&instance, found, values), LATHE_E_CONFIG);
    cr_assert_str_eq(lathe_error_message(),
                     "optimizer plain: weight_decay 0.1 is too large for lr 1e-06");
    lathe_instance_fini(&instance);
    teardown();
}

Test(kind, names_and_numbers_agree)
{
    for (int32_t kind = 1; kind < LATHE_N_KINDS; kind++) {
        cr_assert_eq(lathe_kind_id(lathe_kind_name(kind)), kind);
        cr_assert_geq(lathe_kind_revision(kind), 1);
        cr_assert_gt(lathe_kind_table_bytes(kind), 8);
    }
    cr_assert_eq(lathe_kind_id("toaster"), 0);
    cr_assert_str_eq(lathe_kind_name(0), "?");
    cr_assert_str_eq(lathe_kind_name(99), "?");
}
