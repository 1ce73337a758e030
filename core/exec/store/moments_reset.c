/* Sets the optimizer's state, or a part of its elements, to 0. */
#include "exec/store/moments_reset.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "exec/store/store_io.h"
#include "lathe/rng.h"

const char *lathe_reset_name(int32_t reset)
{
    static const char *const names[] = {"none", "zero", "prune", "random"};
    return names[reset];
}

/* Whether a slot has a number for each element of its parameter. */
static int is_per_element(const lathe_param *row, const lathe_desc *slot)
{
    return (slot->dtype == LATHE_F32 || slot->dtype == LATHE_BF16) &&
           lathe_desc_count(slot) == lathe_desc_count(&row->desc);
}

lathe_status lathe_moments_check(const lathe_store *store, int32_t param, int32_t reset)
{
    const lathe_store_row *at = &store->rows[param];
    const int32_t is_whole =
        at->partition == LATHE_PARTITION_MATRIX || at->partition == LATHE_PARTITION_TENSOR;
    if (reset == LATHE_RESET_NONE || (reset == LATHE_RESET_ZERO && !is_whole))
        return LATHE_OK;
    for (int32_t k = 0; k < at->n_slots; k++)
        if (!is_per_element(store->params->rows[param], &at->slots[k].desc))
            return lathe_error(LATHE_E_CONFIG,
                               "its state '%s' of '%s' is not one f32 or bf16 number per element "
                               "of the parameter: choose %s\"none\"",
                               at->slots[k].name, store->params->rows[param]->name,
                               is_whole ? "" : "\"zero\" or ");
    return LATHE_OK;
}

/* ---- the elements as bits ---- */

/* |x| as an integer that orders as |x| does; NaN is above all. */
static uint32_t magnitude(const void *data, int32_t dtype, int64_t i)
{
    if (dtype == LATHE_F32)
        return ((const uint32_t *)data)[i] & 0x7fffffffu;
    return ((const uint16_t *)data)[i] & 0x7fffu;
}

static void clear(void *data, int32_t dtype, int64_t i)
{
    if (dtype == LATHE_F32)
        ((float *)data)[i] = 0.0f;
    else
        ((uint16_t *)data)[i] = 0;
}

/* The magnitude at index `rank` of the sorted elements: a radix selection by four bytes, from the
 * highest. */
static uint32_t select_rank(const void *data, int32_t dtype, int64_t n, int64_t rank)
{
    uint32_t known = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t counts[256] = {0};
        for (int64_t i = 0; i < n; i++) {
            const uint32_t x = magnitude(data, dtype, i);
            if ((x & mask) == known)
                counts[x >> shift & 255]++;
        }
        uint32_t digit = 0;
        while (rank >= counts[digit])
            rank -= counts[digit++];
        known |= digit << shift;
        mask |= 255u << shift;
    }
    return known;
}

static void prune(void *data, int32_t dtype, int64_t n, double ratio)
{
    const uint32_t least = select_rank(data, dtype, n, (int64_t)(ratio * (double)(n - 1)));
    for (int64_t i = 0; i < n; i++)
        if (magnitude(data, dtype, i) <= least)
            clear(data, dtype, i);
}

static void prune_random(void *data, int32_t dtype, int64_t n, double ratio, uint64_t seed,
                         int64_t step, uint64_t stream)
{
    for (int64_t i = 0; i < n; i++) {
        const lathe_u32x4 words = lathe_rng_block(seed, (uint64_t)step, stream, (uint64_t)i / 4);
        if ((double)lathe_uniform_f32(words.v[i % 4]) < ratio)
            clear(data, dtype, i);
    }
}

/* ---- slots ---- */

/* Resets one slot in host memory. */
static void reset_slot(const lathe_param *row, const lathe_slot *slot, int32_t reset, double ratio,
                       uint64_t seed, int64_t step, void *data)
{
    const int64_t n = lathe_desc_count(&slot->desc);
    const uint64_t stream = lathe_hash64(row->name, (int64_t)strlen(row->name)) ^
                            lathe_hash64(slot->name, (int64_t)strlen(slot->name));
    if (reset == LATHE_RESET_ZERO)
        memset(data, 0, (size_t)lathe_desc_bytes(&slot->desc));
    else if (reset == LATHE_RESET_PRUNE)
        prune(data, slot->desc.dtype, n, ratio);
    else
        prune_random(data, slot->desc.dtype, n, ratio, seed, step, stream);
}

lathe_status lathe_moments_reset(const lathe_store *store, int32_t param, int32_t reset,
                                 double ratio, uint64_t seed, int64_t step)
{
    const lathe_param *row = store->params->rows[param];
    const lathe_store_row *at = &store->rows[param];
    for (int32_t k = 0; k < at->n_slots && reset != LATHE_RESET_NONE; k++) {
        const int64_t bytes = lathe_desc_bytes(&at->slots[k].desc);
        void *memory = lathe_store_slot(store, param, k), *data = NULL;
        if (lathe_desc_count(&at->slots[k].desc) == 0)
            continue;
        LATHE_TRY(lathe_store_borrow(store, memory, bytes, &data));
        reset_slot(row, &at->slots[k], reset, ratio, seed, step, data);
        const lathe_status status = lathe_store_write_back(store, memory, bytes, data);
        lathe_store_release(store, data);
        LATHE_TRY(status);
    }
    return LATHE_OK;
}
