/* The parts of a run that a generator uses, and its settings. */
#ifndef LATHE_GENERATE_GENERATOR_PARTS_H
#define LATHE_GENERATE_GENERATOR_PARTS_H

#include "data/rows/run_data.h"
#include "exec/program/programs.h"
#include "model/family/generation_config.h"

/** The parts of a run that a generator uses. They must outlive it. */
typedef struct lathe_generator_parts {
    lathe_machine *machine;
    lathe_store *store;
    const lathe_params *params;
    const lathe_model_config *model;
    const lathe_generation_config *generation; /* end tokens of the model's folder */
    const lathe_programs *programs;            /* their arena is used if it is large enough */
    const lathe_run_data *data;                /* the tokenizer */
    const struct lathe_draft *draft;           /* draft_model.h; NULL: no draft model */
} lathe_generator_parts;

typedef struct lathe_generator_config {
    lathe_program_config program; /* of all its programs; the generator sets the shapes */
    int64_t seq_len;              /* tokens of a sequence, at most */
    int64_t cache_tokens;         /* of the KV cache, in all sequences; 0: chosen from batch */
    int32_t batch;                /* sequences at a time */
    int32_t draft_tokens; /* that the draft model proposes at a time; unused without parts.draft */
} lathe_generator_config;

#endif
