/* Checks of memory accesses in kernels, like compute-sanitizer's: see emulator_checks.cpp. */
#ifndef LATHE_EMULATOR_CHECKS_H
#define LATHE_EMULATOR_CHECKS_H

#include <cstddef>
#include <cstdint>

/* ---- called by the scheduler ---- */

/** Between these two calls, memory accesses are checked, in the first launches of a kernel with
 *  each grid. args: the arguments, which threads may read. */
void emulator_checks_begin(const char *name, void (*kernel)(const void *), int64_t blocks,
                           const void *args, size_t args_bytes);
void emulator_checks_end(void);
/** A block begins; all its threads have reached a barrier; all threads of a warp have. */
void emulator_checks_block(void);
void emulator_checks_barrier(void);
void emulator_checks_warp(int warp);
/** This thread runs from now on, on this stack. */
void emulator_checks_thread(int thread, const void *stack, size_t stack_bytes);
/** GPU memory was freed. */
void emulator_checks_forget(const void *memory, size_t bytes);

/* ---- called by the runtime ---- */

/** The allocation that contains p, also in pinned host memory; returns 0 if there is none. */
int emulator_allocation(const void *p, const void **out_first, size_t *out_bytes);

/** Prints the message with the kernel, block and thread, and aborts. */
void emulator_refuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
