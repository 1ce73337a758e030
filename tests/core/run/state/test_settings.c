/* The settings of a run: a row of keys_*.inc defines the schema of its key and fills its member. */
#include "run/state/settings.h"

#include <criterion/criterion.h>
#include <math.h>

#include "base/error.h"
#include "checkpoint/state/checkpoint_settings.h"
#include "config/config.h"
#include "graph/passes/passes.h"
#include "optim/group_settings.h"

static lathe_registry *registry;
static lathe_diags diags;
static lathe_config *config;
static lathe_settings set;

static void read_settings(const lathe_override *list, int64_t n)
{
    cr_assert_eq(lathe_registry_create(&registry), LATHE_OK);
    cr_assert_eq(
        lathe_config_load(NULL, list, n, 1u << LATHE_KIND_OPTIMIZER, registry, &diags, &config),
        LATHE_OK, "%s", lathe_error_message());
    lathe_settings_read(config, &set);
}

static void teardown(void)
{
    lathe_config_destroy(config);
    lathe_registry_destroy(registry);
    lathe_diags_fini(&diags);
}

TestSuite(settings, .fini = teardown);

Test(settings, a_row_gives_its_default_to_its_member)
{
    read_settings(NULL, 0);
    cr_expect_eq(set.seq_len, 1024);
    cr_expect_eq(set.shuffle, 1);
    cr_expect_eq(set.max_steps, 0, "unset");
    cr_expect_null(set.prompt, "unset");
    cr_expect_float_eq(set.max_grad_norm, 1.0, 0.0);
    cr_expect_eq(set.precision, LATHE_BF16);
    cr_expect_eq(set.compute_dtype, LATHE_BF16);
    cr_expect_eq(set.grad_dtype, LATHE_F32);
    cr_expect_eq(set.on_nonfinite, LATHE_POLICY_STOP);
    cr_expect_eq(set.on_spike, LATHE_POLICY_IGNORE);
    cr_expect_eq(set.recompute, LATHE_RECOMPUTE_POINTWISE);
    cr_expect_eq(set.checkpoint.save_dtype, LATHE_SAVE_AUTO);
    cr_expect_str_eq(set.checkpoint.best_metric, "eval_loss");
    cr_expect_eq(set.checkpoint.best_is_higher, 0);
}

Test(settings, units_choices_and_seeds_are_converted_by_the_row)
{
    static const lathe_override list[] = {{"train.memory_limit", "1.5"},
                                          {"train.offload_buffer", "0.5"},
                                          {"checkpoint.shard_size", "2"},
                                          {"train.seed", "7"},
                                          {"data.seed", "8"},
                                          {"data.packing", "multipack"},
                                          {"data.cache_dir", ""},
                                          {"train.on_spike", "rewind"},
                                          {"train.fp8_recipe", "rowwise"},
                                          {"checkpoint.best_metric", "eval_token_accuracy"},
                                          {"checkpoint.save_dtype", "fp16"},
                                          {"generate.top_k", "3"}};
    read_settings(list, (int64_t)(sizeof list / sizeof list[0]));
    cr_expect_eq(set.memory_limit, 1610612736);
    cr_expect_eq(set.offload_buffer, 524288);
    cr_expect_eq(set.checkpoint.shard_bytes, 2000000000);
    cr_expect_eq(set.seed, 7);
    cr_expect_eq(set.data_seed, 8);
    cr_expect_eq(set.sample_seed, 7, "generate.seed is unset");
    cr_expect_eq(set.packing, 1);
    cr_expect_null(set.cache_dir, "empty");
    cr_expect_eq(set.on_spike, LATHE_POLICY_REWIND);
    cr_expect_eq(set.fp8_asked, 2);
    cr_expect_eq(set.checkpoint.best_is_higher, 1);
    cr_expect_eq(set.checkpoint.save_dtype, LATHE_F16);
    cr_expect_eq(set.top_k, 3);
}

Test(settings, the_last_word_of_a_metric_says_whether_higher_is_better)
{
    static const struct {
        const char *metric;
        int higher;
    } rows[] = {
        {"eval_loss", 0},         {"eval_rewards/accuracies", 1}, {"reward", 1},
        {"reward_std", 0},        {"rewards/rejected", 0},        {"frac_reward_zero_std", 0},
        {"eval_logps/chosen", 1}, {"val/var_explained", 1},       {"f1_of_a_plugin", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const lathe_override metric = {"checkpoint.best_metric", rows[i].metric};
        read_settings(&metric, 1);
        cr_expect_eq(set.checkpoint.best_is_higher, rows[i].higher, "%s", rows[i].metric);
        if (i + 1 < sizeof rows / sizeof rows[0])
            teardown();
    }
}

/* A member of 32 bits cannot hold every value of a key with a larger range. */
Test(settings, the_range_of_a_whole_number_fits_its_member)
{
#define KEY(key, c_type, member, form, convert, type, flags, def, lo, hi, ...)                     \
    {key, LATHE_FILL_##form, type, hi},
#define KEY_ALONE(...)
    static const struct {
        const char *key;
        int32_t form, type;
        double max;
    } rows[] = {
#include "plug/keys_checkpoint.inc"
#include "plug/keys_data.inc"
#include "plug/keys_generate.inc"
#include "plug/keys_log.inc"
#include "plug/keys_model.inc"
#include "plug/keys_tokenizer.inc"
#include "plug/keys_train.inc"
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        cr_expect(rows[i].form != LATHE_FILL_INT32 || rows[i].type != LATHE_T_INT ||
                      rows[i].max <= (double)INT32_MAX,
                  "%s may be %g", rows[i].key, rows[i].max);
}

Test(settings, a_step_count_beyond_32_bits_is_refused_instead_of_cut)
{
    static const lathe_override list[] = {{"train.eval_every", "4294967296"}};
    cr_assert_eq(lathe_registry_create(&registry), LATHE_OK);
    cr_expect_eq(lathe_config_load(NULL, list, 1, 0, registry, &diags, &config), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "train.eval_every is 4294967296"), "%s",
                       lathe_error_message());
}

Test(settings, rows_fill_a_struct_for_each_table_of_an_array)
{
    static const lathe_override list[] = {
        {"optimizer.groups",
         "[{name = \"attn\", params = [\"*q_proj*\", \"*k_proj*\"], lr = 5e-4}, "
         "{params = [\"*norm*\"], weight_decay = 0}]"}};
    lathe_group_settings groups[LATHE_MAX_GROUPS];
    read_settings(list, 1);
    cr_assert_eq(lathe_group_settings_read(config, groups), 2);
    cr_expect_str_eq(groups[0].name, "attn");
    cr_assert_eq(groups[0].params.n, 2);
    cr_expect_str_eq(groups[0].params.strs[1], "*k_proj*");
    cr_expect_float_eq(groups[0].lr, 5e-4, 0.0);
    cr_expect(isnan(groups[0].weight_decay), "unset");
    cr_expect_null(groups[1].name, "unset");
    cr_expect(isnan(groups[1].lr), "unset");
    cr_expect_float_eq(groups[1].weight_decay, 0.0, 0.0, "set to 0, which is not unset");
}

Test(settings, a_single_table_counts_as_an_array_of_one)
{
    static const lathe_override list[] = {{"optimizer.groups", "{params = [\"*\"], lr = 0.5}"}};
    lathe_group_settings groups[LATHE_MAX_GROUPS];
    read_settings(list, 1);
    cr_assert_eq(lathe_group_settings_read(config, groups), 1);
    cr_expect_float_eq(groups[0].lr, 0.5, 0.0);
}
