/* libFuzzer target: any bytes as a file of stored log-probabilities. The checksums, which a fuzzer
 * cannot guess, are satisfied first where the header allows it, so that sizes, offsets, ids and
 * numbers are tested. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "data/rows/logprob_file.h"
#include "fuzz/fuzz_file.h"

/* Sets the checksums of records, index and header; does nothing if the header's sizes are beyond
 * the file. */
static void mend(uint8_t *data, size_t size)
{
    lathe_logprob_header h;
    /* 'L' is even: with an odd first byte nothing is changed */
    if (size < sizeof h || (data[0] & 1u))
        return;
    memcpy(&h, data, sizeof h);
    if (h.top_k < 1 || h.top_k > 65536 || h.id_bytes < 0 || h.id_bytes > 8 || h.value_bytes < 0 ||
        h.value_bytes > 8 || h.n_records < 0 || h.n_records > 1000 || h.n_targets < 0 ||
        h.n_targets > 100000)
        return;
    const int64_t each = (int64_t)h.top_k * (h.id_bytes + h.value_bytes) + 4;
    const int64_t index = (int64_t)sizeof h + (h.n_targets * each + 7) / 8 * 8;
    const int64_t index_bytes = (h.n_records + 1) * 8 + (h.n_records * 4 + 7) / 8 * 8;
    if (index + index_bytes > (int64_t)size)
        return;
    for (int64_t i = 0; i < h.n_records; i++) {
        int64_t range[2];
        memcpy(range, data + index + i * 8, sizeof range);
        if (range[0] < 0 || range[1] < range[0] || range[1] > h.n_targets)
            continue;
        const uint32_t crc =
            lathe_crc32c(data + sizeof h + range[0] * each, (range[1] - range[0]) * each);
        memcpy(data + index + (h.n_records + 1) * 8 + i * 4, &crc, sizeof crc);
    }
    h.index_crc = lathe_crc32c(data + index, index_bytes);
    h.checksum = lathe_hash64(&h, offsetof(lathe_logprob_header, checksum));
    memcpy(data, &h, sizeof h);
}

static void read_all(const lathe_logprob_file *file)
{
    const lathe_logprob_header *h = &file->header;
    const int64_t k = h->top_k;
    int64_t max = 0, all = 0;
    for (int64_t i = 0; i < h->n_records; i++) {
        const int64_t n = lathe__logprob_targets(file, i);
        if (n < 0)
            abort();
        max = n > max ? n : max;
        all += n;
    }
    if (all != h->n_targets)
        abort();
    int32_t *ids = malloc((size_t)(max * k + 1) * sizeof *ids);
    float *values = malloc((size_t)(max * (k + 1) + 1) * sizeof *values);
    for (int64_t i = 0; ids != NULL && values != NULL && i < h->n_records; i++) {
        const int64_t n = lathe__logprob_targets(file, i);
        if (lathe__logprob_read(file, i, n, ids, values) != LATHE_OK)
            continue;
        for (int64_t j = 0; j < n * k; j++)
            if (ids[j] < 0 || ids[j] >= h->vocab_size)
                abort();
        for (int64_t j = 0; j < n * (k + 1); j++)
            if (!isfinite(values[j]) || values[j] > 0.0f)
                abort();
    }
    free(ids);
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *const copy = malloc(size + 1);
    lathe_logprob_file file;
    if (copy == NULL)
        return 0;
    memcpy(copy, data, size);
    mend(copy, size);
    const fuzz_file in_memory = fuzz_file_open(copy, size);
    for (int verify = 0; verify < 2; verify++)
        if (lathe__logprob_open(in_memory.path, verify, &file) == LATHE_OK) {
            read_all(&file);
            lathe__logprob_close(&file);
        }
    fuzz_file_close(&in_memory);
    free(copy);
    return 0;
}
