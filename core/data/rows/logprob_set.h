/* The stored log-probabilities of all records of some data: files that follow each other. */
#ifndef LATHE_DATA_LOGPROB_SET_H
#define LATHE_DATA_LOGPROB_SET_H

#include "data/rows/logprob_file.h"

typedef struct lathe_logprob_set lathe_logprob_set;

/** Opens the files, whose records must follow each other from record 0 on, and which must be made
 *  alike. verify: also reads and checks all entries. LATHE_E_CORRUPT names the file that is
 * damaged, missing or of another set. */
lathe_status lathe_logprob_set_open(const char *const *paths, int64_t n, int32_t verify,
                                    lathe_logprob_set **out);
void lathe_logprob_set_close(lathe_logprob_set *set);

/** The first file's header: top_k, value_bytes, row_tokens, vocab_size, temperature, data, made_by
 *  are those of all files. */
const lathe_logprob_header *lathe_logprob_set_header(const lathe_logprob_set *set);
int64_t lathe_logprob_set_records(const lathe_logprob_set *set);
int64_t lathe_logprob_set_targets(const lathe_logprob_set *set);

/** lathe__logprob_read of a record of the data. Any thread; allocates nothing. */
lathe_status lathe_logprob_set_read(const lathe_logprob_set *set, int64_t record, int64_t n,
                                    int32_t *ids, float *values);

#endif
