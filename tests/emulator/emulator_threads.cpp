/* Runs the threads of a block as fibers, one at a time and in rounds: in a round, each thread that
 * does not wait runs until it waits or ends; between two rounds, complete barriers are released. A
 * thread that waits switches to the next one of the round directly. A fiber runs thread after
 * thread until one of them waits, so a kernel without barriers needs a single fiber. */
#include "emulator_threads.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "emulator_checks.h"
#include "emulator_context.h"
#include "emulator_kernel.h"

namespace
{

enum { MOST_THREADS = 1024, WARP = 32 };
constexpr size_t STACK_BYTES = (size_t)1 << 18;

enum thread_state { NEW, RUNNABLE, AT_BLOCK, AT_WARP, DONE };

struct thread {
    thread_state state;
    unsigned mask; /* of the warp barrier at which it waits */
    int orders_memory;
    const char *file; /* of the block's barrier; and the line */
    int line;
    emulator_context *on;
};

thread threads[MOST_THREADS];
emulator_context fibers[MOST_THREADS]; /* created once for all launches */
emulator_context *idle[MOST_THREADS];  /* created, and currently without a thread */
int n_fibers, n_idle;
emulator_context scheduler;
int n_threads, is_reversed;
int n_seen;  /* threads that this round has passed */
int current; /* thread */
void (*body)(const void *);
const void *body_args;
/* Values that the threads of a warp give to an exchange, and those of its last complete one. */
char given[MOST_THREADS / WARP][WARP * 16], exchanged[MOST_THREADS / WARP][WARP * 16];
unsigned n_launches;

void set_current(int t)
{
    current = t;
    emulator::emulator_thread = {(unsigned)t, 0, 0};
    emulator_checks_thread(t, threads[t].on->stack, STACK_BYTES);
}

/* The order of threads in this launch. */
int nth_thread(int i)
{
    return is_reversed ? n_threads - 1 - i : i;
}

/* The next thread of the round that does not wait; -1: none is left. */
int next_of_round(void)
{
    while (n_seen < n_threads) {
        const int t = nth_thread(n_seen++);
        if (threads[t].state == NEW || threads[t].state == RUNNABLE)
            return t;
    }
    return -1;
}

/* Gives the thread a fiber that has run before, if it has none yet; 0: there is no such fiber. */
int find_fiber(int t)
{
    if (threads[t].state == NEW && n_idle == 0)
        return 0;
    if (threads[t].state == NEW)
        threads[t].on = idle[--n_idle];
    return 1;
}

/* Leaves the fiber `self` for the next thread of the round, or for the scheduler, which ends the
 * round and is the only one to start a fiber for the first time. */
void leave(emulator_context *self)
{
    const int next = next_of_round();
    if (next < 0 || !find_fiber(next)) {
        n_seen -= next >= 0; /* this thread is still to be run */
        emulator_context_switch(self, &scheduler);
        return;
    }
    threads[next].state = RUNNABLE;
    set_current(next);
    if (threads[next].on != self)
        emulator_context_switch(self, threads[next].on);
}

void fiber_main(void)
{
    emulator_context_begun(&scheduler);
    emulator_context *const self = threads[current].on;
    for (;;) {
        body(body_args);
        threads[current].state = DONE;
        idle[n_idle++] = self;
        leave(self);
    }
}

/* Stacks begin at different places of their pages: otherwise the frames of all threads would share
 * a few sets of the cache. */
emulator_context *make_fiber(void)
{
    const size_t unused = (size_t)n_fibers * 1088 % (STACK_BYTES / 4) / 64 * 64;
    emulator_context *f = &fibers[n_fibers++];
    void *stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED)
        abort();
    emulator_context_make(f, (char *)stack, STACK_BYTES - unused, fiber_main);
    return f;
}

/* Runs a round, or the part of it that is left. */
void run_round(void)
{
    for (int t = next_of_round(); t >= 0; t = next_of_round()) {
        if (!find_fiber(t))
            threads[t].on = make_fiber();
        threads[t].state = RUNNABLE;
        set_current(t);
        emulator_context_switch(&scheduler, threads[t].on);
    }
}

