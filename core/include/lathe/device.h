/* The device interface: memory, streams and events, and the kernels of every op in op.h.
 *
 * A kernel is prepared once, for one problem with all dims known (kernel_create: may allocate,
 * search for algorithms, compile), and then run many times (kernel_run: allocates nothing). The
 * caller passes all memory that a kernel uses while it runs: inputs, outputs and scratch.
 *
 * Threads: all functions except score() are called on the rank's thread. CPU kernels run in
 * parallel through lathe_host.parallel_for (or a library on the same thread pool) and create no
 * threads.
 *
 * Order: work queued on one stream runs in order. If the device has stream_create, the core makes
 * one stream and queues all work on it, and the host waits only with sync(). Copies of data kept in
 * host memory (optimizer state, activations) use two further streams, which are ordered with the
 * first one only by events.
 */
#ifndef LATHE_DEVICE_H
#define LATHE_DEVICE_H

#include "op.h"
#include "packed.h"
#include "status.h"

#define LATHE_DEVICE_REVISION 1

typedef struct lathe_stream lathe_stream; /* of the device; NULL: its default, in-order stream */
typedef struct lathe_event lathe_event;
typedef struct lathe_kernel lathe_kernel;
typedef struct lathe_capture lathe_capture;

enum { LATHE_MEM_DEVICE = 0, LATHE_MEM_HOST_PINNED = 1 };
/* How the host reaches a device's memory, and when. UNIFIED: at the device's addresses, after a
 * wait for the queued work. */
enum {
    LATHE_MEMORY_OWN = 0, /* by copies only */
    LATHE_MEMORY_HOST =
        1, /* it is ordinary host memory, and calls return when their work is done */
    LATHE_MEMORY_UNIFIED = 2,
    LATHE_N_MEMORIES = 3
};
enum { LATHE_COPY_TO_DEVICE = 0, LATHE_COPY_TO_HOST = 1, LATHE_COPY_ON_DEVICE = 2 };
enum { LATHE_FLAG_DETERMINISTIC = 1, LATHE_FLAG_CAPTURABLE = 2 };

/** Properties of a device, filled in by info(). Members beyond the caller's size stay unchanged. */
typedef struct lathe_device_info {
    uint32_t size;
    int32_t index;        /* number among the machine's devices of this kind, from 0 */
    char model[64];       /* "AMD EPYC ...", "NVIDIA H200" */
    char isa[32];         /* "avx2", "avx512", "avx512_bf16", "sm_90" */
    char driver[48];      /* "CUDA 12.8, driver 570.86.15"; "": none */
    int32_t n_workers;    /* CPU threads, or multiprocessors */
    int32_t host_memory;  /* LATHE_MEMORY_* */
    int64_t memory_bytes; /* total */
    /* Free now for this process, on devices with their own memory; 0: not known. */
    int64_t memory_free_bytes;
    uint32_t compute_dtypes; /* bit (1 << LATHE_BF16) ...: native or at full rate */
    /* Compute dtypes that every op supports, directly or through f32; 0: f32 and compute_dtypes.
     * Bit LATHE_F8_E4M3: the device supports lathe_op_attrs.fp8. */
    uint32_t graph_dtypes;
    uint32_t fp8_recipes;   /* bit (1 << LATHE_FP8_ROWWISE) ...: recipes supported; see fp8.h */
    int32_t fp8_recipe;     /* LATHE_FP8_*: the recipe that suits the device best; 0: the first */
    int32_t capture_events; /* 1: events may be recorded within a capture; see event_record */
    int32_t packed_weights; /* 1: W of products may be of dtype LATHE_PLANES; see packed.h */
    uint32_t activations;   /* bit (1 << LATHE_I8): such products quantize x, if W's format asks
                               for it (lathe_activations in packed.h) */
    int32_t reserved;       /* 0 */
} lathe_device_info;
LATHE_ABI_SIZE(lathe_device_info, 208);

/** One operation with all that is fixed before it runs: op, attributes, dtypes and dims. */
typedef struct lathe_kernel_problem {
    uint32_t size;
    int32_t op; /* LATHE_OP_* */
    const lathe_op_attrs *attrs;
    const lathe_desc *in;  /* [n_in]; dtype LATHE_ABSENT: not given */
    const lathe_desc *out; /* [n_out]; dtype LATHE_ABSENT: not wanted */
    int32_t n_in, n_out;
    uint32_t may_accumulate; /* bit i: a run may set accumulate for output i */
    uint32_t may_overwrite;  /* bit i: a run may leave it clear; both bits may be set */
    uint32_t flags;          /* LATHE_FLAG_* */
    int32_t n_threads;
    /* [n_in] how inputs of dtype LATHE_PLANES are decoded; NULL: there are none. Copied. */
    const lathe_packed_weight *weights;
} lathe_kernel_problem;
LATHE_ABI_SIZE(lathe_kernel_problem, 64);

/** Memory of one kernel run: device pointers, borrowed until the stream has finished the run. */
typedef struct lathe_kernel_args {
    uint32_t size;
    uint32_t accumulate;   /* bit i: output i is added to, not overwritten */
    const void *const *in; /* [n_in] */
    void *const *out;      /* [n_out] */
    void *scratch;         /* scratch_bytes, 64-byte aligned; content undefined */
    lathe_stream *stream;
} lathe_kernel_args;
LATHE_ABI_SIZE(lathe_kernel_args, 40);

