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
#ifndef LATHE_PIPELINE_PIPELINE_FILE_H
#define LATHE_PIPELINE_PIPELINE_FILE_H

#include "base/diag.h"
#include "config/config.h"

/** A key of a step that stands for the checkpoint of an earlier step. */
typedef struct lathe_pipeline_use {
    int32_t at;          /* index in overrides */
    int32_t step;        /* index of the earlier step */
    const char *rest;    /* "", or "/average" */
    const char *written; /* "@sft/average", as written */
} lathe_pipeline_use;

typedef struct lathe_pipeline_step {
    const char *name, *run; /* run: path of its run file */
    lathe_place place;      /* of the step's table */
    lathe_override *overrides;
    lathe_place *places; /* [n_overrides] where they are written; line 0: on the command line */
    int32_t n_overrides;
    lathe_pipeline_use *uses;
    int32_t n_uses;
    const char *dir; /* checkpoint.dir of the run; NULL: the run file is not valid */
} lathe_pipeline_step;

typedef struct lathe_pipeline {
    const char *path;
    lathe_pipeline_step *steps;
    int32_t n;
} lathe_pipeline;

/** A string as a TOML literal, in the arena; NULL: no memory. */
const char *lathe_pipeline_quoted(const char *text, lathe_arena *arena);

/** Whether an override's key is `key`, or that key of an element: "reward.0.model" is
 *  "reward.model". */
int32_t lathe_pipeline_is_key(const char *written, const char *key);

/** The place in the pipeline's file of an override that a diagnostic names ("--train.max_steps");
 *  any other place as it is. Borrowed from the pipeline. */
lathe_place lathe_pipeline_place(const lathe_pipeline_step *step, const lathe_place *place);

/** Reads the file, and of each run file checkpoint.dir and the keys with "@NAME". Everything is in
 * the arena. more: overrides for every step, which win. Errors: LATHE_E_CONFIG: diags has all of
 * them, with their places; LATHE_E_PARSE, LATHE_E_IO, LATHE_E_NOT_FOUND: the file. */
lathe_status lathe_pipeline_load(const char *path, const lathe_override *more, int32_t n_more,
                                 lathe_arena *arena, lathe_diags *diags, lathe_pipeline *out);

#endif
