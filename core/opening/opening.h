/* Opens a run: reads its configuration, decides whether it can start, and prepares everything that
 * its mode needs. */
#ifndef LATHE_OPENING_OPENING_H
#define LATHE_OPENING_OPENING_H

#include "run/run_state.h"

/** Opens a run for `mode`, LATHE_OPEN_*. All configuration errors are in the thread's message, one
 * per line. */
lathe_status lathe_run_open_mode(const char *config_path, const lathe_override *overrides,
                                 int32_t n_overrides, int32_t mode, lathe_run **out);

/** Opens a run whose model `lathe quantize` writes: the plan of the configuration, without memory
 * and weights. A format that needs calibration data is accepted. */
lathe_status lathe_run_open_to_quantize(const lathe_override *overrides, int32_t n_overrides,
                                        lathe_run **out);

/** Opens a run whose data and teacher (teacher.path) lathe logprobs reads: the program `top` for
 *  top_k tokens per target, the teacher's weights, the shards of data.datasets and, if it is set,
 *  data.validation. The model that would learn is read as a description alone.
 *  LATHE_E_CONFIG: the stage learns from no stored teacher, or top_k is above the vocabulary. */
lathe_status lathe_run_open_logprobs(const char *config_path, const lathe_override *overrides,
                                     int32_t n_overrides, int32_t top_k, double temperature,
                                     lathe_run **out);

/** Opens a run for training as lathe_run_open_mode does, but adds its errors and warnings to diags
 * instead of logging them. is_dry: reads only the first part of the data, keeps none of it, and
 * loads no checkpoint. Ranks are joined also then. */
lathe_status lathe_run_open_training(const char *config_path, const lathe_override *overrides,
                                     int32_t n_overrides, int32_t is_dry, lathe_diags *diags,
                                     lathe_run **out);

/** How a run is checked: bits. */
enum {
    LATHE_CHECK_OFFLINE = 1, /* skips what needs the machine or the data */
    /* Files that the run reads are not made yet: they are not looked for. With OFFLINE. */
    LATHE_CHECK_UNMADE = 2,
    /* reward.model is the folder of the language model that the reward model will be made of. */
    LATHE_CHECK_REWARD_UNMADE = 4
};

/** Properties of the checkpoints that a run will write. */
typedef struct lathe_run_product {
    int32_t saves_model; /* 1: a whole model; 0: only an adapter */
    int32_t n_labels;    /* of a sequence classifier, such as a reward model; 0: a language model */
    int32_t has_average; /* 1: averaged weights too */
    /* With an adapter alone: the run's settings, JSON, and the tensors of the adapter's file, a
     * line for each (adapter_file.h). Owned; NULL otherwise. */
    char *settings, *tensors;
} lathe_run_product;

void lathe_run_product_fini(lathe_run_product *product);

/** An adapter that another run will make, with which a run is to begin (model.path). */
typedef struct lathe_beginning {
    const lathe_run_product *product;
    const char *what; /* in messages: "the checkpoints of step \"sft\"" */
} lathe_beginning;

/** Adds to diags every error that would keep the run from starting, and all warnings. Does the same
 * work as opening a run for training, up to the allocation of memory: reads the model's
 * description, the headers of its weight files, the tokenizer and the data (which are tokenised
 * into data.cache_dir), opens the device and makes the plan.
 *
 *  how          LATHE_CHECK_*
 *  n_ranks      checks it as rank 0 of so many, which are not there; 0: any number
 *  begins       the adapter that it begins with, which is not made yet; model.path is its base.
 *               NULL: none
 *  out_product  what its checkpoints will hold, if there is no error; NULL: not wanted
 *
 *  Errors  LATHE_E_CONFIG: the errors are in diags. Others: the file is not valid TOML, or the
 *          machine failed; the errors are not in diags.
 */
lathe_status lathe_run_check(const char *config_path, const lathe_override *overrides,
                             int32_t n_overrides, int32_t how, int32_t n_ranks,
                             const lathe_beginning *begins, lathe_diags *diags,
                             lathe_run_product *out_product);

/** Plans a run again as rank 0 of n_ranks with other settings, those of [parallel], without the
 * other ranks: no memory, no weights, no data (rank_plan.c). LATHE_E_CONFIG: they cannot train so.
 * After an error *out is NULL. */
lathe_status lathe_run_open_as_rank(const lathe_run *run, int32_t n_ranks, const lathe_edits *more,
                                    lathe_run **out);

/* ---- shared inside the room ---- */

/** Reads the configuration and the settings (open.c). */
lathe_status lathe__run_configure(lathe_run *run);

/** Does everything that decides whether a training can start, up to the allocation of memory
 * (prepare.c). If run->open.diags is set, all errors and warnings are collected in it; otherwise
 * the first error ends the function. */
lathe_status lathe__run_prepare(lathe_run *run);

/** Sets the length of the run, from the size of the data if train.max_steps is not set
 * (open.c). */
lathe_status lathe__run_settle_length(lathe_run *run);

#endif
