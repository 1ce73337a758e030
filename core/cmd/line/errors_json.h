/* Prints errors as JSON on stdout: the output of a failed command with --json. */
#ifndef LATHE_CMD_ERRORS_JSON_H
#define LATHE_CMD_ERRORS_JSON_H

#include <jansson.h>

#include "base/diag.h"

/** Makes a list of the diagnostics of one severity (LATHE_DIAG_*), each with "file", "line",
 *  "column", "message" and "suggestion"; unknown ones are null. Where the cause is in another file,
 * such as a record of a dataset, its place is in "cause". The caller owns the list; NULL: out of
 * memory. */
json_t *lathe_cli_diags_json(const lathe_diags *diags, int32_t severity);

/** Makes the same list of the thread's error: of each of the diagnostics that it consists of
 *  (lathe_error_diags), or of the one error with its place and suggestion. status: whose text is
 * the message of an error that has none. */
json_t *lathe_cli_error_json(lathe_status status);

/** Prints {"errors": [...]} for the thread's error to stdout. */
void lathe_cli_print_errors(lathe_status status);

#endif
