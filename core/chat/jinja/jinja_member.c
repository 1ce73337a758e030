/* Members of values: attributes, items, slices, methods; and the arguments of calls. */
#include <string.h>

#include "chat/jinja/jinja_vm.h"

lathe_status lathe__jinja_bind(jinja_vm *vm, const char *what, const jinja_args *args,
                               const char *const *params, int32_t n_required, jinja_value *out)
{
    int32_t n = 0;
    uint32_t given = 0;
    while (params[n])
        n++;
    if (args->n > n)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "%s takes at most %d arguments, %d are given",
                                  what, n, args->n);
    for (int32_t i = 0; i < args->n; i++) {
        out[i] = args->plain[i];
        given |= 1u << i;
    }
    for (int32_t k = 0; k < args->n_named; k++) {
        int32_t i = 0;
        while (i < n && strcmp(params[i], args->names[k]) != 0)
            i++;
        if (i == n)
            return lathe__jinja_raise(vm, LATHE_E_CONFIG, "%s takes no argument '%s'", what,
                                      args->names[k]);
        if (given & 1u << i)
            return lathe__jinja_raise(vm, LATHE_E_CONFIG, "%s has two values for '%s'", what,
                                      args->names[k]);
        out[i] = args->named[k];
        given |= 1u << i;
    }
    for (int32_t i = 0; i < n_required; i++)
        if (!(given & 1u << i))
            return lathe__jinja_raise(vm, LATHE_E_CONFIG, "%s lacks the argument '%s'", what,
                                      params[i][0] == '.' ? params[i] + 1 : params[i]);
    return LATHE_OK;
}

/* ---- attributes ---- */

static int is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return 1;
    return 0;
}

static const char *const dict_methods[] = {"get", "items", "keys", "values", "copy", NULL};
static const char *const dict_unsafe[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
static const char *const list_methods[] = {"index", "count", "copy", NULL};
static const char *const list_unsafe[] = {"append", "clear",   "extend", "insert", "pop",
                                          "remove", "reverse", "sort",   NULL};

/* Looks up the method `name` of x. *out: JINJA_METHOD, or JINJA_UNSAFE if the method would change
 * x. *found: 0 if x has no such method. */
static lathe_status find_method(jinja_vm *vm, jinja_value x, const char *name, jinja_value *out,
                                int *found)
{
    const int is_list = x.type == JINJA_LIST && x.kind == JINJA_SEQ_LIST;
    const int is_tuple = x.type == JINJA_LIST && x.kind == JINJA_SEQ_TUPLE;
    *found = 1;
    if ((x.type == JINJA_DICT && is_one_of(name, dict_unsafe)) ||
        (is_list && is_one_of(name, list_unsafe))) {
        *out = (jinja_value){.type = JINJA_UNSAFE, .u.name = name};
        return LATHE_OK;
    }
    *found = (x.type == JINJA_DICT && is_one_of(name, dict_methods)) ||
             ((is_list || is_tuple) && is_one_of(name, list_methods)) ||
             (x.type == JINJA_STRING && lathe__jinja_has_string_method(name));
    if (!*found)
        return LATHE_OK;
    jinja_method *method = lathe__jinja_alloc(vm, (int64_t)sizeof *method);
    if (method == NULL)
        return lathe__jinja_failed(vm);
    *method = (jinja_method){x, name};
    *out = (jinja_value){.type = JINJA_METHOD, .u.method = method};
    return LATHE_OK;
}

lathe_status lathe__jinja_getattr(jinja_vm *vm, jinja_value x, const char *name, jinja_value *out)
{
    int found;
    if (jinja_is_undefined(x))
        return lathe__jinja_raise_undefined(vm, x);
    if (x.type == JINJA_LOOP)
        return x.u.loop->attr(vm, x.u.loop, name, out);
    LATHE_TRY(find_method(vm, x, name, out, &found));
    if (found)
        return LATHE_OK;
    if (x.type == JINJA_DICT || x.type == JINJA_NAMESPACE) {
        const jinja_value *value = lathe__jinja_dict_get(x.u.dict, name, (int64_t)strlen(name));
        if (value) {
            *out = *value;
            return LATHE_OK;
        }
    }
    *out = jinja_undefined(JINJA_MISSING_MEMBER, name);
    return LATHE_OK;
}

/* A copy of a key's text with a NUL, for the name of a member that is missing. */
static lathe_status member_name(jinja_vm *vm, const jinja_string *key, const char **out)
{
    char *name = lathe__jinja_alloc(vm, key->n + 1);
    if (name == NULL)
        return lathe__jinja_failed(vm);
    if (key->n)
        memcpy(name, key->data, (size_t)key->n);
    name[key->n] = 0;
    *out = name;
    return LATHE_OK;
}

/* x[i] of a sequence or string; *found = 0 beyond its ends. */
static lathe_status item_at(jinja_vm *vm, jinja_value x, int64_t i, jinja_value *out, int *found)
{
    const int64_t n = x.type == JINJA_STRING ? lathe__jinja_chars(x.u.s) : x.u.list->n;
    if (i < 0)
        i += n;
    *found = i >= 0 && i < n;
    if (!*found)
        return LATHE_OK;
    if (x.type == JINJA_LIST) {
        *out = x.u.list->items[i];
        return LATHE_OK;
    }
    const int64_t begin = lathe__jinja_offset(x.u.s, i);
    int64_t end = begin + 1;
    while (end < x.u.s->n && ((uint8_t)x.u.s->data[end] & 0xc0) == 0x80)
        end++;
    LATHE_TRY(lathe__jinja_charge(vm, end));
    LATHE_TRY(lathe__jinja_borrow(vm, x.u.s->data + begin, end - begin, out));
    out->kind = x.kind;
    return LATHE_OK;
}

lathe_status lathe__jinja_getitem(jinja_vm *vm, jinja_value x, jinja_value key, jinja_value *out)
{
    int found = 0;
    if (jinja_is_undefined(x))
        return lathe__jinja_raise_undefined(vm, x);
    if (x.type == JINJA_DICT && key.type != JINJA_LIST && key.type != JINJA_DICT) {
        jinja_entry *entry;
        LATHE_TRY(lathe__jinja_dict_find(vm, x.u.dict, key, &entry));
        if (entry) {
            *out = entry->value;
            return LATHE_OK;
        }
    } else if (x.type == JINJA_DICT && key.type == JINJA_LIST && key.kind == JINJA_SEQ_TUPLE) {
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "a tuple as a key is not supported");
    }
    const int has_items =
        x.type == JINJA_STRING || (x.type == JINJA_LIST && x.kind <= JINJA_SEQ_RANGE);
    if (has_items && jinja_is_whole(key))
        LATHE_TRY(item_at(vm, x, key.u.i, out, &found));
    if (found)
        return LATHE_OK;
    if (key.type == JINJA_STRING) {
        const char *name = NULL;
        LATHE_TRY(member_name(vm, key.u.s, &name));
        if (x.type != JINJA_DICT)
            return lathe__jinja_getattr(vm, x, name, out);
        LATHE_TRY(find_method(vm, x, name, out, &found));
        if (!found)
            *out = jinja_undefined(JINJA_MISSING_MEMBER, name);
        return LATHE_OK;
    }
    *out = jinja_undefined(JINJA_MISSING_OTHER, jinja_is_whole(key)
                                                    ? "the sequence has no item of this index"
                                                    : "the value has no item of this key");
    return LATHE_OK;
}

