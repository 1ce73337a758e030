/* Tokenizers: convert text to token ids and back, as a tokenizer.json of Hugging Face says, or as
 * raw bytes. tokenizer/json/tokenizer_file.h reads a tokenizer, tokenizer/train/tokenizer_train.h
 * trains one.
 *
 * Text that is not UTF-8 can be encoded too. In a byte-level tokenizer, expressions and normalizer
 * see only the parts that are valid UTF-8, and every other byte is one token. Decoding gives back
 * the exact bytes, unless the tokenizer normalizes, lacks a byte, or an added token strips spaces.
 * Other tokenizers read U+FFFD for each maximal part of a character that is not UTF-8 (Unicode 3.9,
 * as Rust's from_utf8_lossy). Decoded bytes are never repaired: if the ids do not form UTF-8, the
 * text is not UTF-8 either.
 *
 * A vocabulary may lack bytes (SmolLM2's has 235 of 256). As in Hugging Face's library, such a byte
 * becomes the tokens of byte_fallback, else unk_token, else nothing; lathe_encoder_loss counts the
 * last two cases. */
#ifndef LATHE_TOKENIZER_TOKENIZER_H
#define LATHE_TOKENIZER_TOKENIZER_H

#include <jansson.h>

#include "lathe/status.h"
#include "tokenizer/encode/added_tokens.h"
#include "tokenizer/encode/text_loss.h"
#include "tokenizer/encode/token_ids.h"

/** A tokenizer does not change once it is made: any number of threads may share it. */
typedef struct lathe_tokenizer lathe_tokenizer;
/** The state of encoding in one thread: match data, merge lists, a cache of pieces. */
typedef struct lathe_encoder lathe_encoder;

/** Makes the tokenizer that needs no file: the id of a byte is its value, and 256 is the end of
 *  text (no bos, pad = eos). */
lathe_status lathe_tokenizer_bytes(lathe_tokenizer **out);

void lathe_tokenizer_destroy(lathe_tokenizer *tok);

lathe_status lathe_encoder_create(const lathe_tokenizer *tok, lathe_encoder **out);
void lathe_encoder_destroy(lathe_encoder *enc);

/** Appends the ids of text[0, n_bytes) to `ids`. flags: LATHE_ENCODE_*. Takes time O(n log n) and
 *  memory O(n) for any input, without recursion. */
lathe_status lathe_encoder_run(lathe_encoder *enc, const char *text, int64_t n_bytes, int32_t flags,
                               lathe_ids *ids);

/** Like lathe_encoder_run without flags, for a text of which it is known where special tokens
 *  begin: elsewhere their names are text. Tokens that the tokenizer finds in the normalized text
 *  are not told apart. */
lathe_status lathe_encoder_run_placed(lathe_encoder *enc, const char *text, int64_t n_bytes,
                                      const lathe_token_places *places, lathe_ids *ids);

/** Whether the normalizer strips space from the end of a text. */
int lathe_encoder_strips_end(const lathe_encoder *enc);
/** Appends the tokens of text[0, n_bytes) as they are where more text follows. A normalizer that
 *  strips the end of a text would take from the prefix alone what the whole text has there: then
 * the tokens are those that two continuations have in common. places: NULL, or as in
 *  lathe_encoder_run_placed, with flags 0. */
lathe_status lathe_encoder_run_open(lathe_encoder *enc, const char *text, int64_t n_bytes,
                                    int32_t flags, const lathe_token_places *places,
                                    lathe_ids *ids);

/** Whether encoding keeps every byte of text[0, n_bytes): the text is UTF-8, or the tokenizer has a
 *  token for each byte that is not part of a character. LATHE_E_ARG names the first byte that would
 *  be lost; `what` names the text ("the prompt"). Characters that the vocabulary lacks are no
 *  matter of this check: lathe_text_loss counts them. */
lathe_status lathe_tokenizer_check_text(const lathe_tokenizer *tok, const char *what,
                                        const char *text, int64_t n_bytes);

/** The bytes that all texts of this encoder lost since it was made; borrowed. */
const lathe_text_loss *lathe_encoder_loss(const lathe_encoder *enc);

