/* tokenizer.json into a tokenizer: every section is read, or refused by its name. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer_model.h"

#define MAX_ID (1 << 24) /* bounds what a file can make us allocate */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static int flag_of(const json_t *object, const char *key, int missing)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value) ? json_is_true(value) : missing;
}

static lathe_status unsupported(const char *name, const char *key, const char *seen,
                                const char *supported)
{
    return lathe_error(LATHE_E_UNSUPPORTED, "%s: %s is \"%s\"; supported: %s", name, key, seen,
                       supported);
}

static lathe_status malformed(const char *name, const char *key, const char *expected)
{
    return lathe_error(LATHE_E_PARSE, "%s: %s: expected %s", name, key, expected);
}

/* ---- added_tokens ---- */

static lathe_status read_added(lathe_tokenizer *tok, const char *name, const json_t *list)
{
    if (!list || json_is_null(list))
        return LATHE_OK;
    if (!json_is_array(list))
        return malformed(name, "added_tokens", "a list");
    tok->added = calloc(json_array_size(list) + 1, sizeof *tok->added);
    if (!tok->added)
        return lathe_error(LATHE_E_NOMEM, "added tokens");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i), *id = json_object_get(entry, "id");
        const json_t *content = json_object_get(entry, "content");
        if (!json_is_integer(id) || !json_is_string(content) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= MAX_ID)
            return lathe_error(LATHE_E_PARSE, "%s: added_tokens[%zu]: expected id and content",
                               name, i);
        const int64_t bytes = (int64_t)json_string_length(content);
        if (!bytes)
            continue;
        lathe_added_token *added = &tok->added[tok->n_added];
        added->id = (int32_t)json_integer_value(id);
        added->special = (int8_t)flag_of(entry, "special", 0);
        added->normalized = (int8_t)flag_of(entry, "normalized", !added->special);
        added->lstrip = (int8_t)flag_of(entry, "lstrip", 0);
        added->rstrip = (int8_t)flag_of(entry, "rstrip", 0);
        added->single_word = (int8_t)flag_of(entry, "single_word", 0);
        added->content = strdup(json_string_value(content));
        added->bytes = bytes;
        if (!added->content)
            return lathe_error(LATHE_E_NOMEM, "added tokens");
        tok->n_added++;
        const lathe_status status =
            lathe__vocab_put(&tok->vocab, added->id, added->content, bytes, 0);
        if (status != LATHE_OK)
            return lathe_error_context(status, "%s: added_tokens[%zu]", name, i);
    }
    return LATHE_OK;
}

/* After the normalizer is known: the strings that are looked for. */
static lathe_status build_tries(lathe_tokenizer *tok)
{
    for (int64_t i = 0; i < tok->n_added; i++) {
        lathe_added_token *added = &tok->added[i];
        if (added->normalized && tok->nfc) {
            uint8_t *normal;
            int64_t n;
            LATHE_TRY(lathe__nfc((const uint8_t *)added->content, added->bytes, &normal, &n));
            if (normal) {
                free(added->content);
                added->content = (char *)normal;
                added->bytes = n;
            }
        }
        LATHE_TRY(lathe__trie_put(added->normalized ? &tok->normalized : &tok->raw, added->content,
                                  added->bytes, (int32_t)i));
    }
    return LATHE_OK;
}

/* ---- normalizer, pre_tokenizer, decoder ---- */

static lathe_status read_normalizer(lathe_tokenizer *tok, const char *name, const json_t *node,
                                    int depth)
{
    if (!node || json_is_null(node))
        return LATHE_OK;
    const char *type = text_of(node, "type");
    if (!strcmp(type, "Sequence") && depth < 4) {
        const json_t *list = json_object_get(node, "normalizers");
        for (size_t i = 0; i < json_array_size(list); i++)
            LATHE_TRY(read_normalizer(tok, name, json_array_get(list, i), depth + 1));
        return LATHE_OK;
    }
    if (strcmp(type, "NFC"))
        return unsupported(name, "normalizer.type", type, "null, NFC");
    tok->nfc = 1;
    return LATHE_OK;
}

static lathe_status read_byte_level(lathe_tokenizer *tok, const char *name, const json_t *node,
                                    int alone)
{
    if (flag_of(node, "add_prefix_space", 1)) {
        if (!alone)
            return unsupported(name, "pre_tokenizer.pretokenizers[].add_prefix_space", "true",
                               "false behind a Split");
        tok->add_prefix_space = 1;
    }
    if (flag_of(node, "use_regex", 1))
        return lathe__split_compile(tok, name, LATHE_GPT2_PATTERN);
    return LATHE_OK;
}

