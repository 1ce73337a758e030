/* The vocabulary of a folder that has no tokenizer.json but the files of another form.
 *
 * Forms: a SentencePiece model, lines of tiktoken, tekken.json, vocab.json with merges.txt, and
 * vocab.txt. Each is read and written as the tokenizer.json that transformers 5.24 makes of it
 * (convert_slow_tokenizer.py, tokenization_utils_tokenizers.py and the classes of the models), so
 * that everything above sees a folder with a tokenizer.json.
 */
#ifndef LATHE_FILES_VOCAB_SOURCE_H
#define LATHE_FILES_VOCAB_SOURCE_H

#include <jansson.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "files/vocab/byte_ranks.h"
#include "files/vocab/sentencepiece.h"
#include "files/vocab/token_names.h"

enum {
    LATHE_FORM_NONE = 0,
    LATHE_FORM_TEKKEN,        /* tekken.json */
    LATHE_FORM_SENTENCEPIECE, /* tokenizer.model, spiece.model, sentencepiece.bpe.model */
    LATHE_FORM_TIKTOKEN,      /* tiktoken.model, or tokenizer.model with its lines */
    LATHE_FORM_MERGES,        /* vocab.json and merges.txt */
    LATHE_FORM_WORDS          /* vocab.txt */
};

typedef struct lathe_vocab_source {
    lathe_arena arena;
    int32_t form, which; /* LATHE_FORM_*, LATHE_CLASS_* */
    int32_t has_post;    /* 1: tokenizer_config.json says add_bos_token or add_eos_token */
    int32_t adds_bos, adds_eos;
    int32_t lowers, accents; /* WORDS: do_lower_case; strip_accents, -1: as lowers */
    const char *place;       /* the file, for messages */
    char *text;              /* its bytes */
    int64_t n_text;
    json_t *config; /* tokenizer_config.json as it is with the tokenizer.json that is made */
    lathe_token_names names; /* the tokens that it and the files beside it name */
    lathe_spm spm;           /* SENTENCEPIECE */
    lathe_token_list list;   /* by id, of every form except MERGES */
    int64_t n_special;       /* TEKKEN: ids before those of the list */
    const char *const *special;
    const char *pattern; /* TEKKEN, TIKTOKEN */
    json_t *vocab;       /* MERGES: vocab.json */
    char *merges;        /* MERGES: the text of merges.txt */
    int64_t n_merges;
    const char *merges_place;
} lathe_vocab_source;

/** 1: the folder has no tokenizer.json and a file that lathe_vocab_open may read. */
int32_t lathe_vocab_is_other(const char *folder);

/** Reads the vocabulary. Call lathe_vocab_close in any case.
 *
 *  Errors  LATHE_E_PARSE: file and place.
 *          LATHE_E_UNSUPPORTED: what cannot be converted, and how it is made with transformers. */
lathe_status lathe_vocab_open(const char *folder, lathe_vocab_source *out);
void lathe_vocab_close(lathe_vocab_source *source);

/** Appends the text of the tokenizer.json. */
lathe_status lathe_vocab_json(const lathe_vocab_source *source, lathe_buffer *out);

/** Appends the text of the tokenizer_config.json: that of the folder with the special tokens that
 *  the class or the vocabulary names, and without a class, so that tokenizer.json alone counts. */
lathe_status lathe_vocab_config(const lathe_vocab_source *source, lathe_buffer *out);

#endif
