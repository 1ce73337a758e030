/* The folder of a run, for commands that read what a run has written. */
#ifndef LATHE_CMD_RUN_FOLDER_H
#define LATHE_CMD_RUN_FOLDER_H

#include "base/arena.h"
#include "lathe/status.h"

/** The folder that `word` means: checkpoint.dir of a run file (NAME.toml), else the word itself.
 * The text is in the arena, or the word.
 *
 *  Errors  LATHE_E_CONFIG and those of reading: the run file has errors, or its checkpoint.dir is
 *          empty. */
lathe_status lathe_cli_run_folder(const char *word, lathe_arena *arena, const char **out);

#endif
