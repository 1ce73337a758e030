/* AdamW with both moments in 8 bits: blocks of 256 codes of the dynamic map and one f32 scale each.
 *
 *     m = map[code]*absmax, v in the same way;  one step of AdamW
 *     absmax = max|.| of the block;  codes of the nearest values
 *
 * 2*(1 + 4/256) = 2.03125 bytes per parameter instead of 8. Tensors smaller than min_8bit_size have
 * f32 moments.
 *
 * Source: arXiv:2110.02861; bitsandbytes 0.50 AdamW8bit (blockwise).
 */
#include "adamw_8bit.h"
#include "lathe/kit/optimizer_kit.h"
#include "shared/dynamic_codes.h"

typedef struct adamw_8bit {
    lathe_adamw adamw;
    int64_t min_size;
    lathe_dynamic_codec first, second; /* with signs; without */
} adamw_8bit;

static const lathe_field fields[] = {
    LATHE_ADAMW_FIELDS("1e-3", "1e-8", "0.01"),
    LATHE_FIELD_INT("min_8bit_size", "4096", 0, 1e15, "elements",
                    "tensors smaller than this keep f32 moments"),
};

static lathe_status read_values(const lathe_host *host, adamw_8bit *o, const lathe_value *values)
{
    (void)host;
    lathe_adamw_read(&o->adamw, values);
    o->min_size = values[LATHE_ADAMW_N_FIELDS].i;
    lathe_dynamic_codec_init(&o->first, 1);
    lathe_dynamic_codec_init(&o->second, 0);
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

/* Updates n elements; their moments are passed divided by m_scale and v_scale. most: the largest
 * magnitude of each moment, as bits. */
LATHE_CLONES static void adam(const lathe_adamw_numbers *numbers, float scale, float *restrict p,
                              const float *restrict g, float *restrict m, float *restrict v,
                              float m_scale, float v_scale, int64_t n, int32_t max[2])
{
    const lathe_adamw_numbers u = *numbers;
    int32_t m_max = 0, v_max = 0;
    for (int64_t i = 0; i < n; i++) {
        float first = m[i] * m_scale, second = v[i] * v_scale;
        p[i] = lathe_adamw_move(&u, p[i], g[i] * scale, &first, &second);
        m[i] = first;
        v[i] = second;
        m_max = larger(m_max, first);
        v_max = larger(v_max, second);
    }
    max[0] = m_max;
    max[1] = v_max;
}

/* Updates a block: n <= BLOCK elements, their codes and their scales. */
static void update_block(const adamw_8bit *o, const lathe_adamw_numbers *u, float scale, float *p,
                         const float *g, uint8_t *const codes[2], float *const absmax[2], int64_t n)
{
    _Alignas(64) float m[BLOCK], v[BLOCK];
    int32_t max[2];
    lathe_dynamic_decode(&o->first, codes[0], m, n);
    lathe_dynamic_decode(&o->second, codes[1], v, n);
    adam(u, scale, p, g, m, v, *absmax[0], *absmax[1], n, max);
    memcpy(absmax[0], &max[0], sizeof max[0]);
    memcpy(absmax[1], &max[1], sizeof max[1]);
    lathe_dynamic_encode(&o->first, m, *absmax[0], codes[0], n);
    lathe_dynamic_encode(&o->second, v, *absmax[1], codes[1], n);
}

static void update(void *ctx, const lathe_optimizer_step *s, const lathe_optimizer_tensor *x,
                   int64_t begin, int64_t end)
{
    const float scale = s->scalars[LATHE_SCALAR_GRAD_SCALE];
    const float lr = s->scalars[LATHE_SCALAR_LR] * (float)x->lr_mult;
    const lathe_adamw_numbers u =
        lathe_adamw_numbers_of(s->scalars, lr, (float)x->weight_decay_mult);
    if (x->slots[SLOT_M_ABSMAX] == NULL) {
        int32_t max[2];
        adam(&u, scale, x->param + begin, x->grad + begin, (float *)x->slots[SLOT_M] + begin,
             (float *)x->slots[SLOT_V] + begin, 1.0f, 1.0f, end - begin, max);
        lathe_shadow_refresh(x, begin, end);
        return;
    }
    for (int64_t at = begin; at < end; at += BLOCK) {
        const int64_t n = at + BLOCK < end ? BLOCK : end - at;
        uint8_t *const codes[2] = {(uint8_t *)x->slots[SLOT_M] + at,
                                   (uint8_t *)x->slots[SLOT_V] + at};
        float *const absmax[2] = {(float *)x->slots[SLOT_M_ABSMAX] + at / BLOCK,
                                  (float *)x->slots[SLOT_V_ABSMAX] + at / BLOCK};
        if (at + 2 * BLOCK <= end) {
            lathe_prefetch(x->param + at + BLOCK, BLOCK);
            lathe_prefetch(x->grad + at + BLOCK, BLOCK);
        }
        update_block(ctx, &u, scale, x->param + at, x->grad + at, codes, absmax, n);
        lathe_shadow_refresh(x, at, at + n);
    }
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    return lathe_chunks_run(lathe_optimizer_host(self), s, 2, lathe_chunk_elements, update, self);
}

LATHE_INSTANCE(adamw_8bit, read_values)

LATHE_OPTIMIZER_TABLE(adamw_8bit, .slots = slots, .partition = partition, .block = block,
                      .scalars = lathe_adamw_scalars, .step = step, .cuda_image = LATHE_CUDA_IMAGE);

LATHE_OPTIMIZER_ENTRY(adamw_8bit, .version = "1.0.0",
                      .summary = "AdamW with 8-bit moments: a quarter of the state",
                      .source = "arXiv:2110.02861; bitsandbytes AdamW8bit");
