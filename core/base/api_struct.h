/* Structs that callers of the C API hand over. Their first member, `size`, is sizeof of the
 * caller's header: an older caller's struct is shorter than the library's, a newer one's longer.
 * Members that the caller does not have are read as 0 and never written. */
#ifndef LATHE_BASE_API_STRUCT_H
#define LATHE_BASE_API_STRUCT_H

#include "lathe/status.h"

/** Copies an input to *out, `bytes` long: as much as its size says, zeros after that; out->size
 *  becomes `bytes`. LATHE_E_ARG: shorter than `least`, the bytes of the first released header;
 *  the message names the struct. */
LATHE_MUST_USE lathe_status lathe_struct_read(const void *in, const char *name, int64_t least,
                                              void *out, int64_t bytes);

/** LATHE_E_ARG: the result that the caller hands over is shorter than `least`. */
LATHE_MUST_USE lathe_status lathe_struct_check(const void *out, const char *name, int64_t least);

/** Copies a result of `bytes` to the caller's struct, as much as its size says; the size stays. */
void lathe_struct_write(void *out, const void *result, int64_t bytes);

#endif