/* ---- slices ---- */

/* Start, stop and step for n items, clamped as by Python's slice.indices(n). */
static lathe_status slice_indices(jinja_vm *vm, const jinja_value bounds[3], int64_t n,
                                  int64_t out[3])
{
    for (int i = 0; i < 3; i++) {
        if (bounds[i].type != JINJA_NONE && !jinja_is_whole(bounds[i]))
            return lathe__jinja_raise_type(vm, bounds[i], "a bound of a slice");
        out[i] = bounds[i].u.i;
    }
    const int64_t step = out[2] = bounds[2].type == JINJA_NONE ? 1 : out[2];
    if (step == 0)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "the step of a slice is 0");
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    for (int i = 0; i < 2; i++) {
        if (bounds[i].type == JINJA_NONE) {
            out[i] = (step < 0) == (i == 0) ? high : low;
            continue;
        }
        if (out[i] < 0)
            out[i] = out[i] < -n ? low : out[i] + n;
        out[i] = out[i] < low ? low : out[i] > high ? high : out[i];
    }
    return LATHE_OK;
}

static lathe_status slice_string(jinja_vm *vm, jinja_value x, const int64_t at[3], jinja_value *out)
{
    jinja_string *s = x.u.s;
    LATHE_TRY(lathe__jinja_charge(vm, s->n));
    if (at[2] == 1) {
        const int64_t begin = lathe__jinja_offset(s, at[0]);
        const int64_t end = at[1] > at[0] ? lathe__jinja_offset(s, at[1]) : begin;
        LATHE_TRY(lathe__jinja_borrow(vm, s->data + begin, end - begin, out));
    } else {
        jinja_list chars;
        jinja_text text = {NULL, 0, 0};
        LATHE_TRY(lathe__jinja_iterate(vm, x, &chars));
        for (int64_t i = at[0]; at[2] > 0 ? i < at[1] : i > at[1]; i += at[2])
            LATHE_TRY(lathe__jinja_put(vm, &text, chars.items[i].u.s->data, chars.items[i].u.s->n));
        LATHE_TRY(lathe__jinja_take(vm, &text, out));
    }
    out->kind = x.kind;
    return LATHE_OK;
}

