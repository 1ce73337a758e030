/* The file of a pipeline: steps in order, each a run file with overrides.
 *
 *   [[step]]
 *   name = "sft"
 *   run = "sft.toml"                     # relative to this file
 *   overrides = { "train.max_steps" = 40, "checkpoint.dir" = "out/sft" }
 *
 *   [[step]]
 *   name = "dpo"
 *   run = "dpo.toml"
 *   overrides = { model = { path = "@sft" } }
 *
 * "@NAME" as model.path (or another key that names a model), in the overrides or in the run file,
 * stands for the final checkpoint of an earlier step; "@NAME/average" for its averaged weights. The
 * model of an element of [[reward]] is the override "reward.0.model".
 * Relative paths in the overrides are relative to the pipeline's file.
 */
#ifndef LATHE_CMD_PIPELINE_FILE_H
#define LATHE_CMD_PIPELINE_FILE_H

#include "base/diag.h"
#include "config/config.h"
#include "run/state/run_inputs.h"

/** A key of a step that stands for the checkpoint of an earlier step. */
typedef struct lathe_pipeline_use {
    int32_t at;          /* index in edits */
    int32_t step;        /* index of the earlier step */
    const char *rest;    /* "", or "/average" */
    const char *written; /* "@sft/average", as written */
} lathe_pipeline_use;

typedef struct lathe_pipeline_step {
    const char *name, *run;   /* run: path of its run file */
    lathe_place place;        /* of the step's table */
    lathe_edits edits;        /* its overrides, and those of the command line */
    lathe_place *places;      /* [edits.n] where they are written; line 0: on the command line */
    lathe_run_inputs *inputs; /* its run file, read once for all that is done with the step */
    lathe_pipeline_use *uses;
    int32_t n_uses;
    const char *dir; /* checkpoint.dir of the run; NULL: the run file is not valid */
} lathe_pipeline_step;

typedef struct lathe_pipeline {
    const char *path;
    lathe_pipeline_step *steps;
    int32_t n;
    lathe_registry *registry; /* of all steps that name no plugins of their own */
} lathe_pipeline;

/** Whether an override's key is `key`, or that key of an element: "reward.0.model" is
 *  "reward.model". */
int32_t lathe_pipeline_is_key(const char *written, const char *key);

/** The place in the pipeline's file of an override that a diagnostic names ("--train.max_steps");
 *  any other place as it is. Borrowed from the pipeline. */
lathe_place lathe_pipeline_place(const lathe_pipeline_step *step, const lathe_place *place);

/** Reads the file, and of each run file checkpoint.dir and the keys with "@NAME". Everything is in
 * the arena. more: overrides for every step, which win. Call lathe_pipeline_fini also on errors.
 * Errors: LATHE_E_CONFIG: diags has all of
 * them, with their places; LATHE_E_PARSE, LATHE_E_IO, LATHE_E_NOT_FOUND: the file. */
lathe_status lathe_pipeline_load(const char *path, const lathe_edits *more, lathe_arena *arena,
                                 lathe_diags *diags, lathe_pipeline *out);
void lathe_pipeline_fini(lathe_pipeline *pipeline);

/** The configuration of a step as its file and edits give it, before plugins are chosen. */
lathe_status lathe_pipeline_config(const lathe_pipeline_step *step, const lathe_edits *edits,
                                   lathe_diags *diags, lathe_config **out);

#endif
