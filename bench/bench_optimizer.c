/* Bandwidth of optimizer steps compared with a triad over the same memory.
 *
 *     bench_optimizer [million elements] [threads] [nocopy] [name[,key=value]...]
 *
 * Default: 40, all CPUs, all elementwise optimizers. nocopy: without the bf16 copy of the
 * parameters.
 *
 * A step moves at least: the parameter and each slot, read and written, and the gradient, read. For
 * AdamW in f32 these are 28 bytes per parameter, 30 with the bf16 copy. The triad a = b + s*c moves
 * 12 bytes per element, with the same threads and chunks; 16 if the cache reads a line before
 * writing it, which an optimizer avoids because it reads what it writes. A triad is timed beside
 * every step. Figures are medians of the repeats. One line per optimizer, which bench/run reads:
 *
 *     step NAME ms MS gbs GB/S triad SHARE allocate SHARE
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parallel.h"
#include "lathe/kit/elementwise.h"
#include "lathe/plugin.h"
#include "plug/host_table.h"

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

/* An optimizer with its tensors. */
typedef struct subject {
    const lathe_plugin *plugin;
    const lathe_optimizer_v1 *table;
    void *self;
    lathe_optimizer_tensor tensors[N_TENSORS];
    void *slots[LATHE_MAX_SLOTS];
    int64_t bytes; /* bytes moved by a step */
} subject;

static double time_step(const subject *x)
{
    double user[8] = {0}, t[REPEATS];
    float scalars[LATHE_N_SCALARS] = {1e-3f, 1.0f, 1.0f};
    if (x->table->scalars != NULL)
        x->table->scalars(x->self, 10, user);
    for (int k = 0; k < 8; k++)
        scalars[LATHE_SCALAR_USER + k] = (float)user[k];
    const lathe_optimizer_step s = {.size = (uint32_t)sizeof s,
                                    .n_tensors = N_TENSORS,
                                    .tensors = x->tensors,
                                    .scalars = scalars,
                                    .step = 10};
    for (int r = -1; r < REPEATS; r++) {
        const double start = now();
        if (x->table->step(x->self, &s) != LATHE_OK)
            return 0.0;
        if (r >= 0)
            t[r] = now() - start;
    }
    return median(t);
}

/* Makes an instance with the schema's defaults, except momentum where it is 0 (plain SGD has no
 * state), and one key of type string as in `setting`: "key=value", or "". */
static void *make(const lathe_plugin *plugin, const char *setting)
{
    static char words[64][64];
    lathe_value values[64];
    void *self = NULL;
    memset(values, 0, sizeof values);
    for (int32_t k = 0; k < plugin->n_fields && k < 64; k++) {
        const char *const text = plugin->fields[k].default_value;
        values[k].type = plugin->fields[k].type;
        values[k].is_set = text != NULL;
        if (text == NULL)
            continue;
        values[k].f = strtod(text, NULL);
        values[k].i = strcmp(text, "true") == 0 ? 1 : (int64_t)values[k].f;
        snprintf(words[k], sizeof words[k], "%.*s", (int)strcspn(text + 1, "\""), text + 1);
        const size_t key = strlen(plugin->fields[k].key);
        if (strncmp(setting, plugin->fields[k].key, key) == 0 && setting[key] == '=')
            snprintf(words[k], sizeof words[k], "%s", setting + key + 1);
        values[k].s = words[k];
        if (strcmp(plugin->fields[k].key, "momentum") == 0 && values[k].f == 0.0)
            values[k].f = 0.9;
    }
    return plugin->create(lathe_host_get(), values, plugin->n_fields, &self) == LATHE_OK ? self
                                                                                         : NULL;
}

