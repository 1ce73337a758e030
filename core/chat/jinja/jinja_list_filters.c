/* The filters on sequences and mappings. */
#include <string.h>

#include "chat/jinja/jinja_vm.h"

static const char *const no_params[] = {NULL};

static lathe_status filter_list(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                jinja_value *out)
{
    jinja_list items;
    LATHE_TRY(lathe__jinja_bind(vm, "list", args, no_params, 0, out));
    LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
    LATHE_TRY(lathe__jinja_list(vm, JINJA_SEQ_LIST, 0, out));
    out->u.list->items = items.items;
    out->u.list->n = items.n;
    return LATHE_OK;
}

/* ---- attributes of items ---- */

/* attribute "a.b.0" or 0 of an item; NONE: the item itself. */
static lathe_status attribute_of(jinja_vm *vm, jinja_value item, jinja_value path, jinja_value *out)
{
    *out = item;
    if (path.type == JINJA_NONE)
        return LATHE_OK;
    if (jinja_is_whole(path))
        return lathe__jinja_getitem(vm, item, path, out);
    if (path.type != JINJA_STRING)
        return lathe__jinja_raise_type(vm, path, "the name of an attribute");
    const jinja_string *s = path.u.s;
    for (int64_t begin = 0; begin <= s->n;) {
        const int64_t dot = lathe__jinja_search(s->data, s->n, ".", 1, begin);
        const int64_t end = dot < 0 ? s->n : dot;
        jinja_value key = {0};
        int64_t index = 0;
        int is_index = end > begin && end - begin < 18;
        for (int64_t i = begin; i < end; i++) {
            is_index &= s->data[i] >= '0' && s->data[i] <= '9';
            index = is_index ? index * 10 + s->data[i] - '0' : 0;
        }
        LATHE_TRY(lathe__jinja_borrow(vm, s->data + begin, end - begin, &key));
        LATHE_TRY(lathe__jinja_getitem(vm, *out, is_index ? jinja_int(index) : key, out));
        begin = end + 1;
    }
    return LATHE_OK;
}

/* The value by which sort, unique, min and max compare an item: an attribute, strings in lower
 * case. */
static lathe_status sort_key(jinja_vm *vm, jinja_value item, jinja_value path, int keeps_case,
                             jinja_value *out)
{
    LATHE_TRY(attribute_of(vm, item, path, out));
    if (!keeps_case && out->type == JINJA_STRING)
        return lathe__jinja_case(vm, *out, JINJA_LOWER, out);
    return LATHE_OK;
}

/* ---- map, select, reject ---- */

static lathe_status generator(jinja_vm *vm, jinja_value *out)
{
    return lathe__jinja_list(vm, JINJA_SEQ_GENERATOR, 0, out);
}

static lathe_status map_attribute(jinja_vm *vm, const jinja_list *items, const jinja_args *args,
                                  jinja_value *out)
{
    static const char *const params[] = {"attribute", "default", NULL};
    jinja_value given[] = {jinja_none(), jinja_none()}, value;
    LATHE_TRY(lathe__jinja_bind(vm, "map", args, params, 1, given));
    for (int64_t i = 0; i < items->n; i++) {
        LATHE_TRY(attribute_of(vm, items->items[i], given[0], &value));
        if (jinja_is_undefined(value) && given[1].type != JINJA_NONE)
            value = given[1];
        LATHE_TRY(lathe__jinja_append(vm, out->u.list, value));
    }
    return LATHE_OK;
}

/* The text of a name given to map, select and so on, with a NUL. */
static lathe_status given_name(jinja_vm *vm, jinja_value x, const char **out)
{
    if (x.type != JINJA_STRING)
        return lathe__jinja_raise_type(vm, x, "the name of a filter or test");
    char *name = lathe__jinja_alloc(vm, x.u.s->n + 1);
    if (name == NULL)
        return lathe__jinja_failed(vm);
    if (x.u.s->n)
        memcpy(name, x.u.s->data, (size_t)x.u.s->n);
    name[x.u.s->n] = 0;
    *out = name;
    return LATHE_OK;
}

static lathe_status filter_map(jinja_vm *vm, jinja_value x, const jinja_args *args,
                               jinja_value *out)
{
    jinja_list items;
    const char *name = NULL;
    LATHE_TRY(generator(vm, out));
    LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
    if (args->n == 0)
        return map_attribute(vm, &items, args, out);
    LATHE_TRY(given_name(vm, args->plain[0], &name));
    const jinja_args rest = {args->plain + 1, args->n - 1, args->names, args->named, args->n_named};
    for (int64_t i = 0; i < items.n; i++) {
        jinja_value value = {0};
        LATHE_TRY(lathe__jinja_filter(vm, name, items.items[i], &rest, &value));
        LATHE_TRY(lathe__jinja_append(vm, out->u.list, value));
    }
    return LATHE_OK;
}

