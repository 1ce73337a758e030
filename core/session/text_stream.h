/* Cuts a text into pieces while it is generated: whole characters, and nothing that may be the
 * beginning of a stop string. */
#ifndef LATHE_SESSION_TEXT_STREAM_H
#define LATHE_SESSION_TEXT_STREAM_H

#include "lathe/session.h"
#include "tokenizer/encode/tokenizer.h"

/** A text on its way. */
typedef struct lathe_text_stream {
    const lathe_tokenizer *tokenizer;
    const lathe_sampling *how; /* its stop strings end the text and are not part of it */
    lathe_session_piece_fn fn; /* NULL: nobody wants pieces */
    void *arg;
    lathe_ids ids;   /* tokens so far */
    int64_t n_given; /* bytes of their text that were given to fn */
    int32_t ended;   /* 1: fn ended the text */
    lathe_status status;
} lathe_text_stream;

/** Adds a token, and gives fn the characters that are complete with it. */
void lathe_text_stream_put(lathe_text_stream *stream, int32_t token);
/** Gives fn the rest of text[0, n), the whole text. */
void lathe_text_stream_end(lathe_text_stream *stream, const char *text, int64_t n);
void lathe_text_stream_fini(lathe_text_stream *stream);

#endif
