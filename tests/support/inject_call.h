/* The question that each replaced libc function asks (inject_libc.c). */
#ifndef LATHE_TEST_INJECT_CALL_H
#define LATHE_TEST_INJECT_CALL_H

#include <stdint.h>

/** Counts a call of the function `name`, of the set `call` (INJECT_*), that returns to `caller`.
 *  Returns 1 and sets errno if it has to fail. */
int inject_call_fails(uint32_t call, const char *name, const void *caller);

#endif
