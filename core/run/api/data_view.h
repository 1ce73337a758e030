/* The data of a run, as lathe data shows them. */
#ifndef LATHE_RUN_DATA_VIEW_H
#define LATHE_RUN_DATA_VIEW_H

#include "data/records/dataset.h"
#include "data/rows/loader.h"
#include "lathe/lathe.h"

/** A split of the data. */
typedef struct lathe_data_split {
    lathe_loader *loader;       /* NULL: the run has no such split */
    const lathe_shards *shards; /* of its records */
    int32_t is_own;             /* 0: validation that is split off the training data */
    int64_t n_datasets;
    const lathe_dataset *datasets; /* [n_datasets] if is_own */
} lathe_data_split;

typedef struct lathe_data_view {
    lathe_data_split training, validation;
    const lathe_tokenizer *tokenizer;
    const lathe_stage_input *inputs; /* [n_inputs] those that come from columns */
    int32_t n_inputs;
    int32_t rows;        /* lathe_rows_of the stage */
    int32_t packing;     /* LATHE_PACK_* */
    int32_t overlong;    /* LATHE_OVERLONG_* */
    int32_t row_tokens;  /* of a row */
    int32_t n_rows;      /* of a micro-batch */
    int32_t n_micro;     /* micro-batches of a step */
    int32_t is_masked;   /* 1: a masked objective */
    int32_t is_iterated; /* 1: the stage makes its own batches of prompts */
} lathe_data_view;

/** Describes a run that reads its data (LATHE_OPEN_DATA). Everything is borrowed from the run.
 *  LATHE_E_CONFIG: as lathe_datasets_read. */
lathe_status lathe_run_data_view(lathe_run *run, lathe_data_view *out);

#endif
