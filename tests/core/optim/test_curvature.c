/* Curvature estimates: compared with a gradient computed in another way; when they are made; and
 * that nothing else changes. */
#include "run/parts/curvature_check.h"

#include "graph/ir/ir_graph.h"
#include "lathe/rng.h"
#include "run/parts/run_parts.h"
#include "support/small_run.h"

#define B 2
#define T 24
#define N (B * T)
#define BETA2 0.75 /* exact */
#define STREAM UINT64_C(0x4355525645)

static lathe_run *open_model(const char *const *more)
{
    settings s = {.n = 0};
    set_llama(&s, 2, 32, 4, 2, 64);
    set(&s, "data.seq_len=%d", T);
    set(&s, "train.micro_batch_size=%d", B);
    set(&s, "train.max_steps=100");
    set(&s, "scheduler.name=constant");
    set_all(&s, more);
    return open_run(LATHE_OPEN_BATCHES, s.list);
}

static lathe_run *open_sophia(const char *precision, int every)
{
    char text[2][64];
    snprintf(text[0], sizeof text[0], "train.precision=%s", precision);
    snprintf(text[1], sizeof text[1], "optimizer.estimate_every=%d", every);
    const char *const more[] = {"optimizer.name=sophia",
                                "optimizer.beta2=0.75",
                                "optimizer.lr=1e-2",
                                text[0],
                                text[1],
                                NULL};
    return open_model(more);
}

typedef struct rows {
    int32_t tokens[N], targets[N];
} rows;

/* Every fifth token has no target. */
static void fill(rows *r, int seed)
{
    for (int i = 0; i < N; i++) {
        r->tokens[i] = (i * 7 + seed * 31) % 300;
        r->targets[i] = i % 5 == 4 || i % T == T - 1 ? -1 : ((i + 1) * 7 + seed * 31) % 300;
    }
}

static lathe_run_batch batch_of(rows *r)
{
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = B,
                                   .row_tokens = T,
                                   .tokens = r->tokens,
                                   .targets = r->targets};
    return batch;
}

static void accumulate(lathe_run *run, int seed)
{
    rows r;
    fill(&r, seed);
    const lathe_run_batch batch = batch_of(&r);
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
}

static void one_step(lathe_run *run, int seed)
{
    accumulate(run, seed);
    OK(lathe_step(run, NULL));
}

static double sum_of_curvature(const lathe_run *run)
{
    double sum = 0.0;
    for (int32_t i = 0; i < run->store.n_rows; i++) {
        const float *h = lathe_store_slot(&run->store, i, 1);
        for (int64_t k = 0; h && k < lathe_desc_count(&run->params.rows[i]->desc); k++)
            sum += (double)h[k];
    }
    return sum;
}

/* Draws labels for update 1 from the logits of all rows, by the definition. */
static double draw(lathe_run *run, rows *r)
{
    const lathe_run_batch batch = batch_of(r);
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    double count = 0.0;
    OK(lathe_forward(run, &batch, LATHE_FORWARD_LOGITS, &f));
    for (int64_t n = 0; n < N; n++) {
        const float *l = f.logits + n * f.vocab_size;
        const lathe_u32x4 word = lathe_rng_block(run->set.seed, 1, STREAM, (uint64_t)n);
        double total = 0.0, upto = 0.0;
        int32_t v = 0;
        if (r->targets[n] < 0)
            continue;
        for (int64_t k = 0; k < f.vocab_size; k++)
            total += exp((double)l[k]);
        const double level = lathe_uniform_f64(word.v[0], word.v[1]) * total;
        while ((upto += exp((double)l[v])) <= level)
            v++;
        r->targets[n] = v;
        count += 1.0;
    }
    return count;
}