/* Releases a barrier at which all threads of the block wait. */
void release_block()
{
    const thread *first = nullptr;
    for (int t = 0; t < n_threads; t++) {
        if (threads[t].state != AT_BLOCK)
            continue;
        first = first != nullptr ? first : &threads[t];
        if (threads[t].line != first->line ||
            (threads[t].file != first->file && strcmp(threads[t].file, first->file) != 0)) {
            set_current(t);
            emulator_refuse("waits at %s:%d, and thread %d at %s:%d", threads[t].file,
                            threads[t].line, (int)(first - threads), first->file, first->line);
        }
        threads[t].state = RUNNABLE;
    }
    emulator_checks_barrier();
}

/* Releases all complete barriers; returns the number of released threads. */
int release()
{
    int n_done = 0, n_at_block = 0, n_released = 0;
    for (int t = 0; t < n_threads; t++) {
        n_done += threads[t].state == DONE;
        n_at_block += threads[t].state == AT_BLOCK;
    }
    if (n_at_block > 0 && n_at_block + n_done == n_threads) {
        release_block();
        return n_at_block;
    }
    for (int t = 0; t < n_threads; t++) {
        if (threads[t].state != AT_WARP)
            continue;
        const int first = t / WARP * WARP;
        const unsigned mask = threads[t].mask;
        int is_full = 1;
        for (int lane = 0; lane < WARP && first + lane < n_threads; lane++) {
            const thread *f = &threads[first + lane];
            if ((mask >> lane & 1u) && (f->state != AT_WARP || f->mask != mask))
                is_full = 0;
        }
        if (is_full && threads[t].orders_memory)
            emulator_checks_warp(first / WARP);
        else if (is_full)
            memcpy(exchanged[first / WARP], given[first / WARP], sizeof given[0]);
        for (int lane = 0; is_full && lane < WARP && first + lane < n_threads; lane++)
            if (mask >> lane & 1u) {
                threads[first + lane].state = RUNNABLE;
                n_released++;
            }
    }
    return n_released;
}

void run_block(const char *name)
{
    for (int t = 0; t < n_threads; t++)
        threads[t].state = NEW;
    emulator_checks_block();
    for (;;) {
        int n_left = 0;
        n_seen = 0;
        run_round();
        for (int t = 0; t < n_threads; t++)
            n_left += threads[t].state != DONE;
        if (n_left == 0)
            return;
        if (release() == 0) {
            fprintf(stderr, "emulator: %s: %d threads wait at a barrier that others never reach\n",
                    name, n_left);
            abort();
        }
    }
}

} // namespace

emulator::index3 emulator::emulator_thread, emulator::emulator_block, emulator::emulator_block_dim,
    emulator::emulator_grid_dim;

void emulator::emulator_sync_block(const char *file, int line)
{
    threads[current].state = AT_BLOCK;
    threads[current].file = file;
    threads[current].line = line;
    leave(threads[current].on);
}

void emulator::emulator_sync_warp(unsigned mask, int orders_memory)
{
    if (!(mask >> current % WARP & 1u))
        emulator_refuse("waits for lanes %#x of its warp, and is none of them", mask);
    threads[current].state = AT_WARP;
    threads[current].mask = mask;
    threads[current].orders_memory = orders_memory;
    leave(threads[current].on);
}

void emulator::emulator_no_lane(unsigned mask, int from)
{
    emulator_refuse("asks lane %d for a value, which lanes %#x exchange", from, mask);
}

void *emulator::emulator_given(void)
{
    return given[current / WARP];
}

const void *emulator::emulator_exchanged(void)
{
    return exchanged[current / WARP];
}

void emulator_run_grid(const char *name, int64_t blocks, int threads, void (*thread)(const void *),
                       const void *args, size_t args_bytes)
{
    if (threads < 1 || threads > MOST_THREADS || blocks < 1 || blocks > INT32_MAX) {
        fprintf(stderr, "emulator: %s: %lld blocks of %d threads\n", name, (long long)blocks,
                threads);
        abort();
    }
    is_reversed = (int)((n_launches++ * 2654435761u) >> 16 & 1u);
    n_threads = threads;
    body = thread;
    body_args = args;
    emulator_checks_begin(name, thread, blocks, args, args_bytes);
    emulator::emulator_block_dim = {(unsigned)threads, 1, 1};
    emulator::emulator_grid_dim = {(unsigned)blocks, 1, 1};
    for (int64_t b = 0; b < blocks; b++) {
        emulator::emulator_block = {(unsigned)(is_reversed ? blocks - 1 - b : b), 0, 0};
        run_block(name);
    }
    emulator_checks_end();
}
