/* The device interface: memory, ordering, and the kernels of every op in op.h.
 *
 * A kernel is prepared once, for one problem with all dims known (kernel_create: may allocate, look
 * up algorithms, compile), and then run many times (kernel_run: allocates nothing). All memory a
 * kernel touches while running is handed to it: inputs, outputs and scratch.
 *
 * Threads: create/destroy on the rank's thread; run on the rank's thread; CPU kernels spread their
 * work with lathe_host.parallel_for (or a library on the same pool) and make no threads.
 *
 * Order: what is queued on one stream runs in order. The core makes one stream where stream_create is
 * offered, and queues all work on it; the host waits by sync() alone. Copies of what waits in the host's memory
 * (optimizer state, activations) have two streams of their own, in order with the first by events alone.
 */
#ifndef LATHE_DEVICE_H
#define LATHE_DEVICE_H

#include "op.h"
#include "status.h"

#define LATHE_DEVICE_REVISION 1

typedef struct lathe_stream lathe_stream; /* of the device; NULL: its default, in-order stream */
typedef struct lathe_event lathe_event;
typedef struct lathe_kernel lathe_kernel;
typedef struct lathe_capture lathe_capture;

enum { LATHE_MEM_DEVICE = 0, LATHE_MEM_HOST_PINNED = 1 };
enum { LATHE_COPY_TO_DEVICE = 0, LATHE_COPY_TO_HOST = 1, LATHE_COPY_ON_DEVICE = 2 };
enum { LATHE_FLAG_DETERMINISTIC = 1, LATHE_FLAG_CAPTURABLE = 2 };

/** What the device is and can do. Filled by info(); members beyond the caller's size are left
 * alone. */
typedef struct lathe_device_info {
    uint32_t size;
    int32_t n_workers;       /* CPU threads, or multiprocessors */
    char model[64];          /* "AMD EPYC ...", "NVIDIA H200" */
    char isa[32];            /* "avx2", "avx512", "avx512_bf16", "sm_90" */
    int64_t memory_bytes;    /* total */
    uint32_t compute_dtypes; /* bit (1 << LATHE_BF16) ...: native or at full rate */
    int32_t host_memory;     /* 1: pointers are ordinary host memory (CPU) */
    uint32_t graph_dtypes; /* compute dtypes that every op runs in, be it by way of f32; 0: f32 and
                                what compute_dtypes says. F8_E4M3: lathe_op_attrs.fp8 is taken */
    uint32_t fp8_recipes;  /* bit (1 << LATHE_FP8_ROWWISE) ...: with which; see fp8.h */
    int64_t
        memory_free_bytes;  /* now, for this process; 0: not known. Devices with their own memory */
    int32_t index;          /* which of the machine's devices of the kind, from 0 */
    int32_t fp8_recipe;     /* LATHE_FP8_*: which of them fits it best; 0: the first */
    char driver[48];        /* "CUDA 12.8, driver 570.86.15"; "": nothing to tell */
    int32_t capture_events; /* 1: events may lie within a capture, see event_record */
    int32_t reserved3;      /* 0 */
} lathe_device_info;
LATHE_ABI_SIZE(lathe_device_info, 200);

/** One operation with everything static known. */
typedef struct lathe_kernel_problem {
    uint32_t size;
    int32_t op; /* LATHE_OP_* */
    const lathe_op_attrs *attrs;
    const lathe_desc *in;  /* [n_in]; dtype LATHE_ABSENT: not given */
    const lathe_desc *out; /* [n_out]; dtype LATHE_ABSENT: not wanted */
    int32_t n_in, n_out;
    uint32_t may_accumulate; /* bit i: run may set accumulate for output i */
    uint32_t may_overwrite;  /* bit i: run may leave it clear; both may be set */
    uint32_t flags;          /* LATHE_FLAG_* */
    int32_t n_threads;
} lathe_kernel_problem;
LATHE_ABI_SIZE(lathe_kernel_problem, 56);

