/* Prints the report of `lathe plugin check`: a line after each check, or one JSON object at the
 * end. */
#ifndef LATHE_CMD_CHECK_REPORT_H
#define LATHE_CMD_CHECK_REPORT_H

#include <jansson.h>

#include "check/kinds/conformance.h"

typedef struct lathe_check_report {
    lathe_report calls; /* pass this to the suite */
    json_t *checks;     /* NULL: printed as text */
    int saved_stdout;   /* with JSON: the real stdout, while the plugin's own output goes to stderr;
                           else -1 */
} lathe_check_report;

/** Begins a report. The report must not move in memory. */
void lathe_check_report_init(lathe_check_report *report, int as_json);
/** divert redirects the plugin's output to stderr, so that stdout contains only the JSON; restore
 *  ends that. Both do nothing without JSON. */
void lathe_check_report_divert(lathe_check_report *report);
void lathe_check_report_restore(lathe_check_report *report);
/** Prints the totals of `title`, or the whole object: "plugin", "passed", "ok", "failed", "skipped"
 *  and "checks", a list of "name", "result" (pass, fail, skip) and "message". Returns the exit
 *  code. */
int lathe_check_report_end(lathe_check_report *report, const char *title,
                           const lathe_conformance_totals *totals);
void lathe_check_report_fini(lathe_check_report *report);

#endif
