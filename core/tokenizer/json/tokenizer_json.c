/* Makes a tokenizer from tokenizer.json: the root, the added tokens, and the choice of the route
 * that text takes. */
#include "tokenizer/json/tokenizer_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json_record.h"
#include "tokenizer/encode/splitter.h"
#include "tokenizer/json/token_tables.h"
#include "tokenizer/json/tokenizer_json_members.h"
#include "tokenizer/json/tokenizer_json_model.h"
#include "tokenizer/json/tokenizer_json_post.h"
#include "tokenizer/json/tokenizer_json_steps.h"
#include "tokenizer/json/tokenizer_json_vocab.h"
#include "tokenizer/unicode/normal_form.h"

/* ---- added_tokens ---- */

static lathe_status read_one_added(lathe_tokenizer *tok, const char *place, const json_t *entry)
{
    if (!json_is_object(entry))
        return lathe__tj_expected(place, "", entry, "an object");
    const json_t *id = json_object_get(entry, "id"), *content = json_object_get(entry, "content");
    if (!json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= LATHE_MAX_ID)
        return lathe__tj_expected(place, "id", id, "an id from 0 to 2^24 - 1");
    if (!json_is_string(content))
        return lathe__tj_expected(place, "content", content, "a string");
    const int64_t bytes = (int64_t)json_string_length(content);
    if (!bytes)
        return LATHE_OK;
    lathe_added_token *added = &tok->added[tok->n_added];
    int32_t flags[5];
    static const char *const keys[5] = {"special", "normalized", "lstrip", "rstrip", "single_word"};
    for (int i = 0; i < 5; i++)
        LATHE_TRY(lathe__tj_flag(place, entry, keys[i], i == 1 ? !flags[0] : 0, &flags[i]));
    added->special = (int8_t)flags[0];
    added->normalized = (int8_t)flags[1];
    added->lstrip = (int8_t)flags[2];
    added->rstrip = (int8_t)flags[3];
    added->single_word = (int8_t)flags[4];
    added->id = (int32_t)json_integer_value(id);
    added->content = lathe__tj_copy_text(json_string_value(content), json_string_length(content));
    added->bytes = bytes;
    if (added->content == NULL)
        return lathe_error(LATHE_E_NOMEM, "added tokens");
    tok->n_added++;
    const lathe_status status = lathe__vocab_put(&tok->vocab, added->id, added->content, bytes, 0);
    return status == LATHE_OK ? LATHE_OK : lathe_error_context(status, "%s", place);
}

static lathe_status read_added(lathe_tokenizer *tok, const char *file, const json_t *list)
{
    if (list == NULL || json_is_null(list))
        return LATHE_OK;
    if (!json_is_array(list))
        return lathe_error(LATHE_E_PARSE, "%s: added_tokens: expected a list", file);
    tok->added = calloc(json_array_size(list) + 1, sizeof *tok->added);
    if (tok->added == NULL)
        return lathe_error(LATHE_E_NOMEM, "added tokens");
    for (size_t i = 0; i < json_array_size(list); i++) {
        char place[LATHE_PLACE];
        snprintf(place, sizeof place, "%s: added_tokens[%zu]", file, i);
        LATHE_TRY(read_one_added(tok, place, json_array_get(list, i)));
    }
    return LATHE_OK;
}

/* ---- tokens of the files beside tokenizer.json ---- */

static lathe_added_token *added_with(lathe_tokenizer *tok, const char *text, int64_t n)
{
    for (int64_t i = 0; i < tok->n_added; i++)
        if (tok->added[i].bytes == n && memcmp(tok->added[i].content, text, (size_t)n) == 0)
            return &tok->added[i];
    return NULL;
}

static int has_added_id(const lathe_tokenizer *tok, int64_t id, int64_t n_own)
{
    for (int64_t i = 0; i < n_own; i++)
        if (tok->added[i].id == id)
            return 1;
    return 0;
}

/* The id of a new token, as in the tokenizers library: after the model's tokens and all added ones.
 */
