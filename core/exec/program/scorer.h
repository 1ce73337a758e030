/* Scores sequences with a reward model: the folder of a sequence classifier with one label, beside
 * a run, on its machine.
 *
 *   create   reads config.json, builds and plans the program; no device memory, no weights
 *   place    allocates; load reads the weights
 *   score    any number of sequences, n_rows of them at a time
 */
#ifndef LATHE_EXEC_SCORER_H
#define LATHE_EXEC_SCORER_H

#include "exec/program/program.h"

typedef struct lathe_scorer lathe_scorer;

/** Input to lathe_scorer_create; the machine and the path are borrowed for the scorer's life. */
typedef struct lathe_scorer_config {
    lathe_machine *machine;
    lathe_model_source source; /* where to find the plugin of the model's family */
    const char *path;
    int32_t n_rows;        /* sequences scored at a time */
    int64_t row_tokens;    /* tokens of the longest sequence */
    int32_t compute_dtype; /* LATHE_F32, LATHE_BF16, LATHE_F16 */
    int32_t is_unmade;     /* 1: path may be the language model that the reward model will be made
                            * of; the scorer is for planning alone */
} lathe_scorer_config;

/** Memory that a scorer needs: its own by category, and of the arena that programs share. */
typedef struct lathe_scorer_needs {
    int64_t model_bytes, input_bytes, staging_bytes;
    int64_t arena_bytes, activation_bytes;
} lathe_scorer_needs;

/** A sequence: prompt and completion. */
typedef struct lathe_scored {
    const int32_t *tokens;
    int32_t n_tokens;
} lathe_scored;

/** LATHE_E_CONFIG: the folder is no sequence classifier of one label, or its model has fewer
 *  positions than row_tokens. */
lathe_status lathe_scorer_create(const lathe_scorer_config *config, lathe_scorer **out);
void lathe_scorer_destroy(lathe_scorer *scorer); /* NULL is fine */

lathe_scorer_needs lathe_scorer_needs_get(const lathe_scorer *scorer);
/** The reward model's configuration. */
const lathe_model_config *lathe_scorer_model(const lathe_scorer *scorer);

/** Allocates the memory, except the arena of at least needs.arena_bytes, which other programs may
 *  use between two calls of score. */
lathe_status lathe_scorer_place(lathe_scorer *scorer, void *arena);
/** Reads the weights; call it after place. */
lathe_status lathe_scorer_load(lathe_scorer *scorer);

/** Writes the score of each of n sequences to out f64[n]: the output of the head at the last token
 *  that is not the model's pad_token_id, as transformers computes it. The result does not depend on
 *  the other sequences. LATHE_E_ARG: an empty or too long sequence, or a token outside the
 *  vocabulary. */
lathe_status lathe_scorer_score(lathe_scorer *scorer, const lathe_scored *sequences, int32_t n,
                                double *out);

#endif
