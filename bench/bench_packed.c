/* Measures products with packed weights, format by format.
 *
 * Usage: bench_packed [DEVICE] [threads] [rounds] [name of a format]
 *
 * DEVICE is cpu_avx2, cpu_avx512, ...; "-" takes the best one.
 *
 *   share   one row by a weight of 4096 x 8192: bytes/s of the planes over those of a sum of
 * memory, measured at once after it. COPIES of the planes are read in turn, more than the caches
 *           hold.
 *   gain    the time of decoding the whole weight and multiplying it over the product's
 *   16 rows time over that of one row, with the same bits for each
 *   many    512 rows by 3072 x 1024, y and dx: the time with the decoded weight over the product's,
 *           and the products of two numbers that are added up in a second
 *
 * Each figure is the median over the rounds of a ratio of two times, one at once after the other;
 * with one thread these are processor times. Prints one line per format and dtype, then the least
 * share.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/parallel.h"
#include "lathe/device.h"
#include "lathe/kit/testing.h"
#include "lathe/quant.h"
#include "plug/host_table.h"
#include "read_rate.h"

enum { COPIES = 4, MAX_ROUNDS = 101, MAX_ROWS = 16, MANY_ROWS = 512 };

static const struct {
    const char *name, *settings;
} formats[] = {
    {"nf4", ""},  {"mxfp4", ""},     {"nvfp4", ""},      {"hqq", ""},
    {"gptq", ""}, {"awq", ""},       {"int8", ""},       {"eetq", ""},
    {"fp8", ""},  {"hqq", "bits=8"}, {"gptq", "bits=8"}, {"int8", "activations=int8"},
};

static int threads;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench_packed: %s\n", what);
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

static void *room(int64_t bytes)
{
    const size_t whole = ((size_t)bytes + ((size_t)2 << 20) - 1) >> 21 << 21;
    void *const p = aligned_alloc((size_t)2 << 20, whole);
    if (p == NULL)
        fail("no memory");
    (void)madvise(p, whole, MADV_HUGEPAGE); /* as the device's memory */
    memset(p, 1, (size_t)bytes);
    return p;
}

/* ---- the device ---- */

typedef struct device {
    const lathe_device_v1 *table;
    void *self;
} device;

static int open_device(const char *name, device *d)
{
    char path[512], why[256];
    (void)snprintf(path, sizeof path, "%s/lib/lathe/plugins/device/%s.so", LATHE_BUILD, name);
    void *const so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const lathe_plugin *const plugin = so ? dlsym(so, LATHE_PLUGIN_ENTRY_NAME) : NULL;
    if (!plugin)
        return 0;
    d->table = plugin->table;
    return d->table->score(why, sizeof why) > 0 &&
           plugin->create(lathe_host_get(), NULL, 0, &d->self) == LATHE_OK;
}

/* ---- weights ---- */

typedef struct weight {
    lathe_packed_weight format;
    int64_t rows, cols, bytes; /* bytes of the planes */
    const void *planes[COPIES][LATHE_MAX_PLANES];
    void *decoded;
} weight;

static weight make_weight(const char *name, const char *settings, int64_t rows, int64_t cols,
                          int copies)
{
    char path[4096];
    lathe_plane planes[LATHE_MAX_PLANES];
    void *made[LATHE_MAX_PLANES];
    weight w = {.rows = rows, .cols = cols};
    (void)snprintf(path, sizeof path, "%s/lib/lathe/plugins/quant/%s.so", LATHE_BUILD, name);
    const lathe_plugin *plugin = lathe_test_open(path);
    if (plugin == NULL || lathe_test_create(plugin, settings, &w.format.self) != LATHE_OK ||
        w.format.self == NULL)
        fail(lathe_test_message);
    /* the head of every instance begins with its host (plugins/quant/shared/quant_codec.h), whose
     * threads decode */
    *(const lathe_host **)w.format.self = lathe_host_get();
    w.format.table = plugin->table;
    float *const from = room(rows * cols * 4);
    uint32_t state = 12345;
    for (int64_t i = 0; i < rows * cols; i++) {
        state = state * 1664525u + 1013904223u;
        from[i] = ((float)(state >> 8) * 0x1p-24f - 0.5f) * 0.2f;
    }
    const int32_t n = w.format.table->planes(w.format.self, rows, cols, planes);
    for (int32_t k = 0; k < n; k++) {
        made[k] = room(lathe_desc_bytes(&planes[k].desc));
        w.bytes += lathe_desc_bytes(&planes[k].desc);
    }
    if (w.format.table->encode(w.format.self, rows, cols, from, made) != LATHE_OK)
        fail(lathe_test_message);
    free(from);
    for (int i = 0; i < copies; i++)
        for (int32_t k = 0; k < n; k++) {
            void *const copy = i == 0 ? made[k] : room(lathe_desc_bytes(&planes[k].desc));
            if (i > 0)
                memcpy(copy, made[k], (size_t)lathe_desc_bytes(&planes[k].desc));
            w.planes[i][k] = copy;
        }
    w.decoded = room(rows * cols * 4);
    return w;
}

