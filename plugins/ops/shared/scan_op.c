/* Ops with a decaying state: rules, arguments of the kernels, and the list of kernels. */
#include "scan_op.h"

#include <math.h>

#include "lathe/kit/code_image.h"
#include "scan_exact.h"

/* ---- rules ---- */

static int is_matrix(const lathe_desc *d, int32_t dtype, int64_t rows)
{
    return d->dtype == dtype && d->rank == 2 && d->dims[0] == rows;
}

/* Whether it is a vector with a number for each token and head. */
static int has_numbers(const scan_use *s, const lathe_desc *d, int64_t n)
{
    return is_matrix(d, LATHE_F32, n) && d->dims[1] == s->heads;
}

lathe_status scan_shape(void *self, const lathe_desc *in, lathe_desc *out)
{
    const scan_use *s = self;
    const lathe_op_tensor *const name = s->inputs;
    const int32_t c = in[SCAN_Q].dtype;
    const int64_t n = in[SCAN_Q].dims[0], keys = in[SCAN_Q].dims[1], values = in[SCAN_V].dims[1];
    if (!lathe_op_computes(c) || !is_matrix(&in[SCAN_Q], c, n) || !is_matrix(&in[SCAN_K], c, n) ||
        !is_matrix(&in[SCAN_V], c, n) || in[SCAN_K].dims[1] != keys)
        return lathe_fail(s->host, LATHE_E_SHAPE, "expected %s, %s %s and %s %s", name[SCAN_Q].name,
                          name[SCAN_K].name, name[SCAN_K].shape, name[SCAN_V].name,
                          name[SCAN_V].shape);
    if (keys % s->key_heads != 0 || values % s->heads != 0)
        return lathe_fail(s->host, LATHE_E_SHAPE,
                          "%lld channels of %s and %lld of %s, no multiples of %lld and %lld heads",
                          (long long)keys, name[SCAN_Q].name, (long long)values, name[SCAN_V].name,
                          (long long)s->key_heads, (long long)s->heads);
    if (keys / s->key_heads > SCAN_DIM_MAX || values / s->heads > SCAN_DIM_MAX)
        return lathe_fail(s->host, LATHE_E_SHAPE, "a head has more than %d channels", SCAN_DIM_MAX);
    if (!has_numbers(s, &in[SCAN_G], n) || !has_numbers(s, &in[SCAN_BETA], n) ||
        !lathe_op_is_vector(&in[SCAN_DOC_START], LATHE_I32, n))
        return lathe_fail(s->host, LATHE_E_SHAPE,
                          "expected %s, %s f32[N,%lld] and doc_start i32[N]", name[SCAN_G].name,
                          name[SCAN_BETA].name, (long long)s->heads);
    if (s->n_in > SCAN_SKIP && lathe_op_is_given(&in[SCAN_SKIP]) &&
        !has_numbers(s, &in[SCAN_SKIP], n))
        return lathe_fail(s->host, LATHE_E_SHAPE, "expected %s f32[N,%lld]", name[SCAN_SKIP].name,
                          (long long)s->heads);
    if (n % s->tokens != 0)
        return lathe_fail(s->host, LATHE_E_SHAPE, "%s has %lld tokens, no multiple of rows of %lld",
                          name[SCAN_Q].name, (long long)n, (long long)s->tokens);
    out[0] = in[SCAN_V];
    return LATHE_OK;
}

static lathe_status state_shape(void *self, const lathe_desc *in, lathe_desc *out)
{
    const scan_use *s = self;
    if (lathe_op_is_given(&in[SCAN_DOC_START]))
        return lathe_fail(s->host, LATHE_E_SHAPE, "a sequence that is continued has no doc_start");
    *out = lathe_desc_2d(
        LATHE_F32, s->heads,
        scan_state_size(in[SCAN_Q].dims[1] / s->key_heads, in[SCAN_V].dims[1] / s->heads));
    return LATHE_OK;
}

const lathe_op_state scan_state = {.tokens = "tokens", .shape = state_shape};

/* Shapes alone. in: inputs of the op. */
static scan_args shapes(const scan_use *s, const lathe_desc *in)
{
    scan_args a = {.n_rows = in[SCAN_Q].dims[0] / s->tokens,
                   .tokens = s->tokens,
                   .key_heads = (int32_t)s->key_heads,
                   .heads = (int32_t)s->heads,
                   .key_dim = (int32_t)(in[SCAN_Q].dims[1] / s->key_heads),
                   .value_dim = (int32_t)(in[SCAN_V].dims[1] / s->heads),
                   .dtype = in[SCAN_Q].dtype,
                   .corrects = s->corrects};
    a.scale = (float)(s->scale > 0.0 ? s->scale : 1.0 / sqrt((double)a.key_dim));
    return a;
}

/* For each token and head of v: two products with the state, three with the correction, and half of
 * two or four with the chunk. */