lathe_status lathe__jinja_slice(jinja_vm *vm, jinja_value x, const jinja_value bounds[3],
                                jinja_value *out)
{
    int64_t at[3] = {0};
    const int is_list = x.type == JINJA_LIST && x.kind <= JINJA_SEQ_RANGE;
    if (!is_list && x.type != JINJA_STRING)
        return lathe__jinja_raise_type(vm, x, "cut into a slice");
    LATHE_TRY(slice_indices(vm, bounds, is_list ? x.u.list->n : lathe__jinja_chars(x.u.s), at));
    if (at[2] > (INT64_MAX >> 2) || at[2] < -(INT64_MAX >> 2))
        at[2] = at[2] < 0
                    ? -(INT64_MAX >> 2)
                    : INT64_MAX >> 2; /* so that i += step cannot overflow; one item at most */
    if (x.type == JINJA_STRING)
        return slice_string(vm, x, at, out);
    int64_t n = 0;
    for (int64_t i = at[0]; at[2] > 0 ? i < at[1] : i > at[1]; i += at[2])
        n++;
    LATHE_TRY(lathe__jinja_list(vm, x.kind, n, out));
    for (int64_t k = 0; k < n; k++)
        out->u.list->items[k] = x.u.list->items[at[0] + k * at[2]];
    return LATHE_OK;
}

/* ---- methods of mappings and sequences ---- */

static lathe_status dict_method(jinja_vm *vm, const char *name, const jinja_dict *d,
                                const jinja_args *args, jinja_value *out)
{
    static const char *const of_get[] = {".key", ".default", NULL};
    static const char *const none[] = {NULL};
    jinja_value given[2] = {jinja_none(), jinja_none()};
    if (strcmp(name, "get") == 0) {
        jinja_entry *entry;
        LATHE_TRY(lathe__jinja_bind(vm, "get", args, of_get, 1, given));
        LATHE_TRY(lathe__jinja_dict_find(vm, d, given[0], &entry));
        *out = entry ? entry->value : given[1];
        return LATHE_OK;
    }
    LATHE_TRY(lathe__jinja_bind(vm, name, args, none, 0, given));
    if (strcmp(name, "copy") == 0) {
        LATHE_TRY(lathe__jinja_dict(vm, JINJA_DICT, d->n, out));
        for (int64_t i = 0; i < d->n; i++)
            LATHE_TRY(
                lathe__jinja_dict_set(vm, out->u.dict, d->entries[i].key, d->entries[i].value));
        return LATHE_OK;
    }
    return lathe__jinja_view(vm, d,
                             name[0] == 'k'   ? JINJA_SEQ_KEYS
                             : name[0] == 'v' ? JINJA_SEQ_VALUES
                                              : JINJA_SEQ_ITEMS,
                             out);
}

static lathe_status list_method(jinja_vm *vm, const char *name, jinja_value self,
                                const jinja_args *args, jinja_value *out)
{
    static const char *const one[] = {".value", NULL};
    static const char *const none[] = {NULL};
    jinja_value given[1] = {{0}};
    int64_t count = 0;
    if (strcmp(name, "copy") == 0) {
        LATHE_TRY(lathe__jinja_bind(vm, name, args, none, 0, given));
        *out = self;
        return LATHE_OK;
    }
    LATHE_TRY(lathe__jinja_bind(vm, name, args, one, 1, given));
    for (int64_t i = 0; i < self.u.list->n; i++) {
        int same;
        LATHE_TRY(lathe__jinja_charge(vm, 0));
        LATHE_TRY(lathe__jinja_equal(vm, self.u.list->items[i], given[0], &same));
        if (same && name[0] == 'i') {
            *out = jinja_int(i);
            return LATHE_OK;
        }
        count += same;
    }
    if (name[0] == 'i')
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "the value is not in the list");
    *out = jinja_int(count);
    return LATHE_OK;
}

lathe_status lathe__jinja_call_method(jinja_vm *vm, const jinja_method *method,
                                      const jinja_args *args, jinja_value *out)
{
    if (method->self.type == JINJA_STRING)
        return lathe__jinja_string_method(vm, method->name, method->self, args, out);
    if (method->self.type == JINJA_DICT)
        return dict_method(vm, method->name, method->self.u.dict, args, out);
    return list_method(vm, method->name, method->self, args, out);
}