static void free_weight(weight *w)
{
    for (int i = 0; i < COPIES; i++)
        for (int k = 0; k < LATHE_MAX_PLANES; k++)
            free((void *)(uintptr_t)w->planes[i][k]);
    free(w->decoded);
}

/* Seconds to decode copy i whole. */
static double decode(weight *w, int32_t dtype, int i)
{
    const double begun = now();
    if (w->format.table->decode(w->format.self, w->rows, w->cols, w->planes[i], w->decoded, dtype,
                                NULL, NULL) != LATHE_OK)
        fail("a weight could not be decoded");
    return now() - begun;
}

/* ---- products ---- */

typedef struct product {
    lathe_kernel *kernel;
    void *x, *y, *scratch;
} product;

static product make_product(const device *d, const weight *w, int32_t op, int32_t dtype, int64_t m,
                            int is_packed)
{
    const int is_dx = op == LATHE_OP_LINEAR_DX;
    const lathe_op_attrs attrs = {.invariant = m <= MAX_ROWS};
    const lathe_desc in[3] = {lathe_desc_2d(dtype, m, is_dx ? w->rows : w->cols),
                              lathe_desc_2d(is_packed ? LATHE_PLANES : dtype, w->rows, w->cols),
                              {LATHE_ABSENT, 0, {1, 1, 1, 1}}};
    const lathe_desc out = lathe_desc_2d(dtype, m, is_dx ? w->cols : w->rows);
    const lathe_packed_weight weights[3] = {{NULL, NULL}, w->format, {NULL, NULL}};
    const lathe_kernel_problem problem = {.size = sizeof problem,
                                          .op = op,
                                          .attrs = &attrs,
                                          .in = in,
                                          .out = &out,
                                          .n_in = is_dx ? 2 : 3,
                                          .n_out = 1,
                                          .may_overwrite = 1,
                                          .n_threads = threads,
                                          .weights = weights};
    product p;
    int64_t scratch = 0;
    if (d->table->kernel_create(d->self, &problem, &p.kernel, &scratch) != LATHE_OK)
        fail("a product could not be made");
    p.x = room(lathe_desc_bytes(&in[0]));
    p.y = room(lathe_desc_bytes(&out));
    p.scratch = room(scratch + 64);
    for (int64_t i = 0; i < lathe_desc_count(&in[0]); i++) {
        const float x = (float)(i % 61 - 30) / 32.0f;
        if (dtype == LATHE_F32)
            ((float *)p.x)[i] = x;
        else
            ((uint16_t *)p.x)[i] = lathe_f32_to_bf16(x);
    }
    return p;
}

static void free_product(const device *d, product *p)
{
    d->table->kernel_destroy(d->self, p->kernel);
    free(p->x);
    free(p->y);
    free(p->scratch);
}

/* Seconds of one run; w: planes or a decoded weight. */
static double run(const device *d, const product *p, const void *w)
{
    const void *in[3] = {p->x, w, NULL};
    void *out[1] = {p->y};
    const lathe_kernel_args args = {
        .size = sizeof args, .in = in, .out = out, .scratch = p->scratch};
    const double begun = now();
    if (d->table->kernel_run(d->self, p->kernel, &args) != LATHE_OK)
        fail("a product failed");
    return now() - begun;
}

/* ---- the bandwidth ---- */

#define READ_BYTES ((int64_t)128 << 20)

/* Bytes/s of a sum of memory. */
static double bandwidth(read_rate *r)
{
    const double begun = now();
    read_rate_pass(r);
    return (double)r->bytes / (now() - begun);
}

/* ---- the figures ---- */

