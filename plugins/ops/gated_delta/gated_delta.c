/* The gated delta rule: linear attention whose state forgets, and corrects what it recalls. */
#include "gated_delta.h"

#include <math.h>

#include "delta_exact.h"
#include "lathe/kit/code_image.h"
#include "lathe/kit/op_kit.h"

enum { Q, K, V, G, BETA, DOC_START, N_IN, SLOTS = N_IN, STATES };

typedef struct gated_delta {
    const lathe_host *host;
    int64_t tokens, heads, key_heads;
    double scale; /* 0: by the size of a key */
} gated_delta;

static const lathe_field fields[] = {
    {"tokens", LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, 1, 1e9, NULL, "tokens",
     "tokens of a row; there is a whole number of rows"},
    {"heads", LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, 1, 65536, NULL, "1", "heads of v"},
    {"key_heads", LATHE_T_INT, 0, NULL, 1, 65536, NULL, "1",
     "heads of q and k, each for as many heads of v; unset: as many as heads"},
    LATHE_FIELD_FLOAT("scale", "0.0", 0, 1e6, "1", "factor on q; 0: 1/sqrt(size of a key)"),
};

static lathe_status gated_delta_read(const lathe_host *host, gated_delta *out,
                                     const lathe_value *values)
{
    out->tokens = values[0].i;
    out->heads = values[1].i;
    out->key_heads = values[2].is_set ? values[2].i : out->heads;
    out->scale = values[3].f;
    if (out->heads % out->key_heads != 0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "key_heads",
                             "key_heads is %lld; it must divide heads, %lld",
                             (long long)out->key_heads, (long long)out->heads);
    return LATHE_OK;
}

LATHE_INSTANCE(gated_delta, gated_delta_read)

/* ---- rules ---- */

static int is_matrix(const lathe_desc *d, int32_t dtype, int64_t rows)
{
    return d->dtype == dtype && d->rank == 2 && d->dims[0] == rows;
}

static lathe_status shape(void *self, const lathe_desc *in, lathe_desc *out)
{
    const gated_delta *s = self;
    const int32_t c = in[Q].dtype;
    const int64_t n = in[Q].dims[0];
    if (!lathe_op_computes(c) || !is_matrix(&in[Q], c, n) || !is_matrix(&in[K], c, n) ||
        !is_matrix(&in[V], c, n) || in[K].dims[1] != in[Q].dims[1])
        return lathe_fail(s->host, LATHE_E_SHAPE, "expected q, k c[N,Hk*Dk] and v c[N,H*Dv]");
    if (in[Q].dims[1] % s->key_heads != 0 || in[V].dims[1] % s->heads != 0)
        return lathe_fail(s->host, LATHE_E_SHAPE,
                          "%lld channels of q and %lld of v, no multiples of %lld and %lld heads",
                          (long long)in[Q].dims[1], (long long)in[V].dims[1],
                          (long long)s->key_heads, (long long)s->heads);
    if (in[Q].dims[1] / s->key_heads > DELTA_DIM_MAX || in[V].dims[1] / s->heads > DELTA_DIM_MAX)
        return lathe_fail(s->host, LATHE_E_SHAPE, "a head has more than %d channels",
                          DELTA_DIM_MAX);
    if (!is_matrix(&in[G], LATHE_F32, n) || !is_matrix(&in[BETA], LATHE_F32, n) ||
        in[G].dims[1] != s->heads || in[BETA].dims[1] != s->heads ||
        !lathe_op_is_vector(&in[DOC_START], LATHE_I32, n))
        return lathe_fail(s->host, LATHE_E_SHAPE,
                          "expected g, beta f32[N,%lld] and doc_start i32[N]", (long long)s->heads);
    if (n % s->tokens != 0)
        return lathe_fail(s->host, LATHE_E_SHAPE, "q has %lld tokens, no multiple of rows of %lld",
                          (long long)n, (long long)s->tokens);
    out[0] = in[V];
    return LATHE_OK;
}

static lathe_status state_shape(void *self, const lathe_desc *in, lathe_desc *out)
{
    const gated_delta *s = self;
    if (lathe_op_is_given(&in[DOC_START]))
        return lathe_fail(s->host, LATHE_E_SHAPE, "a sequence that is continued has no doc_start");
    *out = lathe_desc_2d(LATHE_F32, s->heads,
                         delta_state_size(in[Q].dims[1] / s->key_heads, in[V].dims[1] / s->heads));
    return LATHE_OK;
}

/* Shapes alone. in: inputs of the op. */
static delta_args shapes(const gated_delta *s, const lathe_desc *in)
{
    delta_args a = {.n_rows = in[Q].dims[0] / s->tokens,
                    .tokens = s->tokens,
                    .key_heads = (int32_t)s->key_heads,
                    .heads = (int32_t)s->heads,
                    .key_dim = (int32_t)(in[Q].dims[1] / s->key_heads),
                    .value_dim = (int32_t)(in[V].dims[1] / s->heads),
                    .dtype = in[Q].dtype};
    a.scale = (float)(s->scale > 0.0 ? s->scale : 1.0 / sqrt((double)a.key_dim));
    return a;
}

