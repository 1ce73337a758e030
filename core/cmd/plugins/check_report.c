/* Prints the report of a plugin's checks, as text or as JSON. */
#include "cmd/plugins/check_report.h"

#include <stdio.h>
#include <unistd.h>

#include "base/print.h"
#include "cmd/line/args.h"

/* ---- text: the name is printed before a check and the result after it, so that a crash is seen at
 * its check ---- */

static void print_begin(void *arg, const char *check)
{
    (void)arg;
    lathe_print("  %-34s ", check);
    (void)fflush(stdout);
}

static void print_end(void *arg, int32_t result, const char *text)
{
    static const char *const words[] = {"ok", "FAIL", "skipped"};
    (void)arg;
    lathe_print("%s%s%s\n", words[result], text[0] ? "  " : "", text);
    (void)fflush(stdout);
}

/* ---- JSON ---- */

static void keep_begin(void *arg, const char *check)
{
    const lathe_check_report *report = arg;
    (void)json_array_append_new(
        report->checks, json_pack("{s:s, s:s, s:n}", "name", check, "result", "fail", "message"));
}

static void keep_end(void *arg, int32_t result, const char *text)
{
    static const char *const words[] = {"pass", "fail", "skip"};
    const lathe_check_report *report = arg;
    json_t *last = json_array_get(report->checks, json_array_size(report->checks) - 1);
    (void)json_object_set_new(last, "result", json_string(words[result]));
    (void)json_object_set_new(last, "message", text[0] ? json_string(text) : json_null());
}

void lathe_check_report_init(lathe_check_report *report, int as_json)
{
    *report = (lathe_check_report){.calls = {print_begin, print_end, NULL}, .saved_stdout = -1};
    if (!as_json)
        return;
    report->checks = json_array();
    report->calls = (lathe_report){keep_begin, keep_end, report};
}

void lathe_check_report_divert(lathe_check_report *report)
{
    if (!report->checks || report->saved_stdout >= 0)
        return;
    (void)fflush(stdout);
    report->saved_stdout = dup(STDOUT_FILENO);
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
}

void lathe_check_report_restore(lathe_check_report *report)
{
    if (report->saved_stdout < 0)
        return;
    (void)fflush(stdout);
    (void)dup2(report->saved_stdout, STDOUT_FILENO);
    (void)close(report->saved_stdout);
    report->saved_stdout = -1;
}

int lathe_check_report_end(lathe_check_report *report, const char *title,
                           const lathe_conformance_totals *totals)
{
    lathe_check_report_restore(report);
    if (!report->checks) {
        lathe_print("%s: %d ok, %d failed, %d skipped\n", title, totals->ok, totals->failed,
                    totals->skipped);
    } else {
        json_t *root = json_pack("{s:s, s:b, s:i, s:i, s:i, s:O}", "plugin", title, "passed",
                                 totals->failed == 0, "ok", totals->ok, "failed", totals->failed,
                                 "skipped", totals->skipped, "checks", report->checks);
        lathe_print_json(stdout, root, JSON_INDENT(2));
        json_decref(root);
    }
    return totals->failed > 0 ? LATHE_EXIT_FAILED : LATHE_EXIT_OK;
}

void lathe_check_report_fini(lathe_check_report *report)
{
    lathe_check_report_restore(report);
    json_decref(report->checks);
}
