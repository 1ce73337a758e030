/* libFuzzer target: any bytes as a shard file. The checks that a fuzzer cannot pass by itself
 * (checksum of the header, SHA-256 of the content) are satisfied first, so that sizes and index are
 * tested. */
#include <string.h>

#include "data/rows/shards_internal.h"
#include "fuzz/fuzz_file.h"

static void mend(uint8_t *data, size_t size)
{
    lathe_shard_header h;
    lathe_sha256 *hash = NULL;
    char hex[65];
    /* 'L' is even: with an odd first byte nothing is changed */
    if (size < sizeof h || (data[0] & 1u))
        return;
    memcpy(&h, data, sizeof h);
    if (lathe_sha256_create(&hash) != LATHE_OK)
        abort();
    lathe_sha256_update(hash, data + sizeof h, (int64_t)(size - sizeof h));
    lathe_sha256_finish(hash, hex);
    memcpy(h.payload, hex, sizeof h.payload);
    h.checksum = lathe_hash64(&h, offsetof(lathe_shard_header, checksum));
    memcpy(data, &h, sizeof h);
}

static void read_all(const lathe_shards *shards)
{
    int32_t ids[64];
    const int64_t n = lathe_shards_tokens(shards), segments = lathe_shards_segments(shards);
    for (int64_t i = 0; i < segments; i++)
        if (lathe_shards_offset(shards, i) > lathe_shards_offset(shards, i + 1))
            abort();
    if (lathe_shards_offset(shards, segments) != n)
        abort();
    for (int64_t at = 0; at < n; at += 64) {
        const int64_t end = n - at < 64 ? n : at + 64, owner = lathe_shards_find(shards, at);
        if (owner < 0 || owner >= segments)
            abort();
        if (lathe_shards_read(shards, at, end, ids) != LATHE_OK)
            return; /* an id outside the vocabulary */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *const copy = malloc(size + 1);
    lathe_shard shard;
    lathe_shards *shards = NULL;
    if (copy == NULL)
        return 0;
    memcpy(copy, data, size);
    mend(copy, size);
    const fuzz_file file = fuzz_file_open(copy, size);
    if (lathe__shard_open(file.path, 1, &shard) == LATHE_OK) {
        if (lathe__shards_create(1, LATHE_ROWS_PACKED, 0, 100, &shards) != LATHE_OK)
            abort();
        lathe__shards_begin(shards, 1.0);
        if (lathe__shards_add(shards, &shard) != LATHE_OK || lathe__shards_seal(shards) != LATHE_OK)
            abort();
        read_all(shards);
        lathe_shards_destroy(shards);
    }
    fuzz_file_close(&file);
    free(copy);
    return 0;
}