/* For each token and head of v: three products with the state, and half of four with the chunk. */
static double flops(void *self, const lathe_desc *in, const lathe_desc *out)
{
    const gated_delta *s = self;
    const delta_args a = shapes(s, in);
    const double tokens = (double)in[Q].dims[0], chunk = tokens < DELTA_CHUNK ? 1.0 : DELTA_CHUNK;
    (void)out;
    return 2.0 * tokens * a.heads *
           (3.0 * a.key_dim * a.value_dim + chunk * (a.key_dim + a.value_dim));
}

/* Twice the forward for the gradients, and the states and u again. */
static double backward_flops(void *self, const lathe_desc *in, const lathe_desc *out)
{
    return 3.5 * flops(self, in + 1, out);
}

static void exact(void *self, const lathe_desc *in, const lathe_desc *out, const double *const *x,
                  double *const *y)
{
    const gated_delta *s = self;
    const delta_args a = shapes(s, in);
    double *const to[2] = {y[0], lathe_op_is_given(&out[1]) ? y[1] : NULL};
    delta_exact_forward(s->host, &a, x, to);
}

static void backward_exact(void *self, const lathe_desc *in, const lathe_desc *out,
                           const double *const *x, double *const *y)
{
    const gated_delta *s = self;
    const delta_args a = shapes(s, in + 1);
    (void)out;
    delta_exact_backward(s->host, &a, x, y);
}

/* ---- in host memory ---- */

extern const delta_kernels delta_generic, delta_avx2, delta_avx512;

/* in, memory: inputs of the op. n_out: outputs to which the kernel writes, but for the states. */
static delta_args arguments(void *self, const lathe_desc *in, const void *const *memory,
                            const lathe_kernel_args *args, int32_t n_out)
{
    delta_args a = shapes(self, in);
    a.q = memory[Q];
    a.k = memory[K];
    a.v = memory[V];
    a.g = memory[G];
    a.beta = memory[BETA];
    a.doc_start = memory[DOC_START];
    a.accumulate = args->accumulate;
    a.scratch = args->scratch;
    for (int32_t i = 0; i < n_out; i++)
        a.out[i] = args->out[i];
    return a;
}

static delta_args forward_arguments(void *self, const lathe_op_call *call,
                                    const lathe_kernel_args *args)
{
    delta_args a = arguments(self, call->in, args->in, args, 1);
    if (call->n_in > N_IN) {
        a.slots = args->in[SLOTS];
        a.states = args->out[1];
    }
    a.scratch_each = delta_forward_size(&a);
    return a;
}

static delta_args backward_arguments(void *self, const lathe_op_call *call,
                                     const lathe_kernel_args *args)
{
    delta_args a = arguments(self, call->in + 1, args->in + 1, args, 5);
    a.d_out = args->in[0];
    a.scratch_each = delta_backward_size(&a);
    return a;
}

static int64_t forward_scratch(void *self, const lathe_op_call *call)
{
    const delta_args a = shapes(self, call->in);
    return 4 * call->n_threads * delta_forward_size(&a);
}

static int64_t backward_scratch(void *self, const lathe_op_call *call)
{
    const delta_args a = shapes(self, call->in + 1);
    return 4 * call->n_threads * delta_backward_size(&a);
}

/* Items of a call, on the workers of parallel_for. */
typedef struct work {
    delta_args a;
    void (*item)(const delta_args *a, int64_t item, float *scratch);
} work;

static void items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const work *w = arg;
    for (int64_t i = begin; i < end; i++)
        w->item(&w->a, i, w->a.scratch + worker * w->a.scratch_each);
}

static lathe_status forward(void *self, const lathe_op_call *call, const lathe_kernel_args *args,
                            const delta_kernels *kernels)
{
    work w = {forward_arguments(self, call, args), kernels->forward};
    ((const gated_delta *)self)->host->parallel_for(delta_forward_items(&w.a), 1, items, &w);
    return LATHE_OK;
}

static lathe_status backward(void *self, const lathe_op_call *call, const lathe_kernel_args *args,
                             const delta_kernels *kernels)
{
    work w = {backward_arguments(self, call, args), kernels->backward};
    ((const gated_delta *)self)->host->parallel_for(delta_backward_items(&w.a), 1, items, &w);
    return LATHE_OK;
}

static lathe_status forward_generic(void *self, const lathe_op_call *call,
                                    const lathe_kernel_args *args)
{
    return forward(self, call, args, &delta_generic);
}

static lathe_status backward_generic(void *self, const lathe_op_call *call,
                                     const lathe_kernel_args *args)
{
    return backward(self, call, args, &delta_generic);
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
    return forward(self, call, args, &delta_avx2);
}

static lathe_status backward_avx2(void *self, const lathe_op_call *call,
                                  const lathe_kernel_args *args)
{
    return backward(self, call, args, &delta_avx2);
}

static lathe_status forward_avx512(void *self, const lathe_op_call *call,
                                   const lathe_kernel_args *args)
{
    return forward(self, call, args, &delta_avx512);
}

