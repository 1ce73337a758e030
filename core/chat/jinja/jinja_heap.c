/* Allocates the memory of one rendering of a template, within its limits, and the containers of
 * its values. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/jinja/jinja_vm.h"

enum { STEP_BYTES = 32, GROWS_FROM = 256 };
enum { COUNTED = 256 }; /* bytes whose characters are counted at once */

/* ---- errors and limits ---- */

lathe_status lathe__jinja_raise(jinja_vm *vm, lathe_status code, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    text[lathe_utf8_prefix((const uint8_t *)text, (int64_t)strlen(text))] = 0; /* cut character */
    const int line = vm->at ? vm->at->line : 1, column = vm->at ? vm->at->column : 1;
    return lathe_error_in(code, vm->name, line, column, "%s", text);
}

lathe_status lathe__jinja_raise_undefined(jinja_vm *vm, jinja_value x)
{
    if (x.type == JINJA_UNSAFE)
        return lathe__jinja_raise(
            vm, LATHE_E_CONFIG, "'%s' cannot be used: a template may not change values", x.u.name);
    if (x.kind == JINJA_MISSING_NAME)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "the variable '%s' is undefined", x.u.name);
    if (x.kind == JINJA_MISSING_MEMBER)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "the value has no '%s'", x.u.name);
    return lathe__jinja_raise(vm, LATHE_E_CONFIG, "%s", x.u.name);
}

const char *lathe__jinja_type_name(jinja_value x)
{
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "undefined value",
        [JINJA_NONE] = "none",
        [JINJA_BOOL] = "bool",
        [JINJA_INT] = "int",
        [JINJA_FLOAT] = "float",
        [JINJA_STRING] = "string",
        [JINJA_LIST] = "list",
        [JINJA_DICT] = "mapping",
        [JINJA_NAMESPACE] = "namespace",
        [JINJA_MACRO] = "macro",
        [JINJA_FUNCTION] = "function",
        [JINJA_METHOD] = "method",
        [JINJA_LOOP] = "loop",
        [JINJA_WIDE] = "int",
        [JINJA_UNSAFE] = "undefined value",
    };
    static const char *const sequences[] = {
        [JINJA_SEQ_LIST] = "list",
        [JINJA_SEQ_TUPLE] = "tuple",
        [JINJA_SEQ_RANGE] = "range",
        [JINJA_SEQ_KEYS] = "view of a mapping",
        [JINJA_SEQ_VALUES] = "view of a mapping",
        [JINJA_SEQ_ITEMS] = "view of a mapping",
        [JINJA_SEQ_GENERATOR] = "generator",
    };
    return x.type == JINJA_LIST ? sequences[x.kind] : names[x.type];
}

lathe_status lathe__jinja_raise_type(jinja_vm *vm, jinja_value x, const char *what)
{
    if (jinja_is_undefined(x))
        return lathe__jinja_raise_undefined(vm, x);
    return lathe__jinja_raise(vm, LATHE_E_CONFIG, "a value of type %s cannot be %s",
                              lathe__jinja_type_name(x), what);
}

lathe_status lathe__jinja_charge(jinja_vm *vm, int64_t bytes)
{
    vm->steps += 1 + bytes / STEP_BYTES;
    if (vm->steps <= vm->limits.steps)
        return LATHE_OK;
    return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED,
                              "the template takes more than %lld steps; it may never end",
                              (long long)vm->limits.steps);
}

void *lathe__jinja_alloc(jinja_vm *vm, int64_t bytes)
{
    vm->failure = lathe__jinja_charge(vm, bytes);
    if (vm->failure != LATHE_OK)
        return NULL;
    if (bytes > vm->limits.memory_bytes ||
        vm->arena.total_bytes > vm->limits.memory_bytes - bytes) {
        vm->failure = lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED,
                                         "the template takes more than %lld MiB of memory",
                                         (long long)(vm->limits.memory_bytes >> 20));
        return NULL;
    }
    vm->failure = LATHE_E_NOMEM;
    return lathe_arena_alloc(&vm->arena, bytes ? bytes : 1);
}

lathe_status lathe__jinja_enter(jinja_vm *vm)
{
    if (++vm->depth > vm->limits.depth)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED,
                                  "values, blocks and macro calls are nested more than %d deep",
                                  vm->limits.depth);
    return lathe__jinja_charge(vm, 0);
}

/* ---- text and strings ---- */

