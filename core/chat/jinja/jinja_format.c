/* str.format with plain fields, the operator % on strings, and strftime. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"
#include "chat/jinja/jinja_vm.h"

/* ---- format ---- */

/* The value of a field: "", "0" or "name". */
static lathe_status field_value(jinja_vm *vm, const char *name, int64_t n, int32_t *next,
                                const jinja_args *args, jinja_value *out)
{
    int64_t index = n == 0 ? (*next)++ : 0;
    int is_index = 1;
    for (int64_t i = 0; i < n; i++) {
        is_index &= name[i] >= '0' && name[i] <= '9';
        index = is_index && index < 1000 ? index * 10 + name[i] - '0' : index;
    }
    if (is_index && index < args->n) {
        *out = args->plain[index];
        return LATHE_OK;
    }
    for (int32_t k = 0; !is_index && k < args->n_named; k++)
        if (strlen(args->names[k]) == (size_t)n && memcmp(args->names[k], name, (size_t)n) == 0) {
            *out = args->named[k];
            return LATHE_OK;
        }
    for (int64_t i = 0; i < n; i++)
        if (lathe_is_one_of(name[i], ".[!:"))
            return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED,
                                      "format with '%c' in a field is not supported", name[i]);
    return lathe__jinja_raise(vm, LATHE_E_CONFIG, "format has no argument for '{%.*s}'",
                              n > 40 ? 40 : (int)n, name);
}

lathe_status lathe__jinja_format(jinja_vm *vm, const jinja_string *format, const jinja_args *args,
                                 jinja_value *out)
{
    jinja_text text = {NULL, 0, 0};
    const char *p = format->data, *end = p + format->n;
    int32_t next = 0;
    while (p < end) {
        const char *plain = p;
        while (p < end && *p != '{' && *p != '}')
            p++;
        LATHE_TRY(lathe__jinja_put(vm, &text, plain, p - plain));
        if (p == end)
            break;
        if (p + 1 < end && p[1] == *p) {
            LATHE_TRY(lathe__jinja_put(vm, &text, p, 1));
            p += 2;
            continue;
        }
        const char *close = *p == '{' ? memchr(p, '}', (size_t)(end - p)) : NULL;
        if (close == NULL)
            return lathe__jinja_raise(vm, LATHE_E_CONFIG, "format has a single '%c' in its string",
                                      *p);
        jinja_value x = {0};
        LATHE_TRY(field_value(vm, p + 1, close - p - 1, &next, args, &x));
        LATHE_TRY(lathe__jinja_put_str(vm, &text, x));
        p = close + 1;
    }
    return lathe__jinja_take(vm, &text, out);
}

/* ---- % ---- */

typedef struct percent_spec {
    int left, zeros, plus;
    int width, precision; /* precision -1: none */
    char conversion;
} percent_spec;

static int read_number(const char **p, const char *end)
{
    int n = 0;
    while (*p < end && **p >= '0' && **p <= '9' && n < 1000)
        n = n * 10 + *(*p)++ - '0';
    return n;
}

static lathe_status read_spec(jinja_vm *vm, const char **p, const char *end, percent_spec *out)
{
    *out = (percent_spec){.precision = -1};
    for (; *p < end && lathe_is_one_of(**p, "-0+ #"); ++*p) {
        out->left |= **p == '-';
        out->zeros |= **p == '0';
        out->plus |= **p == '+';
        if (**p == ' ' || **p == '#')
            return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "the flag '%c' of %%", **p);
    }
    out->width = read_number(p, end);
    if (*p < end && **p == '.') {
        ++*p;
        out->precision = read_number(p, end);
    }
    if (*p == end || !lathe_is_one_of(**p, "srdifFeEgGxXo%") || out->width > 999 ||
        out->precision > 99)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED,
                                  "a %% in a format that is none of %%s %%r %%d %%f %%e %%g %%x "
                                  "%%o %%%%");
    out->conversion = *(*p)++;
    return LATHE_OK;
}

static lathe_status put_padded(jinja_vm *vm, jinja_text *text, const percent_spec *spec,
                               jinja_value s)
{
    const int64_t blanks = spec->width - lathe__jinja_chars(s.u.s);
    for (int64_t i = 0; !spec->left && i < blanks; i++)
        LATHE_TRY(lathe__jinja_put(vm, text, " ", 1));
    LATHE_TRY(lathe__jinja_put(vm, text, s.u.s->data, s.u.s->n));
    for (int64_t i = 0; spec->left && i < blanks; i++)
        LATHE_TRY(lathe__jinja_put(vm, text, " ", 1));
    return LATHE_OK;
}

