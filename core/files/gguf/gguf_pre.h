/* The ways in which a byte-level tokenizer splits text before BPE, by their names in GGUF. */
#ifndef LATHE_FILES_GGUF_PRE_H
#define LATHE_FILES_GGUF_PRE_H

#include <jansson.h>
#include <stdint.h>

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
