/* Describes the average of the weights: which kind a run keeps, and a store whose weights are the
 * averages. The rules of averaging are in weight_average.h. */
#ifndef LATHE_OPTIM_AVERAGE_ROWS_H
#define LATHE_OPTIM_AVERAGE_ROWS_H

#include "exec/store/store.h"
#include "plug/select.h"

enum { LATHE_AVERAGE_NONE = 0, LATHE_AVERAGE_EMA = 1, LATHE_AVERAGE_SWA = 2 };

/** 1: the optimizer averages the weights by itself. 0 for an instance without a component. */
int32_t lathe_optimizer_averages(const lathe_instance *optimizer);

/** 1: the average is a separate state, which checkpoints save (ema, swa). */
int32_t lathe_average_is_state(const lathe_store *store, const lathe_instance *optimizer);

/** The average's name in run.json: "none", "ema", "swa", "optimizer". kind: LATHE_AVERAGE_*. */
const char *lathe_average_name(const lathe_store *store, const lathe_instance *optimizer,
                               int32_t kind);

/** Copies the weights into their averages, as far as this rank holds these. */
lathe_status lathe_average_copy(const lathe_store *store, lathe_machine *m);
/** Like lathe_average_copy, for one row, if it has an average. */
lathe_status lathe_average_copy_row(const lathe_store *store, lathe_machine *m, int32_t row);

/** Makes a view of `store` whose weights are the averages, to write a checkpoint from. Its rows are
 * in the arena. */
lathe_status lathe_average_view(const lathe_store *store, lathe_arena *arena, lathe_store *out);

#endif
