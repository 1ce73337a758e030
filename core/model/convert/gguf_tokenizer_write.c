/* Writes a folder's tokenizer and chat template as keys of a GGUF file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/log.h"
#include "files/gguf/gguf_file.h"
#include "files/gguf/gguf_vocab.h"
#include "files/gguf/model_files.h"
#include "model/convert/gguf_tokenizer_write.h"
#include "model/family/generation_config.h"
#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/json/token_tables.h"
#include "tokenizer/json/tokenizer_file.h"

static void put_text(lathe_gguf_writer *w, const char *key, const char *text)
{
    lathe_gguf_put_text(w, key, text, (int64_t)strlen(text));
}

/* llama.cpp takes such tokens as control tokens, whatever the tokenizer says. */
static int looks_special(const lathe_added_token *t)
{
    return t->bytes >= 4 && memcmp(t->content, "<|", 2) == 0 &&
           memcmp(t->content + t->bytes - 2, "|>", 2) == 0;
}

/* The type of an added token. llama.cpp prints the text of one that the user defined as it is, so a
 * run of U+2581 must be a normal one. */
static int32_t added_type(const lathe_added_token *t, int32_t id, int32_t unk, int is_spm)
{
    if (is_spm && id == unk)
        return LATHE_GGUF_UNKNOWN;
    if (t->special || looks_special(t))
        return LATHE_GGUF_CONTROL;
    return is_spm && t->bytes >= 3 &&
                   memmem(t->content, (size_t)t->bytes, "\342\226\201", 3) != NULL
               ? LATHE_GGUF_NORMAL
               : LATHE_GGUF_USER_DEFINED;
}

/* The text and type of every id below n. unk: the token for what SentencePiece does not know; -1:
 * none. */
static lathe_status put_tokens(const lathe_tokenizer *tok, const lathe_token_tables *t, int64_t n,
                               int is_spm, int32_t unk, lathe_gguf_writer *w)
{
    const lathe_table_token **of = calloc((size_t)n + 1, sizeof *of);
    lathe_buffer texts = LATHE_BUFFER_INIT, types = LATHE_BUFFER_INIT;
    if (of == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a vocabulary");
    for (int64_t i = 0; i < t->n_tokens; i++)
        if (t->tokens[i].id >= 0 && t->tokens[i].id < n)
            of[t->tokens[i].id] = &t->tokens[i];
    for (int32_t id = 0; id < n; id++) {
        const lathe_added_token *added = lathe__added_of(tok, id);
        int32_t type = LATHE_GGUF_NORMAL;
        char pad[32];
        if (added != NULL) {
            type = added_type(added, id, unk, is_spm);
            lathe_gguf_append_text(&texts, added->content, added->bytes);
        } else if (of[id] != NULL) {
            type = !is_spm     ? type
                   : id == unk ? LATHE_GGUF_UNKNOWN
                               : lathe__gguf_spm_type(of[id]->text, of[id]->n);
            lathe_gguf_append_text(&texts, of[id]->text, of[id]->n);
        } else {
            type = LATHE_GGUF_UNUSED;
            (void)snprintf(pad, sizeof pad, "[PAD%d]", (int)id);
            lathe_gguf_append_text(&texts, pad, (int64_t)strlen(pad));
        }
        lathe_buffer_append(&types, &type, 4);
    }
    lathe_gguf_put_array(w, "tokenizer.ggml.tokens", LATHE_GGUF_TEXT, n, &texts);
    lathe_gguf_put_array(w, "tokenizer.ggml.token_type", LATHE_GGUF_I32, n, &types);
    lathe_buffer_fini(&texts);
    lathe_buffer_fini(&types);
    free(of);
    return LATHE_OK;
}

static void put_merges(const lathe_token_tables *t, lathe_gguf_writer *w)
{
    lathe_buffer list = LATHE_BUFFER_INIT, line = LATHE_BUFFER_INIT;
    for (int64_t i = 0; i < t->n_merges; i++) {
        const lathe_table_merge *m = &t->merges[i];
        line.len = 0;
        lathe_buffer_append(&line, m->left, m->n_left);
        lathe_buffer_append(&line, " ", 1);
        lathe_buffer_append(&line, m->right, m->n_right);
        lathe_gguf_append_text(&list, line.data, line.len);
    }
    lathe_gguf_put_array(w, "tokenizer.ggml.merges", LATHE_GGUF_TEXT, t->n_merges, &list);
    lathe_buffer_fini(&list);
    lathe_buffer_fini(&line);
}

/* Refuses what llama.cpp's byte-level BPE does not do; finds the name of the way of splitting. */
static lathe_status check(const char *folder, const json_t *rest, const lathe_gguf_pre **out)
{
    const json_t *model = json_object_get(rest, "model");
    const json_t *pre = json_object_get(rest, "pre_tokenizer");
    const json_t *normalizer = json_object_get(rest, "normalizer");
    const char *type = json_string_value(json_object_get(model, "type"));
    const char *normal = json_string_value(json_object_get(normalizer, "type"));
    if (type != NULL && strcmp(type, "BPE") != 0)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s/tokenizer.json: model.type is \"%s\"; only BPE can be written as "
                           "GGUF",
                           folder, type);
    if (normalizer != NULL && !json_is_null(normalizer) &&
        (normal == NULL || strcmp(normal, "NFC") != 0))
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s/tokenizer.json: the normalizer \"%s\" cannot be written as GGUF; "
                           "expected none or NFC",
                           folder, normal != NULL ? normal : "?");
    *out = lathe_gguf_pre_of_json(pre, json_is_true(json_object_get(model, "ignore_merges")));
    if (*out != NULL)
        return LATHE_OK;
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "%s/tokenizer.json: llama.cpp has no name for this pre_tokenizer; expected "
                       "that of gpt-2, smollm, llama-bpe, dbrx, qwen2, tekken or gpt-4o",
                       folder);
}

