/* Keeps the calling thread's last error. */
#include "base/error.h"
/* Under the static analyzer it is also a macro, which would replace the name in the definition. */
#undef lathe_error
#undef lathe_error_at

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/printable.h"

enum { MESSAGE_BYTES = 4096 };

enum { KEY_BYTES = 128 };

static _Thread_local char message[MESSAGE_BYTES];
static _Thread_local char section_of[KEY_BYTES], key_of[KEY_BYTES]; /* "": of no key */

/* The arguments may point into the old message, so the new one is built in another buffer. */
static void set_message(const char *format, va_list args)
{
    char text[MESSAGE_BYTES];
    (void)vsnprintf(text, sizeof text, format, args);
    lathe_printable_copy(message, sizeof message, text);
}

lathe_status lathe_error(lathe_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_message(format, args);
    va_end(args);
    section_of[0] = key_of[0] = '\0';
    return code;
}

lathe_status lathe_error_at(lathe_status code, const char *section, const char *key,
                            const char *format, ...)
{
    char of[KEY_BYTES] = "", at[KEY_BYTES] = ""; /* the arguments may be those of the old error */
    va_list args;
    va_start(args, format);
    set_message(format, args);
    va_end(args);
    (void)snprintf(of, sizeof of, "%s", section != NULL ? section : "");
    (void)snprintf(at, sizeof at, "%s", key != NULL ? key : "");
    memcpy(section_of, of, sizeof of);
    memcpy(key_of, at, sizeof at);
    return code;
}

lathe_status lathe_error_about(lathe_status code, const char *section, const char *key)
{
    if (section_of[0] == '\0')
        (void)snprintf(section_of, sizeof section_of, "%s", section);
    if (key_of[0] == '\0' && key != NULL)
        (void)snprintf(key_of, sizeof key_of, "%s", key);
    return code;
}

const char *lathe_error_section(void)
{
    return section_of;
}

const char *lathe_error_key(void)
{
    return key_of;
}

lathe_status lathe_error_context(lathe_status code, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n >= 0 && n < MESSAGE_BYTES - 3)
        (void)snprintf(text + n, sizeof text - (size_t)n, ": %.*s", MESSAGE_BYTES - 3 - n, message);
    lathe_printable_copy(message, sizeof message, text);
    return code;
}

const char *lathe_error_message(void)
{
    return message;
}

const char *lathe_error_line(char *out, size_t capacity)
{
    (void)snprintf(out, capacity, "%.*s", (int)strcspn(message, "\n"), message);
    return out;
}

void lathe_error_clear(void)
{
    message[0] = section_of[0] = key_of[0] = '\0';
}

const char *lathe_status_text(lathe_status code)
{
    switch (code) {
#define LATHE_X(name, value, meaning)                                                              \
    case value:                                                                                    \
        return meaning;
        LATHE_STATUS_TABLE(LATHE_X)
#undef LATHE_X
    default:
        return "unknown status";
    }
}
