/* Opens a run: reads its configuration, decides whether it can start, and prepares everything that
 * its mode needs. */
#ifndef LATHE_RUN_OPENING_H
#define LATHE_RUN_OPENING_H

#include "run/state/run_state.h"

/** Source of a run's settings, besides folders and the machine. */
typedef struct lathe_run_source {
    const char *path;         /* of the run file; NULL: none */
    const lathe_edits *edits; /* on top of it, as the options of the command line; NULL: none */
    lathe_run_inputs *inputs; /* of that file, if it was read before, which the run shares; NULL */
} lathe_run_source;

/** Opens a run for what is wanted, LATHE_OPEN_*. All configuration errors are in the thread's
 *  message, one per line. */
lathe_status lathe_run_open_for(const lathe_run_source *from, int32_t wants, lathe_run **out);

/** Opens a model to generate with several adapters. named: belongs to the run from now on, also
 *  after an error. */
lathe_status lathe_run_open_named(const lathe_run_source *from, struct lathe_named_adapters *named,
                                  lathe_run **out);

/** Opens a run whose data and teacher (teacher.path) lathe logprobs reads: the program `top` for
 *  top_k tokens per target, the teacher's weights, the shards of data.datasets and, if it is set,
 *  data.validation. The model that would learn is read as a description alone.
 *  LATHE_E_CONFIG: the stage learns from no stored teacher, or top_k is above the vocabulary. */
lathe_status lathe_run_open_logprobs(const lathe_run_source *from, int32_t top_k,
                                     double temperature, lathe_run **out);

/** Opens a run for training as lathe_run_open_for does, but adds its errors and warnings to diags
 * instead of logging them. is_dry: reads only the first part of the data, keeps none of it, and
 * loads no checkpoint. Ranks are joined also then. */
lathe_status lathe_run_open_training(const lathe_run_source *from, int32_t is_dry,
                                     lathe_diags *diags, lathe_run **out);

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

/** Products of other runs, which are made before a run begins. */
typedef struct lathe_beginning {
    /* The adapter with which it begins (model.path); NULL: none. */
    const lathe_run_product *product;
    const char *what; /* in messages: "the checkpoints of step \"sft\"" */
    int32_t reward;   /* 1: reward.model is the language model that the reward model is made of */
} lathe_beginning;

/** Adds to diags every error that would keep the run from starting, and all warnings. Does the same
 * work as opening a run for training, up to the allocation of memory: reads the model's
 * description, the headers of its weight files, the tokenizer and the data (which are tokenised
 * into data.cache_dir), opens the device and makes the plan.
 *
 *  wants        LATHE_OPEN_CHECK, CHECK_ELSEWHERE or CHECK_UNMADE
 *  n_ranks      checks it as rank 0 of so many, which are not there; 0: any number
 *  begins       what is not made yet; model.path is the base of an adapter. NULL: nothing
 *  out_product  what its checkpoints will hold, if there is no error; NULL: not wanted
 *
 *  Errors  LATHE_E_CONFIG: the errors are in diags. Others: the file is not valid TOML, or the
 *          machine failed; the errors are not in diags.
 */
lathe_status lathe_run_check(const lathe_run_source *from, int32_t wants, int32_t n_ranks,
                             const lathe_beginning *begins, lathe_diags *diags,
                             lathe_run_product *out_product);

/* ---- shared inside the room ---- */

/** Does everything that decides whether a training can start, up to the allocation of memory
 * (prepare.c). If run->open.diags is set, all errors and warnings are collected in it; otherwise
 * the first error ends the function. */
lathe_status lathe__run_prepare(lathe_run *run);

/** Sets the length of the run, from the size of the data if train.max_steps is not set
 * (open.c). */
lathe_status lathe__run_settle_length(lathe_run *run);

#endif