static lathe_status read_split(lathe_tokenizer *tok, const char *name, const json_t *node)
{
    const json_t *regex = json_object_get(json_object_get(node, "pattern"), "Regex");
    if (!json_is_string(regex))
        return unsupported(name, "pre_tokenizer Split.pattern", "not Regex", "{\"Regex\": ...}");
    if (strcmp(text_of(node, "behavior"), "Isolated"))
        return unsupported(name, "pre_tokenizer Split.behavior", text_of(node, "behavior"),
                           "Isolated");
    if (flag_of(node, "invert", 0))
        return unsupported(name, "pre_tokenizer Split.invert", "true", "false");
    return lathe__split_compile(tok, name, json_string_value(regex));
}

static lathe_status read_pre_tokenizer(lathe_tokenizer *tok, const char *name, const json_t *node)
{
    const char *type = text_of(node, "type");
    if (!strcmp(type, "ByteLevel"))
        return read_byte_level(tok, name, node, 1);
    const json_t *list = json_object_get(node, "pretokenizers");
    if (strcmp(type, "Sequence") || !json_is_array(list))
        return unsupported(name, "pre_tokenizer.type", json_is_object(node) ? type : "null",
                           "ByteLevel, Sequence of Split and ByteLevel");
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *step = json_array_get(list, i);
        const char *step_type = text_of(step, "type");
        if (!strcmp(step_type, "Split") && i + 1 < n)
            LATHE_TRY(read_split(tok, name, step));
        else if (!strcmp(step_type, "ByteLevel") && i + 1 == n)
            LATHE_TRY(read_byte_level(tok, name, step, n == 1));
        else
            return unsupported(name, "pre_tokenizer.pretokenizers[].type", step_type,
                               "Split ..., then one ByteLevel at the end");
    }
    return n ? LATHE_OK : malformed(name, "pre_tokenizer.pretokenizers", "ByteLevel at the end");
}

static lathe_status check_decoder(const char *name, const json_t *node)
{
    if (!node || json_is_null(node) || !strcmp(text_of(node, "type"), "ByteLevel"))
        return LATHE_OK;
    return unsupported(name, "decoder.type", text_of(node, "type"), "ByteLevel");
}

/* ---- post_processor ---- */

static lathe_status template_ids(const lathe_tokenizer *tok, const char *name,
                                 const json_t *specials, const char *id, int32_t *ids,
                                 int32_t *n_ids)
{
    const json_t *list = json_object_get(json_object_get(specials, id), "ids");
    if (!json_is_array(list))
        return lathe_error(LATHE_E_PARSE, "%s: post_processor.special_tokens has no \"%s\"", name,
                           id);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const int64_t value = json_integer_value(json_array_get(list, i));
        if (value < 0 || value >= tok->vocab.n || tok->vocab.len[value] < 0)
            return lathe_error(LATHE_E_PARSE,
                               "%s: post_processor.special_tokens.%s: %lld is no token", name, id,
                               (long long)value);
        if (*n_ids == LATHE_MAX_TEMPLATE)
            return lathe_error(LATHE_E_UNSUPPORTED, "%s: post_processor: more than %d tokens", name,
                               LATHE_MAX_TEMPLATE);
        ids[(*n_ids)++] = (int32_t)value;
    }
    return LATHE_OK;
}

static lathe_status read_template(lathe_tokenizer *tok, const char *name, const json_t *node)
{
    const json_t *single = json_object_get(node, "single");
    const json_t *specials = json_object_get(node, "special_tokens");
    int seen = 0;
    if (!json_is_array(single))
        return malformed(name, "post_processor.single", "a list");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *entry = json_array_get(single, i);
        const json_t *special = json_object_get(entry, "SpecialToken");
        if (json_object_get(entry, "Sequence")) {
            if (seen++)
                return unsupported(name, "post_processor.single", "two sequences", "one");
        } else if (special) {
            LATHE_TRY(template_ids(tok, name, specials, text_of(special, "id"),
                                   seen ? tok->suffix : tok->prefix,
                                   seen ? &tok->n_suffix : &tok->n_prefix));
        } else {
            return malformed(name, "post_processor.single[]", "Sequence or SpecialToken");
        }
    }
    return LATHE_OK;
}

static lathe_status read_post_processor(lathe_tokenizer *tok, const char *name, const json_t *node,
                                        int depth)
{
    if (!node || json_is_null(node))
        return LATHE_OK;
    const char *type = text_of(node, "type");
    if (!strcmp(type, "ByteLevel"))
        return LATHE_OK;
    if (!strcmp(type, "TemplateProcessing"))
        return read_template(tok, name, node);
    if (strcmp(type, "Sequence") || depth > 3)
        return unsupported(name, "post_processor.type", type,
                           "null, ByteLevel, TemplateProcessing, Sequence of them");
    const json_t *list = json_object_get(node, "processors");
    for (size_t i = 0; i < json_array_size(list); i++)
        LATHE_TRY(read_post_processor(tok, name, json_array_get(list, i), depth + 1));
    return LATHE_OK;
}