static lathe_status select_items(jinja_vm *vm, jinja_value x, const jinja_args *args, int by_attr,
                                 int keep, jinja_value *out)
{
    jinja_list items;
    const char *name = NULL;
    LATHE_TRY(generator(vm, out));
    if (!lathe__jinja_truth(x))
        return LATHE_OK;
    LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
    if (args->n < by_attr)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "the name of the attribute is missing");
    const jinja_value path = by_attr ? args->plain[0] : jinja_none();
    if (args->n > by_attr)
        LATHE_TRY(given_name(vm, args->plain[by_attr], &name));
    const int32_t used = args->n > by_attr ? by_attr + 1 : by_attr;
    const jinja_args rest = {args->plain ? args->plain + used : NULL, args->n - used, args->names,
                             args->named, args->n_named};
    for (int64_t i = 0; i < items.n; i++) {
        jinja_value value = {0};
        int passes;
        LATHE_TRY(attribute_of(vm, items.items[i], path, &value));
        if (name)
            LATHE_TRY(lathe__jinja_test(vm, name, value, &rest, &passes));
        else
            passes = lathe__jinja_truth(value);
        if (passes == keep)
            LATHE_TRY(lathe__jinja_append(vm, out->u.list, items.items[i]));
    }
    return LATHE_OK;
}

static lathe_status filter_select(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                  jinja_value *out)
{
    return select_items(vm, x, args, 0, 1, out);
}

static lathe_status filter_reject(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                  jinja_value *out)
{
    return select_items(vm, x, args, 0, 0, out);
}

static lathe_status filter_selectattr(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                      jinja_value *out)
{
    return select_items(vm, x, args, 1, 1, out);
}

static lathe_status filter_rejectattr(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                      jinja_value *out)
{
    return select_items(vm, x, args, 1, 0, out);
}

/* ---- sort ---- */

typedef struct keyed {
    jinja_value key, item;
} keyed;

/* One run of the merge: [begin, half) and [half, end) of from into to. */
static lathe_status merge(jinja_vm *vm, const keyed *from, keyed *to, const int64_t at[3],
                          int descends)
{
    int64_t i = at[0], j = at[1];
    for (int64_t k = at[0]; k < at[2]; k++) {
        int order = -1;
        if (i < at[1] && j < at[2]) {
            LATHE_TRY(lathe__jinja_charge(vm, 0));
            LATHE_TRY(lathe__jinja_order(vm, from[i].key, from[j].key, &order));
            order = descends ? -order : order;
        }
        to[k] = j >= at[2] || (i < at[1] && order <= 0) ? from[i++] : from[j++];
    }
    return LATHE_OK;
}

/* A stable sort of n pairs; the sorted ones are in *list, which has room for 2n. */
static lathe_status sort_keyed(jinja_vm *vm, keyed *list, int64_t n, int descends, keyed **out)
{
    keyed *from = list, *to = list + n;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t begin = 0; begin < n; begin += 2 * width) {
            const int64_t half = begin + width < n ? begin + width : n;
            const int64_t at[3] = {begin, half, half + width < n ? half + width : n};
            LATHE_TRY(merge(vm, from, to, at, descends));
        }
        keyed *swap = from;
        from = to;
        to = swap;
    }
    *out = from;
    return LATHE_OK;
}

static lathe_status sort_items(jinja_vm *vm, const jinja_list *items, jinja_value path,
                               int keeps_case, int descends, jinja_value *out)
{
    keyed *list = lathe__jinja_alloc(vm, 2 * items->n * (int64_t)sizeof *list), *sorted;
    if (list == NULL)
        return lathe__jinja_failed(vm);
    for (int64_t i = 0; i < items->n; i++) {
        list[i].item = items->items[i];
        LATHE_TRY(sort_key(vm, items->items[i], path, keeps_case, &list[i].key));
    }
    LATHE_TRY(sort_keyed(vm, list, items->n, descends, &sorted));
    LATHE_TRY(lathe__jinja_list(vm, JINJA_SEQ_LIST, items->n, out));
    for (int64_t i = 0; i < items->n; i++)
        out->u.list->items[i] = sorted[i].item;
    return LATHE_OK;
}

