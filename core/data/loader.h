/* The loader: micro-batches of rows, in an order that is a function of (seed, epoch) alone.
 *
 * Rows of a split are numbered; epoch e visits them in the order of a keyed bijection (shuffle.h).
 * Epochs follow each other without a gap, so a batch may hold the end of one and the start of the
 * next, and in an epoch every row comes exactly once, over all ranks; those of a dataset with
 * weight w come w times, the rest of a fraction turn by turn. Batch k of rank r of n takes
 * places (k*n + r)*B ... of that endless order; the cursor counts places for all ranks together, so
 * a run may resume with another number of ranks.
 *
 * A prefetch thread prepares batches ahead into a ring; it never changes what comes out.
 */
#ifndef LATHE_DATA_LOADER_H
#define LATHE_DATA_LOADER_H

#include "data/multipack.h"
#include "data/shards.h"

enum { LATHE_SPLIT_TRAIN = 0, LATHE_SPLIT_VALIDATION = 1 };

/** How documents become rows. Sequential: one after the other, cut every T tokens, also inside a
 *  document. Multipack: whole documents, those longer than T cut into pieces of T, put together so
 *  that little is left over (multipack.h). Rows hold documents of one dataset. */

typedef struct lathe_loader_config {
    const lathe_shards *shards; /* borrowed for the loader's life */
    int32_t n_rows;             /* B: rows of a micro-batch; even for pairs (2P) */
    int32_t row_tokens;         /* T */
    int32_t rank, n_ranks;      /* n_ranks 0 counts as 1 */
    uint64_t seed;
    int32_t no_shuffle; /* 1: rows in the order of the data */
    int32_t split;      /* LATHE_SPLIT_* */
    /* Share of the documents (pairs) used for validation, in [0, 1); at least one when > 0. The
     * seed alone selects them, so both splits agree. A single document gives its last tokens. */
    double validation_fraction;
    int64_t validation_count; /* number of validation documents (pairs); 0: use the fraction */
    int64_t n_epochs;         /* 0: endless */
    int32_t n_prefetch;       /* batches prepared ahead by a thread; 0: none, no thread */
    int32_t packing;          /* LATHE_PACK_*; pairs are not packed */
} lathe_loader_config;

/** One micro-batch. All arrays i32[n_rows * row_tokens], borrowed until the next call.
 *
 *  Packed: documents one after the other. positions count from 0 at each document's
 *  start and at the row's; targets hold the next token of the same document (end-of-text is one,
 *  the first token of a document is none), -1 elsewhere; where the row cuts
 *  a document, its last token still has its target. What the row has left over is filled with eos,
 *  target -1, as a document.
 *
 *  Pairs: row p is prompt+chosen+eos, row P+p prompt+rejected+eos, cut after T tokens, then filled
 *  with eos on the right. Records whose prompt alone fills T are left out. targets[i] = tokens[i+1]
 *  where that is of the completion (its eos included), else -1. The filling is a document of its
 *  own. */
typedef struct lathe_batch {
    int32_t n_rows, row_tokens;
    const int32_t *tokens;
    const int32_t *targets;   /* -1: not a target */
    const int32_t *positions; /* within the document */
    const int32_t *doc_start; /* index in the row where the token's document begins */
    int64_t n_target;         /* targets >= 0 */
    int64_t n_pairs;          /* pairs that are not filling; 0 for packed */
    int64_t n_filled;         /* rows (pairs) that are filling: after the end of the last epoch */
    int64_t ended;            /* 1: all epochs are over; nothing but filling */
} lathe_batch;

/** The loader's whole state. Plain data, for checkpoints. */
typedef struct lathe_cursor {
    int64_t seed;
    int64_t epoch;          /* epochs begun and ended */
    int64_t index;          /* rows (pairs) of this epoch consumed by all ranks, < rows_per_epoch */
    int64_t rows_per_epoch; /* of the split */
    int64_t identity;       /* hash of data, T, row kind, split: seek refuses another's */
} lathe_cursor;

typedef struct lathe_loader lathe_loader;

/** LATHE_E_ARG names a bad setting; LATHE_E_CONFIG when the split has no rows. */
lathe_status lathe_loader_create(const lathe_loader_config *config, lathe_loader **out);
/** Stops the thread; takes NULL. */
void lathe_loader_destroy(lathe_loader *loader);

/** The next micro-batch. Allocates nothing. */
lathe_status lathe_loader_next(lathe_loader *loader, lathe_batch *out);

/** The state after the batches that lathe_loader_next has given out; prefetched ones do not
 *  count. */
void lathe_loader_cursor(const lathe_loader *loader, lathe_cursor *out);
/** Continues from the cursor. LATHE_E_STATE when it is of other data, row size, seed or split. */
lathe_status lathe_loader_seek(lathe_loader *loader, const lathe_cursor *cursor);
/** Whether lathe_loader_seek would take the cursor, with its errors. */
lathe_status lathe_loader_check_cursor(const lathe_loader *loader, const lathe_cursor *cursor);

/** What the split holds. */
typedef struct lathe_loader_facts {
    int64_t n_documents; /* (pairs) of the split */
    int64_t n_tokens;    /* of its documents (of pairs: prompt, chosen and rejected) */
    int64_t text_bytes;  /* UTF-8 bytes of their text; 0 when the shards are in memory */
    int64_t n_rows;      /* (pairs) that they make */
    int64_t n_places;    /* rows (pairs) of an epoch, weights counted */
    int64_t n_left_out;  /* pairs whose prompt alone fills a row */
    int64_t index_bytes; /* memory that the row index holds */
    int64_t is_cut;      /* 1: the only document is divided, its last tokens are for validation */
    double fill;         /* packed: n_tokens / (n_rows * T) */
} lathe_loader_facts;

void lathe_loader_facts_get(const lathe_loader *loader, lathe_loader_facts *out);

/** UTF-8 bytes of the text of the split's rows; 0 when the shards are in memory. With
 *  lathe_loader_tokens: bytes per token, for bits per byte. */
int64_t lathe_loader_text_bytes(const lathe_loader *loader);
/** Tokens of the split's documents (of pairs: prompt, chosen and rejected), filling not counted. */
int64_t lathe_loader_tokens(const lathe_loader *loader);

/** Rows (pairs) of an epoch of the split, weights counted. */
int64_t lathe_loader_rows(const lathe_loader *loader);
/** Micro-batches that each rank takes to see n_epochs epochs, the last one filled up. */
int64_t lathe_loader_batches(const lathe_loader *loader, int64_t n_epochs);

#endif
