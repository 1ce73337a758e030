/* Computes truth, equality, order, hashes and membership of values, with Python's rules. */
#include <math.h>
#include <string.h>

#include "chat/jinja/jinja_vm.h"

int lathe__jinja_truth(jinja_value x)
{
    switch (x.type) {
    case JINJA_UNDEFINED:
    case JINJA_UNSAFE:
    case JINJA_NONE:
        return 0;
    case JINJA_BOOL:
    case JINJA_INT:
        return x.u.i != 0;
    case JINJA_FLOAT:
        return x.u.f < 0.0 || x.u.f > 0.0 || isnan(x.u.f); /* NaN is true in Python */
    case JINJA_STRING:
        return x.u.s->n > 0;
    case JINJA_LIST:
        return x.kind == JINJA_SEQ_GENERATOR || x.u.list->n > 0;
    case JINJA_DICT:
        return x.u.dict->n > 0;
    default:
        return 1;
    }
}

/* Compares an integer with a number that is not NaN: a < b: -1, equal: 0, a > b: 1. Converting the
 * integer to a double instead would make 2^53 and 2^53 + 1 equal. */
static int order_whole(int64_t a, double b)
{
    if (b >= 0x1p63 || b < -0x1p63)
        return b > 0.0 ? -1 : 1;
    const double whole = trunc(b);
    const int64_t i = (int64_t)whole;
    return a != i ? (a > i) - (a < i) : (whole > b) - (whole < b);
}

/* a < b: -1, equal: 0, a > b: 1, one is NaN: 2. Exact for integers beyond 2^53. */
static int order_numbers(jinja_value a, jinja_value b)
{
    if (a.type == JINJA_WIDE || b.type == JINJA_WIDE)
        return lathe__jinja_order_wide(a, b);
    if (jinja_is_whole(a) && jinja_is_whole(b))
        return (a.u.i > b.u.i) - (a.u.i < b.u.i);
    const double x = jinja_number(a), y = jinja_number(b);
    if (isnan(x) || isnan(y))
        return 2;
    if (a.type == JINJA_FLOAT && b.type == JINJA_FLOAT)
        return (x > y) - (x < y);
    if (a.type == JINJA_FLOAT)
        return -order_whole(b.u.i, x);
    return order_whole(a.u.i, y);
}

/* Whether order_numbers takes both. */
static int are_numbers(jinja_value a, jinja_value b)
{
    return (jinja_is_number(a) || a.type == JINJA_WIDE) &&
           (jinja_is_number(b) || b.type == JINJA_WIDE);
}

/* Python orders strings by code points; that is the order of the bytes of UTF-8. */
static int order_strings(const jinja_string *a, const jinja_string *b)
{
    const int64_t n = a->n < b->n ? a->n : b->n;
    const int c = n ? memcmp(a->data, b->data, (size_t)n) : 0;
    return c ? c : (a->n > b->n) - (a->n < b->n); /* the shorter one is less */
}

static lathe_status equal_lists(jinja_vm *vm, const jinja_list *a, const jinja_list *b, int *out)
{
    *out = a->n == b->n;
    for (int64_t i = 0; *out && i < a->n; i++)
        LATHE_TRY(lathe__jinja_equal(vm, a->items[i], b->items[i], out));
    return LATHE_OK;
}

/* The order of the entries does not matter, as in Python. */
static lathe_status equal_dicts(jinja_vm *vm, const jinja_dict *a, const jinja_dict *b, int *out)
{
    *out = a->n == b->n;
    for (int64_t i = 0; *out && i < a->n; i++) {
        jinja_entry *other;
        LATHE_TRY(lathe__jinja_dict_find(vm, b, a->entries[i].key, &other));
        *out = other != NULL;
        if (other)
            LATHE_TRY(lathe__jinja_equal(vm, a->entries[i].value, other->value, out));
    }
    return LATHE_OK;
}

/* Lists and tuples are never equal to each other; generators only to themselves. The recursion is
 * as deep as the values, so the depth is counted. */
