/* Makes tokenizer.json and tokenizer_config.json from the tokens of a GGUF file. */
#include <string.h>

#include "base/error.h"
#include "files/gguf/gguf_tokenizer.h"

static int is_added(int32_t type)
{
    return type == LATHE_GGUF_UNKNOWN || type == LATHE_GGUF_CONTROL ||
           type == LATHE_GGUF_USER_DEFINED;
}

/* Appends the text of a token as JSON. */
static void put_token(const lathe_gguf_vocab *v, int64_t id, lathe_buffer *out)
{
    lathe_buffer_json_bytes(out, v->tokens[id].text, v->tokens[id].bytes);
}

static void put_added(const lathe_gguf_vocab *v, lathe_buffer *out)
{
    const char *gap = "\n    ";
    lathe_buffer_puts(out, "  \"added_tokens\": [");
    for (int64_t id = 0; id < v->n; id++) {
        const int32_t type = lathe_gguf_token_type(v, id);
        if (!is_added(type) || v->tokens[id].bytes == 0)
            continue;
        lathe_buffer_printf(out, "%s{\"id\": %lld, \"content\": ", gap, (long long)id);
        put_token(v, id, out);
        lathe_buffer_printf(out,
                            ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                            "\"normalized\": false, \"special\": %s}",
                            type == LATHE_GGUF_USER_DEFINED ? "false" : "true");
        gap = ",\n    ";
    }
    lathe_buffer_puts(out, "\n  ],\n");
}

