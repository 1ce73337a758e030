/* Classes of characters that pre-tokenizers tell apart: letters, numbers, white space, the rest.
 * Unicode 16, whatever older version the libraries know.
 */
#ifndef LATHE_UNICODE_CHAR_CLASS_H
#define LATHE_UNICODE_CHAR_CLASS_H

#include <stdint.h>

enum {
    LATHE_CHAR_OTHER = 0,
    LATHE_CHAR_LETTER = 1, /* \p{L} */
    LATHE_CHAR_NUMBER = 2, /* \p{N} */
    LATHE_CHAR_SPACE = 4,  /* White_Space but the two below */
    LATHE_CHAR_NEWLINE = 8 /* \r and \n */
};

enum { LATHE_CHAR_CLASSED = 0x40000 }; /* from here on all are LATHE_CHAR_OTHER */

/** The class of every character below LATHE_CHAR_CLASSED; made by the first call, which any thread
 *  may be. Never NULL, never freed. */
const uint8_t *lathe__char_classes(void);

/** Ranges "\x{..}-\x{..}" of the letters or numbers that an engine of Unicode 14 may not know: for
 *  the inside of a class. */
const char *lathe__newer_letters(void);
const char *lathe__newer_numbers(void);

#endif
