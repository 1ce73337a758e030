/* Libraries that cudnn_library_open must refuse: version FAKE_VERSION, and with FAKE_LACKS without
 * cudnnBackendExecute. */
#include <stddef.h>

#define NAMES(X)                                                                                   \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnGetLastErrorString)                                                                     \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnSetStream)                                                                              \
    X(cudnnBackendCreateDescriptor)                                                                \
    X(cudnnBackendDestroyDescriptor)                                                               \
    X(cudnnBackendSetAttribute)                                                                    \
    X(cudnnBackendGetAttribute)                                                                    \
    X(cudnnBackendFinalize)

#define X(name)                                                                                    \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return 1;                                                                                  \
    }
NAMES(X)
#ifndef FAKE_LACKS
X(cudnnBackendExecute)
#endif

size_t cudnnGetVersion(void);
size_t cudnnGetVersion(void)
{
    return FAKE_VERSION;
}
