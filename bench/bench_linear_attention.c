/* Measures the ops with a decaying state beside causal attention: processor time of forward and
 * backward by the length of the row, and how often the speed of attention that is. gated_delta has
 * as many heads as the attention, of the same size; mamba2 twice as many of half the size, in one
 * group, with states of 128 for each channel, as models have them.
 *
 * Usage: bench_linear_attention [longest row (8192)]. Set OMP_NUM_THREADS=1 on a shared machine.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parallel.h"
#include "lathe/attention.h"
#include "lathe/op_plugin.h"
#include "lathe/plugin.h"
#include "plug/host_table.h"

enum { REPEATS = 5, H = 8, D = 128, MAMBA_HEADS = 16, STATE = 128 };

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
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
    if (m == NULL) {
        (void)fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return m;
}

/* Values in [lo, hi). */
static void *random_tensor(int64_t n, int32_t dtype, float lo, float hi)
{
    void *m = memory(n * lathe_dtype_bytes(dtype));
    uint32_t state = 12345;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        const float x = lo + (hi - lo) * (float)(state >> 8) / 16777216.0f;
        if (dtype == LATHE_F32)
            ((float *)m)[i] = x;
        else
            ((uint16_t *)m)[i] = lathe_f32_to_bf16(x);
    }
    return m;
}

static const lathe_plugin *plugin_of(const char *kind, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/lib/lathe/plugins/%s/%s.so", LATHE_BUILD, kind, name);
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const lathe_plugin *plugin = so != NULL ? dlsym(so, LATHE_PLUGIN_ENTRY_NAME) : NULL;
    if (plugin == NULL) {
        (void)fprintf(stderr, "%s: %s\n", path, dlerror());
        exit(1);
    }
    return plugin;
}

/* Something that runs forward or backward once. */
typedef struct timed {
    lathe_status (*run)(struct timed *t, int is_backward);
    void *self, *scratch;
    const lathe_attention_v1 *attention;
    lathe_attention_problem problem;
    lathe_attention_args args;
    const lathe_op_kernel *kernels[2];
    lathe_op_call calls[2];
    lathe_kernel_args op_args[2];
} timed;

static double median(timed *t, int is_backward)
{
    double seconds[REPEATS];
    for (int i = -1; i < REPEATS; i++) {
        const double start = now();
        if (t->run(t, is_backward) != LATHE_OK)
            exit(1);
        if (i >= 0)
            seconds[i] = now() - start;
    }
    qsort(seconds, REPEATS, sizeof(double), by_value);
    return seconds[REPEATS / 2];
}

static lathe_status run_attention(timed *t, int is_backward)
{
    return (is_backward ? t->attention->backward : t->attention->forward)(t->self, &t->problem,
                                                                          &t->args);
}

static void time_attention(int64_t tokens, int32_t dtype, double out[2])
{
    const lathe_plugin *plugin = plugin_of("attention", "flash_cpu");
    const lathe_value value = {.type = LATHE_T_STRING, .is_set = 1, .s = "auto"};
    const int64_t n = tokens * H * D, w = H * D;
    timed t = {.run = run_attention, .attention = plugin->table};
    if (plugin->create(lathe_host_get(), &value, plugin->n_fields, &t.self) != LATHE_OK)
        exit(1);
    t.problem = (lathe_attention_problem){.size = sizeof t.problem,
                                          .dtype = dtype,
                                          .batch = 1,
                                          .t_q = tokens,
                                          .t_k = tokens,
                                          .n_heads = H,
                                          .n_kv_heads = H,
                                          .head_dim = D,
                                          .causal = 1,
                                          .n_threads = lathe_parallel_threads(),
                                          .scale = 1.0f / sqrtf((float)D),
                                          .q_stride = w,
                                          .k_stride = w,
                                          .v_stride = w,
                                          .o_stride = w,
                                          .dq_stride = w,
                                          .dk_stride = w,
                                          .dv_stride = w,
                                          .need_backward = 1};
    void *m[9];
    for (int i = 0; i < 8; i++)
        m[i] = random_tensor(n, dtype, -1.0f, 1.0f);
    m[8] = memory(4 * H * tokens);
    const int64_t forward = t.attention->forward_scratch(t.self, &t.problem),
                  backward = t.attention->backward_scratch(t.self, &t.problem);
    void *const scratch = memory(forward > backward ? forward : backward);
    t.args = (lathe_attention_args){.size = sizeof t.args,
                                    .q = m[0],
                                    .k = m[1],
                                    .v = m[2],
                                    .o = m[3],
                                    .lse = m[8],
                                    .d_o = m[4],
                                    .dq = m[5],
                                    .dk = m[6],
                                    .dv = m[7],
                                    .scratch = scratch};
    for (int pass = 0; pass < 2; pass++)
        out[pass] = median(&t, pass);
    for (int i = 0; i < 9; i++)
        lathe_host_get()->free(m[i]);
    lathe_host_get()->free(scratch);
    plugin->destroy(t.self);
}

static lathe_status run_op(timed *t, int is_backward)
{
    return t->kernels[is_backward]->run(t->self, &t->calls[is_backward], &t->op_args[is_backward]);
}

static const lathe_op_kernel *best(const lathe_op_kernel *kernels, int32_t n, void *self,
                                   const lathe_op_call *call)
{
    int32_t high = 0, chosen = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t score =
            kernels[i].run != NULL ? kernels[i].score(self, call, NULL, 0) : LATHE_SCORE_NO;
        if (score > high) {
            high = score;
            chosen = i;
        }
    }
    return &kernels[chosen];
}

