/* The general route: normalizers, pre-tokenizers, model and decoders of a tokenizer.json as lists
 * of steps. Byte-level BPE after plain splits takes the short route of encoder.c instead. */
#ifndef LATHE_TOKENIZER_PIPELINE_H
#define LATHE_TOKENIZER_PIPELINE_H

#include "base/buffer.h"
#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/unicode/pattern.h"

#define LATHE_MAX_STEPS 16

/** A string and its length. */
typedef struct lathe_piece {
    char *text;
    int64_t bytes;
} lathe_piece;

/** The most bytes that the steps of a normalizer or decoder may make of n bytes. The widest mapping
 *  of Unicode is 11 times its character (NFKC of U+FDFA); the texts that a file gives to its steps
 *  may have any length, and each of 16 steps may lengthen the text again. */
static inline int64_t lathe__max_rewritten(int64_t n)
{
    return 4096 + 64 * n;
}

/* ---- normalizers ---- */

typedef enum lathe_normal_kind {
    LATHE_NORMAL_NFC,
    LATHE_NORMAL_NFD,
    LATHE_NORMAL_NFKC,
    LATHE_NORMAL_NFKD,
    LATHE_NORMAL_LOWERCASE,
    LATHE_NORMAL_STRIP,
    LATHE_NORMAL_STRIP_ACCENTS,
    LATHE_NORMAL_NMT,
    LATHE_NORMAL_REPLACE,
    LATHE_NORMAL_PREPEND,
    LATHE_NORMAL_BYTE_LEVEL,
    LATHE_NORMAL_PRECOMPILED,
    LATHE_NORMAL_BERT
} lathe_normal_kind;

typedef struct lathe_charsmap lathe_charsmap;

typedef struct lathe_normal_step {
    lathe_normal_kind kind;
    int32_t left, right;                      /* Strip */
    lathe_pattern pattern;                    /* Replace */
    lathe_piece content;                      /* Replace, Prepend */
    lathe_charsmap *map;                      /* Precompiled */
    int32_t cleans, chinese, accents, lowers; /* Bert: 1: does so; accents: takes them off */
} lathe_normal_step;

/** Text between two steps. `origin`: number of its first bytes that come from the very first
 *  character of the input, which Metaspace's scheme "first" needs; 0 after an added token. */
typedef struct lathe_text {
    lathe_buffer buffer;
    int64_t origin;
} lathe_text;

/** Applies the steps to text[0, n), which is valid UTF-8. Overwrites the two scratch texts; *out is
 *  one of them. LATHE_E_UNSUPPORTED: a step makes more than lathe__max_rewritten(n) bytes. */
lathe_status lathe__normalize(const lathe_normal_step *steps, int32_t n_steps,
                              lathe_matcher *matcher, const uint8_t *text, int64_t n,
                              int64_t origin, lathe_text scratch[2], lathe_text **out);
void lathe__normal_step_fini(lathe_normal_step *step);

/** SentencePiece's precompiled_charsmap, which the file has in base64. */
lathe_status lathe__charsmap_create(const char *place, const char *base64, lathe_charsmap **out);
void lathe__charsmap_destroy(lathe_charsmap *map);
/** Stops when `out` has more than `most` bytes. */
void lathe__charsmap_run(const lathe_charsmap *map, const uint8_t *text, int64_t n, int64_t max,
                         lathe_buffer *out);

/* ---- pre-tokenizers ---- */

typedef enum lathe_pre_kind {
    LATHE_PRE_SPLIT,
    LATHE_PRE_BYTE_LEVEL,
    LATHE_PRE_METASPACE
} lathe_pre_kind;

/** Treatment of a match: SplitDelimiterBehavior of Hugging Face's tokenizers. */
typedef enum lathe_behavior {
    LATHE_ISOLATED,
    LATHE_REMOVED,
    LATHE_MERGED_WITH_PREVIOUS,
    LATHE_MERGED_WITH_NEXT,
    LATHE_CONTIGUOUS
} lathe_behavior;

typedef enum lathe_scheme { LATHE_ALWAYS, LATHE_FIRST, LATHE_NEVER } lathe_scheme;

typedef struct lathe_pre_step {
    lathe_pre_kind kind;
    lathe_behavior behavior; /* Split */
    int32_t invert;          /* Split */
    lathe_pattern pattern;   /* Split; ByteLevel with use_regex; Metaspace that splits */
    const char *isolated;    /* an expression that matches exactly the isolated parts; NULL: there
                              * is none */
    int32_t prefix_space;    /* ByteLevel */
    lathe_piece replacement; /* Metaspace: one character */
    lathe_scheme scheme;     /* Metaspace */
} lathe_pre_step;

/** Takes a piece and its origin (lathe_text). */
typedef lathe_status (*lathe_part_fn)(void *arg, const uint8_t *text, int64_t n, int64_t origin);

/** Applies one step to a piece that is not empty, and passes each part that is not empty to `part`.
 *  `buffer` holds rewritten text during these calls. */
lathe_status lathe__pre_tokenize(const lathe_pre_step *step, lathe_matcher *matcher,
                                 lathe_buffer *buffer, const uint8_t *text, int64_t n,
                                 int64_t origin, lathe_part_fn part, void *arg);
void lathe__pre_step_fini(lathe_pre_step *step);

/* ---- models ---- */

typedef struct lathe_unigram lathe_unigram;

/** scores[n]: the scores of tokens 0 ... n - 1 of `vocab`; malloc'ed, taken over on success. */
lathe_status lathe__unigram_create(const lathe_vocab *vocab, double *scores, int64_t n,
                                   lathe_unigram **out);