/* The step has two micro-batches; the estimate uses the second one, with the updated weights. */
Test(curvature, is_the_squared_gradient_of_labels_that_the_model_draws)
{
    static const char *const plain[] = {"optimizer.name=sgd", "optimizer.lr=1e-2",
                                        "train.precision=fp32", NULL};
    lathe_run *run = open_sophia("fp32", 10), *other = open_model(plain);
    rows r;
    int changed = 0;
    accumulate(run, 1);
    one_step(run, 2);
    for (int32_t i = 0; i < run->store.n_rows; i++)
        memcpy(lathe_store_master(&other->store, i), lathe_store_master(&run->store, i),
               (size_t)lathe_desc_bytes(&run->params.rows[i]->desc));
    fill(&r, 2);
    rows drawn = r;
    const double count = draw(other, &drawn);
    for (int i = 0; i < N; i++)
        changed += drawn.targets[i] != r.targets[i];
    cr_assert(changed > N / 2 && count > N / 2, "%d of %g", changed, count);
    const lathe_run_batch batch = batch_of(&drawn);
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_forward(other, &batch, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(other, NULL));
    for (int32_t i = 0; i < run->store.n_rows; i++) {
        const int64_t n = lathe_desc_count(&run->params.rows[i]->desc);
        const float *g = lathe_store_grad(&other->store, i);
        float *want = malloc((size_t)n * sizeof *want);
        double largest = 0.0;
        for (int64_t k = 0; k < n; k++) {
            const double mean = (double)g[k] / count;
            want[k] = (float)((1.0 - BETA2) * count * mean * mean);
            largest = fmax(largest, (double)want[k]);
        }
        cr_assert_gt(largest, 0.0, "%s", run->params.rows[i]->name);
        /* the same gradient; four roundings of its square */
        compare(run->params.rows[i]->name, lathe_store_slot(&run->store, i, 1), want, n, 0x1p-21);
        free(want);
    }
    lathe_run_close(other);
    lathe_run_close(run);
}

/* Counters and output of the run equal those of a run whose optimizer makes no estimates. */
Test(curvature, moves_nothing_else)
{
    static const char *const plain[] = {"optimizer.name=lion", "train.precision=fp32", NULL};
    lathe_run *run = open_sophia("fp32", 1), *other = open_model(plain);
    double seconds[2][3];
    lathe_step_result a = {.size = (uint32_t)sizeof a}, b = a;
    accumulate(run, 1);
    accumulate(other, 1);
    lathe_exec_times(run->programs.train.exec, seconds[0]);
    OK(lathe_step(run, &a));
    OK(lathe_step(other, &b));
    lathe_exec_times(run->programs.train.exec, seconds[1]);
    cr_expect_gt(sum_of_curvature(run), 0.0);
    cr_expect_eq(run->at.micro, other->at.micro);
    cr_expect_eq(run->at.tokens, other->at.tokens);
    cr_expect_eq(run->at.step, other->at.step);
    cr_expect_eq(run->sum.backwards, 0);
    cr_expect_eq(run->sum.count, 0.0);
    cr_expect_eq(a.loss, b.loss);
    cr_expect_eq(a.grad_norm, b.grad_norm);
    cr_expect_eq(a.count, b.count);
    cr_expect_arr_eq(seconds[0], seconds[1], sizeof seconds[0]);
    /* and the next gradients overwrite those of the estimate */
    for (int32_t i = 0; i < run->store.n_rows; i++)
        memcpy(lathe_store_master(&other->store, i), lathe_store_master(&run->store, i),
               (size_t)lathe_desc_bytes(&run->params.rows[i]->desc));
    accumulate(run, 2);
    accumulate(other, 2);
    for (int32_t i = 0; i < run->store.n_rows; i++)
        cr_expect_arr_eq(lathe_store_grad(&run->store, i), lathe_store_grad(&other->store, i),
                         (size_t)lathe_desc_bytes(&run->params.rows[i]->desc));
    lathe_run_close(other);
    lathe_run_close(run);
}

Test(curvature, is_made_after_updates_1_k_plus_1_and_so_on)
{
    lathe_run *run = open_sophia("bf16", 3);
    double before = 0.0;
    for (int step = 1; step <= 8; step++) {
        one_step(run, step);
        const double now = sum_of_curvature(run);
        cr_expect_eq(now != before, step % 3 == 1, "step %d: %g after %g", step, now, before);
        before = now;
    }
    lathe_run_close(run);
}

Test(curvature, is_not_made_after_a_skipped_step)
{
    lathe_run *run = open_sophia("fp32", 4);
    accumulate(run, 1);
    ((float *)lathe_store_grad(&run->store, 0))[0] = INFINITY;
    OK(lathe_step(run, NULL));
    cr_expect_eq(run->at.skipped, 1);
    cr_expect_eq(sum_of_curvature(run), 0.0);
    one_step(run, 2); /* the first update */
    cr_expect_gt(sum_of_curvature(run), 0.0);
    lathe_run_close(run);
}

