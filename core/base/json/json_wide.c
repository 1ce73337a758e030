/* Integers beyond 64 bits ("wide") in a JSON tree. Jansson refuses them, and a double would lose
 * digits: ids and hashes in data are often of this kind, and templates write them out again. In the
 * tree, an object with one member stands for a wide integer: wide_key, with the digits as a string.
 */
#include "base/json/json_wide.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

/* No JSON text can have this key: the parser refuses bytes that are not UTF-8. */
static const char wide_key[] = "\xff";

const char *lathe_json_wide(const json_t *value)
{
    return json_is_object(value) && json_object_size(value) == 1
               ? json_string_value(json_object_get(value, wide_key))
               : NULL;
}

/* Writes the digits of wide integers; json_dumps() would write the objects that stand for them. */
void lathe_json_write_exact(const json_t *value, lathe_buffer *out)
{
    const char *key, *wide = lathe_json_wide(value);
    json_t *inner;
    int n = 0;
    if (wide != NULL) {
        lathe_buffer_puts(out, wide);
    } else if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            lathe_buffer_puts(out, i > 0 ? "," : "[");
            lathe_json_write_exact(json_array_get(value, i), out);
        }
        lathe_buffer_puts(out, json_array_size(value) > 0 ? "]" : "[]");
    } else if (json_is_object(value)) {
        json_object_foreach((json_t *)(uintptr_t)value, key, inner)
        {
            lathe_buffer_puts(out, n++ > 0 ? "," : "{");
            lathe_buffer_json_string(out, key);
            lathe_buffer_puts(out, ":");
            lathe_json_write_exact(inner, out);
        }
        lathe_buffer_puts(out, n > 0 ? "}" : "{}");
    } else {
        char *text = json_dumps(value, JSON_ENCODE_ANY);
        lathe_buffer_puts(out, text != NULL ? text : "null");
        free(text);
    }
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int64_t lathe__json_number_end(const char *text, int64_t bytes, int64_t at, int *out_wide)
{
    const int64_t begin = at + (text[at] == '-');
    for (at = begin; at < bytes && is_digit(text[at]);)
        at++;
    /* The digits are compared as text, because strtoll cannot tell how much too large a number is.
     * Texts of equal length compare like their numbers, as JSON has no leading zeros. */
    const int whole = at == bytes || (text[at] != '.' && text[at] != 'e' && text[at] != 'E');
    const char *const limit =
        begin > 0 && text[begin - 1] == '-' ? "9223372036854775808" : "9223372036854775807";
    const int64_t n = at - begin;
    *out_wide = whole && (n > 19 || (n == 19 && memcmp(text + begin, limit, 19) > 0));
    while (at < bytes && (is_digit(text[at]) || lathe_is_one_of(text[at], ".eE+-")))
        at++;
    return at;
}

/* A walk over the numbers of a text. Jansson keeps the order of members, so the tree has its
 * numbers in the same order. */
typedef struct numbers {
    const char *text;
    int64_t bytes, at;
} numbers;

/* Moves past the next number of the text. Returns the object for a wide integer; NULL for any other
 * number, or if memory runs out (*out_wide is 1 then). */
static json_t *next_number(numbers *it, int *out_wide)
{
    int in_string = 0;
    for (; it->at < it->bytes; it->at++) {
        const char c = it->text[it->at];
        if (in_string && c == '\\')
            it->at++; /* the escaped character may be a quote */
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (is_digit(c) || c == '-'))
            break;
    }
    *out_wide = 0;
    if (it->at >= it->bytes)
        return NULL;
    const int64_t begin = it->at;
    it->at = lathe__json_number_end(it->text, it->bytes, begin, out_wide);
    if (!*out_wide)
        return NULL;
    json_t *out = json_object();
    if (out != NULL &&
        json_object_set_new_nocheck(out, wide_key,
                                    json_stringn(it->text + begin, (size_t)(it->at - begin))) == 0)
        return out;
    json_decref(out);
    return NULL;
}

/* Replaces the wide integers within a value. *out: the object that has to replace the value itself,
 * or NULL. Returns 0 if memory runs out. The recursion is bounded by the parser's depth. */
static int replace(numbers *it, json_t *value, json_t **out)
{
    json_t *element, *other;
    size_t i;
    int is_wide;
    *out = NULL;
    if (json_is_number(value)) {
        *out = next_number(it, &is_wide);
        return !is_wide || *out != NULL;
    }
    json_array_foreach(value, i, element)
    {
        if (!replace(it, element, &other) ||
            (other != NULL && json_array_set_new(value, i, other) != 0))
            return 0;
    }
    if (!json_is_object(value))
        return 1;
    for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at))
        if (!replace(it, json_object_iter_value(at), &other) ||
            (other != NULL && json_object_iter_set_new(value, at, other) != 0))
            return 0;
    return 1;
}

lathe_status lathe__json_keep_wide(const char *text, int64_t bytes, json_t **io_root)
{
    numbers it = {text, bytes, 0};
    json_t *other = NULL;
    const int done = replace(&it, *io_root, &other);
    if (done && other == NULL)
        return LATHE_OK;
    json_decref(*io_root);
    *io_root = other;
    return done ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for an integer in JSON");
}
