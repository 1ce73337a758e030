/* Adds tokens to the files of a tokenizer. */
#include "tokenizer/json/token_growth.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/json/json_cut.h"
#include "base/utf8.h"
#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/json/tokenizer_json.h"

/* ---- ids ---- */

static lathe_status check_tokens(const lathe_token_growth *g)
{
    for (int32_t i = 0; i < g->n; i++) {
        const int64_t n = (int64_t)strlen(g->tokens[i]);
        if (n == 0 || lathe_utf8_prefix((const uint8_t *)g->tokens[i], n) != n)
            return lathe_error(LATHE_E_ARG, "token %d is empty or not UTF-8", i + 1);
        for (int32_t k = 0; k < i; k++)
            if (strcmp(g->tokens[i], g->tokens[k]) == 0)
                return lathe_error(LATHE_E_ARG, "token \"%s\" is named twice", g->tokens[i]);
    }
    return LATHE_OK;
}

/* The id of a token that the tokenizer has under this text, -1: none. The vocabulary of the short
 * route is kept as bytes, and in the file " the" is written otherwise: such a text is none of its
 * tokens there. */
static int32_t known_id(const lathe_tokenizer *tok, const char *text, int64_t n)
{
    const int32_t id = lathe_tokenizer_id(tok, text, n);
    if (id < 0 || lathe_tokenizer_is_added(tok, id) || tok->kind != LATHE_TOKENIZER_BPE)
        return id;
    for (int64_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] >= 0x7f)
            return -1;
    return id;
}

lathe_status lathe_tokens_number(const lathe_tokenizer *tok, const lathe_token_growth *g,
                                 lathe_arena *arena, lathe_numbered_tokens *out)
{
    LATHE_TRY(check_tokens(g));
    *out = (lathe_numbered_tokens){.n_before = lathe_tokenizer_vocab_size(tok)};
    out->ids = lathe_arena_alloc(arena, (g->n + 1) * (int64_t)sizeof *out->ids);
    out->is_new = lathe_arena_alloc(arena, g->n + 1);
    if (out->ids == NULL || out->is_new == NULL)
        return lathe_error(LATHE_E_NOMEM, "new tokens");
    out->n_after = out->n_before;
    for (int32_t i = 0; i < g->n; i++) {
        const int32_t known = known_id(tok, g->tokens[i], (int64_t)strlen(g->tokens[i]));
        out->is_new[i] = known < 0 || !lathe_tokenizer_is_added(tok, known);
        out->ids[i] = known >= 0 ? known : (int32_t)out->n_after++;
        out->n_added += out->is_new[i];
        out->n_known += !out->is_new[i];
    }
    return LATHE_OK;
}

/* ---- files ---- */

typedef struct writing {
    const lathe_tokenizer *tok;
    const lathe_token_growth *growth;
    const lathe_numbered_tokens *numbers;
} writing;

static json_t *describe(const writing *w, int32_t i, int with_id)
{
    const int plain = w->growth->are_plain;
    json_t *one =
        json_pack("{s:s, s:b, s:b, s:b, s:b, s:b}", "content", w->growth->tokens[i], "single_word",
                  0, "lstrip", 0, "rstrip", 0, "normalized", plain, "special", !plain);
    if (with_id && json_object_set_new(one, "id", json_integer(w->numbers->ids[i])) != 0) {
        json_decref(one);
        return NULL;
    }
    return one;
}

static int by_id(const void *a, const void *b)
{
    const json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "id"));
    const json_int_t y = json_integer_value(json_object_get(*(json_t *const *)b, "id"));
    return x < y ? -1 : x > y;
}

/* Puts the tokens that only the files beside tokenizer.json name, at all[*n] and on. They have the
 * next free ids at each load, so without their ids in tokenizer.json the new tokens would get
 * these. Returns 1 without memory. */
static int put_beside(const writing *w, json_t **all, size_t *n)
{
    const json_t *beside = lathe_tokenizer_beside(w->tok);
    int failed = 0;
    for (size_t i = 0; i < json_array_size(beside) && !failed; i++) {
        const json_t *entry = json_array_get(beside, i);
        if (!json_is_true(json_object_get(entry, "is_new")))
            continue;
        all[*n] = json_deep_copy(entry);
        failed = all[*n] == NULL;
        (void)json_object_del(all[*n], "is_new");
        *n += !failed;
    }
    return failed;
}

