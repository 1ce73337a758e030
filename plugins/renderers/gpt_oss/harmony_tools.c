/* Tools of the harmony format, as the macros render_tool_namespace and render_typescript_type of
 * the chat template of openai/gpt-oss-120b write them, spaces included. */
#include "harmony_tools.h"

#include <stdlib.h>

#include "lathe/kit/json_text.h"
#include "shared/turns.h"

enum { MAX_CHARACTERS = 50, MAX_DEPTH = 64 };

/* The text so far. */
typedef struct types {
    char *data;
    int64_t bytes, capacity;
    int32_t has_no_memory;
    const char *refused; /* why; NULL: not */
} types;

/* ---- text ---- */

static void put(types *t, const char *data, int64_t n)
{
    if (t->has_no_memory || t->refused != NULL || n <= 0)
        return;
    if (t->capacity - t->bytes < n) {
        const int64_t capacity = 2 * (t->bytes + n) + 256;
        char *grown = realloc(t->data, (size_t)capacity);
        t->has_no_memory = grown == NULL;
        if (grown == NULL)
            return;
        t->data = grown;
        t->capacity = capacity;
    }
    memcpy(t->data + t->bytes, data, (size_t)n);
    t->bytes += n;
}

static void put_text(types *t, const char *text)
{
    put(t, text, (int64_t)strlen(text));
}

static void refuse(types *t, const char *why)
{
    if (t->refused == NULL)
        t->refused = why;
}

/* The characters of a string; other values are refused. */
static void put_string(types *t, lathe_chars value, const char *why)
{
    lathe_chars inside = lathe_json_inside(value), part;
    char room[4];
    if (!lathe_json_is_string(value))
        refuse(t, why);
    while ((part = lathe_json_part(&inside, room)).bytes > 0)
        put(t, part.data, part.bytes);
}

/* Strings of a list with a text between them. */
static void put_joined(types *t, lathe_chars list, const char *between, const char *why)
{
    lathe_json_members it = lathe_json_open(list);
    if (lathe_json_kind(list) != LATHE_JSON_LIST)
        refuse(t, why);
    while (lathe_json_next(&it)) {
        put_text(t, it.n > 1 ? between : "");
        put_string(t, it.value, why);
    }
}

static int64_t count_characters(const types *t, int64_t first)
{
    int64_t n = 0;
    for (int64_t i = first; i < t->bytes; i++)
        n += ((unsigned char)t->data[i] & 0xc0) != 0x80;
    return n;
}

/* ---- types ---- */

static void put_type(types *t, lathe_chars schema, int depth);

static void put_nullable(types *t, lathe_chars schema)
{
    if (lathe_json_holds(lathe_json_get(schema, "nullable")))
        put_text(t, " | null");
}

/* A type and [], unless it is long. */
static void put_elements(types *t, lathe_chars items, int depth)
{
    static const char objects[] = "object | object";
    const int64_t first = t->bytes;
    put_type(t, items, depth + 1);
    const int64_t n = t->bytes - first;
    if (count_characters(t, first) > MAX_CHARACTERS ||
        (n == (int64_t)sizeof objects - 1 && memcmp(t->data + first, objects, (size_t)n) == 0)) {
        t->bytes = first;
        put_text(t, "any");
    }
    put_text(t, "[]");
}

static void put_list(types *t, lathe_chars schema, int depth)
{
    const lathe_chars items = lathe_json_get(schema, "items");
    const lathe_chars type = lathe_json_get(items, "type");
    if (!lathe_json_holds(items))
        put_text(t, "any[]");
    else if (lathe_json_is(type, "string"))
        put_text(t, "string[]");
    else if (lathe_json_is(type, "number") || lathe_json_is(type, "integer"))
        put_text(t, "number[]");
    else if (lathe_json_is(type, "boolean"))
        put_text(t, "boolean[]");
    else
        put_elements(t, items, depth);
    put_nullable(t, schema);
}

static void put_variant(types *t, lathe_chars schema, int depth)
{
    const lathe_chars description = lathe_json_get(schema, "description");
    const lathe_chars value = lathe_json_get(schema, "default");
    put_type(t, schema, depth + 1);
    if (lathe_json_holds(description)) {
        put_text(t, "// ");
        put_string(t, description, "a description that is no text");
    }
    if (value.data != NULL) {
        put_text(t, "                    // default: ");
        put(t, value.data, value.bytes);
    }
}

static void put_one_of(types *t, lathe_chars variants, int depth)
{
    lathe_json_members it = lathe_json_open(variants);
    if (lathe_json_kind(variants) != LATHE_JSON_LIST)
        refuse(t, "oneOf is no list");
    while (lathe_json_next(&it)) {
        put_text(t, it.n > 1 ? " | \n" : "");
        put_variant(t, it.value, depth);
    }
}

static void put_choice(types *t, lathe_chars schema)
{
    const lathe_chars values = lathe_json_get(schema, "enum");
    if (!lathe_json_holds(values)) {
        put_text(t, "string");
        put_nullable(t, schema);
        return;
    }
    put_text(t, "\"");
    put_joined(t, values, "\" | \"", "enum is no list of strings");
    put_text(t, "\"");
}

/* A property's name, with ? if it is not required. */
static void put_name(types *t, lathe_chars name, lathe_chars required)
{
    lathe_json_members it = lathe_json_open(required);
    int found = 0;
    if (lathe_json_holds(required) && lathe_json_kind(required) != LATHE_JSON_LIST)
        refuse(t, "required is no list");
    while (!found && lathe_json_next(&it))
        found = it.value.bytes == name.bytes &&
                memcmp(it.value.data, name.data, (size_t)name.bytes) == 0;
    put_string(t, name, "a property without a name");
    put_text(t, found ? ": " : "?: ");
}

