/* Ends a command that fails in one or several of the processes that a launcher has started. */
#ifndef LATHE_CMD_RANK_FAILURE_H
#define LATHE_CMD_RANK_FAILURE_H

#include "lathe/status.h"

/** Prints why this process fails to stderr, unless another rank does, and ends all ranks
 *  (parallel/ranks/failure_report.h). Returns the exit code, the same one on all ranks.
 *
 *  text     lines; each begins with "rank 1 of 2: " if not all ranks say the same
 *  status   why
 *  code_of  gives the exit code for a status */
int lathe_cli_fail_ranks(const char *text, lathe_status status,
                         int (*code_of)(lathe_status status));

/** Whether a launcher has started this process as one of several. */
int lathe_cli_is_rank(void);

#endif
