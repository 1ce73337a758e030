/* What a run keeps for the checkpoints that it writes. */
#ifndef LATHE_CHECKPOINT_CHECKPOINTS_H
#define LATHE_CHECKPOINT_CHECKPOINTS_H

#include "model/weight_origin.h"

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
    int32_t warned_of_metric;   /* that checkpoint.best_metric does not come */
} lathe_checkpoints;

#endif
