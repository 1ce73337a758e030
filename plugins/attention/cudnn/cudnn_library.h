/* cuDNN 9, opened at run time. */
#ifndef LATHE_CUDNN_LIBRARY_H
#define LATHE_CUDNN_LIBRARY_H

#include "cudnn_api.h"

/** The oldest that is used, 10000 major + 100 minor + patch. 9.10.0 and .1 give wrong results, 9.14.0 does with
 *  windows, and up to 9.15.0 keys that are no multiple of 128 need a detour: so NVIDIA's cudnn-frontend. */
#define CUDNN_LEAST_VERSION 91501

typedef struct cudnn_library {
    size_t version;
#define X(result, name, parameters) result(*name) parameters;
    CUDNN_FUNCTIONS(X)
#undef X
} cudnn_library;

/** Opens `file`, a path or a name that the system's loader finds. 0, and why in one line, when it or a
 *  function is missing or its version is another than 9's from CUDNN_LEAST_VERSION on. It stays open: its
 *  threads do not survive dlclose. */
int32_t cudnn_library_open(cudnn_library *out, const char *file, char *why, int64_t why_bytes);

#endif
