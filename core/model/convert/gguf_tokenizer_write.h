/* Writes tokenizers as keys of GGUF files. */
#ifndef LATHE_MODEL_GGUF_TOKENIZER_WRITE_H
#define LATHE_MODEL_GGUF_TOKENIZER_WRITE_H

#include <jansson.h>

#include "files/gguf/gguf_writer.h"
#include "model/family/hf_config.h"
#include "tokenizer/encode/tokenizer.h"
#include "tokenizer/json/token_tables.h"

/** Writes the keys of the tokenizer and the chat template of a folder. The vocabulary is filled up
 *  to that of the model with tokens that are not used.
 *
 *   Errors  LATHE_E_NOT_FOUND: the folder has no tokenizer.json. LATHE_E_UNSUPPORTED: a tokenizer
 *           that llama.cpp does not have; the message names what it is. */
lathe_status lathe_gguf_tokenizer_write(const char *folder, const lathe_model_config *config,
                                        lathe_gguf_writer *w);

/* ---- between the files of this part ---- */

/** 1: the model of the tokenizer.json is BPE with byte_fallback, GGUF's "llama". */
int lathe__gguf_is_spm(const json_t *rest);

/** Type in GGUF of a token of SentencePiece that is not an added one. */
int32_t lathe__gguf_spm_type(const char *text, int64_t bytes);

/** Scores of the n tokens of a SentencePiece tokenizer, and whether a space is put before a text.
 *  `rest` is the tokenizer.json without its tables. LATHE_E_UNSUPPORTED: llama.cpp would split text
 *  in another way. */
lathe_status lathe__gguf_spm_scores(const char *folder, const json_t *rest,
                                    const lathe_token_tables *t, const lathe_tokenizer *tok,
                                    int64_t n, float *scores, int32_t *out_space_prefix);

#endif
