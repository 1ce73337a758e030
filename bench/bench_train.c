/* Measures whole optimizer steps on any device, with random weights and random tokens: tokens/s,
 * model FLOP/s and their share of the rate of a large product, the bytes/s of the update and their
 * share of the rate of a copy, and the idle time of the device.
 *
 * Usage: bench_train STEPS [kernels] section.key=value ...
 *
 * Prints one "key value" per line. Products and copies are measured right after each step, while
 * the clocks of the device are still those of the step. Model FLOPs are 6 per token and multiplied
 * parameter (4 if the parameter is frozen), plus attention on the pairs that the causal mask keeps;
 * what gradient checkpointing recomputes counts once.
 * kernels: records the kernels of further steps (kernel_times.h) and prints them; the other
 * figures then include the cost of recording.
 * Exit code 3: the settings do not fit into memory; the message names settings that fit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bench_open.h"
#include "device_rates.h"
#include "exec/program/exec.h"
#include "gpt2_run.h"
#include "graph/ir/flops.h"
#include "kernel_times.h"
#include "model/family/model_size.h"
#include "run/open/opening.h"

enum { MAX_STEPS = 64, MAX_SETTINGS = 48, RECORDED = 3, NAMES = 40 };
#define BURST 0.1 /* s, for products and for copies after a step */

static lathe_run *open_run(int n, char *const *settings)
{
    lathe_override list[MAX_SETTINGS] = {{"tokenizer.path", "bytes"},
                                         {"train.max_steps", "1000000"}};
    int32_t n_list = 2;
    lathe_run *run = NULL;
    for (int i = 0; i < n && n_list < MAX_SETTINGS; i++) {
        char *equals = strchr(settings[i], '=');
        if (!equals) {
            (void)fprintf(stderr, "bench_train: '%s' is no section.key=value\n", settings[i]);
            exit(2);
        }
        *equals = '\0';
        list[n_list++] = (lathe_override){settings[i], equals + 1};
    }
    const lathe_status status = bench_open(list, n_list, LATHE_OPEN_BATCHES, &run);
    if (status != LATHE_OK) {
        (void)fprintf(stderr, "%s\n", lathe_error_message());
        exit(status == LATHE_E_NOMEM ? 3 : 1);
    }
    return run;
}

/* A batch of random tokens, each the target of the one before. Never freed. */
static lathe_run_batch make_batch(const lathe_run *run)
{
    const int64_t n = (int64_t)run->programs.train.n_rows * run->programs.train.row_tokens;
    int32_t *tokens = malloc((size_t)(n + 1) * sizeof *tokens);
    uint64_t s = 0x9E3779B97F4A7C15u;
    if (!tokens)
        bench_die("no memory for the tokens");
    for (int64_t i = 0; i <= n; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        tokens[i] = (int32_t)((s >> 32) * (uint64_t)run->model.vocab >> 32);
    }
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = (int32_t)run->programs.train.n_rows,
                                   .row_tokens = (int32_t)run->programs.train.row_tokens,
                                   .tokens = tokens,
                                   .targets = tokens + 1};
    return batch;
}

typedef struct figures {
    double step, update, product, copy; /* s, s, FLOP/s, bytes/s */
    double loss;
} figures;

static void one_step(lathe_run *run, const lathe_run_batch *batch, int sync, figures *f)
{
    lathe_forward_result forward = {.size = (uint32_t)sizeof forward};
    lathe_step_result result = {.size = (uint32_t)sizeof result};
    const double begun = lathe_now();
    for (int i = 0; i < run->set.gradient_accumulation_steps; i++)
        if (lathe_forward(run, batch, LATHE_FORWARD_TRAIN, &forward) != LATHE_OK ||
            lathe_backward(run, NULL) != LATHE_OK)
            bench_die("forward and backward");
    if (sync && lathe_machine_sync(&run->machine) != LATHE_OK)
        bench_die("backward");
    const double before = lathe_now();
    if (lathe_step(run, &result) != LATHE_OK || lathe_machine_sync(&run->machine) != LATHE_OK)
        bench_die("step");
    const double now = lathe_now();
    f->step = now - begun;
    f->update = now - before;
    f->loss = result.loss;
}

static double model_flops(lathe_run *run)
{
    return lathe_graph_flops(lathe_exec_graph(run->programs.train.exec), 0) *
           run->set.gradient_accumulation_steps;
}

/* Bytes that an update must read and write: gradients twice (once for their norm), master weights,
 * optimizer state, and the copies of lower precision. */
static double update_bytes(const lathe_run *run, int64_t *out_trained)
{
    const lathe_store *s = &run->store;
    double bytes = 2.0 * (double)s->slot_bytes;
    *out_trained = 0;
    for (int32_t i = 0; i < s->n_rows; i++) {
        const lathe_param *row = run->params.rows[i];
        const int64_t n = lathe_desc_count(&row->desc);
        if (!row->trainable)
            continue;
        *out_trained += n;
        bytes += (double)n *
                 (8 + 2 * (double)lathe_dtype_bytes(lathe_params_grad_dtype(&run->params, i)));
        if (lathe_params_has_shadow(&run->params, i))
            bytes +=
                (double)n * (double)lathe_dtype_bytes(lathe_params_value_dtype(&run->params, i));
    }
    return bytes;
}

