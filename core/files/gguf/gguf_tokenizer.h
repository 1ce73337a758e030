/* Tokenizers in GGUF files as the text of a tokenizer.json.
 *
 * GGUF has two kinds that Lathe converts: "gpt2", byte-level BPE with merges, and "llama", the BPE
 * of SentencePiece, whose tokens have scores instead.
 */
#ifndef LATHE_FILES_GGUF_TOKENIZER_H
#define LATHE_FILES_GGUF_TOKENIZER_H

#include <jansson.h>

#include "base/buffer.h"
#include "files/gguf/gguf_vocab.h"

/** Appends the text of tokenizer.json. LATHE_E_UNSUPPORTED and LATHE_E_CONFIG name the key. */
lathe_status lathe_gguf_tokenizer_json(const lathe_gguf_vocab *v, lathe_buffer *out);

/** Appends the text of tokenizer_config.json: the special tokens. */
lathe_status lathe_gguf_tokenizer_config(const lathe_gguf_vocab *v, lathe_buffer *out);

/* ---- between the files of this part ---- */

/** Appends "merges" of a SentencePiece tokenizer: every way to put a token together from two
 * others, by falling score of the token. */
lathe_status lathe__gguf_spm_merges(const lathe_gguf_vocab *v, lathe_buffer *out);

#endif
