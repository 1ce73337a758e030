/* Reads the tokens of a GGUF file. */
#include "files/gguf/gguf_vocab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { MAX_PIECE = 1024 }; /* bytes of a token of SentencePiece: finding its merges is quadratic */

static lathe_status refuse_text(const lathe_gguf_vocab *v, const char *key, const char *text,
                                int64_t n, const char *expected)
{
    return lathe_error(LATHE_E_UNSUPPORTED, "%s: the key %s is \"%.*s\"; Lathe converts %s",
                       lathe_gguf_path(v->file), key, (int)(n < 40 ? n : 40), text, expected);
}

static lathe_status missing(const lathe_gguf_vocab *v, const char *key)
{
    return lathe_error(LATHE_E_NOT_FOUND, "%s: the key %s is missing", lathe_gguf_path(v->file),
                       key);
}

static lathe_status read_kind(lathe_gguf_vocab *v)
{
    const char *text;
    int64_t n;
    LATHE_TRY(lathe_gguf_text(v->file, "tokenizer.ggml.model", &text, &n));
    if (text == NULL)
        return missing(v, "tokenizer.ggml.model");
    v->is_spm = n == 5 && memcmp(text, "llama", 5) == 0;
    if (v->is_spm)
        return LATHE_OK;
    if (n != 4 || memcmp(text, "gpt2", 4) != 0)
        return refuse_text(v, "tokenizer.ggml.model", text, n,
                           "gpt2 (byte-level BPE) and llama (SentencePiece)");
    LATHE_TRY(lathe_gguf_text(v->file, "tokenizer.ggml.pre", &text, &n));
    if (text == NULL)
        return missing(v, "tokenizer.ggml.pre");
    v->pre = lathe_gguf_pre_of_name(text, n);
    if (v->pre == NULL)
        return refuse_text(v, "tokenizer.ggml.pre", text, n,
                           "gpt-2, smollm, llama-bpe, dbrx, qwen2, tekken, gpt-4o and their other "
                           "names");
    return LATHE_OK;
}

/* A list with one element for each token. */
static lathe_status check_length(const lathe_gguf_vocab *v, const char *key,
                                 const lathe_gguf_entry *list)
{
    if (list == NULL || list->n == v->n)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG, "%s: %s has %lld elements for %lld tokens",
                       lathe_gguf_path(v->file), key, (long long)list->n, (long long)v->n);
}

static lathe_status read_tokens(lathe_gguf_vocab *v)
{
    const lathe_gguf_entry *list;
    LATHE_TRY(lathe_gguf_array(v->file, "tokenizer.ggml.tokens", LATHE_GGUF_TEXT, &list));
    if (list == NULL || list->n == 0)
        return missing(v, "tokenizer.ggml.tokens");
    v->n = list->n;
    v->tokens = malloc((size_t)v->n * sizeof *v->tokens);
    if (v->tokens == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory for its tokens", lathe_gguf_path(v->file));
    const uint8_t *at = list->data;
    for (int64_t i = 0; i < v->n; i++)
        v->tokens[i].text = lathe_gguf_next_text(&at, &v->tokens[i].bytes);
    LATHE_TRY(lathe_gguf_array(v->file, "tokenizer.ggml.token_type", LATHE_GGUF_I32, &v->types));
    return check_length(v, "tokenizer.ggml.token_type", v->types);
}

/* The lists of SentencePiece, or of byte-level BPE. */
static lathe_status read_lists(lathe_gguf_vocab *v)
{
    if (!v->is_spm) {
        LATHE_TRY(lathe_gguf_array(v->file, "tokenizer.ggml.merges", LATHE_GGUF_TEXT, &v->merges));
        return v->merges != NULL ? LATHE_OK : missing(v, "tokenizer.ggml.merges");
    }
    LATHE_TRY(lathe_gguf_array(v->file, "tokenizer.ggml.scores", LATHE_GGUF_FLOAT, &v->scores));
    if (v->scores == NULL)
        return missing(v, "tokenizer.ggml.scores");
    if (v->types == NULL)
        return missing(v, "tokenizer.ggml.token_type");
    LATHE_TRY(check_length(v, "tokenizer.ggml.scores", v->scores));
    for (int64_t i = 0; i < v->n; i++) {
        if (v->tokens[i].bytes > MAX_PIECE)
            return lathe_error(LATHE_E_CONFIG,
                               "%s: tokenizer.ggml.tokens: element %lld has %lld bytes; expected "
                               "at most %d",
                               lathe_gguf_path(v->file), (long long)i,
                               (long long)v->tokens[i].bytes, MAX_PIECE);
        if (!isfinite(lathe_gguf_float_at(v->scores, i)))
            return lathe_error(LATHE_E_CONFIG,
                               "%s: tokenizer.ggml.scores: element %lld is not "
                               "finite",
                               lathe_gguf_path(v->file), (long long)i);
    }
    return LATHE_OK;
}

static lathe_status read_id(const lathe_gguf *file, int64_t n, const char *key, int64_t *out)
{
    return lathe_gguf_int(file, key, 0, n - 1, -1, out);
}

lathe_status lathe_gguf_vocab_ids(const lathe_gguf *file, lathe_gguf_vocab *out)
{
    const lathe_gguf_entry *list;
    LATHE_TRY(lathe_gguf_array(file, "tokenizer.ggml.tokens", LATHE_GGUF_TEXT, &list));
    const int64_t n = list != NULL && list->n > 0 ? list->n : INT32_MAX;
    LATHE_TRY(read_id(file, n, "tokenizer.ggml.bos_token_id", &out->bos));
    LATHE_TRY(read_id(file, n, "tokenizer.ggml.eos_token_id", &out->eos));
    LATHE_TRY(read_id(file, n, "tokenizer.ggml.padding_token_id", &out->pad));
    LATHE_TRY(read_id(file, n, "tokenizer.ggml.unknown_token_id", &out->unk));
    LATHE_TRY(read_id(file, n, "tokenizer.ggml.eot_token_id", &out->eot));
    return read_id(file, n, "tokenizer.ggml.eom_token_id", &out->eom);
}

lathe_status lathe_gguf_vocab_read(const lathe_gguf *file, lathe_gguf_vocab *out)
{
    memset(out, 0, sizeof *out);
    out->file = file;
    LATHE_TRY(read_kind(out));
    LATHE_TRY(read_tokens(out));
    LATHE_TRY(read_lists(out));
    LATHE_TRY(lathe_gguf_vocab_ids(file, out));
    /* llama.cpp's defaults: SentencePiece, and BPE that ignores merges, begin with bos */
    const int32_t begins = out->is_spm || out->pre->ignore_merges;
    LATHE_TRY(lathe_gguf_bool(file, "tokenizer.ggml.add_bos_token", begins, &out->adds_bos));
    LATHE_TRY(lathe_gguf_bool(file, "tokenizer.ggml.add_eos_token", 0, &out->adds_eos));
    return lathe_gguf_bool(file, "tokenizer.ggml.add_space_prefix", out->is_spm, &out->adds_space);
}

void lathe_gguf_vocab_fini(lathe_gguf_vocab *v)
{
    free(v->tokens);
    v->tokens = NULL;
}

int32_t lathe_gguf_token_type(const lathe_gguf_vocab *v, int64_t id)
{
    return v->types != NULL ? lathe_gguf_int_at(v->types, id) : LATHE_GGUF_NORMAL;
}