static lathe_status equal_nested(jinja_vm *vm, jinja_value a, jinja_value b, int *out)
{
    LATHE_TRY(lathe__jinja_enter(vm));
    if (a.type == JINJA_LIST && a.kind == b.kind && a.kind != JINJA_SEQ_GENERATOR)
        LATHE_TRY(equal_lists(vm, a.u.list, b.u.list, out));
    else if (a.type == JINJA_DICT)
        LATHE_TRY(equal_dicts(vm, a.u.dict, b.u.dict, out));
    else if (a.type == JINJA_LIST)
        *out = a.u.list == b.u.list;
    vm->depth--;
    return LATHE_OK;
}

/* Charges for the length of strings, because a template may compare long ones in a loop. */
lathe_status lathe__jinja_equal(jinja_vm *vm, jinja_value a, jinja_value b, int *out)
{
    *out = 0;
    if (are_numbers(a, b)) {
        *out = order_numbers(a, b) == 0;
        return LATHE_OK;
    }
    if (a.type != b.type) /* values of other types differ; only their order is an error */
        return LATHE_OK;
    switch (a.type) {
    case JINJA_UNDEFINED:
    case JINJA_UNSAFE:
    case JINJA_NONE:
        *out = 1;
        return LATHE_OK;
    case JINJA_STRING:
        *out = order_strings(a.u.s, b.u.s) == 0;
        return lathe__jinja_charge(vm, a.u.s->n);
    case JINJA_LIST:
    case JINJA_DICT:
        return equal_nested(vm, a, b, out);
    case JINJA_FUNCTION:
        *out = a.kind == b.kind;
        return LATHE_OK;
    default: /* the identity of an object, whatever it is: all pointers lie at one place of the
                union */
        *out = a.u.loop == b.u.loop;
        return LATHE_OK;
    }
}

/* The first items that differ decide; else the lengths. */
static lathe_status order_lists(jinja_vm *vm, const jinja_list *a, const jinja_list *b, int *out)
{
    LATHE_TRY(lathe__jinja_enter(vm));
    *out = (a->n > b->n) - (a->n < b->n);
    for (int64_t i = 0; i < a->n && i < b->n; i++) {
        int same;
        LATHE_TRY(lathe__jinja_equal(vm, a->items[i], b->items[i], &same));
        if (same)
            continue;
        LATHE_TRY(lathe__jinja_order(vm, a->items[i], b->items[i], out));
        break;
    }
    vm->depth--;
    return LATHE_OK;
}

lathe_status lathe__jinja_order(jinja_vm *vm, jinja_value a, jinja_value b, int *out)
{
    *out = 0;
    if (are_numbers(a, b)) {
        *out = order_numbers(a, b);
        return LATHE_OK;
    }
    if (a.type == JINJA_STRING && b.type == JINJA_STRING) {
        *out = order_strings(a.u.s, b.u.s);
        return lathe__jinja_charge(vm, a.u.s->n);
    }
    if (a.type == JINJA_LIST && b.type == JINJA_LIST && a.kind == b.kind &&
        a.kind <= JINJA_SEQ_TUPLE)
        return order_lists(vm, a.u.list, b.u.list, out);
    /* the name that is undefined helps more than "values of type Undefined have no order" */
    if (jinja_is_undefined(a) || jinja_is_undefined(b))
        return lathe__jinja_raise_undefined(vm, jinja_is_undefined(a) ? a : b);
    return lathe__jinja_raise(vm, LATHE_E_CONFIG, "values of type %s and %s have no order",
                              lathe__jinja_type_name(a), lathe__jinja_type_name(b));
}

/* ---- membership ---- */

/* An empty needle is found at every place, also at the end, as by str.find. */
int64_t lathe__jinja_search(const char *text, int64_t n, const char *needle, int64_t n_needle,
                            int64_t from)
{
    if (n_needle == 0)
        return from <= n ? from : -1;
    if (n - from < n_needle)
        return -1;
    const char *found = memmem(text + from, (size_t)(n - from), needle, (size_t)n_needle);
    return found ? found - text : -1;
}

