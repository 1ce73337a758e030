/* The operators + - * / // % **, with Python's rules. */
#include <math.h>
#include <string.h>

#include "chat/jinja/jinja_vm.h"

static lathe_status wrong_types(jinja_vm *vm, int token, jinja_value a, jinja_value b)
{
    static const char *const names[] = {
        [JINJA_ADD] = "+",       [JINJA_SUB] = "-", [JINJA_MUL] = "*", [JINJA_DIV] = "/",
        [JINJA_FLOORDIV] = "//", [JINJA_MOD] = "%", [JINJA_POW] = "**"};
    if (jinja_is_undefined(a) || jinja_is_undefined(b))
        return lathe__jinja_raise_undefined(vm, jinja_is_undefined(a) ? a : b);
    return lathe__jinja_raise(vm, LATHE_E_CONFIG, "%s %s %s has no meaning",
                              lathe__jinja_type_name(a), names[token], lathe__jinja_type_name(b));
}

static lathe_status too_large(jinja_vm *vm)
{
    return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED, "an integer beyond 64 bits");
}

static lathe_status whole_power(jinja_vm *vm, int64_t base, int64_t power, jinja_value *out)
{
    int64_t result = 1;
    if (power < 0) {
        if (base == 0)
            return lathe__jinja_raise(vm, LATHE_E_CONFIG, "a division by zero");
        *out = jinja_float(pow((double)base, (double)power));
        return LATHE_OK;
    }
    if (base == 0 || base == 1 || base == -1) {
        *out = jinja_int(power == 0 ? 1 : base < 0 && power % 2 == 0 ? 1 : base);
        return LATHE_OK;
    }
    for (; power > 0; power--)
        if (__builtin_mul_overflow(result, base, &result))
            return too_large(vm);
    *out = jinja_int(result);
    return LATHE_OK;
}

static lathe_status whole_math(jinja_vm *vm, int token, int64_t a, int64_t b, jinja_value *out)
{
    int64_t result = 0;
    int overflow = 0;
    if (b == 0 && (token == JINJA_DIV || token == JINJA_FLOORDIV || token == JINJA_MOD))
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "a division by zero");
    switch (token) {
    case JINJA_ADD:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case JINJA_SUB:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case JINJA_MUL:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case JINJA_DIV:
        *out = jinja_float((double)a / (double)b);
        return LATHE_OK;
    case JINJA_POW:
        return whole_power(vm, a, b, out);
    default:
        overflow = b == 0 || (a == INT64_MIN && b == -1); /* 0 was refused before */
        if (!overflow) {                                  /* rounded down */
            const int64_t down = a % b != 0 && (a < 0) != (b < 0);
            result = token == JINJA_FLOORDIV ? a / b - down : a % b + down * b;
        }
        break;
    }
    if (overflow)
        return too_large(vm);
    *out = jinja_int(result);
    return LATHE_OK;
}

static lathe_status real_math(jinja_vm *vm, int token, double a, double b, jinja_value *out)
{
    const int is_zero = !(b < 0.0 || b > 0.0 || isnan(b));
    double result = 0.0;
    if (is_zero && (token == JINJA_DIV || token == JINJA_FLOORDIV || token == JINJA_MOD))
        return lathe__jinja_raise(vm, LATHE_E_CONFIG, "a division by zero");
    switch (token) {
    case JINJA_ADD:
        result = a + b;
        break;
    case JINJA_SUB:
        result = a - b;
        break;
    case JINJA_MUL:
        result = a * b;
        break;
    case JINJA_DIV:
        result = a / b;
        break;
    case JINJA_POW:
        result = pow(a, b);
        break;
    default:
        result = fmod(a, b);
        if ((result < 0.0 || result > 0.0) && (result < 0.0) != (b < 0.0))
            result += b;
        if (token == JINJA_FLOORDIV)
            result = floor((a - result) / b + 0.5);
        break;
    }
    *out = jinja_float(result);
    return LATHE_OK;
}

static lathe_status repeat(jinja_vm *vm, jinja_value x, int64_t times, jinja_value *out)
{
    if (times < 0)
        times = 0;
    if (x.type == JINJA_STRING) {
        jinja_text text = {NULL, 0, 0};
        for (int64_t i = 0; i < times && x.u.s->n; i++)
            LATHE_TRY(lathe__jinja_put(vm, &text, x.u.s->data, x.u.s->n));
        LATHE_TRY(lathe__jinja_take(vm, &text, out));
        out->kind = x.kind;
        return LATHE_OK;
    }
    LATHE_TRY(lathe__jinja_list(vm, x.kind, 0, out));
    for (int64_t i = 0; i < times && x.u.list->n; i++)
        LATHE_TRY(lathe__jinja_join_lists(vm, *out, x, out));
    return LATHE_OK;
}

static lathe_status add_strings(jinja_vm *vm, jinja_value a, jinja_value b, jinja_value *out)
{
    const int markup = a.kind == JINJA_MARKUP || b.kind == JINJA_MARKUP;
    if (markup) { /* markup escapes what is put to it */
        LATHE_TRY(lathe__jinja_escape(vm, a, &a));
        LATHE_TRY(lathe__jinja_escape(vm, b, &b));
    }
    LATHE_TRY(lathe__jinja_join2(vm, a.u.s, b.u.s, out));
    out->kind = markup ? JINJA_MARKUP : 0;
    return LATHE_OK;
}

lathe_status lathe__jinja_math(jinja_vm *vm, int token, jinja_value a, jinja_value b,
                               jinja_value *out)
{
    if (token == JINJA_MOD && a.type == JINJA_STRING)
        return lathe__jinja_percent(vm, a, b, out);
    LATHE_TRY(lathe__jinja_refuse_wide(vm, a, b));
    if (jinja_is_whole(a) && jinja_is_whole(b))
        return whole_math(vm, token, a.u.i, b.u.i, out);
    if (jinja_is_number(a) && jinja_is_number(b))
        return real_math(vm, token, jinja_number(a), jinja_number(b), out);
    if (token == JINJA_ADD && a.type == JINJA_STRING && b.type == JINJA_STRING)
        return add_strings(vm, a, b, out);
    if (token == JINJA_ADD && a.type == JINJA_LIST && b.type == JINJA_LIST && a.kind == b.kind &&
        a.kind <= JINJA_SEQ_TUPLE)
        return lathe__jinja_join_lists(vm, a, b, out);
    if (token == JINJA_MUL) {
        const int a_repeats = a.type == JINJA_STRING || (a.type == JINJA_LIST && a.kind <= 1);
        const int b_repeats = b.type == JINJA_STRING || (b.type == JINJA_LIST && b.kind <= 1);
        if (a_repeats && jinja_is_whole(b))
            return repeat(vm, a, b.u.i, out);
        if (b_repeats && jinja_is_whole(a))
            return repeat(vm, b, a.u.i, out);
    }
    return wrong_types(vm, token, a, b);
}
