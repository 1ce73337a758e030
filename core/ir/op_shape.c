/* Shape rules: from a node's inputs and attributes to the shapes and dtypes of its outputs. */
#include <stdio.h>

#include "base/error.h"
#include "ir/desc_text.h"
#include "ir/graph.h"
#include "ir/op_info.h"

/* The node under inference, its inputs' shapes at hand. */
typedef struct scene {
    const lathe_ir_node *node;
    const lathe_desc *in[LATHE_OP_MAX_IN]; /* NULL: absent */
    lathe_desc *out;
} scene;

static lathe_status bad(const scene *s, const char *expected)
{
    char text[400];
    int used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < s->node->n_in; i++) {
        char one[64];
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%s", i ? ", " : "",
                         s->in[i] ? lathe_desc_text(s->in[i], one, sizeof one) : "none");
        if (used >= (int)sizeof text - 70)
            break;
    }
    return lathe_error(LATHE_E_SHAPE, "%s '%s' expects %s, got (%s)",
                       lathe_op_info_get(s->node->op)->name, s->node->label, expected, text);
}

static int64_t count(const lathe_desc *d)
{
    return lathe_desc_count(d);
}

static int64_t last_dim(const lathe_desc *d)
{
    return d->rank ? d->dims[d->rank - 1] : 1;
}

static int same_shape(const lathe_desc *a, const lathe_desc *b)
{
    if (a->rank != b->rank)
        return 0;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return 0;
    return 1;
}

static lathe_desc with_dtype(lathe_desc d, int32_t dtype)
{
    d.dtype = dtype;
    return d;
}

static lathe_desc scalar(void)
{
    const lathe_desc d = {LATHE_F32, 0, {1, 1, 1, 1}};
    return d;
}

static int is_vector(const lathe_desc *d, int64_t n)
{
    return d->rank == 1 && d->dims[0] == n && d->dtype == LATHE_F32;
}

static lathe_status linear(const scene *s)
{
    const lathe_desc *x = s->in[0], *w = s->in[1], *b = s->in[2];
    if (!x || !w || x->rank != 2 || w->rank != 2 || x->dims[1] != w->dims[1] ||
        x->dtype != w->dtype || (b && !is_vector(b, w->dims[0])))
        return bad(s, "x c[N,I], W c[O,I], b f32[O] or none");
    s->out[0] = lathe_desc_2d(x->dtype, x->dims[0], w->dims[0]);
    return LATHE_OK;
}

static lathe_status linear_backward(const scene *s)
{
    const lathe_desc *dy = s->in[0], *b = s->in[1];
    if (!dy || !b || dy->rank != 2 || b->rank != 2 || dy->dtype != b->dtype)
        return bad(s, "two matrices of one dtype");
    if (s->node->op != LATHE_OP_LINEAR_DW) {
        if (dy->dims[1] != b->dims[0])
            return bad(s, "dy c[N,O], W c[O,I]");
        s->out[0] = lathe_desc_2d(dy->dtype, dy->dims[0], b->dims[1]);
    } else {
        if (dy->dims[0] != b->dims[0])
            return bad(s, "dy c[N,O], x c[N,I]");
        s->out[0] = lathe_desc_2d(LATHE_F32, dy->dims[1], b->dims[1]);
        s->out[1] = lathe_desc_1d(LATHE_F32, dy->dims[1]);
    }
    return LATHE_OK;
}

static lathe_status linear_gelu(const scene *s)
{
    if (s->node->op == LATHE_OP_LINEAR_GELU) {
        LATHE_TRY(linear(s));
        s->out[1] = s->out[0];
        return LATHE_OK;
    }
    LATHE_TRY(linear_backward(s));
    if (!s->in[2] || !same_shape(s->in[2], &s->out[0]) || s->in[2]->dtype != s->out[0].dtype)
        return bad(s, "dy c[N,O], W c[O,I], z c[N,I]");
    return LATHE_OK;
}

static lathe_status norm(const scene *s)
{
    const int32_t op = s->node->op;
    const int32_t adds = op == LATHE_OP_ADD_RMSNORM || op == LATHE_OP_ADD_LAYERNORM;
    const lathe_desc *x = s->in[0], *w = s->in[1 + adds];
    if (adds && (!x || !s->in[1] || !same_shape(x, s->in[1]) || x->dtype != s->in[1]->dtype))
        return bad(s, "two tensors of one shape and dtype to add");
    if (!x || !w || w->rank != 1 || w->dtype != LATHE_F32 || w->dims[0] < 1 ||
        last_dim(x) % w->dims[0])
        return bad(s, "x c[..] and a weight f32[D] with D dividing the last dim of x");
    const int64_t rows = count(x) / w->dims[0];
    s->out[0] = *x;
    s->out[adds] = *x;
    s->out[1 + adds] = lathe_desc_1d(LATHE_F32, rows);
    if (op == LATHE_OP_LAYERNORM || op == LATHE_OP_ADD_LAYERNORM)
        s->out[2 + adds] = lathe_desc_1d(LATHE_F32, rows);
    return LATHE_OK;
}

