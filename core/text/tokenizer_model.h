/* What a loaded tokenizer is made of, shared by the files of this floor that read, use and train
 * it.
 */
#ifndef LATHE_TEXT_TOKENIZER_MODEL_H
#define LATHE_TEXT_TOKENIZER_MODEL_H

#include "text/regex.h"
#include "text/scanner.h"
#include "text/tokenizer.h"

/* Counts how often the ids of one tokenizer.json changed between releases: shards made from other
 * ids are made again. */
#define LATHE_TOKENIZER_READING 2

#define LATHE_MAX_SPLITS 8
#define LATHE_MAX_TEMPLATE 16

enum {
    LATHE_TOKENIZER_BPE = 0,    /* byte-level BPE after plain splits: the short route */
    LATHE_TOKENIZER_BYTES = 1,  /* id = byte */
    LATHE_TOKENIZER_GENERAL = 2 /* whatever else a tokenizer.json says: pipeline.h */
};

/** Byte strings numbered by id. Absent ids have length -1. */
typedef struct lathe_vocab {
    uint8_t *pool;
    int64_t pool_bytes, pool_capacity;
    int64_t *at;  /* [capacity] where in the pool */
    int32_t *len; /* [capacity] */
    int64_t n, capacity;
    uint64_t *slots; /* hash table: upper half of the hash << 32 | id + 1; 0 is empty */
    int64_t n_slots, n_used;
    int64_t n_repeated; /* texts that were put while an equal one was found already */
} lathe_vocab;

/** Makes room for ids below n at once. */
lathe_status lathe__vocab_reserve(lathe_vocab *vocab, int64_t n);
/** is_found 0: the bytes are only for decoding, lathe__vocab_find does not see them. */
lathe_status lathe__vocab_put(lathe_vocab *vocab, int32_t id, const void *bytes, int64_t n,
                              int is_found);
/** Lets lathe__vocab_find see the bytes of an id that was put without. */
lathe_status lathe__vocab_show(lathe_vocab *vocab, int32_t id);
int32_t lathe__vocab_find(const lathe_vocab *vocab, const void *bytes, int64_t n);
void lathe__vocab_fini(lathe_vocab *vocab);

/** Pair of ids to (rank, id of the result). */
typedef struct lathe_merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX is an empty slot */
    uint32_t rank, id;
} lathe_merge;

typedef struct lathe_merges {
    lathe_merge *slots;
    uint64_t mask; /* n_slots - 1; n_slots is a power of two >= 2 * merges */
} lathe_merges;

lathe_status lathe__merges_init(lathe_merges *merges, int64_t n);
/** A pair given twice keeps the later rank, as Hugging Face's map does. */
void lathe__merges_put(lathe_merges *merges, int32_t left, int32_t right, uint32_t rank,
                       uint32_t id);

static inline uint64_t lathe__mix(uint64_t x)
{
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 32;
}

static inline const lathe_merge *lathe__merges_find(const lathe_merges *merges, int32_t left,
                                                    int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (uint64_t i = lathe__mix(pair);; i++) {
        const lathe_merge *slot = &merges->slots[i & merges->mask];
        if (slot->pair == pair)
            return slot;
        if (slot->pair == UINT64_MAX)
            return NULL;
    }
}

static inline void lathe__merges_prefetch(const lathe_merges *merges, int32_t left, int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    __builtin_prefetch(&merges->slots[lathe__mix(pair) & merges->mask]);
}

typedef struct lathe_added_token {
    char *content; /* what is matched; normalized when `normalized` */
    int64_t bytes;
    int32_t id;
    int8_t special, normalized, lstrip, rstrip, single_word;
} lathe_added_token;

/** Leftmost-longest matching of many strings. */
typedef struct lathe_trie_node {
    int32_t child, sibling; /* 0: none */
    int32_t token;          /* index of the added token that ends here, -1: none */
    uint8_t byte;
} lathe_trie_node;

typedef struct lathe_trie {
    lathe_trie_node *nodes; /* [0] is the root */
    int64_t n, capacity;
    int32_t first[256]; /* root's child by byte, 0: none */
} lathe_trie;

lathe_status lathe__trie_put(lathe_trie *trie, const char *text, int64_t n, int32_t token);

typedef struct lathe_added_match {
    int64_t begin, end; /* stripped spaces included */
    int32_t token;      /* index of the added token */
} lathe_added_match;

struct lathe_tokenizer {
    int32_t kind;
    lathe_vocab vocab; /* model vocabulary and added tokens: bytes; GENERAL: as the file has them */
    struct lathe_pipeline *pipeline;         /* of GENERAL, else NULL */
    const struct lathe_token_tables *tables; /* while the file is read: its large tables, or NULL */
    lathe_merges merges;
    int32_t byte_id[256]; /* -1: the vocabulary lacks the byte */
    int32_t ignore_merges;
    int32_t nfc;
    int32_t add_prefix_space;
    int32_t n_splits;
    pcre2_code *splits[LATHE_MAX_SPLITS]; /* NULL where a scanner does it */
    int32_t scans[LATHE_MAX_SPLITS];      /* LATHE_SCAN_* */
    int32_t jit;                          /* every expression has machine code */
    lathe_added_token *added;
    int64_t n_added;
    int32_t *added_at; /* [vocab.n] index into added, -1: none; NULL without added tokens */
    lathe_trie raw, normalized; /* added tokens, matched before and after normalizing */
    int32_t prefix[LATHE_MAX_TEMPLATE], suffix[LATHE_MAX_TEMPLATE];
    int32_t n_prefix, n_suffix;
    int32_t bos, eos, pad;
    char *json; /* the file's text, for save */
    int64_t json_bytes;
    char hash[65];
};

