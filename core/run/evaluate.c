/* Evaluation, and the machine's product rate. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "run/calibration.h"
#include "run/run_trace.h"
#include "run/train.h"

/* A loss over pairs is none over tokens. */
static int32_t counts_tokens(const lathe_run *run)
{
    return run->eval.stage.count_unit == LATHE_COUNT_TOKENS && run->eval.top != LATHE_NONE;
}

/* The likeliest tokens of the batch just run. */
static lathe_status observe_tops(lathe_run *run, lathe_calibration *c)
{
    const lathe_program *p = &run->eval;
    const void *tops = NULL, *logprobs = NULL;
    if (!counts_tokens(run))
        return LATHE_OK;
    const int32_t *targets = lathe_exec_input(p->exec, p->targets);
    LATHE_TRY(lathe_exec_fetch(p->exec, p->top, &tops));
    LATHE_TRY(lathe_exec_fetch(p->exec, p->top_logprobs, &logprobs));
    for (int64_t i = 0; i < p->n_rows * p->row_tokens; i++)
        if (targets[i] >= 0)
            lathe_calibration_add(c, exp((double)((const float *)logprobs)[i]),
                                  ((const int32_t *)tops)[i] == targets[i]);
    return LATHE_OK;
}

static double bits_per_byte(const lathe_run *run, double loss)
{
    const double tokens = (double)lathe_loader_tokens(run->validation);
    const double bytes = (double)lathe_loader_text_bytes(run->validation);
    if (!counts_tokens(run) || bytes <= 0.0)
        return (double)NAN;
    return loss / log(2.0) * tokens / bytes;
}

lathe_status lathe_evaluate(lathe_run *run, int64_t max_batches, lathe_evaluation *out)
{
    double sum = 0.0, metrics[LATHE_MAX_STAGE_METRICS] = {0.0};
    lathe_calibration calibration = {0};
    int64_t n_batches;
    memset(out, 0, sizeof *out);
    if (!run->validation)
        return lathe_error(LATHE_E_STATE, "the run has no data to evaluate on");
    LATHE_TRY(lathe_loader_seek(run->validation, &run->validation_start));
    n_batches = lathe_loader_batches(run->validation, 1);
    if (max_batches > 0 && max_batches < n_batches)
        n_batches = max_batches;
    if (run->mode == LATHE_OPEN_EVALUATE)
        lathe_run_trace_begin(run, 0);
    for (int64_t i = 0; i < n_batches; i++) {
        if (run->mode == LATHE_OPEN_EVALUATE) /* within a training, the steps are what counts */
            lathe_run_trace_step(run, i + 1);
        lathe_forward_result r = {.size = (uint32_t)sizeof r};
        LATHE_TRY(lathe_forward(run, NULL, 0, &r));
        sum += r.loss_sum;
        out->count += r.count;
        for (int32_t k = 0; k < run->eval.stage.n_metrics; k++) {
            const void *value = NULL;
            LATHE_TRY(lathe_exec_fetch(run->eval.exec, run->eval.stage.metrics[k].sum, &value));
            metrics[k] += (double)*(const float *)value;
        }
        LATHE_TRY(observe_tops(run, &calibration));
    }
    if (out->count <= 0.0)
        return lathe_error(LATHE_E_STATE, "the evaluation data holds no targets");
    out->loss = sum / out->count;
    out->perplexity = exp(out->loss);
    out->token_accuracy = lathe_calibration_accuracy(&calibration);
    out->ece = lathe_calibration_error(&calibration);
    out->bits_per_byte = bits_per_byte(run, out->loss);
    for (int32_t k = 0; k < LATHE_MAX_STAGE_METRICS; k++)
        out->metrics[k] = metrics[k] / out->count;
    return LATHE_OK;
}

#define PEAK_ROWS 2048
#define PEAK_COLS 1024
#define PEAK_RUNS 12

static lathe_status time_product(lathe_run *run, lathe_kernel *kernel,
                                 const lathe_kernel_args *args, double *best)
{
    lathe_machine *m = &run->machine;
    for (int i = 0; i < PEAK_RUNS; i++) {
        const double begin = lathe_now();
        LATHE_TRY(m->dev->kernel_run(m->device->self, kernel, args));
        LATHE_TRY(lathe_machine_sync(m));
        const double seconds = lathe_now() - begin;
        if (i > 0 && (*best <= 0.0 || seconds < *best)) /* the first warms up */
            *best = seconds;
    }
    return LATHE_OK;
}

/* Small, unlike numbers: no denormals, no zeros. */
static lathe_status fill_small(lathe_machine *m, void *device, int64_t n)
{
    uint16_t *host = malloc((size_t)n * sizeof *host);
    if (!host)
        return lathe_error(LATHE_E_NOMEM, "no memory to measure products");
    for (int64_t i = 0; i < n; i++)
        host[i] = (uint16_t)(0x3d80u + (uint32_t)(i * 37 % 128));
    const lathe_status status = lathe_upload(m, device, host, n * (int64_t)sizeof *host);
    free(host);
    return status;
}

lathe_status lathe_peak_flops(lathe_run *run, double *out)
{
    lathe_machine *m = &run->machine;
    const int32_t dtype = run->params.compute_dtype;
    const lathe_op_attrs attrs = {0};
    const lathe_desc in[3] = {lathe_desc_2d(dtype, PEAK_ROWS, PEAK_COLS),
                              lathe_desc_2d(dtype, PEAK_COLS, PEAK_COLS),
                              {LATHE_ABSENT, 0, {1, 1, 1, 1}}};
    const lathe_desc result = lathe_desc_2d(dtype, PEAK_ROWS, PEAK_COLS);
    const lathe_kernel_problem problem = {.size = (uint32_t)sizeof problem,
                                          .op = LATHE_OP_LINEAR,
                                          .attrs = &attrs,
                                          .in = in,
                                          .out = &result,
                                          .n_in = 3,
                                          .n_out = 1,
                                          .may_overwrite = 1,
                                          .flags = m->flags,
                                          .n_threads = m->n_threads};
    lathe_kernel *kernel = NULL;
    int64_t scratch = 0;
    void *memory = NULL;
    double best = 0.0;
    LATHE_TRY(m->dev->kernel_create(m->device->self, &problem, &kernel, &scratch));
    const int64_t x = lathe_desc_bytes(&in[0]), w = lathe_desc_bytes(&in[1]);
    lathe_status status =
        m->dev->alloc(m->device->self, 2 * x + w + scratch, LATHE_MEM_DEVICE, &memory);
    if (status == LATHE_OK) {
        char *base = memory;
        const void *const inputs[3] = {base, base + x, NULL};
        void *const outputs[1] = {base + x + w};
        const lathe_kernel_args args = {.size = (uint32_t)sizeof args,
                                        .in = inputs,
                                        .out = outputs,
                                        .scratch = scratch ? base + 2 * x + w : NULL,
                                        .stream = m->stream};
        status = fill_small(m, memory, (x + w) / (int64_t)sizeof(uint16_t));
        if (status == LATHE_OK)
            status = time_product(run, kernel, &args, &best);
    }
    m->dev->free(m->device->self, memory);
    m->dev->kernel_destroy(m->device->self, kernel);
    LATHE_TRY(status);
    *out = 2.0 * PEAK_ROWS * PEAK_COLS * (double)PEAK_COLS / best;
    return LATHE_OK;
}
