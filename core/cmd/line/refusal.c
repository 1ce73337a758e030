/* Prints errors and warnings of a run file. */
#include "cmd/line/refusal.h"

#include <stdio.h>

#include "base/error.h"
#include "base/print.h"
#include "cmd/line/errors_json.h"

/* Whether the machine failed; the user can correct all other errors. */
static int is_failure(lathe_status status)
{
    return status == LATHE_E_NOMEM || status == LATHE_E_DEVICE || status == LATHE_E_INTERRUPTED ||
           status == LATHE_E_RANK;
}

int lathe_cli_refusal_code(lathe_status status)
{
    if (status == LATHE_OK)
        return LATHE_EXIT_OK;
    return is_failure(status) ? LATHE_EXIT_FAILED : LATHE_EXIT_USAGE;
}

int lathe_cli_put_refusal(const lathe_args *args, lathe_diags *diags, lathe_status status,
                          lathe_buffer *text)
{
    const char *message = lathe_error_message();
    if (!message[0])
        message = lathe_status_text(status);
    lathe_diags_sort(diags);
    lathe_diags_print(diags, text);
    if (status == LATHE_OK)
        return LATHE_EXIT_OK;
    if (is_failure(status))
        lathe_buffer_printf(text, "lathe %s: %s\n", args->command->name, message);
    else if (diags->n_errors > 1)
        lathe_buffer_printf(text, "%s: %lld errors\n", args->words[0], (long long)diags->n_errors);
    else if (diags->n_errors == 0) /* the run file could not be read */
        lathe_buffer_printf(text, "%s\n", message);
    return lathe_cli_refusal_code(status);
}

int lathe_cli_tell_refusal(const lathe_args *args, lathe_diags *diags, lathe_status status)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    const int code = lathe_cli_put_refusal(args, diags, status, &text);
    (void)fflush(stdout);
    lathe_print_text(stderr, text.data ? text.data : "");
    lathe_buffer_fini(&text);
    return code;
}

int lathe_cli_tell_refusal_json(const lathe_args *args, lathe_diags *diags, lathe_status status)
{
    lathe_diags_sort(diags);
    const int is_told = diags->n_errors > 0 || status == LATHE_OK;
    const char *text = lathe_error_message()[0] ? lathe_error_message() : lathe_status_text(status);
    json_t *errors =
        is_told ? lathe_cli_diags_json(diags, LATHE_DIAG_ERROR) : lathe_cli_error_json(status);
    json_t *root = json_pack("{s:b, s:o, s:o}", "valid", status == LATHE_OK, "errors", errors,
                             "warnings", lathe_cli_diags_json(diags, LATHE_DIAG_WARNING));
    lathe_print_json(stdout, root, JSON_INDENT(2));
    (void)fflush(stdout);
    json_decref(root);
    if (status == LATHE_OK)
        return LATHE_EXIT_OK;
    if (!is_told)
        lathe_print_to(stderr, "lathe %s: %s\n", args->command->name, text);
    return is_failure(status) ? LATHE_EXIT_FAILED : LATHE_EXIT_USAGE;
}
