/* The execution plans of an instance: one per problem and direction, made when the problem is
 * scored. */
#ifndef LATHE_CUDNN_PLANS_H
#define LATHE_CUDNN_PLANS_H

#include "cudnn_sdpa.h"
#include "lathe/host.h"

/** The members of a problem on which a plan depends. It has no padding, because keys are compared
 *  byte by byte. */
typedef struct cudnn_plan_key {
    int64_t batch, t_q, t_k;
    int64_t strides[7]; /* q k v o dq dk dv */
    int32_t dtype, n_heads, n_kv_heads, head_dim;
    int32_t causal, window, packed, backward;
} cudnn_plan_key;

typedef struct cudnn_plan {
    struct cudnn_plan *next;
    cudnn_plan_key key;
    cudnn_part part;
    cudnn_form form;
    cudnn_graph graph;
    cudnn_descriptor execution; /* owned by graph; NULL: the problem was refused */
    int64_t workspace;          /* bytes of one part */
    char why[224];              /* reason of the refusal */
} cudnn_plan;

/** The settings of an instance. */
typedef struct cudnn_settings {
    const char *file;          /* path or name of the library */
    int64_t workspace_max;     /* limit in bytes for what a part takes, unless no part fits; 0: a
                                * sixteenth of the GPU's memory */
    int32_t any_order;         /* dq may be summed in any order */
    cudnn_documents documents; /* the form of packed documents; NONE: chosen for the GPU */
} cudnn_settings;

typedef struct cudnn_plans {
    const lathe_host *host;
    cudnn_settings settings;
    cudnn_library lib;
    cudnnHandle_t handle; /* NULL: not opened yet */
    int32_t device;       /* device of the handle */
    cudnn_plan *first;
} cudnn_plans;

void cudnn_plans_init(cudnn_plans *plans, const lathe_host *host, cudnn_settings settings);
void cudnn_plans_fini(cudnn_plans *plans);

/** Returns the plan of a problem that cudnn_problem_refusal accepts; the first call makes it.
 * Returns NULL, with the reason in `why` (one line), if cuDNN is missing, too old, or has no engine
 * for it, or if the plan needs more than a quarter of the GPU's memory. */
const cudnn_plan *cudnn_plans_make(cudnn_plans *plans, const lathe_attention_problem *p,
                                   int32_t backward, char *why, int64_t why_bytes);
/** The plan if it exists; else NULL. */
const cudnn_plan *cudnn_plans_find(const cudnn_plans *plans, const lathe_attention_problem *p,
                                   int32_t backward);

/** Bytes of a part's documents in the form of the graph; 0 without documents. */
int64_t cudnn_plan_documents_bytes(const lathe_attention_problem *p, cudnn_part part,
                                   cudnn_form form);
/** Bytes of the f32 sum in which a part gathers dq; 0 for a fixed order. */
int64_t cudnn_plan_sum_bytes(const lathe_attention_problem *p, cudnn_part part, cudnn_form form);

#endif
