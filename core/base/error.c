/* Keeps the calling thread's last error. */
#include "base/error.h"
/* Under the static analyzer they are also macros, which would replace the names in the
 * definitions. */
#undef lathe_error
#undef lathe_error_at
#undef lathe_error_in

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/printable.h"

enum { MESSAGE_BYTES = 4096 };

enum { KEY_BYTES = 128 };

/* The message is "CONTEXT: PLACE: WORDS (did you mean 'WORD'?)", each part in its printable form
 * and each but the words perhaps empty. */
static _Thread_local struct {
    char message[MESSAGE_BYTES];
    size_t n_context, n_place, n_suggestion; /* bytes of the parts */
    char section[KEY_BYTES], key[KEY_BYTES]; /* "": none */
    char file[PATH_MAX];                     /* "": no place */
    char suggestion[KEY_BYTES];              /* "": none */
    int32_t line, column;
    int64_t record; /* 0: none */
    uint64_t serial;
} error;

/* Forgets everything but the message. */
static void begin(void)
{
    error.n_context = error.n_place = error.n_suggestion = 0;
    error.section[0] = error.key[0] = error.file[0] = error.suggestion[0] = '\0';
    error.line = error.column = 0;
    error.record = 0;
    error.serial++;
}

/* The arguments may point into the old message, so the new one is built in another buffer. */
static void set_message(const char *format, va_list args)
{
    char text[MESSAGE_BYTES];
    (void)vsnprintf(text, sizeof text, format, args);
    lathe_printable_copy(error.message, sizeof error.message, text);
}

/* Puts the printable form of `text` before the byte `at` of the message, whose end is cut where it
 * has no room. Returns its bytes; 0 where there is no room for all of it. */
static size_t insert(size_t at, const char *text)
{
    char part[MESSAGE_BYTES], rest[MESSAGE_BYTES];
    lathe_printable_copy(part, sizeof part, text);
    const size_t n = strlen(part);
    if (at + n >= MESSAGE_BYTES)
        return 0;
    memcpy(rest, error.message + at, strlen(error.message + at) + 1);
    memcpy(error.message + at, part, n + 1);
    lathe_printable_copy(error.message + at + n, (int64_t)(MESSAGE_BYTES - at - n), rest);
    return n;
}

lathe_status lathe_error(lathe_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_message(format, args);
    va_end(args);
    begin();
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
    begin();
    memcpy(error.section, of, sizeof of);
    memcpy(error.key, at, sizeof at);
    return code;
}

/* "FILE:LINE:COLUMN: ", without a line or column that is 0. */
static void place_text(char *out, size_t capacity, const char *file, int64_t line, int64_t column)
{
    if (line > 0 && column > 0)
        (void)snprintf(out, capacity, "%s:%lld:%lld: ", file, (long long)line, (long long)column);
    else if (line > 0)
        (void)snprintf(out, capacity, "%s:%lld: ", file, (long long)line);
    else
        (void)snprintf(out, capacity, "%s: ", file);
}

static int32_t place_number(int64_t n)
{
    return n > INT32_MAX ? INT32_MAX : (int32_t)n;
}

lathe_status lathe_error_from(lathe_status code, const char *file, int64_t line, int64_t column)
{
    char text[MESSAGE_BYTES];
    place_text(text, sizeof text, file, line, column);
    if (error.file[0] != '\0') {
        error.n_context += insert(0, text);
        return code;
    }
    error.n_place = insert(error.n_context, text);
    (void)snprintf(error.file, sizeof error.file, "%s", file);
    error.line = place_number(line);
    error.column = place_number(column);
    return code;
}

lathe_status lathe_error_in(lathe_status code, const char *file, int64_t line, int64_t column,
                            const char *format, ...)
{
    char name[PATH_MAX]; /* it may be that of the old error */
    va_list args;
    (void)snprintf(name, sizeof name, "%s", file);
    va_start(args, format);
    set_message(format, args);
    va_end(args);
    begin();
    return lathe_error_from(code, name, line, column);
}

