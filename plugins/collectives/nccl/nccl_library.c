/* Opens the NCCL library and looks up its functions. */
#include "nccl_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifndef NCCL_LIBRARY_FILE
#define NCCL_LIBRARY_FILE "libnccl.so.2"
#endif

static nccl_library library;
static char missing[256]; /* "": not tried yet, or opened */

static void open_it(void)
{
    void *const so = dlopen(NCCL_LIBRARY_FILE, RTLD_NOW | RTLD_LOCAL);
    const char *error = so == NULL ? dlerror() : NULL;
#define X(result, name, parameters)                                                                \
    if (error == NULL) {                                                                           \
        *(void **)&library.name = dlsym(so, #name);                                                \
        if (library.name == NULL)                                                                  \
            error = dlerror();                                                                     \
    }
    NCCL_FUNCTIONS(X)
#undef X
    if (error != NULL) {
        (void)snprintf(missing, sizeof missing,
                       "NCCL 2 cannot be opened (%.120s): install it (apt install libnccl2, or "
                       "pip's nvidia-nccl with its lib folder in LD_LIBRARY_PATH)",
                       error);
        return;
    }
    if (library.ncclGetVersion(&library.version) != ncclSuccess ||
        library.version < NCCL_LEAST_VERSION)
        (void)snprintf(missing, sizeof missing, "NCCL is %d.%d.%d, 2.14 or later is needed",
                       library.version / 10000, library.version / 100 % 100, library.version % 100);
}

const nccl_library *nccl_library_open(char *why, int64_t why_bytes)
{
    if (library.version == 0 && missing[0] == '\0')
        open_it();
    if (missing[0] == '\0')
        return &library;
    (void)snprintf(why, (size_t)why_bytes, "%s", missing);
    return NULL;
}
