/* Bandwidth of an elementwise optimizer step beside a triad over the same memory.
 *
 *     bench_optimizer [plugin.so] [million elements] [threads]
 *
 * AdamW moves 28 bytes per parameter in f32 (p, m, v read and written, g read), 30 with the bf16
 * shadow. The triad a = b + s*c moves 12 bytes per element, with the same threads and chunks; 16
 * where the cache reads a line before it writes it, which the optimizer does not pay, for it reads
 * what it writes. Figures: medians of the repeats.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parallel.h"
#include "lathe/elementwise.h"
#include "lathe/plugin.h"

enum { REPEATS = 15, N_TENSORS = 40 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v)
{
    qsort(v, REPEATS, sizeof *v, by_value);
    return v[REPEATS / 2];
}

typedef struct arrays {
    float *a;
    const float *b, *c;
} arrays;

LATHE_CLONES static void triad_loop(float *restrict a, const float *restrict b,
                                    const float *restrict c, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i] = b[i] + 0.5f * c[i];
}

static void triad(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const arrays *const x = arg;
    (void)worker;
    triad_loop(x->a + begin, x->b + begin, x->c + begin, end - begin);
}

static double time_triad(const lathe_host *host, float *a, const float *b, const float *c,
                         int64_t n)
{
    arrays x = {a, b, c};
    double t[REPEATS];
    host->parallel_for(n, 16384, triad, &x);
    for (int r = 0; r < REPEATS; r++) {
        const double start = now();
        host->parallel_for(n, 16384, triad, &x);
        t[r] = now() - start;
    }
    return median(t);
}

static double time_step(const lathe_optimizer_v1 *table, void *self,
                        const lathe_optimizer_tensor *tensors)
{
    double user[8] = {0}, t[REPEATS];
    float scalars[LATHE_N_SCALARS] = {1e-3f, 1.0f, 1.0f};
    table->scalars(self, 10, user);
    for (int k = 0; k < 8; k++)
        scalars[LATHE_SCALAR_USER + k] = (float)user[k];
    const lathe_optimizer_step s = {.size = (uint32_t)sizeof s,
                                    .n_tensors = N_TENSORS,
                                    .tensors = tensors,
                                    .scalars = scalars,
                                    .step = 10};
    for (int r = -1; r < REPEATS; r++) {
        const double start = now();
        if (table->step(self, &s) != LATHE_OK)
            return 0.0;
        if (r >= 0)
            t[r] = now() - start;
    }
    return median(t);
}

static void *make(const lathe_plugin *plugin)
{
    lathe_value values[64];
    void *self = NULL;
    memset(values, 0, sizeof values);
    for (int32_t k = 0; k < plugin->n_fields && k < 64; k++) {
        const char *const text = plugin->fields[k].default_value;
        values[k].type = plugin->fields[k].type;
        if (text != NULL) {
            values[k].f = strtod(text, NULL);
            values[k].i = strcmp(text, "true") == 0;
        }
    }
    return plugin->create(lathe_host_get(), values, plugin->n_fields, &self) == LATHE_OK ? self
                                                                                         : NULL;
}

static void measure(const lathe_plugin *plugin, void *self, float *const memory[4],
                    uint16_t *shadow, int64_t n)
{
    const lathe_optimizer_v1 *const table = plugin->table;
    lathe_optimizer_tensor tensors[N_TENSORS];
    const int64_t each = n / N_TENSORS;
    for (int k = 0; k < N_TENSORS; k++) {
        const int64_t at = k * each;
        tensors[k] = (lathe_optimizer_tensor){.param = memory[0] + at,
                                              .grad = memory[1] + at,
                                              .slots = {memory[2] + at, memory[3] + at},
                                              .n = each,
                                              .tensor = k,
                                              .lr_mult = 1.0,
                                              .weight_decay_mult = 1.0};
    }
    const double seconds = time_triad(lathe_host_get(), memory[0], memory[1], memory[2], n);
    const double limit = 12.0 * (double)n / seconds / 1e9;
    printf("triad               %7.2f ms  %6.2f GB/s (12 B/element; %.2f with write-allocate)\n",
           seconds * 1e3, limit, limit * 16.0 / 12.0);
    for (int with = 0; with < 2; with++) {
        for (int k = 0; k < N_TENSORS; k++)
            tensors[k].shadow = with ? shadow + k * each : NULL;
        const double t = time_step(table, self, tensors);
        const double rate = (with ? 30.0 : 28.0) * (double)(each * N_TENSORS) / t / 1e9;
        printf("%s %-12s  %7.2f ms  %6.2f GB/s  %.2f of the triad, %.2f with write-allocate\n",
               plugin->name, with ? "+ bf16 copy" : "f32", t * 1e3, rate, rate / limit,
               rate / limit * 12.0 / 16.0);
    }
}

int main(int argc, char **argv)
{
    const char *const path =
        argc > 1 ? argv[1] : LATHE_BUILD "/lib/lathe/plugins/optimizer/adamw.so";
    const int64_t n = (argc > 2 ? atol(argv[2]) : 40) * 1000000;
    lathe_parallel_init(argc > 3 ? atoi(argv[3]) : 0);
    void *const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const lathe_plugin *const plugin = handle ? dlsym(handle, LATHE_PLUGIN_ENTRY_NAME) : NULL;
    if (plugin == NULL || plugin->kind != LATHE_KIND_OPTIMIZER) {
        fprintf(stderr, "%s: %s\n", path, plugin ? "not an optimizer" : dlerror());
        return 1;
    }
    void *const self = make(plugin);
    float *blocks[4], *memory[4];
    for (int k = 0; k < 4; k++) {
        blocks[k] = aligned_alloc(4096, (size_t)n * sizeof(float) + 4096);
        if (blocks[k] == NULL)
            return 1;
        memory[k] = blocks[k] + 256 * k; /* not the same offset in a page: no 4 KiB aliasing */
        for (int64_t i = 0; i < n; i++)
            memory[k][i] = (float)(i % 977) * 1e-3f;
    }
    uint16_t *const shadow = aligned_alloc(4096, (size_t)n * sizeof(uint16_t));
    if (self == NULL || shadow == NULL)
        return 1;
    memset(shadow, 0, (size_t)n * sizeof(uint16_t));
    printf("%lld M elements in %d tensors, %d threads\n", (long long)(n / 1000000), N_TENSORS,
           lathe_parallel_threads());
    measure(plugin, self, memory, shadow, n);
    plugin->destroy(self);
    for (int k = 0; k < 4; k++)
        free(blocks[k]);
    free(shadow);
    return 0;
}
