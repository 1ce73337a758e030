/* Reads CUPTI's activity records, if CUPTI is installed. */
#include "kernel_times.h"

#ifdef LATHE_CUPTI

#include <cupti.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 8 << 20, NAME_BYTES = 96 };

typedef struct span {
    uint64_t begin, end; /* ns, the device's clock */
    char name[NAME_BYTES];
    int is_kernel;
} span;

static struct {
    CUptiResult (*enable)(CUpti_ActivityKind);
    CUptiResult (*disable)(CUpti_ActivityKind);
    CUptiResult (*flush)(uint32_t);
    CUptiResult (*next)(uint8_t *, size_t, CUpti_Activity **);
    CUptiResult (*callbacks)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc);
} cupti;

static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                           CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static span *spans;
static int64_t n_spans, room;

static void keep(uint64_t begin, uint64_t end, const char *name, int is_kernel)
{
    if (n_spans == room) {
        const int64_t more = room ? 2 * room : 4096;
        span *grown = realloc(spans, (size_t)more * sizeof *grown);
        if (!grown)
            return;
        spans = grown;
        room = more;
    }
    span *s = &spans[n_spans++];
    s->begin = begin;
    s->end = end;
    s->is_kernel = is_kernel;
    (void)snprintf(s->name, sizeof s->name, "%s", name ? name : "?");
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *max)
{
    *buffer = aligned_alloc(64, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *max = 0;
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid)
{
    CUpti_Activity *record = NULL;
    (void)context;
    (void)stream;
    (void)size;
    while (cupti.next(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
            const CUpti_ActivityKernel10 *k = (const void *)record;
            keep(k->start, k->end, k->name, 1);
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
            const CUpti_ActivityMemcpy6 *c = (const void *)record;
            keep(c->start, c->end, "copy", 0);
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
            const CUpti_ActivityMemset4 *f = (const void *)record;
            keep(f->start, f->end, "fill", 0);
        }
    }
    free(buffer);
}

static void *symbol(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

const char *kernel_times_open(void)
{
    char file[32];
    (void)snprintf(file, sizeof file, "libcupti.so.%d", CUPTI_API_VERSION / 10000);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = dlopen("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", RTLD_NOW | RTLD_LOCAL);
    /* POSIX allows an object pointer to hold a function's address; ISO C has no such cast. */
    *(void **)&cupti.enable = symbol(library, "cuptiActivityEnable");
    *(void **)&cupti.disable = symbol(library, "cuptiActivityDisable");
    *(void **)&cupti.flush = symbol(library, "cuptiActivityFlushAll");
    *(void **)&cupti.next = symbol(library, "cuptiActivityGetNextRecord");
    *(void **)&cupti.callbacks = symbol(library, "cuptiActivityRegisterCallbacks");
    if (!cupti.enable || !cupti.disable || !cupti.flush || !cupti.next || !cupti.callbacks)
        return "no libcupti is found";
    if (cupti.callbacks(give_buffer, take_buffer) != CUPTI_SUCCESS)
        return "CUPTI takes no callbacks";
    for (int i = 0; i < N_KINDS; i++)
        if (cupti.enable(kinds[i]) != CUPTI_SUCCESS)
            return "CUPTI records no kernels here";
    return NULL;
}

void kernel_times_reset(void)
{
    (void)cupti.flush(0);
    n_spans = 0;
}

static int by_begin(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

double kernel_times_busy(int *out_kernels)
{
    uint64_t busy = 0, until = 0;
    *out_kernels = 0;
    (void)cupti.flush(0);
    if (n_spans > 0)
        qsort(spans, (size_t)n_spans, sizeof *spans, by_begin);
    for (int64_t i = 0; i < n_spans; i++) {
        const span *s = &spans[i];
        const uint64_t from = s->begin > until ? s->begin : until;
        busy += s->end > from ? s->end - from : 0;
        until = s->end > until ? s->end : until;
        *out_kernels += s->is_kernel;
    }
    return 1e-9 * (double)busy;
}

/* ---- by name ---- */

typedef struct sum {
    const char *name;
    uint64_t ns;
    int64_t n;
} sum;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const span *)a)->name, ((const span *)b)->name);
}

static int by_time(const void *a, const void *b)
{
    const sum *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

void kernel_times_print(double seconds, int max)
{
    int64_t n = 0;
    sum *sums = malloc(((size_t)n_spans + 1) * sizeof *sums);
    if (!sums || n_spans == 0) {
        free(sums);
        return;
    }
    qsort(spans, (size_t)n_spans, sizeof *spans, by_name);
    for (int64_t i = 0; i < n_spans; i++) {
        if (i == 0 || by_name(&spans[i - 1], &spans[i]) != 0)
            sums[n++] = (sum){spans[i].name, 0, 0};
        sums[n - 1].ns += spans[i].end - spans[i].begin;
        sums[n - 1].n++;
    }
    qsort(sums, (size_t)n, sizeof *sums, by_time);
    for (int64_t i = 0; i < n && i < max; i++)
        (void)printf("# %9.2f ms %5.1f %% %6lld x %s\n", 1e-6 * (double)sums[i].ns,
                     1e-7 * (double)sums[i].ns / seconds, (long long)sums[i].n, sums[i].name);
    free(sums);
}

void kernel_times_close(void)
{
    for (int i = 0; i < N_KINDS; i++)
        (void)cupti.disable(kinds[i]);
    free(spans);
    spans = NULL;
    n_spans = room = 0;
}

#else

const char *kernel_times_open(void)
{
    return "CUPTI's headers were not there at the build";
}

void kernel_times_reset(void)
{
}

double kernel_times_busy(int *out_kernels)
{
    *out_kernels = 0;
    return 0.0;
}

void kernel_times_print(double seconds, int max)
{
    (void)seconds;
    (void)max;
}

void kernel_times_close(void)
{
}

#endif
