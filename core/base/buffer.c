/* A growing byte string. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"

/* Makes room for `bytes` more and a NUL; 0 when it cannot, with the status set. */
static int reserve(lathe_buffer *buffer, int64_t bytes)
{
    if (buffer->status != LATHE_OK)
        return 0;
    if (bytes >= 0 && buffer->data != NULL && bytes < buffer->capacity - buffer->len)
        return 1;
    char *data = NULL;
    int64_t capacity = 0;
    if (bytes >= 0 && bytes < INT64_MAX / 4 && buffer->len < INT64_MAX / 4) {
        capacity = buffer->capacity < 128 ? 256 : buffer->capacity * 2;
        if (capacity < buffer->len + bytes + 1)
            capacity = buffer->len + bytes + 1;
        data = realloc(buffer->data, (size_t)capacity);
    }
    if (data == NULL) {
        buffer->status = lathe_error(LATHE_E_NOMEM, "out of memory: text of %lld + %lld bytes",
                                     (long long)buffer->len, (long long)bytes);
        return 0;
    }
    lathe_heap_count();
    buffer->data = data;
    buffer->capacity = capacity;
    return 1;
}

void lathe_buffer_append(lathe_buffer *buffer, const void *data, int64_t bytes)
{
    if (!reserve(buffer, bytes))
        return;
    if (bytes > 0)
        memcpy(buffer->data + buffer->len, data, (size_t)bytes);
    buffer->len += bytes;
    buffer->data[buffer->len] = '\0';
}

void lathe_buffer_puts(lathe_buffer *buffer, const char *text)
{
    lathe_buffer_append(buffer, text, (int64_t)strlen(text));
}

void lathe_buffer_printf(lathe_buffer *buffer, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n >= 0 && reserve(buffer, n)) {
        (void)vsnprintf(buffer->data + buffer->len, (size_t)n + 1, format, again);
        buffer->len += n;
    }
    va_end(again);
}

/* Bytes of the UTF-8 sequence at text, 0 when it is none (Unicode 15, table 3-7). */
static int64_t utf8_length(const unsigned char *text)
{
    const unsigned char a = text[0];
    if (a < 0x80)
        return 1;
    if (a < 0xC2 || a > 0xF4)
        return 0;
    const int64_t n = a < 0xE0 ? 2 : a < 0xF0 ? 3 : 4;
    const unsigned char low = a == 0xE0 ? 0xA0 : a == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = a == 0xED ? 0x9F : a == 0xF4 ? 0x8F : 0xBF;
    if (text[1] < low || text[1] > high)
        return 0;
    for (int64_t i = 2; i < n; i++)
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    return n;
}

/* Bytes that are no UTF-8 become U+FFFD: the text is valid JSON whatever came in. */
void lathe_buffer_json_string(lathe_buffer *buffer, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    lathe_buffer_puts(buffer, "\"");
    while (*at != '\0') {
        const int64_t n = utf8_length(at);
        if (n == 0)
            lathe_buffer_puts(buffer, "\\ufffd");
        else if (*at == '"' || *at == '\\')
            lathe_buffer_printf(buffer, "\\%c", *at);
        else if (*at == '\n')
            lathe_buffer_puts(buffer, "\\n");
        else if (*at == '\t')
            lathe_buffer_puts(buffer, "\\t");
        else if (*at < 0x20 || *at == 0x7F)
            lathe_buffer_printf(buffer, "\\u%04x", *at);
        else
            lathe_buffer_append(buffer, at, n);
        at += n == 0 ? 1 : n;
    }
    lathe_buffer_puts(buffer, "\"");
}

void lathe_buffer_fini(lathe_buffer *buffer)
{
    free(buffer->data);
    buffer->data = NULL;
    buffer->len = buffer->capacity = 0;
    buffer->status = LATHE_OK;
}
