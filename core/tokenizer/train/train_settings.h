/* Settings of the training of a tokenizer, and the source of its texts. */
#ifndef LATHE_TOKENIZER_TRAIN_SETTINGS_H
#define LATHE_TOKENIZER_TRAIN_SETTINGS_H

#include <stdint.h>

#include "lathe/status.h"

enum {
    LATHE_TRAIN_BYTE_LEVEL = 0, /* bytes, split by a pattern, as GPT-2, Llama 3 and Qwen2 */
    LATHE_TRAIN_METASPACE = 1   /* characters, with U+2581 for a space, as SentencePiece */
};

/** The settings of lathe_tokenizer_train. */
typedef struct lathe_tokenizer_training {
    int32_t kind;             /* LATHE_TRAIN_* */
    int32_t byte_fallback;    /* METASPACE: 256 tokens <0x00> ... <0xFF> for what is not in the
                               * alphabet, after the special tokens */
    int64_t vocab_size;       /* special tokens and the 256 bytes included */
    int64_t min_frequency;    /* pairs rarer than this are not merged; 0 counts as 2 */
    int64_t max_token_length; /* pairs of this many symbols or more are not merged; 0: no limit */
    const char *pattern;      /* NULL: GPT-2's (ByteLevel, use_regex); else Split(pattern);
                               * METASPACE: must be NULL */
    const char *const *specials; /* ids 0, 1, ...; NULL: one, "<|endoftext|>"; METASPACE: three,
                                  * "<unk>", "<s>", "</s>" */
    int64_t n_specials; /* the first is eos; METASPACE: unk, bos, eos, at least these three */
} lathe_tokenizer_training;

/** Gives the next text; *out_text is NULL after the last one. No merge reaches across texts. The
 *  text is borrowed until the next call. */
typedef lathe_status (*lathe_text_fn)(void *arg, const char **out_text, int64_t *out_bytes);

#endif
