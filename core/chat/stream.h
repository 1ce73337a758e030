/* Shows a text while it is generated: whole characters only, and nothing that controls the
 * terminal. */
#ifndef LATHE_CHAT_STREAM_H
#define LATHE_CHAT_STREAM_H

#include "lathe/lathe.h"
#include "text/tokenizer.h"

/** An answer on its way to standard output. */
typedef struct lathe_chat_stream {
    const lathe_tokenizer *tokenizer;
    const lathe_sampling *how; /* its stop strings end the answer and are not written; NULL: none */
    lathe_ids ids;             /* tokens so far */
    int64_t n_shown;           /* bytes of their text that are written */
    int32_t on_terminal;       /* 1: control characters are written as \xNN */
    lathe_status status;
} lathe_chat_stream;

/** Forgets the answer before. */
void lathe_chat_stream_begin(lathe_chat_stream *stream);
/** Adds a token and writes the characters that are complete with it and cannot be the beginning of
 *  a stop string. */
void lathe_chat_stream_put(lathe_chat_stream *stream, int32_t token);
/** Writes what is left of text[0, n), the whole answer. */
void lathe_chat_stream_end(lathe_chat_stream *stream, const char *text, int64_t n);
void lathe_chat_stream_fini(lathe_chat_stream *stream);

#endif
