/* Base64 with the digits + and /, as in RFC 4648. */
#ifndef LATHE_BASE_BASE64_H
#define LATHE_BASE_BASE64_H

#include "base/buffer.h"

/** Decodes n characters into out, which has room for 3 bytes per 4 characters. Returns the number
 * of bytes; -1 if the text is not base64 with its padding. */
int64_t lathe_base64_decode(const char *text, int64_t n, uint8_t *out);
/** Appends bytes as base64. */
void lathe_base64_append(lathe_buffer *out, const uint8_t *bytes, int64_t n);

#endif