static lathe_status filter_sort(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                jinja_value *out)
{
    static const char *const params[] = {"reverse", "case_sensitive", "attribute", NULL};
    jinja_value given[] = {jinja_bool(0), jinja_bool(0), jinja_none()};
    jinja_list items;
    LATHE_TRY(lathe__jinja_bind(vm, "sort", args, params, 0, given));
    if (given[2].type == JINJA_STRING && given[2].u.s->n &&
        memchr(given[2].u.s->data, ',', (size_t)given[2].u.s->n))
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "sort by more than one attribute");
    LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
    return sort_items(vm, &items, given[2], lathe__jinja_truth(given[1]),
                      lathe__jinja_truth(given[0]), out);
}

static lathe_status filter_dictsort(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                    jinja_value *out)
{
    static const char *const params[] = {"case_sensitive", "by", "reverse", NULL};
    jinja_value given[] = {jinja_bool(0), jinja_none(), jinja_bool(0)}, items;
    LATHE_TRY(lathe__jinja_bind(vm, "dictsort", args, params, 0, given));
    if (x.type != JINJA_DICT)
        return lathe__jinja_raise_type(vm, x, "sorted by dictsort");
    const int by_value = given[1].type == JINJA_STRING && given[1].u.s->n == 5 &&
                         memcmp(given[1].u.s->data, "value", 5) == 0;
    const int by_key =
        given[1].type == JINJA_NONE || (given[1].type == JINJA_STRING && given[1].u.s->n == 3 &&
                                        memcmp(given[1].u.s->data, "key", 3) == 0);
    if (!by_value && !by_key)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "dictsort sorts by 'key' or by 'value'");
    LATHE_TRY(lathe__jinja_view(vm, x.u.dict, JINJA_SEQ_ITEMS, &items));
    return sort_items(vm, items.u.list, jinja_int(by_value), lathe__jinja_truth(given[0]),
                      lathe__jinja_truth(given[2]), out);
}

static lathe_status least_or_most(jinja_vm *vm, jinja_value x, const jinja_args *args, int sign,
                                  jinja_value *out)
{
    static const char *const params[] = {"case_sensitive", "attribute", NULL};
    jinja_value given[] = {jinja_bool(0), jinja_none()}, best, key;
    jinja_list items;
    LATHE_TRY(lathe__jinja_bind(vm, sign < 0 ? "min" : "max", args, params, 0, given));
    LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
    *out = jinja_undefined(JINJA_MISSING_OTHER, "min and max of an empty sequence");
    for (int64_t i = 0; i < items.n; i++) {
        int order = sign;
        LATHE_TRY(sort_key(vm, items.items[i], given[1], lathe__jinja_truth(given[0]), &key));
        if (i)
            LATHE_TRY(lathe__jinja_order(vm, key, best, &order));
        if (i && (order == 0 || (order < 0) != (sign < 0)))
            continue;
        best = key;
        *out = items.items[i];
    }
    return LATHE_OK;
}

static lathe_status filter_min(jinja_vm *vm, jinja_value x, const jinja_args *args,
                               jinja_value *out)
{
    return least_or_most(vm, x, args, -1, out);
}

static lathe_status filter_max(jinja_vm *vm, jinja_value x, const jinja_args *args,
                               jinja_value *out)
{
    return least_or_most(vm, x, args, 1, out);
}

static lathe_status filter_unique(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                  jinja_value *out)
{
    static const char *const params[] = {"case_sensitive", "attribute", NULL};
    jinja_value given[] = {jinja_bool(0), jinja_none()}, seen, key;
    jinja_list items;
    LATHE_TRY(lathe__jinja_bind(vm, "unique", args, params, 0, given));
    LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
    LATHE_TRY(generator(vm, out));
    LATHE_TRY(lathe__jinja_dict(vm, JINJA_DICT, items.n, &seen));
    for (int64_t i = 0; i < items.n; i++) {
        const int64_t before = seen.u.dict->n;
        LATHE_TRY(sort_key(vm, items.items[i], given[1], lathe__jinja_truth(given[0]), &key));
        LATHE_TRY(lathe__jinja_dict_set(vm, seen.u.dict, key, jinja_none()));
        if (seen.u.dict->n > before)
            LATHE_TRY(lathe__jinja_append(vm, out->u.list, items.items[i]));
    }
    return LATHE_OK;
}

/* ---- others ---- */

