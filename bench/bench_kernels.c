/* Times the kernels of a CPU build on the shapes of GPT-2 124M (4096 tokens).
 *
 *   bench_kernels [cpu_avx512_bf16] [f32|bf16] [op name]
 *
 * Prints medians, and the best in brackets, of 7 runs after a warm-up. Products: GFLOP/s, and their
 * share of a 2048^3 product timed in the same run. Other ops: GB/s of the bytes that they must at
 * least read and write, and their share of a triad (a = b + s*c) over 3 x 64 MiB timed in the same
 * run. The two limits are best times.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/parallel.h"
#include "lathe/device.h"
#include "lathe/plugin.h"
#include "lathe/rng.h"
#include "plug/host_table.h"

#define REPEATS 7
#define TOKENS 4096
#define WIDTH 768
#define VOCABULARY 50257

static const lathe_op_attrs none_set, alpha_one = {.alpha = 1.0};

typedef struct bench {
    const lathe_device_v1 *device;
    void *self;
    const char *only;                /* op to run, or NULL */
    double product_rate, triad_rate; /* per second: FLOP, bytes */
} bench;

typedef struct bench_case {
    const char *name;
    int32_t op, n_in, n_out;
    lathe_op_attrs attrs;
    lathe_desc in[LATHE_OP_MAX_IN], out[LATHE_OP_MAX_OUT];
    double flops; /* 0: bound by memory */
    uint32_t accumulate;
    int32_t index_modulus; /* of i32 inputs; negative: element i is -i times this */
} bench_case;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_time(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fill(void *p, const lathe_desc *d, int32_t modulus)
{
    uint32_t state = 12345;
    for (int64_t i = 0; i < lathe_desc_count(d); i++) {
        state = state * 1664525u + 1013904223u;
        const float x = ((float)(state >> 8) * 0x1p-24f - 0.5f) * 0.2f;
        if (d->dtype == LATHE_F32)
            ((float *)p)[i] = x;
        else if (d->dtype == LATHE_BF16)
            ((uint16_t *)p)[i] = lathe_f32_to_bf16(x);
        else if (d->dtype == LATHE_I32)
            ((int32_t *)p)[i] =
                modulus < 0 ? (int32_t)(-i * modulus) : (int32_t)((state >> 8) % (uint32_t)modulus);
    }
}

static void *make_tensor(const bench *b, const lathe_desc *d, int32_t modulus)
{
    void *p = NULL;
    if (d->dtype == LATHE_ABSENT)
        return NULL;
    if (b->device->alloc(b->self, lathe_desc_bytes(d), 0, &p) != LATHE_OK)
        exit(1);
    fill(p, d, modulus);
    return p;
}

static int64_t case_bytes(const bench_case *c)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < c->n_in; i++)
        bytes += c->in[i].dtype == LATHE_ABSENT ? 0 : lathe_desc_bytes(&c->in[i]);
    for (int32_t i = 0; i < c->n_out; i++)
        if (c->out[i].dtype != LATHE_ABSENT)
            bytes += lathe_desc_bytes(&c->out[i]) * (c->accumulate >> i & 1 ? 2 : 1);
    return bytes;
}

/* Median seconds of a run. */
static double time_case(const bench *b, const bench_case *c, int64_t *out_scratch, double *out_best)
{
    const void *in[LATHE_OP_MAX_IN] = {0};
    void *out[LATHE_OP_MAX_OUT] = {0}, *in_memory[LATHE_OP_MAX_IN] = {0}, *scratch = NULL;
    for (int32_t i = 0; i < c->n_in; i++)
        in[i] = in_memory[i] = make_tensor(b, &c->in[i], c->index_modulus);
    for (int32_t i = 0; i < c->n_out; i++)
        out[i] = make_tensor(b, &c->out[i], 1);
    const lathe_kernel_problem p = {.size = sizeof p,
                                    .op = c->op,
                                    .attrs = &c->attrs,
                                    .in = c->in,
                                    .out = c->out,
                                    .n_in = c->n_in,
                                    .n_out = c->n_out,
                                    .may_accumulate = c->accumulate,
                                    .may_overwrite = ~c->accumulate};
    lathe_kernel *k = NULL;
    if (b->device->kernel_create(b->self, &p, &k, out_scratch) != LATHE_OK ||
        b->device->alloc(b->self, *out_scratch + 64, 0, &scratch) != LATHE_OK)
        exit(1);
    const lathe_kernel_args args = {
        .size = sizeof args, .accumulate = c->accumulate, .in = in, .out = out, .scratch = scratch};
    double times[REPEATS + 1];
    for (int r = 0; r <= REPEATS; r++) {
        const double start = now();
        if (b->device->kernel_run(b->self, k, &args) != LATHE_OK)
            exit(1);
        times[r] = now() - start;
    }
    qsort(times + 1, REPEATS, sizeof *times, by_time);
    b->device->kernel_destroy(b->self, k);
    b->device->free(b->self, scratch);
    for (int32_t i = 0; i < c->n_in; i++)
        b->device->free(b->self, in_memory[i]);
    for (int32_t i = 0; i < c->n_out; i++)
        b->device->free(b->self, out[i]);
    *out_best = times[1];
    return times[1 + REPEATS / 2];
}

