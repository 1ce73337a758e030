/* How far the steps of a pipeline are, from the folders of their checkpoints. */
#ifndef LATHE_CMD_PIPELINE_STATE_H
#define LATHE_CMD_PIPELINE_STATE_H

#include "cmd/pipeline/pipeline_file.h"

/* In checkpoint.dir of a finished step: the settings that it finished with. */
#define LATHE_PIPELINE_RECORD "pipeline.json"

enum {
    LATHE_STEP_NEW,   /* no checkpoint */
    LATHE_STEP_BEGUN, /* has a checkpoint, and goes on from it */
    LATHE_STEP_DONE   /* its run ended, and its settings are still the same */
};

typedef struct lathe_step_state {
    int32_t kind;      /* LATHE_STEP_* */
    int64_t at;        /* step of the latest checkpoint; 0: none */
    const char *why;   /* of a run that ended, but is not finished: what changed; or NULL, "" */
    int32_t n_changed; /* settings that `why` lists */
    const char *checkpoint; /* absolute path of the latest one; NULL: none */
} lathe_step_state;

/** Reads the state of step i. The states of the steps before it must be known: overrides "@NAME" of
 * finished steps are replaced by their checkpoints. LATHE_E_CONFIG: the step was trained from
 * another checkpoint of an earlier step than its present one, or that step is not finished. */
lathe_status lathe_step_state_read(lathe_pipeline *pipeline, int32_t i, lathe_arena *arena,
                                   lathe_step_state *states);

/** Records in checkpoint.dir that the step is finished, with its settings. */
lathe_status lathe_step_state_write(const lathe_pipeline_step *step);

/** Replaces the overrides "@NAME" of step i by the checkpoints of finished steps. LATHE_E_CONFIG: a
 * checkpoint holds no model, but only an adapter, or no averaged weights. */
lathe_status lathe_pipeline_resolve(lathe_pipeline *pipeline, int32_t i, lathe_arena *arena,
                                    const lathe_step_state *states);

#endif
