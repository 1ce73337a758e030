/* Reads the texts of datasets one after another, for training a tokenizer. */
#ifndef LATHE_DATA_CORPUS_H
#define LATHE_DATA_CORPUS_H

#include "data/records/dataset.h"

typedef struct lathe_corpus lathe_corpus;

/** rows: LATHE_ROWS_PACKED reads the column text; LATHE_ROWS_PAIRS reads prompt, chosen, rejected.
 *  The datasets are borrowed. LATHE_E_NOT_FOUND and LATHE_E_CONFIG name the faulty dataset. */
lathe_status lathe_corpus_open(const lathe_dataset *datasets, int64_t n, int32_t rows,
                               lathe_corpus **out);
void lathe_corpus_close(lathe_corpus *corpus);

/** A lathe_text_fn: returns the next text that is not empty, NULL at the end. Errors are those of
 *  lathe_reader_batch. */
lathe_status lathe_corpus_next(void *corpus, const char **out_text, int64_t *out_bytes);

/** Number of files skipped so far because they are not UTF-8 text. */
int64_t lathe_corpus_skipped(const lathe_corpus *corpus);

/** SHA-256 of the types, columns and bytes of all files. */
lathe_status lathe_corpus_hash(const lathe_corpus *corpus, char out[65]);

#endif
