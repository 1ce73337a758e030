/* The interface of collective plugins: how the ranks of a run exchange data.
 *
 * A rank is a process with one device. open() joins the ranks that a launcher started and gives the
 * group of all of them; split() makes smaller groups. An exchange is prepared once, for one problem
 * with all sizes known (prepare: may allocate and communicate), and then run many times (start,
 * then test or wait: they allocate nothing). The caller passes all memory that an exchange uses:
 * input, output, scratch and pinned memory.
 *
 * Agreement: the ranks of a group make the same calls of split(), prepare() and start() on it, in
 * the same order and with problems that fit together. SEND and RECEIVE concern two ranks, which
 * find each other by `tag`; their prepare() does not communicate. Any number of exchanges may be
 * under way at a time, each of them once; they may be waited for in any order.
 *
 * Errors: a rank that has ended, hangs or asks for something else is LATHE_E_RANK. The message
 * names this rank, its host, the exchange and, as far as the engine knows, the other rank. After
 * any error of test() or wait() the memory of that exchange stays in use, and the only further
 * calls are tell() and abort(). Threads: all functions except score() are called on the rank's
 * thread.
 */
#ifndef LATHE_COLLECTIVE_H
#define LATHE_COLLECTIVE_H
#include "device.h"
#include "dtype.h"
#include "host.h"

#define LATHE_COLLECTIVE_REVISION 1
typedef struct lathe_group lathe_group;       /* ranks that exchange data */
typedef struct lathe_exchange lathe_exchange; /* a prepared exchange of a group */

/* Exchanges. R: ranks of the group; r: this rank; x_q: the input of rank q.
 *
 *   ALL_REDUCE      in [n]               out [n] = reduce over q of x_q
 *   REDUCE_SCATTER  in [n]               out [counts[r]] = the extent r of reduce over q of x_q
 *   ALL_GATHER      in [counts[r]]       out [n] = x_0, x_1, ... one after the other
 *   BROADCAST       in [n] on rank peer  out [n] = x_peer; other ranks pass in = NULL
 *   ALL_TO_ALL      in [sum of counts]   out [sum of from]: extent q goes to and comes from rank q
 *   SEND, RECEIVE   in [n]; out [n]      to rank peer; from it
 *   BARRIER         none                 done when every rank has started it
 *
 * Extents lie one after the other in the order of ranks. Input and output are the same memory or
 * do not overlap, except that the input of ALL_GATHER may be extent r of its output, and the output
 * of REDUCE_SCATTER extent r of its input; not in ALL_TO_ALL. Devices may lack pairs. */
enum { LATHE_ALL_REDUCE = 0, LATHE_REDUCE_SCATTER = 1, LATHE_ALL_GATHER = 2, LATHE_BROADCAST = 3 };
enum { LATHE_ALL_TO_ALL = 4, LATHE_SEND = 5, LATHE_RECEIVE = 6 };
enum { LATHE_BARRIER = 7, LATHE_N_EXCHANGES = 8 };

/* Reductions of ALL_REDUCE and REDUCE_SCATTER. Integers wrap around. A NaN of any rank is a NaN in
 * the result; an engine may refuse MAX and MIN of floats. bf16 and f16 are added in f32 and rounded
 * once, except that engines without LATHE_GROUP_RANK_ORDER may round each partial sum. */
enum { LATHE_REDUCE_SUM = 0, LATHE_REDUCE_MAX = 1, LATHE_REDUCE_MIN = 2, LATHE_N_REDUCES = 3 };

/* Flags of a group. DETERMINISTIC: a reduction gives every rank the same bits, the same ones in
 * every run with the same ranks. RANK_ORDER: moreover a sum is ((x_0 + x_1) + x_2) + ..., so that
 * ALL_REDUCE, REDUCE_SCATTER and any division into several exchanges agree bit for bit. */
enum { LATHE_GROUP_DETERMINISTIC = 1, LATHE_GROUP_RANK_ORDER = 2 };

/** The buffers for which the core looks for an engine. Plain data. */
typedef struct lathe_collective_probe {
    uint32_t size;
    int32_t host_memory; /* 1: buffers are ordinary host memory (LATHE_MEMORY_HOST) */
    const char *device;  /* name of the device plugin: "cpu_avx2", "cuda" */
} lathe_collective_probe;
LATHE_ABI_SIZE(lathe_collective_probe, 16);

