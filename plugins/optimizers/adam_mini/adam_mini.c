/* Adam-mini: AdamW with one second moment per block.
 *
 *     m += (1-b1)*(g - m);  v = b2*v + (1-b2)*mean(g*g over the block)
 *     p = p*(1 - lr*wd) - lr * m/(1 - b1^t) / (sqrt(v)/sqrt(1 - b2^t) + eps)
 *
 * A block is: a head of a query or key projection; a row of every other matrix, embedding and head;
 * a whole norm; an element of a bias. Source: arXiv:2406.16793; the authors' package adam-mini
 * 1.1.1.
 */
#include "adam_mini.h"
#include "lathe/kit/tensor_chunks.h"

typedef lathe_adamw adam_mini;

/* Maximum number of elements of a block that are prefetched; a longer block is a stream of its
 * own. */
#define MAX_PREFETCHED 4096

static const lathe_field fields[] = {LATHE_ADAMW_FIELDS("1e-3", "1e-8", "0.0")};

static lathe_status read_values(const lathe_host *host, adam_mini *o, const lathe_value *values)
{
    (void)host;
    lathe_adamw_read(o, values);
    return LATHE_OK;
}

/* Number of elements that share a second moment. */
static int64_t block(void *self, const lathe_param_info *param)
{
    const int64_t n = lathe_desc_count(&param->desc);
    const int64_t cols = param->desc.rank > 1 ? n / param->desc.dims[0] : 1;
    (void)self;
    if (param->role == LATHE_ROLE_BIAS)
        return 1;
    if (param->desc.rank < 2)
        return n > 0 ? n : 1;
    return param->head_rows > 0 && param->desc.dims[0] % param->head_rows == 0
               ? cols * param->head_rows
               : cols;
}

static int32_t partition(void *self, const lathe_param_info *param)
{
    (void)self, (void)param;
    return LATHE_PARTITION_BLOCK;
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    const int64_t size = block(self, param);
    lathe_slot_like(&out[SLOT_M], "exp_avg", param, LATHE_F32);
    lathe_slot_vector(&out[SLOT_V], "exp_avg_sq",
                      (lathe_desc_count(&param->desc) + size - 1) / size, LATHE_F32);
    return N_SLOTS;
}

/* A size of whole blocks, about LATHE_CHUNK_ELEMENTS elements. */
static int64_t chunk_size(void *ctx, const lathe_optimizer_tensor *x)
{
    (void)ctx;
    const int64_t size = x->block > 0 ? x->block : 1, want = LATHE_CHUNK_ELEMENTS;
    return size >= want ? size : want / size * size;
}

/* Mean of the squares of the scaled gradient. Its lanes correspond to the threads of the GPU
 * kernel, so both add in the same order. */
LATHE_CLONES static float mean_square(const float *restrict g, int64_t n, float scale)
{
    double sum[ADAM_MINI_LANES] = {0.0};
    int64_t at = 0;
    for (; at + ADAM_MINI_LANES <= n; at += ADAM_MINI_LANES)
        for (int k = 0; k < ADAM_MINI_LANES; k++)
            sum[k] += adam_mini_square(g[at + k], scale);
    for (int k = 0; at + k < n; k++)
        sum[k] += adam_mini_square(g[at + k], scale);
    int lanes = ADAM_MINI_LANES;
    for (; lanes / 2 >= n; lanes /= 2) /* the other half is zero */
        ;
    while ((lanes /= 2) > 0)
        for (int k = 0; k < lanes; k++)
            sum[k] += sum[k + lanes];
    return (float)(sum[0] / (double)n);
}

/* Updates one block, whose second moment is known. */
LATHE_CLONES static void move(float *restrict p, float *restrict m, const float *restrict g,
                              int64_t n, float scale, float new1, float rate, float keep)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = adam_mini_move(p[i], g[i] * scale, &m[i], new1, rate, keep);
}

static void update(void *ctx, const lathe_optimizer_step *s, const lathe_optimizer_tensor *x,
                   int64_t begin, int64_t end)
{
    const float lr = s->scalars[LATHE_SCALAR_LR] * (float)x->lr_mult;
    const float scale = s->scalars[LATHE_SCALAR_GRAD_SCALE];
    const lathe_adamw_numbers u =
        lathe_adamw_numbers_of(s->scalars, lr, (float)x->weight_decay_mult);
    const float bias = s->scalars[LATHE_SCALAR_USER + LATHE_ADAMW_BIAS1];
    const int64_t size = x->block > 0 ? x->block : 1;
    float *const v = x->slots[SLOT_V];
    (void)ctx;
    for (int64_t at = begin; at < end; at += size) {
        const int64_t n = at + size < end ? size : end - at;
        const int64_t next = at + 2 * n < end ? n : end - at - n;
        float *const one = &v[at / size], *const m = (float *)x->slots[SLOT_M] + at;
        if (n <= MAX_PREFETCHED) {
            lathe_prefetch(x->param + at, n);
            lathe_prefetch(m, n);
        }
        const float rate = adam_mini_rate(&u, lr, bias, mean_square(x->grad + at, n, scale), one);
        if (n <= MAX_PREFETCHED)
            lathe_prefetch(x->grad + at + n, next);
        move(x->param + at, m, x->grad + at, n, scale, u.new1, rate, u.keep);
    }
    lathe_shadow_refresh(x, begin, end);
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    return lathe_chunks_run(lathe_optimizer_host(self), s, N_SLOTS, chunk_size, update, self);
}

LATHE_INSTANCE(adam_mini, read_values)

LATHE_OPTIMIZER_TABLE(adam_mini, .slots = slots, .partition = partition, .block = block,
                      .scalars = lathe_adamw_scalars, .step = step, .cuda_image = LATHE_CUDA_IMAGE);

LATHE_OPTIMIZER_ENTRY(adam_mini, .version = "1.0.0",
                      .summary = "AdamW with one second moment per head or row: half the state",
                      .source = "arXiv:2406.16793; adam-mini 1.1.1");
