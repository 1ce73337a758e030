/* Precision: what a device offers for a requested one. */
#include "exec/program/precision.h"

#include "lathe/fp8.h"

#include "support/small_run.h"

#define BIT(dtype) (1u << (dtype))

Test(precision, falls_back_one_step_at_a_time)
{
    const lathe_device_info all = {.graph_dtypes = BIT(LATHE_F32) | BIT(LATHE_BF16) |
                                                   BIT(LATHE_F16) | BIT(LATHE_F8_E4M3),
                                   .fp8_recipes = BIT(LATHE_FP8_ROWWISE)};
    const lathe_device_info no_f8 = {.graph_dtypes =
                                         BIT(LATHE_F32) | BIT(LATHE_BF16) | BIT(LATHE_F16)};
    const lathe_device_info only_f32 = {.graph_dtypes = BIT(LATHE_F32)};
    const lathe_device_info older = {.compute_dtypes = BIT(LATHE_F32) | BIT(LATHE_BF16)};
    static const struct {
        const char *asked;
        const char *on_all, *on_no_f8, *on_only_f32, *on_older;
    } rows[] = {{"fp8", "fp8", "bf16", "fp32", "bf16"},
                {"fp16", "fp16", "fp16", "fp32", "fp32"},
                {"bf16", "bf16", "bf16", "fp32", "bf16"},
                {"fp32", "fp32", "fp32", "fp32", "fp32"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int32_t asked = lathe_precision_dtype(rows[i].asked);
        cr_expect_str_eq(lathe_precision_name(lathe_precision_on(&all, asked)), rows[i].on_all);
        cr_expect_str_eq(lathe_precision_name(lathe_precision_on(&no_f8, asked)), rows[i].on_no_f8);
        cr_expect_str_eq(lathe_precision_name(lathe_precision_on(&only_f32, asked)),
                         rows[i].on_only_f32);
        cr_expect_str_eq(lathe_precision_name(lathe_precision_on(&older, asked)), rows[i].on_older);
    }
}

/* The bit alone is not enough: fp8 needs a recipe, and bf16 to cast from. */
Test(precision, fp8_takes_a_recipe_and_bf16)
{
    const uint32_t f8 = BIT(LATHE_F32) | BIT(LATHE_F8_E4M3), both = f8 | BIT(LATHE_BF16);
    const lathe_device_info bare = {.graph_dtypes = both};
    const lathe_device_info alone = {.graph_dtypes = f8, .fp8_recipes = BIT(LATHE_FP8_ROWWISE)};
    cr_expect_eq(lathe_precision_on(&bare, LATHE_F8_E4M3), LATHE_BF16);
    cr_expect_eq(lathe_precision_on(&alone, LATHE_F8_E4M3), LATHE_F32);
    static const struct {
        uint32_t has;
        int32_t best, asked, want;
    } rows[] = {{6, LATHE_FP8_ROWWISE, 0, LATHE_FP8_ROWWISE},
                {6, LATHE_FP8_ROWWISE, LATHE_FP8_TENSORWISE, LATHE_FP8_TENSORWISE},
                {6, 0, 0, LATHE_FP8_TENSORWISE},
                {2, LATHE_FP8_TENSORWISE, LATHE_FP8_ROWWISE, LATHE_FP8_NONE},
                {4, 0, LATHE_FP8_ROWWISE, LATHE_FP8_ROWWISE},
                {0, 0, 0, LATHE_FP8_NONE}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const lathe_device_info info = {.fp8_recipes = rows[i].has, .fp8_recipe = rows[i].best};
        cr_expect_eq(lathe_fp8_recipe_on(&info, rows[i].asked), rows[i].want, "row %zu", i);
    }
    cr_expect_eq(lathe_fp8_recipe_find("rowwise"), LATHE_FP8_ROWWISE);
    cr_expect_eq(lathe_fp8_recipe_find("auto"), LATHE_FP8_NONE);
    cr_expect_str_eq(lathe_fp8_recipe_name(LATHE_FP8_TENSORWISE), "tensorwise");
}

static void configure(settings *s, const char *dir, const char *precision)
{
    set_llama(s, 2, 32, 4, 2, 64);
    set_data(s, dir);
    set(s, "data.seq_len=32");
    set(s, "train.micro_batch_size=4");
    set(s, "train.max_steps=60");
    set(s, "train.precision=%s", precision);
    set(s, "optimizer.lr=0.01");
    set(s, "checkpoint.resume=never");
    set(s, "checkpoint.dir=%s/out-%s", dir, precision);
}

static double last_loss(const char *dir, const char *precision, int32_t *out_dtype)
{
    settings s = {.n = 0};
    configure(&s, dir, precision);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    FILE *nowhere = fopen("/dev/null", "w");
    const lathe_train_options options = {.out = nowhere};
    lathe_train_result r;
    OK(lathe_train(run, &options, &r));
    *out_dtype = run->params.compute_dtype;
    lathe_run_close(run);
    fclose(nowhere);
    return r.loss;
}

/* 60 steps learn equally well in each format: the loss falls from log 320 = 5.8 to about 2. */
Test(precision, fp16_learns_as_fp32_does)
{
    char dir[] = "/tmp/lathe-precision-XXXXXX";
    int32_t dtype;
    make_folder(dir, 12000);
    const double f32 = last_loss(dir, "fp32", &dtype);
    cr_assert_eq(dtype, LATHE_F32);
    const double f16 = last_loss(dir, "fp16", &dtype);
    cr_assert_eq(dtype, LATHE_F16);
    cr_assert(f32 < 3.5, "fp32 ends at %g", f32);
    cr_assert(fabs(f16 - f32) < 0.05 * f32, "fp16 ends at %g, fp32 at %g", f16, f32);
    OK(lathe_dir_remove(dir));
}

Test(precision, fp8_falls_back_to_bf16_on_the_cpu_and_run_json_says_so)
{
    char dir[] = "/tmp/lathe-precision-XXXXXX", path[256], *text = NULL;
    int64_t bytes = 0;
    int32_t dtype;
    make_folder(dir, 12000);
    (void)last_loss(dir, "fp8", &dtype);
    cr_assert_eq(dtype, LATHE_BF16);
    snprintf(path, sizeof path, "%s/out-fp8/step-00000060/state/run.json", dir);
    OK(lathe_file_read(path, 0, &text, &bytes));
    cr_assert(strstr(text, "\"precision\": {\"asked\": \"fp8\", \"used\": \"bf16\"}"), "%s", text);
    free(text);
    OK(lathe_dir_remove(dir));
}

/* A scale of 2^24 overflows f16's gradients: steps are skipped, nothing is updated, the schedule
 * waits; when the scale fits, the run continues. */
Test(scaler, leaves_out_steps_until_the_scale_fits)
{
    char dir[] = "/tmp/lathe-precision-XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 12000);
    configure(&s, dir, "fp16");
    set(&s, "train.loss_scale_init=16777216");
    set(&s, "scheduler.name=cosine");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const float *master = lathe_store_master(&run->store, 0);
    const float before = master[3];
    double lr = -1.0, scale = 16777216.0;
    int skipped = 0;
    for (int step = 1; step <= 30; step++) {
        lathe_forward_result f = {.size = sizeof f};
        lathe_step_result r = {.size = sizeof r};
        OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
        cr_assert(isfinite(f.loss_sum));
        OK(lathe_backward(run, NULL));
        OK(lathe_step(run, &r));
        cr_assert_eq(r.step, step);
        cr_assert_eq(r.loss_scale, scale);
        if (r.skipped) {
            skipped++;
            cr_assert_eq(master[3], before, "step %d was left out and updated", step);
            cr_assert(lr < 0.0 || r.lr == lr, "the schedule moved");
            lr = r.lr;
            scale /= 2.0;
        } else {
            cr_assert_gt(skipped, 0, "nothing overflowed at 2^24");
            break;
        }
    }
    cr_assert(skipped > 3 && skipped < 30, "%d left out", skipped);
    cr_assert_eq(run->at.skipped, skipped);
    cr_assert_eq(run->at.skipped_in_row, 0);
    cr_assert_eq((double)run->at.scaler.scale, scale);
    cr_assert_neq(master[3], before);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}
