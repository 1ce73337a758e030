/* Tokenizers in GGUF files as the text of a tokenizer.json.
 *
 * GGUF has two kinds that Lathe converts: "gpt2", byte-level BPE with merges, and "llama", the BPE of
 * SentencePiece, whose tokens have scores instead.
 */
#ifndef LATHE_GGUF_GGUF_TOKENIZER_H
#define LATHE_GGUF_GGUF_TOKENIZER_H

#include <jansson.h>

#include "base/buffer.h"
#include "gguf/gguf_vocab.h"

/** Appends the text of tokenizer.json. LATHE_E_UNSUPPORTED and LATHE_E_CONFIG name the key. */
lathe_status lathe_gguf_tokenizer_json(const lathe_gguf_vocab *v, lathe_buffer *out);

/** Appends the text of tokenizer_config.json: the special tokens. */
lathe_status lathe_gguf_tokenizer_config(const lathe_gguf_vocab *v, lathe_buffer *out);

/* ---- between the files of this part ---- */

/** Appends "merges" of a SentencePiece tokenizer: every way to put a token together from two others,
 *  by falling score of the token. */
lathe_status lathe__gguf_spm_merges(const lathe_gguf_vocab *v, lathe_buffer *out);

/* ---- the ways in which text is split before BPE ---- */

typedef struct lathe_gguf_pre {
    const char *name;    /* tokenizer.ggml.pre */
    const char *pattern; /* of a Split; NULL: the expression of ByteLevel */
    int32_t digits;      /* 1: every digit is split off first */
    int32_t ignore_merges;
    int32_t nfc; /* 1: a tokenizer.json of this kind has the normalizer NFC */
} lathe_gguf_pre;

/** The way of that name, or of a name that llama.cpp treats as the same; NULL: not known. */
const lathe_gguf_pre *lathe_gguf_pre_of_name(const char *name, int64_t bytes);
/** The way of a tokenizer.json's pre_tokenizer; NULL: GGUF has no name for it. */
const lathe_gguf_pre *lathe_gguf_pre_of_json(const json_t *pre_tokenizer, int32_t ignore_merges);

#endif
