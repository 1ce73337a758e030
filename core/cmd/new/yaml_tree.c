/* Reads a YAML file into a tree of values, with libyaml. */
#include "cmd/new/yaml_tree.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "base/error.h"
#include "base/fs.h"

enum { MAX_BYTES = 1 << 20, MAX_DEPTH = 32, MAX_VALUES = 100000 };

typedef struct reading {
    const char *path;
    yaml_document_t *document;
    int n_values;
} reading;

static lathe_status fail_at(const reading *r, const yaml_node_t *node, const char *what)
{
    return lathe_error_in(LATHE_E_UNSUPPORTED, r->path, (int64_t)node->start_mark.line + 1,
                          (int64_t)node->start_mark.column + 1, "%s", what);
}

static int is_word(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcasecmp(text, *words) == 0)
            return 1;
    return 0;
}

/* A number in full; else NULL. strtod reads more than YAML does: hexadecimal numbers, "nan". */
static json_t *number(const char *text)
{
    char *end;
    if (text[strspn(text, "+-.0123456789eE_")] != '\0' || strpbrk(text, "0123456789") == NULL ||
        strchr(text, '_') != NULL)
        return NULL;
    errno = 0;
    const long long whole = strtoll(text, &end, 10);
    if (*end == '\0' && errno == 0)
        return json_integer(whole);
    const double real = strtod(text, &end);
    return *end == '\0' && isfinite(real) ? json_real(real) : NULL;
}

static json_t *scalar(const yaml_node_t *node)
{
    static const char *const yes[] = {"true", "yes", "on", NULL};
    static const char *const no[] = {"false", "no", "off", NULL};
    const char *text = (const char *)node->data.scalar.value;
    json_t *typed = NULL;
    if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        if (text[0] == '\0' || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0)
            return json_null();
        if (is_word(text, yes) || is_word(text, no))
            return json_boolean(is_word(text, yes));
        typed = number(text);
    }
    return typed ? typed : json_stringn(text, node->data.scalar.length);
}

static lathe_status convert(reading *r, int index, int depth, json_t **out);

static lathe_status convert_items(reading *r, const yaml_node_t *node, int depth, json_t *list)
{
    const yaml_node_item_t *item = node->data.sequence.items.start;
    for (; item < node->data.sequence.items.top; item++) {
        json_t *value = NULL;
        LATHE_TRY(convert(r, *item, depth + 1, &value));
        if (json_array_append_new(list, value) != 0)
            return lathe_error(LATHE_E_NOMEM, "no memory for %s", r->path);
    }
    return LATHE_OK;
}

static lathe_status convert_pairs(reading *r, const yaml_node_t *node, int depth, json_t *map)
{
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
    for (; pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(r->document, pair->key);
        json_t *value = NULL;
        if (key == NULL || key->type != YAML_SCALAR_NODE)
            return fail_at(r, node, "a key that is no text");
        /* parsers of YAML take the last one, or the first: which was meant, only its writer knows
         */
        if (json_object_get(map, (const char *)key->data.scalar.value) != NULL)
            return lathe_error_in(LATHE_E_CONFIG, r->path, (int64_t)key->start_mark.line + 1,
                                  (int64_t)key->start_mark.column + 1,
                                  "the key \"%s\" is there twice; expected once: take one out",
                                  (const char *)key->data.scalar.value);
        LATHE_TRY(convert(r, pair->value, depth + 1, &value));
        if (json_object_set_new(map, (const char *)key->data.scalar.value, value) != 0)
            return fail_at(r, key, "the key is not valid UTF-8");
    }
    return LATHE_OK;
}

/* A mapping or list may contain itself by an alias, so the depth is bounded. */
static lathe_status convert(reading *r, int index, int depth, json_t **out)
{
    const yaml_node_t *node = yaml_document_get_node(r->document, index);
    if (depth > MAX_DEPTH)
        return fail_at(r, node, "nested more than 32 levels deep");
    if (++r->n_values > MAX_VALUES)
        return fail_at(r, node, "more than 100,000 values");
    json_t *value = node->type == YAML_SCALAR_NODE     ? scalar(node)
                    : node->type == YAML_SEQUENCE_NODE ? json_array()
                                                       : json_object();
    if (value == NULL)
        return fail_at(r, node, "the text is not valid UTF-8, or memory ran out");
    lathe_status status = LATHE_OK;
    if (node->type == YAML_SEQUENCE_NODE)
        status = convert_items(r, node, depth, value);
    else if (node->type == YAML_MAPPING_NODE)
        status = convert_pairs(r, node, depth, value);
    if (status != LATHE_OK)
        json_decref(value);
    else
        *out = value;
    return status;
}

static lathe_status parse(const char *path, const char *text, int64_t bytes, json_t **out)
{
    yaml_parser_t parser;
    yaml_document_t document;
    lathe_status status;
    if (!yaml_parser_initialize(&parser))
        return lathe_error(LATHE_E_NOMEM, "no memory for %s", path);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, (size_t)bytes);
    if (!yaml_parser_load(&parser, &document)) {
        status = lathe_error_in(LATHE_E_PARSE, path, (int64_t)parser.problem_mark.line + 1,
                                (int64_t)parser.problem_mark.column + 1, "%s",
                                parser.problem ? parser.problem : "not valid YAML");
        yaml_parser_delete(&parser);
        return status;
    }
    reading r = {.path = path, .document = &document};
    const yaml_node_t *root = yaml_document_get_root_node(&document);
    if (root == NULL)
        status = lathe_error(LATHE_E_PARSE, "%s: the file is empty", path);
    else if (root->type != YAML_MAPPING_NODE)
        status = lathe_error(LATHE_E_PARSE, "%s: expected keys with values (key: value)", path);
    else
        status = convert(&r, 1, 0, out);
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    return status;
}

lathe_status lathe_yaml_read(const char *path, json_t **out)
{
    char *text = NULL;
    int64_t bytes = 0;
    *out = NULL;
    LATHE_TRY(lathe_file_read(path, MAX_BYTES, &text, &bytes));
    const lathe_status status = parse(path, text, bytes, out);
    free(text);
    return status;
}
