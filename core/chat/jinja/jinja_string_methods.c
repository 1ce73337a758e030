/* The methods of strings. Indices count characters, as in Python. */
#include <string.h>

#include "base/utf8.h"
#include "chat/jinja/jinja_string_search.h"

typedef lathe_status (*string_fn)(jinja_vm *vm, const char *name, jinja_value self,
                                  const jinja_args *args, jinja_value *out);

/* A part of self as a string. */
static lathe_status part(jinja_vm *vm, jinja_value self, int64_t begin, int64_t end,
                         jinja_value *out)
{
    LATHE_TRY(lathe__jinja_borrow(vm, self.u.s->data + begin, end - begin, out));
    out->kind = self.kind;
    return LATHE_OK;
}

/* The begin of the character that ends at byte `end`. */
static int64_t char_before(const jinja_string *s, int64_t end)
{
    do
        end--;
    while (end > 0 && ((uint8_t)s->data[end] & 0xc0) == 0x80);
    return end;
}

/* ---- strip ---- */

static int is_stripped(const jinja_string *s, int64_t at, int32_t len, jinja_value chars)
{
    int32_t n;
    if (chars.type == JINJA_NONE)
        return lathe__jinja_is_space(lathe__jinja_char_at(s, at, &n));
    return lathe__jinja_search(chars.u.s->data, chars.u.s->n, s->data + at, len, 0) >= 0;
}

lathe_status lathe__jinja_strip(jinja_vm *vm, jinja_value self, jinja_value chars, int ends,
                                jinja_value *out)
{
    const jinja_string *s = self.u.s;
    int64_t begin = 0, end = s->n;
    if (chars.type != JINJA_NONE && chars.type != JINJA_STRING)
        return lathe__jinja_raise_type(vm, chars, "the characters to strip");
    const int64_t set = chars.type == JINJA_STRING ? chars.u.s->n : 0;
    while (ends & 1 && begin < end) {
        int32_t len;
        (void)lathe__jinja_char_at(s, begin, &len);
        LATHE_TRY(lathe__jinja_charge(vm, set));
        if (!is_stripped(s, begin, len, chars))
            break;
        begin += len;
    }
    while (ends & 2 && begin < end) {
        const int64_t at = char_before(s, end);
        LATHE_TRY(lathe__jinja_charge(vm, set));
        if (!is_stripped(s, at, (int32_t)(end - at), chars))
            break;
        end = at;
    }
    return part(vm, self, begin, end, out);
}

static lathe_status strip(jinja_vm *vm, const char *name, jinja_value self, const jinja_args *args,
                          jinja_value *out)
{
    static const char *const params[] = {".chars", NULL};
    jinja_value chars = jinja_none();
    LATHE_TRY(lathe__jinja_bind(vm, name, args, params, 0, &chars));
    return lathe__jinja_strip(vm, self, chars, name[0] == 'l' ? 1 : name[0] == 'r' ? 2 : 3, out);
}

static lathe_status remove_affix(jinja_vm *vm, const char *name, jinja_value self,
                                 const jinja_args *args, jinja_value *out)
{
    jinja_value affix = {0};
    const jinja_string *s = self.u.s;
    const int is_prefix = strcmp(name, "removeprefix") == 0;
    LATHE_TRY(lathe__jinja_bind_string(vm, name, args, &affix));
    const int64_t n = affix.u.s->n;
    const int has = n <= s->n && memcmp(is_prefix ? s->data : s->data + s->n - n, affix.u.s->data,
                                        (size_t)n) == 0;
    if (!has || n == 0)
        return part(vm, self, 0, s->n, out);
    return is_prefix ? part(vm, self, n, s->n, out) : part(vm, self, 0, s->n - n, out);
}

/* ---- split and join ---- */

