/* Failure injection: which calls are counted, and which of them fail (see inject.h). */
#include "support/inject.h"

#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#include "support/inject_call.h"

/* ---- who calls ---- */

enum { MAX_RANGES = 64, MAX_NAME = 48 };

typedef struct range {
    uintptr_t begin, end, base;
    int library; /* INJECT_IN_LATHE, ... */
    char name[MAX_NAME];
} range;

static range ranges[MAX_RANGES];
static int n_ranges;

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Whether calls of a file are counted: of Lathe, its plugins, and libraries called by it that must
 * pass on a failure themselves. INJECT_NOWHERE: no. */
static int library_of(const char *path)
{
    static const struct {
        const char *name;
        int library;
    } libraries[] = {{"liblathe.", INJECT_IN_LATHE},         {"libjansson.", INJECT_IN_JANSSON},
                     {"libcrypto.", INJECT_IN_ANOTHER},      {"libpcre2-8.", INJECT_IN_ANOTHER},
                     {"libutf8proc.", INJECT_IN_ANOTHER},    {"libstdc++.", INJECT_IN_LIBSTDCXX},
                     {"libtomlplusplus.", INJECT_IN_ANOTHER}};
    const char *name = base_name(path);
    if (strstr(path, "/lathe/plugins/") != NULL)
        return INJECT_IN_ANOTHER;
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++)
        if (strncmp(name, libraries[i].name, strlen(libraries[i].name)) == 0)
            return libraries[i].library;
    return INJECT_NOWHERE;
}

static int add_ranges(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    (void)user;
    const int library = library_of(info->dlpi_name);
    for (int i = 0; library != INJECT_NOWHERE && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X) || n_ranges == MAX_RANGES)
            continue;
        range *r = &ranges[n_ranges++];
        r->base = info->dlpi_addr;
        r->library = library;
        r->begin = info->dlpi_addr + segment->p_vaddr;
        r->end = r->begin + segment->p_memsz;
        (void)snprintf(r->name, sizeof r->name, "%s", base_name(info->dlpi_name));
    }
    return 0;
}

static const range *find_range(uintptr_t at)
{
    for (int i = 0; i < n_ranges; i++)
        if (at >= ranges[i].begin && at < ranges[i].end)
            return &ranges[i];
    return NULL;
}

/* ---- what fails ---- */

static atomic_uint armed;
static atomic_int_fast64_t seen, failed;
static int64_t fail_first, fail_end;
static int fail_error;
static char last[128];
static int last_library;
static uint32_t last_set;

/* Hash of the stack of call number 1 + index, for inject_arm_places; 0: no call. */
enum { MAX_PLACES = 1 << 16 };
static _Atomic uint64_t places[MAX_PLACES];
static atomic_int notes_places;

const char *inject_unsupported(void)
{
#ifdef INJECT_UNSUPPORTED
    return INJECT_UNSUPPORTED;
#else
    return NULL;
#endif
}

void inject_arm(uint32_t calls, int64_t first, int64_t n, int error)
{
    atomic_store(&armed, 0);
    atomic_store(&notes_places, 0);
    n_ranges = 0;
    (void)dl_iterate_phdr(add_ranges, NULL);
    fail_first = first;
    fail_end = first < 1 ? 0 : n < INT64_MAX - first ? first + n : INT64_MAX;
    fail_error = error;
    last[0] = '\0';
    last_library = INJECT_NOWHERE;
    last_set = 0;
    atomic_store(&seen, 0);
    atomic_store(&failed, 0);
    atomic_store(&armed, calls);
}

int64_t inject_disarm(void)
{
    atomic_store(&armed, 0);
    return atomic_load(&seen);
}

void inject_arm_places(uint32_t calls)
{
    inject_arm(calls, 0, 0, 0);
    atomic_store(&notes_places, 1);
}

/* FNV-1a hash over the addresses of the first INJECT_FRAMES frames. */
typedef struct frames_hash {
    uint64_t hash;
    int n;
} frames_hash;

static _Unwind_Reason_Code add_frame(struct _Unwind_Context *context, void *arg)
{
    frames_hash *f = arg;
    f->hash = (f->hash ^ (uint64_t)_Unwind_GetIP(context)) * UINT64_C(1099511628211);
    return ++f->n < INJECT_FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static void note_place(int64_t call)
{
    frames_hash f = {.hash = UINT64_C(14695981039346656037)};
    if (call > MAX_PLACES)
        abort();
    (void)_Unwind_Backtrace(add_frame, &f);
    places[call - 1] = f.hash | 1;
}

static int has_place(uint64_t place, int64_t begin, int64_t end)
{
    while (begin < end && places[begin] != place)
        begin++;
    return begin < end;
}

int64_t inject_places(int64_t *out)
{
    const int64_t n = atomic_load(&seen);
    int64_t n_out = 0;
    for (int64_t i = 0; i < n; i++)
        if (!has_place(places[i], 0, i) || !has_place(places[i], i + 1, n))
            out[n_out++] = i + 1;
    return n_out;
}

int64_t inject_failed(void)
{
    return atomic_load(&failed);
}

const char *inject_last(void)
{
    return last;
}

int inject_last_library(void)
{
    return last_library;
}

uint32_t inject_last_set(void)
{
    return last_set;
}

int inject_call_fails(uint32_t call, const char *name, const void *caller)
{
    if (!(atomic_load_explicit(&armed, memory_order_acquire) & call))
        return 0;
    const range *from = find_range((uintptr_t)caller);
    if (from == NULL)
        return 0;
    const int64_t n = atomic_fetch_add(&seen, 1) + 1;
    if (atomic_load(&notes_places))
        note_place(n);
    if (n < fail_first || n >= fail_end)
        return 0;
    if (atomic_fetch_add(&failed, 1) == 0) {
        (void)snprintf(last, sizeof last, "%s, call %lld, from %s+0x%llx", name, (long long)n,
                       from->name, (unsigned long long)((uintptr_t)caller - from->base));
        last_library = from->library;
        last_set = call;
    }
    if (getenv("INJECT_TRACE") != NULL) {
        void *frames[48];
        backtrace_symbols_fd(frames, backtrace(frames, 48), STDERR_FILENO);
    }
    errno = fail_error;
    return 1;
}