static int open_subject(subject *x, const char *name, float *p, float *g, uint16_t *shadow,
                        int64_t n)
{
    char path[1024];
    const int length = (int)strcspn(name, ",");
    snprintf(path, sizeof path, "%s/lib/lathe/plugins/optimizer/%.*s.so", LATHE_BUILD, length,
             name);
    void *const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    memset(x, 0, sizeof *x);
    x->plugin = handle ? dlsym(handle, LATHE_PLUGIN_ENTRY_NAME) : NULL;
    if (x->plugin == NULL ||
        (x->self = make(x->plugin, name + length + (name[length] == ','))) == NULL) {
        fprintf(stderr, "%s: %s\n", path, x->plugin ? "no instance" : dlerror());
        return 0;
    }
    x->table = x->plugin->table;
    const int64_t each = n / N_TENSORS;
    const lathe_param_info info = {.size = (uint32_t)sizeof info,
                                   .role = LATHE_ROLE_MATRIX,
                                   .name = "w",
                                   .desc = lathe_desc_2d(LATHE_F32, each / 1000, 1000),
                                   .trainable = 1};
    lathe_slot slots[LATHE_MAX_SLOTS];
    const int32_t n_slots = x->table->slots(x->self, &info, slots);
    x->bytes = each * N_TENSORS * (8 + 4 + (shadow ? 2 : 0));
    for (int32_t k = 0; k < n_slots; k++) {
        const int64_t bytes = lathe_desc_bytes(&slots[k].desc);
        x->slots[k] = aligned_alloc(4096, (size_t)((bytes * N_TENSORS + 8191) / 4096 * 4096));
        if (x->slots[k] == NULL)
            return 0;
        memset(x->slots[k], 0, (size_t)(bytes * N_TENSORS));
        x->bytes += 2 * bytes * N_TENSORS;
        for (int t = 0; t < N_TENSORS; t++) {
            x->tensors[t].slots[k] = (char *)x->slots[k] + t * bytes;
            x->tensors[t].half_slots |= slots[k].desc.dtype == LATHE_BF16 ? 1u << k : 0u;
        }
    }
    for (int t = 0; t < N_TENSORS; t++) {
        lathe_optimizer_tensor *const one = &x->tensors[t];
        one->param = p + t * each;
        one->grad = g + t * each;
        one->shadow = shadow ? shadow + t * each : NULL;
        one->n = each;
        one->rows = each / 1000;
        one->cols = 1000;
        one->tensor = t;
        one->block = x->table->block != NULL ? x->table->block(x->self, &info) : 1;
        one->lr_mult = one->weight_decay_mult = 1.0;
    }
    return 1;
}

static void close_subject(subject *x)
{
    x->plugin->destroy(x->self);
    for (int k = 0; k < LATHE_MAX_SLOTS; k++)
        free(x->slots[k]);
}

int main(int argc, char **argv)
{
    static const char *const all[] = {"adamw",
                                      "adamw,state_dtype=bf16",
                                      "sgd",
                                      "lion",
                                      "sophia",
                                      "signsgd",
                                      "adamw_anyprecision",
                                      "schedule_free_adamw",
                                      "adam_mini",
                                      "adamw_8bit"};
    const int64_t n = (argc > 1 ? atol(argv[1]) : 40) * 1000000;
    const int copy = argc < 4 || strcmp(argv[3], "nocopy") != 0, first = copy ? 3 : 4;
    const int n_names = argc > first ? argc - first : (int)(sizeof all / sizeof *all);
    float *memory[3];
    lathe_parallel_init(argc > 2 ? atoi(argv[2]) : 0);
    for (int k = 0; k < 3; k++) {
        float *const block = aligned_alloc(4096, (size_t)n * sizeof(float) + 4096);
        if (block == NULL)
            return 1;
        memory[k] = block + 256 * k; /* different offsets in a page avoid 4 KiB aliasing */
        uint64_t x =
            0x9E3779B97F4A7C15u * (uint64_t)(k + 1); /* xorshift64: all values of a block differ */
        for (int64_t i = 0; i < n; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            memory[k][i] = (float)(int32_t)(x >> 32) * 0x1p-31f;
        }
    }
    uint16_t *const shadow = aligned_alloc(4096, (size_t)n * sizeof(uint16_t));
    if (shadow == NULL)
        return 1;
    memset(shadow, 0, (size_t)n * sizeof(uint16_t));
    printf("%lld M elements in %d tensors, %d threads, %s\n", (long long)(n / 1000000), N_TENSORS,
           lathe_parallel_threads(), copy ? "bf16 copy refreshed" : "no bf16 copy");
    for (int k = 0; k < n_names; k++) {
        const char *const name = argc > first ? argv[first + k] : all[k];
        subject x;
        if (!open_subject(&x, name, memory[0], memory[1], copy ? shadow : NULL, n))
            return 1;
        const double triad_s = time_triad(lathe_host_get(), memory[2], memory[0], memory[1], n);
        const double limit = 12.0 * (double)n / triad_s / 1e9;
        const double seconds = time_step(&x), rate = (double)x.bytes / seconds / 1e9;
        printf("step %-22s ms %7.2f gbs %6.2f triad %.2f allocate %.2f\n", name, seconds * 1e3,
               rate, rate / limit, rate / limit * 12.0 / 16.0);
        close_subject(&x);
    }
    return 0;
}