int lathe__jinja_is_space(int32_t c)
{
    return lathe_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

int64_t lathe__jinja_count(const char *text, int64_t n)
{
    const uint64_t ones = 0x0101010101010101u;
    int64_t count = 0, i = 0;
    for (uint64_t x; n - i >= 8; i += 8) { /* eight bytes at once: 10xxxxxx continues a character */
        memcpy(&x, text + i, sizeof x);
        x = (x >> 7) & ~(x >> 6) & ones;
        count += 8 - (int64_t)(x * ones >> 56);
    }
    for (; i < n; i++)
        count += ((uint8_t)text[i] & 0xc0) != 0x80;
    return count;
}

jinja_string *lathe__jinja_constant(lathe_arena *arena, const char *text, int64_t n)
{
    jinja_string *s = lathe_arena_alloc(arena, sizeof *s);
    if (s)
        *s = (jinja_string){text, n, lathe__jinja_count(text, n), NULL};
    return s;
}

lathe_status lathe__jinja_put(jinja_vm *vm, jinja_text *text, const char *data, int64_t n)
{
    if (text->n + n > text->capacity) {
        const int64_t capacity = 2 * (text->n + n) + 64;
        char *grown = lathe__jinja_alloc(vm, capacity);
        if (grown == NULL)
            return lathe__jinja_failed(vm);
        if (text->n)
            memcpy(grown, text->data, (size_t)text->n);
        text->data = grown;
        text->capacity = capacity;
    }
    if (n)
        memcpy(text->data + text->n, data, (size_t)n);
    text->n += n;
    if (text == &vm->root && text->n > vm->limits.output_bytes)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED,
                                  "the rendered text is longer than %lld bytes",
                                  (long long)vm->limits.output_bytes);
    return lathe__jinja_charge(vm, n);
}

lathe_status lathe__jinja_puts(jinja_vm *vm, jinja_text *text, const char *data)
{
    return lathe__jinja_put(vm, text, data, (int64_t)strlen(data));
}

static lathe_status new_string(jinja_vm *vm, const char *data, int64_t n, jinja_block *block,
                               jinja_value *out)
{
    jinja_string *s = lathe__jinja_alloc(vm, (int64_t)sizeof *s);
    if (s == NULL)
        return lathe__jinja_failed(vm);
    *s = (jinja_string){data, n, n == 0 ? 0 : -1, block};
    *out = (jinja_value){.type = JINJA_STRING, .u.s = s};
    return LATHE_OK;
}

lathe_status lathe__jinja_borrow(jinja_vm *vm, const char *data, int64_t n, jinja_value *out)
{
    return new_string(vm, data, n, NULL, out);
}

lathe_status lathe__jinja_take(jinja_vm *vm, jinja_text *text, jinja_value *out)
{
    LATHE_TRY(new_string(vm, text->data ? text->data : "", text->n, NULL, out));
    *text = (jinja_text){NULL, 0, 0};
    return LATHE_OK;
}

lathe_status lathe__jinja_join2(jinja_vm *vm, const jinja_string *a, const jinja_string *b,
                                jinja_value *out)
{
    jinja_block *block = a->block;
    if (b->n == 0)
        return new_string(vm, a->data, a->n, a->block, out);
    LATHE_TRY(lathe__jinja_charge(vm, b->n));
    if (block && a->data + a->n == block->data + block->used &&
        block->capacity - block->used >= b->n) {
        memcpy(block->data + block->used, b->data, (size_t)b->n);
        block->used += b->n;
        return new_string(vm, a->data, a->n + b->n, block, out);
    }
    const int64_t n = a->n + b->n, capacity = n >= GROWS_FROM ? 2 * n : n;
    char *data = lathe__jinja_alloc(vm, capacity);
    if (data == NULL)
        return lathe__jinja_failed(vm);
    if (a->n)
        memcpy(data, a->data, (size_t)a->n);
    memcpy(data + a->n, b->data, (size_t)b->n);
    block = NULL;
    if (capacity > n) {
        block = lathe__jinja_alloc(vm, (int64_t)sizeof *block);
        if (block == NULL)
            return lathe__jinja_failed(vm);
        *block = (jinja_block){n, capacity, data};
    }
    return new_string(vm, data, n, block, out);
}

int64_t lathe__jinja_chars(jinja_string *s)
{
    if (s->n_chars < 0)
        s->n_chars = lathe__jinja_count(s->data, s->n);
    return s->n_chars;
}

int64_t lathe__jinja_offset(jinja_string *s, int64_t index)
{
    if (lathe__jinja_chars(s) == s->n)
        return index;
    int64_t i = 0;
    for (int64_t n; s->n - i >= COUNTED; i += COUNTED) {
        n = lathe__jinja_count(s->data + i, COUNTED);
        if (index < n)
            break;
        index -= n;
    }
    for (; i < s->n; i++)
        if (((uint8_t)s->data[i] & 0xc0) != 0x80 && index-- == 0)
            break;
    return i;
}

