/* Tokenizers: text to token ids and back. Byte-level BPE as in Hugging Face's tokenizer.json, raw
 * bytes, and training of a new byte-level BPE.
 *
 * Bytes are bytes: any input encodes. Where the text is not UTF-8, the regular expression and the
 * normalizer see only the valid stretches; every byte outside them is a piece of its own. Decoding
 * gives the bytes back exactly, unless the tokenizer normalizes or an added token strips spaces.
 */
#ifndef LATHE_DATA_TOKENIZER_H
#define LATHE_DATA_TOKENIZER_H

#include "lathe/status.h"

/** A growing list of token ids; all zeros is empty. Appending functions keep what is there. */
typedef struct lathe_ids {
    int32_t *data;
    int64_t n, capacity;
} lathe_ids;

lathe_status lathe_ids_reserve(lathe_ids *ids, int64_t n_more);
void lathe_ids_fini(lathe_ids *ids);

/** Immutable once made: any number of threads may read one. */
typedef struct lathe_tokenizer lathe_tokenizer;
/** Scratch for encoding: match data, merge lists, a cache of pieces. One per thread. */
typedef struct lathe_encoder lathe_encoder;

/** Reads tokenizer.json: `path` is the file, or a folder that holds it. Beside it, where they are,
 *  tokenizer_config.json gives bos/eos/pad; config.json gives the eos that is still missing, and an
 *  added token "<|endoftext|>" is the last resort.
 *
 *  Read: model BPE (merges as pairs or "a b", ignore_merges) over byte-level symbols; normalizer
 *  null, NFC; pre-tokenizer ByteLevel, Split(Regex, Isolated), and sequences of these; added tokens
 *  with all flags; post-processor ByteLevel, TemplateProcessing (for `add_special` alone).
 *  Truncation and padding in the file are not for training and are ignored.
 *  Errors  LATHE_E_UNSUPPORTED names file and key of anything else; LATHE_E_PARSE; LATHE_E_IO. */
lathe_status lathe_tokenizer_load(const char *path, lathe_tokenizer **out);

/** The tokenizer without a file: id = byte, and 256 the end of text (bos none, pad = eos). */
lathe_status lathe_tokenizer_bytes(lathe_tokenizer **out);

void lathe_tokenizer_destroy(lathe_tokenizer *tok);

lathe_status lathe_encoder_create(const lathe_tokenizer *tok, lathe_encoder **out);
void lathe_encoder_destroy(lathe_encoder *enc);

enum {
    LATHE_ENCODE_ADD_SPECIAL = 1, /* what the post-processor's template puts before and after */
    LATHE_ENCODE_NO_ADDED = 2     /* added tokens in the text are plain text */
};

/** Appends the ids of text[0, n_bytes) to `ids`. flags: LATHE_ENCODE_*.
 *  Time O(n log n) for any input, and memory O(n): no recursion, no quadratic run. */
lathe_status lathe_encoder_run(lathe_encoder *enc, const char *text, int64_t n_bytes, int32_t flags,
                               lathe_ids *ids);

/** lathe_encoder_run with an encoder made for this call: for short texts, now and then. */
lathe_status lathe_tokenizer_encode(const lathe_tokenizer *tok, const char *text, int64_t n_bytes,
                                    int32_t flags, lathe_ids *ids);

enum { LATHE_DECODE_SKIP_SPECIAL = 1 /* special tokens give no text */ };

/** The bytes of ids[0, n): malloc'ed, with a NUL behind them; the caller frees. A token may end
 *  inside a UTF-8 character. Errors: LATHE_E_ARG for an id that is no token. */
lathe_status lathe_tokenizer_decode(const lathe_tokenizer *tok, const int32_t *ids, int64_t n,
                                    int32_t flags, char **out_text, int64_t *out_bytes);

/** Largest id + 1. */
int64_t lathe_tokenizer_vocab_size(const lathe_tokenizer *tok);
/** Special ids, -1 where there is none. eos is also what ends a document in a packed stream. */
int32_t lathe_tokenizer_bos(const lathe_tokenizer *tok);
int32_t lathe_tokenizer_eos(const lathe_tokenizer *tok);
int32_t lathe_tokenizer_pad(const lathe_tokenizer *tok);
/** The id of the token with exactly these bytes (added tokens: their content), -1 for none. */
int32_t lathe_tokenizer_id(const lathe_tokenizer *tok, const char *text, int64_t n_bytes);
/** The bytes of one token, borrowed; NULL when id is no token. */
const char *lathe_tokenizer_token(const lathe_tokenizer *tok, int32_t id, int64_t *out_bytes);
/** 1 when the id is an added token marked special. */
int lathe_tokenizer_is_special(const lathe_tokenizer *tok, int32_t id);
/** 64 hexadecimal digits: SHA-256 of tokenizer.json and of the special ids. */
const char *lathe_tokenizer_hash(const lathe_tokenizer *tok);

/** Writes tokenizer.json as Hugging Face's libraries read it, atomically. If `path` is a folder (or
 *  ends in '/'; made if missing), also tokenizer_config.json with the special tokens.
 *  LATHE_E_UNSUPPORTED for the raw-byte tokenizer. */
lathe_status lathe_tokenizer_save(const lathe_tokenizer *tok, const char *path);

/** The settings of lathe_tokenizer_train. */
typedef struct lathe_tokenizer_training {
    int64_t vocab_size;          /* special tokens and the 256 bytes included */
    int64_t min_frequency;       /* pairs rarer than this are not merged; 0 counts as 2 */
    const char *pattern;         /* NULL: GPT-2's (ByteLevel, use_regex); else Split(pattern) */
    const char *const *specials; /* ids 0, 1, ...; NULL: one, "<|endoftext|>" */
    int64_t n_specials;          /* the first is eos */
} lathe_tokenizer_training;

/** Gives the next text (one sequence: no merge reaches across texts) until *out_text is NULL.
 *  The text is borrowed until the next call. */
typedef lathe_status (*lathe_text_fn)(void *arg, const char **out_text, int64_t *out_bytes);

/** Trains a byte-level BPE: the same vocabulary and merges as Hugging Face's BpeTrainer with the
 *  ByteLevel alphabet for the same sequences (most frequent pair first; ties: smaller ids first).
 *  Deterministic. Special tokens in the text are not recognized. */
lathe_status lathe_tokenizer_train(const lathe_tokenizer_training *settings, lathe_text_fn next,
                                   void *arg, lathe_tokenizer **out);

/** The same from files and folders (recursive, sorted): each file is one text. Files that hold a NUL
 *  or are not UTF-8 are left out and counted in *out_skipped (may be NULL). */
lathe_status lathe_tokenizer_train_files(const lathe_tokenizer_training *settings,
                                         const char *const *paths, int64_t n_paths,
                                         int64_t *out_skipped, lathe_tokenizer **out);

#endif
