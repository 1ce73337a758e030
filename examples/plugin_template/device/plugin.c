/* @NAME@: a device in host memory whose kernels are plain loops in f32.
 *
 * It supports the ops of the table `ops` below and returns LATHE_E_UNSUPPORTED for all others;
 * `lathe plugin check` tests the supported ops and skips the rest. For each new op, add a row, a
 * check of the problem and a loop. A run needs all ops of its graph (`lathe plan --graph`). The
 * only queue runs its work at once, so there are no streams, events, captures or sync().
 */
#include <lathe/device.h>
#include <lathe/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct machine {
    const lathe_host *host;
} machine;

/* ---- the ops ---- */

typedef struct op op;

/* A prepared kernel: what the loops must know of the problem. */
struct lathe_kernel {
    const op *op;
    float alpha, beta;   /* of SCALE */
    int64_t n;           /* elements of the output; rows of LINEAR */
    int64_t n_in, n_out; /* LINEAR: inputs and outputs of a row */
    int64_t grain;       /* elements or rows that one worker takes at a time */
};

/* One run of a kernel; the workers of the pool share it. */
typedef struct running {
    const lathe_kernel *kernel;
    const float *in[3];
    float *out;
    int adds; /* 1: the output is added to, not overwritten */
} running;

struct op {
    int32_t op, n_in;
    /* Says whether the problem can be run, and fills the kernel. */
    lathe_status (*check)(const lathe_host *host, const lathe_kernel_problem *problem,
                          lathe_kernel *kernel);
    /* Elements (rows of LINEAR) begin .. end - 1. */
    lathe_range_fn run;
};

static int is_same_shape(const lathe_desc *a, const lathe_desc *b)
{
    if (a->rank != b->rank)
        return 0;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return 0;
    return 1;
}

static lathe_status check_elementwise(const lathe_host *host, const lathe_kernel_problem *problem,
                                      lathe_kernel *kernel)
{
    for (int32_t i = 0; i < problem->n_in; i++)
        if (!is_same_shape(&problem->in[i], &problem->out[0]))
            return lathe_fail(host, LATHE_E_SHAPE,
                              "@NAME@: input %d and the output differ in shape", i);
    kernel->n = lathe_desc_count(&problem->out[0]);
    kernel->grain = 1 << 14;
    return LATHE_OK;
}

/* x [N,I], W [O,I], b? [O] -> y [N,O] */
static lathe_status check_linear(const lathe_host *host, const lathe_kernel_problem *problem,
                                 lathe_kernel *kernel)
{
    const lathe_desc *x = &problem->in[0], *w = &problem->in[1], *b = &problem->in[2];
    const lathe_desc *y = &problem->out[0];
    if (problem->attrs->fp8 != 0)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "@NAME@: no linear in fp8");
    if (x->rank != 2 || w->rank != 2 || y->rank != 2 || x->dims[1] != w->dims[1] ||
        y->dims[0] != x->dims[0] || y->dims[1] != w->dims[0] ||
        (b->dtype != LATHE_ABSENT && lathe_desc_count(b) != w->dims[0]))
        return lathe_fail(host, LATHE_E_SHAPE, "@NAME@: the shapes of x, W, b and y do not agree");
    kernel->n = x->dims[0];
    kernel->n_in = x->dims[1];
    kernel->n_out = w->dims[0];
    kernel->grain = 1;
    return LATHE_OK;
}

/* Element i of the output is `formula` of a = in[0][i] and b = in[1][i] (0 without that input). */
#define ELEMENTWISE(name, formula)                                                                 \
    static void run_##name(void *arg, int64_t begin, int64_t end, int32_t worker)                  \
    {                                                                                              \
        const running *r = (const running *)arg;                                                   \
        const float alpha = r->kernel->alpha, beta = r->kernel->beta;                              \
        (void)worker, (void)alpha, (void)beta;                                                     \
        for (int64_t i = begin; i < end; i++) {                                                    \
            const float a = r->in[0][i], b = r->in[1] != NULL ? r->in[1][i] : 0.0f;                \
            (void)b;                                                                               \
            r->out[i] = (r->adds ? r->out[i] : 0.0f) + (formula);                                  \
        }                                                                                          \
    }
ELEMENTWISE(add, a + b)
ELEMENTWISE(sub, a - b)
ELEMENTWISE(mul, a *b)
ELEMENTWISE(scale, alpha *a + beta)

static void run_copy(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const running *r = (const running *)arg;
    (void)worker;
    memmove(r->out + begin, r->in[0] + begin, (size_t)(end - begin) * sizeof(float));
}

static void run_linear(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const running *r = (const running *)arg;
    const int64_t n_in = r->kernel->n_in, n_out = r->kernel->n_out;
    (void)worker;
    for (int64_t n = begin; n < end; n++)
        for (int64_t o = 0; o < n_out; o++) {
            float sum = r->in[2] != NULL ? r->in[2][o] : 0.0f;
            for (int64_t i = 0; i < n_in; i++)
                sum += r->in[0][n * n_in + i] * r->in[1][o * n_in + i];
            r->out[n * n_out + o] = (r->adds ? r->out[n * n_out + o] : 0.0f) + sum;
        }
}

static const op ops[] = {
    {LATHE_OP_ADD, 2, check_elementwise, run_add},
    {LATHE_OP_SUB, 2, check_elementwise, run_sub},
    {LATHE_OP_MUL, 2, check_elementwise, run_mul},
    {LATHE_OP_SCALE, 1, check_elementwise, run_scale},
    {LATHE_OP_COPY, 1, check_elementwise, run_copy},
    {LATHE_OP_LINEAR, 3, check_linear, run_linear},
};

/* ---- kernels ---- */

