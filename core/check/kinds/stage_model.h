/* A small model that stands for a real one and its batches when the checks of stages call loss().
 */
#ifndef LATHE_CHECK_STAGE_MODEL_H
#define LATHE_CHECK_STAGE_MODEL_H

#include "graph/ir/ir_graph.h"
#include "lathe/stage.h"

enum { LATHE__STAGE_C = 16, LATHE__STAGE_V = 40, LATHE__STAGE_T = 8 };

/* A model that is only a head over an input, so that log-probabilities have a derivative. */
typedef struct lathe__stage_model {
    const lathe_stage_v1 *table;
    lathe_params params;
    lathe_graph *g;
    int32_t n_rows;
    uint32_t asked;    /* LATHE_NEEDS_* of the models that loss() asked for */
    uint32_t own;      /* bit i: the instance has head i of the table */
    int32_t plain;     /* 1: log-probabilities are inputs of the graph, not those of a head */
    lathe_val logp[3]; /* policy, reference, teacher */
    lathe_val record_mask, target_mask;
    lathe_val entropy[3], head[3][3]; /* of each model; inputs of the head */
    lathe_val hidden[3], last_mask;
    lathe_val divergence[3];                /* of the policy from each model */
    lathe_val heads[LATHE_MAX_STAGE_HEADS]; /* outputs of the stage's own heads */
    lathe_val inputs[LATHE_MAX_STAGE_INPUTS];
    int32_t n_inputs;
    int32_t n_stored; /* tokens per target of a stored teacher; 0: the teacher is a model */
} lathe__stage_model;

/** Gets the loss of m->n_rows rows from the stage and checks it. m->g, m->params, m->table, n_rows
 *  plain and n_stored are set. */
lathe_status lathe__stage_model_ask(lathe__stage_model *m, void *self, lathe_stage_loss *loss);

/** Number of heads that the stage has. */
int32_t lathe__stage_model_heads(const lathe__stage_model *m);

/** Numbers of input i of the stage in all rows of m. */
int64_t lathe__stage_model_input_size(const lathe__stage_model *m, int32_t i);

/** The values that the loss reads of the policy at every token: log-probabilities, or else a head
 *  of its own. LATHE_NONE: neither. */
lathe_val lathe__stage_model_reading(const lathe__stage_model *m);

#endif
