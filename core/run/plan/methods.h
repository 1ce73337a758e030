/* Chooses the fine-tuning method: plans a run with one method after the other, from the one that
 * trains most to the one that needs least memory, and takes the first that fits. */
#ifndef LATHE_RUN_METHODS_H
#define LATHE_RUN_METHODS_H

#include "base/buffer.h"
#include "run/decide/micro_batches.h"
#include "run/state/run_state.h"

enum { LATHE_MAX_METHODS = 8 };

enum { LATHE_MAX_METHOD_SETTINGS = 5 };

/** A setting of a method: "adapter.name", "lora", or "adapter.r", 32. */
typedef struct lathe_method_setting {
    const char *key, *text; /* text NULL: a number */
    int64_t number;
} lathe_method_setting;

/** A method and what it needs. */
typedef struct lathe_method_row {
    lathe_method_setting set[LATHE_MAX_METHOD_SETTINGS]; /* the first is "adapter.name" */
    int32_t n_set;
    int64_t n_trained;   /* parameters that it trains */
    int64_t peak;        /* bytes, with train.recompute as the file sets it; 0: not planned */
    int64_t peak_layers; /* bytes, with train.recompute = "layer"; 0: not planned */
    int32_t recomputes;  /* 1: it fits only with train.recompute = "layer" */
    /* micro-batches with which it fits, where it does not with those of the file; rows 0: as the
     * file sets them */
    lathe_micro_batches split;
    int64_t peak_split; /* bytes with these; 0: not planned */
    int32_t is_refused; /* 1: the run cannot use it; `refusal` says why */
    char refusal[256];
} lathe_method_row;

typedef struct lathe_methods {
    int64_t have;     /* bytes available; INT64_MAX: unknown */
    char source[320]; /* where `have` comes from */
    lathe_method_row rows[LATHE_MAX_METHODS];
    int32_t n;
    int32_t micro_batch; /* train.micro_batch_size of the file */
    int32_t is_split;    /* 1: smaller ones were tried where a method did not fit */
    int32_t chosen;      /* row of the first method that fits; -1: none fits */
    int32_t is_auto;     /* 1: adapter.name = "auto", and the run uses that row */
    char adapter[64];    /* adapter.name of the file */
} lathe_methods;

/** Plans the methods for the run's file. all = 0: stops at the first that fits. Methods are planned
 * also with train.recompute = "layer", unless the file sets this key; if all = 0, only where they
 * do not fit without. A method that does not fit either way is planned with smaller micro-batches
 * and as many more of them, down to one row. Returns the error of the last plan if no method can be
 * planned. */
lathe_status lathe_methods_plan(const lathe_run *run, int32_t all, lathe_methods *out);

/** Adds the settings of a method with which it fits. */
void lathe_method_edits(const lathe_method_row *row, int32_t by, lathe_edits *out);
/** Appends them: "--adapter.name lora --adapter.r 32". */
void lathe_method_settings(const lathe_method_row *row, lathe_buffer *out);
/** 1: the method fits, and *out_peak is its peak with those settings. */
int32_t lathe_method_fits(const lathe_methods *methods, const lathe_method_row *row,
                          int64_t *out_peak);

/** Appends the table: one line per method. The first that fits is marked as chosen if the file has
 * adapter.name = "auto"; otherwise a line below the table names it. "recomputed" is the peak with
 * train.recompute = "layer". */
void lathe_methods_text(const lathe_methods *methods, lathe_buffer *out);
/** Appends it as a JSON array. */
void lathe_methods_json(const lathe_methods *methods, lathe_buffer *out);

/** Replaces adapter.name = "auto": adds the settings of the chosen method to run->decided.edits,
 * with which the configuration must then be made again. A run that resumes takes the method of its
 * checkpoint, and so does one that does not train, if there is a checkpoint; otherwise that one,
 * and a run that is checked without the machine, take "full". LATHE_E_CONFIG: no method fits. */
lathe_status lathe__methods_choose(lathe_run *run);

#endif