/* split() at white space; after `most` cuts the rest stays whole. */
static lathe_status split_blanks(jinja_vm *vm, jinja_value self, int64_t max, jinja_list *list)
{
    const jinja_string *s = self.u.s;
    for (int64_t at = 0;;) {
        int32_t len = 0;
        while (at < s->n && lathe__jinja_is_space(lathe__jinja_char_at(s, at, &len)))
            at += len;
        if (at >= s->n)
            return LATHE_OK;
        int64_t end = at;
        while (end < s->n &&
               (max == 0 || !lathe__jinja_is_space(lathe__jinja_char_at(s, end, &len))))
            end += max == 0 ? s->n - end : len;
        jinja_value item = {0};
        LATHE_TRY(part(vm, self, at, end, &item));
        LATHE_TRY(lathe__jinja_append(vm, list, item));
        max -= max > 0;
        at = end;
    }
}

static lathe_status split_from_left(jinja_vm *vm, jinja_value self, const jinja_string *sep,
                                    int64_t max, jinja_list *list)
{
    const jinja_string *s = self.u.s;
    jinja_value item = {0};
    int64_t begin = 0;
    for (; max != 0; max -= max > 0) {
        const int64_t at = lathe__jinja_search(s->data, s->n, sep->data, sep->n, begin);
        if (at < 0)
            break;
        LATHE_TRY(part(vm, self, begin, at, &item));
        LATHE_TRY(lathe__jinja_append(vm, list, item));
        begin = at + sep->n;
    }
    LATHE_TRY(part(vm, self, begin, s->n, &item));
    return lathe__jinja_append(vm, list, item);
}

static lathe_status split_from_right(jinja_vm *vm, jinja_value self, const jinja_string *sep,
                                     int64_t max, jinja_list *list)
{
    jinja_value item = {0};
    int64_t end = self.u.s->n;
    for (; max != 0; max -= max > 0) {
        const int64_t at = lathe__jinja_search_back(self.u.s, sep, end);
        if (at < 0)
            break;
        LATHE_TRY(part(vm, self, at + sep->n, end, &item));
        LATHE_TRY(lathe__jinja_append(vm, list, item));
        end = at;
    }
    LATHE_TRY(part(vm, self, 0, end, &item));
    LATHE_TRY(lathe__jinja_append(vm, list, item));
    for (int64_t i = 0, j = list->n - 1; i < j; i++, j--) {
        const jinja_value swap = list->items[i];
        list->items[i] = list->items[j];
        list->items[j] = swap;
    }
    return LATHE_OK;
}

static lathe_status split(jinja_vm *vm, const char *name, jinja_value self, const jinja_args *args,
                          jinja_value *out)
{
    static const char *const params[] = {"sep", "maxsplit", NULL};
    jinja_value given[] = {jinja_none(), jinja_int(-1)};
    LATHE_TRY(lathe__jinja_bind(vm, name, args, params, 0, given));
    if (!jinja_is_whole(given[1]))
        return lathe__jinja_raise_type(vm, given[1], "maxsplit");
    LATHE_TRY(lathe__jinja_list(vm, JINJA_SEQ_LIST, 0, out));
    LATHE_TRY(lathe__jinja_charge(vm, self.u.s->n));
    const int64_t max = given[1].u.i < 0 ? -1 : given[1].u.i;
    if (given[0].type == JINJA_NONE) {
        if (name[0] == 'r' && max >= 0)
            return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED,
                                      "rsplit with maxsplit and without a separator");
        return split_blanks(vm, self, max, out->u.list);
    }
    if (given[0].type != JINJA_STRING)
        return lathe__jinja_raise_type(vm, given[0], "a separator");
    if (given[0].u.s->n == 0)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "the separator of %s is empty", name);
    if (name[0] == 'r')
        LATHE_TRY(lathe__jinja_charge_back(vm, self.u.s, given[0].u.s));
    return name[0] == 'r' ? split_from_right(vm, self, given[0].u.s, max, out->u.list)
                          : split_from_left(vm, self, given[0].u.s, max, out->u.list);
}

