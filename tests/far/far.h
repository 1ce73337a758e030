/* A device for tests whose memory the host cannot touch: the kernels of the CPU device, on memory
 * that is there only while queued work runs, and work that runs only when somebody waits for it.
 *
 * What the parts of it share. An image, in the place of CUDA code, is a far_image.
 */
#ifndef LATHE_TEST_FAR_H
#define LATHE_TEST_FAR_H

#include "lathe/device.h"
#include "lathe/plugin.h"

#define FAR_MAGIC 0x46415221u

/** Code of one kernel. fn runs the whole grid; memory is open meanwhile. */
typedef struct far_kernel {
    const char *name;
    int64_t args_bytes;
    void (*fn)(int64_t n_blocks, int32_t n_threads, const void *args);
} far_kernel;

typedef struct far_image {
    uint32_t magic;            /* FAR_MAGIC */
    const far_kernel *kernels; /* behind the last one its name is NULL */
} far_image;

/** A call on a stream, with its arguments copied. */
typedef lathe_status (*far_call)(const void *args);

/** What begins every stream, so that attention plugins of the device may queue on it. */
struct lathe_stream {
    lathe_status (*enqueue)(lathe_stream *stream, far_call call, const void *args, int64_t bytes);
};

/** The plugin <kind>/<name>.so of this build. */
const lathe_plugin *far_real_plugin(const char *kind, const char *name);

/* Defines the entry as a copy of another plugin's that `fill` changes before anybody reads it. */
#define FAR_ENTRY(fill)                                                                            \
    static lathe_plugin far_entry;                                                                 \
    LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY __attribute__((alias("far_entry"))); \
    __attribute__((constructor)) static void far_construct(void)                                   \
    {                                                                                              \
        fill(&far_entry);                                                                          \
    }

#endif
