/* Shards in memory of several datasets in which all tokens differ, so that the content of a row
 * shows which row it is. */
#ifndef LATHE_TEST_DATA_SETS_H
#define LATHE_TEST_DATA_SETS_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/rows/loader.h"
#include "data/rows/shards_internal.h"
#include "lathe/rng.h"

/* Datasets of n[d] documents with weight[d] (pairs: records). Lengths are 1 to `longest` tokens;
 * the ids count 1, 2, 3, ... through the stream; end-of-text is 0. */
static inline lathe_shards *make_sets(int32_t rows, int64_t n_sets, const int64_t *n,
                                      const double *weight, int64_t longest)
{
    lathe_shards *shards;
    int64_t id = 1;
    cr_assert_eq(lathe__shards_create(n_sets, rows, 0, 1 << 24, &shards), LATHE_OK);
    for (int64_t d = 0; d < n_sets; d++) {
        const int64_t n_segments = n[d] * lathe_row_kind_get(rows)->n_segments;
        int64_t *offsets = calloc((size_t)n_segments + 1, 8);
        for (int64_t i = 0; i < n_segments; i++) {
            const lathe_u32x4 word = lathe_rng_block(7, (uint64_t)d, 1, (uint64_t)i);
            offsets[i + 1] = offsets[i] + 1 + word.v[0] % longest;
        }
        const int64_t n_tokens = offsets[n_segments];
        lathe_shard shard;
        memset(&shard, 0, sizeof shard);
        shard.memory = malloc((size_t)((n_segments + 1) * 8 + n_tokens * 4));
        memcpy(shard.memory, offsets, (size_t)(n_segments + 1) * 8);
        shard.offsets = shard.memory;
        shard.ids = shard.offsets + n_segments + 1;
        for (int64_t i = 0; i < n_tokens; i++, id++) {
            const uint32_t value = (uint32_t)id;
            memcpy((char *)shard.memory + (n_segments + 1) * 8 + 4 * i, &value, 4);
        }
        shard.n_segments = n_segments;
        shard.n_tokens = n_tokens;
        shard.token_bytes = 4;
        shard.payload[0] = (char)('a' + d);
        lathe__shards_begin(shards, weight[d]);
        cr_assert_eq(lathe__shards_add(shards, &shard), LATHE_OK);
        free(offsets);
    }
    cr_assert_eq(lathe__shards_seal(shards), LATHE_OK);
    return shards;
}

static inline lathe_loader *make_loader(const lathe_loader_config *config)
{
    lathe_loader *loader = NULL;
    cr_assert_eq(lathe_loader_create(config, &loader), LATHE_OK, "%s", lathe_error_message());
    return loader;
}

#endif
