/* Shared by the parts of the engine: the ranks, groups, and exchanges under way. */
#ifndef LATHE_NCCL_INTERNAL_H
#define LATHE_NCCL_INTERNAL_H

#include <stdatomic.h>

#include "lathe/collective.h"
#include "nccl_library.h"

/* Memory that says when exchanges are done: each has a flag in pinned memory, which the GPU sets
 * behind the exchange. A device has no other way to tell that a mark on a stream has passed. */
enum { NCCL_FLAGS = 64, NCCL_FLAG_BYTES = 64 };

typedef struct nccl_page {
    struct nccl_page *next;
    char *flags; /* pinned, [NCCL_FLAGS * NCCL_FLAG_BYTES] */
    unsigned char used[NCCL_FLAGS];
} nccl_page;

/** The ranks that were started together. */
typedef struct nccl_world {
    const lathe_host *host;
    const nccl_library *nccl;
    const lathe_collective_v1 *base; /* in host memory: identities, agreement, who is late */
    const lathe_device_v1 *device;
    void *device_self;
    double deadline_seconds;
    int32_t (*stops)(void *arg);
    void *stops_arg;
    int32_t sets_ring;    /* 1: NCCL_ALGO is set while a communicator is made */
    int32_t gives_order;  /* 1: NCCL's algorithm adds in an order that does not change */
    lathe_stream *stream; /* of all exchanges */
    lathe_event *event;
    nccl_page *pages;
    char *words;            /* device: a 1 to copy to flags; memory of barriers */
    int64_t sent, received; /* bytes of runs */
    lathe_group *groups;    /* list: all communicators, which an error ends */
    lathe_status failed;    /* not LATHE_OK: only abort() may follow */
} nccl_world;

struct lathe_group {
    nccl_world *world;
    lathe_group *base;
    lathe_exchange *roll_call; /* a barrier of the base: who is still there */
    ncclComm_t comm;           /* NULL: aborted */
    lathe_group *next;
    lathe_group_info info;
    nccl_world own;  /* of the group of open() */
    int32_t is_part; /* 1: made by split() */
};

/** LATHE_E_RANK with NCCL's words: "rank 0 of 2 on host: <what>: ...". */
lathe_status nccl_failed(const lathe_group *group, const char *what, ncclResult_t code);
/** Waits until calls of the group's communicator that have returned `code` have been taken in. */
lathe_status nccl_settle(lathe_group *group, const char *what, ncclResult_t code);
/** Remembers an error and aborts all communicators, so that the GPU's memory can be freed. */
lathe_status nccl_world_failed(nccl_world *w, lathe_status status);
/** LATHE_E_RANK: `seconds` are over; names the ranks that are late. `what` of the group. */
lathe_status nccl_late(lathe_group *group, const char *what, double seconds);
/** "an exchange has failed before" if one has. */
lathe_status nccl_check_world(const nccl_world *w);

double nccl_now(void);
/** Lets others run. waited: seconds so far. */
void nccl_pause(double waited);

/** Refuses ranks of the base's group that share a GPU, or have other versions of NCCL.
 * (nccl_gpus.c)
 */
lathe_status nccl_gpus_check(const nccl_world *w, lathe_group *base);
/** Gives every rank the `bytes` of rank 0 of the base's group. */
lathe_status nccl_share(const nccl_world *w, lathe_group *base, int32_t rank, void *data,
                        int64_t bytes);

/** Functions of lathe_collective_v1 (nccl_exchange.c). */
lathe_status nccl_prepare(lathe_group *group, const lathe_exchange_problem *problem,
                          lathe_exchange **out, lathe_exchange_info *out_info);
void nccl_exchange_destroy(lathe_exchange *x);
lathe_status nccl_start(lathe_exchange *x, const lathe_exchange_args *args);
lathe_status nccl_test(lathe_exchange *x, int32_t *out_done);
lathe_status nccl_wait(lathe_exchange *x, double deadline_seconds);
lathe_status nccl_traffic(const lathe_group *group, int64_t *out_sent, int64_t *out_received);

#endif
