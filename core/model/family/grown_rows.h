/* A model with more rows in its embedding and head than its folder has.
 *
 * The folder stays as it is: the rows are made when they are read, so that whoever loads, checks or
 * copies the weights sees the larger matrices.
 */
#ifndef LATHE_MODEL_GROWN_ROWS_H
#define LATHE_MODEL_GROWN_ROWS_H

#include "base/buffer.h"
#include "files/safetensors/safetensors.h"
#include "model/family/hf_config.h"

/* First values of rows (lathe_row_growth.init). */
enum {
    LATHE_GROWTH_MEAN = 0, /* the mean of the old rows */
    LATHE_GROWTH_NOISE = 1 /* and noise: mean + sqrt(1e-9) * std * z per column, z from N(0, 1) */
};

/** The rows of a vocabulary that begin anew: those beyond rows_before, whichever token they belong
 *  to, and those of `fresh`. The mean and the deviation are of all rows that were there, in double,
 *  rounded once.
 *
 *  Source  resize_token_embeddings of transformers 5.24 (mean_resizing), whose noise has the
 *          covariance of the rows and not only its diagonal. */
typedef struct lathe_row_growth {
    int64_t rows_before, rows;
    const int32_t *fresh; /* [n_fresh] rows below rows_before */
    int64_t n_fresh;
    int32_t init; /* LATHE_GROWTH_* */
    uint64_t seed;
} lathe_row_growth;

/** Smallest number of rows for n_tokens tokens that is no less than `vocab`, and a multiple. */
int64_t lathe_grown_row_count(int64_t vocab, int64_t n_tokens, int64_t multiple_of);

/** Lists in `out`, in an arena, which rows of a model begin anew below its own: those of the tokens
 *  ids[n] that are no tokens of its tokenizer, which has n_tokens. */
lathe_status lathe_fresh_rows(const int32_t *ids, int64_t n, int64_t n_tokens, lathe_arena *arena,
                              lathe_row_growth *out);

/** Makes a set of the tensors of `set`, which it holds, with the grown embedding, head and bias of
 *  the head. Tensors that do not grow are the set's own. A file may hold the head of a tied model,
 *  too: it stays equal to the embedding.
 *
 *  Errors  LATHE_E_UNSUPPORTED: one of them is not stored as rows of plain numbers. */
lathe_status lathe_grown_weights(const lathe_safetensors *set, const lathe_model_config *config,
                                 const lathe_row_growth *growth, const char *folder,
                                 lathe_safetensors **out);

/** Opens the weights of the model that `config` was read for: lathe_model_weights, with the rows of
 *  config->growth if it has one. */
lathe_status lathe_model_config_weights(const lathe_model_config *config, const char *folder,
                                        lathe_safetensors **out);

#endif
