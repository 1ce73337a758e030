/* Reads a score with the rounding of serde_json. */
#include "base/json/score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LARGEST_POWER = 308, MAX_EXPONENT = 1 << 20 };

static int is_digit(const char *p, const char *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

/* 10^k rounded to the nearest double, 0 <= k <= 308. */
static double power_of_ten(int64_t k)
{
    static const double exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    char text[16];
    if (k < (int64_t)(sizeof exact / sizeof *exact))
        return exact[k];
    (void)snprintf(text, sizeof text, "1e%d", (int)k);
    return strtod(text, NULL);
}

static double scale(uint64_t digits, int64_t exponent)
{
    double value = (double)digits;
    while (exponent < -LARGEST_POWER && value != 0.0) {
        value /= 1e308;
        exponent += LARGEST_POWER;
    }
    if (value == 0.0)
        return 0.0;
    if (exponent > LARGEST_POWER)
        return INFINITY;
    return exponent < 0 ? value / power_of_ten(-exponent) : value * power_of_ten(exponent);
}

/* Reads digits into *value as long as they fit; returns the number of digits read. */
static int64_t take_digits(const char **p, const char *end, uint64_t *value)
{
    const char *const begin = *p;
    for (; is_digit(*p, end); ++*p) {
        const uint64_t digit = (uint64_t)(**p - '0');
        if (*value > UINT64_MAX / 10 || (*value == UINT64_MAX / 10 && digit > UINT64_MAX % 10))
            break;
        *value = *value * 10 + digit;
    }
    return *p - begin;
}

static int64_t skip_digits(const char **p, const char *end)
{
    const char *const begin = *p;
    while (is_digit(*p, end))
        ++*p;
    return *p - begin;
}

/* Reads the exponent after an "e"; one that is larger than any double's counts as MAX_EXPONENT. */
static int64_t read_exponent(const char *p, const char *end)
{
    const int negative = p < end && *p == '-';
    int64_t exponent = 0;
    p += p < end && (*p == '-' || *p == '+');
    for (; is_digit(p, end); p++)
        if (exponent < MAX_EXPONENT)
            exponent = exponent * 10 + (*p - '0');
    return negative ? -exponent : exponent;
}

double lathe_score_read(const char *text, int64_t n)
{
    const char *p = text, *const end = text + n;
    const int negative = n > 0 && *p == '-';
    uint64_t digits = 0;
    p += negative;
    (void)take_digits(&p, end, &digits);
    int64_t exponent = skip_digits(&p, end); /* integer digits that did not fit */
    if (p < end && *p == '.') {
        p++;
        /* After an integer that did not fit, a digit of the fraction may fit again; serde_json
         * reads it. */
        exponent -= take_digits(&p, end, &digits);
        (void)skip_digits(&p, end);
    }
    if (p < end && (*p == 'e' || *p == 'E'))
        exponent += read_exponent(p + 1, end);
    const double value = scale(digits, exponent);
    return negative ? -value : value;
}
