/* The texts of datasets, one after the other: what a tokenizer is trained on. */
#ifndef LATHE_DATA_CORPUS_H
#define LATHE_DATA_CORPUS_H

#include "data/dataset.h"

typedef struct lathe_corpus lathe_corpus;

/** rows: LATHE_ROWS_PACKED: column text; LATHE_ROWS_PAIRS: prompt, chosen, rejected. The datasets
 *  are borrowed. LATHE_E_NOT_FOUND, LATHE_E_CONFIG name what is wrong with one. */
lathe_status lathe_corpus_open(const lathe_dataset *datasets, int64_t n, int32_t rows,
                               lathe_corpus **out);
void lathe_corpus_close(lathe_corpus *corpus);

/** A lathe_text_fn: the next text that is not empty, NULL at the end. Errors as
 *  lathe_reader_batch. */
lathe_status lathe_corpus_next(void *corpus, const char **out_text, int64_t *out_bytes);

/** Files left out so far because they are no UTF-8 text. */
int64_t lathe_corpus_skipped(const lathe_corpus *corpus);

/** SHA-256 over types, columns and the bytes of all files. */
lathe_status lathe_corpus_hash(const lathe_corpus *corpus, char out[65]);

#endif