/* ---- sequences ---- */

lathe_status lathe__jinja_list(jinja_vm *vm, int kind, int64_t n, jinja_value *out)
{
    jinja_list *list = lathe__jinja_alloc(vm, (int64_t)sizeof *list);
    if (list == NULL)
        return lathe__jinja_failed(vm);
    *list = (jinja_list){NULL, n, 0, NULL};
    if (n > 0) {
        list->items = lathe__jinja_alloc(vm, n * (int64_t)sizeof *list->items);
        if (list->items == NULL)
            return lathe__jinja_failed(vm);
    }
    *out = (jinja_value){.type = JINJA_LIST, .kind = (uint8_t)kind, .u.list = list};
    return LATHE_OK;
}

/* Room for n_more items after the list's own, which its block does not share with other lists. */
static lathe_status list_room(jinja_vm *vm, jinja_list *list, int64_t n_more)
{
    jinja_block *block = list->block;
    const int64_t size = (int64_t)sizeof *list->items;
    if (block && block->used == list->n && block->capacity - block->used >= n_more) {
        block->used += n_more;
        return LATHE_OK;
    }
    const int64_t capacity = 2 * (list->n + n_more) + 4;
    block = lathe__jinja_alloc(vm, (int64_t)sizeof *block);
    if (block == NULL)
        return lathe__jinja_failed(vm);
    *block = (jinja_block){list->n + n_more, capacity, lathe__jinja_alloc(vm, capacity * size)};
    if (block->data == NULL)
        return lathe__jinja_failed(vm);
    if (list->n)
        memcpy(block->data, list->items, (size_t)(list->n * size));
    list->items = (jinja_value *)(void *)block->data;
    list->block = block;
    return LATHE_OK;
}

lathe_status lathe__jinja_append(jinja_vm *vm, jinja_list *list, jinja_value item)
{
    LATHE_TRY(list_room(vm, list, 1));
    list->items[list->n++] = item;
    return LATHE_OK;
}

lathe_status lathe__jinja_join_lists(jinja_vm *vm, jinja_value a, jinja_value b, jinja_value *out)
{
    jinja_list *list = lathe__jinja_alloc(vm, (int64_t)sizeof *list);
    if (list == NULL)
        return lathe__jinja_failed(vm);
    const jinja_list *more = b.u.list;
    *list = *a.u.list;
    if (more->n) {
        LATHE_TRY(list_room(vm, list, more->n));
        memcpy(list->items + list->n, more->items, (size_t)more->n * sizeof *list->items);
        list->n += more->n;
    }
    *out = (jinja_value){.type = JINJA_LIST, .kind = a.kind, .u.list = list};
    return lathe__jinja_charge(vm, more->n * (int64_t)sizeof *list->items);
}

static lathe_status characters(jinja_vm *vm, jinja_string *s, jinja_list *out)
{
    jinja_value list = {0};
    LATHE_TRY(lathe__jinja_list(vm, JINJA_SEQ_LIST, lathe__jinja_chars(s), &list));
    int64_t at = 0;
    for (int64_t i = 0; i < list.u.list->n; i++) {
        int32_t len;
        (void)lathe_utf8_at((const uint8_t *)s->data + at, s->n - at, &len);
        LATHE_TRY(lathe__jinja_borrow(vm, s->data + at, len, &list.u.list->items[i]));
        at += len;
    }
    *out = *list.u.list;
    return LATHE_OK;
}

lathe_status lathe__jinja_iterate(jinja_vm *vm, jinja_value x, jinja_list *out)
{
    *out = (jinja_list){NULL, 0, 0, NULL};
    jinja_value keys = {0};
    switch (x.type) {
    case JINJA_UNDEFINED:
        return LATHE_OK;
    case JINJA_LIST:
        *out = *x.u.list;
        if (x.kind == JINJA_SEQ_GENERATOR) {
            out->items = x.u.list->n ? x.u.list->items + x.u.list->consumed : NULL;
            out->n -= x.u.list->consumed;
            out->block = NULL;
            x.u.list->consumed = x.u.list->n;
        }
        return LATHE_OK;
    case JINJA_DICT:
        LATHE_TRY(lathe__jinja_view(vm, x.u.dict, JINJA_SEQ_KEYS, &keys));
        *out = *keys.u.list;
        return LATHE_OK;
    case JINJA_STRING:
        return characters(vm, x.u.s, out);
    default:
        return lathe__jinja_raise_type(vm, x, "looped over");
    }
}

/* ---- mappings ---- */