static int64_t next_id(const lathe_tokenizer *tok, int64_t n_model)
{
    int64_t id = n_model;
    for (int64_t i = 0; i < tok->n_added; i++)
        id = tok->added[i].id >= id ? tok->added[i].id + 1 : id;
    return id;
}

/* Notes a token that is new or has other flags than in tokenizer.json. */
static lathe_status note_beside(lathe_tokenizer *tok, const json_t *entry, int32_t id, int is_new)
{
    json_t *one = json_deep_copy(entry);
    int failed = one == NULL || (tok->beside == NULL && (tok->beside = json_array()) == NULL);
    (void)json_object_del(one, "if_missing");
    failed = failed || json_object_set_new(one, "id", json_integer(id)) != 0 ||
             json_object_set_new(one, "is_new", json_boolean(is_new)) != 0;
    if (!failed && json_array_append_new(tok->beside, one) == 0)
        return LATHE_OK;
    json_decref(one);
    return lathe_error(LATHE_E_NOMEM, "added tokens");
}

static lathe_status add_beside(lathe_tokenizer *tok, const json_t *entry, int64_t n_model,
                               int64_t n_own)
{
    const json_t *content = json_object_get(entry, "content"), *own = json_object_get(entry, "id");
    const char *text = json_string_value(content);
    const int64_t n = (int64_t)json_string_length(content);
    lathe_added_token *added = added_with(tok, text, n), was = {0};
    if (own && has_added_id(tok, json_integer_value(own), n_own))
        return LATHE_OK; /* tokenizer.json has the id in another use */
    const int is_new = added == NULL;
    if (added && json_object_get(entry, "if_missing"))
        return LATHE_OK;
    if (is_new) {
        int64_t id = lathe__vocab_find(&tok->vocab, text, n);
        const int32_t is_unused = id < 0;
        id = is_unused ? next_id(tok, n_model) : id;
        if (id >= LATHE_MAX_ID)
            return lathe_error(LATHE_E_PARSE, "more than 2^24 tokens");
        added = &tok->added[tok->n_added];
        *added = (lathe_added_token){
            .content = lathe__tj_copy_text(text, (size_t)n), .bytes = n, .id = (int32_t)id};
        if (added->content == NULL)
            return lathe_error(LATHE_E_NOMEM, "added tokens");
        tok->n_added++;
        if (is_unused)
            LATHE_TRY(lathe__vocab_put(&tok->vocab, added->id, text, n, 0));
    } else {
        was = *added;
    }
    added->special = (int8_t)json_is_true(json_object_get(entry, "special"));
    added->normalized = (int8_t)json_is_true(json_object_get(entry, "normalized"));
    added->lstrip = (int8_t)json_is_true(json_object_get(entry, "lstrip"));
    added->rstrip = (int8_t)json_is_true(json_object_get(entry, "rstrip"));
    added->single_word = (int8_t)json_is_true(json_object_get(entry, "single_word"));
    return is_new || was.special != added->special || was.normalized != added->normalized ||
                   was.lstrip != added->lstrip || was.rstrip != added->rstrip ||
                   was.single_word != added->single_word
               ? note_beside(tok, entry, added->id, is_new)
               : LATHE_OK;
}

/* n_model: number of the model's own tokens. */
static lathe_status add_all_beside(lathe_tokenizer *tok, const json_t *more, int64_t n_model)
{
    const int64_t n_before = tok->vocab.n, n_own = tok->n_added;
    json_t *entry;
    size_t i;
    if (json_array_size(more) == 0)
        return LATHE_OK;
    lathe_added_token *grown = realloc(
        tok->added, (size_t)(tok->n_added + (int64_t)json_array_size(more) + 1) * sizeof *grown);
    if (grown == NULL)
        return lathe_error(LATHE_E_NOMEM, "added tokens");
    tok->added = grown;
    json_array_foreach((json_t *)(uintptr_t)more, i, entry)
        LATHE_TRY(add_beside(tok, entry, n_model, n_own));
    lathe_pipeline *p = tok->pipeline;
    if (p == NULL || p->is_control == NULL || tok->vocab.n == n_before)
        return LATHE_OK;
    uint8_t *control = realloc(p->is_control, (size_t)tok->vocab.n + 1);
    if (control == NULL)
        return lathe_error(LATHE_E_NOMEM, "added tokens");
    memset(control + n_before, 0, (size_t)(tok->vocab.n + 1 - n_before));
    p->is_control = control;
    return LATHE_OK;
}

