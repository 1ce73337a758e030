/* State shared by the functions that build a program: the program, its graph, and the values
 * built so far. */
#ifndef LATHE_EXEC_BUILDER_H
#define LATHE_EXEC_BUILDER_H

#include "exec/program/program_parts.h"

enum { LATHE_N_MODELS = 3 }; /* LATHE_MODEL_* */

/** Change that an adapter or a bias makes at the head: logits (x W^T + u v^T) * s. LATHE_NONE:
 * nothing. */
typedef struct lathe__head_change {
    lathe_val u, v; /* c [N,R], c [V,R] */
    lathe_val s;    /* f32 [V] */
} lathe__head_change;

typedef struct lathe__builder {
    const lathe_program_config *config;
    lathe_program *program;
    lathe_model_build build;   /* of the policy and the reference */
    lathe_model_build teacher; /* config NULL: there is none */
    /* By LATHE_MODEL_*; LATHE_NONE: not built yet. vocabulary: weight of the head over it;
     * head_in: what that head reads. */
    lathe_val hidden[LATHE_N_MODELS], vocabulary[LATHE_N_MODELS], head_in[LATHE_N_MODELS];
    lathe__head_change head[LATHE_N_MODELS];
    lathe_val logprobs[LATHE_N_MODELS], entropy[LATHE_N_MODELS];
    lathe_val heads[LATHE_MAX_STAGE_HEADS];        /* outputs of the stage's heads; LATHE_NONE */
    lathe_model_report reports[LATHE_MAX_REPORTS]; /* of the policy's family */
    int32_t n_reports;
    double embedding_noise; /* of the policy; 0: none */
    int32_t model;          /* the model whose forward is being built */
    int32_t evaluates;      /* build HEAD_EVAL, which also finds the most likely token */
} lathe__builder;

/** Adds the inputs of a batch: tokens, positions, doc_start, targets. */
lathe_status lathe__build_batch_inputs(lathe__builder *b);

/** Adds the log-probabilities of a model at the tokens that ids i32[N,K] names
 *  (lathe_stage_build.picked). */
lathe_status lathe__build_picked(lathe__builder *b, int32_t model, lathe_val ids,
                                 double temperature, int32_t only_picked, lathe_val *out);

/** Builds a model up to the input of its head over the vocabulary, b->head_in[model], and finds the
 *  weight of that head, b->vocabulary[model]. */
lathe_status lathe__build_head_inputs(lathe__builder *b, int32_t model);

/** Adds the output of a head at every token: x [N,C] W [n_outputs,C]^T in f32; f32[N] if it has one
 *  output. */
lathe_status lathe__build_head_output(lathe_graph *g, const lathe_stage_head *head, lathe_val x,
                                      lathe_val w, lathe_val *out);

/** Adds the loss of the stage and what it asks for. program->stage is then the stage's answer, with
 *  the figures that the model's family reports; train: with its auxiliary losses. */
lathe_status lathe__build_stage_loss(lathe__builder *b, int32_t train);

#endif
