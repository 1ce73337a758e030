/* The loader: micro-batches of rows, in an order that depends only on (seed, epoch).
 *
 * The rows of a split are numbered. Epoch e visits them in the order of a keyed bijection
 * (shuffle.h). Epochs follow each other without a gap, so a batch may contain the end of one epoch
 * and the start of the next. In an epoch every row occurs exactly once over all ranks; rows of a
 * dataset with weight w occur w times, and a fraction selects different rows in each epoch. Batch k
 * of rank r of n contains the places (k*n + r)*B ... of that endless order: the ranks together have
 * the batch that one rank with n*B rows has. The cursor counts places of all ranks together, so a
 * run can resume with another number of ranks.
 *
 * A prefetch thread prepares batches in advance in a ring; it does not change what the caller gets.
 */
#ifndef LATHE_DATA_LOADER_H
#define LATHE_DATA_LOADER_H

#include "data/records/row_kind.h"
#include "data/rows/logprob_set.h"
#include "data/rows/multipack.h"
#include "data/rows/row_objective.h"
#include "data/rows/shards.h"

enum { LATHE_SPLIT_TRAIN = 0, LATHE_SPLIT_VALIDATION = 1 };

/** How documents become rows. Sequential: one after another, cut every T tokens, also inside a
 *  document. Multipack: whole documents (those longer than T are cut into pieces of T), combined so
 *  that little of a row stays empty (multipack.h). None: as multipack, but each piece has a row of
 *  its own, and padding after it. A row has documents of only one dataset. */

/** The packing of rows of this kind for the setting `packing` (LATHE_PACK_*); never AUTO. */
int32_t lathe_packing(int32_t packing, int32_t rows);

typedef struct lathe_loader_config {
    const lathe_shards *shards; /* borrowed for the loader's life */
    int32_t n_rows;        /* B: rows of a micro-batch; even for pairs and unpaired examples (2P) */
    int32_t row_tokens;    /* T */
    int32_t rank, n_ranks; /* n_ranks 0 counts as 1 */
    uint64_t seed;
    int32_t no_shuffle; /* 1: rows in the order of the data */
    int32_t split;      /* LATHE_SPLIT_* */
    /* Share of the documents (pairs) used for validation, in [0, 1); at least one if > 0. Only the
     * seed decides which, so both splits agree. If there is one document, its last tokens are
     * used. */
    double validation_fraction;
    int64_t validation_count; /* number of validation documents (pairs); 0: use the fraction */
    int64_t n_epochs;         /* 0: endless */
    int32_t n_prefetch;       /* batches that a thread prepares in advance; 0: no thread */
    int32_t packing;          /* LATHE_PACK_*; pairs are not packed, examples never sequentially */
    int32_t overlong;         /* LATHE_OVERLONG_* (row_kind.h); 0: they are cut */
    /* Inputs of the stage: first those that the shards have (lathe_dataset.inputs), in their order,
     * then those of source STORED, with the counts in `shapes`. */
    int32_t n_inputs;
    const lathe_stage_input *inputs; /* [n_inputs] borrowed for the loader's life */
    const lathe_input_shape *shapes; /* [n_inputs] likewise; NULL: all are columns */
    /* Log-probabilities of the shards' records, borrowed; NULL: inputs of source STORED have no
     * target. */
    const lathe_logprob_set *stored;
    const lathe_row_objective *objective; /* borrowed likewise; NULL: causal */
} lathe_loader_config;

/** One micro-batch. All arrays are i32[n_rows * row_tokens], borrowed until the next call.
 *
 *  Packed: documents one after another. positions count from 0 at the start of each document and of
 *  the row. The target of a token is the next token of the same document (end-of-text included),
 *  else -1; the first token of a document is never a target. If the row ends inside a document, the
 *  last token still has its target. The rest of the row is filled with eos, target -1, as a
 *  document of its own.
 *
 *  Packed, with a prefix objective: the tokens of the prefix are no targets. With a masked
 *  objective: the target of a chosen token is the token that was there, and the others have none
 *  (row_objective.h).
 *
 *  Completions: whole examples, packed; the target is also -1 if the next token belongs to the
 *  prompt. An example longer than T is cut after T tokens (or skipped: overlong), and skipped if
 *  these contain no target.
 *
 *  Pairs: row p is prompt+chosen+eos, row P+p prompt+rejected+eos, cut after T tokens (overlong: or
 *  the pair is left out) and padded with eos on the right. Records whose prompt alone fills T are
 * skipped. targets[i] = tokens[i+1] if that token belongs to the completion (with its eos), else
 * -1. The padding is a document of its own.
 *
 *  Unpaired: row p is prompt+completion of example p, row P+p the prompt of example p with the
 *  completion of example p-1 of the batch of all ranks (the first one: of its last example; one
 * that is alone in its batch: of the example before it; no other record there: padding); else as
 * pairs.
 *
 *  Prompts: row p is a prompt without targets; prompts that fill a row are skipped. */
typedef struct lathe_batch {
    int32_t n_rows, row_tokens;
    const int32_t *tokens;
    const int32_t *targets;   /* -1: not a target */
    const int32_t *positions; /* within the document */
    const int32_t *doc_start; /* index in the row where the token's document begins */
    const int32_t *key_end;   /* end of the keys that the token sees; NULL: causal */
    int64_t n_target;         /* number of targets >= 0 */
    int64_t n_records; /* pairs (unpaired examples) that are not padding; 0 for packed rows */
    /* [n_inputs] the stage's inputs, of their dtype: [n_rows, count], or [n_rows * row_tokens,
     * count] per token; 0 in padding. Stored tokens are -1 where there is no target. */
    const void *inputs[LATHE_MAX_STAGE_INPUTS];
    /* Tokens of the longest sequence in the batch of all ranks, without padding, if a row has one
     * sequence; else row_tokens. 0: only padding. */
    int64_t n_longest;
    int64_t n_filled; /* rows (pairs) of padding after the end of the last epoch */
    int64_t ended;    /* 1: all epochs are over; the batch has only padding */
} lathe_batch;

