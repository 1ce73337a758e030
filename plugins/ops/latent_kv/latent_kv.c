/* Keys and values of latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): of each head's
 * part of kv [N,H*(Dn+Dv)] the first Dn channels are its key's, the others its value. Every key
 * ends with the R channels of `shared` [N,R], which have the positions and are the same for all
 * heads.
 *
 *     k[n,h] = kv[n,h,0..Dn), shared[n]        v[n,h] = kv[n,h,Dn..Dn+Dv)
 *
 * The forward copies. In the backward, the gradient of `shared` is a sum over the heads in their
 * order, in f32. A worker computes some tokens, so bits depend neither on threads nor on the batch.
 */
#include "latent_kv.h"

#include "lathe/kit/code_image.h"
#include "lathe/kit/op_kit.h"

enum { KV, SHARED, N_IN, DK = 0, DV, OF }; /* OF: the op's inputs, in the backward */
enum { K, V };
enum { PIECE = 256 }; /* channels that are summed at a time */

typedef struct latent_kv {
    const lathe_host *host;
    int64_t heads, key_dim, value_dim; /* H, Dn, Dv */
} latent_kv;

static const lathe_field fields[] = {
    {"heads", LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, 1, 65536, NULL, "heads", "number of heads"},
    {"key_dim", LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, 1, 65536, NULL, "channels",
     "channels of a key that are the head's own"},
    {"value_dim", LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, 1, 65536, NULL, "channels",
     "size of a head of v"},
};

static lathe_status latent_kv_read(const lathe_host *host, latent_kv *out,
                                   const lathe_value *values)
{
    (void)host;
    out->heads = values[0].i;
    out->key_dim = values[1].i;
    out->value_dim = values[2].i;
    return LATHE_OK;
}

LATHE_INSTANCE(latent_kv, latent_kv_read)

/* ---- rules ---- */

typedef struct sizes {
    int64_t n_tokens, heads, own, shared, value; /* N, H, Dn, R, Dv */
} sizes;

static sizes sizes_of(const latent_kv *s, const lathe_desc *in)
{
    return (sizes){in[KV].dims[0], s->heads, s->key_dim, in[SHARED].dims[1], s->value_dim};
}

/* Sizes of a backward, which does not read the op's inputs. in: dk, dv, ..; out: dkv, dshared. */
static sizes backward_sizes(const latent_kv *s, const lathe_desc *in, const lathe_desc *out)
{
    const int has_dk = lathe_op_is_given(&in[DK]);
    return (sizes){.n_tokens = in[has_dk ? DK : DV].dims[0],
                   .heads = s->heads,
                   .own = s->key_dim,
                   .shared = has_dk ? in[DK].dims[1] / s->heads - s->key_dim
                             : lathe_op_is_given(&out[SHARED]) ? out[SHARED].dims[1]
                                                               : 0,
                   .value = s->value_dim};
}

static lathe_status shape(void *self, const lathe_desc *in, lathe_desc *out)
{
    const latent_kv *s = self;
    const lathe_desc *kv = &in[KV], *shared = &in[SHARED];
    if (!lathe_op_computes(kv->dtype) || kv->rank != 2 || shared->dtype != kv->dtype ||
        shared->rank != 2 || shared->dims[0] != kv->dims[0])
        return lathe_fail(s->host, LATHE_E_SHAPE, "expected kv c[N,H*(Dn+Dv)] and shared c[N,R]");
    if (kv->dims[1] != s->heads * (s->key_dim + s->value_dim))
        return lathe_fail(s->host, LATHE_E_SHAPE,
                          "kv has %lld columns, expected %lld heads of %lld + %lld",
                          (long long)kv->dims[1], (long long)s->heads, (long long)s->key_dim,
                          (long long)s->value_dim);
    const sizes z = sizes_of(s, in);
    out[K] = lathe_desc_2d(kv->dtype, z.n_tokens, z.heads * (z.own + z.shared));
    out[V] = lathe_desc_2d(kv->dtype, z.n_tokens, z.heads * z.value);
    return LATHE_OK;
}

/* ---- in double precision ---- */

static void exact(void *self, const lathe_desc *in, const lathe_desc *out, const double *const *x,
                  double *const *y)
{
    const sizes z = sizes_of(self, in);
    const int64_t key = z.own + z.shared, both = z.own + z.value;
    (void)out;
    for (int64_t i = 0; i < z.n_tokens * z.heads; i++) {
        for (int64_t d = 0; d < key && y[K] != NULL; d++)
            y[K][i * key + d] =
                d < z.own ? x[KV][i * both + d] : x[SHARED][i / z.heads * z.shared + d - z.own];
        for (int64_t d = 0; d < z.value && y[V] != NULL; d++)
            y[V][i * z.value + d] = x[KV][i * both + z.own + d];
    }
}

