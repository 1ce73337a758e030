/* Reads the state of a run from its folder: run.json, metrics.jsonl, checkpoints. It does not ask
 * the training process, which may be on another machine or have ended long ago. */
#ifndef LATHE_VIEW_RUN_VIEW_H
#define LATHE_VIEW_RUN_VIEW_H

#include <jansson.h>

#include "metrics/metrics_read.h"
#include "view/series.h"

/* States of a run. */
enum {
    LATHE_PULSE_EMPTY = 0,    /* the folder is still empty */
    LATHE_PULSE_RUNNING = 1,  /* its process is alive */
    LATHE_PULSE_STALLED = 2,  /* alive, but no step for a long time */
    LATHE_PULSE_FINISHED = 3, /* all steps are done */
    LATHE_PULSE_PAUSED = 4,   /* train.stop_after */
    LATHE_PULSE_INTERRUPTED = 5,
    LATHE_PULSE_FAILED = 6, /* it recorded why */
    LATHE_PULSE_STOPPED = 7 /* its process ended without a record */
};

typedef struct lathe_checkpoint_view {
    const char *name;
    int64_t step, bytes;
    double written;    /* seconds since 1970 */
    double eval_loss;  /* at its step; NAN: no evaluation at that step */
    int32_t is_latest; /* `latest` names it */
    int32_t is_best;   /* named by `best`, else the one with the lowest eval_loss */
} lathe_checkpoint_view;

typedef struct lathe_run_view {
    const char *dir;
    lathe_arena arena;
    json_t *record; /* run.json; NULL: missing or unreadable */
    int64_t record_stamp;
    lathe_metrics_reader *reader;
    lathe_series series[LATHE_METRICS_MAX_KEYS]; /* indexed by key */
    lathe_status series_status;
    int64_t metrics_stamp;
    int64_t step;           /* last known step; -1: none */
    double metrics_written; /* seconds since 1970; 0: never */
    lathe_arena checkpoint_arena;
    lathe_checkpoint_view *checkpoints; /* sorted by step */
    int64_t n_checkpoints, checkpoint_stamp;
} lathe_run_view;

/** LATHE_E_NOT_FOUND: no such folder. Call lathe_run_view_fini in every case. */
lathe_status lathe_run_view_init(lathe_run_view *v, const char *dir);
void lathe_run_view_fini(lathe_run_view *v);

/** Reads new data. LATHE_E_NOMEM, LATHE_E_IO. */
lathe_status lathe_run_view_refresh(lathe_run_view *v);

/** LATHE_E_NOT_FOUND: the folder is not that of a run; it has no run.json, metrics.jsonl or
 *  checkpoint. Call it after a refresh. */
lathe_status lathe_run_view_check(const lathe_run_view *v);

/** The curve of a key; NULL if the key has no value. */
const lathe_series *lathe_run_view_series(const lathe_run_view *v, const char *key);
/** The last value of a key; NAN if there is none. */
double lathe_run_view_last(const lathe_run_view *v, const char *key);

/** A value of run.json by a path of keys ("plan.memory_bytes"); NULL if it does not exist. */
const json_t *lathe_run_view_get(const lathe_run_view *v, const char *path);
/** The value of lathe_run_view_get as a text, or ""; as a number, or NAN. */
const char *lathe_run_view_text(const lathe_run_view *v, const char *path);
double lathe_run_view_number(const lathe_run_view *v, const char *path);

/** The newest start of the lineage, or NULL. */
const json_t *lathe_run_view_start(const lathe_run_view *v);

/** The current LATHE_PULSE_*. */
int32_t lathe_run_pulse(const lathe_run_view *v);
/** "training", "no step for long", "finished", ... */
const char *lathe_run_pulse_text(int32_t pulse);

/** Estimated seconds that remain, from the mean of the last steps; NAN if unknown. */
double lathe_run_view_eta(const lathe_run_view *v);
/** Seconds from the newest start to its end, or to now while the run is running; NAN if unknown. */
double lathe_run_view_elapsed(const lathe_run_view *v, int32_t pulse);

/** Seconds since 1970 of "2026-01-31T12:00:00Z"; NAN if the text is not a time. */
double lathe_time_of_text(const char *text);
/** Seconds since 1970 now. */
double lathe_time_now(void);

#endif
