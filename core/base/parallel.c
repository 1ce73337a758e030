/* Runs parallel loops on OpenMP's thread pool.
 *
 * Every worker first takes the chunks of a contiguous share fixed by (n, grain, pool size), front
 * to back, so that it touches the same memory each time. A worker that has finished its share takes
 * chunks from the ends of the others' shares: one that the operating system has stopped, or that
 * runs on a slower core, delays a loop by one chunk and not by its whole share. Every region uses
 * the whole pool, because libgomp allocates a new team when the size of a region changes and keeps
 * the old one when it does not.
 */
#include "base/parallel.h"

#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/log.h"

static atomic_int pool_size; /* 0: not chosen yet */

/* Set while a loop body runs on this thread: nested loops then run serially on this worker. */
static _Thread_local int inside;
static _Thread_local int32_t this_worker;

/* One thread per CPU that the process may use; OMP_NUM_THREADS, which the runtime has read at the
 * start of the program, sets another number, as for other programs on OpenMP. */
static int default_threads(void)
{
    static atomic_int asked; /* before the first omp_set_num_threads() */
    const char *text = getenv("OMP_NUM_THREADS");
    if (text == NULL || text[0] == '\0')
        return omp_get_num_procs();
    if (atomic_load(&asked) == 0)
        atomic_store(&asked, omp_get_max_threads());
    return atomic_load(&asked);
}

void lathe_parallel_init(int32_t n_threads)
{
    const int of_program = default_threads();
    const int n = n_threads < 1 ? of_program : n_threads;
    omp_set_dynamic(0);
    omp_set_num_threads(n); /* libraries on the same runtime (oneDNN) use the same size */
    atomic_store(&pool_size, n);
}

int32_t lathe_parallel_threads(void)
{
    if (atomic_load(&pool_size) == 0)
        lathe_parallel_init(0);
    return atomic_load(&pool_size);
}

typedef struct loop {
    int64_t n, grain, n_chunks;
    lathe_range_fn fn;
    void *arg;
} loop;

/* Chunks [first, last) of the loop, in order. */
static void run_chunks(const loop *l, int64_t first, int64_t last, int32_t worker)
{
    for (int64_t c = first; c < last; c++) {
        const int64_t begin = c * l->grain;
        l->fn(l->arg, begin, l->n - begin < l->grain ? l->n : begin + l->grain, worker);
    }
}

/* ---- shares of a loop, from which every worker may take ---- */

/* In a larger pool, the other workers have no share of their own and take from these shares. */
#define MAX_SHARES 256
#define MAX_UNITS 65535

/* The units [begin, end) of a share that nobody has taken yet, and the loop they belong to:
 * loop << 32 | end << 16 | begin. A unit is unit_chunks() chunks. */
typedef struct loop_share {
    _Alignas(64) _Atomic uint64_t left;
} loop_share;

static int64_t unit_chunks(const loop *l)
{
    return 1 + l->n_chunks / MAX_UNITS;
}

/* Divides the units of the loop `id` evenly into n_shares shares. */
static void deal(const loop *l, loop_share *shares, int64_t n_shares, uint32_t id)
{
    const int64_t per_unit = unit_chunks(l), n_units = (l->n_chunks + per_unit - 1) / per_unit;
    const int64_t even = n_units / n_shares, rest = n_units % n_shares;
    int64_t begin = 0;
    for (int64_t w = 0; w < n_shares; w++) {
        const int64_t end = begin + even + (w < rest);
        atomic_store_explicit(&shares[w].left,
                              (uint64_t)id << 32 | (uint64_t)end << 16 | (uint64_t)begin,
                              memory_order_release);
        begin = end;
    }
}

/* Takes the first or the last unit of a share; -1: no unit of the loop `id` is left. */
static int64_t take_unit(loop_share *s, uint32_t id, int from_end)
{
    uint64_t left = atomic_load_explicit(&s->left, memory_order_acquire);
    for (;;) {
        const uint64_t begin = left & 0xffff, end = left >> 16 & 0xffff;
        if (left >> 32 != id || begin >= end)
            return -1;
        const uint64_t rest = from_end ? left - ((uint64_t)1 << 16) : left + 1;
        if (atomic_compare_exchange_weak_explicit(&s->left, &left, rest, memory_order_acq_rel,
                                                  memory_order_acquire))
            return (int64_t)(from_end ? end - 1 : begin);
    }
}

/* Runs units of the loop `id` until none is left: those of worker w's share, then those of the
 * others'. Returns the number of chunks run. */
static int64_t run_shares(const loop *l, loop_share *shares, int64_t n_shares, uint32_t id,
                          int32_t w)
{
    const int64_t per_unit = unit_chunks(l);
    int64_t n_run = 0;
    inside = 1;
    this_worker = w;
    for (int64_t i = 0; i < n_shares; i++)
        for (;;) {
            const int64_t unit = take_unit(&shares[(w + i) % n_shares], id, i > 0 || w >= n_shares);
            if (unit < 0)
                break;
            const int64_t first = unit * per_unit;
            const int64_t last = l->n_chunks - first < per_unit ? l->n_chunks : first + per_unit;
            run_chunks(l, first, last, w);
            n_run += last - first;
        }
    inside = 0;
    this_worker = 0;
    return n_run;
}

/* ---- a team: threads that wait for loops without sleeping ---- */

/* Number of polls of a counter before the thread yields: some tens of microseconds. */
#define SPINS 2000

/* The leader writes a loop, divides it into shares that carry the loop's number, and sets `turn`
 * to that number. A late follower may read a loop that is half overwritten by the next one, but
 * it cannot take chunks of it, because the loop's number does not match. The leader waits for
 * chunks that were taken, never for followers that took none. */
