/* Converts JSON to values, and implements the filter tojson: Python's json.dumps as transformers
 * calls it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_wide.h"
#include "base/utf8.h"
#include "chat/jinja/jinja_vm.h"

static lathe_status from_object(jinja_vm *vm, json_t *json, jinja_value *out)
{
    LATHE_TRY(lathe__jinja_dict(vm, JINJA_DICT, (int64_t)json_object_size(json), out));
    for (void *it = json_object_iter(json); it; it = json_object_iter_next(json, it)) {
        jinja_value key, value;
        const char *name = json_object_iter_key(it);
        LATHE_TRY(lathe__jinja_borrow(vm, name, (int64_t)strlen(name), &key));
        LATHE_TRY(lathe__jinja_from_json(vm, json_object_iter_value(it), &value));
        LATHE_TRY(lathe__jinja_dict_set(vm, out->u.dict, key, value));
    }
    return LATHE_OK;
}

static lathe_status from_array(jinja_vm *vm, json_t *json, jinja_value *out)
{
    const size_t n = json_array_size(json);
    LATHE_TRY(lathe__jinja_list(vm, JINJA_SEQ_LIST, (int64_t)n, out));
    for (size_t i = 0; i < n; i++)
        LATHE_TRY(lathe__jinja_from_json(vm, json_array_get(json, i), &out->u.list->items[i]));
    return LATHE_OK;
}

lathe_status lathe__jinja_from_json(jinja_vm *vm, json_t *json, jinja_value *out)
{
    const char *wide = lathe_json_wide(json);
    if (wide) {
        LATHE_TRY(lathe__jinja_borrow(vm, wide, (int64_t)strlen(wide), out));
        out->type = JINJA_WIDE;
        return LATHE_OK;
    }
    LATHE_TRY(lathe__jinja_enter(vm));
    lathe_status status = LATHE_OK;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        status = from_object(vm, json, out);
        break;
    case JSON_ARRAY:
        status = from_array(vm, json, out);
        break;
    case JSON_STRING:
        status = lathe__jinja_borrow(vm, json_string_value(json), (int64_t)json_string_length(json),
                                     out);
        break;
    case JSON_INTEGER:
        *out = jinja_int(json_integer_value(json));
        break;
    case JSON_REAL:
        *out = jinja_float(json_real_value(json));
        break;
    case JSON_NULL:
        *out = jinja_none();
        break;
    default:
        *out = jinja_bool(json_is_true(json));
        break;
    }
    vm->depth--;
    return status;
}

/* ---- tojson ---- */

typedef struct json_style {
    int ascii, sorts, has_indent;
    jinja_string indent, item, key; /* for each level; between items; after a key */
} json_style;

static lathe_status put_value(jinja_vm *vm, jinja_text *text, const json_style *style, int level,
                              jinja_value x);

static lathe_status put_unit(jinja_vm *vm, jinja_text *text, unsigned unit)
{
    char escape[8];
    (void)snprintf(escape, sizeof escape, "\\u%04x", unit);
    return lathe__jinja_puts(vm, text, escape);
}

static lathe_status put_char(jinja_vm *vm, jinja_text *text, const json_style *style, int32_t c,
                             const char *bytes, int32_t len)
{
    static const char short_escapes[] = "\"\"\\\\\nn\rr\tt\ff\bb";
    for (size_t i = 0; short_escapes[i]; i += 2)
        if (c == short_escapes[i]) {
            const char escape[2] = {'\\', short_escapes[i + 1]};
            return lathe__jinja_put(vm, text, escape, 2);
        }
    if (c >= 0x20 && (!style->ascii || c < 0x7f))
        return lathe__jinja_put(vm, text, bytes, len);
    if (c < 0x10000)
        return put_unit(vm, text, (unsigned)c);
    LATHE_TRY(put_unit(vm, text, 0xd800u + ((unsigned)(c - 0x10000) >> 10)));
    return put_unit(vm, text, 0xdc00u + ((unsigned)(c - 0x10000) & 0x3ffu));
}

