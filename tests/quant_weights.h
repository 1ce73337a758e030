/* Common code of the tests of quantization formats: the weights of tests/golden/quant.py, exact in
 * f32; FNV-1a; hex lines; planes; a rough measurement of decoding speed. */
#ifndef LATHE_QUANT_WEIGHTS_H
#define LATHE_QUANT_WEIGHTS_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/quant.h"

static inline float *golden_weights(uint32_t seed, int64_t n)
{
    float *w = malloc((size_t)n * sizeof *w);
    cr_assert_not_null(w);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        const int64_t block = i / 64;
        double x = (double)(seed >> 8) / 16777216.0 - 0.5;
        x = ldexp(x, (int)(block * 7 % 9) - 6);
        if (i % 997 == 5)
            x *= 64.0;
        w[i] = block == 3 ? 0.0f : (float)x;
    }
    return w;
}

static inline uint64_t fnv1a(const void *data, int64_t bytes)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < bytes; i++)
        h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return h;
}

/* Reads "name hex" and compares `bytes` bytes of `data` with it; data NULL: "-" is expected. */
static inline void expect_hex(FILE *file, const char *name, const void *data, int64_t bytes)
{
    char word[32];
    cr_assert_eq(fscanf(file, "%31s ", word), 1);
    cr_assert_str_eq(word, name);
    if (data == NULL) {
        cr_expect_eq(fgetc(file), '-');
        return;
    }
    for (int64_t i = 0; i < bytes; i++) {
        unsigned byte = 256;
        cr_assert_eq(fscanf(file, "%2x", &byte), 1, "%s ends at byte %d", name, (int)i);
        cr_assert_eq(((const uint8_t *)data)[i], byte, "%s[%d]: %02x, want %02x", name, (int)i,
                     ((const uint8_t *)data)[i], byte);
    }
    cr_assert_eq(fgetc(file), '\n', "%s is longer than %d bytes", name, (int)bytes);
}

static inline void expect_fnv(FILE *file, const char *name, const void *data, int64_t bytes)
{
    char word[32];
    unsigned long long want;
    cr_assert_eq(fscanf(file, "%31s %llx", word, &want), 2);
    cr_assert_str_eq(word, name);
    cr_expect_eq(fnv1a(data, bytes), want, "%s differs", name);
}

typedef struct planes {
    int32_t n;
    lathe_plane info[LATHE_MAX_PLANES];
    void *data[LATHE_MAX_PLANES];
} planes;

static inline planes planes_of(const lathe_quant_v1 *quant, void *self, int64_t rows, int64_t cols)
{
    planes p = {0};
    p.n = quant->planes(self, rows, cols, p.info);
    for (int32_t i = 0; i < p.n; i++) {
        p.data[i] = malloc((size_t)lathe_desc_bytes(&p.info[i].desc));
        cr_assert_not_null(p.data[i]);
        memset(p.data[i], 0xa5, (size_t)lathe_desc_bytes(&p.info[i].desc));
    }
    return p;
}

static inline void planes_free(planes *p)
{
    for (int32_t i = 0; i < p->n; i++)
        free(p->data[i]);
}

static inline const void *const *planes_in(const planes *p)
{
    return (const void *const *)p->data;
}

#endif
