/* Prints errors as JSON, from diagnostics or from the thread's error. */
#include "cmd/line/errors_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/print.h"
#include "base/utf8.h"

/* A JSON string of n bytes; bytes that are not UTF-8 become U+FFFD, as in a path of a file. */
static json_t *text_json(const char *text, size_t n)
{
    json_t *string = json_stringn(text, n);
    if (string != NULL)
        return string;
    lathe_buffer b = LATHE_BUFFER_INIT;
    for (int64_t i = 0; i < (int64_t)n;) {
        int32_t len = 0;
        if (lathe_utf8_at((const uint8_t *)text + i, (int64_t)n - i, &len) < 0) {
            len = lathe_utf8_bad((const uint8_t *)text + i, (int64_t)n - i);
            lathe_buffer_puts(&b, "\xef\xbf\xbd");
        } else {
            lathe_buffer_append(&b, text + i, len);
        }
        i += len;
    }
    string = json_stringn(b.data ? b.data : "", (size_t)b.len);
    lathe_buffer_fini(&b);
    return string;
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? text_json(text, strlen(text)) : json_null();
}

static void put_place(json_t *one, const lathe_place *place)
{
    const int has_line = place->line > 0;
    (void)json_object_set_new(one, "file", text_or_null(place->file));
    (void)json_object_set_new(one, "line", has_line ? json_integer(place->line) : json_null());
    (void)json_object_set_new(
        one, "column", has_line && place->column > 0 ? json_integer(place->column) : json_null());
    if (place->record > 0)
        (void)json_object_set_new(one, "record", json_integer(place->record));
}

/* One error; place without a file: unknown. */
static json_t *make(const lathe_place *place, const char *message, const char *suggestion)
{
    json_t *one = json_object();
    put_place(one, place);
    (void)json_object_set_new(one, "message", text_or_null(message));
    (void)json_object_set_new(one, "suggestion", text_or_null(suggestion));
    return one;
}

/* An error whose cause is in another file has that place as "cause". */
static json_t *make_of(const lathe_diag *d, const char *message)
{
    json_t *one = make(&d->place, message, d->suggestion);
    if (d->inner.file != NULL) {
        json_t *cause = json_object();
        put_place(cause, &d->inner);
        (void)json_object_set_new(one, "cause", cause);
    }
    return one;
}

/* context[0, n_context) begins each message. */
static json_t *list_of(const lathe_diags *diags, int32_t severity, const char *context,
                       size_t n_context)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < diags->n; i++) {
        const lathe_diag *d = &diags->items[i];
        lathe_buffer message = LATHE_BUFFER_INIT;
        if (d->severity != severity)
            continue;
        lathe_buffer_append(&message, context, (int64_t)n_context);
        lathe_buffer_puts(&message, d->message != NULL ? d->message : "out of memory");
        (void)json_array_append_new(list, make_of(d, message.data));
        lathe_buffer_fini(&message);
    }
    return list;
}

json_t *lathe_cli_diags_json(const lathe_diags *diags, int32_t severity)
{
    return list_of(diags, severity, "", 0);
}

json_t *lathe_cli_error_json(lathe_status status)
{
    const lathe_diags *diags = lathe_error_diags();
    const char *message = lathe_error_message();
    char words[4096];
    if (diags != NULL)
        return list_of(diags, LATHE_DIAG_ERROR, message, lathe_error_context_bytes());
    const lathe_place place = message[0] ? lathe_error_place() : (lathe_place){0};
    json_t *list = json_array();
    (void)json_array_append_new(
        list, make(&place,
                   message[0] ? lathe_error_words(words, sizeof words) : lathe_status_text(status),
                   message[0] ? lathe_error_suggestion() : NULL));
    return list;
}

void lathe_cli_print_errors(lathe_status status)
{
    json_t *root = json_pack("{s:o}", "errors", lathe_cli_error_json(status));
    lathe_print_json(stdout, root, JSON_INDENT(2));
    (void)fflush(stdout);
    json_decref(root);
}
