/* Opens the NCCL library at run time. */
#ifndef LATHE_NCCL_LIBRARY_H
#define LATHE_NCCL_LIBRARY_H

#include <stdint.h>

#include "nccl_api.h"

/** The oldest supported version: calls that do not block begin with it. */
enum { NCCL_LEAST_VERSION = 21400 };

typedef struct nccl_library {
    int version; /* 10000 major + 100 minor + patch */
#define X(result, name, parameters) result(*name) parameters;
    NCCL_FUNCTIONS(X)
#undef X
} nccl_library;

/** The library, opened at the first call and never closed. NULL, with the reason in `why` (one
 *  line), if the file or a function is missing, or if it is older than NCCL_LEAST_VERSION. */
const nccl_library *nccl_library_open(char *why, int64_t why_bytes);

#endif
