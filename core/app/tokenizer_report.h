/* What `lathe tokenizer check` finds, as JSON. */
#ifndef LATHE_APP_TOKENIZER_REPORT_H
#define LATHE_APP_TOKENIZER_REPORT_H

#include <jansson.h>

#include "lathe/status.h"

/** Adds to `report` what the file itself says of its parts: kind, merges, added_tokens, normalizer,
 *  pre_tokenizer, post_processor, decoder, ignored, rewrites (why decoding may not give the text
 *  back; absent when it must). Errors: no JSON. */
lathe_status lathe_tokenizer_report_file(json_t *report, const char *file);

/** Prints a report as text. */
void lathe_tokenizer_report_print(const json_t *report);

#endif
