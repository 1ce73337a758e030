/* Opens the cuDNN library and looks up its functions. */
#include "cudnn_library.h"

#include <dlfcn.h>
#include <stdio.h>

int32_t cudnn_library_open(cudnn_library *out, const char *file, char *why, int64_t why_bytes)
{
    void *so = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    const char *missing = so == NULL ? dlerror() : NULL;
#define X(result, name, parameters)                                                                \
    if (missing == NULL) {                                                                         \
        *(void **)&out->name = dlsym(so, #name);                                                   \
        if (out->name == NULL)                                                                     \
            missing = dlerror();                                                                   \
    }
    CUDNN_FUNCTIONS(X)
#undef X
    if (missing != NULL) {
        (void)snprintf(why, (size_t)why_bytes, "cuDNN 9 cannot be opened: %s", missing);
        return 0;
    }
    const size_t v = out->version = out->cudnnGetVersion();
    if (v < CUDNN_LEAST_VERSION || v >= 100000) {
        (void)snprintf(why, (size_t)why_bytes, "cuDNN is %zu.%zu.%zu, a 9 from 9.15.1 on is needed",
                       v / 10000, v / 100 % 100, v % 100);
        return 0;
    }
    return 1;
}
