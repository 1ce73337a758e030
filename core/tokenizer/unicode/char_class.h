/* Classes of characters for pre-tokenizers: letters, numbers, white space and the rest, by Unicode
 * 16 even where the libraries know an older version. */
#ifndef LATHE_TOKENIZER_CHAR_CLASS_H
#define LATHE_TOKENIZER_CHAR_CLASS_H

#include <stdint.h>

enum {
    LATHE_CHAR_OTHER = 0,
    LATHE_CHAR_LETTER = 1, /* \p{L} */
    LATHE_CHAR_NUMBER = 2, /* \p{N} */
    LATHE_CHAR_SPACE = 4,  /* White_Space except the two below */
    LATHE_CHAR_NEWLINE = 8 /* \r and \n */
};

enum { LATHE_CHAR_CLASSED = 0x40000 }; /* all characters from here on are LATHE_CHAR_OTHER */

/** The class of every character below LATHE_CHAR_CLASSED. The first call makes the table, from any
 *  thread. Never NULL, never freed. */
const uint8_t *lathe__char_classes(void);

/** Ranges "\x{..}-\x{..}" of the letters or numbers that an engine with Unicode 14 may not know, to
 *  be put inside a class. */
const char *lathe__newer_letters(void);
const char *lathe__newer_numbers(void);

#endif
