/* Integers beyond 64 bits: their order among numbers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "chat/jinja/jinja_vm.h"

enum { MAX_DIGITS = 400 }; /* of a double */

/* A number in decimal digits, without its fraction. */
typedef struct decimal {
    const char *digits;
    int64_t n;
    int negative;
    char own[MAX_DIGITS];
} decimal;

static void to_decimal(jinja_value x, decimal *out)
{
    if (x.type == JINJA_WIDE) {
        out->digits = x.u.s->data;
        out->n = x.u.s->n;
    } else {
        if (x.type == JINJA_FLOAT) /* glibc writes all digits of a double */
            (void)snprintf(out->own, sizeof out->own, "%.0f", trunc(x.u.f));
        else
            (void)snprintf(out->own, sizeof out->own, "%lld", (long long)x.u.i);
        out->digits = out->own;
        out->n = (int64_t)strlen(out->own);
    }
    out->negative = out->digits[0] == '-';
    out->digits += out->negative;
    out->n -= out->negative;
}

int lathe__jinja_order_wide(jinja_value a, jinja_value b)
{
    const double x = a.type == JINJA_FLOAT ? a.u.f : 0.0, y = b.type == JINJA_FLOAT ? b.u.f : 0.0;
    decimal left, right;
    if (isnan(x) || isnan(y))
        return 2;
    if (isinf(x) || isinf(y))
        return (x > y) - (x < y);
    to_decimal(a, &left);
    to_decimal(b, &right);
    if (left.negative != right.negative)
        return left.negative ? -1 : 1;
    int order = left.n != right.n ? (left.n > right.n ? 1 : -1)
                                  : memcmp(left.digits, right.digits, (size_t)left.n);
    order =
        (order > 0) - (order < 0); /* a fraction is below one of 19 digits and decides nothing */
    return left.negative ? -order : order;
}

lathe_status lathe__jinja_refuse_wide(jinja_vm *vm, jinja_value a, jinja_value b)
{
    if (a.type != JINJA_WIDE && b.type != JINJA_WIDE)
        return LATHE_OK;
    return lathe__jinja_raise(vm, LATHE_E_UNSUPPORTED,
                              "an integer beyond 64 bits can be written and compared, not computed "
                              "with");
}
