/* AdamW with both moments in 8 bits: blocks of 256 codes of the dynamic map and one f32 scale each.
 *
 *     m = map[code]*absmax, v likewise;  one step of adamw;  absmax = max|.| of the block, codes nearest
 *
 * 2*(1 + 4/256) = 2.03125 bytes per parameter in the place of 8. Tensors below min_8bit_size keep
 * f32 moments.
 * Source: arXiv:2110.02861; bitsandbytes 0.50 AdamW8bit (blockwise).
 */
#include <float.h>

#include "lathe/dynamic_map.h"
#include "lathe/optimizer_kit.h"
#include "lathe/tensor_chunks.h"

#define BLOCK 256

/* A map, and where the nearest code changes from one decade to the next. On the positive side decade
 * e has 2^e values (signed) or 2^(e+1) from place zero + 2^e, or 2^(e+1) - 1, on, evenly spaced; the
 * border to the next is in the middle between its last value and the other's first. */
typedef struct code_book {
    float value[256];
    float edge[256]; /* midpoint of values k and k + 1; the last is never passed */
    float border[LATHE_DYNAMIC_DECADES]; /* above: the next decade, and at last the value 1 */
    float first_edge;                    /* below: 0 */
    int32_t zero;                        /* place of the value 0 */
    int32_t is_signed;
} code_book;

typedef struct adamw_8bit {
    lathe_optimizer_common common;
    double beta1, beta2, eps, weight_decay;
    int64_t min_size;
    code_book first, second; /* with signs; without */
} adamw_8bit;

enum { NEW1, BETA2, NEW2, EPS, DECAY, BIAS1, BIAS2 };
enum { FIELD_LR, FIELD_BETA1, FIELD_BETA2, FIELD_EPS, FIELD_WEIGHT_DECAY, FIELD_MIN_SIZE };
enum { SLOT_M, SLOT_V, SLOT_M_ABSMAX, SLOT_V_ABSMAX };

static const lathe_field fields[] = {
    LATHE_LR_FIELD("1e-3"),
    LATHE_BETA_FIELD("beta1", "0.9", "decay of the first moment"),
    LATHE_BETA_FIELD("beta2", "0.999", "decay of the second moment"),
    LATHE_EPS_FIELD("1e-8"),
    LATHE_WEIGHT_DECAY_FIELD("0.01"),
    LATHE_FIELD_INT("min_8bit_size", "4096", 0, 1e15, "elements",
                    "tensors smaller than this keep f32 moments"),
};

static void code_book_init(code_book *b, int32_t is_signed)
{
    lathe_dynamic_map(b->value, is_signed);
    for (int k = 0; k < 255; k++)
        b->edge[k] = (b->value[k] + b->value[k + 1]) / 2.0f;
    b->edge[255] = FLT_MAX;
    b->zero = is_signed ? 127 : 0;
    b->is_signed = is_signed;
    b->first_edge = b->value[b->zero + 1] / 2.0f;
    int32_t last = b->zero;
    for (int e = 0; e < LATHE_DYNAMIC_DECADES; e++) {
        last += (is_signed ? 1 : 2) << e;
        b->border[e] = (b->value[last] + b->value[last + 1]) / 2.0f;
    }
}

static lathe_status read_values(const lathe_host *host, adamw_8bit *o, const lathe_value *values)
{
    (void)host;
    o->common.lr = values[FIELD_LR].f;
    o->beta1 = values[FIELD_BETA1].f;
    o->beta2 = values[FIELD_BETA2].f;
    o->eps = values[FIELD_EPS].f;
    o->weight_decay = values[FIELD_WEIGHT_DECAY].f;
    o->min_size = values[FIELD_MIN_SIZE].i;
    code_book_init(&o->first, 1);
    code_book_init(&o->second, 0);
    return LATHE_OK;
}

static int32_t partition(void *self, const lathe_param_info *param)
{
    (void)self, (void)param;
    return LATHE_PARTITION_BLOCK;
}

static int64_t block(void *self, const lathe_param_info *param)
{
    (void)self, (void)param;
    return BLOCK;
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    const adamw_8bit *const o = self;
    const int64_t n = lathe_desc_count(&param->desc), blocks = (n + BLOCK - 1) / BLOCK;
    const int is_small = n < o->min_size;
    lathe_slot_like(&out[SLOT_M], "exp_avg", param, is_small ? LATHE_F32 : LATHE_U8);
    lathe_slot_like(&out[SLOT_V], "exp_avg_sq", param, is_small ? LATHE_F32 : LATHE_U8);
    if (is_small)
        return 2;
    lathe_slot_vector(&out[SLOT_M_ABSMAX], "exp_avg.absmax", blocks, LATHE_F32);
    lathe_slot_vector(&out[SLOT_V_ABSMAX], "exp_avg_sq.absmax", blocks, LATHE_F32);
    return 4;
}

