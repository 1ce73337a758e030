/* The threads of a block as fibers: one runs at a time, a scheduler resumes those whose barrier is full. A fiber
 * runs thread after thread until one of them waits, so that a kernel without barriers needs a single fiber. */
#include "emulator_threads.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <ucontext.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include "emulator_kernel.h"

namespace
{

enum { MOST_THREADS = 1024, WARP = 32 };
constexpr size_t STACK_BYTES = (size_t)1 << 18;

struct fiber {
    ucontext_t context;
    char *stack;
};

enum thread_state { NEW, RUNNABLE, AT_BLOCK, AT_WARP, DONE };

struct thread {
    thread_state state;
    unsigned mask; /* of the warp barrier it waits at */
    fiber *on;
};

thread threads[MOST_THREADS];
fiber fibers[MOST_THREADS]; /* made once, for all launches */
fiber *idle[MOST_THREADS];  /* made, and without a thread */
int n_fibers, n_idle;
ucontext_t scheduler;
int n_threads, n_begun, is_reversed;
int current; /* thread */
const std::function<void()> *body;
char cells[MOST_THREADS / WARP][WARP * 16];
unsigned n_launches;

#ifdef __SANITIZE_ADDRESS__
const void *scheduler_stack;
size_t scheduler_stack_bytes;
#endif

/* From one stack to another, which the address sanitizer is told. */
void switch_to(ucontext_t *from, ucontext_t *to, const void *stack, size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
    void *fake;
    __sanitizer_start_switch_fiber(&fake, stack, bytes);
    swapcontext(from, to);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    (void)stack, (void)bytes;
    swapcontext(from, to);
#endif
}

void to_scheduler(fiber *from)
{
#ifdef __SANITIZE_ADDRESS__
    switch_to(&from->context, &scheduler, scheduler_stack, scheduler_stack_bytes);
#else
    switch_to(&from->context, &scheduler, nullptr, 0);
#endif
}

void set_current(int t)
{
    current = t;
    emulator::emulator_thread = {(unsigned)t, 0, 0};
}

/* The order of this launch. */
int nth_thread(int i)
{
    return is_reversed ? n_threads - 1 - i : i;
}

void fiber_main(void)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
#endif
    fiber *const self = threads[current].on;
    for (;;) {
        (*body)();
        threads[current].state = DONE;
        if (n_begun < n_threads) {
            set_current(nth_thread(n_begun++));
            threads[current].on = self;
            continue;
        }
        idle[n_idle++] = self;
        to_scheduler(self);
    }
}

fiber *make_fiber(void)
{
    fiber *f = &fibers[n_fibers++];
    void *stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED)
        abort();
    f->stack = (char *)stack;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = nullptr;
    makecontext(&f->context, fiber_main, 0);
    return f;
}

void resume(int t)
{
    if (threads[t].state == NEW) {
        threads[t].on = n_idle > 0 ? idle[--n_idle] : make_fiber();
        n_begun++;
    }
    set_current(t);
    switch_to(&scheduler, &threads[t].on->context, threads[t].on->stack, STACK_BYTES);
}

/* Lets go of what waits at full barriers; how many. */
int release()
{
    int n_done = 0, n_at_block = 0, n_released = 0;
    for (int t = 0; t < n_threads; t++) {
        n_done += threads[t].state == DONE;
        n_at_block += threads[t].state == AT_BLOCK;
    }
    if (n_at_block > 0 && n_at_block + n_done == n_threads) {
        for (int t = 0; t < n_threads; t++)
            if (threads[t].state == AT_BLOCK)
                threads[t].state = RUNNABLE;
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
    n_begun = 0;
    for (;;) {
        int n_left = 0;
        for (int i = 0; i < n_threads; i++) {
            const int t = nth_thread(i);
            if (threads[t].state == NEW || threads[t].state == RUNNABLE)
                resume(t);
            n_left += threads[t].state != DONE;
        }
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

void emulator::emulator_sync_block(void)
{
    threads[current].state = AT_BLOCK;
    to_scheduler(threads[current].on);
}

void emulator::emulator_sync_warp(unsigned mask)
{
    threads[current].state = AT_WARP;
    threads[current].mask = mask;
    to_scheduler(threads[current].on);
}

void *emulator::emulator_warp_cells(void)
{
    return cells[current / WARP];
}

void emulator_run_grid(const char *name, int64_t blocks, int threads,
                       const std::function<void()> &thread)
{
    if (threads < 1 || threads > MOST_THREADS || blocks < 1 || blocks > INT32_MAX) {
        fprintf(stderr, "emulator: %s: %lld blocks of %d threads\n", name, (long long)blocks,
                threads);
        abort();
    }
    is_reversed = (int)((n_launches++ * 2654435761u) >> 16 & 1u);
    n_threads = threads;
    body = &thread;
    emulator::emulator_block_dim = {(unsigned)threads, 1, 1};
    emulator::emulator_grid_dim = {(unsigned)blocks, 1, 1};
    for (int64_t b = 0; b < blocks; b++) {
        emulator::emulator_block = {(unsigned)(is_reversed ? blocks - 1 - b : b), 0, 0};
        run_block(name);
    }
}
