/* Counts malloc, calloc, realloc, aligned_alloc and posix_memalign of the whole process by calling
 * module, while heap_counting is set. It defines these functions: include it in one file of a
 * program. Under a sanitizer, which has its own allocator, nothing is counted. */
#ifndef LATHE_TEST_HEAP_COUNTER_H
#define LATHE_TEST_HEAP_COUNTER_H

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lathe and any plugin; system libraries; the test program. */
enum { FROM_LATHE, FROM_LIBRARIES, FROM_TEST, N_ORIGINS };

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static atomic_int heap_counting;
static atomic_llong heap_counts[N_ORIGINS];
static char heap_first_caller[256];

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static int heap_origin_of(const Dl_info *caller)
{
    const char *file = caller->dli_fname, *name = strrchr(file, '/');
    Dl_info own;
    name = name ? name + 1 : file;
    if (strncmp(name, "liblathe_emulator", 17) == 0) /* replaces cudart */
        return FROM_LIBRARIES;
    if (strstr(file, "/lathe/plugins/") || strstr(file, "/tests/faulty") ||
        strstr(file, "/tests/emulated/") || strncmp(name, "liblathe", 8) == 0)
        return FROM_LATHE;
    return dladdr(heap_counts, &own) && own.dli_fbase == caller->dli_fbase ? FROM_TEST
                                                                           : FROM_LIBRARIES;
}

/* Finds the calling module; dladdr does not allocate. */
static void heap_count(const void *caller)
{
    Dl_info info;
    if (!atomic_load_explicit(&heap_counting, memory_order_relaxed))
        return;
    if (!dladdr(caller, &info) || !info.dli_fname) {
        atomic_fetch_add(&heap_counts[FROM_LIBRARIES], 1);
        return;
    }
    const int origin = heap_origin_of(&info);
    if (atomic_fetch_add(&heap_counts[origin], 1) == 0 && origin == FROM_LATHE)
        snprintf(heap_first_caller, sizeof heap_first_caller, "%s %s", info.dli_fname,
                 info.dli_sname ? info.dli_sname : "(static)");
}

/* also for calls inside the test: the return address tells */
#define HEAP_CALLED __attribute__((noinline))

HEAP_CALLED void *malloc(size_t n)
{
    heap_count(__builtin_return_address(0));
    return __libc_malloc(n);
}

HEAP_CALLED void *calloc(size_t n, size_t size)
{
    heap_count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

HEAP_CALLED void *realloc(void *p, size_t n)
{
    heap_count(__builtin_return_address(0));
    return __libc_realloc(p, n);
}

HEAP_CALLED void *aligned_alloc(size_t alignment, size_t n)
{
    heap_count(__builtin_return_address(0));
    return __libc_memalign(alignment, n);
}

HEAP_CALLED int posix_memalign(void **out, size_t alignment, size_t n)
{
    heap_count(__builtin_return_address(0));
    *out = __libc_memalign(alignment, n);
    return *out ? 0 : ENOMEM;
}

#endif

#endif
