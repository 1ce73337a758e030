/* Computes a step again, node by node, in search of its first NaN or infinity. */
#include "loop/nonfinite_replay.h"

#include <stdio.h>

#include "primitives/agree.h"
#include "primitives/primitives.h"
#include "update/nonfinite.h"

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
    if (!search->is_found)
        (void)snprintf(
            search->line, (size_t)search->line_bytes,
            "every tensor is finite when the step is computed again: suspect the hardware, "
            "or a kernel that does not repeat its results");
    return LATHE_OK;
}

lathe_status lathe__nonfinite_find(lathe_run *run, const lathe_position *begin, char *out,
                                   int64_t bytes)
{
    const lathe_counters at = run->at;
    lathe_nonfinite search = {.machine = &run->machine,
                              .store = &run->store,
                              .program = &run->programs.train,
                              .line = out,
                              .line_bytes = bytes};
    LATHE_TRY(lathe_nonfinite_in_parameters(&search));
    LATHE_TRY(lathe_zero_grad(run));
    double n_found = search.is_found;
    if (run->store.gathers) /* no rank knows all elements of a parameter */
        LATHE_TRY(lathe__run_add_ranks(run, &n_found, 1));
    if (n_found > 0.0 && !search.is_found)
        (void)snprintf(out, (size_t)bytes,
                       "another rank holds a parameter that was not finite before the step");
    if (n_found > 0.0)
        return LATHE_OK;
    LATHE_TRY(lathe_loader_seek(run->data.loader, &begin->cursor));
    run->at.micro = begin->micro;
    const lathe_status status = replay(run, begin->backwards, &search);
    run->at = at;
    LATHE_TRY(lathe_zero_grad(run));
    LATHE_TRY(status);
    return lathe_loader_seek(run->data.loader, &at.cursor);
}
