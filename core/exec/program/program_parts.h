/* The parts that a program is built from, and those that it consists of (program.h). */
#ifndef LATHE_EXEC_PROGRAM_PARTS_H
#define LATHE_EXEC_PROGRAM_PARTS_H

#include "exec/program/exec.h"
#include "lathe/adapter.h"
#include "lathe/stage.h"
#include "model/family/model_build.h"
#include "plug/select.h"

enum {
    LATHE_PROGRAM_TRAIN = 0,
    LATHE_PROGRAM_EVAL = 1,
    LATHE_PROGRAM_LOGITS = 2,
    LATHE_PROGRAM_DECODE = 3,
    LATHE_PROGRAM_SAMPLE = 4,
    LATHE_PROGRAM_SCORE = 5,
    LATHE_PROGRAM_TOP = 6
};

/* Prefix of the parameter names of the frozen reference model, for stages that need a separate
 * copy. */
#define LATHE_REFERENCE_PREFIX "ref:"
/* Prefix of the parameter names of the teacher. */
#define LATHE_TEACHER_PREFIX "teacher:"

/** Input to lathe_program_build. */
typedef struct lathe_program_config {
    const lathe_model_config *model;
    lathe_params *params;
    const lathe_model_config *teacher; /* NULL: none */
    int32_t n_stored;                  /* tokens per target of the stored teacher; 0: none */
    double stored_temperature;         /* of the stored teacher; TOP: of the log-probabilities */
    const lathe_instance *adapter;     /* NULL: none */
    const char *adapter_prefix; /* of the names of its parameters, which are then frozen rows beside
                                   those of other adapters; NULL: none */
    const lathe_instance *reference_adapter; /* the reference's own, with frozen parameters; NULL:
                                                that of the model before training */
    lathe_token_rows token_rows, reference_token_rows; /* of adapter, of reference_adapter */
    const lathe_instance *stage;                       /* TRAIN and EVAL */
    int32_t objective;             /* LATHE_OBJECTIVE_* of the batches; DECODE is causal */
    int32_t reference_has_adapter; /* the reference is the model with the adapter before training,
                                      of which it has frozen copies; 0: the model without it */
    int32_t n_rows;                /* B */
    int64_t row_tokens;            /* T; DECODE: tokens per call and row */
    int64_t cache_rows;            /* DECODE: P, positions that a row of the KV caches holds */
    int64_t cache_blocks;          /* DECODE: blocks of the KV caches; 0: row b has cache[b] */
    int64_t block_tokens;          /* DECODE: tokens of a block */
    int64_t state_slots;           /* DECODE: sequences of which ops keep a state; 0: n_rows */
    int32_t invariant; /* the bits of a token do not depend on the other tokens of the batch */
    int32_t recompute; /* LATHE_RECOMPUTE_* */
    int32_t fp8;       /* LATHE_FP8_*: for TRAIN, EVAL and SAMPLE; not used to generate text */
    int64_t head_chunk_rows; /* 0: chosen by the device */
    int32_t offloads;        /* TRAIN: activations are kept in host memory until the backward */
    const lathe_moe_settings *moe; /* of TRAIN and EVAL; NULL: none is set */
    const lathe_machine *machine;  /* says which ops it can fuse; NULL: no op is fused */
} lathe_program_config;

/** How many tokens of a batch chose each expert of a router whose correction they move. */
typedef struct lathe_program_load {
    int32_t param; /* the correction f32[E] */
    int32_t n_experts;
    lathe_val chosen; /* f32[E] */
} lathe_program_load;

typedef struct lathe_program {
    lathe_exec *exec; /* NULL: not built */
    lathe_graph *graph;
    int32_t n_rows;
    int64_t row_tokens;
    lathe_val tokens, targets, positions, doc_start, seed, kv_len, rng;
    lathe_val key_end; /* i32[B*T]: end of the keys that each token sees; LATHE_NONE: causal */
    int32_t objective; /* LATHE_OBJECTIVE_* */
    int32_t rows_per_record; /* of the stage (row_shape.h); 1: also without a stage */
    lathe_val
        record_mask; /* f32[P] in stages that compare answers: 0 for padding; else LATHE_NONE */
    lathe_val target_mask; /* f32[B*T], 1 at targets; LATHE_NONE: not asked for by the stage */
    lathe_val token_mask;  /* f32[B*T], 0 in padding; LATHE_NONE: not asked for by the family */
    lathe_val last_mask;   /* f32[B*T], 1 at the last token of each row; LATHE_NONE: likewise */
    /* [n_inputs] of the stage; LATHE_NONE: a stored teacher's, and there is none */
    lathe_val inputs[LATHE_MAX_STAGE_INPUTS];
    int32_t n_inputs;
    int32_t n_stored; /* tokens per target of the stored teacher; 0: none */
    lathe_val loss, logprobs, logits;
    lathe_val scores;   /* SCORE */
    lathe_val log_sums; /* DECODE: f64, log of the sum of exp(logits) per row; LATHE_NONE: the
                           device does not compute it */
    /* TOP: [n_top] parts of top_rows tokens, the last one smaller: i32[rows, k], f32[rows, k + 1]
     * of the teacher's k most likely tokens */
    lathe_val *top_ids, *top_values;
    int64_t top_rows;
    int32_t n_top;
    lathe_val draw, sampled;      /* SAMPLE: rng state i64[2], sampled tokens i32[B*T] */
    lathe_val top_logprobs, top;  /* EVAL: from HEAD_EVAL; LATHE_NONE: not requested by the stage */
    lathe_val *cache_k, *cache_v; /* [n_layers], DECODE */
    lathe_stage_loss stage;       /* metrics by name */
    lathe_program_load *loads;    /* [n_loads], TRAIN with [moe] bias_rate; in the graph's arena */
    int32_t n_loads;
    double flops;        /* of a forward and, in TRAIN, its backward (lathe_graph_flops) */
    int32_t forward_end; /* number of nodes of the forward; the loss is known after them */
    int32_t n_packed;    /* products that read quantized weights from their planes */
    int32_t n_offloaded; /* activations copied to the host in the forward, back in the backward */
    void *own_arena;     /* NULL: the run's shared arena is large enough */
    int64_t own_bytes;
} lathe_program;

/** Writes the name of a head's parameter: "value.weight". */
void lathe_stage_head_param(const lathe_stage_head *head, char *out, size_t bytes);

#endif
