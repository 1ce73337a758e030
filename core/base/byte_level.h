/* The byte-level alphabet: GPT-2's table, in which a printable character stands for each byte. */
#ifndef LATHE_BASE_BYTE_LEVEL_H
#define LATHE_BASE_BYTE_LEVEL_H

#include <stdint.h>

/** The character that stands for a byte. */
int32_t lathe_byte_char(int32_t byte);
/** Converts byte-level text to the bytes that it stands for, into out[n]. Returns the number of
 *  bytes; -1 if a character stands for no byte. */
int64_t lathe_bytes_of_chars(const char *text, int64_t n, uint8_t *out);
/** Writes bytes as byte-level text; returns the end. out has room for 2n bytes. */
uint8_t *lathe_chars_of_bytes(const uint8_t *bytes, int64_t n, uint8_t *out);

#endif
