/* The average of the weights: formulas, exchange with the weights, and invalid settings. */
#include "average_case.h"

/* The functions of optim/weight_average.h, for the average of a run. */
#define OF_RUN(type, name)                                                                         \
    static type name(lathe_run *run)                                                               \
    {                                                                                              \
        const lathe_averaging a = lathe__run_averaging(run);                                       \
        return lathe_##name(&a);                                                                   \
    }
OF_RUN(lathe_status, average_begin)
OF_RUN(lathe_status, average_step)
OF_RUN(lathe_status, average_fill)
OF_RUN(lathe_status, average_swap)
OF_RUN(int32_t, average_is_apart)

/* ---- the formulas ---- */

enum { MAX = 64 };

/* d*a + (1-d)*w, or the mean of the w so far, in double. */
static void follow(double *a, const float *w, int64_t n, double decay, int64_t k)
{
    for (int64_t i = 0; i < n; i++)
        a[i] = decay >= 0.0 ? decay * a[i] + (1.0 - decay) * (double)w[i]
                            : a[i] + ((double)w[i] - a[i]) / (double)k;
}

/* Each move rounds three times and its share once: 4 roundings of at most max(|a|, |w|), whose
 * effects later moves only reduce. */
static int64_t compare_row(const float *got, const double *want, const float *w, int64_t n,
                           int64_t moves, int64_t step)
{
    int64_t apart = 0;
    for (int64_t i = 0; i < n; i++) {
        const double size = fmax(fabs(want[i]), fabs((double)w[i])) + 0.1; /* 8 steps of lr 0.01 */
        cr_assert(fabs((double)got[i] - want[i]) <= 4.0 * (double)moves * 0x1p-24 * size,
                  "step %lld, element %lld: %.9g, expected %.9g", (long long)step, (long long)i,
                  (double)got[i], want[i]);
        apart += got[i] != w[i];
    }
    return apart;
}

static void check_formula(const char *kind, double decay, int64_t start, int64_t every)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    double *want[MAX] = {NULL};
    make_folder(dir, 3000);
    configure(&s, dir);
    set(&s, "train.max_steps=8");
    set(&s, "train.weight_average=%s", kind);
    set(&s, "train.weight_average_decay=0.75");
    set(&s, "train.weight_average_start=%lld", (long long)start);
    set(&s, "train.weight_average_every=%lld", (long long)every);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_assert_leq(run->params.n, MAX);
    int64_t k = 0;
    for (int64_t step = 0; step <= 8; step++) {
        if (step > 0)
            cr_assert_eq(one_step(run), 0);
        const int taken = step > 0 && step >= start && (step - start) % every == 0;
        int64_t apart = 0, n_all = 0;
        k += taken;
        cr_assert_eq(run->at.averaged, k);
        for (int32_t i = 0; i < run->params.n; i++) {
            const int64_t n = count_of(run, i);
            const float *w = lathe_store_master(&run->store, i);
            if (!want[i])
                want[i] = calloc((size_t)n, sizeof(double));
            for (int64_t j = 0; k == 0 && j < n; j++)
                want[i][j] = (double)w[j];
            if (taken)
                follow(want[i], w, n, decay, k);
            apart += compare_row(lathe_store_average(&run->store, i), want[i], w, n, k, step);
            n_all += n;
        }
        if (k == 0 || (k == 1 && decay < 0.0 && taken))
            cr_assert_eq(apart, 0, "%s, step %lld: %lld elements differ", kind, (long long)step,
                         (long long)apart);
        else
            cr_assert_gt(apart, n_all / 4, "%s, step %lld: the average is the weights", kind,
                         (long long)step);
        cr_assert_eq(average_is_apart(run), k > 0);
    }
    cr_assert_geq(k, 3);
    for (int32_t i = 0; i < MAX; i++)
        free(want[i]);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(weight_average, moves_towards_the_weights_by_one_minus_decay)
{
    check_formula("ema", 0.75, 0, 1);
    check_formula("ema", 0.75, 3, 1);
    check_formula("ema", 0.75, 2, 3);
}

