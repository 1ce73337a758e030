/* Plans a run again with other settings: to compare fine-tuning methods, to advise what would fit,
 * to choose what ranks divide. A trial shares the run file and the plugins of its run, opens no
 * weights and no data, and logs nothing. */
#ifndef LATHE_OPENING_TRIAL_H
#define LATHE_OPENING_TRIAL_H

#include "run/run_state.h"

typedef struct lathe_trial {
    int32_t mode;            /* LATHE_OPEN_* of the plan */
    int32_t as_ranks;        /* as rank 0 of so many, which are not there; 0: alone */
    int32_t is_other_method; /* 1: the edits replace the fine-tuning method of the file; keys of
                              * [adapter] that it does not have are ignored */
    int32_t drops_auto;      /* 1: without what adapter.name = "auto" has chosen */
} lathe_trial;

/** Plans `run` with the edits on top of its settings (NULL: none). The caller closes *out, which is
 *  NULL after an error; the thread's message says why the settings cannot be planned. */
lathe_status lathe__run_try(const lathe_run *run, const lathe_trial *how, const lathe_edits *edits,
                            lathe_run **out);

#endif
