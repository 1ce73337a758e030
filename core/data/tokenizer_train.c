/* Training a tokenizer: alphabet, words, merges, and the tokenizer.json that holds them. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "data/bpe_train.h"

static const char *const default_specials[1] = {"<|endoftext|>"};

/* Specials first, then the bytes in the order of the characters that stand for them. */
static lathe_status start_vocab(const lathe_tokenizer_training *s, lathe_vocab *vocab,
                                int32_t byte_id[256])
{
    uint8_t bytes[512];
    for (int64_t i = 0; i < s->n_specials; i++) {
        const char *text = s->specials[i];
        const int64_t n = (int64_t)strlen(text);
        if (n == 0 || n > (int64_t)sizeof bytes)
            return lathe_error(LATHE_E_ARG, "special token %lld has %lld bytes", (long long)i,
                               (long long)n);
        const int64_t n_bytes = lathe__bytes_of_chars(text, n, bytes);
        if (n_bytes == 1)
            return lathe_error(LATHE_E_ARG, "special token \"%s\" already stands for a byte", text);
        for (int64_t k = 0; k < i; k++)
            if (!strcmp(text, s->specials[k]))
                return lathe_error(LATHE_E_ARG, "special token \"%s\" is given twice", text);
        LATHE_TRY(n_bytes < 0 ? lathe__vocab_put(vocab, (int32_t)i, text, n, 0)
                              : lathe__vocab_put(vocab, (int32_t)i, bytes, n_bytes, 1));
    }
    int32_t id = (int32_t)s->n_specials;
    for (int32_t c = 0; c < 0x144; c++)
        for (int32_t byte = 0; byte < 256; byte++) {
            const uint8_t b = (uint8_t)byte;
            if (lathe__byte_char(byte) != c)
                continue;
            LATHE_TRY(lathe__vocab_put(vocab, id, &b, 1, 1));
            byte_id[byte] = id++;
        }
    return LATHE_OK;
}

static void put_pre_tokenizer(lathe_buffer *out, const char *pattern)
{
    if (!pattern) {
        lathe_buffer_puts(out, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                               "\"trim_offsets\": true, \"use_regex\": true}");
        return;
    }
    lathe_buffer_puts(out, "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
                           "\"pattern\": {\"Regex\": ");
    lathe_buffer_json_string(out, pattern);
    lathe_buffer_puts(out, "}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": "
                           "\"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                           "\"use_regex\": false}]}");
}

static lathe_status put_chars(lathe_buffer *out, const lathe_vocab *vocab, int32_t id)
{
    const int64_t n = vocab->len[id];
    uint8_t *text = malloc((size_t)n * 2 + 1);
    if (!text)
        return lathe_error(LATHE_E_NOMEM, "tokenizer.json");
    *lathe__chars_of_bytes(vocab->pool + vocab->at[id], n, text) = 0;
    lathe_buffer_json_string(out, (const char *)text);
    free(text);
    return LATHE_OK;
}

static lathe_status put_model(lathe_buffer *out, const lathe_tokenizer_training *s,
                              const lathe_vocab *vocab, const lathe_learned_merge *merges,
                              int64_t n_merges)
{
    lathe_buffer_puts(out, "{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": "
                           "null,\n    \"continuing_subword_prefix\": null,\n    "
                           "\"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n    "
                           "\"byte_fallback\": false,\n    \"ignore_merges\": false,\n    "
                           "\"vocab\": {");
    for (int32_t id = 0; id < vocab->n; id++) {
        lathe_buffer_puts(out, id ? ",\n      " : "\n      ");
        if (id < s->n_specials)
            lathe_buffer_json_string(out, s->specials[id]);
        else
            LATHE_TRY(put_chars(out, vocab, id));
        lathe_buffer_printf(out, ": %d", id);
    }
    lathe_buffer_puts(out, "\n    },\n    \"merges\": [");
    for (int64_t i = 0; i < n_merges; i++) {
        lathe_buffer_puts(out, i ? ",\n      [" : "\n      [");
        LATHE_TRY(put_chars(out, vocab, merges[i].left));
        lathe_buffer_puts(out, ", ");
        LATHE_TRY(put_chars(out, vocab, merges[i].right));
        lathe_buffer_puts(out, "]");
    }
    lathe_buffer_puts(out, "\n    ]\n  }");
    return LATHE_OK;
}

