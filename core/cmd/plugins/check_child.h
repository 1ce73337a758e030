/* Runs the checks of `lathe plugin check` in a child process, which reports to its parent over a
 * pipe.
 *
 * One line per event: "begin NAME", "end RESULT TEXT", and "done OK FAILED SKIPPED TITLE" when all
 * checks have run. A child that ends without "done" has failed, whatever its exit code says: a
 * plugin may have called exit(0).
 */
#ifndef LATHE_CMD_CHECK_CHILD_H
#define LATHE_CMD_CHECK_CHILD_H

#include "check/kinds/conformance.h"

/** In the child: creates a report that writes to descriptor `fd`. */
lathe_report lathe_check_child_report(int fd);
/** In the child: reports that all checks have run; title: name of what was checked, for the last
 *  line. */
void lathe_check_child_done(const lathe_conformance_totals *totals, const char *title);
/** In the child: reports that the checks did not start because of wrong arguments; stderr says
 *  why. */
void lathe_check_child_refused(int exit_code);

typedef struct lathe_check_outcome {
    lathe_conformance_totals totals; /* including failures outside of the checks */
    int32_t done;                    /* 1: the child reported that all checks have run */
    int32_t refused;                 /* its exit code if the checks did not start, else 0 */
    char title[256];
} lathe_check_outcome;

/** In the parent: starts argv[0] with its arguments and `--report-to FD`, passes the child's events
 *  to `report`, and kills the child if one check takes longer than `seconds`. A crash, a timeout
 *  and an early exit are failures of the check that was running. */
lathe_status lathe_check_child_run(char *const *argv, double seconds, const lathe_report *report,
                                   lathe_check_outcome *out);

#endif
