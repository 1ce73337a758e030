/* Errors and warnings of a run file on the terminal. */
#include "app/refusal.h"

#include <jansson.h>
#include <stdio.h>

#include "base/error.h"

/* The machine failed; anything else is for the user to mend. */
static int is_failure(lathe_status status)
{
    return status == LATHE_E_NOMEM || status == LATHE_E_DEVICE || status == LATHE_E_INTERRUPTED;
}

int lathe_app_tell_refusal(const lathe_args *args, lathe_diags *diags, lathe_status status)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_diags_sort(diags);
    lathe_diags_print(diags, &text);
    (void)fflush(stdout);
    (void)fputs(text.data ? text.data : "", stderr);
    lathe_buffer_fini(&text);
    if (status == LATHE_OK)
        return LATHE_EXIT_OK;
    if (is_failure(status))
        return lathe_args_fail(args, status);
    if (diags->n_errors > 0)
        (void)fprintf(stderr, "%s: %lld error%s\n", args->words[0], (long long)diags->n_errors,
                      diags->n_errors == 1 ? "" : "s");
    else /* no run file that could be read */
        (void)fprintf(stderr, "%s\n",
                      lathe_error_message()[0] ? lathe_error_message() : lathe_status_text(status));
    return LATHE_EXIT_USAGE;
}

static json_t *describe(const lathe_diags *diags, int32_t severity)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < diags->n; i++) {
        const lathe_diag *d = &diags->items[i];
        if (d->severity != severity)
            continue;
        json_t *one = json_pack("{s:s?, s:s, s:s?}", "file", d->place.file, "message", d->message,
                                "suggestion", d->suggestion);
        const int placed = d->place.line > 0;
        (void)json_object_set_new(one, "line", placed ? json_integer(d->place.line) : json_null());
        (void)json_object_set_new(one, "column",
                                  placed ? json_integer(d->place.column) : json_null());
        (void)json_array_append_new(list, one);
    }
    return list;
}

int lathe_app_tell_refusal_json(const lathe_args *args, lathe_diags *diags, lathe_status status)
{
    lathe_diags_sort(diags);
    if (status != LATHE_OK && (status != LATHE_E_CONFIG || diags->n_errors == 0))
        return lathe_args_fail(args, status);
    json_t *root = json_pack("{s:b, s:o, s:o}", "valid", status == LATHE_OK, "errors",
                             describe(diags, LATHE_DIAG_ERROR), "warnings",
                             describe(diags, LATHE_DIAG_WARNING));
    (void)json_dumpf(root, stdout, JSON_INDENT(2));
    (void)putchar('\n');
    json_decref(root);
    return status == LATHE_OK ? LATHE_EXIT_OK : LATHE_EXIT_USAGE;
}
