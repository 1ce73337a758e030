/* Tokenizers: text to token ids and back, as Hugging Face's tokenizer.json says; raw bytes; and
 * training of a new byte-level BPE.
 *
 * Text that is not UTF-8 encodes too. In a byte-level tokenizer the expressions and the normalizer
 * see only the valid stretches, and every byte outside them is a token of its own; decoding gives
 * the bytes back exactly, unless the tokenizer normalizes, lacks a byte, or an added token strips
 * spaces. Other tokenizers see U+FFFD for each maximal part of a character that is not UTF-8
 * (Unicode 3.9, as Rust's from_utf8_lossy). Decoded bytes are never repaired: where ids spell no
 * UTF-8, neither is the text.
 *
 * A vocabulary may lack bytes (SmolLM2's has 235 of 256). As in Hugging Face's library, such a byte
 * becomes the tokens of byte_fallback, else unk_token, else nothing: lathe_encoder_loss counts the
 * last two.
 */
#ifndef LATHE_TEXT_TOKENIZER_H
#define LATHE_TEXT_TOKENIZER_H

#include "lathe/status.h"
#include "text/text_loss.h"

/** A growing list of token ids; all zeros is empty. Appending functions keep what is there. */
typedef struct lathe_ids {
    int32_t *data;
    int64_t n, capacity;
} lathe_ids;

lathe_status lathe_ids_reserve(lathe_ids *ids, int64_t n_more);
lathe_status lathe_ids_append(lathe_ids *ids, const int32_t *data, int64_t n);
void lathe_ids_fini(lathe_ids *ids);

/** Immutable once made: any number of threads may read one. */
typedef struct lathe_tokenizer lathe_tokenizer;
/** Scratch for encoding: match data, merge lists, a cache of pieces. One per thread. */
typedef struct lathe_encoder lathe_encoder;

/** Reads tokenizer.json: `path` is the file, or a folder that holds it. Beside it, where they are,
 *  tokenizer_config.json gives bos/eos/pad; config.json gives the eos that is still missing, and an
 *  added token "<|endoftext|>" is the last resort.
 *
 *  Read: models BPE (merges as pairs or "a b"; unk_token, fuse_unk, byte_fallback, ignore_merges)
 *  and Unigram; normalizers NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, Replace,
 *  Prepend, ByteLevel, Precompiled; pre-tokenizers ByteLevel, Metaspace, Split with every
 *  behaviour, Digits, Punctuation, Whitespace, WhitespaceSplit; decoders ByteLevel, ByteFallback,
 *  Metaspace, Replace, Strip, Fuse; sequences of each; added tokens with all flags; post-processors
 *  ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing (for `add_special` alone). The
 *  ids are those of Hugging Face's tokenizers 0.23: docs/design/006-tokenizers.md tells where a
 *  character newer than the Unicode of one side makes a difference.
 *  Truncation and padding in the file are not for training and are ignored.
 *  Errors  LATHE_E_UNSUPPORTED names file and key of anything else; LATHE_E_PARSE those of what is
 *  malformed; LATHE_E_IO. */
lathe_status lathe_tokenizer_load(const char *path, lathe_tokenizer **out);

/** The tokenizer without a file: id = byte, and 256 the end of text (bos none, pad = eos). */
lathe_status lathe_tokenizer_bytes(lathe_tokenizer **out);

void lathe_tokenizer_destroy(lathe_tokenizer *tok);

lathe_status lathe_encoder_create(const lathe_tokenizer *tok, lathe_encoder **out);
void lathe_encoder_destroy(lathe_encoder *enc);

enum {
    LATHE_ENCODE_ADD_SPECIAL = 1, /* what the post-processor's template puts before and after */
    LATHE_ENCODE_NO_ADDED = 2,    /* added tokens in the text are plain text */
    LATHE_ENCODE_BEGIN = 4 /* what the template puts before, unless the text begins with it: for
                            * a text that is to be continued */
};

/** Appends the ids of text[0, n_bytes) to `ids`. flags: LATHE_ENCODE_*.
 *  Time O(n log n) for any input, and memory O(n): no recursion, no quadratic run. */
lathe_status lathe_encoder_run(lathe_encoder *enc, const char *text, int64_t n_bytes, int32_t flags,
                               lathe_ids *ids);

/** What all texts of this encoder lost since it was made; borrowed. */
const lathe_text_loss *lathe_encoder_loss(const lathe_encoder *enc);