static void put_id(lathe_gguf_writer *w, const char *key, int32_t id)
{
    if (id >= 0)
        lathe_gguf_put_u32(w, key, id);
}

/* Adds the ids that are neither `eos` nor in the list; returns the new length. */
static int32_t add_ends(const int32_t *ids, int32_t n_ids, int32_t eos, int32_t *list, int32_t n)
{
    for (int32_t i = 0; i < n_ids; i++) {
        int32_t k = 0;
        while (k < n && list[k] != ids[i])
            k++;
        if (ids[i] != eos && k == n)
            list[n++] = ids[i];
    }
    return n;
}

/* Further ends than the end of text: llama.cpp has a key for that of an answer, and one for that of
 * a message, and ends at both. */
static void put_ends(const char *folder, const lathe_generation_config *g,
                     const lathe_model_config *c, int32_t eos, lathe_gguf_writer *w)
{
    int32_t list[2 * LATHE_MAX_EOS] = {-1, -1}, n = 0; /* of both files */
    if (g->is_present)
        n = add_ends(g->eos, g->n_eos, eos, list, n);
    n = add_ends(c->eos, c->n_eos, eos, list, n);
    put_id(w, "tokenizer.ggml.eot_token_id", list[0]);
    put_id(w, "tokenizer.ggml.eom_token_id", list[1]);
    if (n > 2)
        lathe_log(LATHE_LOG_WARN,
                  "%s: generation ends at %d tokens beside the end of text, and GGUF has keys for "
                  "2: the others are lost",
                  folder, n);
}