static lathe_status norm_backward(const scene *s)
{
    const lathe_desc *dy = s->in[0], *x = s->in[1], *w = s->in[2];
    if (!dy || !x || !w || !same_shape(dy, x) || w->rank != 1)
        return bad(s, "dy and x of one shape, and the weight");
    s->out[0] = *x;
    s->out[1] = *w;
    if (s->node->op == LATHE_OP_LAYERNORM_BWD)
        s->out[2] = *w;
    return LATHE_OK;
}

static lathe_status rope(const scene *s)
{
    const lathe_desc *x = s->in[0], *pos = s->in[1], *table = s->in[2];
    const int64_t d = s->node->attrs.head_dim;
    if (!x || !pos || !table || d < 2 || d % 2 || x->rank != 2 || x->dims[1] % d ||
        pos->dtype != LATHE_I32 || count(pos) != x->dims[0] || table->dtype != LATHE_F32 ||
        table->rank != 3 || table->dims[1] != 2 || table->dims[2] != d / 2)
        return bad(s, "x c[N,H*D], positions i32[N], table f32[P,2,D/2]");
    s->out[0] = *x;
    return LATHE_OK;
}

static lathe_status attention(const scene *s)
{
    const lathe_op_attrs *a = &s->node->attrs;
    const lathe_desc *q = s->in[0], *k = s->in[1], *v = s->in[2];
    const int64_t h = a->n_heads, kv = a->n_kv_heads, d = a->head_dim;
    const int64_t width = a->fused_qkv ? (h + 2 * kv) * d : h * d;
    if (!q || h < 1 || kv < 1 || h % kv || d < 1 || a->batch < 1 || q->rank != 2 ||
        q->dims[1] != width || q->dims[0] % a->batch || (!a->fused_qkv && (!k || !v)))
        return bad(s, "q c[N,H*D] (or fused c[N,(H+2Hkv)*D]), k and v, H a multiple of Hkv");
    if (!a->fused_qkv &&
        (last_dim(k) != kv * d || last_dim(v) != kv * d || k->dtype != q->dtype ||
         v->dtype != q->dtype || count(k) != count(v) || (count(k) / (kv * d)) % a->batch))
        return bad(s, "k and v c[M,Hkv*D] like q");
    s->out[0] = lathe_desc_2d(q->dtype, q->dims[0], h * d);
    s->out[1] = lathe_desc_1d(LATHE_F32, q->dims[0] * h);
    s->out[1].rank = 3;
    s->out[1].dims[0] = a->batch;
    s->out[1].dims[1] = h;
    s->out[1].dims[2] = q->dims[0] / a->batch;
    return LATHE_OK;
}

static lathe_status attention_backward(const scene *s)
{
    if (!s->in[0] || !s->in[1] || !s->in[4] || !s->in[5] || !same_shape(s->in[0], s->in[4]))
        return bad(s, "do like o, q, k, v, o, lse");
    s->out[0] = *s->in[1];
    if (!s->node->attrs.fused_qkv) {
        s->out[1] = *s->in[2];
        s->out[2] = *s->in[3];
    }
    return LATHE_OK;
}

static lathe_status embed(const scene *s)
{
    const lathe_desc *ids = s->node->op == LATHE_OP_EMBED ? s->in[0] : s->in[1];
    const lathe_desc *w = s->node->op == LATHE_OP_EMBED ? s->in[1] : s->in[0];
    if (!ids || !w || ids->dtype != LATHE_I32 || w->rank != 2)
        return bad(s, "token ids i32[N] and a matrix");
    /* EMBED_BWD does not know V: its output is set by the derivative, which does */
    s->out[0] = lathe_desc_2d(w->dtype, count(ids), w->dims[1]);
    return LATHE_OK;
}

static lathe_status binary(const scene *s)
{
    if (!s->in[0] || !s->in[1] || !same_shape(s->in[0], s->in[1]))
        return bad(s, "two tensors of one shape");
    if (s->node->op != LATHE_OP_LINCOMB && s->in[0]->dtype != s->in[1]->dtype)
        return bad(s, "two tensors of one dtype");
    s->out[0] = *s->in[0];
    if (s->node->op == LATHE_OP_SWIGLU && s->in[0]->rank < 1)
        return bad(s, "matrices");
    return LATHE_OK;
}