static double middle(const figures *f, int n, size_t member)
{
    double x[MAX_STEPS];
    for (int i = 0; i < n; i++)
        memcpy(&x[i], (const char *)&f[i] + member, sizeof x[i]);
    return bench_median(x, n);
}

static void report(lathe_run *run, const figures *f, int steps)
{
    const double step = middle(f, steps, offsetof(figures, step));
    const double update = middle(f, steps, offsetof(figures, update));
    const double product = middle(f, steps, offsetof(figures, product));
    const double copy = middle(f, steps, offsetof(figures, copy));
    const double flops = model_flops(run);
    const double tokens = (double)run->programs.train.n_rows *
                          (double)run->programs.train.row_tokens *
                          run->set.gradient_accumulation_steps;
    int64_t trained;
    const double bytes = update_bytes(run, &trained);
    (void)printf("loss %.4f\ntokens %.0f\ntrained %lld\n", f[steps - 1].loss, tokens,
                 (long long)trained);
    (void)printf("step_ms %.3f\ntokens_per_s %.1f\nmodel_gflops %.1f\n", 1e3 * step, tokens / step,
                 1e-9 * flops / step);
    (void)printf("product_gflops %.1f\nshare %.4f\n", 1e-9 * product, flops / step / product);
    (void)printf("update_ms %.3f\nupdate_gbs %.2f\ncopy_gbs %.2f\nupdate_share %.4f\n",
                 1e3 * update, 1e-9 * bytes / update, 1e-9 * copy, bytes / update / copy);
}

/* Recording costs time between kernels, not within them. The idle time of the device follows from
 * this record and from the steps of a process that records nothing. */
static void record(lathe_run *run, const lathe_run_batch *batch, const char *why_not)
{
    double steps[RECORDED], all = 0.0;
    figures f;
    int kernels;
    if (why_not) {
        (void)printf("no_kernels %s\n", why_not);
        return;
    }
    kernel_times_reset();
    for (int i = 0; i < RECORDED; i++) {
        one_step(run, batch, 0, &f);
        steps[i] = f.step;
        all += f.step;
    }
    const double busy = kernel_times_busy(&kernels) / RECORDED;
    kernel_times_print(all, NAMES);
    kernel_times_close();
    (void)printf("kernels %d\nbusy_ms %.3f\nrecorded_ms %.3f\n", kernels / RECORDED, 1e3 * busy,
                 1e3 * bench_median(steps, RECORDED));
}

int main(int argc, char **argv)
{
    const int steps = argc > 1 ? atoi(argv[1]) : 0;
    const int kernels = argc > 2 && strcmp(argv[2], "kernels") == 0;
    figures f[MAX_STEPS];
    device_rates rates;
    if (steps < 1 || steps > MAX_STEPS) {
        (void)fprintf(stderr, "usage: bench_train STEPS [kernels] section.key=value ...\n");
        return 2;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    const char *why_not = kernels ? kernel_times_open() : "";
    const double begun = lathe_now();
    lathe_run *run = open_run(argc - 2 - kernels, argv + 2 + kernels);
    const lathe_run_batch batch = make_batch(run);
    const double opened = lathe_now();
    const char *const attention = lathe_exec_attention(run->programs.train.exec);
    (void)printf("device %s\nattention %s\nparameters %lld\nplanned_gib %.2f\nopen_s %.2f\n",
                 run->machine.info.model, attention ? attention : "none",
                 (long long)lathe_model_n_params(&run->params),
                 (double)lathe_machine_total(&run->machine, &run->planned) / 1073741824.0,
                 opened - begun);
    one_step(run, &batch, 1, &f[0]); /* loads kernels and chooses algorithms */
    (void)printf("first_step_s %.2f\nfirst_loss %.4f\n", f[0].step, f[0].loss);
    for (int i = 0; i < 2; i++)
        one_step(run, &batch, 1, &f[0]); /* captures what repeats; later steps replay it */
    if (device_rates_open(&run->machine, run->params.compute_dtype, run->programs.arena,
                          run->programs.arena_bytes, &rates) != LATHE_OK)
        bench_die("rates");
    for (int i = 0; i < steps; i++) {
        one_step(run, &batch, 1, &f[i]);
        if (device_rates_product(&rates, BURST, &f[i].product) != LATHE_OK ||
            device_rates_copy(&rates, BURST / 2, &f[i].copy) != LATHE_OK)
            bench_die("rates");
    }
    (void)printf("product_n %lld\n", (long long)rates.n);
    device_rates_close(&rates);
    report(run, f, steps);
    if (kernels)
        record(run, &batch, why_not);
    lathe_run_close(run);
    return 0;
}