Test(curvature, leaves_out_gradients_that_are_not_finite)
{
    lathe_run *run = open_sophia("fp32", 1);
    lathe_update_args args = {.count = 10.0, .loss_scale = 1.0, .step = 2, .seed = 1};
    one_step(run, 1);
    const double before = sum_of_curvature(run);
    ((float *)lathe_store_grad(&run->store, 1))[3] = NAN;
    OK(lathe_update_estimate(run->opt.update, &args));
    cr_expect_eq(args.overflow, 1);
    cr_expect_eq(sum_of_curvature(run), before);
    lathe_run_close(run);
}

/* Gradients contain the loss scale, the curvature does not; powers of two, so no rounding. */
Test(curvature, does_not_depend_on_the_loss_scale)
{
    static const char *const scales[] = {"train.loss_scale_init=64", "train.loss_scale_init=512"};
    double sum[2];
    for (int k = 0; k < 2; k++) {
        const char *const more[] = {"optimizer.name=sophia", "train.precision=fp16", scales[k],
                                    NULL};
        lathe_run *run = open_model(more);
        one_step(run, 1);
        sum[k] = sum_of_curvature(run);
        lathe_run_close(run);
    }
    cr_expect_gt(sum[0], 0.0);
    cr_expect_float_eq(sum[0], sum[1], 0.02 * sum[0], "%g, %g", sum[0], sum[1]);
}

static int32_t streams(const lathe_graph *g, uint64_t *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == LATHE_OP_DROPOUT)
            out[n++] = g->nodes[i].attrs.rng_stream;
    return n;
}

Test(curvature, draws_from_the_model_with_the_dropout_of_the_step)
{
    static const char *const more[] = {"optimizer.name=sophia", "adapter.name=lora",
                                       "adapter.dropout=0.1", NULL};
    lathe_run *run = open_model(more);
    uint64_t train[64], sampling[64];
    const int32_t n = streams(lathe_exec_graph(run->programs.train.exec), train);
    cr_assert_gt(n, 3);
    cr_assert_eq(streams(lathe_exec_graph(run->programs.sampling.exec), sampling), n);
    cr_expect_arr_eq(train, sampling, (size_t)n * sizeof *train);
    one_step(run, 1);
    const int64_t *rng[2] = {
        lathe_exec_data(run->programs.train.exec, run->programs.train.rng),
        lathe_exec_data(run->programs.sampling.exec, run->programs.sampling.rng)};
    cr_expect_arr_eq(rng[0], rng[1], 2 * sizeof *rng[0]);
    cr_expect_eq(rng[0][1], 0, "the masks are those of micro-batch 0");
    lathe_run_close(run);
}

static void resume(const char *precision)
{
    char dir[] = "/tmp/lathe-curvature-XXXXXX", saved[64];
    cr_assert(mkdtemp(dir));
    snprintf(saved, sizeof saved, "%s/saved", dir);
    lathe_run *straight = open_sophia(precision, 4), *one = open_sophia(precision, 4);
    lathe_run *two = open_sophia(precision, 4);
    for (int step = 1; step <= 10; step++)
        one_step(straight, step);
    for (int step = 1; step <= 6; step++) /* between the estimates of 5 and of 9 */
        one_step(one, step);
    OK(lathe_save(one, saved));
    OK(lathe_load(two, saved));
    for (int step = 7; step <= 10; step++)
        one_step(two, step);
    for (int32_t i = 0; i < straight->store.n_rows; i++) {
        const size_t bytes = (size_t)lathe_desc_bytes(&straight->params.rows[i]->desc);
        cr_assert_arr_eq(lathe_store_master(&straight->store, i),
                         lathe_store_master(&two->store, i), bytes);
        for (int k = 0; k < 2; k++)
            cr_assert_arr_eq(lathe_store_slot(&straight->store, i, k),
                             lathe_store_slot(&two->store, i, k), bytes, "%s, slot %d",
                             straight->params.rows[i]->name, k);
    }
    cr_expect_gt(sum_of_curvature(two), 0.0);
    lathe_run_close(two);
    lathe_run_close(one);
    lathe_run_close(straight);
    OK(lathe_dir_remove(dir));
}

