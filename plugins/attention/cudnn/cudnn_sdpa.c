/* Builds attention as a graph of cuDNN's operations.
 *
 * The fused engines match patterns: a product, a scale, a bias, masks as selections by generated
 * indices, a softmax made of max, sub, exp, sum and div, and a product. Keys (and values in the
 * backward) are described as transposed. The operations are in the order of NVIDIA's
 * cudnn-frontend, for whose graphs the engines are made.
 */
#include "cudnn_sdpa.h"

/* State while a graph is built. */
typedef struct sdpa {
    cudnn_graph *g;
    const lathe_attention_problem *p;
    cudnn_form form;
    int64_t batch, heads, kv_heads; /* of the part */
    cudnnDataType_t type;
    cudnn_shape scores, rows; /* [B,H,Tq,Tk] and [B,H,Tq,1], dense */
    cudnn_shape lse;          /* with the strides of the whole problem */
} sdpa;

/* Shape of a tensor of tokens: [B,n,T,D] with `stride` elements between tokens. */
static cudnn_shape tokens(const sdpa *s, int64_t n, int64_t t, int64_t stride)
{
    const int64_t d = s->p->head_dim;
    return (cudnn_shape){{s->batch, n, t, d}, {t * stride, d, stride, 1}};
}

static cudnn_shape dense(int64_t b, int64_t h, int64_t rows, int64_t columns)
{
    return (cudnn_shape){{b, h, rows, columns}, {h * rows * columns, rows * columns, columns, 1}};
}

/* Describes a tensor's memory with the last two dims exchanged. */
static cudnn_shape turned(cudnn_shape s)
{
    const cudnn_shape t = {{s.dims[0], s.dims[1], s.dims[3], s.dims[2]},
                           {s.strides[0], s.strides[1], s.strides[3], s.strides[2]}};
    return t;
}

static sdpa begin(cudnn_graph *g, const lathe_attention_problem *p, cudnn_part part,
                  cudnn_form form)
{
    const int64_t heads = (int64_t)part.n_kv_heads * (p->n_heads / p->n_kv_heads);
    sdpa s = {.g = g,
              .p = p,
              .form = form,
              .batch = part.batch,
              .heads = heads,
              .kv_heads = part.n_kv_heads,
              .type = p->dtype == LATHE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
              .scores = dense(part.batch, heads, p->t_q, p->t_k),
              .rows = dense(part.batch, heads, p->t_q, 1)};
    s.lse = s.rows;
    s.lse.strides[0] = p->n_heads * p->t_q;
    return s;
}

/* Adds a new inner f32 tensor, mode(x, b). */
static cudnn_descriptor apply(const sdpa *s, cudnnPointwiseMode_t mode, cudnn_descriptor x,
                              cudnn_descriptor b, const cudnn_shape *shape)
{
    cudnn_descriptor y = cudnn_graph_inner(s->g, CUDNN_DATA_FLOAT, shape);
    cudnn_graph_pointwise(s->g, mode, CUDNN_DATA_FLOAT, 0, x, b, NULL, y);
    return y;
}

static cudnn_descriptor product(const sdpa *s, cudnn_descriptor a, cudnn_descriptor b,
                                const cudnn_shape *shape)
{
    cudnn_descriptor c = cudnn_graph_inner(s->g, CUDNN_DATA_FLOAT, shape);
    cudnn_graph_matmul(s->g, a, b, c);
    return c;
}

/* The index of a score's query (axis 2) or key (axis 3). */
static cudnn_descriptor index_along(const sdpa *s, cudnn_descriptor scores, int64_t axis)
{
    cudnn_descriptor y = cudnn_graph_inner(s->g, CUDNN_DATA_INT32, &s->scores);
    cudnn_graph_pointwise(s->g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, scores, NULL,
                          NULL, y);
    return y;
}

/* Keeps the scores where mode(a, b) holds, -inf elsewhere. */
static cudnn_descriptor keep(const sdpa *s, cudnn_descriptor scores, cudnnPointwiseMode_t mode,
                             cudnn_descriptor a, cudnn_descriptor b, cudnn_descriptor lowest)
{
    cudnn_descriptor mask = cudnn_graph_inner(s->g, CUDNN_DATA_BOOLEAN, &s->scores);
    cudnn_graph_pointwise(s->g, mode, CUDNN_DATA_BOOLEAN, 0, a, b, NULL, mask);
    cudnn_descriptor y = cudnn_graph_inner(s->g, CUDNN_DATA_FLOAT, &s->scores);
    cudnn_graph_pointwise(s->g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, scores, lowest,
                          mask, y);
    return y;
}

