/* Holds settings and data that a run needs for its checkpoints. */
#ifndef LATHE_CHECKPOINT_CHECKPOINTS_H
#define LATHE_CHECKPOINT_CHECKPOINTS_H

#include "checkpoint/state/checkpoint_settings.h"
#include "model/family/weight_origin.h"

/** How the model's own file is written (model_file.h). */
typedef struct lathe_model_file {
    lathe_weight_origin *origin; /* files with the weights that are not trained; NULL: none */
    int32_t *dtypes;             /* [params.n_model] in model.safetensors */
    int64_t carried_bytes;       /* of the tensors of other towers, in each model.safetensors */
    int32_t is_guessed; /* dtypes are from config.json, because model.path has no weights */
} lathe_model_file;

/** The branch that the run is on (checkpoint_branch.h). */
typedef struct lathe_branch {
    int64_t number;   /* of the newest branch; 0: the run never went back */
    int32_t began;    /* 1: this process started the branch */
    const char *json; /* all branches of the run, a JSON array; NULL: none */
} lathe_branch;

typedef struct lathe_checkpoints {
    /* copy from which asynchronous checkpoints are written; NULL: none */
    struct lathe_image *image;
    lathe_model_file file;
    lathe_branch branch;
    const char *plugins_json;   /* names, versions and hashes; NULL until they are computed */
    const char *parents_json;   /* parents and data (parents.h); NULL until they are computed */
    const char *adapter_dir;    /* folder whose adapter was read last; NULL: none */
    const char *resume_checked; /* checkpoint that lathe__resume_check has checked; NULL: none */
    /* 1: the weights are not filled yet, because the checkpoint to resume from holds them all */
    int32_t weights_wait;
    /* 1: of a folder's weights those of model.safetensors are read, as other programs read them,
     * and not the masters that the file rounds */
    int32_t reads_rounded;
    const struct lathe_lock *lock; /* of the run's folder, while it is held; NULL: none */
    int32_t warned_of_metric;      /* 1: warned that checkpoint.best_metric is never reported */
} lathe_checkpoints;

#endif