/** lathe_encoder_run with an encoder made for this call: for short texts, now and then. */
lathe_status lathe_tokenizer_encode(const lathe_tokenizer *tok, const char *text, int64_t n_bytes,
                                    int32_t flags, lathe_ids *ids);
/** The same, and what the text lost is added to *loss. */
lathe_status lathe_tokenizer_encode_counting(const lathe_tokenizer *tok, const char *text,
                                             int64_t n_bytes, int32_t flags, lathe_ids *ids,
                                             lathe_text_loss *loss);

enum { LATHE_DECODE_SKIP_SPECIAL = 1 /* special tokens give no text */ };

/** The bytes of ids[0, n): malloc'ed, with a NUL after them; the caller frees. A token may end
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
/** The bytes of one token, borrowed; NULL when id is no token. Byte-level BPE: the bytes it stands
 *  for; other models: its text in the file ("\u2581the", "<0x0A>"). */
const char *lathe_tokenizer_token(const lathe_tokenizer *tok, int32_t id, int64_t *out_bytes);
/** 1 when the id is an added token marked special. */
int lathe_tokenizer_is_special(const lathe_tokenizer *tok, int32_t id);
/** The bytes that a byte-level tokenizer has no token for: missing[b] is 1 for each; returns how
 *  many. 0 for other tokenizers, whose unit is the character. */
int32_t lathe_tokenizer_missing_bytes(const lathe_tokenizer *tok, uint8_t missing[256]);
/** 64 hexadecimal digits: SHA-256 of tokenizer.json and of the special ids. */
const char *lathe_tokenizer_hash(const lathe_tokenizer *tok);

/** Writes tokenizer.json as Hugging Face's libraries read it, atomically. If `path` is a folder (or
 *  ends in '/'; made if missing), also tokenizer_config.json with the special tokens.
 *  LATHE_E_UNSUPPORTED for the raw-byte tokenizer. */
lathe_status lathe_tokenizer_save(const lathe_tokenizer *tok, const char *path);

enum {
    LATHE_TRAIN_BYTE_LEVEL = 0, /* bytes after a pattern, as GPT-2, Llama 3 and Qwen2 have it */
    LATHE_TRAIN_METASPACE = 1   /* characters, U+2581 for a space, as SentencePiece has it */
};

/** The settings of lathe_tokenizer_train. */
typedef struct lathe_tokenizer_training {
    int32_t kind;                /* LATHE_TRAIN_* */
    int32_t byte_fallback;       /* METASPACE: 256 tokens <0x00> ... <0xFF> for what is not in the
                                  * alphabet, after the special tokens */
    int64_t vocab_size;          /* special tokens and the 256 bytes included */
    int64_t min_frequency;       /* pairs rarer than this are not merged; 0 counts as 2 */
    int64_t max_token_length;    /* pairs of so many symbols or more are not merged; 0: no limit */
    const char *pattern;         /* NULL: GPT-2's (ByteLevel, use_regex); else Split(pattern);
                                  * METASPACE: must be NULL */
    const char *const *specials; /* ids 0, 1, ...; NULL: one, "<|endoftext|>"; METASPACE: three,
                                  * "<unk>", "<s>", "</s>" */
    int64_t n_specials; /* the first is eos; METASPACE: unk, bos, eos, at least these three */
} lathe_tokenizer_training;

/** Gives the next text (one sequence: no merge reaches across texts) until *out_text is NULL.
 *  The text is borrowed until the next call. */
typedef lathe_status (*lathe_text_fn)(void *arg, const char **out_text, int64_t *out_bytes);

/** Trains a BPE: the same vocabulary and merges as Hugging Face's BpeTrainer for the same sequences
 *  (most frequent pair first; ties: smaller ids first). BYTE_LEVEL: with the ByteLevel alphabet.
 *  METASPACE: after Metaspace(prepend_scheme always), the alphabet being every character of the
 *  texts; the bytes of byte_fallback count as special tokens there.
 *  Deterministic. Special tokens in the text are not recognized. LATHE_E_CONFIG: there is no
 *  text. */
lathe_status lathe_tokenizer_train(const lathe_tokenizer_training *settings, lathe_text_fn next,
                                   void *arg, lathe_tokenizer **out);

/** The same from files and folders (recursive, sorted): each file is one text. Files that hold a
 *  NUL or are not UTF-8 are left out and counted in *out_skipped (may be NULL). */
lathe_status lathe_tokenizer_train_files(const lathe_tokenizer_training *settings,
                                         const char *const *paths, int64_t n_paths,
                                         int64_t *out_skipped, lathe_tokenizer **out);

#endif
