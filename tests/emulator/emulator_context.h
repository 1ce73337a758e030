/* One of several stacks that a thread runs on by turns. swapcontext would serve, and does on other
 * processors, but asks the kernel about signals at each turn, and the address sanitizer then wipes
 * the shadow of the stack. */
#ifndef EMULATOR_CONTEXT_H
#define EMULATOR_CONTEXT_H

#include <cstddef>
#include <cstring>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __x86_64__

/* Puts what a call has to keep on the stack it leaves, and takes it from the stack it goes to. */
extern "C" void emulator_context_swap(void **from, void *to);

#else

#include <ucontext.h>

#endif

struct emulator_context {
#ifdef __x86_64__
    void *at; /* the top of the stack it left */
#else
    ucontext_t at;
#endif
    const void
        *stack; /* its lowest address, and its size; of the first stack, what the sanitizer says */
    size_t bytes;
};

/* The next switch to it calls main, which never returns. */
static inline void emulator_context_make(emulator_context *c, char *stack, size_t bytes,
                                         void (*main)(void))
{
    c->stack = stack;
    c->bytes = bytes;
#ifdef __x86_64__
    void *frame[8] = {}; /* six registers, the address to go to, and none after it */
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

/* What main does first; `from` is the first stack. */
static inline void emulator_context_begun(emulator_context *from)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &from->stack, &from->bytes);
#else
    (void)from;
#endif
}

#endif
