/* A device for tests whose memory the host cannot access: the kernels of the CPU device, on memory
 * that is accessible only while queued work runs. Work runs only when the caller waits for it. This
 * file has the shared declarations of its parts. Plugins have a far_image instead of CUDA code. */
#ifndef LATHE_TEST_FAR_H
#define LATHE_TEST_FAR_H

#include "lathe/device.h"
#include "lathe/plugin.h"

#define FAR_MAGIC 0x46415221u

/** Code of one kernel. fn runs the whole grid, while device memory is accessible. */
typedef struct far_kernel {
    const char *name;
    int64_t args_bytes;
    void (*fn)(int64_t n_blocks, int32_t n_threads, const void *args);
} far_kernel;

typedef struct far_image {
    uint32_t magic;            /* FAR_MAGIC */
    const far_kernel *kernels; /* ends with an entry whose name is NULL */
} far_image;

/** A call on a stream, with its arguments copied. */
typedef lathe_status (*far_call)(const void *args);

/** First member of every stream; lets the device's attention plugins queue calls on it. */
struct lathe_stream {
    lathe_status (*enqueue)(lathe_stream *stream, far_call call, const void *args, int64_t bytes);
};

/** The plugin <kind>/<name>.so of this build. */
const lathe_plugin *far_real_plugin(const char *kind, const char *name);

/* Defines the entry as a copy of another plugin's, which `fill` changes before it is read. */
#define FAR_ENTRY(fill)                                                                            \
    static lathe_plugin far_entry;                                                                 \
    LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY __attribute__((alias("far_entry"))); \
    __attribute__((constructor)) static void far_construct(void)                                   \
    {                                                                                              \
        fill(&far_entry);                                                                          \
    }

#endif