static lathe_status head(const scene *s)
{
    const lathe_desc *x = s->in[0], *w = s->in[1], *t = s->in[2];
    if (!x || !w || !t || x->rank != 2 || w->rank != 2 || x->dims[1] != w->dims[1] ||
        x->dtype != w->dtype || t->dtype != LATHE_I32 || count(t) != x->dims[0])
        return bad(s, "x c[N,C], W c[V,C], targets i32[N]");
    s->out[0] = lathe_desc_1d(LATHE_F32, x->dims[0]);
    if (s->node->op == LATHE_OP_HEAD_LOGPROB_BWD) {
        if (!s->in[3] || !is_vector(s->in[3], x->dims[0]))
            return bad(s, "dlogp f32[N] beside x, W and targets");
        s->out[1] = *x;
        s->out[2] = with_dtype(*w, LATHE_F32);
    }
    if (s->node->op == LATHE_OP_HEAD_EVAL) {
        s->out[1] = s->out[0];
        s->out[2] = with_dtype(s->out[0], LATHE_I32);
    }
    if (s->node->op == LATHE_OP_HEAD_SAMPLE) {
        if (!s->in[3] || s->in[3]->dtype != LATHE_I64 || count(s->in[3]) != 2)
            return bad(s, "rng i64[2] beside x, W and targets");
        s->out[0] = with_dtype(s->out[0], LATHE_I32);
    }
    return LATHE_OK;
}

static lathe_status slicing(const scene *s)
{
    const lathe_op_attrs *a = &s->node->attrs;
    const lathe_desc *x = s->in[0];
    if (!x || x->rank < 1)
        return bad(s, "a tensor of rank 1 or more");
    s->out[0] = *x;
    if (s->node->op == LATHE_OP_SLICE) {
        if (a->start < 0 || a->count < 1 || a->start + a->count > x->dims[0])
            return bad(s, "start and count within the first dim");
        s->out[0].dims[0] = a->count;
    } else if (a->batch < a->start + a->count || x->dims[0] != a->count) {
        return bad(s, "dy of `count` rows, `batch` = rows of x");
    } else {
        s->out[0].dims[0] = a->batch;
    }
    return LATHE_OK;
}

static lathe_status reduction(const scene *s)
{
    const lathe_desc *x = s->in[0];
    const int64_t n = s->node->attrs.count;
    if (!x || x->dtype != LATHE_F32)
        return bad(s, "an f32 tensor");
    if (s->node->op == LATHE_OP_SUM) {
        s->out[0] = scalar();
    } else if (n < 1 || (s->node->op == LATHE_OP_ROW_SUM && count(x) % n)) {
        return bad(s, "a count that divides the tensor");
    } else {
        const int64_t m = s->node->op == LATHE_OP_ROW_SUM ? count(x) / n : count(x) * n;
        s->out[0] = lathe_desc_1d(LATHE_F32, m);
    }
    return LATHE_OK;
}

static lathe_status matmul(const scene *s)
{
    const lathe_desc *a = s->in[0], *b = s->in[1];
    if (!a || !b || a->rank != 2 || b->rank != 2 || a->dtype != b->dtype)
        return bad(s, "two matrices of one dtype");
    const int32_t ta = s->node->attrs.trans_a, tb = s->node->attrs.trans_b;
    if (a->dims[ta ? 0 : 1] != b->dims[tb ? 1 : 0])
        return bad(s, "matrices whose inner dims agree");
    s->out[0] = lathe_desc_2d(a->dtype, a->dims[ta ? 1 : 0], b->dims[tb ? 0 : 1]);
    return LATHE_OK;
}

static lathe_status kv_append(const scene *s)
{
    const lathe_desc *cache = s->in[0], *x = s->in[1], *len = s->in[2];
    if (!cache || !x || !len || cache->rank != 3 || x->rank != 2 || cache->dims[2] != x->dims[1] ||
        cache->dtype != x->dtype || len->dtype != LATHE_I32 || count(len) != cache->dims[0] ||
        x->dims[0] % cache->dims[0])
        return bad(s, "cache c[B,P,W], x c[B*Tq,W], kv_len i32[B]");
    s->out[0] = *cache;
    return LATHE_OK;
}

/* Sums of squares: one per segment, one per 16384 elements. */
static lathe_status squares(const scene *s)
{
    const lathe_desc *x = s->in[0], *second = s->in[1];
    if (s->node->op == LATHE_OP_SUM_SQUARES) {
        if (!x || !second || second->dtype != LATHE_I64 || second->rank != 2 ||
            second->dims[1] != 2)
            return bad(s, "x [..], segments i64[S,2]");
        s->out[0] = lathe_desc_1d(LATHE_F64, second->dims[0]);
        return LATHE_OK;
    }
    if (!x || !second || !s->in[2] || x->dtype != LATHE_F32 || count(x) != count(second) ||
        s->in[2]->dtype != LATHE_F32)
        return bad(s, "p f32[..], u of its size, scalars f32[*]");
    s->out[0] = lathe_desc_1d(LATHE_F64, (count(x) + 16383) / 16384);
    return LATHE_OK;
}