static void scalars(void *self, int64_t step, double *out)
{
    const adamw_8bit *const o = self;
    out[NEW1] = 1.0 - o->beta1;
    out[BETA2] = o->beta2;
    out[NEW2] = 1.0 - o->beta2;
    out[EPS] = o->eps;
    out[DECAY] = o->weight_decay;
    out[BIAS1] = 1.0 / lathe_bias_correction(o->beta1, step);
    out[BIAS2] = 1.0 / sqrt(lathe_bias_correction(o->beta2, step));
}

/* What is the same for all elements of a tensor. */
typedef struct uniform {
    float scale, keep, rate, new1, beta2, new2, eps, root_bias;
} uniform;

static uniform uniform_of(const lathe_optimizer_step *s, const lathe_optimizer_tensor *x)
{
    const float *const user = s->scalars + LATHE_SCALAR_USER;
    const float lr = s->scalars[LATHE_SCALAR_LR] * (float)x->lr_mult;
    return (uniform){.scale = s->scalars[LATHE_SCALAR_GRAD_SCALE],
                     .keep = fmaf(-lr, user[DECAY] * (float)x->weight_decay_mult, 1.0f),
                     .rate = lr * user[BIAS1],
                     .new1 = user[NEW1],
                     .beta2 = user[BETA2],
                     .new2 = user[NEW2],
                     .eps = user[EPS],
                     .root_bias = user[BIAS2]};
}

/* n <= BLOCK elements with their moments in f32. */
LATHE_CLONES static void adam(const uniform *numbers, float *restrict p, const float *restrict g,
                              float *restrict m, float *restrict v, int64_t n)
{
    const uniform u = *numbers;
    for (int64_t i = 0; i < n; i++) {
        const float x = g[i] * u.scale;
        const float first = fmaf(u.new1, x - m[i], m[i]);
        const float second = fmaf(u.new2 * x, x, u.beta2 * v[i]);
        const float denominator = fmaf(sqrtf(second), u.root_bias, u.eps);
        m[i] = first;
        v[i] = second;
        p[i] = fmaf(-u.rate, first / denominator, p[i] * u.keep);
    }
}

/* One load after the other: gathers are slower than that. */
__attribute__((optimize("no-tree-vectorize"))) static void decode(const float *restrict value,
                                                                  const uint8_t *restrict codes,
                                                                  float absmax, float *restrict out,
                                                                  int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = value[codes[i]] * absmax;
}

/* The largest magnitude. Of the bits: they are ordered as the magnitudes are, NaN above all. */
LATHE_CLONES static float largest(const float *restrict x, int64_t n)
{
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float out;
    memcpy(&out, &most, sizeof out);
    return out;
}

/* How near to the edge of a cell, in cells, a place may be wrong by rounding: a*scale and 0.1 are
 * rounded to 2^-24, times 128/0.9 cells. */
#define DOUBTFUL 4e-5f

/* Codes of the values nearest to x/absmax. The decade follows from comparisons, the place in it from
 * a product: its values are the middles of even cells. No tables, so the loop vectorises. Returns
 * whether any is so near to an edge that rounding may have moved it: doubt[i] tells which. */
