/* Keeps the calling thread's last error. */
#include "base/error.h"
/* Under the static analyzer it is also a macro, which would replace the name in the definition. */
#undef lathe_error

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/printable.h"

enum { MESSAGE_BYTES = 4096 };

static _Thread_local char message[MESSAGE_BYTES];

/* The arguments may point into the old message, so the new one is built in another buffer. */
lathe_status lathe_error(lathe_status code, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lathe_printable_copy(message, sizeof message, text);
    return code;
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

void lathe_error_clear(void)
{
    message[0] = '\0';
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