/* scale q k^T, plus the bias that hides other documents. */
static cudnn_descriptor scores_of(const sdpa *s, cudnn_descriptor q, cudnn_descriptor k,
                                  cudnn_descriptor scale)
{
    cudnn_descriptor scores = product(s, q, k, &s->scores);
    scores = apply(s, CUDNN_POINTWISE_MUL, scores, scale, &s->scores);
    if (s->form.documents != CUDNN_DOCUMENTS_BIAS)
        return scores;
    const int64_t stride = cudnn_sdpa_bias_stride(s->p), rows = s->p->t_q;
    const cudnn_shape shape = {{s->batch, 1, rows, s->p->t_k},
                               {rows * stride, rows * stride, stride, 1}};
    cudnn_descriptor bias = cudnn_graph_tensor(s->g, SDPA_DOCUMENTS, s->type, &shape);
    return apply(s, CUDNN_POINTWISE_ADD, scores, bias, &s->scores);
}

static int32_t compares_documents(cudnn_form form)
{
    return form.documents == CUDNN_DOCUMENTS_STARTS;
}

static int32_t has_comparisons(const lathe_attention_problem *p, cudnn_form form)
{
    return p->causal || p->window > 0 || compares_documents(form);
}

/* key >= start[query]. (The backward of cuDNN 9.19 also takes query < end[key], on more GPUs, but
 * gives wrong dq on an H200 if the attention is not causal.) */
static cudnn_descriptor keep_documents(const sdpa *s, cudnn_descriptor scores,
                                       cudnn_descriptor lowest)
{
    const int64_t t = s->p->t_q;
    const cudnn_shape shape = {{s->batch, 1, t, 1}, {t, t, 1, 1}};
    cudnn_descriptor starts = cudnn_graph_tensor(s->g, SDPA_DOCUMENTS, CUDNN_DATA_INT32, &shape);
    return keep(s, scores, CUDNN_POINTWISE_CMP_GE, index_along(s, scores, 3), starts, lowest);
}

/* Causal: query >= key. Window: key + window > query. */
static cudnn_descriptor masked(const sdpa *s, cudnn_descriptor scores)
{
    if (!has_comparisons(s->p, s->form))
        return scores;
    cudnn_descriptor lowest = cudnn_graph_number(s->g, SDPA_LOWEST, CUDNN_DATA_FLOAT);
    if (s->p->causal) {
        cudnn_descriptor query = index_along(s, scores, 2), key = index_along(s, scores, 3);
        scores = keep(s, scores, CUDNN_POINTWISE_CMP_GE, query, key, lowest);
    }
    if (s->p->window > 0) {
        cudnn_descriptor window = cudnn_graph_number(s->g, SDPA_WINDOW, CUDNN_DATA_FLOAT);
        cudnn_descriptor query = index_along(s, scores, 2), key = index_along(s, scores, 3);
        cudnn_descriptor end = apply(s, CUDNN_POINTWISE_ADD, key, window, &s->scores);
        scores = keep(s, scores, CUDNN_POINTWISE_CMP_GT, end, query, lowest);
    }
    if (compares_documents(s->form))
        scores = keep_documents(s, scores, lowest);
    return scores;
}

