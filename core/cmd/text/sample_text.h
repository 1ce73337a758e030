/* Writes a row of a batch as text that shows which tokens are learnt. */
#ifndef LATHE_CMD_SAMPLE_TEXT_H
#define LATHE_CMD_SAMPLE_TEXT_H

#include "base/buffer.h"
#include "data/rows/loader.h"

typedef struct lathe_sample_style {
    int32_t colour;    /* 1: text that is not learnt is dimmed; 0: it is put in [- -] */
    int32_t is_masked; /* 1: a masked objective */
    int32_t reserved;
    int64_t max_chars; /* limit per row; 0: none */
} lathe_sample_style;

/** Appends row r: a line for each document, with its place and positions, then its text. A token is
 *  learnt if it is the target of the token before it in this row. With a masked objective, each
 *  target is written as {shown=target}. Bytes that control a terminal are written as \xNN. */
lathe_status lathe_app_sample(const lathe_tokenizer *tok, const lathe_batch *batch, int64_t r,
                              int32_t eos, const lathe_sample_style *style, lathe_buffer *out);

/** The number of padding tokens of row r: the last document if it is only end-of-text tokens that
 *  are not learnt. */
int64_t lathe_app_filling(const lathe_batch *batch, int64_t r, int32_t eos);

#endif
