/* Writes the tokenizer.json of a trained tokenizer. */
#include "tokenizer/train/train_json.h"

#include <stdlib.h>

#include "base/byte_level.h"
#include "base/error.h"

static const char byte_decoder[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                                   "\"trim_offsets\": true, \"use_regex\": true}";
/* The decoder of Llama 2. */
static const char metaspace_decoder[] =
    "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
    "\"" LATHE_METASPACE
    "\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, "
    "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}";

static void put_pre_tokenizer(lathe_buffer *out, const lathe_tokenizer_training *s)
{
    if (s->kind == LATHE_TRAIN_METASPACE) {
        lathe_buffer_puts(out, "{\"type\": \"Metaspace\", \"replacement\": \"" LATHE_METASPACE
                               "\", \"prepend_scheme\": \"always\", \"split\": true}");
        return;
    }
    if (s->pattern == NULL) {
        lathe_buffer_puts(out, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                               "\"trim_offsets\": true, \"use_regex\": true}");
        return;
    }
    lathe_buffer_puts(out, "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
                           "\"pattern\": {\"Regex\": ");
    lathe_buffer_json_string(out, s->pattern);
    lathe_buffer_puts(out, "}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": "
                           "\"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                           "\"use_regex\": false}]}");
}

/* Writes a token: for METASPACE its text, else a character for each byte. */
static lathe_status put_token(lathe_buffer *out, const lathe_tokenizer_training *s,
                              const lathe_vocab *vocab, int32_t id)
{
    const int64_t n = vocab->len[id];
    if (s->kind == LATHE_TRAIN_METASPACE || id < s->n_specials) {
        lathe_buffer_json_string(
            out, id < s->n_specials ? s->specials[id] : (const char *)vocab->pool + vocab->at[id]);
        return out->status;
    }
    uint8_t *text = malloc((size_t)n * 2 + 1);
    if (text == NULL)
        return lathe_error(LATHE_E_NOMEM, "tokenizer.json");
    *lathe_chars_of_bytes(vocab->pool + vocab->at[id], n, text) = 0;
    lathe_buffer_json_string(out, (const char *)text);
    free(text);
    return LATHE_OK;
}

static lathe_status put_model(lathe_buffer *out, const lathe_tokenizer_training *s,
                              const lathe_vocab *vocab, const lathe_learned_merge *merges,
                              int64_t n_merges)
{
    const int chars = s->kind == LATHE_TRAIN_METASPACE;
    lathe_buffer_puts(out,
                      "{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": ");
    if (chars)
        lathe_buffer_json_string(out, s->specials[0]);
    else
        lathe_buffer_puts(out, "null");
    lathe_buffer_printf(out,
                        ",\n    \"continuing_subword_prefix\": null,\n    "
                        "\"end_of_word_suffix\": null,\n    \"fuse_unk\": %s,\n    "
                        "\"byte_fallback\": %s,\n    \"ignore_merges\": false,\n    "
                        "\"vocab\": {",
                        chars ? "true" : "false", chars && s->byte_fallback ? "true" : "false");
    for (int32_t id = 0; id < vocab->n; id++) {
        lathe_buffer_puts(out, id ? ",\n      " : "\n      ");
        LATHE_TRY(put_token(out, s, vocab, id));
        lathe_buffer_printf(out, ": %d", id);
    }
    lathe_buffer_puts(out, "\n    },\n    \"merges\": [");
    for (int64_t i = 0; i < n_merges; i++) {
        lathe_buffer_puts(out, i ? ",\n      [" : "\n      [");
        LATHE_TRY(put_token(out, s, vocab, merges[i].left));
        lathe_buffer_puts(out, ", ");
        LATHE_TRY(put_token(out, s, vocab, merges[i].right));
        lathe_buffer_puts(out, "]");
    }
    lathe_buffer_puts(out, "\n    ]\n  }");
    return LATHE_OK;
}

lathe_status lathe__train_json(lathe_buffer *out, const lathe_tokenizer_training *s,
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
    put_pre_tokenizer(out, s);
    lathe_buffer_puts(out, ",\n  \"post_processor\": null,\n  \"decoder\": ");
    lathe_buffer_puts(out, s->kind == LATHE_TRAIN_METASPACE ? metaspace_decoder : byte_decoder);
    lathe_buffer_puts(out, ",\n  \"model\": ");
    LATHE_TRY(put_model(out, s, vocab, merges, n_merges));
    lathe_buffer_puts(out, "\n}\n");
    return out->status;
}
