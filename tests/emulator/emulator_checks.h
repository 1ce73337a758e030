/* Checks of memory accesses in kernels, like compute-sanitizer's: see emulator_checks.cpp. */
#ifndef LATHE_EMULATOR_CHECKS_H
#define LATHE_EMULATOR_CHECKS_H

#include <cstddef>
#include <cstdint>

/* ---- what the scheduler tells ---- */

/** Between the two, memory is looked at, in the first launches of a kernel with each grid. args:
 * the arguments, which threads may read. */
void emulator_checks_begin(const char *name, void (*kernel)(const void *), int64_t blocks,
                           const void *args, size_t args_bytes);
void emulator_checks_end(void);
/** A block begins; its threads have met at a barrier; those of a warp have. */
void emulator_checks_block(void);
void emulator_checks_barrier(void);
void emulator_checks_warp(int warp);
/** From here on this thread runs, on this stack. */
void emulator_checks_thread(int thread, const void *stack, size_t stack_bytes);
/** GPU memory was freed. */
void emulator_checks_forget(const void *memory, size_t bytes);

/* ---- what the runtime tells ---- */

/** The allocation that contains p; 0: none. Pinned memory of the host is one. */
int emulator_allocation(const void *p, const void **out_first, size_t *out_bytes);

/** Prints the message with the kernel, block and thread, and aborts. */
void emulator_refuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
