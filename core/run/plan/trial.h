/* Plans a run again with other settings: to compare fine-tuning methods, to advise what would fit,
 * to choose what ranks divide. A trial shares the run file and the plugins of its run, opens no
 * weights and no data, and logs nothing. */
#ifndef LATHE_RUN_TRIAL_H
#define LATHE_RUN_TRIAL_H

#include "run/state/run_state.h"

typedef struct lathe_trial {
    int32_t wants;           /* LATHE_OPEN_*: PLAN, or as lathe__run_alike */
    int32_t as_ranks;        /* as rank 0 of so many, which are not there; 0: alone */
    int32_t is_other_method; /* 1: the edits replace the fine-tuning method of the file; keys of
                              * [adapter] that it does not have are ignored */
    int32_t drops_auto;      /* 1: without what adapter.name = "auto" has chosen */
} lathe_trial;

/** The purpose of a trial of the run: the plan of a training, or the run's own purpose without
 *  what only its command does. */
int32_t lathe__run_alike(const lathe_run *run);

/** Plans `run` with the edits on top of its settings (NULL: none). The caller closes *out, which is
 *  NULL after an error; the thread's message says why the settings cannot be planned. */
lathe_status lathe__run_try(const lathe_run *run, const lathe_trial *how, const lathe_edits *edits,
                            lathe_run **out);

/** Reads the configuration with the settings of the folders that it names, and chooses the method
 *  of adapter.name = "auto". */
lathe_status lathe__run_configure(lathe_run *run);

/** Configures a run, and makes its parts up to the plan. */
lathe_status lathe__run_plan_stages(lathe_run *run);

/** Plans a run again as rank 0 of n_ranks with other settings, those of [parallel], without the
 * other ranks: no memory, no weights, no data (rank_plan.c). LATHE_E_CONFIG: they cannot train so.
 * After an error *out is NULL. */
lathe_status lathe_run_open_as_rank(const lathe_run *run, int32_t n_ranks, const lathe_edits *more,
                                    lathe_run **out);

#endif