/* added_tokens of the tree with the new ones, by id, as JSON text. */
static lathe_status list_added(const writing *w, const json_t *tree, lathe_buffer *out)
{
    const json_t *old = json_object_get(tree, "added_tokens");
    const size_t n_old = json_array_size(old),
                 n_beside = json_array_size(lathe_tokenizer_beside(w->tok));
    json_t **all = calloc(n_old + n_beside + (size_t)w->growth->n + 1, sizeof *all);
    size_t n = 0;
    int failed = all == NULL;
    for (size_t i = 0; i < n_old && !failed; i++)
        all[n++] = json_incref(json_array_get(old, i));
    failed = failed || put_beside(w, all, &n);
    for (int32_t i = 0; i < w->growth->n && !failed; i++) {
        if (!w->numbers->is_new[i])
            continue;
        all[n] = describe(w, i, 1);
        failed = all[n] == NULL;
        n += !failed;
    }
    if (!failed && n > 1)
        qsort(all, n, sizeof *all, by_id);
    for (size_t i = 0; i < n; i++) {
        char *text = failed ? NULL : json_dumps(all[i], JSON_COMPACT);
        lathe_buffer_printf(out, "%s\n    %s", i > 0 ? "," : "", text ? text : "");
        failed = failed || text == NULL;
        free(text);
        json_decref(all[i]);
    }
    free(all);
    return failed ? lathe_error(LATHE_E_NOMEM, "new tokens") : out->status;
}

/* Puts "added_tokens" first and leaves all other bytes as they are. */
static lathe_status write_tokenizer(const writing *w, const char *path)
{
    char *text = NULL;
    json_t *tree = NULL;
    lathe_buffer out = LATHE_BUFFER_INIT;
    int64_t n = 0, n_merges = 0, from = 0, end = 0;
    LATHE_TRY(lathe_file_read(path, 0, &text, &n));
    lathe_status status = lathe__tokenizer_tree("tokenizer.json", text, n, &tree, &n_merges);
    if (status != LATHE_OK)
        goto out;
    const char *brace = memchr(text, '{', (size_t)n); /* it was read, so it is an object */
    if (!lathe_json_cut(text, n, "added_tokens", &from, &end))
        from = end = brace - text + 1;
    lathe_buffer_puts(&out, "{\n  \"added_tokens\": [");
    if ((status = list_added(w, tree, &out)) != LATHE_OK)
        goto out;
    lathe_buffer_puts(&out, "\n  ],");
    lathe_buffer_append(&out, brace + 1, from - (brace - text + 1));
    lathe_buffer_append(&out, text + end, n - end);
    status = out.status != LATHE_OK ? out.status : lathe_file_write_atomic(path, out.data, out.len);
out:
    json_decref(tree);
    free(text);
    lathe_buffer_fini(&out);
    return status;
}

/* transformers takes the added tokens of tokenizer_config.json where it lists them by id. */
static lathe_status write_decoder(const writing *w, const char *path)
{
    json_t *config = NULL;
    if (!lathe_path_exists(path))
        return LATHE_OK;
    LATHE_TRY(lathe_json_load_file(path, &config));
    json_t *decoder = json_object_get(config, "added_tokens_decoder");
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; json_is_object(decoder) && i < w->growth->n && status == LATHE_OK; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "%d", w->numbers->ids[i]);
        if (w->numbers->is_new[i] && json_object_set_new(decoder, id, describe(w, i, 0)) != 0)
            status = lathe_error(LATHE_E_NOMEM, "new tokens");
    }
    char *text = status == LATHE_OK ? json_dumps(config, JSON_INDENT(2)) : NULL;
    if (text != NULL)
        status = lathe_file_write_atomic(path, text, (int64_t)strlen(text));
    else if (status == LATHE_OK)
        status = lathe_error(LATHE_E_NOMEM, "tokenizer_config.json");
    free(text);
    json_decref(config);
    return status;
}

lathe_status lathe_tokens_write(const lathe_tokenizer *tok, const lathe_token_growth *growth,
                                const lathe_numbered_tokens *numbers, const char *folder)
{
    const writing w = {tok, growth, numbers};
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *config = lathe_path_join(&arena, folder, "tokenizer_config.json");
    const char *json = lathe_path_join(&arena, folder, "tokenizer.json");
    lathe_status status = config && json ? LATHE_OK : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = write_decoder(&w, config);
    if (status == LATHE_OK)
        status = write_tokenizer(&w, json);
    lathe_arena_fini(&arena);
    return status;
}
