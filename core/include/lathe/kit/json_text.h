/* Takes JSON texts apart, as renderers get them: tools, and arguments of calls.
 *
 *     lathe_json_members it = lathe_json_open(tool);
 *     while (lathe_json_next(&it))
 *         if (lathe_json_is(it.key, "name"))
 *             name = it.value;
 *
 * Values are parts of the text, borrowed; nothing is allocated, and no function calls itself. The
 * core writes valid JSON. Of other texts the functions give some parts, or none, and they read no
 * byte outside the text.
 */
#ifndef LATHE_KIT_JSON_TEXT_H
#define LATHE_KIT_JSON_TEXT_H

#include "lathe/kit/json_string.h"

/** Kinds of values. */
enum {
    LATHE_JSON_NONE = 0, /* no value, or no JSON */
    LATHE_JSON_OBJECT,
    LATHE_JSON_LIST,
    LATHE_JSON_STRING,
    LATHE_JSON_NUMBER,
    LATHE_JSON_TRUE,
    LATHE_JSON_FALSE,
    LATHE_JSON_NULL,
};

/** The type of a value, found from its first byte. */
static inline int32_t lathe_json_kind(lathe_chars value)
{
    const char c = value.data != NULL && value.bytes > 0 ? value.data[0] : '\0';
    switch (c) {
    case '{':
        return LATHE_JSON_OBJECT;
    case '[':
        return LATHE_JSON_LIST;
    case '"':
        return LATHE_JSON_STRING;
    case 't':
        return LATHE_JSON_TRUE;
    case 'f':
        return LATHE_JSON_FALSE;
    case 'n':
        return LATHE_JSON_NULL;
    default:
        return c == '-' || (c >= '0' && c <= '9') ? LATHE_JSON_NUMBER : LATHE_JSON_NONE;
    }
}

/* Bytes of the string that text begins with, with its quotes. */
static inline int64_t lathe_json__string(const char *text, int64_t n)
{
    int64_t i = 1;
    while (i < n && text[i] != '"')
        i += text[i] == '\\' ? 2 : 1;
    return i < n ? i + 1 : n;
}

/** Bytes of the value that text begins with. */
static inline int64_t lathe_json_value_bytes(const char *text, int64_t n)
{
    int64_t depth = 0, i = 0;
    while (i < n) {
        const char c = text[i];
        if (depth == 0 && (c == ',' || c == '}' || c == ']' || c == ':'))
            break;
        if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        i += c == '"' ? lathe_json__string(text + i, n - i) : 1;
        if (depth == 0 && (c == '"' || c == '}' || c == ']'))
            break;
    }
    return i;
}

/** Walks over the members of an object or the elements of a list. */
typedef struct lathe_json_members {
    lathe_chars rest;
    lathe_chars key;   /* a string, with its quotes; none: elements of a list have none */
    lathe_chars value; /* without white space at its ends */
    int64_t n;         /* values so far */
    int32_t is_object;
} lathe_json_members;

static inline int lathe_json__is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static inline void lathe_json__skip(lathe_chars *rest, int64_t n)
{
    rest->data += n;
    rest->bytes -= n;
    while (rest->bytes > 0 && lathe_json__is_space(rest->data[0])) {
        rest->data++;
        rest->bytes--;
    }
}

/** Begins a walk. Other values have no members. */
static inline lathe_json_members lathe_json_open(lathe_chars value)
{
    const int32_t kind = lathe_json_kind(value);
    lathe_json_members it = {.is_object = kind == LATHE_JSON_OBJECT};
    if (kind != LATHE_JSON_OBJECT && kind != LATHE_JSON_LIST)
        return it;
    it.rest = value;
    lathe_json__skip(&it.rest, 1);
    return it;
}

/* Takes the value that rest begins with. */
static inline lathe_chars lathe_json__take(lathe_chars *rest)
{
    lathe_chars value = {rest->data, lathe_json_value_bytes(rest->data, rest->bytes)};
    lathe_json__skip(rest, value.bytes);
    while (value.bytes > 0 && lathe_json__is_space(value.data[value.bytes - 1]))
        value.bytes--;
    return value;
}

/** Goes to the next member; 0: there is none. */
static inline int lathe_json_next(lathe_json_members *it)
{
    if (it->rest.bytes > 0 && it->n > 0 && it->rest.data[0] == ',')
        lathe_json__skip(&it->rest, 1);
    if (it->rest.bytes > 0 && it->is_object) {
        it->key = lathe_json__take(&it->rest);
        if (lathe_json_kind(it->key) != LATHE_JSON_STRING || it->rest.bytes == 0 ||
            it->rest.data[0] != ':')
            return 0;
        lathe_json__skip(&it->rest, 1);
    }
    if (it->rest.bytes <= 0)
        return 0;
    it->value = lathe_json__take(&it->rest);
    it->n++;
    return it->value.bytes > 0;
}

/** The member of an object; none: it lacks it. */
static inline lathe_chars lathe_json_get(lathe_chars object, const char *key)
{
    lathe_json_members it = lathe_json_open(object);
    while (lathe_json_next(&it))
        if (lathe_json_is(it.key, key))
            return it.value;
    return (lathe_chars){NULL, 0};
}

/** Whether a template's `if` takes the value: not null, false, 0, an empty string, list or object,
 *  or none. */
static inline int lathe_json_holds(lathe_chars value)
{
    lathe_json_members it = lathe_json_open(value);
    switch (lathe_json_kind(value)) {
    case LATHE_JSON_OBJECT:
    case LATHE_JSON_LIST:
        return lathe_json_next(&it);
    case LATHE_JSON_STRING:
        return lathe_json_inside(value).bytes > 0;
    case LATHE_JSON_NUMBER:
        for (int64_t i = 0; i < value.bytes && value.data[i] != 'e' && value.data[i] != 'E'; i++)
            if (value.data[i] >= '1' && value.data[i] <= '9')
                return 1;
        return 0;
    default:
        return lathe_json_kind(value) == LATHE_JSON_TRUE;
    }
}

#endif
