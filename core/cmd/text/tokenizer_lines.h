/* Many texts in one call of `lathe tokenizer encode` or `decode`: a JSON value per line. */
#ifndef LATHE_CMD_TOKENIZER_LINES_H
#define LATHE_CMD_TOKENIZER_LINES_H

#include "base/buffer.h"
#include "tokenizer/encode/tokenizer.h"

/** Each line of text[0, n) is a JSON string: appends one line with the list of its ids for each.
 *  Lost bytes are added to *loss; flags: LATHE_ENCODE_*. LATHE_E_PARSE names line and column;
 *  `name` stands for the file. */
lathe_status lathe_app_encode_lines(const lathe_tokenizer *tok, const char *name, const char *text,
                                    int64_t n, int32_t flags, lathe_text_loss *loss,
                                    lathe_buffer *out);

/** Appends text[0, n) as a JSON string, with U+FFFD for each maximal part that is not UTF-8. */
void lathe_app_put_json_text(lathe_buffer *out, const char *text, int64_t n);

#endif
