/* Trains a tokenizer: alphabet, words, merges, and the text of a tokenizer.json, from which the
 * tokenizer is loaded. */
#include "tokenizer/train/tokenizer_train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/byte_level.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/encode/splitter.h"
#include "tokenizer/json/tokenizer_json.h"
#include "tokenizer/train/bpe_train.h"
#include "tokenizer/train/train_json.h"
#include "tokenizer/unicode/scanner.h"

static const char *const byte_level_specials[1] = {"<|endoftext|>"};
static const char *const metaspace_specials[3] = {"<unk>", "<s>", "</s>"};

static lathe_status check_special(const lathe_tokenizer_training *s, int64_t i)
{
    const char *text = s->specials[i];
    const size_t n = strlen(text);
    if (n == 0 || n > LATHE_LONGEST_SPECIAL)
        return lathe_error(LATHE_E_ARG, "special token %lld has %zu bytes", (long long)i, n);
    if (lathe_utf8_prefix((const uint8_t *)text, (int64_t)n) != (int64_t)n)
        return lathe_error(LATHE_E_ARG, "special token %lld is not UTF-8", (long long)i);
    for (int64_t k = 0; k < i; k++)
        if (!strcmp(text, s->specials[k]))
            return lathe_error(LATHE_E_ARG, "special token \"%s\" is given twice", text);
    return LATHE_OK;
}

/* Puts the special tokens, then the bytes in the order of the characters that stand for them. */
static lathe_status start_bytes(const lathe_tokenizer_training *s, lathe_vocab *vocab,
                                int32_t byte_id[256])
{
    uint8_t bytes[LATHE_LONGEST_SPECIAL];
    for (int64_t i = 0; i < s->n_specials; i++) {
        LATHE_TRY(check_special(s, i));
        const char *text = s->specials[i];
        const int64_t n = (int64_t)strlen(text), n_bytes = lathe_bytes_of_chars(text, n, bytes);
        if (n_bytes == 1)
            return lathe_error(LATHE_E_ARG, "special token \"%s\" already stands for a byte", text);
        LATHE_TRY(n_bytes < 0 ? lathe__vocab_put(vocab, (int32_t)i, text, n, 0)
                              : lathe__vocab_put(vocab, (int32_t)i, bytes, n_bytes, 1));
    }
    int32_t id = (int32_t)s->n_specials;
    for (int32_t c = 0; c < 0x144; c++)
        for (int32_t byte = 0; byte < 256; byte++) {
            const uint8_t b = (uint8_t)byte;
            if (lathe_byte_char(byte) != c)
                continue;
            LATHE_TRY(lathe__vocab_put(vocab, id, &b, 1, 1));
            byte_id[byte] = id++;
        }
    return LATHE_OK;
}

/* Puts the special tokens, the bytes if byte_fallback is on, then every character of the words by
 * code point. */
static lathe_status start_chars(const lathe_tokenizer_training *s, const lathe_vocab *words,
                                lathe_vocab *vocab)
{
    for (int64_t i = 0; i < s->n_specials; i++) {
        LATHE_TRY(check_special(s, i));
        LATHE_TRY(lathe__vocab_put(vocab, (int32_t)i, s->specials[i],
                                   (int64_t)strlen(s->specials[i]), 1));
    }
    for (int32_t byte = 0; s->byte_fallback && byte < 256; byte++) {
        char text[8];
        const int n = snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        if (lathe__vocab_find(vocab, text, n) >= 0)
            return lathe_error(LATHE_E_ARG, "special token \"%s\" already stands for a byte", text);
        LATHE_TRY(lathe__vocab_put(vocab, (int32_t)vocab->n, text, n, 1));
    }
    uint8_t *seen = calloc(0x110000 / 8, 1);
    if (seen == NULL)
        return lathe_error(LATHE_E_NOMEM, "alphabet");
    int32_t len;
    for (int64_t w = 0; w < words->n; w++)
        for (int32_t i = 0; i < words->len[w]; i += len) {
            const uint8_t *p = words->pool + words->at[w] + i;
            const int32_t c = lathe_utf8_at(p, words->len[w] - i, &len);
            seen[c >> 3] |= (uint8_t)(1 << (c & 7));
        }
    lathe_status status = LATHE_OK;
    if (seen[0] & 1)
        status = lathe_error(LATHE_E_UNSUPPORTED, "a text to train on holds a NUL character");
    for (int32_t c = 0; c < 0x110000 && status == LATHE_OK; c++) {
        uint8_t text[4];
        if (!(seen[c >> 3] >> (c & 7) & 1))
            continue;
        len = lathe_utf8_put(text, c);
        if (lathe__vocab_find(vocab, text, len) < 0)
            status = lathe__vocab_put(vocab, (int32_t)vocab->n, text, len, 1);
    }
    free(seen);
    return status;
}

