/* Model of the costs of an exchange on a network of ranks (lathe/kit/link_kit.h).
 *
 * A network has one link per rank, or islands of equally many ranks: then each island has a link to
 * the others, which its ranks share. An exchange of ranks in several islands reduces inside each
 * island, then across islands, then gathers inside: a rank sends as few bytes as in one ring of all
 * ranks.
 */
#ifndef LATHE_RANKS_NETWORK_H
#define LATHE_RANKS_NETWORK_H

#include "lathe/kit/link_kit.h"
#include "lathe/status.h"

typedef struct lathe_network {
    int32_t n_ranks;        /* 2 or more */
    int32_t n_islands;      /* divides n_ranks; 1: no islands */
    lathe_link link;        /* of a rank */
    lathe_link island_link; /* of an island, if there are several */
} lathe_network;

/** Bytes that a rank sends, those of them to other islands, and seconds. */
typedef struct lathe_network_cost {
    double sent, across, seconds;
} lathe_network_cost;

/** Ranks of an island. */
int32_t lathe_network_inside(const lathe_network *network);

/** An ALL_REDUCE, REDUCE_SCATTER or ALL_GATHER of `bytes` in groups of `inside` ranks in each of
 *  `islands` islands, which all ranks of the network take part in at the same time. */
lathe_network_cost lathe_network_exchange(const lathe_network *network, int32_t op, int32_t inside,
                                          int32_t islands, double bytes);

#endif
