/* One of several stacks on which a thread runs in turn. swapcontext does the same, and is used on
 * other processors, but it makes a system call for signals at each switch, and the address
 * sanitizer then clears the shadow of the stack. */
#ifndef EMULATOR_CONTEXT_H
#define EMULATOR_CONTEXT_H

#include <cstddef>
#include <cstring>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __x86_64__

/* Saves what a call must preserve on the stack that it leaves, and restores it from the other
 * stack. */
extern "C" void emulator_context_swap(void **from, void *to);

#else

#include <ucontext.h>

#endif

struct emulator_context {
#ifdef __x86_64__
    void *at; /* top of the saved stack */
#else
    ucontext_t at;
#endif
    const void
        *stack; /* lowest address and size; for the first stack, as the sanitizer reports them */
    size_t bytes;
};

/* Prepares a stack: the next switch to it calls main, which must not return. */
static inline void emulator_context_make(emulator_context *c, char *stack, size_t bytes,
                                         void (*main)(void))
{
    c->stack = stack;
    c->bytes = bytes;
#ifdef __x86_64__
    void *frame[8] = {}; /* six registers, the address to continue at, and no return address */
    memcpy(&frame[6], &main, sizeof main);
    c->at = stack + bytes - sizeof frame;
    memcpy(c->at, frame, sizeof frame);
#else
    getcontext(&c->at);
    c->at.uc_stack.ss_sp = stack;
    c->at.uc_stack.ss_size = bytes;
    c->at.uc_link = nullptr;
    makecontext(&c->at, main, 0);
#endif
}

static inline void emulator_context_switch(emulator_context *from, emulator_context *to)
{
#ifdef __SANITIZE_ADDRESS__
    void *fake;
    __sanitizer_start_switch_fiber(&fake, to->stack, to->bytes);
#endif
#ifdef __x86_64__
    emulator_context_swap(&from->at, to->at);
#else
    swapcontext(&from->at, &to->at);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

/* Must be the first call in main; `from` is the first stack. */
static inline void emulator_context_begun(emulator_context *from)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &from->stack, &from->bytes);
#else
    (void)from;
#endif
}

#endif
