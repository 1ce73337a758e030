/* Model of the costs of an exchange on a network of ranks (lathe/kit/link_kit.h).
 *
 * A network has one link per rank, or islands of equally many ranks: then each island has a link to
 * the others, which its ranks share. An exchange of ranks in several islands reduces inside each
 * island, then across islands, then gathers inside: a rank sends as few bytes as in one ring of all
 * ranks.
 */
#ifndef LATHE_PARALLEL_NETWORK_H
#define LATHE_PARALLEL_NETWORK_H

#include "lathe/kit/link_kit.h"
#include "lathe/status.h"

typedef struct lathe_network {
    int32_t n_ranks;        /* 2 or more */
    int32_t n_islands;      /* divides n_ranks; 1: no islands */
    lathe_link link;        /* of a rank */
    lathe_link island_link; /* of an island, if there are several */
} lathe_network;

/** Cost of an exchange for one rank. */
typedef struct lathe_network_cost {
    double sent;    /* bytes that the rank sends */
    double across;  /* bytes of these that go to other islands */
    double seconds; /* from the start to the end of the exchange */
} lathe_network_cost;

/** Number of ranks in an island. */
int32_t lathe_network_inside(const lathe_network *network);

/** Cost of an ALL_REDUCE, REDUCE_SCATTER or ALL_GATHER (op) of `bytes` in a group of ranks that has
 *  `inside` members in each of `islands` islands. All groups of the network exchange at the same
 *  time, so they share the links of the islands. */
lathe_network_cost lathe_network_exchange(const lathe_network *network, int32_t op, int32_t inside,
                                          int32_t islands, double bytes);

#endif
