/* Computes a step again, node by node, in search of its first NaN or infinity. */
#include "train/nonfinite_replay.h"

#include <stdio.h>

#include "optim/nonfinite.h"
#include "parallel/ranks/rank_layout.h"
#include "run/api/primitives.h"

/* done: number of micro-batches of the step that were computed before the search. */
static lathe_status replay(lathe_run *run, int32_t done, lathe_nonfinite *search)
{
    const int32_t n = run->set.gradient_accumulation_steps;
    const int stays = run->store.gathers != NULL; /* other ranks need this one at each gather */
    for (int32_t m = done + 1; m <= n && (!search->is_found || stays); m++) {
        lathe_forward_result f = {.size = (uint32_t)sizeof f};
        LATHE_TRY(
            lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f)); /* the batch is in place now */
        const lathe_program *p = run->programs.trained;
        const int32_t end = lathe_exec_graph(p->exec)->n_nodes;
        search->program = p;
        run->sum.pending = 0;
        const int32_t accumulates = lathe__run_accumulates(run);
        LATHE_TRY(lathe_nonfinite_in_nodes(search, 0, p->forward_end, accumulates, m));
        LATHE_TRY(lathe_nonfinite_in_nodes(search, p->forward_end, end, accumulates, m));
        run->sum.backwards++;
    }
    return LATHE_OK;
}

/* Adds a number of all ranks that take the step together, where all of them search. */
static lathe_status add_island(const lathe_run *run, double *number)
{
    lathe_ranks *const island = run->layout ? run->layout->island : NULL;
    const double *all = NULL;
    if (island == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_ranks_gather(island, number, 1, 1, &all));
    *number = 0.0;
    for (int32_t q = 0; q < lathe_ranks_count(island); q++)
        *number += all[(int64_t)q * LATHE_RANK_NUMBERS];
    return LATHE_OK;
}

/* Searches the parameters, then the step. */
static lathe_status find(lathe_run *run, const lathe_position *begin, int32_t all_search,
                         lathe_nonfinite *search)
{
    double n_found;
    LATHE_TRY(lathe_nonfinite_in_parameters(search));
    LATHE_TRY(lathe_zero_grad(run));
    n_found = search->is_found;
    if (all_search) /* where ranks divide parameters, none knows all elements of one */
        LATHE_TRY(add_island(run, &n_found));
    if (n_found > 0.0)
        return LATHE_OK;
    LATHE_TRY(lathe_loader_seek(run->data.loader, &begin->cursor));
    run->at.micro = begin->micro;
    LATHE_TRY(replay(run, begin->backwards, search));
    n_found = search->is_found;
    if (all_search)
        LATHE_TRY(add_island(run, &n_found));
    if (n_found == 0.0) {
        (void)snprintf(
            search->line, (size_t)search->line_bytes,
            "every tensor is finite when the step is computed again: suspect the hardware, "
            "or a kernel that does not repeat its results");
        search->is_found = 1;
    }
    return LATHE_OK;
}

lathe_status lathe__nonfinite_find(lathe_run *run, const lathe_position *begin, int32_t all_search,
                                   char *out, int64_t bytes)
{
    const lathe_counters at = run->at;
    lathe_nonfinite search = {.machine = &run->machine,
                              .store = &run->store,
                              .program = &run->programs.train,
                              .line = out,
                              .line_bytes = bytes};
    const lathe_status status = find(run, begin, all_search, &search);
    run->at = at;
    LATHE_TRY(status);
    LATHE_TRY(lathe_zero_grad(run));
    if (!search.is_found)
        out[0] = '\0';
    return lathe_loader_seek(run->data.loader, &at.cursor);
}
