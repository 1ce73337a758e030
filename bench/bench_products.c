/* Compares bf16 products with the same products in f32, and products of one row with the memory
 * bandwidth.
 *
 * Usage: bench_products [DEVICE] [threads] [rounds]
 *
 * DEVICE is cpu_avx2, cpu_avx512, ...; "-" takes the best one. The shapes are those of the linear
 * layers of GPT-2 124M at 1,024 tokens (y, dx and dw), and of SmolLM2-135M at a prompt of 128
 * tokens and at one token. All cases run in turn in each round, and the least time of the rounds
 * counts; with one thread it is the processor time of that thread, which other programs disturb
 * less. Prints one line per case, then "key value" lines. ONEDNN_MAX_CPU_ISA=AVX2 restricts oneDNN
 * to the instructions that cpu_avx2 may use.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parallel.h"
#include "lathe/device.h"
#include "lathe/plugin.h"
#include "plug/host_table.h"
#include "read_rate.h"

enum { GPT2_TOKENS = 1024, PROMPT = 128, MAX_CASES = 64, GPT2 = 0, PREFILL = 1, ROW = 2 };

typedef struct device {
    const lathe_device_v1 *table;
    void *self;
} device;

typedef struct product_case {
    const char *name;
    int32_t group, op, dtype;
    int64_t m, n, k; /* m rows of x, W is [n, k] */
    lathe_kernel *kernel;
    void *in[2], *out, *scratch;
    double best; /* seconds */
} product_case;

static int threads;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench_products: %s\n", what);
    exit(1);
}

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

static void *make_tensor(const device *d, const lathe_desc *desc)
{
    void *p = NULL;
    uint32_t state = 12345;
    if (d->table->alloc(d->self, lathe_desc_bytes(desc), 0, &p) != LATHE_OK)
        fail("no memory");
    for (int64_t i = 0; i < lathe_desc_count(desc); i++) {
        state = state * 1664525u + 1013904223u;
        const float x = (float)(state >> 8) * 0x1p-24f - 0.5f;
        if (desc->dtype == LATHE_F32)
            ((float *)p)[i] = x;
        else
            ((uint16_t *)p)[i] = lathe_f32_to_bf16(x);
    }
    return p;
}

/* x [m,k], W [n,k]: y = x W^T, dx = dy W, dW = dy^T x. */
static void prepare(const device *d, product_case *c)
{
    static const lathe_op_attrs none;
    const lathe_desc x = lathe_desc_2d(c->dtype, c->m, c->k),
                     w = lathe_desc_2d(c->dtype, c->n, c->k),
                     y = lathe_desc_2d(c->dtype, c->m, c->n);
    lathe_desc in[3] = {x, w, {LATHE_ABSENT, 0, {1, 1, 1, 1}}}, out[2] = {y, in[2]};
    if (c->op == LATHE_OP_LINEAR_DX) {
        in[0] = y;
        out[0] = x;
    } else if (c->op == LATHE_OP_LINEAR_DW) {
        in[0] = y;
        in[1] = x;
        out[0] = lathe_desc_2d(LATHE_F32, c->n, c->k);
    }
    const lathe_kernel_problem p = {.size = sizeof p,
                                    .op = c->op,
                                    .attrs = &none,
                                    .in = in,
                                    .out = out,
                                    .n_in = c->op == LATHE_OP_LINEAR ? 3 : 2,
                                    .n_out = c->op == LATHE_OP_LINEAR_DW ? 2 : 1,
                                    .may_overwrite = 1,
                                    .n_threads = threads};
    int64_t scratch = 0;
    if (d->table->kernel_create(d->self, &p, &c->kernel, &scratch) != LATHE_OK ||
        d->table->alloc(d->self, scratch + 64, 0, &c->scratch) != LATHE_OK)
        fail("a product could not be made");
    c->in[0] = make_tensor(d, &in[0]);
    c->in[1] = make_tensor(d, &in[1]);
    c->out = make_tensor(d, &out[0]);
    c->best = 1e30;
}

static void run(const device *d, product_case *c)
{
    const void *in[3] = {c->in[0], c->in[1], NULL};
    void *out[2] = {c->out, NULL};
    const lathe_kernel_args args = {
        .size = sizeof args, .in = in, .out = out, .scratch = c->scratch};
    const double begun = now();
    if (d->table->kernel_run(d->self, c->kernel, &args) != LATHE_OK)
        fail("a product failed");
    const double took = now() - begun;
    c->best = took < c->best ? took : c->best;
}