/* ---- model ---- */

/* Id of a byte-level text; bytes is scratch of at least n. */
static int32_t find_chars(const lathe_tokenizer *tok, const char *text, int64_t n, uint8_t *bytes)
{
    const int64_t n_bytes = lathe__bytes_of_chars(text, n, bytes);
    return n_bytes < 0 ? -1 : lathe__vocab_find(&tok->vocab, bytes, n_bytes);
}

/* An id of model.vocab that added_tokens has given already. */
static lathe_status share_token(lathe_tokenizer *tok, const char *name, const char *key, int32_t id)
{
    const int64_t n = tok->vocab.len[id];
    const uint8_t *content = tok->vocab.pool + tok->vocab.at[id];
    if ((int64_t)strlen(key) != n || memcmp(key, content, (size_t)n))
        return lathe_error(LATHE_E_PARSE, "%s: id %d is \"%s\" in model.vocab and \"%s\" before",
                           name, id, key, (const char *)content);
    for (int64_t i = 0; i < n; i++) /* what byte-level text would write another way stays hidden */
        if (content[i] <= ' ' || content[i] >= 0x7f)
            return LATHE_OK;
    return lathe__vocab_show(&tok->vocab, id);
}

static lathe_status read_token(lathe_tokenizer *tok, const char *name, const char *key,
                               const json_t *value)
{
    const int64_t n = (int64_t)strlen(key), id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= MAX_ID)
        return lathe_error(LATHE_E_PARSE, "%s: model.vocab[\"%s\"]: expected an id", name, key);
    if (id < tok->vocab.n && tok->vocab.len[id] >= 0)
        return share_token(tok, name, key, (int32_t)id);
    uint8_t *bytes = malloc((size_t)n + 1);
    if (!bytes)
        return lathe_error(LATHE_E_NOMEM, "vocabulary");
    const int64_t n_bytes = lathe__bytes_of_chars(key, n, bytes);
    const lathe_status status = n_bytes < 0
                                    ? lathe__vocab_put(&tok->vocab, (int32_t)id, key, n, 0)
                                    : lathe__vocab_put(&tok->vocab, (int32_t)id, bytes, n_bytes, 1);
    free(bytes);
    return status == LATHE_OK ? LATHE_OK
                              : lathe_error_context(status, "%s: model.vocab[\"%s\"]", name, key);
}

static lathe_status read_vocab(lathe_tokenizer *tok, const char *name, json_t *vocab)
{
    const char *key;
    json_t *value;
    json_object_foreach(vocab, key, value)
    {
        LATHE_TRY(read_token(tok, name, key, value));
    }
    for (int64_t i = 0; i < tok->n_added; i++) {
        const lathe_added_token *added = &tok->added[i];
        const json_t *id = json_object_get(vocab, added->content);
        if (id && json_integer_value(id) != added->id)
            return lathe_error(LATHE_E_PARSE,
                               "%s: \"%s\" is %lld in model.vocab and %d in "
                               "added_tokens",
                               name, added->content, (long long)json_integer_value(id), added->id);
    }
    for (int32_t byte = 0; byte < 256; byte++) {
        const uint8_t b = (uint8_t)byte;
        tok->byte_id[byte] = lathe__vocab_find(&tok->vocab, &b, 1);
        if (tok->byte_id[byte] < 0)
            return lathe_error(LATHE_E_UNSUPPORTED,
                               "%s: model.vocab has no token for the byte 0x%02x; a byte-level "
                               "vocabulary has all 256",
                               name, (unsigned)byte);
    }
    return LATHE_OK;
}

/* The two sides of a merge: ["a", "b"] or "a b". */
static int merge_sides(const json_t *entry, const char *side[2], int64_t n[2])
{
    if (json_is_array(entry) && json_array_size(entry) == 2) {
        for (size_t i = 0; i < 2; i++) {
            side[i] = json_string_value(json_array_get(entry, i));
            n[i] = (int64_t)json_string_length(json_array_get(entry, i));
        }
        return side[0] && side[1];
    }
    const char *text = json_string_value(entry), *space = text ? strchr(text, ' ') : NULL;
    if (!space || strchr(space + 1, ' '))
        return 0;
    side[0] = text;
    n[0] = space - text;
    side[1] = space + 1;
    n[1] = (int64_t)strlen(space + 1);
    return 1;
}

