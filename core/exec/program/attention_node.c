/* Runs attention nodes. Handles the strides of fused and of separate q, k and v, and the
 * different order of arguments in forward and backward. */
#include "exec/program/attention_node.h"

void lathe__attention_problem(const lathe_graph *g, const lathe_ir_node *n, const lathe_machine *m,
                              lathe_attention_problem *p)
{
    const lathe_op_attrs *a = &n->attrs;
    const int32_t first =
        n->op == LATHE_OP_ATTENTION ? 0 : 1; /* backward: the gradient `do` is the first input */
    const lathe_desc *q = &g->values[n->in[first]].desc;
    const int32_t value_dim = a->value_dim > 0 ? a->value_dim : a->head_dim;
    const int64_t width = (int64_t)a->n_heads * a->head_dim,
                  kv_width = (int64_t)a->n_kv_heads * a->head_dim;
    const int32_t cached = n->op == LATHE_OP_ATTENTION && n->in[4] != LATHE_NONE;
    *p = (lathe_attention_problem){.size = (uint32_t)sizeof *p,
                                   .dtype = q->dtype,
                                   .batch = a->batch,
                                   .t_q = q->dims[0] / a->batch,
                                   .n_heads = a->n_heads,
                                   .n_kv_heads = a->n_kv_heads,
                                   .head_dim = a->head_dim,
                                   .value_dim = value_dim,
                                   .causal = a->causal,
                                   .window = a->window,
                                   .cached = cached,
                                   .n_threads = m->n_threads,
                                   .scale = a->scale,
                                   .softcap = a->softcap,
                                   .flags = m->flags,
                                   .need_backward = n->op == LATHE_OP_ATTENTION_BWD,
                                   .device = &m->info};
    p->packed = n->in[n->op == LATHE_OP_ATTENTION ? 3 : 6] != LATHE_NONE;
    p->bounded = n->in[n->op == LATHE_OP_ATTENTION ? 5 : 7] != LATHE_NONE;
    p->alibi = n->in[n->op == LATHE_OP_ATTENTION ? 6 : 8] != LATHE_NONE;
    p->sinks = n->in[n->op == LATHE_OP_ATTENTION ? 7 : 9] != LATHE_NONE;
    p->t_k = p->t_q;
    if (!a->fused_qkv)
        p->t_k = lathe_desc_count(&g->values[n->in[first + 1]].desc) / kv_width / a->batch;
    const lathe_desc *len = cached ? &g->values[n->in[4]].desc : NULL;
    if (len && len->rank == 2) { /* keys in blocks */
        p->block_tokens = g->values[n->in[1]].desc.dims[1];
        p->kv_stride = len->dims[1];
        p->t_k = (len->dims[1] - 1) * p->block_tokens;
    }
    p->q_stride = a->fused_qkv ? width + 2 * kv_width : width;
    p->k_stride = a->fused_qkv ? p->q_stride : kv_width;
    p->v_stride = a->fused_qkv ? p->q_stride : (int64_t)a->n_kv_heads * value_dim;
    p->o_stride = (int64_t)a->n_heads * value_dim;
    p->dq_stride = p->q_stride;
    p->dk_stride = p->k_stride;
    p->dv_stride = p->v_stride;
}

/* Pointer to element `count` of p; NULL if p is NULL. */
static void *advanced(const void *p, int64_t count, int32_t dtype)
{
    return p ? (char *)(uintptr_t)p + count * lathe_dtype_bytes(dtype) : NULL;
}

lathe_status lathe__attention_run(const lathe_ir_node *n, const lathe_instance *backend,
                                  const lathe_attention_problem *p, const void *const *in,
                                  void *const *out, void *scratch, uint32_t add,
                                  lathe_stream *stream)
{
    const lathe_attention_v1 *table = backend->table;
    const int64_t width = (int64_t)p->n_heads * p->head_dim,
                  kv_width = (int64_t)p->n_kv_heads * p->head_dim;
    const int32_t fused = n->attrs.fused_qkv, backward = n->op == LATHE_OP_ATTENTION_BWD;
    const void *const *qkv = in + (backward ? 1 : 0);
    lathe_attention_args args = {
        .size = (uint32_t)sizeof args, .scratch = scratch, .stream = stream};
    args.q = qkv[0];
    args.k = fused ? advanced(qkv[0], width, p->dtype) : qkv[1];
    args.v = fused ? advanced(qkv[0], width + kv_width, p->dtype) : qkv[2];
    if (!backward) {
        args.doc_start = in[3];
        args.kv_len = in[4];
        args.key_end = in[5];
        args.slopes = in[6];
        args.sinks = in[7];
        args.o = out[0];
        args.lse = out[1];
        return table->forward(backend->self, p, &args);
    }
    args.d_o = in[0];
    args.o = (void *)(uintptr_t)in[4];
    args.lse = (float *)(uintptr_t)in[5];
    args.doc_start = in[6];
    args.key_end = in[7];
    args.slopes = in[8];
    args.sinks = in[9];
    args.dq = out[0];
    args.dk = fused ? advanced(out[0], width, p->dtype) : out[1];
    args.dv = fused ? advanced(out[0], width + kv_width, p->dtype) : out[2];
    args.accumulate = fused && (add & 1u) ? 7u : add;
    return table->backward(backend->self, p, &args);
}
