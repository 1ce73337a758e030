/* Opens the cuDNN 9 library at run time. */
#ifndef LATHE_CUDNN_LIBRARY_H
#define LATHE_CUDNN_LIBRARY_H

#include "cudnn_api.h"

/** The oldest supported version, 10000 major + 100 minor + patch. According to NVIDIA's
 *  cudnn-frontend, 9.10.0 and 9.10.1 give wrong results, 9.14.0 gives wrong results with a
 *  sliding window, and versions up to 9.15.0 need a workaround for numbers of keys that are no
 *  multiple of 128. */
#define CUDNN_LEAST_VERSION 91501

typedef struct cudnn_library {
    size_t version;
#define X(result, name, parameters) result(*name) parameters;
    CUDNN_FUNCTIONS(X)
#undef X
} cudnn_library;

/** Opens `file`, a path or a name that the system's loader finds. Returns 0, with the reason in
 *  `why` (one line), if the file or a function is missing, or if the version is older than
 *  CUDNN_LEAST_VERSION or not a version 9. The library is never closed, because its threads do not
 *  survive dlclose. */
int32_t cudnn_library_open(cudnn_library *out, const char *file, char *why, int64_t why_bytes);

#endif