static lathe_status put_number(jinja_vm *vm, jinja_text *text, const percent_spec *spec,
                               jinja_value x)
{
    char format[32], number[1400];
    LATHE_TRY(lathe__jinja_refuse_wide(vm, x, x));
    if (!jinja_is_number(x))
        return lathe__jinja_raise_type(vm, x, "formatted as a number");
    const int is_real = lathe_is_one_of(spec->conversion, "fFeEgG");
    const double real = jinja_number(x);
    if (!is_real && x.type == JINJA_FLOAT) {
        if (lathe_is_one_of(spec->conversion, "xXo") || !(real > -9e18 && real < 9e18))
            return lathe__jinja_raise_type(vm, x, "formatted as an integer");
        x = jinja_int((int64_t)real);
    }
    const int negative = !is_real && x.u.i < 0 && lathe_is_one_of(spec->conversion, "xXo");
    if (negative)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "a negative number with %%%c",
                                  spec->conversion);
    const char conversion = spec->conversion == 'i' ? 'd' : spec->conversion;
    const char *flags = spec->left ? "-" : spec->zeros ? "0" : "";
    const int precision = spec->precision >= 0 ? spec->precision : is_real ? 6 : 1;
    (void)snprintf(format, sizeof format, "%%%s%s*.*%s%c", spec->plus ? "+" : "",
                   !is_real && spec->precision >= 0 && spec->zeros ? "" : flags, is_real ? "" : "l",
                   conversion);
    if (!is_real && spec->zeros && !spec->left && spec->precision < 0) {
        (void)snprintf(format, sizeof format, "%%%s0*l%c", spec->plus ? "+" : "", conversion);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* built above, from checked letters */
        (void)snprintf(number, sizeof number, format, spec->width, (long)x.u.i);
    } else if (is_real) {
        (void)snprintf(number, sizeof number, format, spec->width, precision, real);
    } else {
        (void)snprintf(number, sizeof number, format, spec->width, precision, (long)x.u.i);
#pragma GCC diagnostic pop
    }
    return lathe__jinja_puts(vm, text, number);
}

static lathe_status put_conversion(jinja_vm *vm, jinja_text *text, const percent_spec *spec,
                                   jinja_value x)
{
    jinja_text part = {NULL, 0, 0};
    jinja_value s = {0};
    if (spec->conversion != 's' && spec->conversion != 'r')
        return put_number(vm, text, spec, x);
    LATHE_TRY(spec->conversion == 's' ? lathe__jinja_put_str(vm, &part, x)
                                      : lathe__jinja_put_repr(vm, &part, x));
    LATHE_TRY(lathe__jinja_take(vm, &part, &s));
    if (spec->precision >= 0 && spec->precision < lathe__jinja_chars(s.u.s))
        LATHE_TRY(
            lathe__jinja_borrow(vm, s.u.s->data, lathe__jinja_offset(s.u.s, spec->precision), &s));
    return put_padded(vm, text, spec, s);
}

lathe_status lathe__jinja_percent(jinja_vm *vm, jinja_value format, jinja_value x, jinja_value *out)
{
    const int is_tuple = x.type == JINJA_LIST && x.kind == JINJA_SEQ_TUPLE;
    const int64_t n = is_tuple ? x.u.list->n : 1;
    const char *p = format.u.s->data, *end = p + format.u.s->n;
    jinja_text text = {NULL, 0, 0};
    int64_t next = 0;
    while (p < end) {
        const char *plain = p;
        percent_spec spec;
        while (p < end && *p != '%')
            p++;
        LATHE_TRY(lathe__jinja_put(vm, &text, plain, p - plain));
        if (p == end)
            break;
        p++;
        LATHE_TRY(read_spec(vm, &p, end, &spec));
        if (spec.conversion == '%') {
            LATHE_TRY(lathe__jinja_put(vm, &text, "%", 1));
            continue;
        }
        if (next == n)
            return lathe__jinja_raise(vm, LATHE_E_CONFIG, "%% has too few values for its string");
        LATHE_TRY(put_conversion(vm, &text, &spec, is_tuple ? x.u.list->items[next] : x));
        next++;
    }
    if (next < n && x.type != JINJA_DICT && !(x.type == JINJA_LIST && !is_tuple))
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "%% has more values than its string uses");
    LATHE_TRY(lathe__jinja_take(vm, &text, out));
    out->kind = format.kind;
    return LATHE_OK;
}

/* ---- strftime ---- */

lathe_status lathe__jinja_strftime(jinja_vm *vm, const jinja_string *format, jinja_value *out)
{
    /* The conversions that mean the same in every libc; no locale is set, so names are English. */
    static const char known[] = "aAbBcdHIjmMpSUwWxXyYZ%DeFGgnrRtTuVhCskl";
    char pattern[256], text[1024];
    struct tm when;
    const time_t now = (time_t)vm->now;
    if (format->n >= (int64_t)sizeof pattern)
        return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "a date's format beyond 255 bytes");
    if (format->n)
        memcpy(pattern, format->data, (size_t)format->n);
    pattern[format->n] = 0;
    if ((int64_t)strlen(pattern) < format->n)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "a date's format with a NUL");
    for (const char *p = pattern; (p = strchr(p, '%')) != NULL; p += 2) {
        if (p[1] == '-' && p[2]) /* no padding */
            p++;
        if (!lathe_is_one_of(p[1], known))
            return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED,
                                      "strftime_now with %%%c is not supported", p[1]);
    }
    if (localtime_r(&now, &when) == NULL)
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "the present time is no date");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* checked above */
    const size_t n = strftime(text, sizeof text, pattern, &when);
#pragma GCC diagnostic pop
    char *copy = lathe__jinja_alloc(vm, (int64_t)n + 1);
    if (copy == NULL)
        return lathe__jinja_failed(vm);
    memcpy(copy, text, n);
    return lathe__jinja_borrow(vm, copy, (int64_t)n, out);
}
