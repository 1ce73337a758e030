/* Reads what a launcher of several processes has put into the environment.
 *
 *     int32_t n_ranks;
 *     const lathe_launcher *launcher = lathe_launcher_find(&n_ranks);
 */
#ifndef LATHE_KIT_LAUNCHER_KIT_H
#define LATHE_KIT_LAUNCHER_KIT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/** A variable with the number of processes, and the launcher that sets it. `with`: set in the
 *  processes themselves; only both together mean that this is one of several. local: number of the
 *  process among those on its host. */
typedef struct lathe_launcher {
    const char *name, *n_ranks, *with, *local;
} lathe_launcher;

/** The launcher that started this process as one of several, and the number; NULL: none. */
static inline const lathe_launcher *lathe_launcher_find(int32_t *out_ranks)
{
    static const lathe_launcher known[] = {
        {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"},
        {"Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"},
        {"MPICH", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"},
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

/** Number of this process among all that a launcher started, from 0; -1: it is not one of several,
 * or the launcher does not tell. */
static inline int32_t lathe_launcher_rank(void)
{
    int32_t n_ranks;
    const lathe_launcher *const launcher = lathe_launcher_find(&n_ranks);
    const char *const texts[] = {launcher != NULL ? getenv(launcher->with) : NULL,
                                 launcher != NULL ? getenv("PMIX_RANK") : NULL};
    for (size_t i = 0; i < sizeof texts / sizeof *texts && n_ranks != 1; i++) {
        char *end = NULL;
        const long rank = texts[i] != NULL ? strtol(texts[i], &end, 10) : -1;
        if (texts[i] != NULL && end != texts[i] && *end == '\0' && rank >= 0 && rank < 1 << 24)
            return (int32_t)rank;
    }
    return -1;
}

/** Number of this process among those that a launcher started on this host, from 0; -1: it is not
 *  one of several, or the launcher does not tell. */
static inline int32_t lathe_launcher_local_rank(void)
{
    int32_t n_ranks;
    const lathe_launcher *const launcher = lathe_launcher_find(&n_ranks);
    const char *const text = launcher != NULL && n_ranks > 1 ? getenv(launcher->local) : NULL;
    char *end = NULL;
    const long local = text != NULL ? strtol(text, &end, 10) : -1;
    return text != NULL && end != text && *end == '\0' && local >= 0 && local < 1 << 20
               ? (int32_t)local
               : -1;
}

#endif
