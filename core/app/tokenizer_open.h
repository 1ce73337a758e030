/* What the tokenizer commands share: opening a tokenizer, reading input, showing bytes. */
#ifndef LATHE_APP_TOKENIZER_OPEN_H
#define LATHE_APP_TOKENIZER_OPEN_H

#include "base/buffer.h"
#include "text/tokenizer.h"

/** "bytes", or a tokenizer.json or a folder that holds one. */
lathe_status lathe_app_tokenizer(const char *path, lathe_tokenizer **out);

/** A whole file, or standard input for "-": malloc'ed. */
lathe_status lathe_app_read(const char *path, char **out, int64_t *out_bytes);

/** Appends bytes so that each can be seen: \n \t \r \\ \", \xNN for what is no UTF-8 or no
 *  printable character, the rest as it is. */
void lathe_app_show_bytes(lathe_buffer *out, const char *text, int64_t n);

#endif