/** lathe_encoder_run with an encoder that is made for this call: for occasional short texts. */
lathe_status lathe_tokenizer_encode(const lathe_tokenizer *tok, const char *text, int64_t n_bytes,
                                    int32_t flags, lathe_ids *ids);
/** Like lathe_tokenizer_encode, and adds the bytes that the text lost to *loss. */
lathe_status lathe_tokenizer_encode_counting(const lathe_tokenizer *tok, const char *text,
                                             int64_t n_bytes, int32_t flags, lathe_ids *ids,
                                             lathe_text_loss *loss);

/** Decodes ids[0, n) to bytes, malloc'ed and followed by a NUL; the caller frees them. A token may
 *  end inside a UTF-8 character. Errors: LATHE_E_ARG for an id that is not a token. */
lathe_status lathe_tokenizer_decode(const lathe_tokenizer *tok, const int32_t *ids, int64_t n,
                                    int32_t flags, char **out_text, int64_t *out_bytes);

/** Largest id + 1. */
int64_t lathe_tokenizer_vocab_size(const lathe_tokenizer *tok);
/** Special ids, -1 for none. eos also ends each document in a packed stream. */
int32_t lathe_tokenizer_bos(const lathe_tokenizer *tok);
int32_t lathe_tokenizer_eos(const lathe_tokenizer *tok);
int32_t lathe_tokenizer_pad(const lathe_tokenizer *tok);
/** The mask_token of masked language models, which tokenizer_config.json names. */
int32_t lathe_tokenizer_mask(const lathe_tokenizer *tok);
/** Tokens that the files beside tokenizer.json add ("is_new") or change, with "id" and "content"; a
 *  list, borrowed; NULL: none. */
const json_t *lathe_tokenizer_beside(const lathe_tokenizer *tok);
/** Takes the ids of begin, end and padding that it lacks from another tokenizer. Only before it is
 *  shared. */
void lathe_tokenizer_take_specials(lathe_tokenizer *tok, const lathe_tokenizer *from);
/** Takes an added token out, so that no text has it: a padding token for which the model has no
 *  row. It must have the largest id. Only before the tokenizer is shared; the hash changes. */
lathe_status lathe_tokenizer_take_out_pad(lathe_tokenizer *tok);
/** The id of the token with exactly these bytes (added tokens: their content), -1 for none. */
int32_t lathe_tokenizer_id(const lathe_tokenizer *tok, const char *text, int64_t n_bytes);
/** The bytes of one token, borrowed; NULL if the id is not a token. Byte-level BPE: the bytes that
 *  it stands for; other models: its text in the file ("\u2581the", "<0x0A>"). */
const char *lathe_tokenizer_token(const lathe_tokenizer *tok, int32_t id, int64_t *out_bytes);
/** Returns 1 if the id is an added token that is marked as special. */
int lathe_tokenizer_is_special(const lathe_tokenizer *tok, int32_t id);
/** Returns 1 if the id is an added token, special or not: one that is found in a text before it is
 * split. */
int lathe_tokenizer_is_added(const lathe_tokenizer *tok, int32_t id);
/** Sets missing[b] to 1 for each byte for which a byte-level tokenizer has no token, and returns
 *  their number. Returns 0 for other tokenizers, whose unit is the character. */
int32_t lathe_tokenizer_missing_bytes(const lathe_tokenizer *tok, uint8_t missing[256]);
/** SHA-256 of tokenizer.json and of the special ids, as 64 hexadecimal digits. */
const char *lathe_tokenizer_hash(const lathe_tokenizer *tok);

/** 1: the tokenizer without a file, whose ids are bytes. */
int lathe_tokenizer_is_bytes(const lathe_tokenizer *tok);
/** Appends the tokens that the post-processor's template puts after a text, unless the text, which
 * is ids->data[from, n), ends with them. */
lathe_status lathe_tokenizer_put_suffix(const lathe_tokenizer *tok, lathe_ids *ids, int64_t from);

/* Incremented when the ids of one tokenizer.json change between releases: shards that were made
 * with other ids are then made again. */
#define LATHE_TOKENIZER_READING 3

/** Sets the hash from the text of tokenizer.json and the special ids: the last step of whoever
 * makes a tokenizer. */
lathe_status lathe__tokenizer_seal(lathe_tokenizer *tok);

#endif
