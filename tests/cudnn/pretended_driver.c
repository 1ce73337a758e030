/* A libcuda.so.1 without a GPU: kernels load, every other call is refused. With it, cuDNN plans
 * graphs for a GPU that is described to it; it compiles and loads kernels, but runs none. */

/* Functions that are looked up by name. */
#define REFUSED(X)                                                                                 \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxGetLimit)                                                                               \
    X(cuCtxPopCurrent)                                                                             \
    X(cuCtxPushCurrent)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetCount)                                                                            \
    X(cuDriverGetVersion)                                                                          \
    X(cuGetErrorName)                                                                              \
    X(cuGetErrorString)                                                                            \
    X(cuGetProcAddress_v2)                                                                         \
    X(cuLaunchCooperativeKernel)                                                                   \
    X(cuLaunchKernel)                                                                              \
    X(cuLaunchKernelEx)                                                                            \
    X(cuLibraryLoadFromFile)                                                                       \
    X(cuLinkAddData)                                                                               \
    X(cuLinkComplete)                                                                              \
    X(cuLinkCreate)                                                                                \
    X(cuLinkDestroy)                                                                               \
    X(cuOccupancyMaxPotentialClusterSize)                                                          \
    X(cuStreamGetCtx)
#define X(name)                                                                                    \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return 34; /* CUDA_ERROR_STUB_LIBRARY */                                                   \
    }
REFUSED(X)
#undef X

/* These return a handle in the first argument. */
int cuLibraryLoadData(void **out);
int cuLibraryGetKernel(void **out);
int cuKernelGetFunction(void **out);
int cuKernelGetAttribute(void);
int cuKernelSetAttribute(void);
int cuLibraryUnload(void);

static int loaded;

int cuLibraryLoadData(void **out)
{
    *out = &loaded;
    return 0;
}

int cuLibraryGetKernel(void **out)
{
    *out = &loaded;
    return 0;
}

int cuKernelGetFunction(void **out)
{
    *out = &loaded;
    return 0;
}

int cuKernelGetAttribute(void)
{
    return 0;
}

int cuKernelSetAttribute(void)
{
    return 0;
}

int cuLibraryUnload(void)
{
    return 0;
}
