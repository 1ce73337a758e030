/* The rewards of a run file: one table [reward], or several tables [[reward]]. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "config/config.h"

static lathe_registry *registry;
static lathe_config *config;
static lathe_diags diags;
static char folder[64], old_folder[4096];

static void setup(void)
{
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", LATHE_TEST_BUILD "/lib/lathe/plugins", 1), 0);
    cr_assert_not_null(getcwd(old_folder, sizeof old_folder));
    strcpy(folder, "/tmp/lathe_cfg_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
    cr_assert_eq(lathe_registry_create(&registry), LATHE_OK);
}

static void teardown(void)
{
    lathe_config_destroy(config);
    lathe_registry_destroy(registry);
    lathe_diags_fini(&diags);
    cr_assert_eq(chdir(old_folder), 0);
    cr_assert_eq(lathe_dir_remove(folder), LATHE_OK);
}

TestSuite(config_reward, .init = setup, .fini = teardown);

static lathe_status load(const char *text, const lathe_override *overrides, int64_t n)
{
    cr_assert_eq(lathe_file_write_atomic("run.toml", text, (int64_t)strlen(text)), LATHE_OK);
    return lathe_config_load("run.toml", overrides, n, 0, registry, &diags, &config);
}

static void refused(const char *text, const char *expected)
{
    lathe_buffer got = LATHE_BUFFER_INIT;
    cr_assert_eq(load(text, NULL, 0), LATHE_E_CONFIG);
    lathe_diags_print(&diags, &got);
    cr_expect_str_eq(got.data, expected, "got:\n%s", got.data);
    lathe_buffer_fini(&got);
}

Test(config_reward, no_table_means_no_reward)
{
    int32_t n = -1;
    cr_assert_eq(load("", NULL, 0), LATHE_OK);
    (void)lathe_config_rewards(config, &n);
    cr_expect_eq(n, 0);
}

Test(config_reward, one_table_is_one_reward_of_weight_1)
{
    int32_t n = 0;
    const lathe_override over = {"reward.tokens", "9"};
    cr_assert_eq(load("[reward]\nname = \"length\"\ntokens = 5\n", &over, 1), LATHE_OK);
    const lathe_config_reward *list = lathe_config_rewards(config, &n);
    cr_assert_eq(n, 1);
    cr_expect_str_eq(list[0].part.name, "length");
    cr_expect_str_eq(list[0].label, "length");
    cr_expect_not_null(list[0].part.component);
    cr_expect_eq(list[0].part.values[0].i, 9);
    cr_expect_eq(list[0].weight, 1.0);
    cr_expect_eq(list[0].timeout_seconds, 60.0);
    cr_expect_eq(lathe_config_int(config, "reward", "tokens"), 9);
}

Test(config_reward, several_tables_have_weights_labels_and_deadlines_of_their_own)
{
    int32_t n = 0;
    cr_assert_eq(load("[[reward]]\nname = \"length\"\ntokens = 5\nweight = 0.5\n"
                      "[[reward]]\nname = \"length\"\ntokens = 7\nlabel = \"short\"\n"
                      "timeout_seconds = 2\nweight = -1\n"
                      "[[reward]]\nmodel = \"judge\"\n",
                      NULL, 0),
                 LATHE_OK, "%s", lathe_error_message());
    const lathe_config_reward *list = lathe_config_rewards(config, &n);
    cr_assert_eq(n, 3);
    cr_expect_eq(list[0].weight, 0.5);
    cr_expect_str_eq(list[1].label, "short");
    cr_expect_eq(list[1].weight, -1.0);
    cr_expect_eq(list[1].timeout_seconds, 2.0);
    cr_expect_eq(list[1].part.values[0].i, 7);
    cr_expect_str_eq(list[2].model, "judge");
    cr_expect_str_eq(list[2].label, "model");
    cr_expect_null(list[2].part.component);
    const lathe_place place = lathe_config_where_reward(config, 1, "label");
    cr_expect_eq(place.line, 8);
}

Test(config_reward, all_rewards_are_in_the_manifest)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    cr_assert_eq(
        load("[[reward]]\nname = \"length\"\ntokens = 5\n[[reward]]\nmodel = \"m\"\n", NULL, 0),
        LATHE_OK);
    lathe_config_json(config, &text);
    json_t *root = json_loads(text.data, 0, NULL);
    cr_assert_not_null(root, "%s", text.data);
    const json_t *list = json_object_get(json_object_get(root, "reward"), "list");
    cr_assert_eq(json_array_size(list), 2);
    cr_expect_eq(json_integer_value(json_object_get(json_array_get(list, 0), "tokens")), 5);
    cr_expect_str_eq(json_string_value(json_object_get(json_array_get(list, 1), "model")), "m");
    json_decref(root);
    lathe_buffer_fini(&text);
}

Test(config_reward, a_relative_model_is_in_the_folder_of_the_file)
{
    int32_t n = 0;
    cr_assert_eq(mkdir("sub", 0700), 0);
    const char text[] = "[[reward]]\nmodel = \"judge\"\n";
    cr_assert_eq(lathe_file_write_atomic("sub/run.toml", text, sizeof text - 1), LATHE_OK);
    cr_assert_eq(lathe_config_load("sub/run.toml", NULL, 0, 0, registry, &diags, &config),
                 LATHE_OK);
    cr_expect_str_eq(lathe_config_rewards(config, &n)[0].model, "sub/judge");
}

Test(config_reward, keys_that_mean_nothing_are_refused)
{
    refused(
        "[[reward]]\nname = \"length\"\ntokens = 5\nmodel = \"m\"\n"
        "[[reward]]\nweight = 0.0\nlabel = \"\"\n"
        "[[reward]]\nmodel = \"m\"\ntimeout_seconds = 3\n",
        "run.toml:4:9: error: reward.name and reward.model are both set; a reward is either a "
        "plugin or a reward model: take one of them out, or write two tables [[reward]]\n"
        "run.toml:5:1: error: the reward has neither reward.name, a plugin (lathe ls reward), "
        "nor reward.model, the folder of a reward model\n"
        "run.toml:6:10: error: reward.weight is 0, so the reward has no effect: take its table "
        "out\n"
        "run.toml:7:9: error: reward.label is empty; expected a name\n"
        "run.toml:10:19: error: reward.timeout_seconds has no effect on a reward model: take it "
        "out\n");
}

Test(config_reward, two_rewards_of_one_label_are_refused)
{
    refused(
        "[[reward]]\nname = \"length\"\ntokens = 5\n[[reward]]\nname = \"length\"\ntokens = 6\n",
        "run.toml:4:1: error: two rewards have the label \"length\"; give each a reward.label "
        "of its own\n");
}

Test(config_reward, misspelt_names_and_keys_have_a_place_and_a_suggestion)
{
    cr_assert_eq(
        load("[[reward]]\nname = \"lenght\"\n[[reward]]\nname = \"length\"\ntoken = 4\n", NULL, 0),
        LATHE_E_CONFIG);
    const char *text = lathe_error_message();
    cr_expect_not_null(strstr(text, "run.toml:2:8: error: no reward named 'lenght' (did you mean "
                                    "'length'?)"),
                       "%s", text);
    cr_expect_not_null(strstr(text, "run.toml:5:1: error: unknown key 'token' in [reward] (did you "
                                    "mean 'tokens'?)"),
                       "%s", text);
    cr_expect_not_null(strstr(text, "reward.tokens"), "%s", text);
}

Test(config_reward, an_element_that_is_no_table_is_refused)
{
    refused("reward = [3]\n", "run.toml:1:11: error: reward[0] is an integer, expected a table: "
                              "write [[reward]] before the keys of each reward\n");
}

/* --reward.1.tokens is a key of the second reward. */
Test(config_reward, the_command_line_changes_an_element_by_its_number)
{
    int32_t n = 0;
    const lathe_override over[] = {{"reward.1.tokens", "9"}, {"reward.2.model", "judge"}};
    cr_assert_eq(mkdir("sub", 0700), 0);
    const char text[] = "[[reward]]\nname = \"length\"\ntokens = 5\n[[reward]]\nname = "
                        "\"length\"\nlabel = \"b\"\ntokens = 6\n[[reward]]\nmodel = \"m\"\n";
    cr_assert_eq(lathe_file_write_atomic("sub/run.toml", text, sizeof text - 1), LATHE_OK);
    cr_assert_eq(lathe_config_load("sub/run.toml", over, 2, 0, registry, &diags, &config), LATHE_OK,
                 "%s", lathe_error_message());
    const lathe_config_reward *list = lathe_config_rewards(config, &n);
    cr_assert_eq(n, 3);
    cr_expect_eq(list[0].part.values[0].i, 5);
    cr_expect_eq(list[1].part.values[0].i, 9);
    /* relative to the current folder, as every path of the command line */
    cr_expect_str_eq(list[2].model, "judge");
}

Test(config_reward, a_number_of_no_element_is_refused)
{
    static const char *const keys[] = {"reward.1.tokens", "reward.x.tokens", "reward.-1.tokens",
                                       "reward.99999999999999999999.tokens", "reward.0x.tokens"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const lathe_override over = {keys[i], "9"};
        cr_assert_eq(load("[[reward]]\nname = \"length\"\ntokens = 5\n", &over, 1), LATHE_E_CONFIG,
                     "%s", keys[i]);
        cr_expect_not_null(
            strstr(lathe_error_message(), "name an element of it, reward.0 to reward.0"), "%s",
            lathe_error_message());
        lathe_config_destroy(config);
        config = NULL;
        lathe_diags_fini(&diags);
        diags = (lathe_diags){0};
    }
}

Test(config_reward, the_command_line_does_not_change_an_array)
{
    const lathe_override over = {"reward.tokens", "9"};
    cr_assert_eq(load("[[reward]]\nname = \"length\"\ntokens = 5\n", &over, 1), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "'reward' is an array of tables, which the "
                                                     "command line cannot change"),
                       "%s", lathe_error_message());
}
