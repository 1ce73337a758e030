/* Tokenizers: text to token ids and back, as a tokenizer.json of Hugging Face says, or raw bytes.
 * tokenjson/tokenizer_file.h reads a tokenizer, tokentrain/tokenizer_train.h trains one.
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
#include "text/token_ids.h"

/** Immutable once made: any number of threads may read one. */
typedef struct lathe_tokenizer lathe_tokenizer;
/** Scratch for encoding: match data, merge lists, a cache of pieces. One per thread. */
typedef struct lathe_encoder lathe_encoder;

/** The tokenizer without a file: id = byte, and 256 the end of text (bos none, pad = eos). */
lathe_status lathe_tokenizer_bytes(lathe_tokenizer **out);

void lathe_tokenizer_destroy(lathe_tokenizer *tok);

lathe_status lathe_encoder_create(const lathe_tokenizer *tok, lathe_encoder **out);
void lathe_encoder_destroy(lathe_encoder *enc);

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

/** 1: the tokenizer without a file, whose ids are bytes. */
int lathe_tokenizer_is_bytes(const lathe_tokenizer *tok);
/** Appends the tokens that the post-processor's template puts before, or after, a text. */
lathe_status lathe_tokenizer_put_prefix(const lathe_tokenizer *tok, lathe_ids *ids);
lathe_status lathe_tokenizer_put_suffix(const lathe_tokenizer *tok, lathe_ids *ids);

/* Incremented when the ids of one tokenizer.json change between releases: shards that were made
 * with other ids are then made again. */
#define LATHE_TOKENIZER_READING 2

/** Sets the hash from the text of tokenizer.json and the special ids: the last step of whoever
 * makes a tokenizer. */
lathe_status lathe__tokenizer_seal(lathe_tokenizer *tok);

#endif