static int ends_line(int32_t c)
{
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

static lathe_status splitlines(jinja_vm *vm, const char *name, jinja_value self,
                               const jinja_args *args, jinja_value *out)
{
    static const char *const params[] = {"keepends", NULL};
    jinja_value keep = jinja_bool(0), item;
    const jinja_string *s = self.u.s;
    LATHE_TRY(lathe__jinja_bind(vm, name, args, params, 0, &keep));
    LATHE_TRY(lathe__jinja_list(vm, JINJA_SEQ_LIST, 0, out));
    for (int64_t begin = 0, at = 0; begin < s->n;) {
        int32_t len = 0, c = 0;
        while (at < s->n && !ends_line(c = lathe__jinja_char_at(s, at, &len)))
            at += len;
        int64_t end = at;
        if (at < s->n)
            end += c == '\r' && at + 1 < s->n && s->data[at + 1] == '\n' ? 2 : len;
        LATHE_TRY(part(vm, self, begin, lathe__jinja_truth(keep) ? end : at, &item));
        LATHE_TRY(lathe__jinja_append(vm, out->u.list, item));
        begin = at = end;
    }
    return LATHE_OK;
}

static lathe_status partition(jinja_vm *vm, const char *name, jinja_value self,
                              const jinja_args *args, jinja_value *out)
{
    jinja_value sep = {0};
    const jinja_string *s = self.u.s;
    const int from_right = name[0] == 'r';
    LATHE_TRY(lathe__jinja_bind_string(vm, name, args, &sep));
    if (sep.u.s->n == 0)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "the separator of %s is empty", name);
    LATHE_TRY(from_right ? lathe__jinja_charge_back(vm, s, sep.u.s)
                         : lathe__jinja_charge(vm, s->n));
    int64_t at = from_right ? lathe__jinja_search_back(s, sep.u.s, s->n)
                            : lathe__jinja_search(s->data, s->n, sep.u.s->data, sep.u.s->n, 0);
    int64_t end = at + sep.u.s->n;
    if (at < 0)
        at = end = from_right ? 0 : s->n;
    LATHE_TRY(lathe__jinja_list(vm, JINJA_SEQ_TUPLE, 3, out));
    LATHE_TRY(part(vm, self, 0, at, &out->u.list->items[0]));
    LATHE_TRY(part(vm, self, at, end, &out->u.list->items[1]));
    return part(vm, self, end, s->n, &out->u.list->items[2]);
}

static lathe_status join(jinja_vm *vm, const char *name, jinja_value self, const jinja_args *args,
                         jinja_value *out)
{
    static const char *const params[] = {".iterable", NULL};
    jinja_value x = {0};
    jinja_list items;
    jinja_text text = {NULL, 0, 0};
    LATHE_TRY(lathe__jinja_bind(vm, name, args, params, 1, &x));
    LATHE_TRY(lathe__jinja_iterate(vm, x, &items));
    for (int64_t i = 0; i < items.n; i++) {
        if (items.items[i].type != JINJA_STRING)
            return lathe__jinja_raise_type(vm, items.items[i], "joined to a string");
        if (i)
            LATHE_TRY(lathe__jinja_put(vm, &text, self.u.s->data, self.u.s->n));
        LATHE_TRY(lathe__jinja_put(vm, &text, items.items[i].u.s->data, items.items[i].u.s->n));
    }
    return lathe__jinja_take(vm, &text, out);
}

/* ---- padding, case, kinds ---- */

