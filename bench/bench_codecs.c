/* Compares the decoding of each quantization format with a copy of as many bytes.
 *
 * Usage: bench_codecs [threads] [rounds] [name of a format]
 *
 * A weight of 2048 x 4096 is decoded to bf16 (16 MiB), f16 and f32; beside each decoding a copy of
 * the same number of bytes is timed. Both touch memory that neither has in its caches. The number
 * of a case is the median over the rounds of "time of the copy / time of the decoding", which is
 * the share of the copy's speed in bytes written. Prints one line per format, then the least share.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parallel.h"
#include "lathe/kit/testing.h"
#include "lathe/quant.h"
#include "plug/host_table.h"

enum { ROWS = 2048, COLS = 4096, MAX_ROUNDS = 101 };

static const struct {
    const char *name, *settings;
} formats[] = {
    {"nf4", ""},        {"nf4", "double_quant=false"},
    {"int8", ""},       {"eetq", ""},
    {"fp8", ""},        {"fp8", "scaling=row"},
    {"mxfp4", ""},      {"nvfp4", ""},
    {"hqq", ""},        {"hqq", "compute_dtype=bfloat16"},
    {"hqq", "bits=2"},  {"hqq", "bits=3"},
    {"hqq", "bits=8"},  {"gptq", ""},
    {"gptq", "bits=2"}, {"gptq", "bits=3"},
    {"gptq", "bits=8"}, {"awq", ""},
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench_codecs: %s\n", what);
    exit(1);
}

typedef struct copy {
    const char *from;
    char *to;
} copy;

static void copy_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const copy *c = arg;
    (void)worker;
    memcpy(c->to + begin, c->from + begin, (size_t)(end - begin));
}

static void *room(int64_t bytes)
{
    void *const p = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    if (p == NULL)
        fail("no memory");
    memset(p, 1, (size_t)bytes);
    return p;
}

typedef struct subject {
    const lathe_quant_v1 *table;
    void *self, *planes[LATHE_MAX_PLANES], *scratch, *out;
} subject;

static double share_of(subject *s, int32_t dtype, const copy *c, int rounds)
{
    double shares[MAX_ROUNDS];
    const int64_t bytes = (int64_t)ROWS * COLS * lathe_dtype_bytes(dtype);
    for (int i = -1; i < rounds; i++) {
        const double begun = now();
        lathe_parallel_for(bytes, (int64_t)1 << 17, copy_range, (void *)(uintptr_t)c);
        const double between = now();
        if (s->table->decode(s->self, ROWS, COLS, (const void *const *)s->planes, s->out, dtype,
                             s->scratch, NULL) != LATHE_OK)
            fail("a decoding failed");
        if (i >= 0)
            shares[i] = (between - begun) / (now() - between);
    }
    qsort(shares, (size_t)rounds, sizeof *shares, by_value);
    return shares[rounds / 2];
}

static subject open_format(const char *name, const char *settings, const float *w, void *out)
{
    char path[4096];
    lathe_plane planes[LATHE_MAX_PLANES];
    subject s = {.out = out};
    (void)snprintf(path, sizeof path, "%s/lib/lathe/plugins/quant/%s.so", LATHE_BUILD, name);
    const lathe_plugin *plugin = lathe_test_open(path);
    if (plugin == NULL || lathe_test_create(plugin, settings, &s.self) != LATHE_OK ||
        s.self == NULL)
        fail(lathe_test_message);
    /* the head of every instance begins with its host (plugins/quant/shared/quant_codec.h), whose
     * threads decode */
    *(const lathe_host **)s.self = lathe_host_get();
    s.table = plugin->table;
    const int32_t n = s.table->planes(s.self, ROWS, COLS, planes);
    for (int32_t i = 0; i < n; i++)
        s.planes[i] = room(lathe_desc_bytes(&planes[i].desc));
    s.scratch = LATHE_HAS(s.table, decode_scratch)
                    ? room(s.table->decode_scratch(s.self, ROWS, COLS) + 64)
                    : NULL;
    if (s.table->encode(s.self, ROWS, COLS, w, s.planes) != LATHE_OK)
        fail(lathe_test_message);
    return s;
}

int main(int argc, char **argv)
{
    static const int32_t dtypes[] = {LATHE_BF16, LATHE_F16, LATHE_F32};
    const int threads = argc > 1 ? atoi(argv[1]) : 2, rounds = argc > 2 ? atoi(argv[2]) : 21;
    const char *only = argc > 3 ? argv[3] : NULL;
    const int64_t max = (int64_t)ROWS * COLS * 4;
    double least = 1e30;
    if (rounds < 1 || rounds > MAX_ROUNDS)
        fail("rounds: 1 to 101");
    lathe_parallel_init(threads);
    float *const w = room(max);
    uint32_t state = 12345;
    for (int64_t i = 0; i < (int64_t)ROWS * COLS; i++) {
        state = state * 1664525u + 1013904223u;
        w[i] = ((float)(state >> 8) * 0x1p-24f - 0.5f) * 0.2f;
    }
    const copy c = {room(max), room(max)};
    void *const out = room(max);
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        if (only != NULL && strcmp(only, formats[f].name) != 0)
            continue;
        subject s = open_format(formats[f].name, formats[f].settings, w, out);
        (void)printf("# %-5s %-24s", formats[f].name, formats[f].settings);
        for (int d = 0; d < 3; d++) {
            const double share = share_of(&s, dtypes[d], &c, rounds);
            least = share < least ? share : least;
            (void)printf("  %s %.3f", lathe_dtype_name(dtypes[d]), share);
        }
        (void)printf("\n");
        (void)fflush(stdout);
        for (int i = 0; i < LATHE_MAX_PLANES; i++)
            free(s.planes[i]);
        free(s.scratch);
    }
    (void)printf("least_share %.3f\n", least);
    return 0;
}
