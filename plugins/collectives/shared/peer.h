/* Exchanges as messages between pairs of ranks: what engines share that can send and receive.
 *
 * An engine gives a transport (messages between two ranks of a group, in order) and makes groups;
 * prepare, start, test and wait of lathe/collective.h are the functions below. Algorithms:
 *
 *   REDUCE_SCATTER  every rank sends extent q of its input to rank q, which adds the extents of all
 *                   ranks in the order of ranks. In pieces, of which one is received while another
 *                   is added.
 *   ALL_GATHER      every rank sends its extent to every other rank.
 *   ALL_REDUCE      REDUCE_SCATTER, then ALL_GATHER, with extents as equal as possible
 *   BROADCAST       the root sends extent q to rank q, then ALL_GATHER except to the root
 *
 * So a rank sends and receives at most 2 n (R - 1) / R elements for ALL_REDUCE, the lower bound,
 * and sums have the same bits for every rank and every way to cut them.
 */
#ifndef LATHE_COLLECTIVES_PEER_H
#define LATHE_COLLECTIVES_PEER_H

#include <stdatomic.h>

#include "lathe/collective.h"

/* Bytes of a label in messages, with its NUL. */
enum { PEER_LABEL = 64 };

/** How messages travel. link: of a group. Messages of one pair of ranks, lane and tag arrive in the
 *  order in which they were sent. All functions return at once. */
typedef struct peer_transport {
    int64_t request_bytes; /* memory that a message under way needs */
    int64_t most_bytes;    /* length of one message */
    int32_t max_tag;       /* tags are 0 to max_tag */
    /* lane: 0 for exchanges of the whole group, 1 for SEND and RECEIVE, 2 for tell() */
    lathe_status (*send)(void *link, int32_t peer, int32_t lane, int32_t tag, const void *data,
                         int64_t bytes, void *request);
    lathe_status (*receive)(void *link, int32_t peer, int32_t lane, int32_t tag, void *data,
                            int64_t bytes, void *request);
    /** Goes on, and tells whether all n requests, one after the other in memory, are done. */
    lathe_status (*test)(void *link, void *requests, int32_t n, int32_t *out_done);
    /** A rank of the group whose message of tell() has arrived and is not received; -1: none. */
    int32_t (*told)(void *link);
} peer_transport;

/** A rank's entry in shared memory, where the ranks on one host read each other's progress and see
 *  whether its process still lives. */
typedef struct peer_board {
    _Atomic int64_t n_started; /* exchanges of the whole group that this rank has started */
    int64_t pid, born;         /* of its process; born: field 22 of /proc/<pid>/stat */
    int64_t reserved[5];
} peer_board;
LATHE_ABI_SIZE(peer_board, 64);

/** The ranks that were started together. */
typedef struct peer_world {
    const lathe_host *host;
    const peer_transport *transport; /* NULL: one rank */
    double deadline_seconds;
    int32_t (*stops)(void *arg);
    void *stops_arg;
    int64_t sent, received;  /* bytes in runs of exchanges */
    lathe_exchange *running; /* list */
    lathe_status failed;     /* not LATHE_OK: only tell() and abort() may follow */
    void *link;              /* of the group of open() */
    int32_t n_tells;         /* calls of tell() */
} peer_world;

struct lathe_group {
    peer_world *world;
    void *link; /* of the transport */
    lathe_group_info info;
    const int32_t *members; /* [n_ranks] numbers in the world, for messages; NULL: the same ones */
    int32_t world_ranks;
    int32_t next_tag;
    peer_board *const *boards; /* [n_ranks] NULL: a rank of another host; or all NULL */
    const unsigned char *sees; /* [n_ranks] 1: /proc tells about the process of a board */
    peer_board own;            /* where there are no boards */
};

/* Bytes that go to one rank and come from it in a phase. */
typedef struct peer_leg {
    int64_t send_at, send_bytes, receive_at, receive_bytes;
} peer_leg;

/* Messages with all ranks, in rounds of at most `piece` bytes for each leg. */
typedef struct peer_phase {
    peer_leg *legs;  /* [n_ranks] */
    int32_t reduces; /* received pieces go to scratch and are added to out + reduced_at */
    int32_t from_in; /* sends from the input; else from the output */
    int64_t piece, n_rounds;
    int64_t own_at, own_bytes, reduced_at; /* in the input; in the output */
} peer_phase;

struct lathe_exchange {
    lathe_group *group;
    lathe_exchange_problem problem; /* without counts and label */
    char label[PEER_LABEL];
    int32_t tag, lane;
    lathe_exchange_info info;
    int64_t in_bytes, out_bytes, slot_bytes;
    int64_t copy_from, copy_to, copy_bytes; /* of this rank's own data, before the first phase */
    peer_phase phases[2];
    int32_t n_phases;
    unsigned char *requests; /* [2][2 n_ranks] of request_bytes, for even and odd rounds */
    const void **sources;    /* [n_ranks] of a reduction */
    unsigned char *marks;    /* [1 + n_ranks] BARRIER: what is sent, what is received */
    /* The run. */
    lathe_exchange_args args;
    int32_t is_running, phase;
    int64_t round;
    int32_t n_requests[2];
    int64_t number; /* of this start among those of the group */
    lathe_exchange *next;
};

/** Functions of lathe_collective_v1. prepare() asks all ranks whether their problems agree. */
lathe_status lathe__peer_info(const lathe_group *group, lathe_group_info *out);
lathe_status lathe__peer_prepare(lathe_group *group, const lathe_exchange_problem *problem,
                                 lathe_exchange **out, lathe_exchange_info *out_info);
void lathe__peer_exchange_destroy(lathe_exchange *exchange);
lathe_status lathe__peer_start(lathe_exchange *exchange, const lathe_exchange_args *args);
lathe_status lathe__peer_test(lathe_exchange *exchange, int32_t *out_done);
lathe_status lathe__peer_wait(lathe_exchange *exchange, double deadline_seconds);
lathe_status lathe__peer_traffic(const lathe_group *group, int64_t *out_sent,
                                 int64_t *out_received);

lathe_status lathe__peer_tell(lathe_group *group, const void *own, void *all, unsigned char *told,
                              double seconds);

/** One exchange at once, within the deadline of the world; its scratch is allocated. */
lathe_status lathe__peer_exchange_now(lathe_group *group, const lathe_exchange_problem *problem,
                                      const void *in, void *out);

/** Makes an exchange without asking the other ranks. */
lathe_status lathe__peer_build(lathe_group *group, const lathe_exchange_problem *problem,
                               lathe_exchange **out);

/** Field 22 of /proc/<pid>/stat, and the state ('T': stopped, 'Z': ended) in *out_state. 0: there
 *  is no such process. */
int64_t lathe__peer_born(int64_t pid, char *out_state);

/** Whether the process of a rank of this host has ended. */
int32_t lathe__peer_has_ended(const lathe_group *group, int32_t q);

/** LATHE_E_RANK if a rank of the exchange on this host has ended, or a rank has called tell(). */
lathe_status lathe__peer_watch(const lathe_exchange *exchange);

/** 1 if a rank of the exchange on this host is stopped by a signal. */
int32_t lathe__peer_stopped(const lathe_exchange *exchange);

/** LATHE_E_RANK: the exchange took longer than `seconds`; names the ranks that did not arrive. */
lathe_status lathe__peer_late(const lathe_exchange *exchange, double seconds);

/** Puts "rank 3 of 8 on host x: all_reduce of 4.2 MB (gradients 3 of 7)". Returns its length. */
int64_t lathe__peer_name(const lathe_exchange *exchange, char *text, int64_t bytes);

#endif
