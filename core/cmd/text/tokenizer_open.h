/* Functions of the tokenizer commands: open a tokenizer, read input, show bytes. */
#ifndef LATHE_CMD_TOKENIZER_OPEN_H
#define LATHE_CMD_TOKENIZER_OPEN_H

#include "base/arena.h"
#include "base/buffer.h"
#include "tokenizer/encode/tokenizer.h"

/** The folder or file that a path means: a run's folder is its latest checkpoint. */
lathe_status lathe_app_tokenizer_place(const char *path, lathe_arena *arena, const char **out);

/** Opens "bytes", a tokenizer.json, or a folder that contains one, a run's included. */
lathe_status lathe_app_tokenizer(const char *path, lathe_tokenizer **out);

/** Reads a whole file, or standard input for "-"; the text is malloc'ed. */
lathe_status lathe_app_read(const char *path, char **out, int64_t *out_bytes);

/** Appends bytes so that each is visible:
 *   \t \r \\ \", \xNN for bytes that are not UTF-8 or not printable, the others as they are. */
void lathe_app_show_bytes(lathe_buffer *out, const char *text, int64_t n);

#endif