/* Returns the share of the bandwidth. */
static double few_rows(const device *d, weight *w, int32_t dtype, read_rate *r, int rounds)
{
    double shares[MAX_ROUNDS], gains[MAX_ROUNDS], batches[MAX_ROUNDS], rates[MAX_ROUNDS];
    product one = make_product(d, w, LATHE_OP_LINEAR, dtype, 1, 1);
    product plain = make_product(d, w, LATHE_OP_LINEAR, dtype, 1, 0);
    product batch = make_product(d, w, LATHE_OP_LINEAR, dtype, MAX_ROWS, 1);
    (void)run(d, &one, w->planes[0]);
    for (int i = 0; i < rounds; i++) {
        double each = 0.0;
        const double bytes_s = bandwidth(r);
        for (int k = 0; k < COPIES; k++)
            each += run(d, &one, w->planes[k]) / COPIES;
        rates[i] = (double)w->bytes / each;
        shares[i] = rates[i] / bytes_s;
        batches[i] = run(d, &batch, w->planes[i % COPIES]) / each;
        gains[i] = (decode(w, dtype, i % COPIES) + run(d, &plain, w->decoded)) / each;
    }
    const double share = median(shares, rounds);
    (void)printf("  share %.3f (%.2f GB/s)  gain %.2f  16 rows %.2f", share,
                 1e-9 * median(rates, rounds), median(gains, rounds), median(batches, rounds));
    free_product(d, &one);
    free_product(d, &plain);
    free_product(d, &batch);
    return share;
}

static void many_rows(const device *d, weight *w, int32_t dtype, int rounds)
{
    static const int32_t ops[] = {LATHE_OP_LINEAR, LATHE_OP_LINEAR_DX};
    for (int i = 0; i < 2; i++) {
        double ratios[MAX_ROUNDS], rates[MAX_ROUNDS];
        product packed = make_product(d, w, ops[i], dtype, MANY_ROWS, 1);
        product plain = make_product(d, w, ops[i], dtype, MANY_ROWS, 0);
        (void)decode(w, dtype, 0);
        (void)run(d, &packed, w->planes[0]);
        (void)run(d, &plain, w->decoded);
        for (int k = 0; k < rounds; k++) {
            const double with = run(d, &plain, w->decoded);
            const double packed_s = run(d, &packed, w->planes[0]);
            ratios[k] = with / packed_s;
            rates[k] = 1e-9 * (double)(MANY_ROWS * w->rows * w->cols) / packed_s;
        }
        (void)printf("  many %s %.2f (%.0f G/s)", i == 0 ? "y" : "dx", median(ratios, rounds),
                     median(rates, rounds));
        free_product(d, &packed);
        free_product(d, &plain);
    }
}

int main(int argc, char **argv)
{
    static const char *const best[] = {"cpu_avx512_bf16", "cpu_avx512", "cpu_avx2"};
    static const int32_t dtypes[] = {LATHE_BF16, LATHE_F32};
    const int rounds = argc > 3 ? atoi(argv[3]) : 11;
    const char *only = argc > 4 ? argv[4] : NULL;
    device d = {0};
    double least = 1e30;
    threads = argc > 2 ? atoi(argv[2]) : 2;
    if (rounds < 1 || rounds > MAX_ROUNDS)
        fail("rounds: 1 to 101");
    lathe_parallel_init(threads);
    int opened = argc > 1 && strcmp(argv[1], "-") != 0 && open_device(argv[1], &d);
    for (int i = 0; i < 3 && !opened && (argc < 2 || strcmp(argv[1], "-") == 0); i++)
        opened = open_device(best[i], &d);
    if (!opened)
        fail("the device cannot run here");
    read_rate r;
    if (!read_rate_init(&r, READ_BYTES))
        fail("no memory");
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        if (only != NULL && strcmp(only, formats[f].name) != 0)
            continue;
        weight w = make_weight(formats[f].name, formats[f].settings, 4096, 8192, COPIES);
        weight small = make_weight(formats[f].name, formats[f].settings, 3072, 1024, 1);
        for (int i = 0; i < 2; i++) {
            (void)printf("%-5s %-8s %-4s", formats[f].name, formats[f].settings,
                         lathe_dtype_name(dtypes[i]));
            const double share = few_rows(&d, &w, dtypes[i], &r, rounds);
            least = share < least ? share : least;
            many_rows(&d, &small, dtypes[i], rounds);
            (void)printf("\n");
            (void)fflush(stdout);
        }
        free_weight(&w);
        free_weight(&small);
    }
    (void)printf("least_share %.3f\n", least);
    read_rate_fini(&r);
    return 0;
}