double scan_flops(void *self, const lathe_desc *in, const lathe_desc *out)
{
    const scan_use *s = self;
    const scan_args a = shapes(s, in);
    const double tokens = (double)in[SCAN_Q].dims[0],
                 chunk = tokens < SCAN_CHUNK ? 1.0 : SCAN_CHUNK;
    (void)out;
    const double states = s->corrects ? 3.0 : 2.0, pairs = s->corrects ? 1.0 : 0.5;
    return 2.0 * tokens * a.heads *
           (states * a.key_dim * a.value_dim + pairs * chunk * (a.key_dim + a.value_dim));
}

/* Twice the forward for the gradients, and the states and u again. */
double scan_backward_flops(void *self, const lathe_desc *in, const lathe_desc *out)
{
    return 3.5 * scan_flops(self, in + 1, out);
}

void scan_exact(void *self, const lathe_desc *in, const lathe_desc *out, const double *const *x,
                double *const *y)
{
    const scan_use *s = self;
    const scan_args a = shapes(s, in);
    double *const to[2] = {y[0], lathe_op_is_given(&out[1]) ? y[1] : NULL};
    scan_exact_forward(s->host, &a, s->n_in, x, to);
}

void scan_backward_exact(void *self, const lathe_desc *in, const lathe_desc *out,
                         const double *const *x, double *const *y)
{
    const scan_use *s = self;
    const scan_args a = shapes(s, in + 1);
    (void)out;
    scan_exact_backward(s->host, &a, s->n_in, x, y);
}

/* ---- in host memory ---- */

extern const scan_functions scan_generic, scan_avx2, scan_avx512;

/* in, memory: inputs of the op. n_out: outputs to which the kernel writes, but for the states. */
static scan_args arguments(void *self, const lathe_desc *in, const void *const *memory,
                           const lathe_kernel_args *args, int32_t n_out)
{
    const scan_use *s = self;
    scan_args a = shapes(self, in);
    a.q = memory[SCAN_Q];
    a.k = memory[SCAN_K];
    a.v = memory[SCAN_V];
    a.g = memory[SCAN_G];
    a.beta = memory[SCAN_BETA];
    a.doc_start = memory[SCAN_DOC_START];
    if (s->n_in > SCAN_SKIP)
        a.skip = memory[SCAN_SKIP];
    a.accumulate = args->accumulate;
    a.scratch = args->scratch;
    for (int32_t i = 0; i < n_out; i++)
        a.out[i] = args->out[i];
    return a;
}

static scan_args forward_arguments(void *self, const lathe_op_call *call,
                                   const lathe_kernel_args *args)
{
    scan_args a = arguments(self, call->in, args->in, args, 1);
    const int32_t n_in = ((const scan_use *)self)->n_in;
    if (call->n_in > n_in) {
        a.slots = args->in[n_in];
        a.states = args->out[1];
    }
    a.scratch_each = scan_forward_size(&a);
    return a;
}

/* n_workers: workers or blocks, each of which has scratch. */
static scan_args backward_arguments(void *self, const lathe_op_call *call,
                                    const lathe_kernel_args *args, int64_t n_workers)
{
    scan_args a = arguments(self, call->in + 1, args->in + 1, args, ((const scan_use *)self)->n_in);
    a.d_out = args->in[0];
    a.scratch_each = scan_backward_size(&a);
    a.sums = a.scratch + n_workers * a.scratch_each;
    return a;
}

static int64_t forward_scratch(void *self, const lathe_op_call *call)
{
    const scan_args a = shapes(self, call->in);
    return 4 * call->n_threads * scan_forward_size(&a);
}

static int64_t backward_scratch(void *self, const lathe_op_call *call)
{
    const scan_args a = shapes(self, call->in + 1);
    return 4 * (call->n_threads * scan_backward_size(&a) + scan_sums_size(&a));
}

/* Items of a call, on the workers of parallel_for. */
typedef struct work {
    scan_args a;
    void (*item)(const scan_args *a, int64_t item, float *scratch);
} work;

static void items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const work *w = arg;
    for (int64_t i = begin; i < end; i++)
        w->item(&w->a, i, w->a.scratch + worker * w->a.scratch_each);
}

static lathe_status forward(void *self, const lathe_op_call *call, const lathe_kernel_args *args,
                            const scan_functions *kernels)
{
    work w = {forward_arguments(self, call, args), kernels->forward};
    lathe_op_host(self)->parallel_for(scan_forward_items(&w.a), 1, items, &w);
    return LATHE_OK;
}

static lathe_status backward(void *self, const lathe_op_call *call, const lathe_kernel_args *args,
                             const scan_functions *kernels)
{
    const lathe_host *host = lathe_op_host(self);
    work w = {backward_arguments(self, call, args, call->n_threads), kernels->backward};
    host->parallel_for(scan_backward_items(&w.a), 1, items, &w);
    if (scan_sum_items(&w.a) > 0) {
        w.item = kernels->sum;
        host->parallel_for(scan_sum_items(&w.a), 1, items, &w);
    }
    return LATHE_OK;
}

static lathe_status forward_generic(void *self, const lathe_op_call *call,
                                    const lathe_kernel_args *args)
{
    return forward(self, call, args, &scan_generic);
}

