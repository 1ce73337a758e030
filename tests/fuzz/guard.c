/* Wraps every fuzz target, and aborts if one input makes it use more than 2 x the input's size +
 * HEAP_MIB of heap.
 *
 * CMakeLists.txt compiles the targets with LLVMFuzzerTestOneInput renamed to fuzz_one_input. Under
 * libFuzzer the sanitizer's hooks count the memory; in the replay programs
 * tests/support/inject_libc.c does.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_one_input(const uint8_t *data, size_t size);

#ifndef HEAP_MIB
#define HEAP_MIB 64
#endif

#ifdef FUZZ_HOOKS
#include <stdatomic.h>

int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *block);

static atomic_int_fast64_t live, peak;

static void on_malloc(const volatile void *block, size_t bytes)
{
    (void)block;
    const int_fast64_t now = atomic_fetch_add(&live, (int_fast64_t)bytes) + (int_fast64_t)bytes;
    int_fast64_t was = atomic_load(&peak);
    while (now > was && !atomic_compare_exchange_weak(&peak, &was, now))
        ;
}

static void on_free(const volatile void *block)
{
    if (block != NULL)
        atomic_fetch_sub(&live, (int_fast64_t)__sanitizer_get_allocated_size(block));
}

static int64_t start_peak(void)
{
    static int installed;
    if (!installed && __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) == 0)
        abort();
    installed = 1;
    atomic_store(&peak, atomic_load(&live));
    return (int64_t)atomic_load(&live);
}

static int64_t read_peak(void)
{
    return (int64_t)atomic_load(&peak);
}
#else
#include "support/inject.h"

static int64_t start_peak(void)
{
    return inject_peak_begin();
}

static int64_t read_peak(void)
{
    return inject_peak_bytes();
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int64_t before = start_peak();
    const int code = fuzz_one_input(data, size);
    const int64_t growth = read_peak() - before,
                  allowed = 2 * (int64_t)size + ((int64_t)HEAP_MIB << 20);
    if (growth > allowed) {
        (void)fprintf(
            stderr, "ERROR: %zu bytes of input took %lld bytes of heap, at most %lld are allowed\n",
            size, (long long)growth, (long long)allowed);
        abort();
    }
    return code;
}