static lathe_status dict_resize(jinja_vm *vm, jinja_dict *d, int64_t capacity)
{
    if (capacity > INT32_MAX / 4)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "a mapping of more than 2^29 members");
    jinja_entry *entries = lathe__jinja_alloc(vm, capacity * (int64_t)sizeof *entries);
    int32_t *table = lathe__jinja_alloc(vm, 2 * capacity * (int64_t)sizeof *table);
    if (entries == NULL || table == NULL)
        return lathe__jinja_failed(vm);
    if (d->n)
        memcpy(entries, d->entries, (size_t)d->n * sizeof *entries);
    memset(table, 0xff, (size_t)(2 * capacity) * sizeof *table);
    for (int64_t i = 0; i < d->n; i++) {
        uint64_t at = entries[i].hash % (uint64_t)(2 * capacity);
        while (table[at] >= 0)
            at = (at + 1) % (uint64_t)(2 * capacity);
        table[at] = (int32_t)i;
    }
    d->entries = entries;
    d->table = table;
    d->capacity = capacity;
    return LATHE_OK;
}

lathe_status lathe__jinja_dict(jinja_vm *vm, int type, int64_t capacity, jinja_value *out)
{
    jinja_dict *d = lathe__jinja_alloc(vm, (int64_t)sizeof *d);
    if (d == NULL)
        return lathe__jinja_failed(vm);
    memset(d, 0, sizeof *d);
    *out = (jinja_value){.type = (uint8_t)type, .u.dict = d};
    return dict_resize(vm, d, capacity < 4 ? 4 : capacity);
}

lathe_status lathe__jinja_dict_find(jinja_vm *vm, const jinja_dict *d, jinja_value key,
                                    jinja_entry **out)
{
    uint64_t hash;
    *out = NULL;
    LATHE_TRY(lathe__jinja_hash(vm, key, &hash));
    uint64_t at = hash % (uint64_t)(2 * d->capacity);
    for (; d->table[at] >= 0; at = (at + 1) % (uint64_t)(2 * d->capacity)) {
        jinja_entry *entry = &d->entries[d->table[at]];
        int same = 0;
        LATHE_TRY(lathe__jinja_charge(vm, 0));
        if (entry->hash == hash)
            LATHE_TRY(lathe__jinja_equal(vm, entry->key, key, &same));
        if (same) {
            *out = entry;
            return LATHE_OK;
        }
    }
    return LATHE_OK;
}

lathe_status lathe__jinja_dict_set(jinja_vm *vm, jinja_dict *d, jinja_value key, jinja_value value)
{
    jinja_entry *entry;
    LATHE_TRY(lathe__jinja_dict_find(vm, d, key, &entry));
    if (entry) {
        entry->value = value;
        return LATHE_OK;
    }
    if (d->n == d->capacity)
        LATHE_TRY(dict_resize(vm, d, 2 * d->capacity));
    uint64_t hash;
    LATHE_TRY(lathe__jinja_hash(vm, key, &hash));
    uint64_t at = hash % (uint64_t)(2 * d->capacity);
    while (d->table[at] >= 0)
        at = (at + 1) % (uint64_t)(2 * d->capacity);
    d->table[at] = (int32_t)d->n;
    d->entries[d->n++] = (jinja_entry){key, value, hash};
    return LATHE_OK;
}

jinja_value *lathe__jinja_dict_get(const jinja_dict *d, const char *key, int64_t n)
{
    const uint64_t hash = lathe__jinja_hash_bytes(key, n);
    uint64_t at = hash % (uint64_t)(2 * d->capacity);
    for (; d->table[at] >= 0; at = (at + 1) % (uint64_t)(2 * d->capacity)) {
        jinja_entry *entry = &d->entries[d->table[at]];
        if (entry->hash == hash && entry->key.type == JINJA_STRING && entry->key.u.s->n == n &&
            memcmp(entry->key.u.s->data, key, (size_t)n) == 0)
            return &entry->value;
    }
    return NULL;
}

lathe_status lathe__jinja_view(jinja_vm *vm, const jinja_dict *d, int kind, jinja_value *out)
{
    LATHE_TRY(lathe__jinja_list(vm, kind, d->n, out));
    for (int64_t i = 0; i < d->n; i++) {
        jinja_value *item = &out->u.list->items[i];
        if (kind == JINJA_SEQ_KEYS || kind == JINJA_SEQ_VALUES) {
            *item = kind == JINJA_SEQ_KEYS ? d->entries[i].key : d->entries[i].value;
            continue;
        }
        LATHE_TRY(lathe__jinja_list(vm, JINJA_SEQ_TUPLE, 2, item));
        item->u.list->items[0] = d->entries[i].key;
        item->u.list->items[1] = d->entries[i].value;
    }
    return LATHE_OK;
}
