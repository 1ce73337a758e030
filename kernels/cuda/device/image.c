/* Loads the code that plugins embed, once per image, and finds its kernels by name. */
#include <string.h>

#include "device/cuda_functions.h"

enum { MOST_KERNELS = 64 };

typedef struct loaded_kernel {
    const void *image; /* the plugin's bytes, which never move */
    char name[48];
    cudaLibrary_t library;
    cudaKernel_t kernel;
} loaded_kernel;

struct cuda_images {
    loaded_kernel kernels[MOST_KERNELS];
    int32_t n;
};

lathe_status cuda_images_create(const lathe_host *host, cuda_images **out)
{
    *out = host->alloc((int64_t)sizeof **out);
    return *out == NULL ? lathe_fail(host, LATHE_E_NOMEM, "no memory for the table of kernels")
                        : LATHE_OK;
}

void cuda_images_destroy(const lathe_host *host, cuda_images *images)
{
    if (images == NULL)
        return;
    for (int32_t i = 0; i < images->n; i++) {
        int32_t first = 0;
        while (images->kernels[first].library != images->kernels[i].library)
            first++;
        if (first == i)
            (void)cudaLibraryUnload(images->kernels[i].library);
    }
    host->free(images);
}

static cudaLibrary_t library_of(const cuda_images *images, const void *image)
{
    for (int32_t i = 0; i < images->n; i++)
        if (images->kernels[i].image == image)
            return images->kernels[i].library;
    return NULL;
}

static loaded_kernel *find(cuda_images *images, const void *image, const char *name)
{
    for (int32_t i = 0; i < images->n; i++)
        if (images->kernels[i].image == image && strcmp(images->kernels[i].name, name) == 0)
            return &images->kernels[i];
    return NULL;
}

static lathe_status refuse(const cuda_device *device, cudaError_t error, const char *name)
{
    const int has_none = error == cudaErrorNoKernelImageForDevice ||
                         error == cudaErrorInvalidKernelImage ||
                         error == cudaErrorUnsupportedPtxVersion;
    if (!has_none && error != cudaErrorSymbolNotFound)
        return cuda_status(device->host, error, name);
    (void)cudaGetLastError(); /* clears the error, which was reported */
    if (has_none)
        return lathe_fail(device->host, LATHE_E_UNSUPPORTED,
                          "%s: the plugin's CUDA code holds nothing for compute capability %d.%d",
                          name, (int)device->arch / 10, (int)device->arch % 10);
    return lathe_fail(device->host, LATHE_E_NOT_FOUND,
                      "%s: no such kernel in the plugin's CUDA code", name);
}

/* Runs at the first call for an image and name, which must not be during a capture. */
static lathe_status load(const cuda_device *device, const void *image, const char *name)
{
    cuda_images *images = device->images;
    loaded_kernel *k = &images->kernels[images->n];
    if (images->n == MOST_KERNELS || strlen(name) >= sizeof k->name)
        return lathe_fail(device->host, LATHE_E_ARG, "no place for the kernel %s", name);
    cudaLibrary_t library = library_of(images, image);
    const int is_new = library == NULL;
    cudaKernel_t kernel = NULL;
    cudaError_t error = cudaSuccess;
    if (is_new)
        error = cudaLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);
    if (error != cudaSuccess)
        return refuse(device, error, name);
    error = cudaLibraryGetKernel(&kernel, library, name);
    if (error != cudaSuccess) {
        if (is_new)
            (void)cudaLibraryUnload(library);
        return refuse(device, error, name);
    }
    *k = (loaded_kernel){.image = image, .library = library, .kernel = kernel};
    memcpy(k->name, name, strlen(name) + 1);
    images->n++;
    return LATHE_OK;
}

lathe_status cuda_launch_image(void *self, lathe_stream *stream, const void *image,
                               const char *name, int64_t n_blocks, int32_t n_threads,
                               const void *args, int64_t args_bytes)
{
    const cuda_device *device = self;
    (void)args_bytes; /* the kernel knows the size of its argument */
    if (n_blocks > INT32_MAX)
        return lathe_fail(device->host, LATHE_E_ARG, "%s: %lld blocks are more than a grid has",
                          name, (long long)n_blocks);
    const loaded_kernel *k = find(device->images, image, name);
    if (k == NULL) {
        LATHE_TRY(load(device, image, name));
        k = &device->images->kernels[device->images->n - 1];
    }
    if (n_blocks < 1) /* the caller only wanted it loaded */
        return LATHE_OK;
    void *pointers[1];
    memcpy(pointers, &args, sizeof args); /* not written to, although the type is not const */
    const dim3 grid = {(unsigned)n_blocks, 1, 1};
    const dim3 block = {(unsigned)n_threads, 1, 1};
    return cuda_status(
        device->host,
        cudaLaunchKernel((const void *)k->kernel, grid, block, pointers, 0, cuda_stream(stream)),
        name);
}
