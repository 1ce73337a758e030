/* Characters that NFC never changes, whatever is before and after them. */
#ifndef LATHE_TOKENIZER_SETTLED_H
#define LATHE_TOKENIZER_SETTLED_H

#include <stdint.h>

/** Returns 1 if c is its own NFC, does not combine with the character before it, and is not a mark
 *  (combining class 0). A text may then be cut before c and normalized in parts. Returns 1 for c <
 *  0 (no character). */
int lathe__is_settled(int32_t c);

#endif
