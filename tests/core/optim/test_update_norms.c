/* The norms that a step reports, compared with copies of all parameters before and after it. */
#include "support/small_run.h"

static void copy_masters(const lathe_run *run, float **to)
{
    for (int32_t i = 0; i < run->store.n_rows; i++) {
        const int64_t n = lathe_desc_count(&run->params.rows[i]->desc);
        if (!to[i])
            to[i] = malloc((size_t)n * sizeof(float));
        cr_assert(to[i]);
        memcpy(to[i], lathe_store_master(&run->store, i), (size_t)n * sizeof(float));
    }
}

static void one_step(lathe_run *run, lathe_step_result *out)
{
    lathe_forward_result f = {.size = sizeof f};
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
    OK(lathe_step(run, out));
}

/* Sums in memory order, in long double. */
static void check_steps(const char *optimizer, const char *precision, double tolerance)
{
    char dir[] = "/tmp/lathe_norms_XXXXXX";
    settings s = {.n = 0};
    float *was[64] = {NULL};
    make_folder(dir, 20000);
    set_data(&s, dir);
    set_llama(&s, 3, 192, 4, 4, 768); /* 1.9M parameters: two ranges, the last one short */
    set(&s, "optimizer.name=%s", optimizer);
    set(&s, "train.precision=%s", precision);
    set(&s, "train.max_steps=10");
    set(&s, "data.seq_len=32");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    for (int i = 0; i < 3; i++) {
        lathe_step_result r = {.size = sizeof r};
        long double update = 0, param = 0;
        copy_masters(run, was);
        one_step(run, &r);
        for (int32_t k = 0; k < run->store.n_rows; k++) {
            const float *now = lathe_store_master(&run->store, k);
            for (int64_t e = 0; e < lathe_desc_count(&run->params.rows[k]->desc); e++) {
                const long double d = (long double)now[e] - (long double)was[k][e];
                update += d * d;
                param += (long double)now[e] * (long double)now[e];
            }
        }
        const double want = sqrt((double)update), norm = sqrt((double)param);
        cr_expect_gt(want, 0.0);
        cr_expect_float_eq(run->opt.update_norm, want, tolerance * want,
                           "%s: |update| %.12g, not %.12g", optimizer, run->opt.update_norm, want);
        /* f64 sums of 1e6 terms in lanes: far below 1e-12 */
        cr_expect_float_eq(r.param_norm, norm, 1e-12 * norm, "%s: |w| %.15g, not %.15g", optimizer,
                           r.param_norm, norm);
    }
    for (int i = 0; i < 64; i++)
        free(was[i]);
    lathe_run_close(run);
}

Test(update_norms, of_an_elementwise_optimizer_are_exact)
{
    check_steps("adamw", "fp32", 1e-12);
    check_steps("adamw", "bf16", 1e-12);
}

/* For a matrix, the update is measured before p - update is rounded to f32: each element is then
 * off by at most 2^-24 of the parameter, at random; |update| is about 1e-2 of |w| here. */
Test(update_norms, of_matrix_parameters_are_those_of_the_update_taken_off)
{
    check_steps("muon", "fp32", 1e-6);
}
