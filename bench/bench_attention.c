/* Measures attention backends: GFLOP/s, their share of the rate of a large oneDNN product measured
 * in the same run, and the ratio to the reference backend.
 *
 * Usage: bench_attention [part of a shape's name]; shapes named "slow" also run the reference.
 *
 * The operation count includes only the pairs that the causal mask keeps: 4 D per pair and query
 * head in the forward, 10 D in the backward. Decoding reports the GB/s of reading keys and values.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parallel.h"
#include "lathe/attention.h"
#include "lathe/plugin.h"
#include "plug/host_table.h"
#include "product_rate.h"

enum { REPEATS = 7 };

typedef struct shape {
    const char *what;
    int32_t dtype;
    int64_t batch, t_q, t_k;
    int32_t heads, kv_heads, dim;
    int32_t cached;
    int32_t reference; /* also time the reference backend */
} shape;

typedef struct backend {
    const char *name;
    const lathe_attention_v1 *table;
    void *self;
} backend;

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

static void *memory(int64_t bytes)
{
    void *m = lathe_host_get()->alloc(bytes > 0 ? bytes : 64);
    if (!m) {
        (void)fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return m;
}

/* Values in [-1, 1). */
static void *random_tensor(int64_t n, int32_t dtype)
{
    void *m = memory(n * lathe_dtype_bytes(dtype));
    uint32_t state = 12345;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        const float x = (float)(state >> 8) / 8388608.0f - 1.0f;
        if (dtype == LATHE_F32)
            ((float *)m)[i] = x;
        else
            ((uint16_t *)m)[i] = lathe_f32_to_bf16(x);
    }
    return m;
}

static int open_backend(backend *b, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/lib/lathe/plugins/attention/%s.so", LATHE_BUILD, name);
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const lathe_plugin *plugin = so ? dlsym(so, LATHE_PLUGIN_ENTRY_NAME) : NULL;
    if (!plugin) {
        (void)fprintf(stderr, "%s: %s\n", path, dlerror());
        return 0;
    }
    const lathe_value value = {.type = LATHE_T_STRING, .is_set = 1, .s = "auto"};
    b->name = name;
    b->table = plugin->table;
    return plugin->create(lathe_host_get(), &value, plugin->n_fields, &b->self) == LATHE_OK;
}

/* GFLOP/s of a 2048^3 product of oneDNN, median. */
static double rate_of_product(int32_t dtype)
{
    product p = {.m = 2048, .n = 2048, .k = 2048, .f32_out = 1, .count = 1};
    double rates[REPEATS];
    if (product_rate_open(&p, 1, dtype == LATHE_F32 ? dnnl_f32 : dnnl_bf16) != 0)
        return NAN;
    (void)product_rate_measure(&p, 1); /* to warm up */
    for (int i = 0; i < REPEATS; i++)
        rates[i] = product_rate_measure(&p, 1);
    qsort(rates, REPEATS, sizeof(double), by_value);
    return 1e-9 * rates[REPEATS / 2];
}

/* Median seconds of forward and, unless cached, backward. */
static void time_backend(const backend *b, const lathe_attention_problem *p,
                         lathe_attention_args *a, int repeats, double out[2])
{
    for (int pass = 0; pass < (p->cached ? 1 : 2); pass++) {
        double seconds[REPEATS];
        a->scratch = memory(pass ? b->table->backward_scratch(b->self, p)
                                 : b->table->forward_scratch(b->self, p));
        for (int i = repeats > 1 ? -1 : 0; i < repeats; i++) {
            const double start = now();
            if ((pass ? b->table->backward : b->table->forward)(b->self, p, a) != LATHE_OK)
                exit(1);
            if (i >= 0)
                seconds[i] = now() - start;
        }
        qsort(seconds, (size_t)repeats, sizeof(double), by_value);
        out[pass] = seconds[repeats / 2];
        lathe_host_get()->free(a->scratch);
    }
}

static lathe_attention_problem problem_of(const shape *s)
{
    const int64_t wq = (int64_t)s->heads * s->dim, wk = (int64_t)s->kv_heads * s->dim;
    return (lathe_attention_problem){.size = sizeof(lathe_attention_problem),
                                     .dtype = s->dtype,
                                     .batch = s->batch,
                                     .t_q = s->t_q,
                                     .t_k = s->t_k,
                                     .n_heads = s->heads,
                                     .n_kv_heads = s->kv_heads,
                                     .head_dim = s->dim,
                                     .causal = 1,
                                     .cached = s->cached,
                                     .n_threads = lathe_parallel_threads(),
                                     .scale = 1.0f / sqrtf((float)s->dim),
                                     .q_stride = wq,
                                     .k_stride = wk,
                                     .v_stride = wk,
                                     .o_stride = wq,
                                     .dq_stride = wq,
                                     .dk_stride = wk,
                                     .dv_stride = wk,
                                     .need_backward = !s->cached};
}

