/* Implements the string methods that search for text in a string. */
#include "chat/jinja/jinja_string_search.h"

#include <string.h>

#include "base/utf8.h"

int32_t lathe__jinja_char_at(const jinja_string *s, int64_t at, int32_t *len)
{
    return lathe_utf8_at((const uint8_t *)s->data + at, s->n - at, len);
}

lathe_status lathe__jinja_bind_string(jinja_vm *vm, const char *name, const jinja_args *args,
                                      jinja_value *out)
{
    static const char *const params[] = {".string", NULL};
    LATHE_TRY(lathe__jinja_bind(vm, name, args, params, 1, out));
    if (out->type == JINJA_STRING)
        return LATHE_OK;
    return lathe__jinja_raise_type(vm, *out, "the argument of a string method");
}

/* The work of search_back in the worst case. */
lathe_status lathe__jinja_charge_back(jinja_vm *vm, const jinja_string *s, const jinja_string *what)
{
    return lathe__jinja_charge(vm, s->n * (1 + what->n));
}

/* Byte of the last occurrence that ends at or before `end`; -1: none. */
int64_t lathe__jinja_search_back(const jinja_string *s, const jinja_string *what, int64_t end)
{
    for (int64_t at = end - what->n; at >= 0; at--)
        if (memcmp(s->data + at, what->data, (size_t)what->n) == 0)
            return at;
    return -1;
}

lathe_status lathe__jinja_str_begins_or_ends(jinja_vm *vm, const char *name, jinja_value self,
                                             const jinja_args *args, jinja_value *out)
{
    static const char *const params[] = {".prefix", NULL};
    const jinja_string *s = self.u.s;
    jinja_value x, one[1];
    jinja_list many = {one, 1, 0, NULL};
    LATHE_TRY(lathe__jinja_bind(vm, name, args, params, 1, &x));
    one[0] = x;
    if (x.type == JINJA_LIST && x.kind == JINJA_SEQ_TUPLE)
        many = *x.u.list;
    *out = jinja_bool(0);
    for (int64_t i = 0; i < many.n && !out->u.i; i++) {
        if (many.items[i].type != JINJA_STRING)
            return lathe__jinja_raise_type(vm, many.items[i], "the argument of a string method");
        const jinja_string *affix = many.items[i].u.s;
        const char *at = name[0] == 's' ? s->data : s->data + s->n - affix->n;
        LATHE_TRY(lathe__jinja_charge(vm, affix->n));
        if (affix->n <= s->n && (affix->n == 0 || memcmp(at, affix->data, (size_t)affix->n) == 0))
            out->u.i = 1;
    }
    return LATHE_OK;
}

lathe_status lathe__jinja_str_find(jinja_vm *vm, const char *name, jinja_value self,
                                   const jinja_args *args, jinja_value *out)
{
    jinja_value what = {0};
    const jinja_string *s = self.u.s;
    LATHE_TRY(lathe__jinja_bind_string(vm, name, args, &what));
    LATHE_TRY(name[0] == 'r' ? lathe__jinja_charge_back(vm, s, what.u.s)
                             : lathe__jinja_charge(vm, s->n));
    const int64_t at = name[0] == 'r'
                           ? lathe__jinja_search_back(s, what.u.s, s->n)
                           : lathe__jinja_search(s->data, s->n, what.u.s->data, what.u.s->n, 0);
    if (at < 0 && strstr(name, "index"))
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "the text is not in the string");
    *out = jinja_int(at < 0 ? -1 : lathe__jinja_count(s->data, at));
    return LATHE_OK;
}

lathe_status lathe__jinja_str_count(jinja_vm *vm, const char *name, jinja_value self,
                                    const jinja_args *args, jinja_value *out)
{
    jinja_value what = {0};
    const jinja_string *s = self.u.s;
    LATHE_TRY(lathe__jinja_bind_string(vm, name, args, &what));
    LATHE_TRY(lathe__jinja_charge(vm, s->n));
    int64_t n = 0, at = 0;
    if (what.u.s->n == 0)
        n = lathe__jinja_chars(self.u.s) + 1;
    while (what.u.s->n &&
           (at = lathe__jinja_search(s->data, s->n, what.u.s->data, what.u.s->n, at)) >= 0) {
        n++;
        at += what.u.s->n;
    }
    *out = jinja_int(n);
    return LATHE_OK;
}

lathe_status lathe__jinja_replace(jinja_vm *vm, jinja_string *s, jinja_string *old,
                                  jinja_string *with, int64_t max, jinja_value *out)
{
    jinja_text text = {NULL, 0, 0};
    int64_t begin = 0;
    for (; max != 0; max -= max > 0) {
        int64_t at = lathe__jinja_search(s->data, s->n, old->data, old->n, begin);
        if (old->n == 0) { /* before each character and at the end */
            LATHE_TRY(lathe__jinja_put(vm, &text, with->data, with->n));
            if (begin >= s->n)
                break;
            int32_t len;
            (void)lathe__jinja_char_at(s, begin, &len);
            LATHE_TRY(lathe__jinja_put(vm, &text, s->data + begin, len));
            begin += len;
            continue;
        }
        if (at < 0)
            break;
        LATHE_TRY(lathe__jinja_put(vm, &text, s->data + begin, at - begin));
        LATHE_TRY(lathe__jinja_put(vm, &text, with->data, with->n));
        begin = at + old->n;
    }
    LATHE_TRY(lathe__jinja_put(vm, &text, s->data + begin, s->n - begin));
    return lathe__jinja_take(vm, &text, out);
}

lathe_status lathe__jinja_str_replace(jinja_vm *vm, const char *name, jinja_value self,
                                      const jinja_args *args, jinja_value *out)
{
    static const char *const params[] = {".old", ".new", ".count", NULL};
    jinja_value given[] = {jinja_none(), jinja_none(), jinja_int(-1)};
    LATHE_TRY(lathe__jinja_bind(vm, name, args, params, 2, given));
    for (int i = 0; i < 2; i++)
        if (given[i].type != JINJA_STRING)
            return lathe__jinja_raise_type(vm, given[i], "an argument of replace");
    if (!jinja_is_whole(given[2]))
        return lathe__jinja_raise_type(vm, given[2], "the count of replace");
    LATHE_TRY(lathe__jinja_replace(vm, self.u.s, given[0].u.s, given[1].u.s, given[2].u.i, out));
    out->kind = self.kind;
    return LATHE_OK;
}
