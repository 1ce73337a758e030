/* Makes tokenizer.json and the files beside it from the keys of a GGUF file. */
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/fs.h"
#include "gguf/gguf_tokenizer.h"

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

typedef struct source {
    const lathe_gguf *file;
    const lathe_gguf_entry *tokens, *types, *merges;
    const lathe_gguf_pre *pre;
    int64_t bos, eos, pad, eot;
    int32_t adds_bos, adds_eos;
} source;

static lathe_status refuse_text(const source *s, const char *key, const char *text, int64_t n,
                                const char *expected)
{
    return lathe_error(LATHE_E_UNSUPPORTED, "%s: the key %s is \"%.*s\"; Lathe converts %s",
                       lathe_gguf_path(s->file), key, (int)(n < 40 ? n : 40), text, expected);
}

static lathe_status missing(const source *s, const char *key)
{
    return lathe_error(LATHE_E_NOT_FOUND, "%s: the key %s is missing", lathe_gguf_path(s->file),
                       key);
}

static lathe_status read_kind(source *s)
{
    const char *text;
    int64_t n;
    LATHE_TRY(lathe_gguf_text(s->file, "tokenizer.ggml.model", &text, &n));
    if (text == NULL)
        return missing(s, "tokenizer.ggml.model");
    if (n != 4 || memcmp(text, "gpt2", 4) != 0)
        return refuse_text(s, "tokenizer.ggml.model", text, n, "gpt2 (byte-level BPE)");
    LATHE_TRY(lathe_gguf_text(s->file, "tokenizer.ggml.pre", &text, &n));
    if (text == NULL)
        return missing(s, "tokenizer.ggml.pre");
    s->pre = lathe_gguf_pre_of_name(text, n);
    if (s->pre == NULL)
        return refuse_text(s, "tokenizer.ggml.pre", text, n,
                           "gpt-2, smollm, llama-bpe, dbrx, qwen2, tekken, gpt-4o and their other "
                           "names");
    return LATHE_OK;
}

static lathe_status read_id(source *s, const char *key, int64_t *out)
{
    return lathe_gguf_int(s->file, key, 0, s->tokens->n - 1, -1, out);
}

static lathe_status read_source(source *s)
{
    LATHE_TRY(read_kind(s));
    LATHE_TRY(lathe_gguf_array(s->file, "tokenizer.ggml.tokens", LATHE_GGUF_TEXT, &s->tokens));
    LATHE_TRY(lathe_gguf_array(s->file, "tokenizer.ggml.token_type", LATHE_GGUF_I32, &s->types));
    LATHE_TRY(lathe_gguf_array(s->file, "tokenizer.ggml.merges", LATHE_GGUF_TEXT, &s->merges));
    if (s->tokens == NULL || s->tokens->n == 0)
        return missing(s, "tokenizer.ggml.tokens");
    if (s->merges == NULL)
        return missing(s, "tokenizer.ggml.merges");
    if (s->types != NULL && s->types->n != s->tokens->n)
        return lathe_error(
            LATHE_E_CONFIG, "%s: tokenizer.ggml.token_type has %lld elements for %lld tokens",
            lathe_gguf_path(s->file), (long long)s->types->n, (long long)s->tokens->n);
    LATHE_TRY(read_id(s, "tokenizer.ggml.bos_token_id", &s->bos));
    LATHE_TRY(read_id(s, "tokenizer.ggml.eos_token_id", &s->eos));
    LATHE_TRY(read_id(s, "tokenizer.ggml.padding_token_id", &s->pad));
    LATHE_TRY(read_id(s, "tokenizer.ggml.eot_token_id", &s->eot));
    /* llama.cpp adds bos by default where merges are ignored. */
    LATHE_TRY(lathe_gguf_bool(s->file, "tokenizer.ggml.add_bos_token", s->pre->ignore_merges,
                              &s->adds_bos));
    return lathe_gguf_bool(s->file, "tokenizer.ggml.add_eos_token", 0, &s->adds_eos);
}

static int32_t type_of(const source *s, int64_t id)
{
    return s->types != NULL ? lathe_gguf_int_at(s->types, id) : NORMAL;
}

static int is_added(int32_t type)
{
    return type == UNKNOWN || type == CONTROL || type == USER_DEFINED;
}

/* Appends the text of a token as JSON. */
static void put_token(const source *s, int64_t id, lathe_buffer *out)
{
    const uint8_t *at = s->tokens->data;
    const char *text = "";
    int64_t n = 0;
    for (int64_t i = 0; i <= id; i++)
        text = lathe_gguf_next_text(&at, &n);
    lathe_buffer_json_bytes(out, text, n);
}