static struct {
    _Atomic int64_t n, grain, n_chunks;
    _Atomic(lathe_range_fn) fn;
    _Atomic(void *) arg;
    atomic_uint turn; /* the number of the loop, from 1 on */
    atomic_int ends;
    _Alignas(64) _Atomic int64_t n_done; /* chunks that followers finished */
    int32_t n_shares;
    loop_share shares[MAX_SHARES];
} team;

/* Only one team exists at a time; a second thread that asks for a team runs without one. */
static atomic_flag taken = ATOMIC_FLAG_INIT;

/* Set on the thread that leads the team. */
static _Thread_local int leads;

static void pause_processor(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Pauses or yields after the i-th poll of a counter without success. */
static void wait_a_little(int i)
{
    if (i < SPINS)
        pause_processor();
    else
        (void)sched_yield();
}

/* Waits until the turn differs from `seen`. */
static unsigned wait_for_turn(unsigned seen)
{
    unsigned now;
    for (int i = 0; (now = atomic_load_explicit(&team.turn, memory_order_acquire)) == seen; i++)
        wait_a_little(i);
    return now;
}

static void follow(int worker)
{
    for (unsigned seen = 0;;) {
        seen = wait_for_turn(seen);
        if (atomic_load_explicit(&team.ends, memory_order_relaxed))
            return;
        const loop l = {.n = atomic_load_explicit(&team.n, memory_order_relaxed),
                        .grain = atomic_load_explicit(&team.grain, memory_order_relaxed),
                        .n_chunks = atomic_load_explicit(&team.n_chunks, memory_order_relaxed),
                        .fn = atomic_load_explicit(&team.fn, memory_order_relaxed),
                        .arg = atomic_load_explicit(&team.arg, memory_order_relaxed)};
        const int64_t n_run = run_shares(&l, team.shares, team.n_shares, seen, worker);
        if (n_run > 0)
            (void)atomic_fetch_add_explicit(&team.n_done, n_run, memory_order_release);
    }
}

static void lead_loop(const loop *l)
{
    const unsigned id = atomic_load_explicit(&team.turn, memory_order_relaxed) + 1;
    atomic_store_explicit(&team.n, l->n, memory_order_relaxed);
    atomic_store_explicit(&team.grain, l->grain, memory_order_relaxed);
    atomic_store_explicit(&team.n_chunks, l->n_chunks, memory_order_relaxed);
    atomic_store_explicit(&team.fn, l->fn, memory_order_relaxed);
    atomic_store_explicit(&team.arg, l->arg, memory_order_relaxed);
    atomic_store_explicit(&team.n_done, 0, memory_order_relaxed);
    deal(l, team.shares, team.n_shares, id);
    atomic_store_explicit(&team.turn, id, memory_order_release);
    const int64_t others = l->n_chunks - run_shares(l, team.shares, team.n_shares, id, 0);
    for (int i = 0; atomic_load_explicit(&team.n_done, memory_order_acquire) != others; i++)
        wait_a_little(i);
}

void lathe_parallel_team(void (*fn)(void *arg), void *arg)
{
    const int32_t n_workers = lathe_parallel_threads();
    if (inside || leads || n_workers == 1 || omp_in_parallel() ||
        atomic_flag_test_and_set(&taken)) {
        fn(arg);
        return;
    }
    atomic_store(&team.turn, 0);
    atomic_store(&team.ends, 0);
    team.n_shares = n_workers < MAX_SHARES ? n_workers : MAX_SHARES;
#pragma omp parallel num_threads(n_workers)
    {
        const int w = omp_get_thread_num();
        if (w > 0) {
            follow(w);
        } else {
            leads = 1;
            fn(arg);
            leads = 0;
            atomic_store(&team.ends, 1);
            (void)atomic_fetch_add(&team.turn, 1);
        }
    }
    atomic_flag_clear(&taken);
}

void lathe_parallel_for(int64_t n, int64_t grain, lathe_range_fn fn, void *arg)
{
    if (n <= 0)
        return;
    if (grain < 1)
        grain = 1;
    const int64_t n_chunks = n / grain + (n % grain != 0);
    const int32_t n_workers = lathe_parallel_threads();
    const loop l = {n, grain, n_chunks, fn, arg};
    if (leads && !inside && n_chunks > 1) {
        lead_loop(&l);
        return;
    }
    if (inside || n_workers == 1 || n_chunks == 1 || omp_in_parallel()) {
        run_chunks(&l, 0, n_chunks, this_worker);
        return;
    }
    loop_share shares[MAX_SHARES];
    const int n_shares = n_workers < MAX_SHARES ? n_workers : MAX_SHARES;
    deal(&l, shares, n_shares, 0);
#pragma omp parallel num_threads(n_workers)
    /* The runtime may start fewer threads than requested; all chunks still run. */
    (void)run_shares(&l, shares, n_shares, 0, omp_get_thread_num());
}

void lathe_parallel_stay_alone(void)
{
    inside = 1;
}

typedef struct copy_job {
    char *to;
    const char *from;
} copy_job;

static void copy_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const copy_job *job = arg;
    (void)worker;
    memcpy(job->to + begin, job->from + begin, (size_t)(end - begin));
}

void lathe_parallel_copy(void *to, const void *from, int64_t bytes)
{
    enum { LEAST = 256 * 1024 };
    copy_job job = {to, from};
    const int64_t share = bytes / lathe_parallel_threads();
    if (bytes > 0)
        lathe_parallel_for(bytes, share < LEAST ? LEAST : (share + 4095) / 4096 * 4096, copy_range,
                           &job);
}