static void report(const shape *s, const backend *b, const double seconds[2], double rate)
{
    const double pairs = (double)s->batch * s->heads * (double)s->t_q *
                         ((double)s->t_k - 0.5 * (double)(s->t_q - 1));
    const double forward = 4e-9 * s->dim * pairs, backward = 10e-9 * s->dim * pairs;
    if (s->cached) {
        const double gb = 2e-9 * (double)(s->batch * s->t_k) * s->kv_heads * s->dim *
                          (double)lathe_dtype_bytes(s->dtype);
        (void)printf("%-34s %-10s %8.3f ms  %6.1f GB/s\n", s->what, b->name, seconds[0] * 1e3,
                     gb / seconds[0]);
        return;
    }
    const double both = (forward + backward) / (seconds[0] + seconds[1]);
    (void)printf("%-34s %-10s fwd %8.2f ms %6.0f GFLOP/s  bwd %8.2f ms %6.0f GFLOP/s  both %6.0f "
                 "GFLOP/s, %.2f of oneDNN\n",
                 s->what, b->name, seconds[0] * 1e3, forward / seconds[0], seconds[1] * 1e3,
                 backward / seconds[1], both, both / rate);
}

static void bench(const shape *s, const backend *backends, int n_backends, double rate)
{
    lathe_attention_problem p = problem_of(s);
    const int64_t nq = s->batch * s->t_q * p.q_stride, nk = s->batch * s->t_k * p.k_stride;
    const int64_t e = lathe_dtype_bytes(s->dtype);
    int32_t *len = memory(s->batch * 4);
    for (int64_t b = 0; b < s->batch; b++)
        len[b] = (int32_t)s->t_k;
    void *const m[] = {random_tensor(nq, s->dtype),
                       random_tensor(nk, s->dtype),
                       random_tensor(nk, s->dtype),
                       memory(nq * e),
                       random_tensor(nq, s->dtype),
                       memory(nq * e),
                       memory(nk * e),
                       memory(nk * e),
                       memory(s->batch * s->heads * s->t_q * 4)};
    lathe_attention_args a = {.size = sizeof a,
                              .q = m[0],
                              .k = m[1],
                              .v = m[2],
                              .kv_len = s->cached ? len : NULL,
                              .o = m[3],
                              .lse = m[8],
                              .d_o = m[4],
                              .dq = m[5],
                              .dk = m[6],
                              .dv = m[7]};
    double first = 0.0;
    for (int i = 0; i < n_backends; i++) {
        double seconds[2] = {0.0, 0.0};
        time_backend(&backends[i], &p, &a, i ? 1 : REPEATS, seconds);
        report(s, &backends[i], seconds, rate);
        if (i == 0)
            first = seconds[0] + seconds[1];
        else
            (void)printf("%-34s %.1f times the speed of %s\n", s->what,
                         (seconds[0] + seconds[1]) / first, backends[i].name);
    }
    for (size_t i = 0; i < sizeof m / sizeof m[0]; i++)
        lathe_host_get()->free(m[i]);
    lathe_host_get()->free(len);
}

int main(int argc, char **argv)
{
    static const shape shapes[] = {
        {"GPT-2 124M f32 B4 T1024 H12 D64", LATHE_F32, 4, 1024, 1024, 12, 12, 64, 0, 0},
        {"GPT-2 124M bf16 B4 T1024 H12 D64", LATHE_BF16, 4, 1024, 1024, 12, 12, 64, 0, 0},
        {"Qwen3 0.6B bf16 B1 T2048 H16/8 D128", LATHE_BF16, 1, 2048, 2048, 16, 8, 128, 0, 0},
        {"one head f32 B1 T2048 H1 D64", LATHE_F32, 1, 2048, 2048, 1, 1, 64, 0, 0},
        {"decode bf16 B1 Tk4096 H16/8 D128", LATHE_BF16, 1, 1, 4096, 16, 8, 128, 1, 0},
        {"decode bf16 B8 Tk4096 H16/8 D128", LATHE_BF16, 8, 1, 4096, 16, 8, 128, 1, 0},
        {"slow f32 B1 T2048 H4 D64", LATHE_F32, 1, 2048, 2048, 4, 4, 64, 0, 1},
        {"slow bf16 B1 T2048 H4 D64", LATHE_BF16, 1, 2048, 2048, 4, 4, 64, 0, 1},
    };
    backend backends[2];
    if (!open_backend(&backends[0], "flash_cpu") || !open_backend(&backends[1], "reference"))
        return 1;
    const double rates[2] = {rate_of_product(LATHE_F32), rate_of_product(LATHE_BF16)};
    (void)printf("oneDNN product 2048^3: f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s; %d threads\n",
                 rates[0], rates[1], lathe_parallel_threads());
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (argc < 2 || strstr(shapes[i].what, argv[1]))
            bench(&shapes[i], backends, shapes[i].reference ? 2 : 1, rates[shapes[i].dtype]);
    return 0;
}