/* x: dk, dv, then the inputs of the op. */
static void backward_exact(void *self, const lathe_desc *in, const lathe_desc *out,
                           const double *const *x, double *const *y)
{
    const sizes z = backward_sizes(self, in, out);
    const int64_t key = z.own + z.shared, both = z.own + z.value;
    for (int64_t i = 0; i < z.n_tokens * z.heads; i++) {
        for (int64_t d = 0; d < both && y[KV] != NULL; d++) {
            const double *from = d < z.own ? x[DK] : x[DV];
            const int64_t at = d < z.own ? i * key + d : i * z.value + d - z.own;
            y[KV][i * both + d] = from != NULL ? from[at] : 0.0;
        }
        for (int64_t d = 0; d < z.shared && y[SHARED] != NULL && x[DK] != NULL; d++)
            y[SHARED][i / z.heads * z.shared + d] += x[DK][i * key + z.own + d];
    }
}

/* ---- in host memory ---- */

typedef struct work {
    sizes z;
    const char *kv, *shared, *dk, *dv;
    char *k, *v, *dkv, *dshared;
    int64_t bytes; /* of an element */
    int32_t dtype;
} work;

static void copy(char *to, const char *from, int64_t n, int64_t bytes)
{
    memcpy(to, from, (size_t)(n * bytes));
}

static void forward_tokens(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const work *w = arg;
    const sizes z = w->z;
    const int64_t b = w->bytes, key = z.own + z.shared, both = z.own + z.value;
    (void)worker;
    for (int64_t i = begin * z.heads; i < end * z.heads; i++) {
        const char *kv = w->kv + i * both * b;
        if (w->k != NULL) {
            copy(w->k + i * key * b, kv, z.own, b);
            copy(w->k + (i * key + z.own) * b, w->shared + i / z.heads * z.shared * b, z.shared, b);
        }
        if (w->v != NULL)
            copy(w->v + i * z.value * b, kv + z.own * b, z.value, b);
    }
}

static lathe_status forward(void *self, const lathe_op_call *call, const lathe_kernel_args *args)
{
    const latent_kv *s = self;
    work w = {.z = sizes_of(s, call->in),
              .kv = args->in[KV],
              .shared = args->in[SHARED],
              .k = args->out[K],
              .v = args->out[V],
              .bytes = lathe_dtype_bytes(call->in[KV].dtype)};
    s->host->parallel_for(w.z.n_tokens, 1, forward_tokens, &w);
    return LATHE_OK;
}

/* The gradient of the shared channels of token n. */
static void sum_heads(const work *w, int64_t n)
{
    const sizes z = w->z;
    const int64_t key = z.own + z.shared;
    for (int64_t first = 0; first < z.shared; first += PIECE) {
        const int64_t width = z.shared - first < PIECE ? z.shared - first : PIECE;
        float sum[PIECE] = {0}, x[PIECE];
        for (int64_t h = 0; h < z.heads && w->dk != NULL; h++) {
            lathe_op_read(w->dk, w->dtype, (n * z.heads + h) * key + z.own + first, width, x);
            for (int64_t d = 0; d < width; d++)
                sum[d] += x[d];
        }
        lathe_op_write(w->dshared, w->dtype, n * z.shared + first, width, sum, 0);
    }
}

static void put(char *to, const char *from, int64_t n, int64_t bytes)
{
    if (from != NULL)
        copy(to, from, n, bytes);
    else
        memset(to, 0, (size_t)(n * bytes)); /* no gradient flows through that output */
}

static void backward_tokens(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const work *w = arg;
    const sizes z = w->z;
    const int64_t b = w->bytes, key = z.own + z.shared, both = z.own + z.value;
    (void)worker;
    for (int64_t i = begin * z.heads; i < end * z.heads && w->dkv != NULL; i++) {
        char *dkv = w->dkv + i * both * b;
        put(dkv, w->dk != NULL ? w->dk + i * key * b : NULL, z.own, b);
        put(dkv + z.own * b, w->dv != NULL ? w->dv + i * z.value * b : NULL, z.value, b);
    }
    for (int64_t n = begin; n < end && w->dshared != NULL; n++)
        sum_heads(w, n);
}

static lathe_status backward(void *self, const lathe_op_call *call, const lathe_kernel_args *args)
{
    const latent_kv *s = self;
    const int32_t dtype = call->in[lathe_op_is_given(&call->in[DK]) ? DK : DV].dtype;
    work w = {.z = backward_sizes(s, call->in, call->out),
              .dk = args->in[DK],
              .dv = args->in[DV],
              .dkv = args->out[KV],
              .dshared = args->out[SHARED],
              .bytes = lathe_dtype_bytes(dtype),
              .dtype = dtype};
    s->host->parallel_for(w.z.n_tokens, 1, backward_tokens, &w);
    return LATHE_OK;
}

