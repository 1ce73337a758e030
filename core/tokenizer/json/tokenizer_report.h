/* Makes the report of `lathe tokenizer check` as JSON. */
#ifndef LATHE_TOKENIZER_TOKENIZER_REPORT_H
#define LATHE_TOKENIZER_TOKENIZER_REPORT_H

#include <jansson.h>

#include "lathe/status.h"

/** Adds the parts of the file to `report`: kind, merges, added_tokens, normalizer, pre_tokenizer,
 *  post_processor, decoder, ignored (sections that are not used), and rewrites: the
 *  normalizer, pre-tokenizer or added token because of which decoding may not give back the text;
 *  absent if none is known. merges and added_tokens are counts. json [bytes] is the text of the
 * file, `file` its name for messages. Errors: the text is not JSON. */
lathe_status lathe_tokenizer_report_file(json_t *report, const char *file, const char *json,
                                         int64_t bytes);

/** Prints a report as text. */
void lathe_tokenizer_report_print(const json_t *report);

#endif