static void report(const bench *b, const bench_case *c)
{
    if (b->only != NULL && strcmp(b->only, c->name) != 0)
        return;
    int64_t scratch = 0;
    double best = 0.0;
    const double seconds = time_case(b, c, &scratch, &best);
    const double amount = c->flops > 0.0 ? c->flops : (double)case_bytes(c);
    const double limit = c->flops > 0.0 ? b->product_rate : b->triad_rate;
    const lathe_desc *last = &c->out[c->n_out - 1];
    printf("%-17s %5lld x %5lld %9.3f ms %7.1f %s, %4.2f (%4.2f) of the limit, scratch %.1f MB\n",
           c->name, (long long)c->in[0].dims[0], (long long)last->dims[last->rank > 1],
           1e3 * seconds, 1e-9 * amount / seconds, c->flops > 0.0 ? "GFLOP/s" : "GB/s",
           amount / seconds / limit, amount / best / limit, 1e-6 * (double)scratch);
    (void)fflush(stdout);
}

static lathe_desc none(void)
{
    return (lathe_desc){LATHE_ABSENT, 0, {1, 1, 1, 1}};
}

static double product_rate(const bench *b, int32_t dtype)
{
    const lathe_desc d = lathe_desc_2d(dtype, 2048, 2048);
    const bench_case c = {"matmul", LATHE_OP_MATMUL, 2, 1, alpha_one, {d, d}, {d}, 0, 0, 1};
    int64_t scratch = 0;
    double best = 0.0;
    (void)time_case(b, &c, &scratch, &best);
    return 2.0 * 2048.0 * 2048.0 * 2048.0 / best;
}

typedef struct triad_job {
    float *a;
    const float *b, *c;
} triad_job;

static void triad_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const triad_job *t = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        t->a[i] = t->b[i] + 3.0f * t->c[i];
}

static double triad_rate(const bench *b)
{
    const lathe_desc d = lathe_desc_1d(LATHE_F32, 16 << 20);
    float *x = make_tensor(b, &d, 1), *y = make_tensor(b, &d, 1), *z = make_tensor(b, &d, 1);
    triad_job job = {x, y, z};
    double times[REPEATS];
    for (int r = 0; r < REPEATS; r++) {
        const double start = now();
        lathe_parallel_for(lathe_desc_count(&d), 1 << 16, triad_range, &job);
        times[r] = now() - start;
    }
    qsort(times, REPEATS, sizeof *times, by_time);
    b->device->free(b->self, x);
    b->device->free(b->self, y);
    b->device->free(b->self, z);
    return 3.0 * (double)lathe_desc_bytes(&d) / times[0];
}

static void linears(const bench *b, int32_t dtype)
{
    static const int64_t shapes[][2] = {{768, 768}, {768, 2304}, {768, 3072}, {3072, 768}};
    for (int s = 0; s < 4; s++) {
        const int64_t i = shapes[s][0], o = shapes[s][1];
        const lathe_desc x = lathe_desc_2d(dtype, TOKENS, i), y = lathe_desc_2d(dtype, TOKENS, o);
        const lathe_desc w = lathe_desc_2d(dtype, o, i), dw = lathe_desc_2d(LATHE_F32, o, i);
        const lathe_desc bias = lathe_desc_1d(LATHE_F32, o);
        const double flops = 2.0 * TOKENS * (double)i * (double)o;
        const bench_case cases[] = {
            {"linear", LATHE_OP_LINEAR, 3, 1, none_set, {x, w, bias}, {y}, flops, 0, 1},
            {"linear_dx", LATHE_OP_LINEAR_DX, 2, 1, none_set, {y, w}, {x}, flops, 0, 1},
            {"linear_dx+=", LATHE_OP_LINEAR_DX, 2, 1, none_set, {y, w}, {x}, flops, 1, 1},
            {"linear_gelu",
             LATHE_OP_LINEAR_GELU,
             3,
             2,
             none_set,
             {x, w, bias},
             {y, y},
             flops,
             0,
             1},
            {"linear_dx_gelu",
             LATHE_OP_LINEAR_DX_GELU,
             3,
             1,
             none_set,
             {y, w, x},
             {x},
             flops,
             0,
             1},
            {"linear_dw", LATHE_OP_LINEAR_DW, 2, 2, none_set, {y, x}, {dw, bias}, flops, 0, 1},
            {"linear_dw+=", LATHE_OP_LINEAR_DW, 2, 2, none_set, {y, x}, {dw, bias}, flops, 3, 1},
        };
        for (size_t j = 0; j < sizeof cases / sizeof *cases; j++)
            report(b, &cases[j]);
    }
}