static void put_object(types *t, lathe_chars schema, int depth)
{
    const lathe_chars properties = lathe_json_get(schema, "properties");
    const lathe_chars required = lathe_json_get(schema, "required");
    lathe_json_members it = lathe_json_open(properties);
    if (!lathe_json_holds(properties)) {
        put_text(t, "object");
        return;
    }
    if (lathe_json_kind(properties) != LATHE_JSON_OBJECT)
        refuse(t, "properties is no object");
    put_text(t, "{\n");
    while (t->refused == NULL && lathe_json_next(&it)) {
        put_text(t, it.n > 1 ? ", " : "");
        put_name(t, it.key, required);
        put_text(t, "\n                ");
        put_type(t, it.value, depth + 1);
    }
    put_text(t, "}");
}

/* A type by its name; "any": another one. */
static const char *simple_type(lathe_chars type)
{
    if (lathe_json_is(type, "number") || lathe_json_is(type, "integer"))
        return "number";
    return lathe_json_is(type, "boolean") ? "boolean" : "any";
}

static void put_type(types *t, lathe_chars schema, int depth)
{
    const lathe_chars type = lathe_json_get(schema, "type");
    const lathe_chars variants = lathe_json_get(schema, "oneOf");
    if (lathe_json_kind(schema) != LATHE_JSON_OBJECT)
        refuse(t, "a schema that is no object");
    if (depth > MAX_DEPTH)
        refuse(t, "a schema that is too deep");
    if (t->refused != NULL || t->has_no_memory)
        return;
    if (lathe_json_is(type, "array"))
        put_list(t, schema, depth);
    else if (lathe_json_kind(type) == LATHE_JSON_LIST && lathe_json_holds(type))
        put_joined(t, type, " | ", "type is a list of other values than strings");
    else if (lathe_json_holds(variants))
        put_one_of(t, variants, depth);
    else if (lathe_json_is(type, "string"))
        put_choice(t, schema);
    else if (lathe_json_is(type, "object"))
        put_object(t, schema, depth);
    else
        put_text(t, simple_type(type));
}

/* ---- functions ---- */

static void put_default(types *t, lathe_chars schema)
{
    static const char why[] = "the default of an enum or of oneOf is no string";
    const lathe_chars value = lathe_json_get(schema, "default");
    if (value.data == NULL)
        return;
    if (lathe_json_holds(lathe_json_get(schema, "enum"))) {
        put_text(t, ", // default: ");
        put_string(t, value, why);
    } else if (lathe_json_holds(lathe_json_get(schema, "oneOf"))) {
        put_text(t, "// default: ");
        put_string(t, value, why);
    } else {
        put_text(t, ", // default: ");
        put(t, value.data, value.bytes);
    }
}

static void put_parameters(types *t, lathe_chars properties, lathe_chars required)
{
    lathe_json_members it = lathe_json_open(properties);
    if (lathe_json_kind(properties) != LATHE_JSON_OBJECT)
        refuse(t, "properties is no object");
    put_text(t, "(_: {\n");
    while (t->refused == NULL && lathe_json_next(&it)) {
        const lathe_chars description = lathe_json_get(it.value, "description");
        if (lathe_json_holds(description)) {
            put_text(t, "// ");
            put_string(t, description, "a description that is no text");
            put_text(t, "\n");
        }
        put_name(t, it.key, required);
        put_type(t, it.value, 0);
        put_default(t, it.value);
        put_text(t, ",\n");
    }
    put_text(t, "}) => any;\n\n");
}

static void put_function(types *t, lathe_chars function)
{
    const lathe_chars parameters = lathe_json_get(function, "parameters");
    const lathe_chars properties = lathe_json_get(parameters, "properties");
    if (lathe_json_kind(function) != LATHE_JSON_OBJECT)
        refuse(t, "a tool needs its \"function\"");
    if (lathe_json_holds(parameters) && lathe_json_kind(parameters) != LATHE_JSON_OBJECT)
        refuse(t, "parameters is no object");
    put_text(t, "// ");
    put_string(t, lathe_json_get(function, "description"), "a function needs its description");
    put_text(t, "\ntype ");
    put_string(t, lathe_json_get(function, "name"), "a function needs its name");
    put_text(t, " = ");
    if (lathe_json_holds(properties))
        put_parameters(t, properties, lathe_json_get(parameters, "required"));
    else
        put_text(t, "() => any;\n\n");
}

lathe_status harmony_tools(const lathe_host *host, const lathe_conversation *conversation,
                           char **out, int64_t *out_bytes)
{
    types t = {0};
    *out = NULL;
    *out_bytes = 0;
    if (conversation->n_tools == 0)
        return LATHE_OK;
    put_text(&t, "# Tools\n\n## functions\n\nnamespace functions {\n\n");
    for (int32_t i = 0; i < conversation->n_tools && t.refused == NULL; i++)
        put_function(&t, lathe_json_get(conversation->tools[i], "function"));
    put_text(&t, "} // namespace functions");
    if (t.refused == NULL && !t.has_no_memory) {
        *out = t.data;
        *out_bytes = t.bytes;
        return LATHE_OK;
    }
    free(t.data);
    return t.refused != NULL ? turns_refuse(host, conversation, 0, t.refused)
                             : lathe_fail(host, LATHE_E_NOMEM, "no memory for the text of tools");
}