Test(weight_average, is_the_mean_of_what_was_taken_in)
{
    check_formula("swa", -1.0, 0, 1);
    check_formula("swa", -1.0, 3, 2);
}

/* Four numbers by hand: 1, then 3 and 5 with decay 0.5 give 2 and 3.5; their mean after three is 3.
 */
Test(weight_average, by_hand)
{
    char dir[] = FOLDER;
    make_folder(dir, 3000);
    for (int swa = 0; swa < 2; swa++) {
        settings s = {.n = 0};
        configure(&s, dir);
        set(&s, "train.weight_average=%s", swa ? "swa" : "ema");
        set(&s, "train.weight_average_decay=0.5");
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        float *w = lathe_store_master(&run->store, 0);
        const float *a = lathe_store_average(&run->store, 0);
        w[0] = 1.0f;
        OK(average_begin(run));
        if (swa) {
            run->at.step = 1;
            OK(average_step(run));
        }
        w[0] = 3.0f;
        run->at.step = 2;
        OK(average_step(run));
        cr_assert_eq(a[0], 2.0f);
        w[0] = 5.0f;
        run->at.step = 3;
        OK(average_step(run));
        cr_assert_eq(a[0], swa ? 3.0f : 3.5f);
        lathe_run_close(run);
    }
    OK(lathe_dir_remove(dir));
}

Test(weight_average, of_schedule_free_adamw_is_its_x)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    int64_t apart = 0;
    make_folder(dir, 3000);
    configure(&s, dir);
    set(&s, "optimizer.name=schedule_free_adamw");
    set(&s, "scheduler.name=constant");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(average_fill(run)); /* z does not exist yet: the weights */
    cr_assert_not(average_is_apart(run));
    cr_assert_arr_eq(lathe_store_average(&run->store, 0), lathe_store_master(&run->store, 0),
                     (size_t)(4 * count_of(run, 0)));
    for (int k = 0; k < 4; k++)
        (void)one_step(run);
    OK(average_fill(run));
    cr_assert(average_is_apart(run));
    for (int32_t i = 0; i < run->params.n; i++) {
        const float *y = lathe_store_master(&run->store, i);
        const float *z = lathe_store_slot(&run->store, i, 0);
        const float *x = lathe_store_average(&run->store, i);
        for (int64_t j = 0; j < count_of(run, i); j++) {
            const double want = (double)y[j] + (1.0 - 1.0 / 0.9) * ((double)z[j] - (double)y[j]);
            cr_assert_float_eq((double)x[j], want, 0x1p-22 * (fabs(want) + 0.1));
            apart += x[j] != y[j];
        }
    }
    cr_assert_gt(apart, 1000);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* ---- during training ---- */

/* Checks that compute copies are the rounded masters. */
static void expect_rounded(const lathe_run *run, const char *precision)
{
    int64_t n_checked = 0;
    for (int32_t i = 0; i < run->params.n; i++) {
        const float *w = lathe_store_master(&run->store, i);
        const uint16_t *copy = lathe_store_shadow(&run->store, i);
        const int is_bf16 = lathe_params_value_dtype(&run->params, i) == LATHE_BF16;
        for (int64_t j = 0; copy && j < count_of(run, i); j++, n_checked++)
            cr_assert_eq(copy[j], is_bf16 ? lathe_f32_to_bf16(w[j]) : lathe_f32_to_f16(w[j]));
    }
    cr_assert_eq(n_checked > 1000, strcmp(precision, "fp32") != 0);
}