/* ---- on GPUs (latent_kv_kernel.cu) ---- */

static latent_kv_args gpu_args(sizes z, int32_t dtype)
{
    return (latent_kv_args){.n_tokens = z.n_tokens,
                            .n_heads = z.heads,
                            .own = z.own,
                            .shared_dim = z.shared,
                            .value_dim = z.value,
                            .dtype = dtype};
}

static lathe_status launch(const lathe_op_launcher *to, const char *kernel, int64_t threads,
                           const latent_kv_args *a)
{
    return to->launch(to->ctx, kernel, (threads + LATENT_KV_THREADS - 1) / LATENT_KV_THREADS,
                      LATENT_KV_THREADS, a, (int64_t)sizeof *a);
}

static lathe_status queue_forward(void *self, const lathe_op_call *call,
                                  const lathe_kernel_args *args, const lathe_op_launcher *to)
{
    const sizes z = sizes_of(self, call->in);
    latent_kv_args a = gpu_args(z, call->in[KV].dtype);
    a.kv = args->in[KV];
    a.shared = args->in[SHARED];
    a.k = args->out[K];
    a.v = args->out[V];
    return launch(to, "latent_kv_forward", z.n_tokens * z.heads * (z.own + z.shared + z.value), &a);
}

static lathe_status queue_backward(void *self, const lathe_op_call *call,
                                   const lathe_kernel_args *args, const lathe_op_launcher *to)
{
    const sizes z = backward_sizes(self, call->in, call->out);
    latent_kv_args a = gpu_args(z, call->in[lathe_op_is_given(&call->in[DK]) ? DK : DV].dtype);
    a.dk = args->in[DK];
    a.dv = args->in[DV];
    a.dkv = args->out[KV];
    a.dshared = args->out[SHARED];
    if (a.dkv != NULL)
        LATHE_TRY(launch(to, "latent_kv_backward", z.n_tokens * z.heads * (z.own + z.value), &a));
    return a.dshared != NULL ? launch(to, "latent_kv_sum_heads", z.n_tokens * z.shared, &a)
                             : LATHE_OK;
}

/* ---- the table ---- */

static const lathe_op_tensor inputs[N_IN] = {
    {"kv", "c[N,H*(Dn+Dv)]", LATHE_TENSOR_BATCHED, 0},
    {"shared", "c[N,R]", LATHE_TENSOR_BATCHED, 0},
};
static const lathe_op_tensor outputs[] = {
    {"k", "c[N,H*(Dn+R)]", LATHE_TENSOR_BATCHED, 0},
    {"v", "c[N,H*Dv]", LATHE_TENSOR_BATCHED, 0},
};

static const lathe_op_test tests[] = {
    {"c[6,20] c[6,2]", "c[6,10] c[6,14]", "heads = 2\nkey_dim = 3\nvalue_dim = 7", 4, 1, 3, 0},
    {"c[5,36] c[5,300]", "c[5,1216] c[5,20]", "heads = 4\nkey_dim = 4\nvalue_dim = 5", 8, 1, 1, 0},
    {"c[1,2] c[1,1]", "c[1,2] c[1,1]", "heads = 1\nkey_dim = 1\nvalue_dim = 1", 2, 1, 0, 0},
    {"c[33,70] c[33,8]", "c[33,75] c[33,35]", "heads = 5\nkey_dim = 7\nvalue_dim = 7", 8, 1, 11, 0},
};

static const lathe_op_kernel kernels[] = {
    {.name = "portable", .score = lathe_op_score_portable, .run = forward},
    {.name = "cuda",
     .score = lathe_op_score_portable,
     .queue = queue_forward,
     .image = LATHE_CUDA_IMAGE},
};
static const lathe_op_kernel backward_kernels[] = {
    {.name = "portable", .score = lathe_op_score_portable, .run = backward},
    {.name = "cuda",
     .score = lathe_op_score_portable,
     .queue = queue_backward,
     .image = LATHE_CUDA_IMAGE},
};
static const lathe_op_backward own_backward = {
    .kernels = backward_kernels,
    .n_kernels = LATHE_OP_COUNT(backward_kernels),
    .exact = backward_exact,
};

static const lathe_op_v1 latent_kv_table = {
    LATHE_OP_HEADER,          LATHE_OP_LISTS,
    .traits = LATHE_OP_CHEAP, .shape = shape,
    .exact = exact,           .backward = &own_backward,
    .kernels = kernels,       .n_kernels = LATHE_OP_COUNT(kernels),
};

LATHE_OP_ENTRY(latent_kv, LATHE_PLUGIN_FIELDS, .version = "0.1.0",
               .summary = "keys and values of latent attention, from one projection and a part "
                          "that all heads share",
               .source = "arXiv:2405.04434, section 2.1", .license = "Apache-2.0");