/** Arguments of open(). Borrowed until the group is closed. */
typedef struct lathe_collective_setup {
    uint32_t size;
    int32_t reserved;              /* 0 */
    const lathe_device_v1 *device; /* of the buffers; NULL: ordinary host memory */
    void *device_self;
    /* For LATHE_COLLECTIVE_NEEDS_BASE, else NULL: an open group of another engine for host memory,
     * with the same ranks. The plugin does not close it. */
    const struct lathe_collective_v1 *base;
    lathe_group *base_group;
    double deadline_seconds; /* for open(), split(), prepare() and close(); above 0 */
    /** [any] Whether to stop waiting: nonzero ends the call with LATHE_E_INTERRUPTED. Called
     *  between polls. NULL: never. */
    int32_t (*stops)(void *arg);
    void *stops_arg;
} lathe_collective_setup;
LATHE_ABI_SIZE(lathe_collective_setup, 64);

/** A group as this rank sees it. Plain data. */
typedef struct lathe_group_info {
    uint32_t size;
    int32_t rank, n_ranks;       /* 0 <= rank < n_ranks */
    int32_t local_rank, n_local; /* among the group's ranks on this host, in the order of ranks */
    int32_t host, n_hosts; /* number of this host among the group's, by the first rank on each */
    uint32_t flags;        /* LATHE_GROUP_* */
    char host_name[64];
    char engine[64]; /* with version: "Open MPI 4.1.4" */
} lathe_group_info;
LATHE_ABI_SIZE(lathe_group_info, 160);

/** The problem that an exchange is prepared for. Borrowed during prepare(). */
typedef struct lathe_exchange_problem {
    uint32_t size;
    int32_t op;     /* LATHE_ALL_REDUCE ... */
    int32_t dtype;  /* LATHE_F32, F64, BF16, F16, I32, I64 or U8; BARRIER: 0 */
    int32_t reduce; /* LATHE_REDUCE_*; 0 for others than ALL_REDUCE and REDUCE_SCATTER */
    int32_t peer;   /* BROADCAST, SEND, RECEIVE: the other rank, or the root; else 0 */
    int32_t tag;    /* SEND, RECEIVE: 0 to 32767, the same on both ranks; else 0 */
    int64_t n;      /* elements, 0 or more; BARRIER, ALL_TO_ALL: 0 */
    /* [n_ranks] REDUCE_SCATTER, ALL_GATHER: elements of each rank's extent, their sum is n; NULL:
     * n / n_ranks each, and n_ranks must divide n. ALL_TO_ALL: elements sent to each rank. */
    const int64_t *counts;
    const int64_t *from; /* [n_ranks] ALL_TO_ALL: elements received from each rank */
    const char *label;   /* for messages, at most 63 bytes of it: "gradients 3 of 7"; or NULL */
} lathe_exchange_problem;
LATHE_ABI_SIZE(lathe_exchange_problem, 56);

/** A prepared exchange. Plain data. */
typedef struct lathe_exchange_info {
    uint32_t size;
    int32_t reserved;       /* 0 */
    int64_t scratch_bytes;  /* of memory of the buffers' kind that each run needs */
    int64_t sent_bytes;     /* that this rank gives to the transport in each run */
    int64_t received_bytes; /* and gets from it */
    int64_t pinned_bytes;   /* of LATHE_MEM_HOST_PINNED of the device that each run needs */
} lathe_exchange_info;
LATHE_ABI_SIZE(lathe_exchange_info, 40);

/** Memory of a run, borrowed until it is done. */
typedef struct lathe_exchange_args {
    uint32_t size;
    int32_t reserved;     /* 0 */
    const void *in;       /* may be NULL if this rank has no input, or no elements */
    void *out;            /* may be NULL if this rank has no output, or no elements */
    void *scratch;        /* scratch_bytes, 64-byte aligned; content undefined */
    lathe_stream *stream; /* the exchange runs after the work queued on it so far; NULL: none */
    void *pinned;         /* pinned_bytes, 64-byte aligned; content undefined */
} lathe_exchange_args;
LATHE_ABI_SIZE(lathe_exchange_args, 48);

/* Flags of an engine. NEEDS_BASE: see lathe_collective_setup.base. FOR_DEVICES: for devices with
 * memory of their own, not host memory, over a base; its close() of the group of open() waits for
 * no rank, also after errors and with open parts. NEEDS_NO_ROOM: no scratch and no pinned memory.
 */