static lathe_status contains(jinja_vm *vm, jinja_value box, jinja_value x, int *out)
{
    jinja_entry *entry;
    jinja_list items;
    *out = 0;
    switch (box.type) {
    case JINJA_STRING:
        if (x.type != JINJA_STRING)
            return lathe__jinja_raise_type(vm, x, "looked for in a string");
        *out = lathe__jinja_search(box.u.s->data, box.u.s->n, x.u.s->data, x.u.s->n, 0) >= 0;
        return lathe__jinja_charge(vm, box.u.s->n);
    case JINJA_DICT:
        LATHE_TRY(lathe__jinja_dict_find(vm, box.u.dict, x, &entry));
        *out = entry != NULL;
        return LATHE_OK;
    case JINJA_UNDEFINED:
    case JINJA_LIST:
        LATHE_TRY(lathe__jinja_iterate(vm, box, &items));
        for (int64_t i = 0; !*out && i < items.n; i++) {
            LATHE_TRY(lathe__jinja_charge(vm, 0));
            LATHE_TRY(lathe__jinja_equal(vm, items.items[i], x, out));
        }
        return LATHE_OK;
    default:
        return lathe__jinja_raise_type(vm, box, "searched with 'in'");
    }
}

lathe_status lathe__jinja_compare(jinja_vm *vm, int op, jinja_value a, jinja_value b, int *out)
{
    int order;
    switch (op) {
    case JINJA_CMP_EQ:
    case JINJA_CMP_NE:
        LATHE_TRY(lathe__jinja_equal(vm, a, b, out));
        *out ^= op == JINJA_CMP_NE;
        return LATHE_OK;
    case JINJA_CMP_IN:
    case JINJA_CMP_NOT_IN:
        LATHE_TRY(contains(vm, b, a, out));
        *out ^= op == JINJA_CMP_NOT_IN;
        return LATHE_OK;
    default:
        break;
    }
    /* <, <=, > and >= are all false with NaN, whose order is 2 */
    const int either_nan = are_numbers(a, b) && order_numbers(a, b) == 2;
    LATHE_TRY(lathe__jinja_order(vm, a, b, &order));
    *out = op == JINJA_CMP_LT   ? order < 0
           : op == JINJA_CMP_LE ? order <= 0
           : op == JINJA_CMP_GT ? order > 0
                                : order >= 0;
    *out &= !either_nan;
    return LATHE_OK;
}

/* ---- hashes ---- */

/* Equal values have equal hashes, also across types: 1, 1.0 and true are one key in Python. */

uint64_t lathe__jinja_hash_bytes(const char *text, int64_t n)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (int64_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)text[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

/* Spreads the bits of small integers, which are the usual keys, over the table: a multiplication by
 * 2^64 / golden ratio (Knuth, volume 3, section 6.4). */
static uint64_t mix(uint64_t h)
{
    h = (h ^ h >> 32) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

lathe_status lathe__jinja_hash(jinja_vm *vm, jinja_value x, uint64_t *out)
{
    *out = x.type;
    switch (x.type) {
    case JINJA_UNDEFINED:
    case JINJA_UNSAFE:
    case JINJA_NONE:
        return LATHE_OK;
    case JINJA_BOOL:
    case JINJA_INT:
        *out = mix((uint64_t)x.u.i);
        return LATHE_OK;
    case JINJA_FLOAT: /* a float that equals an integer has the integer's hash */
        *out = fabs(x.u.f) < 9e18 && floor(x.u.f) >= x.u.f ? mix((uint64_t)(int64_t)x.u.f) : 7;
        return LATHE_OK;
    case JINJA_WIDE: /* an integer beyond 64 bits may equal a float, whose hash is 7 there */
        *out = 7;
        return LATHE_OK;
    case JINJA_STRING:
        *out = lathe__jinja_hash_bytes(x.u.s->data, x.u.s->n);
        return lathe__jinja_charge(vm, x.u.s->n);
    case JINJA_LIST:
        if (x.kind != JINJA_SEQ_TUPLE) /* lists can change, so they are no keys */
            break;
        LATHE_TRY(lathe__jinja_enter(vm));
        for (int64_t i = 0; i < x.u.list->n; i++) {
            uint64_t h;
            LATHE_TRY(lathe__jinja_hash(vm, x.u.list->items[i], &h));
            *out = mix(*out * 31 + h);
        }
        vm->depth--;
        return LATHE_OK;
    default:
        break;
    }
    return lathe__jinja_raise_type(vm, x, "a key of a mapping");
}
