/* Entry of the CUDA device plugin: its function table and its instance. */
#include <stdio.h>
#include <string.h>

#include "base/cuda_memory.h"
#include "device/cuda_functions.h"
#include "device/requirements.h"
#include "lathe/fp8.h"
#include "lathe/kit/launcher_kit.h"
#include "lathe/plugin.h"
#include "products/blas.h"

enum { INDEX, TF32, MEMORY_LIMIT, N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    [INDEX] = LATHE_FIELD_INT("index", "-1", -1, 1023, NULL,
                              "which GPU, counted among those that CUDA_VISIBLE_DEVICES shows; -1: "
                              "the one with the number that this process has among those that a "
                              "launcher started on the machine, else the first"),
    [TF32] = LATHE_FIELD_BOOL("tf32", "false",
                              "f32 products in TF32: 10 bits of mantissa, several times as fast"),
    [MEMORY_LIMIT] = LATHE_FIELD_INT("memory_limit", "0", 0, 1e15, "bytes",
                                     "a plan that needs more of the GPU's memory is refused; 0: "
                                     "the memory that is free on the GPU"),
};

/* "CUDA 12.8, driver 570.86.15"; the second part only if the kernel module reports it. */
static void tell_driver(char *out, size_t out_bytes)
{
    char line[256] = "", *rest = line;
    int version = 0;
    FILE *file = fopen("/proc/driver/nvidia/version", "re");
    if (file != NULL) {
        if (fgets(line, (int)sizeof line, file) == NULL)
            line[0] = '\0';
        (void)fclose(file);
    }
    if (cudaDriverGetVersion(&version) != cudaSuccess)
        return;
    const int n = snprintf(out, out_bytes, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    for (const char *word = strtok_r(line, " \t\n", &rest); word != NULL;
         word = strtok_r(NULL, " \t\n", &rest))
        if (word[0] >= '0' && word[0] <= '9' && strchr(word, '.') != NULL) {
            (void)snprintf(out + n, out_bytes - (size_t)n, ", driver %.24s", word);
            return;
        }
}

static lathe_status info(void *self, lathe_device_info *out)
{
    const cuda_device *device = self;
    struct cudaDeviceProp properties;
    LATHE_TRY(cuda_status(device->host, cudaGetDeviceProperties(&properties, device->index),
                          "reading the GPU's properties"));
    lathe_device_info full = {.size = out->size, .host_memory = 0};
    full.n_workers = properties.multiProcessorCount;
    (void)snprintf(full.model, sizeof full.model, "%.63s", properties.name);
    (void)snprintf(full.isa, sizeof full.isa, "sm_%d%d", properties.major, properties.minor);
    full.memory_bytes = (int64_t)properties.totalGlobalMem;
    full.compute_dtypes = 1u << LATHE_F32 | 1u << LATHE_BF16 | 1u << LATHE_F16;
    if (device->arch >= 89) {
        full.compute_dtypes |= 1u << LATHE_F8_E4M3;
        full.fp8_recipes = 1u << LATHE_FP8_TENSORWISE | 1u << LATHE_FP8_ROWWISE;
        full.fp8_recipe = device->arch == 90 ? LATHE_FP8_ROWWISE : LATHE_FP8_TENSORWISE;
    }
    full.graph_dtypes = full.compute_dtypes;
    full.index = device->index;
    full.capture_events = 1;
    size_t free_bytes = 0, total = 0;
    LATHE_TRY(cuda_status(device->host, cudaMemGetInfo(&free_bytes, &total),
                          "asking for the GPU's free memory"));
    full.memory_free_bytes = (int64_t)free_bytes;
    tell_driver(full.driver, sizeof full.driver);
    memcpy(out, &full, out->size < sizeof full ? out->size : sizeof full);
    return LATHE_OK;
}

/* Ranks on one machine take one GPU after the other. A process that sees one GPU takes that: the
 * launcher may have given it another one than the others. */
static lathe_status choose_gpu(cuda_device *device, int n)
{
    const int32_t local = lathe_launcher_local_rank();
    if (device->index >= 0)
        return LATHE_OK;
    device->index = local > 0 && n > 1 ? local : 0;
    return device->index < n
               ? LATHE_OK
               : lathe_fail(
                     device->host, LATHE_E_CONFIG,
                     "this process is number %d of those that a launcher started on this "
                     "machine, counted from 0, and it shows %d GPUs: start at most %d there, "
                     "or set device.index",
                     (int)local, n, n);
}

static lathe_status open_gpu(cuda_device *device)
{
    const lathe_host *host = device->host;
    int n = 0;
    char why[256];
    if (!cuda_machine_runs(&n, why, sizeof why))
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "%s", why);
    LATHE_TRY(choose_gpu(device, n));
    if (device->index >= n)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "device.index is %d, and this machine shows %d GPU%s (0 to %d)",
                          (int)device->index, n, n == 1 ? "" : "s", n - 1);
    LATHE_TRY(cuda_status(host, cudaSetDevice(device->index), "opening the GPU"));
    struct cudaDeviceProp properties;
    LATHE_TRY(cuda_status(host, cudaGetDeviceProperties(&properties, device->index),
                          "reading the GPU's properties"));
    device->arch = 10 * properties.major + properties.minor;
    device->n_sm = properties.multiProcessorCount;
    if (!cuda_has_code_for(device->arch))
        return lathe_fail(
            host, LATHE_E_UNSUPPORTED,
            "GPU %d (%s) is of compute capability %d.%d; this build has code from 8.0 on",
            (int)device->index, properties.name, properties.major, properties.minor);
    LATHE_TRY(cuda_images_create(host, &device->images));
    return cuda_blas_create(host, device->tf32, &device->blas);
}

static void destroy(void *self)
{
    cuda_device *device = self;
    if (device == NULL)
        return;
    const lathe_host *host = device->host;
    cuda_blas_destroy(host, device->blas);
    cuda_images_destroy(host, device->images);
    host->free(device);
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    cuda_device *device = host->alloc((int64_t)sizeof *device);
    if (device == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the device instance");
    device->host = host;
    if (n_values > TF32 && values != NULL) {
        device->index = (int32_t)values[INDEX].i;
        device->tf32 = values[TF32].i != 0;
    }
    const lathe_status status = open_gpu(device);
    if (status != LATHE_OK) {
        destroy(device);
        return status;
    }
    *out_self = device;
    return LATHE_OK;
}

static const lathe_device_v1 table = {
    .size = (uint32_t)sizeof(lathe_device_v1),
    .revision = LATHE_DEVICE_REVISION,
    .score = cuda_score,
    .info = info,
    .alloc = cuda_memory_alloc,
    .free = cuda_memory_free,
    .copy = cuda_memory_copy,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_destroy = cuda_event_destroy,
    .sync = cuda_sync,
    .kernel_create = cuda_kernel_create,
    .kernel_destroy = cuda_kernel_destroy,
    .kernel_run = cuda_kernel_run,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .capture_launch = cuda_capture_launch,
    .capture_destroy = cuda_capture_destroy,
    .launch = cuda_launch_image,
    .event_stamp = cuda_event_stamp,
    .event_seconds = cuda_event_seconds,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_DEVICE,
    .revision = LATHE_DEVICE_REVISION,
    .name = "cuda",
    .family = "cuda",
    .version = "0.1.0",
    .summary = "NVIDIA GPUs of compute capability 8.0 and later: cuBLASLt products, own kernels",
    .source = "ours; matrix products by cuBLASLt",
    .license = "Apache-2.0",
    .n_fields = N_FIELDS,
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};