lathe_status lathe_error_in_record(lathe_status code, const char *file, const char *unit,
                                   int64_t number)
{
    char text[MESSAGE_BYTES];
    if (strcmp(error.file, file) == 0)
        return code;
    if (unit != NULL)
        (void)snprintf(text, sizeof text, "%s: %s %lld: ", file, unit, (long long)number);
    else
        place_text(text, sizeof text, file, number, 0);
    error.n_context = 0; /* a context belongs to the words that follow the place */
    error.n_place = insert(0, text);
    (void)snprintf(error.file, sizeof error.file, "%s", file);
    error.line = unit != NULL ? 0 : place_number(number);
    error.column = 0;
    error.record = unit != NULL ? number : 0;
    return code;
}

void lathe_error_keep(lathe_kept_error *out)
{
    const size_t n = strlen(error.file), bytes = strlen(error.message);
    *out = (lathe_kept_error){.line = 0};
    (void)snprintf(out->message, sizeof out->message, "%.*s", (int)sizeof out->message - 1,
                   error.message);
    (void)snprintf(out->section, sizeof out->section, "%s", error.section);
    (void)snprintf(out->key, sizeof out->key, "%s", error.key);
    if (bytes >= sizeof out->message || n >= sizeof out->file)
        return; /* the parts are not where they were */
    (void)snprintf(out->suggestion, sizeof out->suggestion, "%s", error.suggestion);
    memcpy(out->file, error.file, n + 1);
    out->n_context = error.n_context;
    out->n_place = error.n_place;
    out->n_suggestion = error.n_suggestion;
    out->line = error.line;
    out->column = error.column;
    out->record = error.record;
}

lathe_status lathe_error_raise(lathe_status code, const lathe_kept_error *kept)
{
    (void)lathe_error_at(code, kept->section, kept->key, "%s", kept->message);
    (void)snprintf(error.suggestion, sizeof error.suggestion, "%s", kept->suggestion);
    (void)snprintf(error.file, sizeof error.file, "%s", kept->file);
    error.n_context = kept->n_context;
    error.n_place = kept->n_place;
    error.n_suggestion = kept->n_suggestion;
    error.line = kept->line;
    error.column = kept->column;
    error.record = kept->record;
    return code;
}

lathe_status lathe_error_suggest(lathe_status code, const char *word)
{
    char text[KEY_BYTES + 32];
    if (word == NULL)
        return code;
    (void)snprintf(text, sizeof text, " (did you mean '%.*s'?)", KEY_BYTES - 1, word);
    error.n_suggestion = insert(strlen(error.message), text);
    (void)snprintf(error.suggestion, sizeof error.suggestion, "%s", word);
    return code;
}

lathe_status lathe_error_about(lathe_status code, const char *section, const char *key)
{
    if (error.section[0] == '\0')
        (void)snprintf(error.section, sizeof error.section, "%s", section);
    if (error.key[0] == '\0' && key != NULL)
        (void)snprintf(error.key, sizeof error.key, "%s", key);
    return code;
}

const char *lathe_error_section(void)
{
    return error.section;
}

const char *lathe_error_key(void)
{
    return error.key;
}

lathe_place lathe_error_place(void)
{
    if (error.file[0] == '\0')
        return (lathe_place){0};
    return (lathe_place){error.file, error.line, error.column, error.record};
}

const char *lathe_error_suggestion(void)
{
    return error.suggestion[0] != '\0' ? error.suggestion : NULL;
}

const char *lathe_error_words(char *out, size_t capacity)
{
    const size_t words = error.n_context + error.n_place, n = strlen(error.message);
    const size_t n_words = n > words + error.n_suggestion ? n - words - error.n_suggestion : 0;
    (void)snprintf(out, capacity, "%.*s%.*s", (int)error.n_context, error.message, (int)n_words,
                   error.message + words);
    return out;
}

size_t lathe_error_context_bytes(void)
{
    return error.n_context;
}

uint64_t lathe_error_serial(void)
{
    return error.serial;
}

lathe_status lathe_error_context(lathe_status code, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n >= 0 && n < MESSAGE_BYTES - 3) {
        (void)snprintf(text + n, sizeof text - (size_t)n, ": ");
        error.n_context += insert(0, text);
    }
    return code;
}

const char *lathe_error_message(void)
{
    return error.message;
}

const char *lathe_error_line(char *out, size_t capacity)
{
    (void)snprintf(out, capacity, "%.*s", (int)strcspn(error.message, "\n"), error.message);
    return out;
}

void lathe_error_clear(void)
{
    error.message[0] = '\0';
    begin();
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
