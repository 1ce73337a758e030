/* The table of merges: finds the rank and the result of a pair of ids. */
#include "tokenizer/encode/merges.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

lathe_status lathe__merges_init(lathe_merges *merges, int64_t n)
{
    uint64_t n_slots = 16;
    while (n_slots < (uint64_t)n * 2)
        n_slots *= 2;
    merges->slots = malloc(n_slots * sizeof *merges->slots);
    if (merges->slots == NULL)
        return lathe_error(LATHE_E_NOMEM, "%lld merges", (long long)n);
    memset(merges->slots, 0xff, n_slots * sizeof *merges->slots);
    merges->mask = n_slots - 1;
    return LATHE_OK;
}

void lathe__merges_put(lathe_merges *merges, int32_t left, int32_t right, uint32_t rank,
                       uint32_t id)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t i = lathe__mix(pair);
    while (merges->slots[i & merges->mask].pair != UINT64_MAX &&
           merges->slots[i & merges->mask].pair != pair)
        i++;
    merges->slots[i & merges->mask] = (lathe_merge){pair, rank, id};
}
