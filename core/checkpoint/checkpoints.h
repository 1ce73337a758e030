/* What a run keeps for the checkpoints that it writes. */
#ifndef LATHE_CHECKPOINT_CHECKPOINTS_H
#define LATHE_CHECKPOINT_CHECKPOINTS_H

#include "model/weight_origin.h"

enum {
    LATHE_SAVE_AUTO = -1
}; /* checkpoint.save_dtype: each tensor in the dtype that it was read in */

/** [checkpoint] of the run file. */
typedef struct lathe_checkpoint_settings {
    const char *dir; /* NULL: none */
    int64_t every;
    const char *resume; /* "auto", "never" or a path */
    int32_t keep_last, keep_best;
    double every_minutes;
    int64_t every_epochs;
    const char *best_metric;
    int32_t best_is_higher, async, gate;
    int32_t save_dtype;  /* of model.safetensors: LATHE_SAVE_AUTO, LATHE_F32, BF16, F16 */
    int64_t shard_bytes; /* of one of its files; 0: all in one */
} lathe_checkpoint_settings;

/** How the model's own file is written (model_file.h). */
typedef struct lathe_model_file {
    lathe_weight_origin *origin; /* files of the weights that do not train; NULL: none */
    int32_t *dtypes;             /* [params.n_model] in model.safetensors */
    int32_t is_guessed; /* dtypes are from config.json, because model.path has no weights */
} lathe_model_file;

/** The branch that the run is on (checkpoint_branch.h). */
typedef struct lathe_branch {
    int64_t number;   /* of the newest branch; 0: the run never went back */
    int32_t began;    /* 1: this start began it */
    const char *json; /* all branches of the run, a JSON array; NULL: none */
} lathe_branch;

typedef struct lathe_checkpoints {
    struct lathe_image *image; /* what asynchronous checkpoints are written from; NULL: none */
    lathe_model_file file;
    lathe_branch branch;
    const char *plugins_json;   /* names, versions, hashes, once known; NULL before */
    const char *resume_checked; /* checkpoint that lathe__resume_check has looked at; NULL: none */
    int32_t weights_wait; /* not filled yet: a checkpoint that holds them all is to be resumed */
    int32_t warned_of_metric; /* that checkpoint.best_metric does not come */
} lathe_checkpoints;

#endif