static lathe_status put_string(jinja_vm *vm, jinja_text *text, const json_style *style,
                               const jinja_string *s)
{
    LATHE_TRY(lathe__jinja_puts(vm, text, "\""));
    for (int64_t i = 0; i < s->n;) {
        int64_t plain = i; /* what needs no escape is put at once */
        while (plain < s->n && (uint8_t)s->data[plain] >= 0x20 && s->data[plain] != '"' &&
               s->data[plain] != '\\' && (uint8_t)s->data[plain] < 0x7f)
            plain++;
        LATHE_TRY(lathe__jinja_put(vm, text, s->data + i, plain - i));
        i = plain;
        if (i == s->n)
            break;
        int32_t len;
        const int32_t c = lathe_utf8_at((const uint8_t *)s->data + i, s->n - i, &len);
        LATHE_TRY(put_char(vm, text, style, c, s->data + i, len));
        i += len;
    }
    return lathe__jinja_puts(vm, text, "\"");
}

static lathe_status put_break(jinja_vm *vm, jinja_text *text, const json_style *style, int level)
{
    if (!style->has_indent)
        return LATHE_OK;
    LATHE_TRY(lathe__jinja_puts(vm, text, "\n"));
    for (int i = 0; i < level; i++)
        LATHE_TRY(lathe__jinja_put(vm, text, style->indent.data, style->indent.n));
    return LATHE_OK;
}

static lathe_status put_list(jinja_vm *vm, jinja_text *text, const json_style *style, int level,
                             const jinja_list *list)
{
    if (list->n == 0)
        return lathe__jinja_puts(vm, text, "[]");
    LATHE_TRY(lathe__jinja_puts(vm, text, "["));
    for (int64_t i = 0; i < list->n; i++) {
        if (i)
            LATHE_TRY(lathe__jinja_put(vm, text, style->item.data, style->item.n));
        LATHE_TRY(put_break(vm, text, style, level + 1));
        LATHE_TRY(put_value(vm, text, style, level + 1, list->items[i]));
    }
    LATHE_TRY(put_break(vm, text, style, level));
    return lathe__jinja_puts(vm, text, "]");
}

static lathe_status put_key(jinja_vm *vm, jinja_text *text, const json_style *style, jinja_value x)
{
    if (x.type == JINJA_STRING)
        return put_string(vm, text, style, x.u.s);
    if (x.type != JINJA_NONE && x.type != JINJA_WIDE && !jinja_is_number(x))
        return lathe__jinja_raise_type(vm, x, "a key in JSON");
    LATHE_TRY(lathe__jinja_puts(vm, text, "\""));
    LATHE_TRY(put_value(vm, text, style, 0, x));
    return lathe__jinja_puts(vm, text, "\"");
}

/* The entries in the order of their keys: a merge sort, from the shortest runs up. */
static lathe_status sort_entries(jinja_vm *vm, const jinja_dict *d, const jinja_entry **out)
{
    const int64_t bytes = d->n * (int64_t)sizeof(jinja_entry);
    jinja_entry *from = lathe__jinja_alloc(vm, bytes), *to = lathe__jinja_alloc(vm, bytes);
    if (from == NULL || to == NULL)
        return lathe__jinja_failed(vm);
    if (d->n)
        memcpy(from, d->entries, (size_t)bytes);
    for (int64_t width = 1; width < d->n; width *= 2) {
        for (int64_t begin = 0; begin < d->n; begin += 2 * width) {
            const int64_t half = begin + width < d->n ? begin + width : d->n;
            const int64_t end = half + width < d->n ? half + width : d->n;
            int64_t i = begin, j = half;
            for (int64_t k = begin; k < end; k++) {
                int order = -1;
                if (i < half && j < end)
                    LATHE_TRY(lathe__jinja_order(vm, from[i].key, from[j].key, &order));
                to[k] = j >= end || (i < half && order <= 0) ? from[i++] : from[j++];
            }
        }
        jinja_entry *swap = from;
        from = to;
        to = swap;
    }
    *out = from;
    return LATHE_OK;
}

static lathe_status put_dict(jinja_vm *vm, jinja_text *text, const json_style *style, int level,
                             const jinja_dict *d)
{
    const jinja_entry *entries = d->entries;
    if (d->n == 0)
        return lathe__jinja_puts(vm, text, "{}");
    if (style->sorts)
        LATHE_TRY(sort_entries(vm, d, &entries));
    LATHE_TRY(lathe__jinja_puts(vm, text, "{"));
    for (int64_t i = 0; i < d->n; i++) {
        if (i)
            LATHE_TRY(lathe__jinja_put(vm, text, style->item.data, style->item.n));
        LATHE_TRY(put_break(vm, text, style, level + 1));
        LATHE_TRY(put_key(vm, text, style, entries[i].key));
        LATHE_TRY(lathe__jinja_put(vm, text, style->key.data, style->key.n));
        LATHE_TRY(put_value(vm, text, style, level + 1, entries[i].value));
    }
    LATHE_TRY(put_break(vm, text, style, level));
    return lathe__jinja_puts(vm, text, "}");
}