static void put_sampling(const lathe_generation_config *g, lathe_gguf_writer *w)
{
    const struct {
        const char *key;
        double value;
        int32_t bit;
    } settings[] = {
        {"general.sampling.temp", g->temperature, LATHE_GENERATION_TEMPERATURE},
        {"general.sampling.top_p", g->top_p, LATHE_GENERATION_TOP_P},
        {"general.sampling.penalty_repeat", g->repetition_penalty,
         LATHE_GENERATION_REPETITION_PENALTY},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        const int32_t bit = settings[i].bit;
        if (g->is_present && g->do_sample && (g->written >> bit & 1u) && g->wrong[bit][0] == '\0')
            lathe_gguf_put_float(w, settings[i].key, settings[i].value);
    }
}

/* The name of a token, for messages. */
static const char *name_of(const lathe_tokenizer *tok, int32_t id, int *out_bytes)
{
    int64_t n = 0;
    const char *text = lathe_tokenizer_token(tok, id, &n);
    *out_bytes = text == NULL ? 4 : n < 60 ? (int)n : 60;
    return text == NULL ? "none" : text;
}

/* llama.cpp puts at most bos_token before a text and eos_token after it. The first token that the
 * post-processor adds becomes bos_token, whatever tokenizer_config.json names, as it is the one
 * that a text begins with; what else it adds is lost, and told. */
static void warn_of_template(const char *folder, const lathe_tokenizer *tok)
{
    int n, n_other;
    if (tok->n_prefix > 0 && tok->bos >= 0 && tok->prefix[0] != tok->bos) {
        const char *first = name_of(tok, tok->prefix[0], &n),
                   *bos = name_of(tok, tok->bos, &n_other);
        lathe_log(
            LATHE_LOG_WARN,
            "%s: a text begins with %.*s (post_processor of tokenizer.json), and bos_token is "
            "%.*s: GGUF has one of them, and the file gets the first",
            folder, n, first, n_other, bos);
    }
    if (tok->n_prefix > 1) {
        const char *second = name_of(tok, tok->prefix[1], &n);
        lathe_log(
            LATHE_LOG_WARN,
            "%s: the post_processor puts %d tokens before a text, and llama.cpp only one: %.*s "
            "and what follows it is lost",
            folder, tok->n_prefix, n, second);
    }
    if (tok->n_suffix > 1 || (tok->n_suffix == 1 && tok->suffix[0] != tok->eos)) {
        const char *last = name_of(tok, tok->suffix[0], &n);
        lathe_log(
            LATHE_LOG_WARN,
            "%s: the post_processor puts %.*s after a text, and llama.cpp only the eos_token: "
            "it is lost",
            folder, n, last);
    }
}

static lathe_status put_specials(const char *folder, const lathe_tokenizer *tok,
                                 const lathe_model_config *c, lathe_gguf_writer *w)
{
    lathe_generation_config g;
    LATHE_TRY(lathe_generation_config_load(folder, &g));
    const int32_t begins = tok->n_prefix > 0 ? tok->prefix[0] : -1;
    warn_of_template(folder, tok);
    put_id(w, "tokenizer.ggml.bos_token_id", begins >= 0 ? begins : tok->bos);
    put_id(w, "tokenizer.ggml.eos_token_id", tok->eos);
    put_id(w, "tokenizer.ggml.padding_token_id", tok->pad);
    put_ends(folder, &g, c, tok->eos, w);
    if (tok->eos < 0)
        lathe_log(LATHE_LOG_WARN, "%s names no end of text; llama.cpp will take another token",
                  folder);
    lathe_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", begins >= 0);
    lathe_gguf_put_bool(w, "tokenizer.ggml.add_eos_token",
                        tok->eos >= 0 && tok->n_suffix > 0 && tok->suffix[0] == tok->eos);
    put_sampling(&g, w);
    return LATHE_OK;
}

/* ---- chat templates, as llama.cpp's converter writes them ---- */

/* "tokenizer.chat_template" for the model's own ("default"), "tokenizer.chat_template.NAME" for a
 * further one, which "tokenizer.chat_templates" lists. */
typedef struct templates {
    lathe_gguf_writer *w;
    lathe_buffer names; /* texts of the list */
    int64_t n;
} templates;

