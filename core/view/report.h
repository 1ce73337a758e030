/* `lathe report`: shows a run as one HTML page that needs neither network nor script. */
#ifndef LATHE_VIEW_REPORT_H
#define LATHE_VIEW_REPORT_H

#include "base/buffer.h"
#include "view/run_view.h"

/** Appends the page. verify: checks every checkpoint against its manifest, which reads it
 *  completely. LATHE_E_NOMEM. */
lathe_status lathe_report_page(const lathe_run_view *v, int32_t verify, lathe_buffer *out);

/* ---- parts of the page; each appends one section, or nothing if the run has no such data ---- */

/** Curves of the metrics (report_curves.c). */
lathe_status lathe__report_curves(const lathe_run_view *v, lathe_buffer *out);
/** Where the time of a step is spent (report_curves.c). */
lathe_status lathe__report_time(const lathe_run_view *v, lathe_buffer *out);
/** Starts and checkpoints (report_lineage.c). */
void lathe__report_starts(const lathe_run_view *v, lathe_buffer *out);
void lathe__report_checkpoints(const lathe_run_view *v, int32_t verify, lathe_buffer *out);
/** The chain from the latest checkpoint back to the first weights (report_chain.c). verify: hashes
 *  every file of it. LATHE_E_NOMEM. */
lathe_status lathe__report_chain(const lathe_run_view *v, int32_t verify, lathe_buffer *out);
/** Samples and events, from their files (report_texts.c). */
lathe_status lathe__report_samples(const lathe_run_view *v, lathe_buffer *out);
lathe_status lathe__report_events(const lathe_run_view *v, lathe_buffer *out);
/** Plan, configuration, plugins, machine: from run.json (report_setup.c). */
void lathe__report_plan(const lathe_run_view *v, lathe_buffer *out);
void lathe__report_setup(const lathe_run_view *v, lathe_buffer *out);

/** "2026-01-31 12:00 UTC" for seconds since 1970; "" if not finite. */
void lathe__report_date(double seconds, char *out, int64_t bytes);

#endif
