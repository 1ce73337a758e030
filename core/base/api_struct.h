/* Reads and writes structs that callers of the C API pass, across versions. The first member,
 * `size`, is the struct's sizeof in the caller's header: shorter than the library's for an older
 * caller, longer for a newer one. Members that the caller does not have are read as 0 and never
 * written. */
#ifndef LATHE_BASE_API_STRUCT_H
#define LATHE_BASE_API_STRUCT_H

#include "lathe/status.h"

/** Copies an input struct to *out, `bytes` long: as many bytes as its size says, then zeros;
 *  out->size becomes `bytes`. LATHE_E_ARG: it is shorter than `least`, its size in the first
 *  released header; the message names the struct. */
LATHE_MUST_USE lathe_status lathe_struct_read(const void *in, const char *name, int64_t least,
                                              void *out, int64_t bytes);

/** Checks a result struct of the caller. LATHE_E_ARG: it is shorter than `least`. */
LATHE_MUST_USE lathe_status lathe_struct_check(const void *out, const char *name, int64_t least);

/** Copies a result of `bytes` to the caller's struct, at most as many bytes as its size says;
 *  does not change its size. */
void lathe_struct_write(void *out, const void *result, int64_t bytes);

#endif
