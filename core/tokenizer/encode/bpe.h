/* Byte pair merging of pieces, with a cache of the pieces seen. */
#ifndef LATHE_TOKENIZER_BPE_H
#define LATHE_TOKENIZER_BPE_H

#include "tokenizer/encode/tokenizer_model.h"

/** Merge lists and the piece cache of one thread. */
typedef struct lathe_bpe lathe_bpe;

/** `loss` counts the bytes that the vocabulary lacks. */
lathe_status lathe__bpe_create(const lathe_tokenizer *tok, lathe_text_loss *loss, lathe_bpe **out);
void lathe__bpe_destroy(lathe_bpe *bpe);
/** Takes a piece, whose bytes stay borrowed until lathe__bpe_finish: its ids may be appended by a
 *  later call, in order. */
lathe_status lathe__bpe_encode(lathe_bpe *bpe, const uint8_t *piece, int64_t n, lathe_ids *ids);
/** Appends the remaining ids of the pieces taken. */
lathe_status lathe__bpe_finish(lathe_bpe *bpe, lathe_ids *ids);
/** Drops the pieces taken. */
void lathe__bpe_forget(lathe_bpe *bpe);

#endif
