/* The data of a run: the tokenizer, the token shards, and a loader for each split. */
#ifndef LATHE_DATA_RUN_DATA_H
#define LATHE_DATA_RUN_DATA_H

#include "data/conversation/answer_end.h"
#include "data/rows/loader.h"
#include "lathe/renderer.h"

enum { LATHE_MAX_STOP_TOKENS = 16 };

/** The template that data.chat_template names, which the folders that the run writes get; borrowed
 * from `chat`. */
typedef struct lathe_given_template {
    lathe_chars text, tools; /* data NULL: none */
} lathe_given_template;

typedef struct lathe_run_data {
    lathe_tokenizer *tokenizer;
    const char *tokenizer_dir; /* folder of its files; NULL: raw bytes */
    int32_t stop_tokens[LATHE_MAX_STOP_TOKENS], n_stop_tokens;     /* of generate.stop_tokens */
    int32_t rollout_stops[LATHE_MAX_STOP_TOKENS], n_rollout_stops; /* of stage.stop_tokens */
    lathe_answer_end answer_end;                                   /* of `chat` */
    int32_t saves_answer_end; /* 1: the folders that the run writes get it as an end token */
    struct lathe_chat_template *chat; /* of that folder, or given; NULL: none, see no_chat */
    const char *no_chat;
    lathe_given_template given;
    /* [n_inputs] inputs of the stage that the data have: the first n_columns come from columns, the
     * others from the stored teacher */
    lathe_stage_input inputs[LATHE_MAX_STAGE_INPUTS];
    lathe_input_shape shapes[LATHE_MAX_STAGE_INPUTS]; /* zeros: of a column */
    int32_t n_inputs, n_columns;
    lathe_row_objective objective; /* of the stage; kind CAUSAL: rows are as they are packed */
    lathe_shards *shards, *validation_shards;
    lathe_loader *loader, *validation; /* NULL: the split does not exist */
    lathe_cursor validation_start;     /* start of the validation split */
    int64_t n_wanted; /* rows (pairs) of train.epochs passes; 0: train.max_steps is the length */
} lathe_run_data;

#endif
