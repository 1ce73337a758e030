/* Tokenizers in GGUF files: byte-level BPE, which GGUF calls "gpt2", from and to tokenizer.json. */
#ifndef LATHE_GGUF_GGUF_TOKENIZER_H
#define LATHE_GGUF_GGUF_TOKENIZER_H

#include <jansson.h>

#include "base/buffer.h"
#include "gguf/gguf_writer.h"
#include "model/hf_config.h"

/** Writes the keys of the tokenizer and the chat template of a folder. The vocabulary is filled up
 *  to that of the model with tokens that are not used.
 *
 *   Errors  LATHE_E_NOT_FOUND: the folder has no tokenizer.json. LATHE_E_UNSUPPORTED: a tokenizer
 *           that llama.cpp does not have; the message names what it is. */
lathe_status lathe_gguf_tokenizer_write(const char *folder, const lathe_model_config *config,
                                        lathe_gguf_writer *w);

/** Writes tokenizer.json, tokenizer_config.json, chat_template.jinja (if the file has a template)
 *  and generation_config.json to a folder, and sets the ids of special tokens in a config.json.
 *  folder NULL: only checks, and sets the ids. LATHE_E_UNSUPPORTED names a tokenizer that is not
 *  converted. */
lathe_status lathe_gguf_tokenizer_read(const lathe_gguf *file, const char *folder, json_t *config);

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