static lathe_status like_input(const scene *s, int32_t which)
{
    if (!s->in[which])
        return bad(s, "its input");
    s->out[0] = *s->in[which];
    return LATHE_OK;
}

lathe_status lathe__infer(lathe_graph *g, lathe_ir_node *node, lathe_desc out[LATHE_OP_MAX_OUT])
{
    scene s = {node, {NULL}, out};
    for (int32_t k = 0; k < LATHE_OP_MAX_OUT; k++)
        out[k] = (lathe_desc){LATHE_ABSENT, 0, {1, 1, 1, 1}};
    for (int32_t k = 0; k < node->n_in; k++)
        s.in[k] = node->in[k] == LATHE_NONE ? NULL : &g->values[node->in[k]].desc;
    switch (node->op) {
    case LATHE_OP_LINEAR:
        return linear(&s);
    case LATHE_OP_LINEAR_DX:
    case LATHE_OP_LINEAR_DW:
        return linear_backward(&s);
    case LATHE_OP_LINEAR_GELU:
    case LATHE_OP_LINEAR_DX_GELU:
        return linear_gelu(&s);
    case LATHE_OP_RMSNORM:
    case LATHE_OP_LAYERNORM:
    case LATHE_OP_ADD_RMSNORM:
    case LATHE_OP_ADD_LAYERNORM:
        return norm(&s);
    case LATHE_OP_RMSNORM_BWD:
    case LATHE_OP_LAYERNORM_BWD:
        return norm_backward(&s);
    case LATHE_OP_ROPE:
        return rope(&s);
    case LATHE_OP_ATTENTION:
        return attention(&s);
    case LATHE_OP_ATTENTION_BWD:
        return attention_backward(&s);
    case LATHE_OP_EMBED:
    case LATHE_OP_EMBED_BWD:
        return embed(&s);
    case LATHE_OP_HEAD_LOGPROB:
    case LATHE_OP_HEAD_LOGPROB_BWD:
    case LATHE_OP_HEAD_EVAL:
    case LATHE_OP_HEAD_SAMPLE:
        return head(&s);
    case LATHE_OP_SLICE:
    case LATHE_OP_SLICE_BWD:
        return slicing(&s);
    case LATHE_OP_SUM:
    case LATHE_OP_ROW_SUM:
    case LATHE_OP_BROADCAST:
        return reduction(&s);
    case LATHE_OP_MATMUL:
        return matmul(&s);
    case LATHE_OP_SUM_SQUARES:
    case LATHE_OP_UPDATE_SQUARES:
        return squares(&s);
    case LATHE_OP_KV_APPEND:
        return kv_append(&s);
    case LATHE_OP_SWIGLU:
    case LATHE_OP_ADD:
    case LATHE_OP_SUB:
    case LATHE_OP_MUL:
    case LATHE_OP_LINCOMB:
        return binary(&s);
    case LATHE_OP_SWIGLU_BWD:
        LATHE_TRY(like_input(&s, 1));
        out[1] = out[0];
        return LATHE_OK;
    case LATHE_OP_GELU_TANH_BWD:
    case LATHE_OP_DROPOUT_BWD:
    case LATHE_OP_GELU_TANH:
    case LATHE_OP_SCALE:
    case LATHE_OP_SCALE_BY:
    case LATHE_OP_DROPOUT:
    case LATHE_OP_COPY:
    case LATHE_OP_LOGSIGMOID:
    case LATHE_OP_SIGMOID:
    case LATHE_OP_APPLY_UPDATE:
    case LATHE_OP_CLAMP:
        return like_input(&s, 0);
    case LATHE_OP_CAST:
    case LATHE_OP_L2_NORMALIZE:
        LATHE_TRY(like_input(&s, 0));
        if (lathe_dtype_bytes(node->attrs.dtype) == 0)
            return bad(&s, "a dtype to give");
        out[0].dtype = node->attrs.dtype;
        return LATHE_OK;
    case LATHE_OP_TRANSPOSE:
        if (!s.in[0] || s.in[0]->rank != 2)
            return bad(&s, "a matrix");
        out[0] = lathe_desc_2d(s.in[0]->dtype, s.in[0]->dims[1], s.in[0]->dims[0]);
        return LATHE_OK;
    default:
        return lathe_error(LATHE_E_ARG, "op %d of node '%s' has no shape rule", node->op,
                           node->label);
    }
}