static lathe_status put_one(templates *t, const char *name, const char *text, int64_t bytes)
{
    char key[128], clean[64];
    size_t n = 0;
    if (strcmp(name, "default") == 0) {
        lathe_gguf_put_text(t->w, "tokenizer.chat_template", text, bytes);
        return LATHE_OK;
    }
    for (; name[n] != '\0' && n + 1 < sizeof clean; n++) {
        const char c = name[n];
        const int keeps =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        clean[n] = keeps ? c : '_'; /* as the converter does */
    }
    clean[n] = '\0';
    if (name[n] != '\0' || n == 0)
        return lathe_error(LATHE_E_CONFIG,
                           "a chat template has the name \"%.80s\"; expected 1 to %zu bytes", name,
                           sizeof clean - 1);
    (void)snprintf(key, sizeof key, "tokenizer.chat_template.%s", clean);
    lathe_gguf_put_text(t->w, key, text, bytes);
    lathe_gguf_append_text(&t->names, clean, (int64_t)n);
    t->n++;
    return LATHE_OK;
}

/* chat_template.jinja and the files of additional_chat_templates. */
static lathe_status put_files(templates *t, const char *folder, lathe_arena *arena)
{
    char **names = NULL, *text = NULL;
    int64_t n_names = 0, n = 0;
    LATHE_TRY(lathe_model_read(folder, "chat_template.jinja", 1 << 24, &text, &n));
    lathe_status status = put_one(t, "default", text, n);
    free(text);
    LATHE_TRY(status);
    LATHE_TRY(lathe_model_templates(folder, arena, &names, &n_names));
    for (int64_t i = 0; i < n_names; i++) {
        const char *file = lathe_model_template_file(arena, names[i]);
        if (file == NULL)
            return LATHE_E_NOMEM;
        LATHE_TRY(lathe_model_read(folder, file, 1 << 24, &text, &n));
        status = put_one(t, names[i], text, n);
        free(text);
        LATHE_TRY(status);
    }
    return LATHE_OK;
}

/* chat_template of tokenizer_config.json: a text, or a list of names and texts. */
static lathe_status put_settings(templates *t, const json_t *found)
{
    size_t i;
    json_t *one;
    if (json_is_string(found))
        return put_one(t, "default", json_string_value(found), (int64_t)json_string_length(found));
    json_array_foreach((json_t *)(uintptr_t)found, i, one)
    {
        const json_t *name = json_object_get(one, "name"), *text = json_object_get(one, "template");
        if (json_is_string(name) && json_is_string(text))
            LATHE_TRY(put_one(t, json_string_value(name), json_string_value(text),
                              (int64_t)json_string_length(text)));
    }
    return LATHE_OK;
}

static lathe_status put_template(const char *folder, lathe_arena *arena, lathe_gguf_writer *w)
{
    templates t = {.w = w, .names = LATHE_BUFFER_INIT};
    json_t *config = NULL;
    lathe_status status = LATHE_OK;
    if (lathe_model_has(folder, "chat_template.jinja"))
        status = put_files(&t, folder, arena);
    else if (lathe_model_has(folder, "tokenizer_config.json"))
        status = lathe_model_json(folder, "tokenizer_config.json", &config);
    if (status == LATHE_OK && config != NULL)
        status = put_settings(&t, json_object_get(config, "chat_template"));
    if (status == LATHE_OK && t.n > 0)
        lathe_gguf_put_array(w, "tokenizer.chat_templates", LATHE_GGUF_TEXT, t.n, &t.names);
    json_decref(config);
    lathe_buffer_fini(&t.names);
    return status;
}

static lathe_status check_vocab(const char *folder, const lathe_tokenizer *tok, int64_t n)
{
    if (tok->vocab.n <= n)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s: vocab_size is %lld, but the tokenizer has ids up to %lld", folder,
                       (long long)n, (long long)(tok->vocab.n - 1));
}

