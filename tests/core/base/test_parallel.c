/* parallel_for: exact chunks, coverage, nesting, repeatability, no allocation. */
#include <criterion/criterion.h>
#include <malloc.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/parallel.h"
#include "plug/host_table.h"

enum { MAX = 2000 };
struct seen {
    int64_t n, grain;
    atomic_int hits[MAX];
    int32_t worker[MAX];
    atomic_int bad;
};

static void mark(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    struct seen *seen = arg;
    const int64_t want = begin + seen->grain < seen->n ? begin + seen->grain : seen->n;
    if (begin % seen->grain != 0 || end != want || worker < 0 || worker >= lathe_parallel_threads())
        atomic_fetch_add(&seen->bad, 1);
    for (int64_t i = begin; i < end; i++) {
        atomic_fetch_add(&seen->hits[i], 1);
        seen->worker[i] = worker;
    }
}

Test(parallel, every_index_once_in_exact_chunks)
{
    static struct seen seen;
    const int64_t sizes[] = {0, 1, 2, 7, 64, 1000, 1999}, grains[] = {1, 3, 64, 5000};
    lathe_parallel_init(3);
    for (int s = 0; s < 7; s++)
        for (int g = 0; g < 4; g++) {
            memset(&seen, 0, sizeof seen);
            seen.n = sizes[s];
            seen.grain = grains[g];
            lathe_parallel_for(seen.n, seen.grain, mark, &seen);
            cr_assert_eq(seen.bad, 0);
            for (int64_t i = 0; i < MAX; i++)
                cr_assert_eq(seen.hits[i], i < seen.n);
        }
}

static void count_hits(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    atomic_int *hits = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&hits[i], 1);
}

struct stopped {
    atomic_int n_done, has_waited;
    int n_chunks;
};

/* The first chunk of the last worker ends when all other chunks are done, or after ten seconds. */
static void stop_last_worker(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    struct stopped *s = arg;
    const struct timespec millisecond = {0, 1000000};
    (void)begin;
    (void)end;
    if (worker == lathe_parallel_threads() - 1 && !atomic_exchange(&s->has_waited, 1))
        for (int i = 0; i < 10000 && atomic_load(&s->n_done) < s->n_chunks - 1; i++)
            (void)nanosleep(&millisecond, NULL);
    else if (worker == 0 && !atomic_load(&s->has_waited)) /* so that the last worker gets a chunk */
        for (int i = 0; i < 1000 && !atomic_load(&s->has_waited); i++)
            (void)nanosleep(&millisecond, NULL);
    atomic_fetch_add(&s->n_done, 1);
}

static void run_stopped(void *arg)
{
    struct stopped *s = arg;
    lathe_parallel_for(s->n_chunks, 1, stop_last_worker, s);
}

static double seconds_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

Test(parallel, the_chunks_of_a_stopped_worker_are_run_by_the_others)
{
    static struct stopped plain = {.n_chunks = 100}, team = {.n_chunks = 100};
    const double begun = seconds_now();
    lathe_parallel_init(3);
    run_stopped(&plain);
    lathe_parallel_team(run_stopped, &team);
    cr_assert_eq(plain.n_done, 100);
    cr_assert_eq(team.n_done, 100);
    cr_assert_lt(seconds_now() - begun, 10.0);
}

Test(parallel, more_chunks_than_a_share_can_count_are_run_once)
{
    enum { MANY = 200001 };
    static atomic_int hits[MANY];
    lathe_parallel_init(3);
    lathe_parallel_for(MANY, 1, count_hits, hits);
    for (int i = 0; i < MANY; i++)
        cr_assert_eq(hits[i], 1);
}

Test(parallel, a_grain_below_one_counts_as_one)
{
    static struct seen seen;
    seen.n = 5;
    seen.grain = 1;
    lathe_parallel_init(2);
    lathe_parallel_for(5, 0, mark, &seen);
    cr_assert_eq(seen.bad, 0);
    cr_assert_eq(seen.hits[4], 1);
}

struct nest {
    atomic_int inner_calls, wrong_worker;
    int32_t outer_worker;
};

static void inner(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    struct nest *nest = arg;
    atomic_fetch_add(&nest->inner_calls, (int)(end - begin));
    if (worker != nest->outer_worker)
        atomic_fetch_add(&nest->wrong_worker, 1);
}

