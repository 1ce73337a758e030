/* Errors as JSON on stdout: what every command with --json prints instead of its facts when it
 * fails. */
#ifndef LATHE_APP_ERRORS_JSON_H
#define LATHE_APP_ERRORS_JSON_H

#include <jansson.h>

#include "plug/diag.h"

/** A list of those of one severity (LATHE_DIAG_*), each with "file", "line", "column", "message"
 *  and "suggestion"; null for what is not known. The caller owns it; NULL without memory. */
json_t *lathe_app_diags_json(const lathe_diags *diags, int32_t severity);

/** The same list from the text of an error. A line "FILE:LINE:COLUMN: error: TEXT (did you mean
 *  'WORD'?)" is an error of its own; other text is one error without a place. */
json_t *lathe_app_errors_json(const char *text);

/** Prints {"errors": [...]} for the text of an error to stdout. */
void lathe_app_print_errors(const char *text);

#endif