/** The memory of one run of a kernel: device pointers, borrowed until the stream passes. */
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

    /** [any] Fitness of this build for the machine it runs on; 0 when it cannot run here (instruction set
     *  missing in CPUID or not enabled by the OS, no driver). `why` gets one line, always. No
     * instance. */
    int32_t (*score)(char *why, int64_t why_bytes);

    /** [open] Fills what out->size reaches. */
    lathe_status (*info)(void *self, lathe_device_info *out);

    /** [open] `bytes` of zeroed memory, 64-byte aligned (CPU) or as the device asks. LATHE_E_NOMEM.
     *  LATHE_MEM_HOST_PINNED: host memory that copies are fast from and to. Ready on return. */
    lathe_status (*alloc)(void *self, int64_t bytes, int32_t memory, void **out);
    /** [open] Nothing queued may still use the memory. */
    void (*free)(void *self, void *memory);
    /** [step] Queued copy; direction LATHE_COPY_*. Both ends stay borrowed until the stream has passed, whatever
     *  memory the host's end is. Within a capture: pinned memory only. */
    lathe_status (*copy)(void *self, lathe_stream *stream, void *dst, const void *src,
                         int64_t bytes, int32_t direction);

    /** [open] A further stream. The five functions of streams and events are NULL on devices with one in-order queue. */
    lathe_status (*stream_create)(void *self, lathe_stream **out);
    /** [open] Nothing queued on it may be left. */
    void (*stream_destroy)(void *self, lathe_stream *stream);
    /** [step] Marks what the stream has queued so far; makes the event where *io_event is NULL, which happens before
     *  the first step. The host does not wait.
     *  Within a capture only with lathe_device_info.capture_events: a stream that waits for a mark made in a capture is
     *  captured with it from there on, and must have been waited for by the first stream when the capture ends; marks
     *  of a capture and marks outside do not order each other. */
    lathe_status (*event_record)(void *self, lathe_stream *stream, lathe_event **io_event);
    /** [step] What the stream is given from here on waits for the event's last mark. The host does not wait. */
    lathe_status (*event_wait)(void *self, lathe_stream *stream, lathe_event *event);
    /** [open] Nothing may still wait for it. */
    void (*event_destroy)(void *self, lathe_event *event);
    /** [step] Waits until everything queued has finished; reports errors of queued work. NULL:
     * synchronous. */
    lathe_status (*sync)(void *self, lathe_stream *stream);

    /** [open] Prepares a kernel; *out_scratch_bytes is what each run needs (0: none).
     *  LATHE_E_UNSUPPORTED: this device has no such op for these dtypes or dims. */
    lathe_status (*kernel_create)(void *self, const lathe_kernel_problem *problem,
                                  lathe_kernel **out, int64_t *out_scratch_bytes);
    /** [open] No run of it may still be queued. */
    void (*kernel_destroy)(void *self, lathe_kernel *kernel);
    /** [step] Queues one run. Memory in args is borrowed until the stream has passed it. */
    lathe_status (*kernel_run)(void *self, lathe_kernel *kernel, const lathe_kernel_args *args);

    /** [open] Records what is queued between begin and end, which does not run then, and replays it: the same
     *  kernels and copies with the same pointers. All four or none. After a failure between the two, end
     *  is still called; it fails then and leaves nothing. NULL: not offered. */
    lathe_status (*capture_begin)(void *self, lathe_stream *stream);
    /** [open] Ends the recording. */
    lathe_status (*capture_end)(void *self, lathe_stream *stream, lathe_capture **out);
    /** [step] Queues what was recorded. */
    lathe_status (*capture_launch)(void *self, lathe_capture *capture, lathe_stream *stream);
    /** [open] No launch of it may still be queued. */
    void (*capture_destroy)(void *self, lathe_capture *capture);

    /** [step] Queues the kernel named `kernel` of an embedded code image (lathe_optimizer_v1.cuda_image,
     *  lathe_quant_v1.cuda_image): n_blocks blocks of n_threads threads, whose only argument is a struct
     *  of args_bytes, copied at the call. `image` is constant and lives as long as the process; it is
     *  loaded at the first launch, which must not lie in a capture. n_blocks 0: loads, queues nothing. LATHE_E_UNSUPPORTED: the image holds
     *  nothing that this device can run, LATHE_E_NOT_FOUND: no such kernel. NULL: not offered. */
    lathe_status (*launch)(void *self, lathe_stream *stream, const void *image, const char *kernel,
                           int64_t n_blocks, int32_t n_threads, const void *args,
                           int64_t args_bytes);

    /** [step] event_record of an event that also keeps when the stream passed its mark; an event is always given to the
     *  same one of the two. Not within a capture. With event_seconds or not at all. NULL: not offered. */
    lathe_status (*event_stamp)(void *self, lathe_stream *stream, lathe_event **io_event);
    /** [step] Seconds from one stamp to a later one of the same stream. LATHE_E_STATE: the host has not waited for both. */
    lathe_status (*event_seconds)(void *self, lathe_event *from, lathe_event *to,
                                  double *out_seconds);
} lathe_device_v1;
LATHE_ABI_SIZE(lathe_device_v1, 176);

#endif
