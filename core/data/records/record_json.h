/* A record of a dataset as a JSON object. */
#ifndef LATHE_DATA_RECORD_JSON_H
#define LATHE_DATA_RECORD_JSON_H

#include "base/buffer.h"
#include "data/records/record_reader.h"

/** Appends the record: a JSON record exactly as in the file, a CSV row as an object of strings
 * whose keys are the columns of the header. */
lathe_status lathe_record_json(const lathe_reader *reader, const lathe_record *record,
                               lathe_buffer *out);

#endif