static int list_cases(product_case *c)
{
    static const struct {
        const char *name;
        int64_t n, k;
    } gpt2[] = {{"qkv", 2304, 768}, {"proj", 768, 768}, {"fc", 3072, 768}, {"fc proj", 768, 3072}},
      smol[] = {{"q", 576, 576}, {"k", 192, 576}, {"gate", 1536, 576}, {"down", 576, 1536}};
    static const int32_t ops[] = {LATHE_OP_LINEAR, LATHE_OP_LINEAR_DX, LATHE_OP_LINEAR_DW};
    int n = 0;
    for (int i = 0; i < 4; i++)
        for (int op = 0; op < 3; op++)
            c[n++] = (product_case){.name = gpt2[i].name,
                                    .group = GPT2,
                                    .op = ops[op],
                                    .m = GPT2_TOKENS,
                                    .n = gpt2[i].n,
                                    .k = gpt2[i].k};
    for (int i = 0; i < 4; i++)
        c[n++] = (product_case){.name = smol[i].name,
                                .group = PREFILL,
                                .op = LATHE_OP_LINEAR,
                                .m = PROMPT,
                                .n = smol[i].n,
                                .k = smol[i].k};
    c[n++] = (product_case){
        .name = "head", .group = ROW, .op = LATHE_OP_LINEAR, .m = 1, .n = 49152, .k = 576};
    return n;
}

/* ---- the bandwidth ---- */

#define READ_BYTES ((int64_t)256 << 20)

static double read_seconds(read_rate *r)
{
    const double begun = now();
    read_rate_pass(r);
    return now() - begun;
}

static double flops(const product_case *c)
{
    return 2.0 * (double)c->m * (double)c->n * (double)c->k;
}

static void report(const product_case *narrow, const product_case *wide, int n, double read)
{
    static const char *const keys[] = {"training_ratio", "prefill_ratio"};
    double seconds[2][2] = {{0}};
    for (int i = 0; i < n; i++) {
        const product_case *c = &narrow[i];
        const char *kind = c->op == LATHE_OP_LINEAR      ? "y"
                           : c->op == LATHE_OP_LINEAR_DX ? "dx"
                                                         : "dw";
        (void)printf("# %5lld %-8s %-3s bf16 %7.2f GFLOP/s  f32 %7.2f GFLOP/s  ratio %.3f\n",
                     (long long)c->m, c->name, kind, 1e-9 * flops(c) / c->best,
                     1e-9 * flops(c) / wide[i].best, wide[i].best / c->best);
        if (c->group == ROW) {
            const double bytes = 2.0 * (double)c->n * (double)c->k;
            (void)printf("row_bf16_gbs %.2f\nrow_f32_gbs %.2f\nread_gbs %.2f\nrow_bf16_share "
                         "%.3f\nrow_f32_share %.3f\n",
                         1e-9 * bytes / c->best, 2e-9 * bytes / wide[i].best,
                         1e-9 * READ_BYTES / read, bytes / c->best * read / READ_BYTES,
                         2.0 * bytes / wide[i].best * read / READ_BYTES);
            continue;
        }
        seconds[c->group][0] += c->best;
        seconds[c->group][1] += wide[i].best;
    }
    for (int g = 0; g < 2; g++)
        (void)printf("%s %.3f\n", keys[g], seconds[g][1] / seconds[g][0]);
}

int main(int argc, char **argv)
{
    static const char *const best[] = {"cpu_avx512_bf16", "cpu_avx512", "cpu_avx2"};
    product_case narrow[MAX_CASES], wide[MAX_CASES];
    device d = {0};
    threads = argc > 2 ? atoi(argv[2]) : 2;
    const int rounds = argc > 3 ? atoi(argv[3]) : 7;
    lathe_parallel_init(threads);
    int opened = argc > 1 && strcmp(argv[1], "-") != 0 && open_device(argv[1], &d);
    for (int i = 0; i < 3 && !opened && (argc < 2 || strcmp(argv[1], "-") == 0); i++)
        opened = open_device(best[i], &d);
    if (!opened)
        fail("the device cannot run here");
    const int n = list_cases(narrow);
    read_rate r;
    if (!read_rate_init(&r, READ_BYTES))
        fail("no memory");
    double read = 1e30;
    for (int i = 0; i < n; i++) {
        wide[i] = narrow[i];
        narrow[i].dtype = LATHE_BF16;
        wide[i].dtype = LATHE_F32;
        prepare(&d, &narrow[i]);
        prepare(&d, &wide[i]);
    }
    for (int round = 0; round <= rounds; round++) {
        for (int i = 0; i < n; i++) {
            run(&d, &narrow[i]);
            run(&d, &wide[i]);
        }
        const double took = read_seconds(&r);
        read = took < read ? took : read;
    }
    report(narrow, wide, n, read);
    read_rate_fini(&r);
    return 0;
}
