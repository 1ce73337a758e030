/* Settings that a folder remembers: typed as the run file would have them, and placed at the folder
 * in messages. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/error.h"
#include "run/folder/folder_settings.h"

#define OK(call) cr_assert_eq(call, LATHE_OK, "%s", lathe_error_message())

static lathe_arena arena = LATHE_ARENA_INIT;

static void add(lathe_setting_list *list, const char *section, const char *key, const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    cr_assert_not_null(value);
    OK(lathe_settings_add(list, &arena, section, key, value));
    json_decref(value);
}

Test(folder_settings, have_the_types_of_the_manifest)
{
    lathe_setting_list list;
    OK(lathe_settings_init(&list, &arena));
    add(&list, "adapter", "r", "8");
    add(&list, "adapter", "alpha", "16.0");
    add(&list, "adapter", "strict", "false");
    add(&list, "adapter", "name", "\"lora\"");
    add(&list, "adapter", "target_modules", "[\"q_proj\", \"v_proj\"]");
    add(&list, "adapter", "rank_pattern", "{\"down_proj\": 4}");
    add(&list, "adapter", "r", "9"); /* the first of a key counts */
    cr_assert_eq(list.n, 6);
    const lathe_toml_node *r = lathe_settings_value(&list, "adapter.r");
    cr_assert(r && r->kind == LATHE_TOML_INT && r->i == 8);
    const lathe_toml_node *alpha = lathe_settings_value(&list, "adapter.alpha");
    cr_assert(alpha && alpha->kind == LATHE_TOML_FLOAT);
    cr_expect_float_eq(alpha->f, 16.0, 0.0);
    const lathe_toml_node *strict = lathe_settings_value(&list, "adapter.strict");
    cr_assert(strict && strict->kind == LATHE_TOML_BOOL && strict->i == 0);
    const lathe_toml_node *name = lathe_settings_value(&list, "adapter.name");
    cr_assert(name && name->kind == LATHE_TOML_STRING);
    cr_expect_str_eq(name->s, "lora");
    const lathe_toml_node *modules = lathe_settings_value(&list, "adapter.target_modules");
    cr_assert(modules && modules->kind == LATHE_TOML_ARRAY && modules->n_children == 2);
    cr_expect_str_eq(modules->children[1]->s, "v_proj");
    const lathe_toml_node *pattern = lathe_settings_value(&list, "adapter.rank_pattern");
    cr_assert(pattern && pattern->kind == LATHE_TOML_TABLE && pattern->n_children == 1);
    cr_expect_str_eq(pattern->children[0]->key, "down_proj");
    cr_expect_eq(pattern->children[0]->i, 4);
    cr_expect_null(lathe_settings_value(&list, "adapter.dropout"));
}

/* The place stays with copies of the edits, as a trial makes them. */
Test(folder_settings, messages_name_the_folder)
{
    lathe_setting_list list;
    lathe_registry *registry = NULL;
    lathe_config *config = NULL;
    lathe_diags diags = {0};
    lathe_edits edits = {.n = 0}, copies = {.n = 0};
    OK(lathe_settings_init(&list, &arena));
    list.dir = "out/step-00000002";
    add(&list, "train", "max_steps", "\"many\"");
    lathe_edits_add(&edits, &list.edits[0]);
    lathe_edits_take(&copies, &edits, 0);
    cr_expect(lathe_edits_have(&copies, LATHE_BY_FOLDER, "train.max_steps"));
    OK(lathe_registry_create(&registry));
    cr_expect_eq(lathe_config_of_edits(&copies, 0, registry, &diags, &config), LATHE_E_CONFIG);
    cr_expect_eq(strncmp(lathe_error_message(), "out/step-00000002: error: ", 26), 0, "%s",
                 lathe_error_message());
    lathe_diags_fini(&diags);
    lathe_registry_destroy(registry);
    lathe_edits_fini(&edits);
    lathe_edits_fini(&copies);
}
