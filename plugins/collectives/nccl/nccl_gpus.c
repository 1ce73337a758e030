/* Facts that ranks tell each other before they join: which GPU each has, NCCL's version, its
 * identity. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_internal.h"

/* A rank's facts. */
typedef struct rank_gpu {
    int32_t host, version;
    char gpu[56]; /* "GPU 3": as numbered outside of CUDA_VISIBLE_DEVICES */
} rank_gpu;
LATHE_ABI_SIZE(rank_gpu, 64);

/* Runs one exchange of the base at once. */
static lathe_status run_now(const nccl_world *w, lathe_group *base,
                            const lathe_exchange_problem *problem, const void *in, void *out)
{
    lathe_exchange *x = NULL;
    lathe_exchange_info info = {.size = (uint32_t)sizeof info};
    LATHE_TRY(w->base->prepare(base, problem, &x, &info));
    void *const scratch = info.scratch_bytes > 0 ? w->host->alloc(info.scratch_bytes) : NULL;
    const lathe_exchange_args args = {
        .size = (uint32_t)sizeof args, .in = in, .out = out, .scratch = scratch};
    lathe_status status = info.scratch_bytes > 0 && scratch == NULL
                              ? lathe_fail(w->host, LATHE_E_NOMEM, "no memory to join the ranks")
                              : w->base->start(x, &args);
    if (status == LATHE_OK)
        status = w->base->wait(x, w->deadline_seconds);
    if (status != LATHE_OK)
        return status; /* its memory stays in use */
    w->base->exchange_destroy(x);
    w->host->free(scratch);
    return LATHE_OK;
}

lathe_status nccl_share(const nccl_world *w, lathe_group *base, int32_t rank, void *data,
                        int64_t bytes)
{
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = LATHE_BROADCAST,
                                            .dtype = LATHE_U8,
                                            .n = bytes,
                                            .label = "NCCL's identity"};
    return run_now(w, base, &problem, rank == 0 ? data : NULL, data);
}

/* CUDA numbers the GPUs that CUDA_VISIBLE_DEVICES lists, from 0. */
static void name_gpu(const nccl_world *w, char *out, size_t bytes)
{
    lathe_device_info info = {.size = (uint32_t)sizeof info};
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    if (w->device->info(w->device_self, &info) != LATHE_OK)
        info.index = 0;
    for (int32_t i = 0; at != NULL && i < info.index; i++) {
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
    }
    if (at != NULL && *at != '\0')
        (void)snprintf(out, bytes, "GPU %.*s", (int)strcspn(at, ","), at);
    else
        (void)snprintf(out, bytes, "GPU %d", info.index);
}

static lathe_status compare(const nccl_world *w, const rank_gpu *all, int32_t n_ranks)
{
    for (int32_t b = 1; b < n_ranks; b++)
        for (int32_t a = 0; a < b; a++) {
            if (all[a].version != all[b].version)
                return lathe_fail(w->host, LATHE_E_RANK,
                                  "rank %d has NCCL %d.%d.%d and rank %d has %d.%d.%d: install one "
                                  "version on all hosts",
                                  a, all[a].version / 10000, all[a].version / 100 % 100,
                                  all[a].version % 100, b, all[b].version / 10000,
                                  all[b].version / 100 % 100, all[b].version % 100);
            if (all[a].host == all[b].host && strcmp(all[a].gpu, all[b].gpu) == 0)
                return lathe_fail(w->host, LATHE_E_CONFIG,
                                  "ranks %d and %d have the same %s, and NCCL needs one for each "
                                  "rank: start as many ranks as there are GPUs, without "
                                  "device.index, or set collective.name to \"staged\", which is "
                                  "slow",
                                  a, b, all[a].gpu);
        }
    return LATHE_OK;
}

lathe_status nccl_gpus_check(const nccl_world *w, lathe_group *base)
{
    lathe_group_info info = {.size = (uint32_t)sizeof info};
    LATHE_TRY(w->base->info(base, &info));
    rank_gpu own = {.host = info.host, .version = w->nccl->version};
    name_gpu(w, own.gpu, sizeof own.gpu);
    rank_gpu *const all = w->host->alloc(info.n_ranks * (int64_t)sizeof *all);
    if (all == NULL)
        return lathe_fail(w->host, LATHE_E_NOMEM, "no memory to compare %d ranks", info.n_ranks);
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = LATHE_ALL_GATHER,
                                            .dtype = LATHE_U8,
                                            .n = info.n_ranks * (int64_t)sizeof own,
                                            .label = "the GPUs of all ranks"};
    lathe_status status = run_now(w, base, &problem, &own, all);
    if (status != LATHE_OK)
        return status; /* `all` stays in use */
    status = compare(w, all, info.n_ranks);
    w->host->free(all);
    return status;
}
