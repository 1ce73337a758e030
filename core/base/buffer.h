/* A growing byte string, for building text and files. */
#ifndef LATHE_BASE_BUFFER_H
#define LATHE_BASE_BUFFER_H

#include <stdarg.h>

#include "lathe/status.h"

typedef struct lathe_buffer {
    char *data; /* NUL-terminated when not NULL */
    int64_t len, capacity;
    lathe_status status; /* first failure; later appends do nothing */
} lathe_buffer;

#define LATHE_BUFFER_INIT                                                                          \
    {                                                                                              \
        NULL, 0, 0, LATHE_OK                                                                       \
    }

void lathe_buffer_append(lathe_buffer *buffer, const void *data, int64_t bytes);
void lathe_buffer_puts(lathe_buffer *buffer, const char *text);
__attribute__((format(printf, 2, 3))) void lathe_buffer_printf(lathe_buffer *buffer,
                                                               const char *format, ...);
__attribute__((format(printf, 2, 0))) void lathe_buffer_vprintf(lathe_buffer *buffer,
                                                                const char *format, va_list args);
/** Appends text in printable form (base/printable.h), at most `room` characters of it; returns the
 *  number of characters taken. */
int64_t lathe_buffer_printable(lathe_buffer *buffer, const char *text, int64_t n, int64_t room);
/** Appends text that may not be UTF-8, with U+FFFD for each maximal part of a character that is not
 *  (utf8.h), as other programs decode the ids of a cut character. */
void lathe_buffer_utf8(lathe_buffer *buffer, const char *text, int64_t bytes);
/** Appends text as a JSON string literal, quotes included; bytes that are not UTF-8 as above. */
void lathe_buffer_json_string(lathe_buffer *buffer, const char *text);
/** Like lathe_buffer_json_string, for text that may hold NUL. */
void lathe_buffer_json_bytes(lathe_buffer *buffer, const char *text, int64_t bytes);
void lathe_buffer_fini(lathe_buffer *buffer);

#endif