static void put_added(const source *s, lathe_buffer *out)
{
    const uint8_t *at = s->tokens->data;
    const char *gap = "\n    ";
    lathe_buffer_puts(out, "  \"added_tokens\": [");
    for (int64_t id = 0; id < s->tokens->n; id++) {
        int64_t n;
        const char *text = lathe_gguf_next_text(&at, &n);
        const int32_t type = type_of(s, id);
        if (!is_added(type) || n == 0)
            continue;
        lathe_buffer_printf(out, "%s{\"id\": %lld, \"content\": ", gap, (long long)id);
        lathe_buffer_json_bytes(out, text, n);
        lathe_buffer_printf(out,
                            ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                            "\"normalized\": false, \"special\": %s}",
                            type == USER_DEFINED ? "false" : "true");
        gap = ",\n    ";
    }
    lathe_buffer_puts(out, "\n  ],\n");
}

static void put_pre(const source *s, lathe_buffer *out)
{
    static const char plain[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                "\"trim_offsets\": true, \"use_regex\": true}";
    lathe_buffer_puts(out, s->pre->nfc ? "  \"normalizer\": {\"type\": \"NFC\"},\n"
                                       : "  \"normalizer\": null,\n");
    lathe_buffer_puts(out, "  \"pre_tokenizer\": ");
    if (s->pre->digits) {
        lathe_buffer_printf(out,
                            "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "
                            "\"individual_digits\": true}, %s]}",
                            plain);
    } else if (s->pre->pattern != NULL) {
        lathe_buffer_puts(out, "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
                               "\"pattern\": {\"Regex\": ");
        lathe_buffer_json_string(out, s->pre->pattern);
        lathe_buffer_puts(out, "}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": "
                               "\"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": "
                               "true, \"use_regex\": false}]}");
    } else {
        lathe_buffer_puts(out, plain);
    }
    lathe_buffer_puts(out, ",\n");
}

static void put_special(const source *s, int64_t id, lathe_buffer *out)
{
    lathe_buffer_puts(out, "{\"SpecialToken\": {\"id\": ");
    put_token(s, id, out);
    lathe_buffer_puts(out, ", \"type_id\": 0}}");
}

/* The tokens that are put around a text. */
static void put_post(const source *s, lathe_buffer *out)
{
    const int begins = s->adds_bos && s->bos >= 0, ends = s->adds_eos && s->eos >= 0;
    lathe_buffer_puts(out, "  \"post_processor\": ");
    if (!begins && !ends) {
        lathe_buffer_puts(out, "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                               "\"trim_offsets\": false, \"use_regex\": true},\n");
        return;
    }
    lathe_buffer_puts(out, "{\"type\": \"TemplateProcessing\", \"single\": [");
    if (begins)
        put_special(s, s->bos, out);
    lathe_buffer_printf(out, "%s{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}%s",
                        begins ? ", " : "", ends ? ", " : "");
    if (ends)
        put_special(s, s->eos, out);
    lathe_buffer_puts(out, "], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
                           "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], "
                           "\"special_tokens\": {");
    const int64_t ids[2] = {s->bos, s->eos};
    const char *gap = "";
    for (int i = 0; i < 2; i++) {
        if (!(i == 0 ? begins : ends) || (i == 1 && begins && s->bos == s->eos))
            continue;
        lathe_buffer_puts(out, gap);
        put_token(s, ids[i], out);
        lathe_buffer_puts(out, ": {\"id\": ");
        put_token(s, ids[i], out);
        lathe_buffer_printf(out, ", \"ids\": [%lld], \"tokens\": [", (long long)ids[i]);
        put_token(s, ids[i], out);
        lathe_buffer_puts(out, "]}");
        gap = ", ";
    }
    lathe_buffer_puts(out, "}},\n");
}

static lathe_status put_merges(const source *s, lathe_buffer *out)
{
    const uint8_t *at = s->merges->data;
    lathe_buffer_puts(out, "    \"merges\": [");
    for (int64_t i = 0; i < s->merges->n; i++) {
        int64_t n;
        const char *text = lathe_gguf_next_text(&at, &n);
        const char *space = n > 1 ? memchr(text + 1, ' ', (size_t)n - 1) : NULL;
        if (space == NULL)
            return lathe_error(LATHE_E_CONFIG,
                               "%s: tokenizer.ggml.merges: element %lld is no two tokens with a "
                               "space between them",
                               lathe_gguf_path(s->file), (long long)i);
        lathe_buffer_puts(out, i > 0 ? ",\n      [" : "\n      [");
        lathe_buffer_json_bytes(out, text, space - text);
        lathe_buffer_puts(out, ", ");
        lathe_buffer_json_bytes(out, space + 1, n - (space + 1 - text));
        lathe_buffer_puts(out, "]");
    }
    lathe_buffer_puts(out, "\n    ]\n  }\n}\n");
    return out->status;
}

/* Added tokens are among the others, because Hugging Face's library takes their ids from here. */
static void put_vocab(const source *s, lathe_buffer *out)
{
    const uint8_t *at = s->tokens->data;
    const char *gap = "\n      ";
    lathe_buffer_printf(out,
                        "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    "
                        "\"unk_token\": null,\n    \"continuing_subword_prefix\": null,\n    "
                        "\"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n    "
                        "\"byte_fallback\": false,\n    \"ignore_merges\": %s,\n    \"vocab\": {",
                        s->pre->ignore_merges ? "true" : "false");
    for (int64_t id = 0; id < s->tokens->n; id++) {
        int64_t n;
        const char *text = lathe_gguf_next_text(&at, &n);
        if (type_of(s, id) == UNUSED || n == 0)
            continue;
        lathe_buffer_puts(out, gap);
        lathe_buffer_json_bytes(out, text, n);
        lathe_buffer_printf(out, ": %lld", (long long)id);
        gap = ",\n      ";
    }
    lathe_buffer_puts(out, "\n    },\n");
}

static lathe_status write_file(const char *folder, const char *name, const lathe_buffer *text)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, folder, name);
    lathe_status status = path != NULL ? text->status : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = lathe_file_write_atomic(path, text->data, text->len);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status write_tokenizer(const source *s, const char *folder)
{
    lathe_buffer out = LATHE_BUFFER_INIT;
    lathe_buffer_puts(&out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": "
                            "null,\n");
    put_added(s, &out);
    put_pre(s, &out);
    put_post(s, &out);
    lathe_buffer_puts(&out, "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                            "\"trim_offsets\": true, \"use_regex\": true},\n");
    put_vocab(s, &out);
    lathe_status status = put_merges(s, &out);
    if (status == LATHE_OK)
        status = write_file(folder, "tokenizer.json", &out);
    lathe_buffer_fini(&out);
    return status;
}

