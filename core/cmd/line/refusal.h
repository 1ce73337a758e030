/* Reports why a run cannot start, for lathe validate and lathe train. */
#ifndef LATHE_CMD_REFUSAL_H
#define LATHE_CMD_REFUSAL_H

#include "base/buffer.h"
#include "base/diag.h"
#include "cmd/line/args.h"

/** The exit code of a run that cannot start: 0; 2 if the user can correct the error; 1. */
int lathe_cli_refusal_code(lathe_status status);

/** Puts what lathe_cli_tell_refusal prints into text, and returns the exit code. */
int lathe_cli_put_refusal(const lathe_args *args, lathe_diags *diags, lathe_status status,
                          lathe_buffer *text);

/** Prints errors and warnings to stderr, one per line, and the number of errors if there are
 *  several. Returns the exit
 *  code for `status`, the result of checking or opening the run: 0; 2 if the user can correct the
 *  error; 1 for other failures. */
int lathe_cli_tell_refusal(const lathe_args *args, lathe_diags *diags, lathe_status status);

/** Like lathe_cli_tell_refusal, as one JSON object on stdout: "valid", and lists "errors" and
 *  "warnings" whose elements have "file", "line", "column", "message" and "suggestion". A failure
 *  for another reason than the file is an error without a place, and is also printed on stderr. */
int lathe_cli_tell_refusal_json(const lathe_args *args, lathe_diags *diags, lathe_status status);

#endif
