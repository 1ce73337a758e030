/* The data of a loaded tokenizer, for the files that make, use and train it. */
#ifndef LATHE_TOKENIZER_TOKENIZER_MODEL_H
#define LATHE_TOKENIZER_TOKENIZER_MODEL_H

#include <jansson.h>

#include "tokenizer/encode/added_tokens.h"
#include "tokenizer/encode/merges.h"
#include "tokenizer/encode/text_loss.h"
#include "tokenizer/encode/token_ids.h"
#include "tokenizer/encode/vocab.h"
#include "tokenizer/unicode/regex.h"

#define LATHE_MAX_SPLITS 8
#define LATHE_MAX_TEMPLATE 16

enum {
    LATHE_TOKENIZER_BPE = 0,    /* byte-level BPE after plain splits: the short route */
    LATHE_TOKENIZER_BYTES = 1,  /* id = byte */
    LATHE_TOKENIZER_GENERAL = 2 /* every other tokenizer.json: pipeline.h */
};

typedef struct lathe_tokenizer lathe_tokenizer;

struct lathe_tokenizer {
    int32_t kind;
    lathe_vocab vocab;               /* model and added tokens: as bytes; GENERAL: as in the file */
    struct lathe_pipeline *pipeline; /* for GENERAL, else NULL */
    lathe_merges merges;
    int32_t byte_id[256]; /* -1: the vocabulary lacks the byte */
    int32_t ignore_merges;
    int32_t nfc;
    int32_t add_prefix_space;
    int32_t n_splits;
    pcre2_code *splits[LATHE_MAX_SPLITS]; /* NULL if a scanner does it */
    int32_t scans[LATHE_MAX_SPLITS];      /* LATHE_SCAN_* */
    int32_t jit;                          /* 1: every expression is compiled to machine code */
    lathe_added_token *added;
    int64_t n_added;
    int32_t *added_at; /* [vocab.n] index into added, -1: none; NULL without added tokens */
    lathe_trie raw, normalized; /* added tokens, matched before and after normalizing */
    int32_t prefix[LATHE_MAX_TEMPLATE], suffix[LATHE_MAX_TEMPLATE];
    int32_t n_prefix, n_suffix;
    int32_t bos, eos, pad;
    int32_t mask;   /* of masked language models; -1: none */
    char *json;     /* the text of the file, for saving */
    json_t *beside; /* tokens that the files beside it add or change (tokenjson); NULL: none */
    int64_t json_bytes;
    char hash[65];
};

/** The added token with this id, NULL for none. */
static inline const lathe_added_token *lathe__added_of(const lathe_tokenizer *tok, int32_t id)
{
    if (!tok->added_at || id < 0 || id >= tok->vocab.n || tok->added_at[id] < 0)
        return NULL;
    return &tok->added[tok->added_at[id]];
}

#endif