static lathe_status backward_avx512(void *self, const lathe_op_call *call,
                                    const lathe_kernel_args *args)
{
    return backward(self, call, args, &delta_avx512);
}
#endif

/* ---- on GPUs (delta_kernel.cu) ---- */

static int64_t blocks(int64_t n_items)
{
    return n_items < DELTA_BLOCKS ? n_items : DELTA_BLOCKS;
}

static int64_t queued_forward_scratch(void *self, const lathe_op_call *call)
{
    delta_args a = shapes(self, call->in);
    static const int32_t given = 0;
    a.slots = call->n_in > N_IN ? &given : NULL;
    return 4 * blocks(delta_forward_items(&a)) * delta_forward_size(&a);
}

static int64_t queued_backward_scratch(void *self, const lathe_op_call *call)
{
    const delta_args a = shapes(self, call->in + 1);
    return 4 * blocks(delta_backward_items(&a)) * delta_backward_size(&a);
}

static lathe_status queue_forward(void *self, const lathe_op_call *call,
                                  const lathe_kernel_args *args, const lathe_op_launcher *to)
{
    const delta_args a = forward_arguments(self, call, args);
    return to->launch(to->ctx, "gated_delta_forward", blocks(delta_forward_items(&a)),
                      DELTA_THREADS, &a, (int64_t)sizeof a);
}

static lathe_status queue_backward(void *self, const lathe_op_call *call,
                                   const lathe_kernel_args *args, const lathe_op_launcher *to)
{
    const delta_args a = backward_arguments(self, call, args);
    return to->launch(to->ctx, "gated_delta_backward", blocks(delta_backward_items(&a)),
                      DELTA_THREADS, &a, (int64_t)sizeof a);
}

/* ---- the table ---- */

static const lathe_op_tensor inputs[N_IN] = {
    {"q", "c[N,Hk*Dk]", LATHE_TENSOR_BATCHED, 0},
    {"k", "c[N,Hk*Dk]", LATHE_TENSOR_BATCHED, 0},
    {"v", "c[N,H*Dv]", LATHE_TENSOR_BATCHED, 0},
    {"g", "f32[N,H]", LATHE_TENSOR_BATCHED, 0},
    {"beta", "f32[N,H]", LATHE_TENSOR_BATCHED, 0},
    {"doc_start", "i32[N]", LATHE_TENSOR_OPTIONAL | LATHE_TENSOR_BATCHED, 0},
};
static const lathe_op_tensor outputs[] = {{"o", "c[N,H*Dv]", LATHE_TENSOR_BATCHED, 0}};

static const lathe_op_test tests[] = {
    {"c[14,3] c[14,3] c[14,5] f32[14,1] f32[14,1]", "c[14,5]", "tokens = 7\nheads = 1", 64, 8, 7,
     0},
    {"c[22,12] c[22,12] c[22,68] f32[22,4] f32[22,4] i32[22]:p11", "c[22,68]",
     "tokens = 11\nheads = 4\nkey_heads = 2\nscale = 0.5", 64, 8, 11, 0},
    {"c[142,8] c[142,8] c[142,6] f32[142,2] f32[142,2]", "c[142,6]",
     "tokens = 71\nheads = 2\nkey_heads = 2\nscale = 0.3", 200, 8, 71, 0},
    {"c[146,17] c[146,17] c[146,18] f32[146,1]:2 f32[146,1] i32[146]:p146", "c[146,18]",
     "tokens = 146\nheads = 1\nscale = 0.2", 400, 8, 0, 0},
    {"c[1,4] c[1,4] c[1,4] f32[1,1] f32[1,1]", "c[1,4]", "tokens = 1\nheads = 1", 8, 8, 0, 0},
};

static const lathe_op_kernel kernels[] = {
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
static const lathe_op_kernel backward_kernels[] = {
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
static const lathe_op_backward own_backward = {
    .reads_in = 1u << Q | 1u << K | 1u << V | 1u << G | 1u << BETA | 1u << DOC_START,
    .accumulates = 1,
    .kernels = backward_kernels,
    .n_kernels = LATHE_OP_COUNT(backward_kernels),
    .flops = backward_flops,
    .exact = backward_exact,
};

static const lathe_op_state state = {.tokens = "tokens", .shape = state_shape};

static const lathe_op_v1 gated_delta_table = {
    LATHE_OP_HEADER,
    LATHE_OP_LISTS,
    .traits = LATHE_OP_ACCUMULATES,
    .shape = shape,
    .flops = flops,
    .exact = exact,
    .backward = &own_backward,
    .kernels = kernels,
    .n_kernels = LATHE_OP_COUNT(kernels),
    .state = &state,
};

LATHE_OP_ENTRY(gated_delta, LATHE_PLUGIN_FIELDS, .version = "0.1.0",
               .summary = "linear attention with a decaying state and the delta rule",
               .source = "arXiv:2412.06464; transformers, torch_chunk_gated_delta_rule; documents "
                         "and states between parts of a chunk are ours",
               .license = "Apache-2.0");