/* An op with a decaying state: heads of v and of q and k, and the size of a key. */
typedef struct scan_shape {
    const char *name;
    int64_t heads, key_heads, key_dim;
    int32_t has_skip, reserved;
} scan_shape;

static void time_scan(const scan_shape *shape, int64_t tokens, int32_t dtype, double out[2])
{
    const lathe_plugin *plugin = plugin_of("op", shape->name);
    const lathe_op_v1 *op = plugin->table;
    const lathe_device_info device = {.size = sizeof device, .host_memory = 1};
    const lathe_value values[4] = {{.type = LATHE_T_INT, .is_set = 1, .i = tokens},
                                   {.type = LATHE_T_INT, .is_set = 1, .i = shape->heads},
                                   {.type = LATHE_T_INT, .is_set = 1, .i = shape->key_heads},
                                   {.type = LATHE_T_FLOAT, .is_set = 1, .f = 1.0}};
    const int64_t keys = shape->key_heads * shape->key_dim, n = tokens * shape->heads;
    const lathe_desc wide = lathe_desc_2d(dtype, tokens, H * D),
                     key = lathe_desc_2d(dtype, tokens, keys),
                     small = lathe_desc_2d(LATHE_F32, tokens, shape->heads),
                     absent = {LATHE_ABSENT, 0, {1, 1, 1, 1}};
    const lathe_desc in[9] = {
        wide, key, key, wide, small, small, absent, shape->has_skip ? small : absent, absent};
    timed t = {.run = run_op};
    if (plugin->create(lathe_host_get(), values, plugin->n_fields, &t.self) != LATHE_OK)
        exit(1);
    /* keys of length 1 at most, as a family of gated_delta has them */
    const float most = 1.0f / sqrtf((float)shape->key_dim);
    const void *x[9] = {random_tensor(tokens * H * D, dtype, -1.0f, 1.0f),
                        random_tensor(tokens * keys, dtype, -most, most),
                        random_tensor(tokens * keys, dtype, -most, most),
                        random_tensor(tokens * H * D, dtype, -1.0f, 1.0f),
                        random_tensor(n, LATHE_F32, -0.3f, 0.0f),
                        random_tensor(n, LATHE_F32, 0.0f, 1.0f),
                        NULL,
                        random_tensor(n, LATHE_F32, 0.0f, 1.0f)};
    void *y[7] = {memory(tokens * H * D * 4),
                  memory(tokens * H * D * 4),
                  memory(tokens * H * D * 4),
                  memory(n * 4),
                  memory(n * 4),
                  NULL,
                  memory(n * 4)};
    t.calls[0] = t.calls[1] = (lathe_op_call){.size = sizeof t.calls[0],
                                              .in = in + 1,
                                              .out = &wide,
                                              .n_in = op->n_in,
                                              .n_out = 1,
                                              .may_overwrite = ~0u,
                                              .n_threads = lathe_parallel_threads(),
                                              .device = &device};
    t.calls[1].in = in;
    t.calls[1].n_in = op->n_in + 2;
    t.calls[1].out = in + 1;
    t.calls[1].n_out = op->n_in;
    for (int pass = 0; pass < 2; pass++) {
        t.kernels[pass] =
            best(pass ? op->backward->kernels : op->kernels, op->n_kernels, t.self, &t.calls[pass]);
        void *const scratch = memory(t.kernels[pass]->scratch(t.self, &t.calls[pass]));
        t.op_args[pass] = (lathe_kernel_args){
            .size = sizeof t.op_args[pass], .in = pass ? x : x + 1, .out = y, .scratch = scratch};
        out[pass] = median(&t, pass);
        lathe_host_get()->free(scratch);
    }
    for (int i = 0; i < 7; i++)
        lathe_host_get()->free(y[i]);
    for (int i = 0; i < 8; i++) {
        void *m;
        memcpy(&m, &x[i], sizeof m);
        lathe_host_get()->free(m);
    }
    plugin->destroy(t.self);
}

int main(int argc, char **argv)
{
    static const scan_shape scans[] = {{"gated_delta", H, H, D, 0, 0},
                                       {"mamba2", MAMBA_HEADS, 1, STATE, 1, 0}};
    const int64_t longest = argc > 1 ? strtoll(argv[1], NULL, 10) : 8192;
    (void)printf("%d heads of %d, one row, %d threads; ms of processor time, forward / backward\n",
                 H, D, lathe_parallel_threads());
    for (int32_t dtype = LATHE_F32; dtype <= LATHE_BF16; dtype++)
        for (int64_t tokens = 512; tokens <= longest; tokens *= 2) {
            double attention[2], scan[2];
            time_attention(tokens, dtype, attention);
            (void)printf("%-4s T %6lld  attention %8.1f / %8.1f", lathe_dtype_name(dtype),
                         (long long)tokens, 1e3 * attention[0], 1e3 * attention[1]);
            for (size_t i = 0; i < sizeof scans / sizeof scans[0]; i++) {
                time_scan(&scans[i], tokens, dtype, scan);
                (void)printf("  %s %8.1f / %8.1f  %.2f of attention's speed", scans[i].name,
                             1e3 * scan[0], 1e3 * scan[1],
                             (attention[0] + attention[1]) / (scan[0] + scan[1]));
            }
            (void)printf("\n");
        }
    return 0;
}