static lathe_status check_dtypes(const lathe_host *host, const lathe_kernel_problem *problem)
{
    for (int32_t i = 0; i <= problem->n_in; i++) {
        const int32_t dtype = i < problem->n_in ? problem->in[i].dtype : problem->out[0].dtype;
        const int is_bias = problem->op == LATHE_OP_LINEAR && i == 2;
        if (dtype != LATHE_F32 && !(is_bias && dtype == LATHE_ABSENT))
            return lathe_fail(host, LATHE_E_UNSUPPORTED, "@NAME@: dtype %s (%d), expected f32",
                              lathe_dtype_name(dtype), dtype);
    }
    return LATHE_OK;
}

static lathe_status kernel_create(void *self, const lathe_kernel_problem *problem,
                                  lathe_kernel **out, int64_t *out_scratch_bytes)
{
    const lathe_host *host = ((const machine *)self)->host;
    lathe_kernel kernel = {.op = NULL};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (ops[i].op == problem->op && ops[i].n_in == problem->n_in && problem->n_out == 1)
            kernel.op = &ops[i];
    if (kernel.op == NULL)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "@NAME@: no kernel for op %d", problem->op);
    LATHE_TRY(check_dtypes(host, problem));
    LATHE_TRY(kernel.op->check(host, problem, &kernel));
    kernel.alpha = (float)problem->attrs->alpha;
    kernel.beta = (float)problem->attrs->beta;
    *out = (lathe_kernel *)host->alloc((int64_t)sizeof kernel);
    if (*out == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "@NAME@: no memory for a kernel");
    **out = kernel;
    *out_scratch_bytes = 0;
    return LATHE_OK;
}

static void kernel_destroy(void *self, lathe_kernel *kernel)
{
    ((const machine *)self)->host->free(kernel);
}

static lathe_status kernel_run(void *self, lathe_kernel *kernel, const lathe_kernel_args *args)
{
    running r = {
        .kernel = kernel, .out = (float *)args->out[0], .adds = (int)(args->accumulate & 1)};
    for (int32_t i = 0; i < kernel->op->n_in; i++)
        r.in[i] = (const float *)args->in[i];
    ((const machine *)self)->host->parallel_for(kernel->n, kernel->grain, kernel->op->run, &r);
    return LATHE_OK;
}

/* ---- memory ---- */

static lathe_status memory_alloc(void *self, int64_t bytes, int32_t memory, void **out)
{
    const lathe_host *host = ((const machine *)self)->host;
    *out = NULL;
    if (memory != LATHE_MEM_DEVICE && memory != LATHE_MEM_HOST_PINNED)
        return lathe_fail(host, LATHE_E_ARG, "@NAME@: memory of kind %d", memory);
    if (bytes >= 0 && bytes < (int64_t)1 << 46)
        *out = aligned_alloc(64, (size_t)(bytes + 64) / 64 * 64);
    if (*out == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "@NAME@: no memory for %lld bytes",
                          (long long)bytes);
    memset(*out, 0, (size_t)bytes);
    return LATHE_OK;
}

static void memory_free(void *self, void *memory)
{
    (void)self;
    free(memory);
}

/* Both ends are host memory: every direction is the same. */
static lathe_status memory_copy(void *self, lathe_stream *stream, void *dst, const void *src,
                                int64_t bytes, int32_t direction)
{
    (void)stream;
    if (direction < LATHE_COPY_TO_DEVICE || direction > LATHE_COPY_ON_DEVICE)
        return lathe_fail(((const machine *)self)->host, LATHE_E_ARG,
                          "@NAME@: a copy in direction %d", direction);
    memmove(dst, src, (size_t)bytes);
    return LATHE_OK;
}

/* ---- the device ---- */

/* Low, so that device.name = "auto" never takes it; raise it once it has the ops that runs need. */
static int32_t score(char *why, int64_t why_bytes)
{
    (void)snprintf(why, (size_t)why_bytes, "plain loops in f32, some ops only");
    return 1;
}

static lathe_status info(void *self, lathe_device_info *out)
{
    lathe_device_info full = {.size = out->size,
                              .n_workers = ((const machine *)self)->host->n_threads(),
                              .memory_bytes = (int64_t)1 << 30, /* ask the machine here */
                              .compute_dtypes = 1u << LATHE_F32,
                              .host_memory = LATHE_MEMORY_HOST};
    (void)snprintf(full.model, sizeof full.model, "@NAME@");
    (void)snprintf(full.isa, sizeof full.isa, "plain");
    memcpy(out, &full, out->size < sizeof full ? out->size : sizeof full);
    return LATHE_OK;
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    (void)values, (void)n_values;
    machine *m = (machine *)host->alloc((int64_t)sizeof *m);
    if (m == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "@NAME@: no memory");
    m->host = host;
    *out_self = m;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((machine *)self)->host->free(self);
}

static const lathe_device_v1 table = {.size = (uint32_t)sizeof table,
                                      .revision = LATHE_DEVICE_REVISION,
                                      .score = score,
                                      .info = info,
                                      .alloc = memory_alloc,
                                      .free = memory_free,
                                      .copy = memory_copy,
                                      .kernel_create = kernel_create,
                                      .kernel_destroy = kernel_destroy,
                                      .kernel_run = kernel_run};

const lathe_plugin LATHE_PLUGIN_ENTRY = {LATHE_PLUGIN_HEADER,
                                         .kind = LATHE_KIND_DEVICE,
                                         .revision = LATHE_DEVICE_REVISION,
                                         .name = "@NAME@",
                                         .version = "0.1.0",
                                         .summary = "plain loops in f32 on the host's memory",
                                         .source = "ours",
                                         .license = "Apache-2.0",
                                         .table = &table,
                                         .create = create,
                                         .destroy = destroy};