Test(weight_average, exchanged_twice_leaves_every_bit)
{
    static const char *const precisions[] = {"fp32", "bf16", "fp16"};
    char dir[] = FOLDER;
    make_folder(dir, 3000);
    for (int p = 0; p < 3; p++) {
        settings s = {.n = 0};
        configure(&s, dir);
        set(&s, "train.precision=%s", precisions[p]);
        set(&s, "train.threads=2");
        set(&s, "train.weight_average=ema");
        set(&s, "train.weight_average_decay=0.9");
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        while (run->at.averaged < 3)
            (void)one_step(run);
        const int64_t bytes = 4 * count_of(run, 0);
        const uint64_t before = hash_of(run);
        const uint64_t average = mix(1, lathe_store_average(&run->store, 0), bytes);
        OK(average_swap(run));
        cr_assert_neq(hash_of(run), before);
        expect_rounded(run, precisions[p]);
        cr_assert_eq(mix(1, lathe_store_master(&run->store, 0), bytes), average);
        OK(average_swap(run));
        cr_assert_eq(hash_of(run), before, "%s", precisions[p]);
        lathe_run_close(run);
    }
    OK(lathe_dir_remove(dir));
}

Test(weight_average, of_a_step_left_out_is_as_before)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    int n_skipped = 0, n_taken = 0;
    make_folder(dir, 3000);
    configure(&s, dir);
    set(&s, "train.precision=fp16");
    set(&s, "train.loss_scale_init=%d", 1 << 20);
    set(&s, "train.loss_scale_growth_interval=3");
    set(&s, "train.weight_average=ema");
    set(&s, "train.max_steps=30");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    for (int k = 0; k < 30; k++) {
        const uint64_t before = mix(1, run->store.averages, run->store.average_bytes);
        const int64_t n = run->at.averaged;
        const int skipped = one_step(run);
        const int same = mix(1, run->store.averages, run->store.average_bytes) == before;
        cr_assert_eq(same, skipped);
        cr_assert_eq(run->at.averaged, n + !skipped);
        n_skipped += skipped;
        n_taken += !skipped;
    }
    cr_assert(n_skipped > 3 && n_taken > 3, "%d left out, %d taken", n_skipped, n_taken);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* The losses with an average equal those without: evaluating it does not affect the training. */
Test(weight_average, does_not_change_the_training)
{
    char dir[] = FOLDER;
    double loss[2], validation[2];
    const char *text = NULL;
    make_folder(dir, 3000);
    for (int k = 0; k < 2; k++) {
        settings s = {.n = 0};
        lathe_train_result r;
        configure(&s, dir);
        set(&s, "train.precision=bf16");
        set(&s, "checkpoint.dir=%s/out-%d", dir, k);
        set(&s, "log.progress=plain");
        if (k)
            set(&s, "train.weight_average=swa");
        OK(train_once(&s, &r, &text));
        loss[k] = r.loss;
        validation[k] = r.validation;
        cr_assert_eq(strstr(text, "averaged weights") != NULL, k, "%s", text);
    }
    cr_assert_eq(loss[0], loss[1]);
    cr_assert_neq(validation[0], validation[1]);
    OK(lathe_dir_remove(dir));
}

/* ---- refusals ---- */

static void refused(const char *one, const char *other, const char *key, const char *says)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    lathe_run *run = NULL;
    make_folder(dir, 3000);
    configure(&s, dir);
    set(&s, "%s", one);
    set(&s, "%s", other);
    cr_assert_eq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_E_CONFIG, "%s", other);
    cr_assert(strstr(lathe_error_message(), key) && strstr(lathe_error_message(), says), "%s",
              lathe_error_message());
    OK(lathe_dir_remove(dir));
}

Test(weight_average, bad_settings_are_refused)
{
    refused("optimizer.name=schedule_free_adamw", "train.weight_average=ema", "weight_average",
            "averages the weights by itself");
    refused("train.weight_average=swa", "train.weight_average_start=7", "weight_average_start",
            "after the last step, 6");
    refused("train.weight_average=ema", "train.weight_average_decay=1.0", "weight_average_decay",
            "1");
    refused("train.weight_average=ema", "train.weight_average_every=0", "weight_average_every",
            "0");
    refused("train.weight_average_start=1", "train.weight_average=mean", "weight_average", "swa");
}
