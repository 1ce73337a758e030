/* Prints errors as JSON on stdout: the output of a failed command with --json. */
#ifndef LATHE_CLI_ERRORS_JSON_H
#define LATHE_CLI_ERRORS_JSON_H

#include <jansson.h>

#include "base/diag.h"

/** Makes a list of the diagnostics of one severity (LATHE_DIAG_*), each with "file", "line",
 *  "column", "message" and "suggestion"; unknown ones are null. The caller owns the list; NULL: out
 *  of memory. */
json_t *lathe_cli_diags_json(const lathe_diags *diags, int32_t severity);

/** Makes the same list from the text of an error. Each line "FILE:LINE:COLUMN: error: TEXT (did you
 *  mean 'WORD'?)" is one error; other text is one error without a place. */
json_t *lathe_cli_errors_json(const char *text);

/** Prints {"errors": [...]} for the text of an error to stdout. */
void lathe_cli_print_errors(const char *text);

#endif