/* Number of the tokens of the model. */
static int64_t count_model(const json_t *model, const lathe_token_tables *tables)
{
    const json_t *vocab = json_object_get(model, "vocab");
    if (tables && tables->n_tokens + tables->n_scored > 0)
        return tables->n_tokens + tables->n_scored;
    return (int64_t)(json_is_object(vocab) ? json_object_size(vocab) : json_array_size(vocab));
}

/* Normalizes the content of an added token that is searched in normalized text. */
static lathe_status normalize_added(const lathe_tokenizer *tok, lathe_added_token *added,
                                    lathe_matcher *matcher)
{
    const uint8_t *text = (const uint8_t *)added->content;
    uint8_t *normal = NULL;
    int64_t n = added->bytes;
    if (tok->nfc)
        LATHE_TRY(lathe__nfc(text, added->bytes, &normal, &n));
    if (tok->pipeline && tok->pipeline->n_normal) {
        lathe_text scratch[2], *out;
        memset(scratch, 0, sizeof scratch);
        const lathe_status status = lathe__normalize(tok->pipeline->normal, tok->pipeline->n_normal,
                                                     matcher, text, added->bytes, 0, scratch, &out);
        if (status == LATHE_OK) {
            n = out->buffer.len;
            normal = (uint8_t *)out->buffer.data;
            out->buffer.data = NULL;
        }
        lathe_buffer_fini(&scratch[0].buffer);
        lathe_buffer_fini(&scratch[1].buffer);
        LATHE_TRY(status);
    }
    if (normal == NULL)
        return LATHE_OK;
    free(added->content);
    added->content = (char *)normal;
    added->bytes = n;
    return LATHE_OK;
}

/* A vocabulary may have the text of a special token twice; marks both ids as special. */
static void mark_equals(lathe_tokenizer *tok)
{
    const lathe_vocab *vocab = &tok->vocab;
    for (int64_t id = 0; tok->pipeline && id < vocab->n; id++) {
        const int32_t found =
            vocab->len[id] < 0
                ? -1
                : lathe__vocab_find(vocab, vocab->pool + vocab->at[id], vocab->len[id]);
        if (found >= 0 && tok->pipeline->is_control[found])
            tok->pipeline->is_control[id] = 1;
    }
}

/* Builds the tries and the index by id of the added tokens; needs the normalizer. */
static lathe_status index_added(lathe_tokenizer *tok)
{
    if (!tok->n_added)
        return LATHE_OK;
    tok->added_at = malloc((size_t)tok->vocab.n * sizeof *tok->added_at);
    if (tok->added_at == NULL)
        return lathe_error(LATHE_E_NOMEM, "added tokens");
    memset(tok->added_at, 0xff, (size_t)tok->vocab.n * sizeof *tok->added_at);
    lathe_matcher matcher;
    memset(&matcher, 0, sizeof matcher);
    lathe_status status = LATHE_OK;
    for (int64_t i = 0; i < tok->n_added && status == LATHE_OK; i++) {
        lathe_added_token *added = &tok->added[i];
        tok->added_at[added->id] = (int32_t)i;
        if (tok->pipeline)
            tok->pipeline->is_control[added->id] = (uint8_t)added->special;
        if (added->normalized)
            status = normalize_added(tok, added, &matcher);
        if (status == LATHE_OK)
            status = lathe__trie_put(added->normalized ? &tok->normalized : &tok->raw,
                                     added->content, added->bytes, (int32_t)i);
    }
    lathe__matcher_fini(&matcher);
    mark_equals(tok);
    return status;
}

/* ---- the route ---- */

/* Whether a tokenizer can take the short route: no normalizer or NFC, splits that isolate the
 * matches of an expression, ByteLevel as the last step, and its decoder. */
