/* What a launcher of several processes has put into the environment. */
#ifndef LATHE_COLLECTIVES_LAUNCHER_H
#define LATHE_COLLECTIVES_LAUNCHER_H

#include <stdlib.h>
#include <string.h>

/** A variable with the number of processes, and the launcher that sets it. `with`: set in the
 *  processes themselves; only both together mean that this is one of several. */
typedef struct lathe__launcher {
    const char *name, *n_ranks, *with;
} lathe__launcher;

/** The launcher that started this process as one of several, and the number; NULL: none. */
static inline const lathe__launcher *lathe__launcher_find(int32_t *out_ranks)
{
    static const lathe__launcher known[] = {
        {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
        {"Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
        {"MPICH", "PMI_SIZE", "PMI_RANK"},
    };
    *out_ranks = 1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *const n = getenv(known[i].n_ranks);
        if (n == NULL || getenv(known[i].with) == NULL)
            continue;
        const long ranks = strtol(n, NULL, 10);
        *out_ranks = ranks > 0 && ranks < 1 << 24 ? (int32_t)ranks : 0;
        return &known[i];
    }
    return NULL;
}

#endif