void cudnn_sdpa_forward(cudnn_graph *g, const lathe_attention_problem *p, cudnn_part part,
                        cudnn_form form)
{
    const sdpa s = begin(g, p, part, form);
    const cudnn_shape q_shape = tokens(&s, s.heads, p->t_q, p->q_stride);
    const cudnn_shape k_shape = turned(tokens(&s, s.kv_heads, p->t_k, p->k_stride));
    const cudnn_shape v_shape = tokens(&s, s.kv_heads, p->t_k, p->v_stride);
    const cudnn_shape o_shape = tokens(&s, s.heads, p->t_q, p->o_stride);
    cudnn_descriptor q = cudnn_graph_tensor(g, SDPA_Q, s.type, &q_shape);
    cudnn_descriptor k = cudnn_graph_tensor(g, SDPA_K, s.type, &k_shape);
    cudnn_descriptor v = cudnn_graph_tensor(g, SDPA_V, s.type, &v_shape);
    cudnn_descriptor o = cudnn_graph_tensor(g, SDPA_O, s.type, &o_shape);
    cudnn_descriptor lse = cudnn_graph_tensor(g, SDPA_LSE, CUDNN_DATA_FLOAT, &s.lse);
    cudnn_descriptor scale = cudnn_graph_number(g, SDPA_SCALE, CUDNN_DATA_FLOAT);

    cudnn_descriptor scores = masked(&s, scores_of(&s, q, k, scale));
    /* o = softmax(scores) v, with the largest score of a row subtracted first, so that no
     * exponential overflows; the backward needs lse = max + log(denominator) */
    cudnn_descriptor row_max = cudnn_graph_inner(g, CUDNN_DATA_FLOAT, &s.rows);
    cudnn_graph_reduce(g, CUDNN_REDUCE_TENSOR_MAX, scores, row_max);
    cudnn_descriptor shifted = apply(&s, CUDNN_POINTWISE_SUB, scores, row_max, &s.scores);
    cudnn_descriptor exponentials = apply(&s, CUDNN_POINTWISE_EXP, shifted, NULL, &s.scores);
    cudnn_descriptor denominator = cudnn_graph_inner(g, CUDNN_DATA_FLOAT, &s.rows);
    cudnn_graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, exponentials, denominator);
    cudnn_descriptor log_denominator = apply(&s, CUDNN_POINTWISE_LOG, denominator, NULL, &s.rows);
    cudnn_graph_pointwise(g, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, 0, row_max, log_denominator,
                          NULL, lse);
    cudnn_descriptor weights = cudnn_graph_inner(g, s.type, &s.scores);
    cudnn_graph_pointwise(g, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, 0, exponentials, denominator,
                          NULL, weights);
    cudnn_graph_matmul(g, weights, v, o);
}

/* x^T y per query head, written to the gradient of a key head, or summed over the group first. */
static void gather_keys(const sdpa *s, cudnn_descriptor x, cudnn_descriptor y, cudnn_descriptor to)
{
    const cudnn_shape turn = turned(s->scores);
    cudnn_descriptor x_t = cudnn_graph_inner(s->g, s->type, &turn);
    cudnn_graph_reshape(s->g, x, x_t);
    if (s->heads == s->kv_heads) {
        cudnn_graph_matmul(s->g, x_t, y, to);
        return;
    }
    const cudnn_shape all = dense(s->batch, s->heads, s->p->t_k, s->p->head_dim);
    cudnn_descriptor per_head = cudnn_graph_inner(s->g, s->type, &all);
    cudnn_graph_matmul(s->g, x_t, y, per_head);
    cudnn_graph_reduce(s->g, CUDNN_REDUCE_TENSOR_ADD, per_head, to);
}

/* delta = rowsum(dO o), stored in memory. */
static cudnn_descriptor delta_of(const sdpa *s, cudnn_descriptor d_o, cudnn_descriptor o)
{
    const cudnn_shape shape = dense(s->batch, s->heads, s->p->t_q, s->p->head_dim);
    cudnn_descriptor delta = cudnn_graph_tensor(s->g, SDPA_DELTA, CUDNN_DATA_FLOAT, &s->rows);
    cudnn_descriptor one = cudnn_graph_number(s->g, SDPA_ONE, CUDNN_DATA_FLOAT);
    cudnn_descriptor both = apply(s, CUDNN_POINTWISE_MUL, d_o, o, &shape);
    cudnn_descriptor sum = cudnn_graph_inner(s->g, CUDNN_DATA_FLOAT, &s->rows);
    cudnn_graph_reduce(s->g, CUDNN_REDUCE_TENSOR_ADD, both, sum);
    cudnn_graph_pointwise(s->g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, 0, sum, one, NULL, delta);
    return delta;
}

/* dq = dS k. Writing to a tensor of f32 in memory selects engines that add each tile of keys to it
 * in any order; cuDNN clears it first. Writing dq selects those that keep dS in memory. */
static void gather_queries(const sdpa *s, cudnn_descriptor ds, cudnn_descriptor k,
                           cudnn_descriptor dq)
{
    if (!s->form.any_order) {
        cudnn_graph_matmul(s->g, ds, k, dq);
        return;
    }
    const cudnn_shape all = dense(s->batch, s->heads, s->p->t_q, s->p->head_dim);
    cudnn_descriptor sum = cudnn_graph_tensor(s->g, SDPA_SUM, CUDNN_DATA_FLOAT, &all);
    cudnn_graph_matmul(s->g, ds, k, sum);
    cudnn_graph_pointwise(s->g, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, 0, sum, NULL, NULL, dq);
}