static int is_short(const lathe_tokenizer *tok, const json_t *model,
                    const lathe_token_tables *tables)
{
    const lathe_pipeline *p = tok->pipeline;
    const char *type = json_string_value(json_object_get(model, "type"));
    if (type && strcmp(type, "BPE") != 0)
        return 0;
    if (!json_is_object(json_object_get(model, "vocab")) || p->n_pre < 1 ||
        p->pre[p->n_pre - 1].kind != LATHE_PRE_BYTE_LEVEL ||
        (p->n_pre > 1 && p->pre[p->n_pre - 1].prefix_space) || p->n_pre > LATHE_MAX_SPLITS)
        return 0;
    if (p->n_normal > 1 || (p->n_normal && p->normal[0].kind != LATHE_NORMAL_NFC))
        return 0;
    if (p->n_decode > 1 || (p->n_decode && p->decode[0].kind != LATHE_DECODE_BYTE_LEVEL))
        return 0;
    for (int32_t i = 0; i < p->n_pre - 1; i++) {
        const lathe_pre_step *step = &p->pre[i];
        if (step->kind != LATHE_PRE_SPLIT || step->isolated == NULL ||
            (step->pattern.code && lathe__regex_may_be_empty(step->pattern.code)))
            return 0;
    }
    /* The short route drops a byte that the vocabulary lacks, so unk_token and byte_fallback must
     * not be in use. */
    return lathe__has_all_bytes(model, tables) ||
           (!json_is_string(json_object_get(model, "unk_token")) &&
            !json_is_true(json_object_get(model, "byte_fallback")));
}

static lathe_status take_short_route(lathe_tokenizer *tok, const char *file)
{
    const lathe_pipeline *p = tok->pipeline;
    const lathe_pre_step *last = &p->pre[p->n_pre - 1];
    tok->kind = LATHE_TOKENIZER_BPE;
    tok->nfc = p->n_normal > 0;
    tok->add_prefix_space = last->prefix_space;
    for (int32_t i = 0; i < p->n_pre - 1; i++)
        LATHE_TRY(lathe__split_compile(tok, file, p->pre[i].isolated));
    if (last->pattern.code)
        LATHE_TRY(lathe__split_compile(tok, file, last->pattern.source));
    lathe__pipeline_destroy(tok->pipeline);
    tok->pipeline = NULL;
    return LATHE_OK;
}

static lathe_status read_root(lathe_tokenizer *tok, const char *file, const json_t *root,
                              const lathe_token_tables *tables, const json_t *more)
{
    static const char *const sections[4] = {"normalizer", "pre_tokenizer", "decoder",
                                            "post_processor"};
    char place[4][LATHE_PLACE];
    if (!json_is_object(root))
        return lathe__tj_expected(file, "", root, "an object");
    for (int i = 0; i < 4; i++)
        snprintf(place[i], LATHE_PLACE, "%s: %s", file, sections[i]);
    LATHE_TRY(read_added(tok, file, json_object_get(root, "added_tokens")));
    lathe_pipeline *pipeline = tok->pipeline = calloc(1, sizeof *pipeline);
    if (pipeline == NULL)
        return lathe_error(LATHE_E_NOMEM, "tokenizer");
    json_t *model = json_object_get(root, "model");
    LATHE_TRY(lathe__read_normalizer(place[0], json_object_get(root, sections[0]), pipeline));
    LATHE_TRY(lathe__read_pre_tokenizer(place[1], json_object_get(root, sections[1]), pipeline));
    LATHE_TRY(lathe__read_decoder(place[2], json_object_get(root, sections[2]), pipeline));
    tok->kind = LATHE_TOKENIZER_GENERAL;
    if (is_short(tok, model, tables))
        LATHE_TRY(take_short_route(tok, file));
    LATHE_TRY(lathe__read_model(tok, file, model, tables));
    LATHE_TRY(add_all_beside(tok, more, count_model(model, tables)));
    LATHE_TRY(lathe__read_post_processor(tok, place[3], json_object_get(root, sections[3]), 0));
    return index_added(tok);
}

/* Makes a tokenizer from a tree and frees the tree. `tables`: the large tables if they are not in
 * the tree, else NULL. */