/* Products of experts with `rows` rows each, beside one product of as many rows as all have. */
static void experts(const bench *b, int32_t dtype, int32_t n, int32_t rows)
{
    const int64_t m = (int64_t)n * rows, i = 2048, o = 768;
    const lathe_desc x = lathe_desc_2d(dtype, m, i), y = lathe_desc_2d(dtype, m, o);
    const lathe_desc w = lathe_desc_2d(dtype, o, i), ws = lathe_desc_2d(dtype, n * o, i);
    const lathe_desc dw = lathe_desc_2d(LATHE_F32, o, i), dws = lathe_desc_2d(LATHE_F32, n * o, i);
    const lathe_desc first = lathe_desc_1d(LATHE_I32, n + 1);
    const double flops = 2.0 * (double)m * (double)i * (double)o;
    const bench_case cases[] = {
        {"linear of all", LATHE_OP_LINEAR, 3, 1, none_set, {x, w, none()}, {y}, flops, 0, 1},
        {"expert_linear",
         LATHE_OP_EXPERT_LINEAR,
         3,
         1,
         none_set,
         {x, ws, first},
         {y},
         flops,
         0,
         -rows},
        {"linear_dx of all", LATHE_OP_LINEAR_DX, 2, 1, none_set, {y, w}, {x}, flops, 0, 1},
        {"expert_linear_dx",
         LATHE_OP_EXPERT_LINEAR_DX,
         3,
         1,
         none_set,
         {y, ws, first},
         {x},
         flops,
         0,
         -rows},
        {"linear_dw of all", LATHE_OP_LINEAR_DW, 2, 2, none_set, {y, x}, {dw, none()}, flops, 0, 1},
        {"expert_linear_dw",
         LATHE_OP_EXPERT_LINEAR_DW,
         3,
         1,
         none_set,
         {y, x, first},
         {dws},
         flops,
         0,
         -rows},
    };
    printf("%d experts with %d rows each\n", (int)n, (int)rows);
    for (size_t j = 0; j < sizeof cases / sizeof *cases; j++)
        report(b, &cases[j]);
}

static void heads(const bench *b, int32_t dtype)
{
    const lathe_desc x = lathe_desc_2d(dtype, TOKENS, WIDTH);
    const lathe_desc w = lathe_desc_2d(dtype, VOCABULARY, WIDTH);
    const lathe_desc dw = lathe_desc_2d(LATHE_F32, VOCABULARY, WIDTH);
    const lathe_desc targets = lathe_desc_1d(LATHE_I32, TOKENS);
    const lathe_desc logp = lathe_desc_1d(LATHE_F32, TOKENS);
    const double flops = 2.0 * TOKENS * (double)WIDTH * (double)VOCABULARY;
    const bench_case cases[] = {
        {"head_logprob",
         LATHE_OP_HEAD_LOGPROB,
         3,
         1,
         none_set,
         {x, w, targets},
         {logp},
         flops,
         0,
         VOCABULARY},
        {"head_logprob_bwd",
         LATHE_OP_HEAD_LOGPROB_BWD,
         4,
         3,
         none_set,
         {x, w, targets, logp},
         {logp, x, dw},
         3.0 * flops,
         0,
         VOCABULARY},
        {"head_bwd_frozen",
         LATHE_OP_HEAD_LOGPROB_BWD,
         4,
         3,
         none_set,
         {x, w, targets, logp},
         {logp, x, none()},
         2.0 * flops,
         0,
         VOCABULARY},
    };
    for (size_t j = 0; j < sizeof cases / sizeof *cases; j++)
        report(b, &cases[j]);
}

