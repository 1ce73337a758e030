/* Adds tokens to the model of a folder: to its tokenizer, and a row for each to its embedding and
 * head. */
#ifndef LATHE_MODEL_VOCAB_GROWTH_H
#define LATHE_MODEL_VOCAB_GROWTH_H

#include "base/work_watch.h"
#include "model/family/grown_rows.h"

typedef struct lathe_vocab_growth {
    const char *const *tokens; /* [n] texts */
    int32_t n;                 /* 0: only where multiple_of is above 1 */
    int32_t are_plain;         /* 1: not special: kept when special tokens are left out of a text */
    int32_t init;              /* LATHE_GROWTH_* */
    uint64_t seed;             /* seed of the noise */
    int64_t multiple_of;       /* the rows become a multiple of it; 1: as many as are needed */
} lathe_vocab_growth;

typedef struct lathe_vocab_grown {
    int64_t n_added, n_known; /* tokens that are new, and those that were added tokens before */
    int64_t rows_before, rows;
} lathe_vocab_grown;

/** Writes the model of `folder` to the new folder `path`, which appears under its name when it is
 *  complete. A token that the vocabulary has becomes an added token with its id; others get the ids
 *  after all tokens, as by add_tokens of transformers. Tokens that only the files beside
 *  tokenizer.json name are written into it, so that they keep their ids. Where ids lie beyond the
 *  rows of the model, the matrices get rows for them. Every row of a token with a new id, and every
 *  row beyond those that were there, begins as `init` says; the mean and the deviation are of all
 *  rows that were there, in double, rounded once. All other tensors and bytes are copied.
 *
 *  Errors  LATHE_E_UNSUPPORTED: a GGUF file, or an embedding that is stored quantized. LATHE_E_ARG:
 *          a token is empty, not UTF-8 or named twice, or there is none and multiple_of is 1.
 *  A training run makes the same rows without a folder (model/family/grown_rows.h). */
lathe_status lathe_vocab_grow(const lathe_model_source *source, const char *folder,
                              const char *path, const lathe_vocab_growth *growth,
                              const lathe_work_watch *watch, lathe_vocab_grown *out);

#endif