static lathe_status build(const char *name, json_t *root, const lathe_token_tables *tables,
                          const json_t *more, lathe_tokenizer **out)
{
    lathe_tokenizer *tok = calloc(1, sizeof *tok);
    lathe_status status = tok ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "tokenizer");
    if (status == LATHE_OK) {
        tok->bos = tok->eos = tok->pad = tok->mask = -1;
        status = read_root(tok, name, root, tables, more);
    }
    json_decref(root);
    if (status == LATHE_OK)
        status = lathe__finish_model(tok);
    if (status != LATHE_OK) {
        lathe_tokenizer_destroy(tok);
        return status;
    }
    *out = tok;
    return LATHE_OK;
}

static lathe_status parse_tables(const char *name, const char *json, int64_t bytes,
                                 const json_t *more, lathe_tokenizer **out)
{
    lathe_token_tables tables;
    json_t *root = NULL;
    lathe_status status = lathe_error(LATHE_E_PARSE, "%s: no usual model", name);
    if (lathe__token_tables_read(json, bytes, &tables))
        status = lathe_json_load_with_nul(name, tables.rest, tables.rest_bytes, &root);
    if (root)
        status = build(name, root, &tables, more, out);
    lathe__token_tables_fini(&tables);
    return status;
}

/* Reports an error in the JSON syntax by line and column, without building a tree.
 * LATHE_E_UNSUPPORTED: a key with \u0000, which is allowed in model.vocab. */
static lathe_status check_json(const char *name, const char *json, int64_t bytes)
{
    lathe_json_record *record = calloc(1, sizeof *record);
    int64_t line, column;
    if (record == NULL)
        return lathe_error(LATHE_E_NOMEM, "tokenizer");
    lathe_status status = LATHE_OK;
    const int read = lathe_json_record_read(record, json, bytes, NULL, 0, NULL);
    if (read < 0)
        status = lathe_error(LATHE_E_NOMEM, "tokenizer");
    if (read == 0) {
        lathe_json_record_place(record, &line, &column);
        status = lathe_error_in(record->nul_in_key ? LATHE_E_UNSUPPORTED : LATHE_E_PARSE, name,
                                line, column, "%s", record->walk.what);
    }
    lathe_json_record_fini(record);
    free(record);
    return status;
}

lathe_status lathe__tokenizer_tree(const char *name, const char *json, int64_t bytes, json_t **out,
                                   int64_t *out_merges)
{
    lathe_token_tables tables;
    lathe_status status;
    if (lathe__token_tables_read(json, bytes, &tables)) {
        status = lathe_json_load_with_nul(name, tables.rest, tables.rest_bytes, out);
        *out_merges = tables.n_merges;
    } else {
        status = lathe_json_load_with_nul(name, json, bytes, out);
        *out_merges = status != LATHE_OK ? 0
                                         : (int64_t)json_array_size(json_object_get(
                                               json_object_get(*out, "model"), "merges"));
    }
    lathe__token_tables_fini(&tables);
    return status;
}

lathe_status lathe__tokenizer_parse(const char *name, char *json, int64_t json_bytes,
                                    lathe_tokenizer **out)
{
    return lathe__tokenizer_parse_with(name, json, json_bytes, NULL, out);
}

lathe_status lathe__tokenizer_parse_with(const char *name, char *json, int64_t json_bytes,
                                         const json_t *more, lathe_tokenizer **out)
{
    char unusual[512];
    lathe_status status = parse_tables(name, json, json_bytes, more, out);
    if (status != LATHE_OK) { /* finds out whether something is wrong, and in which line */
        json_t *root = NULL;
        (void)snprintf(unusual, sizeof unusual, "%s", lathe_error_message());
        status = check_json(name, json, json_bytes);
        if (status == LATHE_OK)
            status = lathe_json_load_with_nul(name, json, json_bytes, &root);
        if (status == LATHE_E_UNSUPPORTED) /* the reader of the tables says what is wrong */
            return lathe_error(LATHE_E_PARSE, "%s", unusual);
        LATHE_TRY(status);
        status = build(name, root, NULL, more, out);
    }
    if (status != LATHE_OK)
        return status;
    (*out)->json = json;
    (*out)->json_bytes = json_bytes;
    return LATHE_OK;
}
