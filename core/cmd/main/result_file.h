/* The file of generated texts: whole lines in the order of the prompts, so that a run that was
 * killed goes on after the last whole line. */
#ifndef LATHE_CMD_RESULT_FILE_H
#define LATHE_CMD_RESULT_FILE_H

#include <stdint.h>

#include <jansson.h>

#include "base/lock.h"

typedef struct lathe_result_file {
    const char *path;
    int fd;          /* -1: closed */
    int64_t n_lines; /* whole lines that it has */
} lathe_result_file;

/** Opens or continues the file. `settings` (an object) is what the results depend on; it is stored
 *  in PATH.settings.json when the file is begun. Its "prompts" is the hash of the file `prompts`.
 *  A partial last line is cut off.
 *
 *  LATHE_E_CONFIG: a setting differs from those that the file was begun with (the message names
 * it), or the file was not begun by this command. LATHE_E_STATE: another process writes it. */
lathe_status lathe_result_file_open(const char *path, const char *prompts, json_t *settings,
                                    lathe_result_file *out);

/** Appends one line, which ends with a newline. */
lathe_status lathe_result_file_put(lathe_result_file *f, const char *line, int64_t bytes);
void lathe_result_file_close(lathe_result_file *f);

#endif