static lathe_status put_json(lathe_buffer *out, const lathe_tokenizer_training *s,
                             const lathe_vocab *vocab, const lathe_learned_merge *merges,
                             int64_t n_merges)
{
    lathe_buffer_puts(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": "
                           "null,\n  \"added_tokens\": [");
    for (int64_t i = 0; i < s->n_specials; i++) {
        lathe_buffer_printf(out, "%s\n    {\"id\": %lld, \"content\": ", i ? "," : "",
                            (long long)i);
        lathe_buffer_json_string(out, s->specials[i]);
        lathe_buffer_puts(out, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                               "\"normalized\": false, \"special\": true}");
    }
    lathe_buffer_puts(out, "\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": ");
    put_pre_tokenizer(out, s->pattern);
    lathe_buffer_puts(out, ",\n  \"post_processor\": null,\n  \"decoder\": {\"type\": "
                           "\"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
                           "\"use_regex\": true},\n  \"model\": ");
    LATHE_TRY(put_model(out, s, vocab, merges, n_merges));
    lathe_buffer_puts(out, "\n}\n");
    return out->status;
}

/* Words to a tokenizer, by way of its JSON: what is trained is what a file would give. */
static lathe_status build(const lathe_tokenizer_training *s, const lathe_words *words,
                          lathe_vocab *vocab, lathe_tokenizer **out)
{
    int32_t byte_id[256];
    lathe_learned_merge *merges = NULL;
    int64_t n_merges = 0;
    LATHE_TRY(start_vocab(s, vocab, byte_id));
    LATHE_TRY(lathe__bpe_learn(words, byte_id, s->vocab_size, s->min_frequency, vocab, &merges,
                               &n_merges));
    lathe_buffer json = LATHE_BUFFER_INIT;
    lathe_status status = put_json(&json, s, vocab, merges, n_merges);
    free(merges);
    if (status == LATHE_OK)
        status = lathe__tokenizer_parse("trained tokenizer", json.data, json.len, out);
    if (status != LATHE_OK) {
        lathe_buffer_fini(&json);
        return status;
    }
    (*out)->eos = 0;
    status = lathe__tokenizer_seal(*out);
    if (status != LATHE_OK)
        lathe_tokenizer_destroy(*out);
    return status;
}

lathe_status lathe_tokenizer_train(const lathe_tokenizer_training *settings, lathe_text_fn next,
                                   void *arg, lathe_tokenizer **out)
{
    lathe_tokenizer_training s = *settings;
    if (!s.specials) {
        s.specials = default_specials;
        s.n_specials = 1;
    }
    if (s.min_frequency == 0)
        s.min_frequency = 2;
    if (s.n_specials < 1 || s.min_frequency < 1 || s.vocab_size < 256 + s.n_specials ||
        s.vocab_size > 1 << 24)
        return lathe_error(LATHE_E_ARG,
                           "a vocabulary of %lld with %lld special tokens, pairs from %lld on; "
                           "expected at least one special token and 256 + special tokens",
                           (long long)s.vocab_size, (long long)s.n_specials,
                           (long long)s.min_frequency);
    lathe_tokenizer *splits = calloc(1, sizeof *splits);
    if (!splits)
        return lathe_error(LATHE_E_NOMEM, "training a tokenizer");
    lathe_words words;
    lathe_vocab vocab;
    memset(&words, 0, sizeof words);
    memset(&vocab, 0, sizeof vocab);
    lathe_status status =
        lathe__split_compile(splits, "pattern", s.pattern ? s.pattern : LATHE_GPT2_PATTERN);
    if (status == LATHE_OK)
        status = lathe__words_count(&words, splits, next, arg);
    if (status == LATHE_OK)
        status = build(&s, &words, &vocab, out);
    lathe__words_fini(&words);
    lathe__vocab_fini(&vocab);
    lathe_tokenizer_destroy(splits);
    return status;
}