static lathe_status pad(jinja_vm *vm, const char *name, jinja_value self, const jinja_args *args,
                        jinja_value *out)
{
    static const char *const params[] = {".width", ".fill", NULL};
    const int zeros = name[0] == 'z';
    jinja_value given[2] = {{0}};
    LATHE_TRY(lathe__jinja_borrow(vm, zeros ? "0" : " ", 1, &given[1]));
    LATHE_TRY(lathe__jinja_bind(vm, name, args, params, 1, given));
    if (!jinja_is_whole(given[0]) || given[1].type != JINJA_STRING ||
        lathe__jinja_chars(given[1].u.s) != 1 || (zeros && args->n > 1))
        return lathe__jinja_raise(vm, LATHE_E_CONFIG,
                                  "%s takes a width and one character to fill with", name);
    const jinja_string *s = self.u.s;
    const int64_t n = given[0].u.i - lathe__jinja_chars(self.u.s), all = n < 0 ? 0 : n;
    const int64_t left = name[0] == 'c'   ? all / 2 + (all & given[0].u.i & 1)
                         : name[0] == 'l' ? 0
                                          : all;
    const int64_t sign = zeros && s->n && (s->data[0] == '-' || s->data[0] == '+');
    jinja_text text = {NULL, 0, 0};
    LATHE_TRY(lathe__jinja_put(vm, &text, s->data, sign));
    for (int64_t i = 0; i < all; i++) {
        if (i == left)
            LATHE_TRY(lathe__jinja_put(vm, &text, s->data + sign, s->n - sign));
        LATHE_TRY(lathe__jinja_put(vm, &text, given[1].u.s->data, given[1].u.s->n));
    }
    if (left == all)
        LATHE_TRY(lathe__jinja_put(vm, &text, s->data + sign, s->n - sign));
    return lathe__jinja_take(vm, &text, out);
}

static lathe_status change_case(jinja_vm *vm, const char *name, jinja_value self,
                                const jinja_args *args, jinja_value *out)
{
    static const char *const none[] = {NULL};
    LATHE_TRY(lathe__jinja_bind(vm, name, args, none, 0, out));
    return lathe__jinja_case(vm, self,
                             name[0] == 'l'   ? JINJA_LOWER
                             : name[0] == 'u' ? JINJA_UPPER
                             : name[0] == 't' ? JINJA_TITLE
                             : name[0] == 's' ? JINJA_SWAP
                                              : JINJA_CAPITALIZE,
                             out);
}

static lathe_status is_kind(jinja_vm *vm, const char *name, jinja_value self,
                            const jinja_args *args, jinja_value *out)
{
    static const char *const none[] = {NULL};
    LATHE_TRY(lathe__jinja_bind(vm, name, args, none, 0, out));
    *out = jinja_bool(lathe__jinja_is_kind(self.u.s, name));
    return lathe__jinja_charge(vm, self.u.s->n);
}

static lathe_status format(jinja_vm *vm, const char *name, jinja_value self, const jinja_args *args,
                           jinja_value *out)
{
    (void)name;
    return lathe__jinja_format(vm, self.u.s, args, out);
}

static const struct {
    const char *name;
    string_fn run;
} methods[] = {
    {"capitalize", change_case},
    {"center", pad},
    {"count", lathe__jinja_str_count},
    {"endswith", lathe__jinja_str_begins_or_ends},
    {"find", lathe__jinja_str_find},
    {"format", format},
    {"index", lathe__jinja_str_find},
    {"isalnum", is_kind},
    {"isalpha", is_kind},
    {"isascii", is_kind},
    {"isdecimal", is_kind},
    {"isdigit", is_kind},
    {"islower", is_kind},
    {"isnumeric", is_kind},
    {"isprintable", is_kind},
    {"isspace", is_kind},
    {"isupper", is_kind},
    {"join", join},
    {"ljust", pad},
    {"lower", change_case},
    {"lstrip", strip},
    {"partition", partition},
    {"removeprefix", remove_affix},
    {"removesuffix", remove_affix},
    {"replace", lathe__jinja_str_replace},
    {"rfind", lathe__jinja_str_find},
    {"rindex", lathe__jinja_str_find},
    {"rjust", pad},
    {"rpartition", partition},
    {"rsplit", split},
    {"rstrip", strip},
    {"split", split},
    {"splitlines", splitlines},
    {"startswith", lathe__jinja_str_begins_or_ends},
    {"strip", strip},
    {"swapcase", change_case},
    {"title", change_case},
    {"upper", change_case},
    {"zfill", pad},
};

int lathe__jinja_has_string_method(const char *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(name, methods[i].name) == 0)
            return 1;
    return 0;
}

lathe_status lathe__jinja_string_method(jinja_vm *vm, const char *name, jinja_value self,
                                        const jinja_args *args, jinja_value *out)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(name, methods[i].name) == 0)
            return methods[i].run(vm, name, self, args, out);
    return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "the string method '%s' is not supported",
                              name);
}