static lathe_status filter_join(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                jinja_value *out)
{
    static const char *const params[] = {"d", "attribute", NULL};
    jinja_value given[2] = {jinja_none(), jinja_none()}, item;
    jinja_list items;
    jinja_text text = {NULL, 0, 0};
    LATHE_TRY(lathe__jinja_borrow(vm, "", 0, &given[0]));
    LATHE_TRY(lathe__jinja_bind(vm, "join", args, params, 0, given));
    LATHE_TRY(lathe__jinja_str(vm, given[0], &given[0]));
    LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
    for (int64_t i = 0; i < items.n; i++) {
        if (i)
            LATHE_TRY(lathe__jinja_put(vm, &text, given[0].u.s->data, given[0].u.s->n));
        LATHE_TRY(attribute_of(vm, items.items[i], given[1], &item));
        LATHE_TRY(lathe__jinja_put_str(vm, &text, item));
    }
    return lathe__jinja_take(vm, &text, out);
}

static lathe_status filter_first(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                 jinja_value *out)
{
    jinja_list items;
    LATHE_TRY(lathe__jinja_bind(vm, "first", args, no_params, 0, out));
    LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
    if (x.type == JINJA_LIST && x.kind == JINJA_SEQ_GENERATOR && items.n) /* only one is taken */
        x.u.list->consumed = x.u.list->n - items.n + 1;
    *out = items.n ? items.items[0]
                   : jinja_undefined(JINJA_MISSING_OTHER, "the first item of an empty sequence");
    return LATHE_OK;
}

static lathe_status filter_last(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                jinja_value *out)
{
    jinja_list items;
    LATHE_TRY(lathe__jinja_bind(vm, "last", args, no_params, 0, out));
    if (x.type == JINJA_LIST && x.kind == JINJA_SEQ_GENERATOR)
        return lathe__jinja_raise_type(vm, x, "read from its end; expected '| list' before it");
    LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
    *out = items.n ? items.items[items.n - 1]
                   : jinja_undefined(JINJA_MISSING_OTHER, "the last item of an empty sequence");
    return LATHE_OK;
}

static lathe_status filter_reverse(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                   jinja_value *out)
{
    const jinja_value back[3] = {jinja_none(), jinja_none(), jinja_int(-1)};
    jinja_list items;
    LATHE_TRY(lathe__jinja_bind(vm, "reverse", args, no_params, 0, out));
    if (x.type == JINJA_STRING)
        return lathe__jinja_slice(vm, x, back, out);
    LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
    LATHE_TRY(lathe__jinja_list(vm,
                                x.type == JINJA_LIST && x.kind == JINJA_SEQ_GENERATOR
                                    ? JINJA_SEQ_LIST
                                    : JINJA_SEQ_GENERATOR,
                                items.n, out));
    for (int64_t i = 0; i < items.n; i++)
        out->u.list->items[i] = items.items[items.n - 1 - i];
    return LATHE_OK;
}

static lathe_status filter_items(jinja_vm *vm, jinja_value x, const jinja_args *args,
                                 jinja_value *out)
{
    LATHE_TRY(lathe__jinja_bind(vm, "items", args, no_params, 0, out));
    if (x.type == JINJA_UNDEFINED)
        return generator(vm, out);
    if (x.type != JINJA_DICT)
        return lathe__jinja_raise_type(vm, x, "read by items; expected a mapping");
    LATHE_TRY(lathe__jinja_view(vm, x.u.dict, JINJA_SEQ_ITEMS, out));
    out->kind = JINJA_SEQ_GENERATOR;
    return LATHE_OK;
}

static lathe_status filter_sum(jinja_vm *vm, jinja_value x, const jinja_args *args,
                               jinja_value *out)
{
    static const char *const params[] = {"attribute", "start", NULL};
    jinja_value given[] = {jinja_none(), jinja_int(0)}, item;
    jinja_list items;
    LATHE_TRY(lathe__jinja_bind(vm, "sum", args, params, 0, given));
    LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
    *out = given[1];
    for (int64_t i = 0; i < items.n; i++) {
        LATHE_TRY(attribute_of(vm, items.items[i], given[0], &item));
        LATHE_TRY(lathe__jinja_math(vm, JINJA_ADD, *out, item, out));
    }
    return LATHE_OK;
}

const jinja_filter lathe__jinja_list_filters[] = {
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_max},
    {"min", filter_min},
    {"reject", filter_reject},
    {"rejectattr", filter_rejectattr},
    {"reverse", filter_reverse},
    {"select", filter_select},
    {"selectattr", filter_selectattr},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
    {NULL, NULL},
};