static lathe_status read_merge(lathe_tokenizer *tok, const char *name, const json_t *entry,
                               size_t i)
{
    const char *side[2];
    int64_t n[2];
    if (!merge_sides(entry, side, n))
        return lathe_error(LATHE_E_PARSE,
                           "%s: model.merges[%zu]: expected [\"a\", \"b\"] or "
                           "\"a b\"",
                           name, i);
    uint8_t *bytes = malloc((size_t)(n[0] + n[1]) + 1);
    char *both = malloc((size_t)(n[0] + n[1]) + 1);
    if (!bytes || !both) {
        free(bytes);
        free(both);
        return lathe_error(LATHE_E_NOMEM, "merges");
    }
    memcpy(both, side[0], (size_t)n[0]);
    memcpy(both + n[0], side[1], (size_t)n[1]);
    const int32_t left = find_chars(tok, side[0], n[0], bytes);
    const int32_t right = find_chars(tok, side[1], n[1], bytes);
    const int32_t result = find_chars(tok, both, n[0] + n[1], bytes);
    free(bytes);
    free(both);
    if (left < 0 || right < 0 || result < 0)
        return lathe_error(LATHE_E_PARSE,
                           "%s: model.merges[%zu]: \"%.*s\" + \"%.*s\" %s not in "
                           "model.vocab",
                           name, i, (int)n[0], side[0], (int)n[1], side[1],
                           left < 0 || right < 0 ? "are" : "gives what is");
    lathe__merges_put(&tok->merges, left, right, (uint32_t)i, (uint32_t)result);
    return LATHE_OK;
}

static lathe_status check_model(const char *name, const json_t *model)
{
    const char *type = text_of(model, "type");
    if (!json_is_object(model))
        return malformed(name, "model", "an object");
    if (strcmp(type, "BPE") && (*type || !json_object_get(model, "merges")))
        return unsupported(name, "model.type", type, "BPE");
    if (json_number_value(json_object_get(model, "dropout")) != 0.0)
        return unsupported(name, "model.dropout", "not 0", "null");
    if (*text_of(model, "continuing_subword_prefix"))
        return unsupported(name, "model.continuing_subword_prefix",
                           text_of(model, "continuing_subword_prefix"), "null");
    if (*text_of(model, "end_of_word_suffix"))
        return unsupported(name, "model.end_of_word_suffix", text_of(model, "end_of_word_suffix"),
                           "null");
    if (flag_of(model, "byte_fallback", 0))
        return unsupported(name, "model.byte_fallback", "true", "false");
    if (!json_is_object(json_object_get(model, "vocab")))
        return malformed(name, "model.vocab", "an object");
    if (!json_is_array(json_object_get(model, "merges")))
        return malformed(name, "model.merges", "a list");
    return LATHE_OK;
}

static lathe_status read_model(lathe_tokenizer *tok, const char *name, const json_t *model)
{
    LATHE_TRY(check_model(name, model));
    tok->ignore_merges = flag_of(model, "ignore_merges", 0);
    LATHE_TRY(read_vocab(tok, name, json_object_get(model, "vocab")));
    const json_t *merges = json_object_get(model, "merges");
    LATHE_TRY(lathe__merges_init(&tok->merges, (int64_t)json_array_size(merges)));
    for (size_t i = 0; i < json_array_size(merges); i++)
        LATHE_TRY(read_merge(tok, name, json_array_get(merges, i), i));
    return LATHE_OK;
}

static lathe_status read_root(lathe_tokenizer *tok, const char *name, const json_t *root)
{
    if (!json_is_object(root))
        return malformed(name, "the file", "an object");
    LATHE_TRY(read_added(tok, name, json_object_get(root, "added_tokens")));
    LATHE_TRY(read_normalizer(tok, name, json_object_get(root, "normalizer"), 0));
    LATHE_TRY(read_model(tok, name, json_object_get(root, "model")));
    LATHE_TRY(read_pre_tokenizer(tok, name, json_object_get(root, "pre_tokenizer")));
    LATHE_TRY(check_decoder(name, json_object_get(root, "decoder")));
    LATHE_TRY(read_post_processor(tok, name, json_object_get(root, "post_processor"), 0));
    return build_tries(tok);
}

lathe_status lathe__tokenizer_parse(const char *name, char *json, int64_t json_bytes,
                                    lathe_tokenizer **out)
{
    json_t *root;
    LATHE_TRY(lathe_json_load(name, json, json_bytes, &root));
    lathe_tokenizer *tok = calloc(1, sizeof *tok);
    lathe_status status = tok ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "tokenizer");
    if (status == LATHE_OK) {
        tok->bos = tok->eos = tok->pad = -1;
        status = read_root(tok, name, root);
    }
    json_decref(root);
    if (status != LATHE_OK) {
        lathe_tokenizer_destroy(tok);
        return status;
    }
    tok->json = json;
    tok->json_bytes = json_bytes;
    *out = tok;
    return LATHE_OK;
}
