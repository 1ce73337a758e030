/* Switches stacks by the System V calling convention on x86-64: saves six registers and the stack
 * pointer. */
#include "emulator_context.h"

#ifdef __x86_64__
__asm__(R"(
    .text
    .hidden emulator_context_swap
    .globl emulator_context_swap
    .type emulator_context_swap, @function
emulator_context_swap:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulator_context_swap, . - emulator_context_swap
)");
#endif