/* The keys of a SentencePiece tokenizer, GGUF's "llama". */
static lathe_status put_spm(const char *folder, const json_t *rest, const lathe_tokenizer *tok,
                            const lathe_token_tables *t, int64_t n, lathe_gguf_writer *w)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(rest, "model"), "unk_token"));
    const int32_t unk = name != NULL ? lathe_tokenizer_id(tok, name, (int64_t)strlen(name)) : -1;
    lathe_buffer list = LATHE_BUFFER_INIT;
    int32_t space_prefix = 0;
    LATHE_TRY(check_vocab(folder, tok, n));
    float *scores = malloc((size_t)(n + 1) * sizeof *scores);
    lathe_status status =
        scores != NULL ? lathe__gguf_spm_scores(folder, rest, t, tok, n, scores, &space_prefix)
                       : lathe_error(LATHE_E_NOMEM, "no memory for scores");
    if (status == LATHE_OK) {
        lathe_buffer_append(&list, scores, n * (int64_t)sizeof *scores);
        put_text(w, "tokenizer.ggml.model", "llama");
        put_text(w, "tokenizer.ggml.pre", "default");
        lathe_gguf_put_array(w, "tokenizer.ggml.scores", LATHE_GGUF_FLOAT, n, &list);
        put_id(w, "tokenizer.ggml.unknown_token_id", unk);
        lathe_gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", space_prefix);
        status = put_tokens(tok, t, n, 1, unk, w);
    }
    lathe_buffer_fini(&list);
    free(scores);
    return status;
}

static lathe_status put_bpe(const char *folder, const json_t *rest, const lathe_tokenizer *tok,
                            const lathe_token_tables *t, int64_t n, lathe_gguf_writer *w)
{
    const lathe_gguf_pre *pre = NULL;
    LATHE_TRY(check(folder, rest, &pre));
    LATHE_TRY(check_vocab(folder, tok, n));
    put_text(w, "tokenizer.ggml.model", "gpt2");
    put_text(w, "tokenizer.ggml.pre", pre->name);
    LATHE_TRY(put_tokens(tok, t, n, 0, -1, w));
    put_merges(t, w);
    return LATHE_OK;
}

static lathe_status write_all(const char *folder, const lathe_model_config *c,
                              const lathe_tokenizer *tok, lathe_token_tables *t, lathe_arena *arena,
                              lathe_gguf_writer *w)
{
    json_t *rest = NULL;
    if (tok->json == NULL || !lathe__token_tables_read(tok->json, tok->json_bytes, t))
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s/tokenizer.json: has no usual tables of BPE (model.vocab and "
                           "model.merges), so it cannot be written as GGUF",
                           folder);
    LATHE_TRY(lathe_json_load(folder, t->rest, t->rest_bytes, &rest));
    const lathe_status status = lathe__gguf_is_spm(rest)
                                    ? put_spm(folder, rest, tok, t, c->vocab, w)
                                    : put_bpe(folder, rest, tok, t, c->vocab, w);
    json_decref(rest);
    LATHE_TRY(status);
    LATHE_TRY(put_specials(folder, tok, c, w));
    return put_template(folder, arena, w);
}

lathe_status lathe_gguf_tokenizer_write(const char *folder, const lathe_model_config *config,
                                        lathe_gguf_writer *w)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_token_tables tables = {0};
    lathe_tokenizer *tok = NULL;
    lathe_status status = LATHE_OK;
    if (!lathe_model_has(folder, "tokenizer.json") &&
        (status = lathe_tokenizer_missing(folder)) != LATHE_OK)
        goto out;
    if ((status = lathe_tokenizer_load(folder, &tok)) != LATHE_OK)
        goto out;
    status = write_all(folder, config, tok, &tables, &arena, w);
out:
    lathe__token_tables_fini(&tables);
    lathe_tokenizer_destroy(tok);
    lathe_arena_fini(&arena);
    return status;
}