typedef struct lathe_device_v1 {
    uint32_t size;
    uint32_t revision;

    /* ---- the device ---- */
    /** [any] Rates how well this build suits the machine it runs on (bands in plugin.h); 0: it
     *  cannot run (no driver, or an instruction set is missing in CPUID or not enabled by the
     *  OS). `why` always gets one line. Needs no instance. */
    int32_t (*score)(char *why, int64_t why_bytes);
    /** [open] Fills in the members within out->size. */
    lathe_status (*info)(void *self, lathe_device_info *out);

    /* ---- memory ---- */
    /** [open] Allocates `bytes` of zeroed memory, aligned to 64 bytes (CPU) or as the device needs;
     *  ready to use on return. memory: LATHE_MEM_*; LATHE_MEM_HOST_PINNED is host memory with fast
     *  copies to and from the device. LATHE_E_NOMEM. */
    lathe_status (*alloc)(void *self, int64_t bytes, int32_t memory, void **out);
    /** [open] Frees memory that no queued work uses any more. */
    void (*free)(void *self, void *memory);
    /** [step] Queues a copy; direction: LATHE_COPY_*. Source and destination stay borrowed until
     *  the stream has finished the copy, also if host memory is not pinned. Within a capture,
     *  host memory must be pinned. */
    lathe_status (*copy)(void *self, lathe_stream *stream, void *dst, const void *src,
                         int64_t bytes, int32_t direction);

    /* ---- streams and events ---- */
    /** [open] Creates a stream. The functions of streams and events, except sync(), are NULL on
     *  devices with only one in-order queue. */
    lathe_status (*stream_create)(void *self, lathe_stream **out);
    /** [open] Frees a stream that has no unfinished work. */
    void (*stream_destroy)(void *self, lathe_stream *stream);
    /** [step] Records the event: marks the end of the work queued on the stream so far. Creates
     *  the event if *io_event is NULL, which is the case only at its first record. The host does
     *  not wait. Within a capture only if lathe_device_info.capture_events is set. A stream that
     *  waits for an event recorded in a capture joins this capture; the first stream must wait
     *  for it again before the capture ends. Records inside and outside a capture do not order
     *  each other. */
    lathe_status (*event_record)(void *self, lathe_stream *stream, lathe_event **io_event);
    /** [step] Work queued on the stream after this call waits for the event's last record. The host
     *  does not wait. */
    lathe_status (*event_wait)(void *self, lathe_stream *stream, lathe_event *event);
    /** [open] Frees an event that no queued work waits for. */
    void (*event_destroy)(void *self, lathe_event *event);
    /** [step] Like event_record, and also keeps the time at which the stream reached the mark.
     *  An event is used with only one of the two functions. Not within a capture. A device has
     *  event_stamp and event_seconds, or neither (NULL). */
    lathe_status (*event_stamp)(void *self, lathe_stream *stream, lathe_event **io_event);
    /** [step] Seconds from one stamp to a later one of the same stream. LATHE_E_STATE: the host has
     *  not yet waited for both. */
    lathe_status (*event_seconds)(void *self, lathe_event *from, lathe_event *to,
                                  double *out_seconds);
    /** [step] Waits until all work queued on the stream has finished, and reports its errors. NULL:
     *  the device is synchronous. */
    lathe_status (*sync)(void *self, lathe_stream *stream);

    /* ---- kernels ---- */
    /** [open] Prepares a kernel; *out_scratch_bytes: scratch that each run needs (0: none).
     *  LATHE_E_UNSUPPORTED: the device does not have this op for these dtypes or dims. */
    lathe_status (*kernel_create)(void *self, const lathe_kernel_problem *problem,
                                  lathe_kernel **out, int64_t *out_scratch_bytes);
    /** [open] Frees a kernel that has no unfinished run. */
    void (*kernel_destroy)(void *self, lathe_kernel *kernel);
    /** [step] Queues one run. Memory in args is borrowed until the stream has finished the run. */
    lathe_status (*kernel_run)(void *self, lathe_kernel *kernel, const lathe_kernel_args *args);
    /** [step] Queues the kernel named `kernel` of an embedded code image
     *  (lathe_optimizer_v1.cuda_image, lathe_quant_v1.cuda_image), with n_blocks blocks of
     *  n_threads threads. Its only argument is a struct of args_bytes, copied during the call.
     *  `image` is constant for the life of the process and is loaded at the first launch, which
     *  must be outside a capture. n_blocks 0 loads the image and queues nothing.
     *  LATHE_E_UNSUPPORTED: the image has no code for this device. LATHE_E_NOT_FOUND: it has no
     *  such kernel. NULL: the device cannot launch such images. */
    lathe_status (*launch)(void *self, lathe_stream *stream, const void *image, const char *kernel,
                           int64_t n_blocks, int32_t n_threads, const void *args,
                           int64_t args_bytes);

    /* ---- captures ---- */
    /** [open] Begins a capture: work queued from here to capture_end is recorded and does not run.
     *  capture_launch replays it: the same kernels and copies with the same pointers. A device has
     *  all four functions or none (NULL). If a call fails within the capture, capture_end is still
     *  called, and capture_destroy for its result; if capture_end fails too, *out stays NULL. */
    lathe_status (*capture_begin)(void *self, lathe_stream *stream);
    /** [open] Ends the recording. */
    lathe_status (*capture_end)(void *self, lathe_stream *stream, lathe_capture **out);
    /** [step] Queues the recorded work once. */
    lathe_status (*capture_launch)(void *self, lathe_capture *capture, lathe_stream *stream);
    /** [open] Frees a capture that has no unfinished launch. */
    void (*capture_destroy)(void *self, lathe_capture *capture);
} lathe_device_v1;
LATHE_ABI_SIZE(lathe_device_v1, 176);

#endif