void cudnn_sdpa_backward(cudnn_graph *g, const lathe_attention_problem *p, cudnn_part part,
                         cudnn_form form)
{
    const sdpa s = begin(g, p, part, form);
    const cudnn_shape q_shape = tokens(&s, s.heads, p->t_q, p->q_stride);
    const cudnn_shape k_shape = tokens(&s, s.kv_heads, p->t_k, p->k_stride);
    const cudnn_shape o_shape = tokens(&s, s.heads, p->t_q, p->o_stride);
    const cudnn_shape dq_shape = tokens(&s, s.heads, p->t_q, p->dq_stride);
    const cudnn_shape dk_shape = tokens(&s, s.kv_heads, p->t_k, p->dk_stride);
    const cudnn_shape dv_shape = tokens(&s, s.kv_heads, p->t_k, p->dv_stride);
    const cudnn_shape k_turned = turned(k_shape);
    const cudnn_shape v_turned = turned(tokens(&s, s.kv_heads, p->t_k, p->v_stride));
    cudnn_descriptor q = cudnn_graph_tensor(g, SDPA_Q, s.type, &q_shape);
    cudnn_descriptor k = cudnn_graph_tensor(g, SDPA_K, s.type, &k_turned);
    cudnn_descriptor v = cudnn_graph_tensor(g, SDPA_V, s.type, &v_turned);
    cudnn_descriptor o = cudnn_graph_tensor(g, SDPA_O, s.type, &o_shape);
    cudnn_descriptor lse = cudnn_graph_tensor(g, SDPA_LSE, CUDNN_DATA_FLOAT, &s.lse);
    cudnn_descriptor d_o = cudnn_graph_tensor(g, SDPA_DO, s.type, &o_shape);
    cudnn_descriptor dq = cudnn_graph_tensor(g, SDPA_DQ, s.type, &dq_shape);
    cudnn_descriptor dk = cudnn_graph_tensor(g, SDPA_DK, s.type, &dk_shape);
    cudnn_descriptor dv = cudnn_graph_tensor(g, SDPA_DV, s.type, &dv_shape);
    cudnn_descriptor scale = cudnn_graph_number(g, SDPA_SCALE, CUDNN_DATA_FLOAT);

    cudnn_descriptor delta = delta_of(&s, d_o, o);
    /* P = exp(scores - lse), dv = P^T dO */
    cudnn_descriptor scores = scores_of(&s, q, k, scale);
    scores = masked(&s, apply(&s, CUDNN_POINTWISE_SUB, scores, lse, &s.scores));
    cudnn_descriptor prob = apply(&s, CUDNN_POINTWISE_EXP, scores, NULL, &s.scores);
    gather_keys(&s, prob, d_o, dv);
    /* dS = P (dO v^T - delta) scale, dk = dS^T q */
    cudnn_descriptor ds = product(&s, d_o, v, &s.scores);
    ds = apply(&s, CUDNN_POINTWISE_SUB, ds, delta, &s.scores);
    ds = apply(&s, CUDNN_POINTWISE_MUL, ds, prob, &s.scores);
    ds = apply(&s, CUDNN_POINTWISE_MUL, ds, scale, &s.scores);
    gather_keys(&s, ds, q, dk);
    cudnn_descriptor k_back = cudnn_graph_inner(g, s.type, &k_shape);
    cudnn_graph_reshape(g, k, k_back);
    gather_queries(&s, ds, k_back, dq);
}

int32_t cudnn_sdpa_ids(const lathe_attention_problem *p, int32_t backward, cudnn_form form,
                       int64_t ids[SDPA_N])
{
    int32_t n = 0;
    for (int64_t id = SDPA_Q; id < SDPA_N; id++) {
        if (!backward && id >= SDPA_DO && id <= SDPA_ONE)
            continue;
        if ((id == SDPA_DOCUMENTS && form.documents == CUDNN_DOCUMENTS_NONE) ||
            (id == SDPA_SUM && !form.any_order) || (id == SDPA_WINDOW && p->window <= 0) ||
            (id == SDPA_LOWEST && !has_comparisons(p, form)))
            continue;
        ids[n++] = id;
    }
    return n;
}