/** The whole state of the loader: plain data, for checkpoints. */
typedef struct lathe_cursor {
    int64_t seed;
    int64_t epoch;          /* number of finished epochs */
    int64_t index;          /* rows (pairs) of this epoch used by all ranks, < rows_per_epoch */
    int64_t rows_per_epoch; /* of the split */
    int64_t identity; /* hash of data, T, kind of rows, split; lathe_loader_seek compares it */
} lathe_cursor;

typedef struct lathe_loader lathe_loader;

/** LATHE_E_ARG names a wrong setting; LATHE_E_CONFIG: the split has no rows. */
lathe_status lathe_loader_create(const lathe_loader_config *config, lathe_loader **out);
/** Stops the thread and frees the loader; NULL is fine. */
void lathe_loader_destroy(lathe_loader *loader);

/** Returns the next micro-batch. Allocates nothing. */
lathe_status lathe_loader_next(lathe_loader *loader, lathe_batch *out);

/** A prompt of the data; its memory is borrowed until the next call. */
typedef struct lathe_prompt_row {
    const int32_t *tokens;
    int32_t n_tokens, reserved;
    const char *record; /* the record of the data as JSON, without a NUL after it */
    int64_t record_bytes;
    int64_t index; /* of the record (lathe_shards_where) */
} lathe_prompt_row;

/** Gives this rank the next n prompts, in the order that lathe_loader_next would have, and moves
 *  the cursor past those of all ranks. *out_n: fewer than n only when all epochs are over. The
 * first call with a larger n than any before allocates. LATHE_E_ARG: the shards have no prompts. */
lathe_status lathe_prompt_next(lathe_loader *loader, int32_t n, lathe_prompt_row *out,
                               int32_t *out_n);

/** The state after the batches that lathe_loader_next has returned; prefetched batches do not
 *  count. */
void lathe_loader_cursor(const lathe_loader *loader, lathe_cursor *out);
/** Continues at the cursor. LATHE_E_STATE: it belongs to other data, row size, seed or split. */
lathe_status lathe_loader_seek(lathe_loader *loader, const lathe_cursor *cursor);
/** Checks whether lathe_loader_seek would accept the cursor; returns its errors. */
lathe_status lathe_loader_check_cursor(const lathe_loader *loader, const lathe_cursor *cursor);

/** Facts about the split. */
typedef struct lathe_loader_facts {
    int64_t n_documents; /* documents (pairs) of the split */
    int64_t n_tokens;    /* tokens of its documents (of pairs: prompt, chosen and rejected) */
    int64_t text_bytes;  /* UTF-8 bytes of their text; 0 when the shards are in memory */
    int64_t n_rows;      /* rows (pairs) made of them */
    int64_t n_places;    /* rows (pairs) per epoch, with weights */
    int64_t n_left_out;  /* pairs whose prompt alone fills a row; examples without a target */
    int64_t n_overlong;  /* other pairs and examples longer than a row, in both splits */
    int64_t n_cut;       /* those of them in this split whose first T tokens are used */
    int64_t left_out[LATHE_ROW_EXAMPLES]; /* the first records that n_left_out counts */
    int64_t overlong[LATHE_ROW_EXAMPLES]; /* the first records that n_overlong counts */
    int64_t index_bytes;                  /* memory of the row index */
    int64_t n_same_cut;                   /* pairs that are cut to two equal rows, in both splits */
    int64_t same_cut[LATHE_ROW_EXAMPLES]; /* the first records that n_same_cut counts */
    int64_t is_cut;  /* 1: the only document is divided; its last tokens are for validation */
    int64_t n_spare; /* packed: tokens in no row, because a row of one token has no target */
    double fill;     /* packed: (n_tokens - n_spare) / (n_rows * T) */
} lathe_loader_facts;

void lathe_loader_facts_get(const lathe_loader *loader, lathe_loader_facts *out);

/** UTF-8 bytes of the text of the split's rows; 0 if the shards are in memory. Divided by
 *  lathe_loader_tokens: bytes per token, for bits per byte. */
int64_t lathe_loader_text_bytes(const lathe_loader *loader);
/** Tokens of the split's documents (of pairs: prompt, chosen and rejected), without padding. */
int64_t lathe_loader_tokens(const lathe_loader *loader);

/** The record of row i of the split, 0 <= i < facts.n_rows, for rows of one record. */
int64_t lathe_loader_record(const lathe_loader *loader, int64_t i);

/** Rows (pairs) per epoch of the split, with weights. */
int64_t lathe_loader_rows(const lathe_loader *loader);
/** Rows (pairs) of so many epochs, rounded up to a whole one. */
int64_t lathe_loader_rows_of(const lathe_loader *loader, double n_epochs);
/** Rows (pairs) of a micro-batch of all ranks. */
int64_t lathe_loader_batch_rows(const lathe_loader *loader);
/** Micro-batches that each rank needs for n rows (pairs); the last one is padded. */
int64_t lathe_loader_batches_of(const lathe_loader *loader, int64_t n);
/** Micro-batches that each rank needs for n_epochs epochs; the last one is padded. */
int64_t lathe_loader_batches(const lathe_loader *loader, double n_epochs);
/** Rows (pairs) that the cursor is past since the beginning of the run. */
int64_t lathe_loader_passed(const lathe_loader *loader, const lathe_cursor *cursor);

#endif
