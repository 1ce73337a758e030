/* Characters that NFC leaves alone wherever they stand. */
#ifndef LATHE_UNICODE_SETTLED_H
#define LATHE_UNICODE_SETTLED_H

#include <stdint.h>

/** 1 when c is its own NFC, combines with nothing before it, and is no mark (combining class 0): a
 *  text may be cut before it and normalised in parts. c < 0 (no character): 1. */
int lathe__is_settled(int32_t c);

#endif