static void outer(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    struct nest *nest = arg;
    for (int64_t i = begin; i < end; i++) {
        nest[i].outer_worker = worker;
        lathe_parallel_for(10, 3, inner, &nest[i]);
    }
}

Test(parallel, nested_loops_run_on_the_calling_worker)
{
    static struct nest nest[8];
    lathe_parallel_init(4);
    lathe_parallel_for(8, 1, outer, nest);
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(nest[i].inner_calls, 10);
        cr_assert_eq(nest[i].wrong_worker, 0);
    }
}

Test(parallel, allocates_nothing_once_the_pool_runs)
{
    static struct seen seen;
    lathe_parallel_init(3);
    seen.n = 1999;
    seen.grain = 7;
    lathe_parallel_for(seen.n, seen.grain, mark, &seen);
    const struct mallinfo2 before = mallinfo2();
    for (int i = 1; i < 50; i++) {
        seen.n = 40 * i - 1;
        lathe_parallel_for(seen.n, seen.grain, mark, &seen);
    }
    const struct mallinfo2 after = mallinfo2();
    cr_assert_eq(before.uordblks, after.uordblks);
}

struct team_case {
    struct seen *seen;
    int n_loops;
    struct nest *nest;
};

static void many_loops(void *arg)
{
    struct team_case *t = arg;
    for (int i = 0; i < t->n_loops; i++) {
        t->seen->n = 40 * (i % 50) + 39;
        lathe_parallel_for(t->seen->n, t->seen->grain, mark, t->seen);
    }
    lathe_parallel_for(8, 1, outer, t->nest);
}

Test(parallel, a_team_runs_the_same_chunks)
{
    static struct seen plain, team;
    static struct nest nest[8];
    struct team_case alone = {&plain, 200, nest}, together = {&team, 200, nest};
    lathe_parallel_init(3);
    plain.grain = team.grain = 7;
    many_loops(&alone);
    const struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < 3; i++)
        lathe_parallel_team(many_loops, &together);
    cr_assert_eq(before.uordblks, mallinfo2().uordblks);
    cr_assert_eq(team.bad, 0);
    for (int i = 0; i < MAX; i++)
        cr_assert_eq(team.hits[i], 3 * plain.hits[i]);
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(nest[i].inner_calls, 40);
        cr_assert_eq(nest[i].wrong_worker, 0);
    }
}

static void team_within_a_team(void *arg)
{
    lathe_parallel_team(many_loops, arg);
}

Test(parallel, a_team_within_a_team_or_of_one_worker_runs_the_loops)
{
    static struct seen seen;
    static struct nest nest[8];
    struct team_case t = {&seen, 50, nest};
    seen.grain = 3;
    lathe_parallel_init(2);
    lathe_parallel_team(team_within_a_team, &t);
    lathe_parallel_init(1);
    lathe_parallel_team(many_loops, &t);
    cr_assert_eq(seen.bad, 0);
    cr_assert_eq(seen.hits[0], 100);
}

Test(host, memory_is_aligned_zeroed_and_counted)
{
    const lathe_host *host = lathe_host_get();
    const int64_t before = lathe_heap_allocations();
    for (int64_t bytes = 0; bytes < 300; bytes += 50) {
        unsigned char *memory = host->alloc(bytes);
        cr_assert_not_null(memory);
        cr_assert_eq((uintptr_t)memory % 64, 0);
        for (int64_t i = 0; i < bytes; i++)
            cr_assert_eq(memory[i], 0);
        memset(memory, 255, (size_t)bytes);
        host->free(memory);
    }
    host->free(NULL);
    cr_assert_eq(lathe_heap_allocations() - before, 6);
    cr_assert_null(host->alloc(-1));
    cr_assert_null(host->alloc(INT64_MAX));
}

Test(host, fail_records_the_message)
{
    const lathe_host *host = lathe_host_get();
    cr_assert_eq(host->size, sizeof(lathe_host));
    cr_assert_eq(lathe_fail(host, LATHE_E_ARG, "beta1 is %g", 1.5), LATHE_E_ARG);
    cr_assert_str_eq(lathe_error_message(), "beta1 is 1.5");
    cr_assert_eq(host->n_threads(), lathe_parallel_threads());
}