Test(curvature, is_the_same_bits_when_resumed_within_an_interval_in_fp32)
{
    resume("fp32");
}

Test(curvature, is_the_same_bits_when_resumed_within_an_interval_in_bf16)
{
    resume("bf16");
}

/* Between the backward and the step that is followed by an estimate, the checkpoint contains the
 * step's batch. */
Test(curvature, is_the_same_bits_when_resumed_in_front_of_the_step)
{
    static const char *const more[] = {"optimizer.name=sophia", "adapter.name=lora",
                                       "adapter.dropout=0.2", "train.precision=fp32", NULL};
    char dir[] = "/tmp/lathe-curvature-XXXXXX", saved[64];
    cr_assert(mkdtemp(dir));
    snprintf(saved, sizeof saved, "%s/saved", dir);
    lathe_run *one = open_model(more), *two = open_model(more);
    accumulate(one, 1);
    accumulate(one, 2);
    OK(lathe_save(one, saved));
    OK(lathe_step(one, NULL));
    OK(lathe_load(two, saved));
    OK(lathe_step(two, NULL));
    int compared = 0;
    for (int32_t i = 0; i < one->store.n_rows; i++) {
        const lathe_store_row *row = &one->store.rows[i];
        if (row->n_slots == 0)
            continue;
        cr_assert_arr_eq(lathe_store_slot(&one->store, i, 1), lathe_store_slot(&two->store, i, 1),
                         (size_t)lathe_desc_bytes(&row->slots[1].desc), "%s",
                         one->params.rows[i]->name);
        compared++;
    }
    cr_expect_gt(compared, 3);
    cr_expect_gt(sum_of_curvature(two), 0.0);
    lathe_run_close(two);
    lathe_run_close(one);
    OK(lathe_dir_remove(dir));
}

Test(curvature, needs_a_stage_with_labels)
{
    settings s = {.n = 0};
    lathe_run *run = NULL;
    set_llama(&s, 2, 32, 4, 2, 64);
    set(&s, "data.seq_len=%d", T);
    set(&s, "stage.name=dpo");
    set(&s, "optimizer.name=sophia");
    cr_assert_eq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_E_CONFIG);
    const char *message = lathe_error_message();
    cr_expect(strstr(message, "optimizer \"sophia\" estimates curvature from labels that the model "
                              "draws; stage \"dpo\" has none (its loss is over pairs)"),
              "%s", message);
    cr_expect_null(strchr(message, '\n'), "%s", message);
}

static const lathe_device_v1 *real;

static lathe_status without_draws(void *self, const lathe_kernel_problem *problem,
                                  lathe_kernel **out, int64_t *out_scratch_bytes)
{
    if (problem->op == LATHE_OP_HEAD_SAMPLE)
        return lathe_error(LATHE_E_UNSUPPORTED, "op 42 is unknown here");
    return real->kernel_create(self, problem, out, out_scratch_bytes);
}

Test(curvature, needs_a_device_that_draws)
{
    lathe_run *run = open_sophia("fp32", 5);
    lathe_device_v1 older = *run->machine.dev;
    lathe_program p;
    real = run->machine.dev;
    older.kernel_create = without_draws;
    const lathe_instance *device = run->machine.device;
    lathe_instance patched = *device;
    patched.table = &older;
    run->machine.dev = &older;
    run->machine.device = &patched;
    const lathe_program_config config = lathe__run_program_config(run);
    OK(lathe_program_build(&config, LATHE_PROGRAM_SAMPLE, &p));
    const lathe_status status =
        lathe__curvature_prepared(run, lathe_program_prepare(&p, &run->machine));
    cr_expect_eq(status, LATHE_E_CONFIG);
    const char *message = lathe_error_message();
    cr_expect(strstr(message, "sophia") && strstr(message, "cannot draw") &&
                  strstr(message, run->parts.device.component->plugin->name) &&
                  strstr(message, "op 42 is unknown here"),
              "%s", message);
    lathe_program_fini(&p);
    run->machine.dev = real;
    run->machine.device = device;
    lathe_run_close(run);
}
