/* The private state of lathe_loader, for the files that make its batches. */
#ifndef LATHE_DATA_LOADER_INTERNAL_H
#define LATHE_DATA_LOADER_INTERNAL_H

#include <pthread.h>

#include "base/error.h"
#include "data/rows/loader.h"
#include "data/rows/row_index.h"

/* A prepared batch, or the error that occurred while preparing it. */
typedef struct lathe_loader_slot {
    lathe_batch batch;
    int32_t *memory;                      /* tokens, targets, positions, doc_start, key_end */
    void *inputs[LATHE_MAX_STAGE_INPUTS]; /* [n_inputs]; the first one owns the memory */
    int64_t after;                        /* place of the next batch */
    lathe_status status;
    lathe_kept_error error;
} lathe_loader_slot;

struct lathe_loader {
    lathe_loader_config config;
    lathe_row_index index;
    int64_t n_epoch;   /* rows (records, where a row has one) of an epoch */
    int64_t per_batch; /* the same of one batch */
    const lathe_row_shape *shape;
    int32_t *prompts; /* [prompts_max][row_tokens] of lathe_prompt_next */
    int32_t prompts_max;
    int64_t limit; /* places in all epochs, -1: endless */
    int64_t identity;
    int64_t consumed; /* place after the batches that the caller has taken */
    int64_t produced; /* place after the batches that are prepared */
    lathe_loader_slot *slots;
    int32_t n_slots;
    /* ring: oldest slot, number of prepared slots; the lock guards both and stop */
    int32_t head, count;
    int32_t borrowed; /* the caller uses the head */
    int32_t stop, threaded;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/** The row of the split at a place in the endless order of epochs. */
int64_t lathe__loader_row_at(const lathe_loader *loader, int64_t place);

/** Values of input i in a batch, each of four bytes. */
int64_t lathe__loader_input_size(const lathe_loader *loader, int32_t i);

/** Fills the batch of a slot with the rows from `place` on, and sets slot->after. */
lathe_status lathe__loader_fill(const lathe_loader *loader, int64_t place, lathe_loader_slot *slot);

#endif
