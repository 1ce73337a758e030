/* Facts of an open run, for who prints them or writes them down. */
#ifndef LATHE_RUN_RUN_FACTS_H
#define LATHE_RUN_RUN_FACTS_H

#include "lathe/lathe.h"

/** Texts are borrowed from the run. */
typedef struct lathe_run_facts {
    int64_t n_params, n_trainable; /* parameters, without those of a reference */
    int32_t precision;             /* as train.precision names it: LATHE_F32, ... */
    int32_t compute_dtype, fp8;    /* of the products; fp8 0: none */
    int32_t weight_dtype;          /* of the weights that products read */
    const char *device, *machine;  /* the plugin; the processor or the GPU */
    int32_t n_threads;
    int32_t threads_are_set;   /* 1: train.threads says it */
    const char *attention;     /* the backend of the training; "" without a training */
    int64_t planned;           /* bytes of the plan */
    int32_t rank, n_ranks;     /* n_ranks 1: alone */
    const char *engine;        /* of the ranks; NULL: alone */
    int32_t is_dry;            /* 1: a few steps, of which nothing is kept */
    int64_t max_steps;         /* of the whole run */
    const char *model_path;    /* ""; no folder */
    const char *template_hash; /* SHA-256 of the chat template that was found; "": none */
    const char *draft_path;    /* the draft model of generations; NULL: none */
    int32_t draft_tokens;
    int32_t row_tokens;    /* data.seq_len: the context of generations */
    int64_t max_positions; /* tokens that the model takes */
} lathe_run_facts;

void lathe_run_facts_get(const lathe_run *run, lathe_run_facts *out);

/** On several ranks: *out 1 for the lowest rank that has this text, so that it is printed once; 1
 *  for a run alone. All ranks call it. */
lathe_status lathe_run_is_first(lathe_run *run, const char *text, int32_t *out);

/** Closes a run that failed. The memory of a run on several ranks stays, because exchanges may be
 *  under way in it; the process is about to end. */
void lathe_run_abandon(lathe_run *run);

#endif