static lathe_status write_settings(const source *s, const char *folder)
{
    static const char *const names[] = {"bos_token", "eos_token", "pad_token"};
    const int64_t ids[] = {s->bos, s->eos, s->pad};
    lathe_buffer out = LATHE_BUFFER_INIT;
    lathe_buffer_puts(&out, "{\n");
    for (int i = 0; i < 3; i++) {
        if (ids[i] < 0)
            continue;
        lathe_buffer_printf(&out, "  \"%s\": ", names[i]);
        put_token(s, ids[i], &out);
        lathe_buffer_puts(&out, ",\n");
    }
    lathe_buffer_puts(&out, "  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n");
    const lathe_status status = write_file(folder, "tokenizer_config.json", &out);
    lathe_buffer_fini(&out);
    return status;
}

static lathe_status write_template(const source *s, const char *folder)
{
    const char *text;
    int64_t n;
    LATHE_TRY(lathe_gguf_text(s->file, "tokenizer.chat_template", &text, &n));
    if (text == NULL)
        return LATHE_OK;
    lathe_buffer out = LATHE_BUFFER_INIT;
    lathe_buffer_append(&out, text, n);
    const lathe_status status = write_file(folder, "chat_template.jinja", &out);
    lathe_buffer_fini(&out);
    return status;
}

static void set_ids(const source *s, json_t *object)
{
    if (s->bos >= 0)
        json_object_set_new(object, "bos_token_id", json_integer(s->bos));
    if (s->eos >= 0 && s->eot >= 0 && s->eot != s->eos)
        json_object_set_new(object, "eos_token_id",
                            json_pack("[I, I]", (json_int_t)s->eos, (json_int_t)s->eot));
    else if (s->eos >= 0)
        json_object_set_new(object, "eos_token_id", json_integer(s->eos));
    if (s->pad >= 0)
        json_object_set_new(object, "pad_token_id", json_integer(s->pad));
}

static lathe_status write_generation(const source *s, const char *folder)
{
    static const struct {
        const char *gguf, *folder;
    } keys[] = {{"general.sampling.temp", "temperature"},
                {"general.sampling.top_p", "top_p"},
                {"general.sampling.penalty_repeat", "repetition_penalty"}};
    json_t *object = json_object();
    lathe_status status = LATHE_OK;
    set_ids(s, object);
    for (int i = 0; i < 3 && status == LATHE_OK; i++) {
        double x;
        status = lathe_gguf_float(s->file, keys[i].gguf, -1.0, &x);
        if (status == LATHE_OK && x > 0.0) {
            json_object_set_new(object, keys[i].folder, json_real((double)(float)x));
            json_object_set_new(object, "do_sample", json_true());
        }
    }
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(7));
    lathe_buffer out = LATHE_BUFFER_INIT;
    lathe_buffer_puts(&out, text != NULL ? text : "{}");
    lathe_buffer_puts(&out, "\n");
    if (status == LATHE_OK)
        status = write_file(folder, "generation_config.json", &out);
    lathe_buffer_fini(&out);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    if (text != NULL)
        release(text);
    json_decref(object);
    return status;
}

lathe_status lathe_gguf_tokenizer_read(const lathe_gguf *file, const char *folder, json_t *config)
{
    source s = {.file = file};
    LATHE_TRY(read_source(&s));
    if (config != NULL)
        set_ids(&s, config);
    if (folder == NULL)
        return LATHE_OK;
    LATHE_TRY(write_tokenizer(&s, folder));
    LATHE_TRY(write_settings(&s, folder));
    LATHE_TRY(write_template(&s, folder));
    return write_generation(&s, folder);
}