static lathe_status put_value(jinja_vm *vm, jinja_text *text, const json_style *style, int level,
                              jinja_value x)
{
    LATHE_TRY(lathe__jinja_enter(vm));
    if (x.type == JINJA_NONE)
        LATHE_TRY(lathe__jinja_puts(vm, text, "null"));
    else if (x.type == JINJA_BOOL)
        LATHE_TRY(lathe__jinja_puts(vm, text, x.u.i ? "true" : "false"));
    else if (x.type == JINJA_FLOAT && (isnan(x.u.f) || isinf(x.u.f)))
        LATHE_TRY(lathe__jinja_puts(vm, text,
                                    isnan(x.u.f)  ? "NaN"
                                    : x.u.f > 0.0 ? "Infinity"
                                                  : "-Infinity"));
    else if (jinja_is_number(x) || x.type == JINJA_WIDE)
        LATHE_TRY(lathe__jinja_put_str(vm, text, x));
    else if (x.type == JINJA_STRING)
        LATHE_TRY(put_string(vm, text, style, x.u.s));
    else if (x.type == JINJA_LIST && x.kind <= JINJA_SEQ_TUPLE)
        LATHE_TRY(put_list(vm, text, style, level, x.u.list));
    else if (x.type == JINJA_DICT)
        LATHE_TRY(put_dict(vm, text, style, level, x.u.dict));
    else
        return lathe__jinja_raise_type(vm, x, "written as JSON");
    vm->depth--;
    return LATHE_OK;
}

static lathe_status read_indent(jinja_vm *vm, jinja_value x, json_style *style)
{
    style->has_indent = x.type != JINJA_NONE;
    if (x.type == JINJA_NONE)
        return LATHE_OK;
    if (x.type == JINJA_STRING) {
        style->indent = *x.u.s;
        return LATHE_OK;
    }
    if (!jinja_is_whole(x))
        return lathe__jinja_raise_type(vm, x, "the indent of tojson");
    if (x.u.i > 100)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "tojson with an indent beyond 100");
    const int64_t n = x.u.i < 0 ? 0 : x.u.i;
    char *blanks = lathe__jinja_alloc(vm, n + 1);
    if (blanks == NULL)
        return lathe__jinja_failed(vm);
    memset(blanks, ' ', (size_t)n);
    style->indent = (jinja_string){blanks, n, n, NULL};
    return LATHE_OK;
}

lathe_status lathe__jinja_tojson(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                 jinja_value *out)
{
    static const char *const params[] = {"ensure_ascii", "indent", "separators", "sort_keys", NULL};
    jinja_value given[] = {jinja_bool(0), jinja_none(), jinja_none(), jinja_bool(0)};
    jinja_text text = {NULL, 0, 0};
    json_style style = {.key = {": ", 2, 2, NULL}};
    LATHE_TRY(lathe__jinja_bind(vm, "tojson", args, params, 0, given));
    LATHE_TRY(read_indent(vm, given[1], &style));
    style.ascii = lathe__jinja_truth(given[0]);
    style.sorts = lathe__jinja_truth(given[3]);
    style.item =
        style.has_indent ? (jinja_string){",", 1, 1, NULL} : (jinja_string){", ", 2, 2, NULL};
    if (given[2].type != JINJA_NONE) {
        const jinja_value s = given[2];
        if (s.type != JINJA_LIST || s.u.list->n != 2 || s.u.list->items[0].type != JINJA_STRING ||
            s.u.list->items[1].type != JINJA_STRING)
            return lathe__jinja_raise(vm, LATHE_E_CONFIG,
                                      "the separators of tojson are no pair of strings");
        style.item = *s.u.list->items[0].u.s;
        style.key = *s.u.list->items[1].u.s;
    }
    LATHE_TRY(put_value(vm, &text, &style, 0, x));
    return lathe__jinja_take(vm, &text, out);
}
