/* The tokens of a GGUF file, with their types, scores and the ids of the special ones. */
#ifndef LATHE_FILES_GGUF_VOCAB_H
#define LATHE_FILES_GGUF_VOCAB_H

#include "files/gguf/gguf_file.h"
#include "files/gguf/gguf_pre.h"

/* Types of tokens. */
enum {
    LATHE_GGUF_NORMAL = 1,
    LATHE_GGUF_UNKNOWN = 2,
    LATHE_GGUF_CONTROL = 3,
    LATHE_GGUF_USER_DEFINED = 4,
    LATHE_GGUF_UNUSED = 5,
    LATHE_GGUF_BYTE = 6
};

/** A token's text, borrowed from the file. */
typedef struct lathe_gguf_token {
    const char *text;
    int64_t bytes;
} lathe_gguf_token;

typedef struct lathe_gguf_vocab {
    const lathe_gguf *file;
    int32_t is_spm;                 /* 1: SentencePiece ("llama"); 0: byte-level BPE ("gpt2") */
    int64_t n;                      /* number of tokens */
    lathe_gguf_token *tokens;       /* [n] */
    const lathe_gguf_entry *types;  /* i32[n]; NULL: all are normal */
    const lathe_gguf_entry *scores; /* f32[n], SentencePiece */
    const lathe_gguf_entry *merges; /* texts, byte-level BPE */
    const lathe_gguf_pre *pre;      /* byte-level BPE */
    int64_t bos, eos, pad, unk, eot, eom;   /* -1: none */
    int32_t adds_bos, adds_eos, adds_space; /* around a text; before it */
} lathe_gguf_vocab;

/** Reads and checks the keys tokenizer.ggml.*. LATHE_E_NOT_FOUND, LATHE_E_UNSUPPORTED and
 *  LATHE_E_CONFIG name the key. Call lathe_gguf_vocab_fini in either case. */
lathe_status lathe_gguf_vocab_read(const lathe_gguf *file, lathe_gguf_vocab *out);
void lathe_gguf_vocab_fini(lathe_gguf_vocab *v);

/** The ids of special tokens alone, for any kind of tokenizer. */
lathe_status lathe_gguf_vocab_ids(const lathe_gguf *file, lathe_gguf_vocab *out);

/** LATHE_GGUF_NORMAL ... of a token. */
int32_t lathe_gguf_token_type(const lathe_gguf_vocab *v, int64_t id);

#endif