/** The added token with this id, NULL for none. */
const lathe_added_token *lathe__added_of(const lathe_tokenizer *tok, int32_t id);

/** Where a search stands. All zeros at first. */
typedef struct lathe_added_cursor {
    int64_t at;
    int64_t spaces_begin, spaces_end; /* the last run of spaces that was walked */
} lathe_added_cursor;

/** The next added token in text[cursor->at, n); 0 when there is none. Moves the cursor after it,
 *  but not after the spaces that it strips: those are looked through again, as in Hugging Face's,
 *  so that a match may begin before `covered`, the end of the match before. Linear over all calls,
 *  times the longest added token. */
int lathe__added_find(const lathe_tokenizer *tok, const lathe_trie *trie, const uint8_t *text,
                      int64_t n, lathe_added_cursor *cursor, int64_t covered,
                      lathe_added_match *out);

/** Compiles a tokenizer.json regular expression. `place` names file and key. */
lathe_status lathe__split_compile(lathe_tokenizer *tok, const char *place, const char *pattern);

/** Takes a piece of text; returns a status that stops the splitting when it is an error. */
typedef lathe_status (*lathe_piece_fn)(void *arg, const uint8_t *piece, int64_t n);

/** Match data and limits for one thread. */
typedef struct lathe_splitter {
    const lathe_tokenizer *tok;
    const uint8_t *classes;
    pcre2_match_data *match[LATHE_MAX_SPLITS];
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    uint8_t *prefixed; /* text with a space before it */
    int64_t prefixed_capacity;
    lathe_piece_fn emit;
    void *arg;
} lathe_splitter;

lathe_status lathe__splitter_init(lathe_splitter *splitter, const lathe_tokenizer *tok,
                                  lathe_piece_fn emit, void *arg);
void lathe__splitter_fini(lathe_splitter *splitter);
/** Pre-tokenises a text that holds no added token: prefix space, splits, invalid bytes alone. */
lathe_status lathe__splitter_run(lathe_splitter *splitter, const uint8_t *text, int64_t n);

typedef enum lathe_form { LATHE_NFC, LATHE_NFD, LATHE_NFKC, LATHE_NFKD } lathe_form;

/** A normal form of a text; invalid bytes stay. *out is NULL when nothing can change, else
 *  malloc'ed. Linear time. */
lathe_status lathe__normal_form(const uint8_t *text, int64_t n, lathe_form form, uint8_t **out,
                                int64_t *out_n);
lathe_status lathe__nfc(const uint8_t *text, int64_t n, uint8_t **out, int64_t *out_n);

/** Merge lists and the piece cache of one thread. `loss` counts the bytes that the vocabulary
 *  lacks. */
typedef struct lathe_bpe lathe_bpe;
lathe_status lathe__bpe_create(const lathe_tokenizer *tok, lathe_text_loss *loss, lathe_bpe **out);
void lathe__bpe_destroy(lathe_bpe *bpe);
/** Takes a piece, whose bytes stay borrowed until lathe__bpe_finish: ids may come late, in
 *  order. */
lathe_status lathe__bpe_encode(lathe_bpe *bpe, const uint8_t *piece, int64_t n, lathe_ids *ids);
/** Appends the ids of the pieces taken that have not come yet. */
lathe_status lathe__bpe_finish(lathe_bpe *bpe, lathe_ids *ids);
/** Drops the pieces taken. */
void lathe__bpe_forget(lathe_bpe *bpe);

/** The character that stands for a byte in byte-level vocabularies (GPT-2's table). */
int32_t lathe__byte_char(int32_t byte);
/** Byte-level text to the bytes it stands for, into out[n]; -1 when a character stands for none. */
int64_t lathe__bytes_of_chars(const char *text, int64_t n, uint8_t *out);
/** Appends bytes as byte-level text; returns the end. out has room for 2n. */
uint8_t *lathe__chars_of_bytes(const uint8_t *bytes, int64_t n, uint8_t *out);

/** One thread's use of a GENERAL tokenizer (pipeline.c). */
typedef struct lathe_runner lathe_runner;
lathe_status lathe__runner_create(const lathe_tokenizer *tok, lathe_text_loss *loss,
                                  lathe_runner **out);
void lathe__runner_destroy(lathe_runner *runner);
/** Appends the ids of a text; flags: LATHE_ENCODE_*. */
lathe_status lathe__runner_encode(lathe_runner *runner, const uint8_t *text, int64_t n,
                                  int32_t flags, lathe_ids *ids);
/** lathe_tokenizer_decode of a GENERAL tokenizer. */
lathe_status lathe__pipeline_decode(const lathe_tokenizer *tok, const int32_t *ids, int64_t n,
                                    int32_t flags, char **out_text, int64_t *out_bytes);
void lathe__pipeline_destroy(struct lathe_pipeline *pipeline);

/** Builds a tokenizer from tokenizer.json text, which it takes (malloc'ed) on success. */
lathe_status lathe__tokenizer_parse(const char *name, char *json, int64_t json_bytes,
                                    lathe_tokenizer **out);
/** Sets the hash from the JSON text and the special ids. */
lathe_status lathe__tokenizer_seal(lathe_tokenizer *tok);

#define LATHE_GPT2_PATTERN lathe__scan_pattern(LATHE_SCAN_GPT2)

#endif
