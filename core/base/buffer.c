/* A growing byte string. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"

/* Makes room for `bytes` more and a NUL. 0: failed now or earlier; see status. */
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

void lathe_buffer_vprintf(lathe_buffer *buffer, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && reserve(buffer, n)) {
        (void)vsnprintf(buffer->data + buffer->len, (size_t)n + 1, format, again);
        buffer->len += n;
    }
    va_end(again);
}

void lathe_buffer_printf(lathe_buffer *buffer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    lathe_buffer_vprintf(buffer, format, args);
    va_end(args);
}

int64_t lathe_buffer_printable(lathe_buffer *buffer, const char *text, int64_t n, int64_t room)
{
    int64_t shown = 0;
    for (int64_t i = 0; i < n && shown < room;) {
        const int64_t left = room - shown < n - i ? room - shown : n - i;
        const int64_t plain = lathe_printable_plain(text + i, left);
        char form[LATHE_PRINTABLE_BYTES];
        int32_t size;
        lathe_buffer_append(buffer, text + i, plain);
        i += plain;
        shown += plain;
        if (plain == left)
            continue;
        i += lathe_printable_at(text + i, n - i, form, &size);
        lathe_buffer_append(buffer, form, size);
        shown++;
    }
    return shown;
}

/* Bytes that are not UTF-8 become U+FFFD, so the output is always valid JSON. */
void lathe_buffer_json_bytes(lathe_buffer *buffer, const char *text, int64_t bytes)
{
    const uint8_t *const at = (const uint8_t *)text;
    lathe_buffer_puts(buffer, "\"");
    for (int64_t i = 0; i < bytes;) {
        int32_t n;
        const int32_t c = lathe_utf8_at(at + i, bytes - i, &n);
        if (c < 0) {
            lathe_buffer_puts(buffer, "\\ufffd");
            n = lathe_utf8_bad(at + i, bytes - i);
        } else if (c == '"' || c == '\\')
            lathe_buffer_printf(buffer, "\\%c", (char)c);
        else if (c == '\n')
            lathe_buffer_puts(buffer, "\\n");
        else if (c == '\t')
            lathe_buffer_puts(buffer, "\\t");
        else if (c < 0x20 || c == 0x7F)
            lathe_buffer_printf(buffer, "\\u%04x", (unsigned)c);
        else
            lathe_buffer_append(buffer, at + i, n);
        i += n;
    }
    lathe_buffer_puts(buffer, "\"");
}

void lathe_buffer_utf8(lathe_buffer *buffer, const char *text, int64_t bytes)
{
    const uint8_t *const at = (const uint8_t *)text;
    for (int64_t i = 0; i < bytes;) {
        const int64_t good = lathe_utf8_prefix(at + i, bytes - i);
        lathe_buffer_append(buffer, text + i, good);
        i += good;
        if (i < bytes) {
            lathe_buffer_puts(buffer, "\xef\xbf\xbd");
            i += lathe_utf8_bad(at + i, bytes - i);
        }
    }
}

void lathe_buffer_json_string(lathe_buffer *buffer, const char *text)
{
    lathe_buffer_json_bytes(buffer, text, (int64_t)strlen(text));
}

void lathe_buffer_fini(lathe_buffer *buffer)
{
    free(buffer->data);
    buffer->data = NULL;
    buffer->len = buffer->capacity = 0;
    buffer->status = LATHE_OK;
}
