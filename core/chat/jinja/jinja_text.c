/* Converts values to text, as Python's str() and repr() do, and escapes text for HTML. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "chat/jinja/jinja_vm.h"

/* Whether a text is read as x, which is not NaN. */
static int reads_as(const char *text, double x)
{
    const double y = strtod(text, NULL);
    return !(y < x) && !(y > x);
}

/* Adds one to the last digit of "-d.ddde+xx" if it is not 9. The nearest decimal of few digits may
 * lie outside of the numbers that are read as x where the next one does not: below a power of two
 * they are half as far away as above it. */
static void next_decimal(char *digits)
{
    char *const last = strchr(digits, 'e') - 1;
    if (*last < '9')
        ++*last;
}

/* Writes the shortest "-d.ddde+xx" that is read as x, and of these the nearest. */
static void shortest(double x, char digits[32])
{
    for (int precision = 0; precision < 18; precision++) {
        (void)snprintf(digits, 32, "%.*e", precision, x);
        if (reads_as(digits, x))
            return;
        next_decimal(digits);
        if (reads_as(digits, x))
            return;
    }
}

void lathe__jinja_float_text(double x, char out[64])
{
    char digits[32];
    if (isnan(x) || isinf(x)) {
        (void)snprintf(out, 64, "%s", isnan(x) ? "nan" : x > 0.0 ? "inf" : "-inf");
        return;
    }
    shortest(x, digits);
    char *e = strchr(digits, 'e'), *mantissa = digits + (digits[0] == '-');
    const int power = atoi(e + 1);
    *e = 0;
    if (power < -4 || power >= 16) {
        (void)snprintf(out, 64, "%se%c%02d", digits, power < 0 ? '-' : '+', abs(power));
        return;
    }
    if (mantissa[1] == '.')
        (void)memmove(mantissa + 1, mantissa + 2, strlen(mantissa + 1));
    const int n = (int)strlen(mantissa);
    const char *sign = digits[0] == '-' ? "-" : "";
    if (power < 0)
        (void)snprintf(out, 64, "%s0.%.*s%s", sign, -power - 1, "0000", mantissa);
    else if (n <= power + 1)
        (void)snprintf(out, 64, "%s%s%.*s.0", sign, mantissa, power + 1 - n, "0000000000000000");
    else
        (void)snprintf(out, 64, "%s%.*s.%s", sign, power + 1, mantissa, mantissa + power + 1);
}

static lathe_status put_char_escape(jinja_vm *vm, jinja_text *text, int32_t c)
{
    char escape[16];
    if (c == '\n' || c == '\r' || c == '\t')
        (void)snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else
        (void)snprintf(escape, sizeof escape,
                       c < 0x100     ? "\\x%02x"
                       : c < 0x10000 ? "\\u%04x"
                                     : "\\U%08x",
                       (unsigned)c);
    return lathe__jinja_puts(vm, text, escape);
}

static lathe_status repr_string(jinja_vm *vm, jinja_text *text, const jinja_string *s)
{
    const int has_single = s->n && memchr(s->data, '\'', (size_t)s->n) != NULL;
    const int has_double = s->n && memchr(s->data, '"', (size_t)s->n) != NULL;
    const char quote = has_single && !has_double ? '"' : '\'';
    LATHE_TRY(lathe__jinja_put(vm, text, &quote, 1));
    for (int64_t i = 0; i < s->n;) {
        int32_t len;
        const int32_t c = lathe_utf8_at((const uint8_t *)s->data + i, s->n - i, &len);
        if (c == quote || c == '\\')
            LATHE_TRY(lathe__jinja_put(vm, text, "\\", 1));
        if (lathe__jinja_is_printable(c))
            LATHE_TRY(lathe__jinja_put(vm, text, s->data + i, len));
        else
            LATHE_TRY(put_char_escape(vm, text, c));
        i += len;
    }
    return lathe__jinja_put(vm, text, &quote, 1);
}

static lathe_status repr_list(jinja_vm *vm, jinja_text *text, jinja_value x)
{
    static const char *const begins[] = {"[",           "(", "", "dict_keys([", "dict_values([",
                                         "dict_items(["};
    static const char *const ends[] = {"]", ")", "", "])", "])", "])"};
    if (x.kind == JINJA_SEQ_RANGE || x.kind == JINJA_SEQ_GENERATOR)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED,
                                  "a %s cannot be printed; expected '| list' after it",
                                  lathe__jinja_type_name(x));
    LATHE_TRY(lathe__jinja_puts(vm, text, begins[x.kind]));
    for (int64_t i = 0; i < x.u.list->n; i++) {
        if (i)
            LATHE_TRY(lathe__jinja_puts(vm, text, ", "));
        LATHE_TRY(lathe__jinja_put_repr(vm, text, x.u.list->items[i]));
    }
    if (x.kind == JINJA_SEQ_TUPLE && x.u.list->n == 1)
        LATHE_TRY(lathe__jinja_puts(vm, text, ","));
    return lathe__jinja_puts(vm, text, ends[x.kind]);
}