static void put_pre(const lathe_gguf_vocab *v, lathe_buffer *out)
{
    static const char plain[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                "\"trim_offsets\": true, \"use_regex\": true}";
    lathe_buffer_puts(out, v->pre->nfc ? "  \"normalizer\": {\"type\": \"NFC\"},\n"
                                       : "  \"normalizer\": null,\n");
    lathe_buffer_puts(out, "  \"pre_tokenizer\": ");
    if (v->pre->digits) {
        lathe_buffer_printf(out,
                            "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "
                            "\"individual_digits\": true}, %s]}",
                            plain);
    } else if (v->pre->pattern != NULL) {
        lathe_buffer_puts(out, "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
                               "\"pattern\": {\"Regex\": ");
        lathe_buffer_json_string(out, v->pre->pattern);
        lathe_buffer_puts(out, "}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": "
                               "\"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": "
                               "true, \"use_regex\": false}]}");
    } else {
        lathe_buffer_puts(out, plain);
    }
    lathe_buffer_puts(out, ",\n");
}

/* SentencePiece writes a space as U+2581, and puts one before a text. */
static void put_spm_steps(const lathe_gguf_vocab *v, lathe_buffer *out)
{
    static const char replace[] =
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\342\226\201\"}";
    if (v->adds_space)
        lathe_buffer_printf(out,
                            "  \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": "
                            "[{\"type\": \"Prepend\", \"prepend\": \"\342\226\201\"}, %s]},\n",
                            replace);
    else
        lathe_buffer_printf(out, "  \"normalizer\": %s,\n", replace);
    lathe_buffer_puts(out, "  \"pre_tokenizer\": null,\n");
}

static void put_decoder(const lathe_gguf_vocab *v, lathe_buffer *out)
{
    if (!v->is_spm) {
        lathe_buffer_puts(out,
                          "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                          "\"trim_offsets\": true, \"use_regex\": true},\n");
        return;
    }
    lathe_buffer_puts(out, "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": "
                           "\"Replace\", \"pattern\": {\"String\": \"\342\226\201\"}, \"content\": "
                           "\" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}");
    if (v->adds_space)
        lathe_buffer_puts(out, ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, "
                               "\"stop\": 0}");
    lathe_buffer_puts(out, "]},\n");
}

static void put_special(const lathe_gguf_vocab *v, int64_t id, lathe_buffer *out)
{
    lathe_buffer_puts(out, "{\"SpecialToken\": {\"id\": ");
    put_token(v, id, out);
    lathe_buffer_puts(out, ", \"type_id\": 0}}");
}

/* The tokens that are put around a text. */
static void put_post(const lathe_gguf_vocab *v, lathe_buffer *out)
{
    const int begins = v->adds_bos && v->bos >= 0, ends = v->adds_eos && v->eos >= 0;
    lathe_buffer_puts(out, "  \"post_processor\": ");
    if (!begins && !ends && v->is_spm) {
        lathe_buffer_puts(out, "null,\n");
        return;
    }
    if (!begins && !ends) {
        lathe_buffer_puts(out, "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                               "\"trim_offsets\": false, \"use_regex\": true},\n");
        return;
    }
    lathe_buffer_puts(out, "{\"type\": \"TemplateProcessing\", \"single\": [");
    if (begins)
        put_special(v, v->bos, out);
    lathe_buffer_printf(out, "%s{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}%s",
                        begins ? ", " : "", ends ? ", " : "");
    if (ends)
        put_special(v, v->eos, out);
    lathe_buffer_puts(out, "], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
                           "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], "
                           "\"special_tokens\": {");
    const int64_t ids[2] = {v->bos, v->eos};
    const char *gap = "";
    for (int i = 0; i < 2; i++) {
        if (!(i == 0 ? begins : ends) || (i == 1 && begins && v->bos == v->eos))
            continue;
        lathe_buffer_puts(out, gap);
        put_token(v, ids[i], out);
        lathe_buffer_puts(out, ": {\"id\": ");
        put_token(v, ids[i], out);
        lathe_buffer_printf(out, ", \"ids\": [%lld], \"tokens\": [", (long long)ids[i]);
        put_token(v, ids[i], out);
        lathe_buffer_puts(out, "]}");
        gap = ", ";
    }
    lathe_buffer_puts(out, "}},\n");
}

static lathe_status put_merges(const lathe_gguf_vocab *v, lathe_buffer *out)
{
    const uint8_t *at = v->merges->data;
    lathe_buffer_puts(out, "    \"merges\": [");
    for (int64_t i = 0; i < v->merges->n; i++) {
        int64_t n;
        const char *text = lathe_gguf_next_text(&at, &n);
        const char *space = n > 1 ? memchr(text + 1, ' ', (size_t)n - 1) : NULL;
        if (space == NULL)
            return lathe_error(LATHE_E_CONFIG,
                               "%s: tokenizer.ggml.merges: element %lld is no two tokens with a "
                               "space between them",
                               lathe_gguf_path(v->file), (long long)i);
        lathe_buffer_puts(out, i > 0 ? ",\n      [" : "\n      [");
        lathe_buffer_json_bytes(out, text, space - text);
        lathe_buffer_puts(out, ", ");
        lathe_buffer_json_bytes(out, space + 1, n - (space + 1 - text));
        lathe_buffer_puts(out, "]");
    }
    return out->status;
}

/* The token of SentencePiece for what it does not know; with byte tokens it stands for nothing. */
static int64_t unknown(const lathe_gguf_vocab *v)
{
    for (int64_t id = 0; id < v->n && v->unk < 0; id++)
        if (lathe_gguf_token_type(v, id) == LATHE_GGUF_UNKNOWN)
            return id;
    return v->unk;
}

/* Added tokens are among the others, because Hugging Face's library takes their ids from here. */
static void put_vocab(const lathe_gguf_vocab *v, lathe_buffer *out)
{
    const char *gap = "\n      ";
    const char *flag = v->is_spm ? "true" : "false";
    lathe_buffer_puts(out, "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    "
                           "\"unk_token\": ");
    if (v->is_spm && unknown(v) >= 0)
        put_token(v, unknown(v), out);
    else
        lathe_buffer_puts(out, "null");
    lathe_buffer_printf(out,
                        ",\n    \"continuing_subword_prefix\": null,\n    "
                        "\"end_of_word_suffix\": null,\n    \"fuse_unk\": %s,\n    "
                        "\"byte_fallback\": %s,\n    \"ignore_merges\": %s,\n    \"vocab\": {",
                        flag, flag, v->pre != NULL && v->pre->ignore_merges ? "true" : "false");
    for (int64_t id = 0; id < v->n; id++) {
        if (lathe_gguf_token_type(v, id) == LATHE_GGUF_UNUSED || v->tokens[id].bytes == 0)
            continue;
        lathe_buffer_puts(out, gap);
        put_token(v, id, out);
        lathe_buffer_printf(out, ": %lld", (long long)id);
        gap = ",\n      ";
    }
    lathe_buffer_puts(out, "\n    },\n");
}

lathe_status lathe_gguf_tokenizer_json(const lathe_gguf_vocab *v, lathe_buffer *out)
{
    lathe_buffer_puts(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": "
                           "null,\n");
    put_added(v, out);
    if (v->is_spm)
        put_spm_steps(v, out);
    else
        put_pre(v, out);
    put_post(v, out);
    put_decoder(v, out);
    put_vocab(v, out);
    LATHE_TRY(v->is_spm ? lathe__gguf_spm_merges(v, out) : put_merges(v, out));
    lathe_buffer_puts(out, "\n    ]\n  }\n}\n");
    return out->status;
}

lathe_status lathe_gguf_tokenizer_config(const lathe_gguf_vocab *v, lathe_buffer *out)
{
    static const char *const names[] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    const int64_t ids[] = {v->bos, v->eos, v->pad, v->is_spm ? unknown(v) : -1};
    lathe_buffer_puts(out, "{\n");
    for (int i = 0; i < 4; i++) {
        if (ids[i] < 0)
            continue;
        lathe_buffer_printf(out, "  \"%s\": ", names[i]);
        put_token(v, ids[i], out);
        lathe_buffer_puts(out, ",\n");
    }
    lathe_buffer_puts(out, "  \"clean_up_tokenization_spaces\": false,\n"
                           "  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n");
    return out->status;
}
