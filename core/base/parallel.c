/* parallel_for over OpenMP's pool, and the host table made of this floor's services.
 *
 * Chunks go to workers in contiguous runs fixed by (n, grain, pool size): the same worker touches the
 * same memory each time. Every region uses the whole pool, because libgomp allocates a new team when
 * the size of a region changes and keeps the old one when it does not.
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

/* Set while a body runs on this thread: calls from within are serial, on this worker. */
static _Thread_local int inside;
static _Thread_local int32_t this_worker;

void lathe_parallel_init(int32_t n_threads)
{
    const int n = n_threads < 1 ? omp_get_num_procs() : n_threads;
    omp_set_dynamic(0);
    omp_set_num_threads(n); /* libraries on the same runtime (oneDNN) follow */
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
static void run_chunks(int64_t n, int64_t grain, int64_t first, int64_t last, lathe_range_fn fn,
                       void *arg, int32_t worker)
{
    for (int64_t c = first; c < last; c++) {
        const int64_t begin = c * grain;
        fn(arg, begin, n - begin < grain ? n : begin + grain, worker);
    }
}

/* Worker w's chunks of the loop among `team` workers. */
static void run_share(const loop *l, int64_t w, int64_t team)
{
    const int64_t share = l->n_chunks / team, rest = l->n_chunks % team;
    const int64_t first = w * share + (w < rest ? w : rest);
    inside = 1;
    this_worker = (int32_t)w;
    run_chunks(l->n, l->grain, first, first + share + (w < rest), l->fn, l->arg, (int32_t)w);
    inside = 0;
    this_worker = 0;
}

/* ---- a team: threads that wait for loops without sleeping ---- */

#define SPINS                                                                                      \
    2000 /* looks at the counter before other threads are let run, some tens of microseconds */

static struct {
    loop loop; /* written by the leader before `turn` */
    atomic_uint turn, n_done;
    int n_workers;
} team;

/* There is one team at a time; a second thread that wants one goes without. */
static atomic_flag taken = ATOMIC_FLAG_INIT;

/* Set on the thread that leads the team. */
static _Thread_local int leads;

static void pause_processor(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Waits until the counter differs from `from`. */
static unsigned wait_for_change(atomic_uint *counter, unsigned from)
{
    unsigned now;
    for (int i = 0; (now = atomic_load_explicit(counter, memory_order_acquire)) == from; i++)
        if (i < SPINS)
            pause_processor();
        else
            (void)sched_yield();
    return now;
}

/* A loop without a body ends the team. */
static void follow(int worker)
{
    for (unsigned seen = 0;;) {
        seen = wait_for_change(&team.turn, seen);
        if (!team.loop.fn)
            return;
        run_share(&team.loop, worker, team.n_workers);
        (void)atomic_fetch_add_explicit(&team.n_done, 1, memory_order_release);
    }
}

static void lead_loop(const loop *l)
{
    team.loop = *l;
    atomic_store_explicit(&team.n_done, 0, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&team.turn, 1, memory_order_release);
    if (!l->fn)
        return;
    run_share(l, 0, team.n_workers);
    const unsigned others = (unsigned)team.n_workers - 1;
    unsigned done = atomic_load_explicit(&team.n_done, memory_order_acquire);
    while (done != others)
        done = wait_for_change(&team.n_done, done);
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
#pragma omp parallel num_threads(n_workers)
    {
        const int w = omp_get_thread_num();
        if (w > 0) {
            follow(w);
        } else {
            const loop end = {0};
            team.n_workers = omp_get_num_threads();
            leads = 1;
            fn(arg);
            leads = 0;
            lead_loop(&end);
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
        run_chunks(n, grain, 0, n_chunks, fn, arg, this_worker);
        return;
    }
#pragma omp parallel num_threads(n_workers)
    /* The runtime may give fewer threads than asked; all chunks still run. */
    run_share(&l, omp_get_thread_num(), omp_get_num_threads());
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

static void host_log(int32_t level, const char *message)
{
    lathe_log(level, "%s", message);
}

static lathe_status host_fail(lathe_status code, const char *message)
{
    return lathe_error(code, "%s", message);
}

static void *host_alloc(int64_t bytes)
{
    enum { ALIGN = 64 };
    if (bytes < 0 || bytes > INT64_MAX / 2)
        return NULL;
    const size_t rounded = ((size_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
    void *memory = aligned_alloc(ALIGN, rounded == 0 ? ALIGN : rounded);
    if (memory == NULL)
        return NULL;
    lathe_heap_count();
    return memset(memory, 0, rounded == 0 ? ALIGN : rounded);
}

static void host_free(void *memory)
{
    free(memory);
}

const lathe_host *lathe_host_get(void)
{
    static const lathe_host host = {
        .size = (uint32_t)sizeof host,
        .abi_minor = LATHE_ABI_MINOR,
        .log = host_log,
        .fail = host_fail,
        .parallel_for = lathe_parallel_for,
        .n_threads = lathe_parallel_threads,
        .alloc = host_alloc,
        .free = host_free,
        .check_kernel = lathe__host_check_kernel,
    };
    return &host;
}