void lathe__unigram_destroy(lathe_unigram *unigram);

/** Scratch of one thread: merge lists of BPE, the best paths of Unigram. All zeros at first, except
 *  loss. */
typedef struct lathe_model_scratch {
    struct lathe_symbol *symbols; /* [capacity] */
    uint64_t *heap;               /* [2 * capacity] */
    int64_t capacity;
    struct lathe_way *ways; /* [n_ways] */
    int64_t n_ways;
    lathe_text_loss *loss; /* counts lost bytes */
} lathe_model_scratch;
void lathe__model_scratch_fini(lathe_model_scratch *scratch);

/* ---- decoders ---- */

typedef enum lathe_decode_kind {
    LATHE_DECODE_BYTE_LEVEL,
    LATHE_DECODE_BYTE_FALLBACK,
    LATHE_DECODE_METASPACE,
    LATHE_DECODE_REPLACE,
    LATHE_DECODE_STRIP,
    LATHE_DECODE_FUSE,
    LATHE_DECODE_WORD_PIECE
} lathe_decode_kind;

typedef struct lathe_decode_step {
    lathe_decode_kind kind;
    lathe_pattern pattern; /* Replace */
    lathe_piece content;   /* Replace: the replacement; Strip, Metaspace: one character; WordPiece:
                            * the prefix of a token inside a word */
    int64_t start, stop;   /* Strip: largest number of characters at each end */
    int32_t keeps_first;   /* Metaspace with the scheme "never" */
    int32_t cleans_up;     /* WordPiece: no spaces before punctuation */
} lathe_decode_step;

void lathe__decode_step_fini(lathe_decode_step *step);

/* ---- all of it ---- */

enum {
    LATHE_MODEL_BPE = 0,
    LATHE_MODEL_UNIGRAM = 1,
    LATHE_MODEL_WORD_PIECE = 2,
    LATHE_MODEL_WORD_LEVEL = 3
};

typedef struct lathe_pipeline {
    lathe_normal_step normal[LATHE_MAX_STEPS];
    int32_t n_normal;
    lathe_pre_step pre[LATHE_MAX_STEPS];
    int32_t n_pre;
    lathe_decode_step decode[LATHE_MAX_STEPS];
    int32_t n_decode;
    int32_t has_decoder; /* 0: tokens are joined by spaces */
    int32_t byte_level;  /* 1: a step turns bytes into byte-level characters */
    double *scores;      /* scores of Unigram, until `unigram` is made */
    int64_t n_scores;
    int32_t model;          /* LATHE_MODEL_* */
    lathe_unigram *unigram; /* for LATHE_MODEL_UNIGRAM */
    lathe_piece subword;    /* WordPiece: prefix of a token that does not begin a word */
    int64_t max_chars;      /* WordPiece: a longer word is the unknown token */
    int64_t longest;        /* WordPiece: bytes of the longest token */
    int32_t unk;            /* id of the unknown token, -1: none */
    int32_t fuse_unk, byte_fallback;
    int32_t byte_token[256]; /* token of each byte for byte_fallback ("<0x0A>"); -1: none */
    int32_t byte_char[256];  /* token of each byte's character for byte_level; -1: none */
    uint8_t *is_control;     /* [vocab.n] 1: an added token that is special */
} lathe_pipeline;

void lathe__pipeline_destroy(lathe_pipeline *pipeline);

/** Counts text of a piece that has no token; if ByteLevel made the piece, counts the bytes of the
 *  input. */
void lathe__count_lost(const lathe_pipeline *pipeline, const uint8_t *text, int64_t n,
                       int is_unknown, lathe_text_loss *loss);

/** Appends the tokens of one piece. plain: it gives no special token (LATHE_ENCODE_NO_ADDED). */
lathe_status lathe__char_bpe_encode(const lathe_tokenizer *tok, lathe_model_scratch *scratch,
                                    const uint8_t *piece, int64_t n, int plain, lathe_ids *ids);
lathe_status lathe__unigram_encode(const lathe_tokenizer *tok, lathe_model_scratch *scratch,
                                   const uint8_t *piece, int64_t n, int plain, lathe_ids *ids);

/** WordPiece: the longest token that begins the word, then the longest that continues it, and so
 * on; one unknown token if a part has none. Takes time O(n * longest token). */
lathe_status lathe__word_piece_encode(const lathe_tokenizer *tok, lathe_model_scratch *scratch,
                                      const uint8_t *piece, int64_t n, int plain, lathe_ids *ids);
/** WordLevel: the token of the whole piece, or the unknown token. */
lathe_status lathe__word_level_encode(const lathe_tokenizer *tok, lathe_model_scratch *scratch,
                                      const uint8_t *piece, int64_t n, int plain, lathe_ids *ids);

/** The state of one thread that encodes with a GENERAL tokenizer. */
typedef struct lathe_runner lathe_runner;
lathe_status lathe__runner_create(const lathe_tokenizer *tok, lathe_text_loss *loss,
                                  lathe_runner **out);
void lathe__runner_destroy(lathe_runner *runner);
/** Appends the ids of a text; flags: LATHE_ENCODE_*. places: where special tokens may begin; NULL:
 *  anywhere. */
lathe_status lathe__runner_encode(lathe_runner *runner, const uint8_t *text, int64_t n,
                                  int32_t flags, const lathe_token_places *places, lathe_ids *ids);
/** lathe_tokenizer_decode of a GENERAL tokenizer. */
lathe_status lathe__pipeline_decode(const lathe_tokenizer *tok, const int32_t *ids, int64_t n,
                                    int32_t flags, char **out_text, int64_t *out_bytes);

#endif
