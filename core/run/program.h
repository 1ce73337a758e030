/* Programs: the graphs of a run, built from model, adapter and stage and finished by the passes.
 *
 *   TRAIN     inputs -> loss, metrics; gradients of every trainable parameter
 *   EVAL      inputs -> loss, metrics, log-probabilities of the policy, its likeliest tokens
 *   LOGITS    inputs -> logits f32 [B*T, V]
 *   SAMPLE    inputs -> targets drawn from the policy where there are any
 *   DECODE    tokens, positions, kv_len, caches -> logits f32 [1, V] of the last token
 */
#ifndef LATHE_RUN_PROGRAM_H
#define LATHE_RUN_PROGRAM_H

#include "lathe/adapter.h"
#include "lathe/stage.h"
#include "model/model_build.h"
#include "plug/select.h"
#include "run/exec.h"

enum {
    LATHE_PROGRAM_TRAIN = 0,
    LATHE_PROGRAM_EVAL = 1,
    LATHE_PROGRAM_LOGITS = 2,
    LATHE_PROGRAM_DECODE = 3,
    LATHE_PROGRAM_SAMPLE = 4
};

/* Names of the frozen copy of the model that a stage compares with, when it needs one of its own. */
#define LATHE_REFERENCE_PREFIX "ref:"

/** What programs are built from. */
typedef struct lathe_program_config {
    const lathe_model_config *model;
    lathe_params *params;
    const lathe_instance *adapter; /* NULL: plain */
    const lathe_instance *stage;   /* TRAIN and EVAL */
    int32_t n_rows;                /* B */
    int64_t row_tokens;            /* T; for DECODE the tokens of one run */
    int64_t cache_rows;            /* DECODE: P, positions the caches hold */
    int32_t recompute;             /* LATHE_RECOMPUTE_* */
    int32_t fp8;                  /* LATHE_FP8_*: of TRAIN, EVAL and SAMPLE; the others make text */
    int64_t head_chunk_rows;      /* 0: chosen by the device */
    int32_t offloads;             /* TRAIN: values of the forward wait in the host's memory */
    const lathe_machine *machine; /* asked which ops it has in one; NULL: none are joined */
} lathe_program_config;

typedef struct lathe_program {
    lathe_exec *exec; /* NULL: not built */
    lathe_graph *graph;
    int32_t n_rows;
    int64_t row_tokens;
    lathe_val tokens, targets, positions, doc_start, seed, kv_len, rng;
    lathe_val pair_mask; /* f32[P] of stages on pairs: 0 for padding; LATHE_NONE: packed rows */
    lathe_val loss, logprobs, logits;
    lathe_val draw, sampled;      /* SAMPLE: rng i64[2] of the draws, i32[B*T] */
    lathe_val top_logprobs, top;  /* EVAL: of HEAD_EVAL; LATHE_NONE: the stage asked for none */
    lathe_val *cache_k, *cache_v; /* [n_layers], DECODE */
    lathe_stage_loss stage;       /* metrics by name */
    int32_t forward_end;          /* nodes up to which the loss is known */
    int32_t n_offloaded; /* values that leave in the forward and come back in the backward */
    void *own_arena;     /* NULL: the run's shared one is large enough */
    int64_t own_bytes;
} lathe_program;

/** Builds and finishes the graph of a program; adapters add their parameters to the table here. */
lathe_status lathe_program_build(const lathe_program_config *config, int32_t kind,
                                 lathe_program *out);

/** Prepares the executable of a built program (takes the graph). */
lathe_status lathe_program_prepare(lathe_program *p, lathe_machine *m);

void lathe_program_fini(lathe_program *p);

#endif
