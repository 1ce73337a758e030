/* Reads hexadecimal digits: of escapes (\u00e9) and of names of bytes (<0x0A>). */
#ifndef LATHE_KIT_HEX_H
#define LATHE_KIT_HEX_H

#include <stdint.h>

/** The value of a hexadecimal digit of either case; -1: c is none. */
static inline int32_t lathe_hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/** The value of the four digits that text[0, n) begins with; -1: it begins with fewer. */
static inline int32_t lathe_hex_four(const char *text, int64_t n)
{
    int32_t value = 0;
    for (int64_t i = 0; i < 4; i++) {
        const int32_t digit = i < n ? lathe_hex_digit(text[i]) : -1;
        if (digit < 0)
            return -1;
        value = 16 * value + digit;
    }
    return value;
}

#endif
