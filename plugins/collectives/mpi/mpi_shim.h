/* The functions of MPI that the plugin uses. They are in a library of their own, mpi-shim.so, so
 * that MPI is loaded only by a process that opens a group. */
#ifndef LATHE_COLLECTIVES_MPI_SHIM_H
#define LATHE_COLLECTIVES_MPI_SHIM_H

#include "shared/peer.h"

enum { MPI_SHIM_VERSION = 2 };

/** A communicator as this rank sees it. Everything belongs to the shim. */
typedef struct mpi_place {
    void *link; /* for peer_transport, split and leave */
    int32_t rank, n_ranks, local_rank, n_local, host, n_hosts;
    peer_board *const *boards; /* [n_ranks] */
    const int32_t *members;    /* [n_ranks] ranks in the world */
    char engine[64];
} mpi_place;

typedef struct mpi_shim {
    int32_t version;
    const peer_transport *transport;
    /** Starts MPI if that has not happened, and describes all ranks. */
    lathe_status (*join)(const lathe_host *host, mpi_place *out);
    /** color -1: out->link is NULL. Blocks until all ranks call it. */
    lathe_status (*split)(const lathe_host *host, void *link, int32_t color, int32_t key,
                          mpi_place *out);
    /** Frees a communicator; all its ranks call it. MPI itself ends with the process, and only if
     *  every group was left. */
    void (*leave)(const lathe_host *host, void *link);
    /** Ends all processes; this one exits with exit_code then, if it is still there. */
    void (*abort)(int32_t exit_code);
} mpi_shim;

#endif
