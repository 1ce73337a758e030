/* Splits a text into the pieces whose bytes are merged: the pre-tokenizer of the short route. */
#ifndef LATHE_TOKENIZER_SPLITTER_H
#define LATHE_TOKENIZER_SPLITTER_H

#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/unicode/pattern.h"

#define LATHE_GPT2_PATTERN lathe__scan_pattern(LATHE_SCAN_GPT2)

/** Adds a regular expression to the tokenizer's splits. `place` names file and key in messages. */
lathe_status lathe__split_compile(lathe_tokenizer *tok, const char *place, const char *pattern);

/** Takes a piece of text; an error stops the splitting. */
typedef lathe_status (*lathe_piece_fn)(void *arg, const uint8_t *piece, int64_t n);

/** The state of splitting in one thread. */
typedef struct lathe_splitter {
    const lathe_tokenizer *tok;
    const uint8_t *classes;
    lathe_matcher matcher;
    uint8_t *prefixed; /* text with a space before it */
    int64_t prefixed_capacity;
    lathe_piece_fn emit;
    void *arg;
} lathe_splitter;

void lathe__splitter_init(lathe_splitter *splitter, const lathe_tokenizer *tok, lathe_piece_fn emit,
                          void *arg);
void lathe__splitter_fini(lathe_splitter *splitter);
/** Splits a text that holds no added token: adds the prefix space, applies the splits, and emits
 *  each byte that is not UTF-8 as a piece of its own. */
lathe_status lathe__splitter_run(lathe_splitter *splitter, const uint8_t *text, int64_t n);

#endif
