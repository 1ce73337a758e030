/* Errors and warnings of a run file on the terminal. */
#include "app/refusal.h"

#include <stdio.h>

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
    if (status != LATHE_E_CONFIG || diags->n_errors == 0)
        return lathe_args_fail(args, status);
    (void)fprintf(stderr, "%s: %lld error%s\n", args->words[0], (long long)diags->n_errors,
                  diags->n_errors == 1 ? "" : "s");
    return LATHE_EXIT_USAGE;
}
