/* The machine of a run: the opened device, its memory by category, and the backends that share it.
 *
 * All memory of a run comes from lathe_machine_alloc: the plan's figures and the allocator's are
 * therefore the same sums, and are compared by the tests to the byte.
 */
#ifndef LATHE_RUN_MACHINE_H
#define LATHE_RUN_MACHINE_H

#include "lathe/quant.h"
#include "plug/select.h"

enum {
    LATHE_MEM_PARAMETERS = 0, /* master copies and copies in the compute dtype */
    LATHE_MEM_GRADIENTS = 1,
    LATHE_MEM_OPTIMIZER = 2,   /* optimizer state and scalars */
    LATHE_MEM_QUANTIZED = 3,   /* planes of quantized weights */
    LATHE_MEM_ACTIVATIONS = 4, /* activations, batch inputs, constants */
    LATHE_MEM_SCRATCH = 5,     /* what the arena needs on top of the activations */
    LATHE_MEM_CACHE = 6,       /* KV caches of generation */
    LATHE_MEM_CHECKPOINT = 7,  /* the copy that asynchronous checkpoints are written from */
    LATHE_MEM_AVERAGE = 8,     /* the average of the weights */
    LATHE_N_MEM = 9
};

/** Name of a category: "parameters", ... */
const char *lathe_mem_name(int32_t category);

/** Bytes by category. */
typedef struct lathe_mem_bytes {
    int64_t by[LATHE_N_MEM];
} lathe_mem_bytes;

int64_t lathe_mem_total(const lathe_mem_bytes *bytes);

typedef struct lathe_machine {
    const lathe_instance *device;
    const lathe_device_v1 *dev; /* device->table */
    lathe_device_info info;
    const lathe_instance *attention; /* [n_attention] candidates, best score wins per problem */
    int64_t n_attention;
    const lathe_instance *quant; /* NULL: none */
    uint32_t flags;              /* LATHE_FLAG_* wanted of kernels */
    int32_t n_threads;
    lathe_mem_bytes used, peak;
} lathe_machine;

/** Fills the device part from an instance of a device plugin, which must outlive it. */
lathe_status lathe_machine_init(lathe_machine *m, const lathe_instance *device, uint32_t flags);

/** Zeroed device memory, counted under its category. bytes 0 gives NULL. */
lathe_status lathe_machine_alloc(lathe_machine *m, int32_t category, int64_t bytes, void **out);
void lathe_machine_free(lathe_machine *m, int32_t category, int64_t bytes, void *memory);

/** Moves `bytes` of the count from one category to another: an arena is one block of two kinds. */
void lathe_machine_recount(lathe_machine *m, int32_t from, int32_t to, int64_t bytes);

#endif