static lathe_status backward_generic(void *self, const lathe_op_call *call,
                                     const lathe_kernel_args *args)
{
    return backward(self, call, args, &scan_generic);
}

#ifdef __x86_64__
/* Whether the processor and the system have x86-64-v3. Feature by feature, because clang 14 does
 * not know the name of the level; every processor with these four has the rest of it. */
static int has_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static int has_v4(void)
{
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static int32_t score_avx2(void *self, const lathe_op_call *call, char *why, int64_t why_bytes)
{
    (void)self, (void)call;
    return lathe_op_scored(has_v3() ? NULL : "this machine has no AVX2", LATHE_SCORE_FAMILY, why,
                           why_bytes);
}

static int32_t score_avx512(void *self, const lathe_op_call *call, char *why, int64_t why_bytes)
{
    (void)self, (void)call;
    return lathe_op_scored(has_v4() ? NULL : "this machine has no AVX-512", LATHE_SCORE_EXACT, why,
                           why_bytes);
}

static lathe_status forward_avx2(void *self, const lathe_op_call *call,
                                 const lathe_kernel_args *args)
{
    return forward(self, call, args, &scan_avx2);
}

static lathe_status backward_avx2(void *self, const lathe_op_call *call,
                                  const lathe_kernel_args *args)
{
    return backward(self, call, args, &scan_avx2);
}

static lathe_status forward_avx512(void *self, const lathe_op_call *call,
                                   const lathe_kernel_args *args)
{
    return forward(self, call, args, &scan_avx512);
}

static lathe_status backward_avx512(void *self, const lathe_op_call *call,
                                    const lathe_kernel_args *args)
{
    return backward(self, call, args, &scan_avx512);
}
#endif

/* ---- on GPUs (scan_cuda.h) ---- */

static int64_t blocks(int64_t n_items)
{
    return n_items < SCAN_BLOCKS ? n_items : SCAN_BLOCKS;
}

static int64_t queued_forward_scratch(void *self, const lathe_op_call *call)
{
    scan_args a = shapes(self, call->in);
    static const int32_t given = 0;
    a.slots = call->n_in > ((const scan_use *)self)->n_in ? &given : NULL;
    return 4 * blocks(scan_forward_items(&a)) * scan_forward_size(&a);
}

static int64_t queued_backward_scratch(void *self, const lathe_op_call *call)
{
    const scan_args a = shapes(self, call->in + 1);
    return 4 * (blocks(scan_backward_items(&a)) * scan_backward_size(&a) + scan_sums_size(&a));
}

static lathe_status queue_forward(void *self, const lathe_op_call *call,
                                  const lathe_kernel_args *args, const lathe_op_launcher *to)
{
    const scan_args a = forward_arguments(self, call, args);
    return to->launch(to->ctx, ((const scan_use *)self)->forward, blocks(scan_forward_items(&a)),
                      SCAN_THREADS, &a, (int64_t)sizeof a);
}

static lathe_status queue_backward(void *self, const lathe_op_call *call,
                                   const lathe_kernel_args *args, const lathe_op_launcher *to)
{
    const scan_use *s = self;
    const scan_args plain = shapes(s, call->in + 1);
    const int64_t n_blocks = blocks(scan_backward_items(&plain));
    const scan_args a = backward_arguments(self, call, args, n_blocks);
    LATHE_TRY(to->launch(to->ctx, s->backward, n_blocks, SCAN_THREADS, &a, (int64_t)sizeof a));
    if (scan_sum_items(&a) == 0)
        return LATHE_OK;
    return to->launch(to->ctx, s->sum, blocks(scan_sum_items(&a)), SCAN_THREADS, &a,
                      (int64_t)sizeof a);
}

/* ---- the list ---- */

const lathe_op_kernel scan_kernels[SCAN_N_KERNELS] = {
    {.name = "portable",
     .score = lathe_op_score_portable,
     .scratch = forward_scratch,
     .run = forward_generic},
#ifdef __x86_64__
    {.name = "avx2", .score = score_avx2, .scratch = forward_scratch, .run = forward_avx2},
    {.name = "avx512", .score = score_avx512, .scratch = forward_scratch, .run = forward_avx512},
#endif
    {.name = "cuda",
     .score = lathe_op_score_portable,
     .scratch = queued_forward_scratch,
     .queue = queue_forward,
     .image = LATHE_CUDA_IMAGE},
};
const lathe_op_kernel scan_backward_kernels[SCAN_N_KERNELS] = {
    {.name = "portable",
     .score = lathe_op_score_portable,
     .scratch = backward_scratch,
     .run = backward_generic},
#ifdef __x86_64__
    {.name = "avx2", .score = score_avx2, .scratch = backward_scratch, .run = backward_avx2},
    {.name = "avx512", .score = score_avx512, .scratch = backward_scratch, .run = backward_avx512},
#endif
    {.name = "cuda",
     .score = lathe_op_score_portable,
     .scratch = queued_backward_scratch,
     .queue = queue_backward,
     .image = LATHE_CUDA_IMAGE},
};
