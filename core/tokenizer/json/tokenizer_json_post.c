/* Reads tokenizer.json's post_processor: the tokens before and after a text. */
#include "tokenizer/json/tokenizer_json_post.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/json/tokenizer_json_members.h"

static lathe_status put_id(const lathe_tokenizer *tok, const char *place, const json_t *value,
                           int32_t *ids, int32_t *n_ids)
{
    const int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id < 0 || id >= tok->vocab.n || tok->vocab.len[id] < 0)
        return lathe_error(LATHE_E_PARSE, "%s: %lld is the id of no token", place, (long long)id);
    if (*n_ids == LATHE_MAX_TEMPLATE)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s: more than %d tokens", place,
                           LATHE_MAX_TEMPLATE);
    ids[(*n_ids)++] = (int32_t)id;
    return LATHE_OK;
}

/* special_tokens[id].ids */
static lathe_status template_ids(const lathe_tokenizer *tok, const char *place,
                                 const json_t *specials, const json_t *special, int32_t *ids,
                                 int32_t *n_ids)
{
    const char *id;
    LATHE_TRY(lathe__tj_text(place, special, "id", &id));
    const json_t *list = json_object_get(json_object_get(specials, id ? id : ""), "ids");
    if (!json_is_array(list))
        return lathe_error(LATHE_E_PARSE, "%s.special_tokens has no ids of \"%s\"", place,
                           id ? id : "");
    for (size_t i = 0; i < json_array_size(list); i++)
        LATHE_TRY(put_id(tok, place, json_array_get(list, i), ids, n_ids));
    return LATHE_OK;
}

static lathe_status read_template(lathe_tokenizer *tok, const char *place, const json_t *node)
{
    const json_t *single = json_object_get(node, "single");
    const json_t *specials = json_object_get(node, "special_tokens");
    int seen = 0;
    if (!json_is_array(single))
        return lathe__tj_expected(place, "single", single, "a list");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *entry = json_array_get(single, i);
        const json_t *special = json_object_get(entry, "SpecialToken");
        if (json_object_get(entry, "Sequence"))
            seen++;
        else if (special)
            LATHE_TRY(template_ids(tok, place, specials, special, seen ? tok->suffix : tok->prefix,
                                   seen ? &tok->n_suffix : &tok->n_prefix));
        else
            return lathe__tj_expected(place, "single[]", entry, "Sequence or SpecialToken");
    }
    if (seen != 1)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s.single has %d sequences; supported: one", place,
                           seen);
    return LATHE_OK;
}

/* "cls" and "sep": [token, id]. */
static lathe_status read_pair(lathe_tokenizer *tok, const char *place, const json_t *node)
{
    const json_t *cls = json_object_get(node, "cls"), *sep = json_object_get(node, "sep");
    if (!json_is_array(cls) || json_array_size(cls) != 2)
        return lathe__tj_expected(place, "cls", cls, "[token, id]");
    if (!json_is_array(sep) || json_array_size(sep) != 2)
        return lathe__tj_expected(place, "sep", sep, "[token, id]");
    LATHE_TRY(put_id(tok, place, json_array_get(cls, 1), tok->prefix, &tok->n_prefix));
    return put_id(tok, place, json_array_get(sep, 1), tok->suffix, &tok->n_suffix);
}

lathe_status lathe__read_post_processor(lathe_tokenizer *tok, const char *place, const json_t *node,
                                        int depth)
{
    const char *type;
    if (node == NULL || json_is_null(node))
        return LATHE_OK;
    LATHE_TRY(lathe__tj_type(place, node, &type));
    if (!strcmp(type, "ByteLevel")) /* changes offsets only */
        return LATHE_OK;
    if (strcmp(type, "Sequence") != 0 && (tok->n_prefix || tok->n_suffix))
        return lathe__tj_unsupported(place, "type", type, "one step that adds tokens");
    if (!strcmp(type, "TemplateProcessing"))
        return read_template(tok, place, node);
    if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing"))
        return read_pair(tok, place, node);
    if (strcmp(type, "Sequence") != 0 || depth > 3)
        return lathe__tj_unsupported(place, "type", type,
                                     "null, ByteLevel, TemplateProcessing, BertProcessing, "
                                     "RobertaProcessing, Sequence of them");
    const json_t *list = json_object_get(node, "processors");
    if (!json_is_array(list))
        return lathe__tj_expected(place, "processors", list, "a list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        char inner[LATHE_PLACE];
        snprintf(inner, sizeof inner, "%s.processors[%zu]", place, i);
        LATHE_TRY(lathe__read_post_processor(tok, inner, json_array_get(list, i), depth + 1));
    }
    return LATHE_OK;
}
