/* A row of a batch as text, with what is learnt and what is not told apart. */
#ifndef LATHE_APP_SAMPLE_TEXT_H
#define LATHE_APP_SAMPLE_TEXT_H

#include "base/buffer.h"
#include "data/loader.h"

typedef struct lathe_sample_style {
    int32_t colour;    /* 1: what is not learnt is dimmed; 0: it stands in [- -] */
    int64_t max_chars; /* of a row; 0: all */
} lathe_sample_style;

/** Appends row r: a line for each document, with its place and positions, then its text. A token is
 *  learnt when it is the target of the one before it in this row. Bytes that a terminal might obey
 *  come as \xNN. */
lathe_status lathe_app_sample(const lathe_tokenizer *tok, const lathe_batch *batch, int64_t r,
                              int32_t eos, const lathe_sample_style *style, lathe_buffer *out);

/** Tokens of row r that are filling: the last document, when it is end-of-text alone and not
 *  learnt. */
int64_t lathe_app_filling(const lathe_batch *batch, int64_t r, int32_t eos);

/** Text for a terminal, at most `room` characters: control characters except line ends and tabs,
 * and bytes that are not UTF-8, as \xNN. Returns the number of characters. */
int64_t lathe_app_put_text(lathe_buffer *out, const char *text, int64_t n, int64_t room);

#endif
