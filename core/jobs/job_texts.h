/* Models that are run over texts: to calibrate a format, or to evaluate a folder. */
#ifndef LATHE_JOBS_TEXTS_H
#define LATHE_JOBS_TEXTS_H

#include "jobs/job.h"
#include "run/state/run_state.h"
#include "session/eval_data.h"

/** How a folder is run over texts. */
typedef struct lathe_job_texts {
    const char *dash; /* lathe_job_caller */
    lathe_registry *registry;
    lathe_eval_source source;
    int32_t calibrates; /* 1: rows of 512 tokens, or of as many as the model has positions for */
    int64_t length; /* tokens of a row, unless the settings say it; 0: as lathe eval takes them */
    int32_t precision; /* LATHE_F32, ... unless the settings say it; -1: as lathe eval takes it */
} lathe_job_texts;

/** Opens the folder of a model to evaluate whole texts, whatever stage it was trained with.
 *  settings: those of [data], [train], [device], [attention], [tokenizer] and plugins. */
lathe_status lathe__job_open_texts(const char *folder, const lathe_edits *settings,
                                   const lathe_job_texts *texts, lathe_run **out);

/** The number of micro-batches with n_rows rows of the run's data (0: 128, or all). most_inputs:
 *  of a layer, of which there must be as many tokens. LATHE_E_CONFIG: there are too few. */
lathe_status lathe__job_count_batches(const lathe_run *run, int32_t n_rows, int64_t most_inputs,
                                      const char *dash, int64_t *out);

/** Finds the weights of a whole model. */
lathe_status lathe__job_find_model(const char *word, int32_t which, lathe_arena *arena,
                                   const char **out);

#endif