static void others(const bench *b, int32_t dtype)
{
    const lathe_desc x = lathe_desc_2d(dtype, TOKENS, WIDTH);
    const lathe_desc wide = lathe_desc_2d(dtype, TOKENS, 4 * WIDTH);
    const lathe_desc w = lathe_desc_1d(LATHE_F32, WIDTH), rows = lathe_desc_1d(LATHE_F32, TOKENS);
    const lathe_desc index = lathe_desc_1d(LATHE_I32, TOKENS);
    const lathe_desc table = {LATHE_F32, 3, {1024, 2, 32, 1}};
    const lathe_desc big = lathe_desc_1d(dtype, 16 << 20);
    const lathe_desc master = lathe_desc_1d(LATHE_F32, 16 << 20);
    const lathe_desc rng = lathe_desc_1d(LATHE_I64, LATHE_RNG_COUNTER);
    const lathe_desc embedding = lathe_desc_2d(dtype, VOCABULARY, WIDTH);
    const lathe_desc dembedding = lathe_desc_2d(LATHE_F32, VOCABULARY, WIDTH);
    const lathe_op_attrs norm = {.eps = 1e-5f}, rope = {.head_dim = 64}, drop = {.p = 0.1f};
    const bench_case cases[] = {
        {"layernorm", LATHE_OP_LAYERNORM, 3, 3, norm, {x, w, w}, {x, rows, rows}, 0, 0, 1},
        {"layernorm_bwd",
         LATHE_OP_LAYERNORM_BWD,
         5,
         3,
         norm,
         {x, x, w, rows, rows},
         {x, w, w},
         0,
         0,
         1},
        {"rmsnorm", LATHE_OP_RMSNORM, 2, 2, norm, {x, w}, {x, rows}, 0, 0, 1},
        {"rmsnorm_bwd", LATHE_OP_RMSNORM_BWD, 4, 2, norm, {x, x, w, rows}, {x, w}, 0, 0, 1},
        {"rope", LATHE_OP_ROPE, 3, 1, rope, {x, index, table}, {x}, 0, 0, 1024},
        {"gelu", LATHE_OP_GELU_TANH, 1, 1, none_set, {wide}, {wide}, 0, 0, 1},
        {"gelu_bwd", LATHE_OP_GELU_TANH_BWD, 2, 1, none_set, {wide, wide}, {wide}, 0, 0, 1},
        {"swiglu", LATHE_OP_SWIGLU, 2, 1, none_set, {wide, wide}, {wide}, 0, 0, 1},
        {"swiglu_bwd",
         LATHE_OP_SWIGLU_BWD,
         3,
         2,
         none_set,
         {wide, wide, wide},
         {wide, wide},
         0,
         0,
         1},
        {"add", LATHE_OP_ADD, 2, 1, none_set, {big, big}, {big}, 0, 0, 1},
        {"cast from f32", LATHE_OP_CAST, 1, 1, none_set, {master}, {big}, 0, 0, 1},
        {"dropout", LATHE_OP_DROPOUT, 2, 1, drop, {big, rng}, {big}, 0, 0, 1},
        {"embed", LATHE_OP_EMBED, 2, 1, none_set, {index, embedding}, {x}, 0, 0, VOCABULARY},
        {"embed_bwd+=",
         LATHE_OP_EMBED_BWD,
         2,
         1,
         none_set,
         {x, index},
         {dembedding},
         0,
         1,
         VOCABULARY},
        {"transpose",
         LATHE_OP_TRANSPOSE,
         1,
         1,
         none_set,
         {wide},
         {lathe_desc_2d(dtype, 4 * WIDTH, TOKENS)},
         0,
         0,
         1},
    };
    for (size_t j = 0; j < sizeof cases / sizeof *cases; j++)
        report(b, &cases[j]);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu_avx512_bf16";
    char path[512], why[128];
    (void)snprintf(path, sizeof path, "%s/lib/lathe/plugins/device/%s.so", LATHE_BUILD, name);
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const lathe_plugin *plugin = so == NULL ? NULL : dlsym(so, LATHE_PLUGIN_ENTRY_NAME);
    if (plugin == NULL) {
        (void)fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    bench b = {.device = plugin->table, .only = argc > 3 ? argv[3] : NULL};
    if (b.device->score(why, sizeof why) == 0) {
        (void)fprintf(stderr, "%s: %s\n", name, why);
        return 1;
    }
    if (plugin->create(lathe_host_get(), NULL, 0, &b.self) != LATHE_OK)
        return 1;
    b.triad_rate = triad_rate(&b);
    for (int32_t dtype = LATHE_F32; dtype <= LATHE_BF16; dtype++) {
        if (argc > 2 && strcmp(argv[2], "all") != 0 &&
            strcmp(argv[2], lathe_dtype_name(dtype)) != 0)
            continue;
        b.product_rate = product_rate(&b, dtype);
        printf("%s %s: 2048^3 product %.0f GFLOP/s, triad %.1f GB/s, %d workers\n", name,
               lathe_dtype_name(dtype), 1e-9 * b.product_rate, 1e-9 * b.triad_rate,
               (int)lathe_parallel_threads());
        linears(&b, dtype);
        experts(&b, dtype, 8, 512);
        experts(&b, dtype, 32, 64);
        heads(&b, dtype);
        others(&b, dtype);
    }
    plugin->destroy(b.self);
    return 0;
}