static lathe_status repr_dict(jinja_vm *vm, jinja_text *text, const jinja_dict *d)
{
    LATHE_TRY(lathe__jinja_puts(vm, text, "{"));
    for (int64_t i = 0; i < d->n; i++) {
        if (i)
            LATHE_TRY(lathe__jinja_puts(vm, text, ", "));
        LATHE_TRY(lathe__jinja_put_repr(vm, text, d->entries[i].key));
        LATHE_TRY(lathe__jinja_puts(vm, text, ": "));
        LATHE_TRY(lathe__jinja_put_repr(vm, text, d->entries[i].value));
    }
    return lathe__jinja_puts(vm, text, "}");
}

lathe_status lathe__jinja_put_repr(jinja_vm *vm, jinja_text *text, jinja_value x)
{
    LATHE_TRY(lathe__jinja_enter(vm));
    if (x.type == JINJA_STRING && x.kind != JINJA_MARKUP) {
        LATHE_TRY(repr_string(vm, text, x.u.s));
    } else if (x.type == JINJA_STRING) {
        LATHE_TRY(lathe__jinja_puts(vm, text, "Markup("));
        LATHE_TRY(repr_string(vm, text, x.u.s));
        LATHE_TRY(lathe__jinja_puts(vm, text, ")"));
    } else if (jinja_is_undefined(x)) {
        LATHE_TRY(lathe__jinja_puts(vm, text, "Undefined"));
    } else if (x.type == JINJA_LIST) {
        LATHE_TRY(repr_list(vm, text, x));
    } else if (x.type == JINJA_DICT) {
        LATHE_TRY(repr_dict(vm, text, x.u.dict));
    } else {
        LATHE_TRY(lathe__jinja_put_str(vm, text, x));
    }
    vm->depth--;
    return LATHE_OK;
}

lathe_status lathe__jinja_put_str(jinja_vm *vm, jinja_text *text, jinja_value x)
{
    char number[64];
    switch (x.type) {
    case JINJA_UNDEFINED:
    case JINJA_UNSAFE:
        return LATHE_OK;
    case JINJA_NONE:
        return lathe__jinja_puts(vm, text, "None");
    case JINJA_BOOL:
        return lathe__jinja_puts(vm, text, x.u.i ? "True" : "False");
    case JINJA_INT:
        (void)snprintf(number, sizeof number, "%lld", (long long)x.u.i);
        return lathe__jinja_puts(vm, text, number);
    case JINJA_FLOAT:
        lathe__jinja_float_text(x.u.f, number);
        return lathe__jinja_puts(vm, text, number);
    case JINJA_STRING:
    case JINJA_WIDE:
        return lathe__jinja_put(vm, text, x.u.s->data, x.u.s->n);
    case JINJA_LIST:
    case JINJA_DICT:
        return lathe__jinja_put_repr(vm, text, x);
    default:
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "a %s cannot be printed",
                                  lathe__jinja_type_name(x));
    }
}

lathe_status lathe__jinja_str(jinja_vm *vm, jinja_value x, jinja_value *out)
{
    jinja_text text = {NULL, 0, 0};
    if (x.type == JINJA_STRING) {
        *out = x;
        return LATHE_OK;
    }
    LATHE_TRY(lathe__jinja_put_str(vm, &text, x));
    return lathe__jinja_take(vm, &text, out);
}

lathe_status lathe__jinja_escape(jinja_vm *vm, jinja_value x, jinja_value *out)
{
    jinja_text text = {NULL, 0, 0};
    LATHE_TRY(lathe__jinja_str(vm, x, out));
    if (out->kind == JINJA_MARKUP)
        return LATHE_OK;
    const jinja_string *s = out->u.s;
    for (int64_t i = 0; i < s->n; i++) {
        const char c = s->data[i];
        const char *entity = c == '&'    ? "&amp;"
                             : c == '<'  ? "&lt;"
                             : c == '>'  ? "&gt;"
                             : c == '\'' ? "&#39;"
                             : c == '"'  ? "&#34;"
                                         : NULL;
        LATHE_TRY(entity ? lathe__jinja_puts(vm, &text, entity)
                         : lathe__jinja_put(vm, &text, &c, 1));
    }
    LATHE_TRY(lathe__jinja_take(vm, &text, out));
    out->kind = JINJA_MARKUP;
    return LATHE_OK;
}
