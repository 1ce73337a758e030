/* Builds the graphs of attention, forward and backward, in the form that cuDNN's fused engines
 * recognise. */
#ifndef LATHE_CUDNN_SDPA_H
#define LATHE_CUDNN_SDPA_H

#include "cudnn_builder.h"
#include "lathe/attention.h"

/* Ids of the values that a run passes. SDPA_ONE and the following ones are numbers in host
 * memory. */
enum {
    SDPA_Q = 1,
    SDPA_K,
    SDPA_V,
    SDPA_O,
    SDPA_LSE,
    SDPA_DOCUMENTS, /* what hides other documents, see cudnn_documents */
    SDPA_DO,
    SDPA_DQ,
    SDPA_DK,
    SDPA_DV,
    SDPA_DELTA, /* [B,H,Tq,1] f32, scratch of the backward */
    SDPA_SUM,   /* [B,H,Tq,D] f32, scratch in which a backward of any order gathers dq */
    SDPA_ONE,
    SDPA_SCALE,
    SDPA_LOWEST, /* value of masked scores: -inf */
    SDPA_WINDOW, /* f32: key + window > query */
    SDPA_N
};

/** The form in which a graph hides the keys of other documents. Each is dense for the part. */
typedef enum cudnn_documents {
    CUDNN_DOCUMENTS_NONE,  /* the problem is not packed */
    CUDNN_DOCUMENTS_BIAS,  /* [B,1,Tq,Tk], type of the tensors: 0 if visible, else -65504 */
    CUDNN_DOCUMENTS_STARTS /* [B,1,Tq,1] int32: key >= start of the query's document */
} cudnn_documents;

/** Choices in a graph beyond the problem itself. */
typedef struct cudnn_form {
    cudnn_documents documents;
    int32_t
        any_order; /* backward: dq is gathered in f32 by atomic additions, without dS in memory */
} cudnn_form;

/** The part of a problem that one run of a graph computes: `batch` rows and `n_kv_heads` key heads
 *  with their query heads. The tensors keep the strides of the whole problem; delta, the
 *  sum and the documents are dense for the part. */
typedef struct cudnn_part {
    int64_t batch;
    int32_t n_kv_heads;
} cudnn_part;

void cudnn_sdpa_forward(cudnn_graph *g, const lathe_attention_problem *p, cudnn_part part,
                        cudnn_form form);
void cudnn_sdpa_backward(cudnn_graph *g, const lathe_attention_problem *p, cudnn_part part,
                         cudnn_form form);

/** Writes the ids that the problem's graph needs, in ascending order; returns their number. */
int32_t cudnn_sdpa_ids(const lathe_attention_problem *p, int32_t backward, cudnn_form form,
                       int64_t ids[SDPA_N]);

/** Elements from one row of the bias to the next: Tk rounded up to a multiple of 8, so that rows
 *  are 16-byte aligned. */
static inline int64_t cudnn_sdpa_bias_stride(const lathe_attention_problem *p)
{
    return (p->t_k + 7) / 8 * 8;
}

#endif