enum { LATHE_COLLECTIVE_NEEDS_BASE = 1, LATHE_COLLECTIVE_FOR_DEVICES = 2 };
enum { LATHE_COLLECTIVE_NEEDS_NO_ROOM = 4, LATHE_TOLD_BYTES = 64 };
typedef struct lathe_collective_v1 {
    uint32_t size;
    uint32_t revision;
    uint32_t flags; /* LATHE_COLLECTIVE_* */
    int32_t reserved;

    /** [any] Rates the engine for this process (bands in plugin.h): whether its launcher started
     *  the process, and whether it reaches the buffers. 0 refuses. `why` always gets one line.
     *  Reads only the environment; needs no instance. */
    int32_t (*score)(const lathe_collective_probe *probe, char *why, int64_t why_bytes);

    /** [open] Joins the ranks that were started together: all of them call it. Without a launcher
     *  the group has one rank. At most one group of a process is open at a time; an engine may
     *  refuse to open a second one after close(). LATHE_E_RANK, LATHE_E_NOT_FOUND (a library is
     *  missing: the message says what to install), LATHE_E_CONFIG (the environment is wrong). */
    lathe_status (*open)(void *self, const lathe_collective_setup *setup, lathe_group **out);
    /** [any] Fills in the members within out->size. */
    lathe_status (*info)(const lathe_group *group, lathe_group_info *out);
    /** [open] Makes a group of the ranks with the same color >= 0, by key, then by rank. Color -1:
     *  this rank is in none, and *out is NULL. All ranks of `group` call it. */
    lathe_status (*split)(lathe_group *group, int32_t color, int32_t key, lathe_group **out);
    /** [open] Closes a group whose exchanges are destroyed; all its ranks call it, for groups of
     *  split() before the group of open(). NULL is allowed. */
    lathe_status (*close)(lathe_group *group);

    /** [open] Prepares an exchange; fills in the members within out_info->size. LATHE_E_ARG: the
     *  problem is wrong. LATHE_E_UNSUPPORTED: not by this engine. LATHE_E_RANK: the problems of the
     *  ranks differ; the message names a difference. */
    lathe_status (*prepare)(lathe_group *group, const lathe_exchange_problem *problem,
                            lathe_exchange **out, lathe_exchange_info *out_info);
    /** [open] Frees an exchange that is not under way; NULL is allowed. */
    void (*exchange_destroy)(lathe_exchange *exchange);
    /** [step] Begins a run. LATHE_E_STATE: the last run is not done. */
    lathe_status (*start)(lathe_exchange *exchange, const lathe_exchange_args *args);
    /** [step] Goes on with all exchanges of the process that are under way, without waiting;
     *  *out_done: 1 if this one is done, also when it was never started. Engines without a thread
     *  or device of their own make progress in test() and wait() only. */
    lathe_status (*test)(lathe_exchange *exchange, int32_t *out_done);
    /** [step] Waits until the exchange is done, at most for deadline_seconds since this call. Work
     *  queued later sees the output. LATHE_E_RANK: a rank did not take part in time, has ended, or,
     *  on the same host at least, has been stopped by a signal for the deadline of the setup. */
    lathe_status (*wait)(lathe_exchange *exchange, double deadline_seconds);
    /** [any] Bytes that this rank has given to and got from the transport in runs since open(). */
    lathe_status (*traffic)(const lathe_group *group, int64_t *out_sent, int64_t *out_received);

    /** [any] Ends all other ranks of the group of open(), as well as the engine can. This process
     *  has printed its message and exits with exit_code after the call; an engine that can only end
     *  all ranks together may end it, too (the only place where a plugin may). */
    void (*abort)(lathe_group *group, int32_t exit_code);

    /** [any] After a failure: gives own [LATHE_TOLD_BYTES] to the ranks q with told[q] 1 of the
     * group of open(), and takes theirs: all [n_ranks][LATHE_TOLD_BYTES], zeros where told[q] is 0
     * then. Waits until they have called it as often or have ended, at most for `seconds`. Waits of
     * ranks that have not called it return LATHE_E_RANK soon. Absent: the base group's is used, if
     * there is one. After an error told[] still says of which ranks all[] was received. */
    lathe_status (*tell)(lathe_group *group, const void *own, void *all, unsigned char *told,
                         double seconds);
} lathe_collective_v1;
LATHE_ABI_SIZE(lathe_collective_v1, 120);

#endif
