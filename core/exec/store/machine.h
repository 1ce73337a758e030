/* The machine of a run: the opened device, its memory by category, and the backends that share it.
 *
 * All memory of a run comes from lathe_machine_alloc. The plan's byte counts and the allocator's
 * are therefore the same sums; tests require them to be equal.
 */
#ifndef LATHE_EXEC_MACHINE_H
#define LATHE_EXEC_MACHINE_H

#include "exec/store/memory_kind.h"
#include "lathe/quant.h"
#include "plug/select.h"

enum {
    LATHE_MEM_PARAMETERS = 0, /* master copies and copies in the compute dtype */
    LATHE_MEM_GRADIENTS = 1,
    LATHE_MEM_OPTIMIZER = 2,   /* optimizer state and scalars */
    LATHE_MEM_QUANTIZED = 3,   /* planes of quantized weights */
    LATHE_MEM_ACTIVATIONS = 4, /* activations, batch inputs, constants */
    LATHE_MEM_SCRATCH = 5,     /* the rest of the arena that activations are in */
    LATHE_MEM_CACHE = 6,       /* KV caches of generation */
    LATHE_MEM_CHECKPOINT = 7,  /* the copy that asynchronous checkpoints are written from */
    LATHE_MEM_AVERAGE = 8,     /* the average of the weights */
    LATHE_MEM_STAGING = 9,     /* transfer buffers of a device with its own memory */
    LATHE_MEM_OFFLOAD = 10,    /* in host memory: optimizer state (state_offload.h), activations
                                  (activation_offload.h) */
    LATHE_MEM_MODELS = 11,     /* weights of other, frozen models: a teacher, a reward model */
    LATHE_N_MEM = 12
};

/** Name of a category: "parameters", ... */
const char *lathe_mem_name(int32_t category);

/** Whether memory of a category is in host memory, also if the device has its own. */
int32_t lathe_mem_is_host(int32_t category);

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
    uint32_t flags;       /* LATHE_FLAG_* that kernels are asked for */
    lathe_stream *stream; /* all work is queued on it; NULL: the device's only stream */
    /* copy streams to and from the device; NULL until lathe_machine_sides */
    lathe_stream *in, *out;
    int32_t captures; /* 1: node ranges that run repeatedly are captured (replay.h) */
    char *staging;    /* of transfer.h; NULL before it is allocated, or if none is needed */
    void *tensor;     /* [tensor_bytes] copy for lathe_read_whole; NULL before the first */
    int64_t tensor_bytes;
    int64_t n_syncs; /* number of lathe_machine_sync calls */
    int32_t n_threads;
    lathe_mem_bytes used, peak;
} lathe_machine;

/** Fills the device part from an instance of a device plugin, which must outlive it. */
lathe_status lathe_machine_init(lathe_machine *m, const lathe_instance *device, uint32_t flags);
/** Frees what the machine owns; a zeroed machine is allowed. */
void lathe_machine_fini(lathe_machine *m);

/** Creates the two copy streams for transfers during computation. There are two because a bus
 *  carries both directions at once. Does nothing if they exist. */
lathe_status lathe_machine_sides(lathe_machine *m);

/** Whether the device has streams and events between them, which lathe_machine_sides requires. */
int lathe_machine_has_events(const lathe_machine *m);

/** How the host reaches the device's memory; a zeroed machine has memory of its own. */
static inline const lathe_memory_kind *lathe_machine_memory(const lathe_machine *m)
{
    return lathe_memory_kind_of(&m->info);
}

/** Whether products may read quantized weights from their planes. */
static inline int lathe_machine_packs(const lathe_machine *m)
{
    return m->info.packed_weights && lathe_machine_memory(m)->runs_host_code;
}

/** Whether such products quantize their inputs to this dtype, if the weight's format asks for it.
 */
static inline int lathe_machine_quantizes(const lathe_machine *m, int32_t dtype)
{
    return lathe_machine_packs(m) && (m->info.activations >> dtype & 1u) != 0;
}

/** Waits until the work queued on the machine's stream is done, and returns its errors. */
lathe_status lathe_machine_sync(lathe_machine *m);
/** Waits where calls return before their work is done; elsewhere it is done already. */
lathe_status lathe_machine_settle(lathe_machine *m);

/** Allocates zeroed device memory, or pinned host memory for the categories of lathe_mem_is_host,
 *  counted under its category. Gives NULL for 0 bytes. */
lathe_status lathe_machine_alloc(lathe_machine *m, int32_t category, int64_t bytes, void **out);
void lathe_machine_free(lathe_machine *m, int32_t category, int64_t bytes, void *memory);

/** Whether memory of a category counts to the device's memory. */
int32_t lathe_machine_counts(const lathe_machine *m, int32_t category);
/** How many of these bytes count to the device's memory. */
int64_t lathe_machine_total(const lathe_machine *m, const lathe_mem_bytes *bytes);

/** Moves `bytes` of the count from one category to another: an arena is one allocation that two
 *  categories share. */
void lathe_machine_recount(lathe_machine *m, int32_t from, int32_t to, int64_t bytes);

#endif
