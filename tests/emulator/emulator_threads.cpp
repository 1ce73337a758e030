/* The threads of a block as fibers: one runs at a time, a scheduler resumes those whose barrier is full. */
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

enum fiber_state { RUNNABLE, AT_BLOCK, AT_WARP, DONE };

struct fiber {
    ucontext_t context;
    char *stack;
    fiber_state state;
    unsigned mask; /* of the warp barrier it waits at */
};

fiber fibers[MOST_THREADS];
ucontext_t scheduler;
int n_threads, current;
const std::function<void()> *body;
char cells[MOST_THREADS / WARP][WARP * 16];
unsigned n_launches;

#ifdef __SANITIZE_ADDRESS__
const void *scheduler_stack;
size_t scheduler_stack_bytes;

void leave_for(const void *stack, size_t bytes, int is_last)
{
    static thread_local void *fake;
    __sanitizer_start_switch_fiber(is_last ? nullptr : &fake, stack, bytes);
}

void arrived()
{
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
}
#endif

void to_scheduler(int is_last)
{
#ifdef __SANITIZE_ADDRESS__
    leave_for(scheduler_stack, scheduler_stack_bytes, is_last);
#else
    (void)is_last;
#endif
    swapcontext(&fibers[current].context, &scheduler);
#ifdef __SANITIZE_ADDRESS__
    arrived();
#endif
}

void thread_main()
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
#endif
    (*body)();
    fibers[current].state = DONE;
    to_scheduler(1);
}

void resume(int t)
{
    current = t;
    emulator::emulator_thread = {(unsigned)t, 0, 0};
#ifdef __SANITIZE_ADDRESS__
    leave_for(fibers[t].stack, STACK_BYTES, 0);
#endif
    swapcontext(&scheduler, &fibers[t].context);
#ifdef __SANITIZE_ADDRESS__
    arrived();
#endif
}

void make(fiber *f)
{
    if (f->stack == nullptr) {
        void *stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED)
            abort();
        f->stack = (char *)stack;
    }
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = nullptr;
    makecontext(&f->context, thread_main, 0);
    f->state = RUNNABLE;
}

/* Lets go of what waits at full barriers; how many. */
int release()
{
    int n_done = 0, n_at_block = 0, n_released = 0;
    for (int t = 0; t < n_threads; t++) {
        n_done += fibers[t].state == DONE;
        n_at_block += fibers[t].state == AT_BLOCK;
    }
    if (n_at_block > 0 && n_at_block + n_done == n_threads) {
        for (int t = 0; t < n_threads; t++)
            if (fibers[t].state == AT_BLOCK)
                fibers[t].state = RUNNABLE;
        return n_at_block;
    }
    for (int t = 0; t < n_threads; t++) {
        if (fibers[t].state != AT_WARP)
            continue;
        const int first = t / WARP * WARP;
        const unsigned mask = fibers[t].mask;
        int is_full = 1;
        for (int lane = 0; lane < WARP && first + lane < n_threads; lane++) {
            const fiber *f = &fibers[first + lane];
            if ((mask >> lane & 1u) && (f->state != AT_WARP || f->mask != mask))
                is_full = 0;
        }
        for (int lane = 0; is_full && lane < WARP && first + lane < n_threads; lane++)
            if (mask >> lane & 1u) {
                fibers[first + lane].state = RUNNABLE;
                n_released++;
            }
    }
    return n_released;
}

void run_block(const char *name, int is_reversed)
{
    for (int t = 0; t < n_threads; t++)
        make(&fibers[t]);
    for (;;) {
        int n_left = 0;
        for (int i = 0; i < n_threads; i++) {
            const int t = is_reversed ? n_threads - 1 - i : i;
            if (fibers[t].state == RUNNABLE)
                resume(t);
            n_left += fibers[t].state != DONE;
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
    fibers[current].state = AT_BLOCK;
    to_scheduler(0);
}

void emulator::emulator_sync_warp(unsigned mask)
{
    fibers[current].state = AT_WARP;
    fibers[current].mask = mask;
    to_scheduler(0);
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
    const int is_reversed = (int)((n_launches++ * 2654435761u) >> 16 & 1u);
    n_threads = threads;
    body = &thread;
    emulator::emulator_block_dim = {(unsigned)threads, 1, 1};
    emulator::emulator_grid_dim = {(unsigned)blocks, 1, 1};
    for (int64_t b = 0; b < blocks; b++) {
        emulator::emulator_block = {(unsigned)(is_reversed ? blocks - 1 - b : b), 0, 0};
        run_block(name, is_reversed);
    }
}
