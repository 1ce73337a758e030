/* The loader allocates nothing in a step: every malloc of this program is counted. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "data/rows/loader.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
static atomic_llong n_allocations;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *malloc(size_t bytes);
void *calloc(size_t n, size_t bytes);
void *realloc(void *old, size_t bytes);

void *malloc(size_t bytes)
{
    atomic_fetch_add(&n_allocations, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    atomic_fetch_add(&n_allocations, 1);
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    atomic_fetch_add(&n_allocations, 1);
    return __libc_realloc(old, bytes);
}

Test(loader, next_allocates_nothing)
{
    lathe_shards *shards;
    const long long none = n_allocations;
    cr_assert_eq(lathe_shards_synthetic(64, 33, 500, 1, &shards), LATHE_OK);
    cr_assert_gt(n_allocations, none, "the count does not see the library's calls");
    for (int32_t ahead = 0; ahead < 4; ahead += 3) {
        const lathe_loader_config config = {
            .shards = shards, .n_rows = 4, .row_tokens = 32, .n_prefetch = ahead};
        lathe_loader *loader;
        lathe_batch batch;
        cr_assert_eq(lathe_loader_create(&config, &loader), LATHE_OK);
        cr_assert_eq(lathe_loader_next(loader, &batch), LATHE_OK);
        const long long before = n_allocations;
        lathe_status status = LATHE_OK;
        for (int i = 0; i < 200 && status == LATHE_OK; i++)
            status = lathe_loader_next(loader, &batch);
        const long long after = n_allocations;
        cr_expect_eq(status, LATHE_OK);
        cr_expect_eq(after - before, 0, "%lld allocations in 200 steps, %d ahead", after - before,
                     ahead);
        lathe_loader_destroy(loader);
    }
    lathe_shards_destroy(shards);
}
#endif