/* Makes a tokenizer from words through its JSON, so that it is the same as one loaded from the
 * file. */
static lathe_status build(const lathe_tokenizer_training *s, const lathe_words *words,
                          lathe_vocab *vocab, lathe_tokenizer **out)
{
    const int chars = s->kind == LATHE_TRAIN_METASPACE;
    int32_t byte_id[256];
    lathe_learned_merge *merges = NULL;
    int64_t n_merges = 0;
    LATHE_TRY(chars ? start_chars(s, &words->pieces, vocab) : start_bytes(s, vocab, byte_id));
    LATHE_TRY(lathe__bpe_learn(words, chars ? NULL : byte_id, s, vocab, &merges, &n_merges));
    lathe_buffer json = LATHE_BUFFER_INIT;
    lathe_status status = lathe__train_json(&json, s, vocab, merges, n_merges);
    free(merges);
    if (status == LATHE_OK)
        status = lathe__tokenizer_parse("trained tokenizer", json.data, json.len, out);
    if (status != LATHE_OK) {
        lathe_buffer_fini(&json);
        return status;
    }
    (*out)->bos = chars ? 1 : -1;
    (*out)->eos = chars ? 2 : 0;
    status = lathe__tokenizer_seal(*out);
    if (status != LATHE_OK)
        lathe_tokenizer_destroy(*out);
    return status;
}

/* Fills in missing settings, and refuses impossible ones. */
static lathe_status settle(lathe_tokenizer_training *s)
{
    const int chars = s->kind == LATHE_TRAIN_METASPACE;
    const int64_t least = chars ? 3 : 1;
    if (s->specials == NULL) {
        s->specials = chars ? metaspace_specials : byte_level_specials;
        s->n_specials = least;
    }
    if (s->min_frequency == 0)
        s->min_frequency = 2;
    const int64_t bytes = chars && !s->byte_fallback ? 0 : 256;
    if (s->kind != LATHE_TRAIN_BYTE_LEVEL && !chars)
        return lathe_error(LATHE_E_ARG, "a tokenizer of kind %d cannot be trained", s->kind);
    if (chars && s->pattern)
        return lathe_error(LATHE_E_ARG,
                           "both a pattern, \"%s\", and metaspace are given; expected one of them",
                           s->pattern);
    if (s->n_specials < least)
        return lathe_error(LATHE_E_ARG, "%lld special token%s; expected at least %lld",
                           (long long)s->n_specials, s->n_specials == 1 ? "" : "s",
                           (long long)least);
    if (s->vocab_size < bytes + s->n_specials || s->vocab_size > 1 << 24)
        return lathe_error(LATHE_E_ARG,
                           "a vocabulary of %lld tokens; expected %lld (%lld special token%s%s) to "
                           "%d",
                           (long long)s->vocab_size, (long long)(bytes + s->n_specials),
                           (long long)s->n_specials, s->n_specials == 1 ? "" : "s",
                           bytes ? " and 256 bytes" : "", 1 << 24);
    if (s->min_frequency < 1 || s->max_token_length < 0)
        return lathe_error(LATHE_E_ARG,
                           "min_frequency is %lld and max_token_length %lld; expected at least 1 "
                           "and 0",
                           (long long)s->min_frequency, (long long)s->max_token_length);
    return LATHE_OK;
}

/* Makes a tokenizer that only splits; NULL if Metaspace splits. */
static lathe_status make_splits(const lathe_tokenizer_training *s, lathe_tokenizer **out)
{
    if (s->kind == LATHE_TRAIN_METASPACE)
        return LATHE_OK;
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return lathe_error(LATHE_E_NOMEM, "training a tokenizer");
    return lathe__split_compile(*out, "pattern", s->pattern ? s->pattern : LATHE_GPT2_PATTERN);
}

lathe_status lathe_tokenizer_train(const lathe_tokenizer_training *settings, lathe_text_fn next,
                                   void *arg, lathe_tokenizer **out)
{
    lathe_tokenizer_training s = *settings;
    lathe_tokenizer *splits = NULL;
    lathe_words words;
    lathe_vocab vocab;
    memset(&words, 0, sizeof words);
    memset(&vocab, 0, sizeof vocab);
    LATHE_TRY(settle(&s));
    lathe_status status = make_splits(&s, &splits);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe__words_count(&words, splits, next, arg)) != LATHE_OK)
        goto out;
    if (words.pieces.n == 0) {
        status =
            lathe_error(LATHE_E_CONFIG, "there is no text to train a tokenizer on: all files are "
                                        "empty or hold no UTF-8 text");
        goto out;
    }
    status = build(&s, &words, &vocab, out);
out:
    lathe__words_fini(&words);
    lathe__vocab_fini(&vocab);
    lathe_tokenizer_destroy(splits);
    return status;
}
