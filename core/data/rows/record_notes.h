/* Logs notes on the records of prepared data: those that are left out or cut, and layouts that were
 * found from the columns. */
#ifndef LATHE_DATA_RECORD_NOTES_H
#define LATHE_DATA_RECORD_NOTES_H

#include "base/buffer.h"
#include "data/rows/loader.h"

/** Logs the files and records of the data that are not used. */
void lathe_data_note_left_out(const lathe_shards *shards);

/** Logs, for each dataset, the layout that was found, pairs without a preference, what is told of
 *  records, and the fields that nothing reads. */
void lathe_data_note_sets(const lathe_shards *shards);

/** Logs the records that do not fit in a row. overlong: LATHE_OVERLONG_*. */
void lathe_data_note_long(const lathe_shards *shards, const lathe_loader *loader, int32_t overlong);

/** Appends ": a.jsonl:3, a.jsonl:9, ..." for the first of n records; nothing where it is not known.
 */
void lathe_data_put_places(const lathe_shards *shards, const int64_t *list, int64_t n,
                           lathe_buffer *out);

#endif