LATHE_CLONES static int32_t encode_fast(const code_book *book, const float *restrict x,
                                        float absmax, uint8_t *restrict codes,
                                        uint8_t *restrict doubt, int64_t n)
{
    int32_t any = 0;
    const code_book b = {.first_edge = book->first_edge,
                         .border = {book->border[0], book->border[1], book->border[2],
                                    book->border[3], book->border[4], book->border[5],
                                    book->border[6]}};
    const int32_t zero = book->zero, is_signed = book->is_signed;
    const float most = absmax > 0.0f ? absmax : 1.0f;
    for (int64_t i = 0; i < n; i++) {
        const float y = x[i] / most, a = fabsf(y);
        float scale = 1e6f;
        scale = a > b.border[0] ? 1e5f : scale;
        scale = a > b.border[1] ? 1e4f : scale;
        scale = a > b.border[2] ? 1e3f : scale;
        scale = a > b.border[3] ? 1e2f : scale;
        scale = a > b.border[4] ? 1e1f : scale;
        scale = a > b.border[5] ? 1.0f : scale;
        const int32_t e = (a > b.border[0]) + (a > b.border[1]) + (a > b.border[2]) +
                          (a > b.border[3]) + (a > b.border[4]) + (a > b.border[5]);
        const int32_t count = (is_signed ? 1 : 2) << e;
        const float place = (a * scale - 0.1f) * ((float)count * (1.0f / 0.9f));
        int32_t k = (int32_t)place;
        const float off = fabsf(place - (float)k);
        const int32_t is_near = (off < DOUBTFUL) | (off > 1.0f - DOUBTFUL);
        doubt[i] = (uint8_t)is_near;
        any |= is_near;
        k = k < 0 ? 0 : k;
        k = (k < count ? k : count - 1) + count - (is_signed ? 0 : 1);
        k += a > b.border[6];                         /* the value 1 */
        k *= a > b.first_edge;                        /* not a branch: the loop would stay scalar */
        const int32_t down = k < zero ? zero - k : 0; /* there is no -1 */
        codes[i] = (uint8_t)(y < 0.0f ? down : zero + k);
    }
    return any;
}

/* The code beside it where that is nearer. */
static void mend(const code_book *b, const float *x, float absmax, uint8_t *codes,
                 const uint8_t *doubt, int64_t n)
{
    const float most = absmax > 0.0f ? absmax : 1.0f;
    for (int64_t i = 0; i < n; i++) {
        if (!doubt[i])
            continue;
        const float y = x[i] / most;
        int32_t k = codes[i];
        k -= k > 0 && y <= b->edge[k - 1];
        k += y > b->edge[k];
        codes[i] = (uint8_t)k;
    }
}

static void encode(const code_book *b, const float *x, float absmax, uint8_t *codes, int64_t n)
{
    uint8_t doubt[BLOCK];
    if (encode_fast(b, x, absmax, codes, doubt, n))
        mend(b, x, absmax, codes, doubt, n);
}

static void update(void *ctx, const lathe_optimizer_step *s, const lathe_optimizer_tensor *x,
                   int64_t begin, int64_t end)
{
    const adamw_8bit *const o = ctx;
    const uniform u = uniform_of(s, x);
    const int is_small = x->slots[SLOT_M_ABSMAX] == NULL;
    for (int64_t at = begin; at < end; at += BLOCK) {
        const int64_t n = at + BLOCK < end ? BLOCK : end - at;
        float m[BLOCK], v[BLOCK];
        if (is_small) {
            adam(&u, x->param + at, x->grad + at, (float *)x->slots[SLOT_M] + at,
                 (float *)x->slots[SLOT_V] + at, n);
            continue;
        }
        uint8_t *const m_codes = (uint8_t *)x->slots[SLOT_M] + at;
        uint8_t *const v_codes = (uint8_t *)x->slots[SLOT_V] + at;
        float *const m_absmax = (float *)x->slots[SLOT_M_ABSMAX] + at / BLOCK;
        float *const v_absmax = (float *)x->slots[SLOT_V_ABSMAX] + at / BLOCK;
        decode(o->first.value, m_codes, *m_absmax, m, n);
        decode(o->second.value, v_codes, *v_absmax, v, n);
        adam(&u, x->param + at, x->grad + at, m, v, n);
        *m_absmax = largest(m, n);
        *v_absmax = largest(v, n);
        encode(&o->first, m, *m_absmax, m_codes, n);
        encode(&o->second, v, *v_absmax, v_codes, n);
    }
    lathe_shadow_refresh(x, begin, end);
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    return lathe_chunks_run(*(const lathe_host **)self, s, 2, lathe_chunk_elements, update, self);
}

LATHE_INSTANCE(adamw_8bit, read_values)

static const lathe_optimizer_v1 adamw_8bit_table = {
    .size = (uint32_t)sizeof adamw_8bit_table,
    .revision = LATHE_OPTIMIZER_REVISION,
    .slots = slots,
    .partition = partition,
    .block = block,
    .base_lr = lathe_optimizer_lr,
    .scalars = scalars,
    .step = step,
};

LATHE_OPTIMIZER_ENTRY(adamw_8bit, .version = "1.0.0",
                      .summary = "AdamW with 8-bit moments: a quarter of the state",
                      .source = "arXiv:2110.02861; bitsandbytes AdamW8bit");
