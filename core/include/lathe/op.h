/* The operations (ops) of the graph: inputs, outputs, formulas and attributes.
 *
 * Conventions, for every op:
 *  - Tensors are dense and row-major. N = B*T rows (tokens), C width, V vocabulary.
 *  - A "c" dtype is the compute dtype (f32, bf16 or f16): activations and matrix weights. Vectors
 *    (norm weights, biases) are f32. Statistics, losses and gradients of parameters are f32.
 *    Reductions (norms, softmax, losses, sums) are computed in f32 or wider, whatever "c" is.
 *  - A kernel overwrites its outputs (=). If bit i of lathe_kernel_args.accumulate is set, it adds
 *    to output i instead (+=). *_BWD, LINEAR_DX, LINEAR_DW, MATMUL, ADD and SCALE allow this.
 *  - "?" marks an optional tensor: if absent, its dtype is LATHE_ABSENT and its pointer NULL.
 *  - "i/o k": the output may share the memory of input k.
 *  - Target -1 is ignored: log-probability 0, no gradient. A target outside the vocabulary is
 *    LATHE_E_ARG. A device with its own memory cannot report it while a kernel runs: there the
 *    log-probability is NaN, and the target gives no gradient, no token and no stray access.
 */
#ifndef LATHE_OP_H
#define LATHE_OP_H

#include "op_tensor.h"
#include "tensor.h"

#define LATHE_ABSENT (-1)

/*  X(NAME, "name", n_in, n_out), with the inputs and outputs of each op in order
 *
 *  Forward (op_tensor.h has further ops, for losses and adapters)
 *  EMBED         tokens i32[N], W c[V,C] -> y c[N,C]            y[n] = W[tokens[n]]
 *  LINEAR        x c[N,I], W c[O,I], b? f32[O] -> y c[N,O]      y = x W^T + b
 *  RMSNORM       x c[..], w f32[D] -> y c[..], rstd f32[rows]   y = x*rstd*w over groups of D
 *                elements, rows = count(x)/D; eps; offset_one: 1+w instead of w
 *  LAYERNORM     x c[N,C], w f32[C], b? f32[C] -> y c[N,C], mean f32[N], rstd f32[N]   eps
 *  ROPE          x c[N,H*D], pos i32[N], table f32[P,2,R/2] -> y c[N,H*D]   R <= D, even
 *                table[p] = a row of cosines, a row of sines; x1, x2 = halves of a head's first
 *                R elements: y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin; the other D-R elements
 *                stay; head_dim; inverse: -sin; i/o 0
 *  ATTENTION     q c[N,H*D], k c[M,Hkv*D], v c[M,Hkv*D], doc_start? i32[N], kv_len? i32[B],
 *                key_end? i32[N] -> o c[N,H*D], lse f32[B,H,Tq] semantics in attention.h;
 *                fused_qkv: q is c[N,(H+2Hkv)*D], k and v are absent
 *  SWIGLU        gate c[N,F], up c[N,F] -> y c[N,F]             y = gate*sigmoid(gate)*up
 *  GELU_TANH     x c[..] -> y c[..]                             the tanh form ("gelu_new")
 *  ADD SUB MUL   a, b -> y                                      same shape and dtype; i/o 0
 *  SCALE         x -> y                                         y = alpha*x + beta; i/o 0
 *  SCALE_BY      x f32[..], s f32[*] -> y f32[..]               y = x * s[start]; i/o 0
 *  LINCOMB       x, y -> z                                      z = alpha*x + beta*y; z has the
 *                dtype of the input whose memory it shares, else of x; i/o 0 or 1
 *  DROPOUT       x c[..], rng i64[5] -> y c[..]                 kept with probability 1-p, times
 *                1/(1-p); u of element i, e = lathe_rng_index(rng, n, i): word e%4 of
 *                lathe_rng_block(rng[0], rng[1], rng_stream, e/4), uniform; kept iff u >= p
 *  HEAD_LOGPROB  x c[N,C], W c[V,C], targets i32[N], u? c[N,R], v? c[V,R], s? f32[V] -> logp f32[N]
 *                log softmax(softcap(s * (x W^T + u v^T)))[target], chunk_rows at a time; u: no dW
 *  DEQUANT       up to 6 planes -> W c[O,I]                     decoded by the quant plugin
 *  CAST COPY     x -> y
 *  SUM           x f32[..] -> y f32[]                           summed in f64, in a fixed order
 *  ROW_SUM       x f32[R*T] -> y f32[R]                         T = count; summed in f64
 *  SLICE         x [R,..] -> y [count,..]                       rows start .. start+count-1
 *  LOGSIGMOID SIGMOID  x f32[..] -> y f32[..]                   LOGSIGMOID: stable at both ends
 *  KV_APPEND     cache c[B,P,W], x c[B*Tq,W], kv_len i32[B] -> cache'
 *                x becomes rows kv_len[b]-Tq .. of cache[b]; blocks: see attention.h; i/o 0 always
 *  MATMUL        a [..], b [..] -> y                            y = alpha*op(a)*op(b), rank 2;
 *                op transposes with trans_a, trans_b
 *  L2_NORMALIZE  x f32[..] -> y f32 or c[..]                    x / max(|x|_2, eps); norm in f64
 *  TRANSPOSE     x [R,S] -> y [S,R]
 *  CLAMP         x f32 or c[..], limit? f32[*] -> y like x      y = x limited to -limit[start] ..
 *                limit[start], or, without `limit`, to alpha .. beta; NaN stays; i/o 0
 *  APPLY_UPDATE  p f32[..], u f32 or c[..], s f32[*] -> p'
 *                p' = p - s[start]*(alpha*u + beta*p); i/o 0 always
 *
 *  Backward (dx has the shape and dtype of x; parameter gradients are f32 unless noted)
 *  EMBED_BWD     dy, tokens -> dW f32[V,C]                      rows are added in token order
 *  LINEAR_DX     dy c[N,O], W c[O,I] -> dx c[N,I]               dx = dy W
 *  LINEAR_DW     dy c[N,O], x c[N,I] -> dW f32 or c[O,I], db? f32[O]
 *                dW = dy^T x, db = column sums of dy; dW of type c accumulates in f32 and is
 *                rounded once
 *  RMSNORM_BWD   dy, x, w, rstd -> dx, dw? f32[D]
 *  LAYERNORM_BWD dy, x, w, mean, rstd -> dx, dw? f32[C], db? f32[C]
 *  ATTENTION_BWD do, q, k, v, o, lse, doc_start?, key_end? -> dq, dk, dv  fused_qkv: dqkv alone
 *  SWIGLU_BWD    dy, gate, up -> dgate, dup
 *  GELU_TANH_BWD dy, x -> dx
 *  DROPOUT_BWD   dy, rng -> dx                                  the same mask
 *  HEAD_LOGPROB_BWD  x, W, targets, dlogp f32[N], u?, v?, s? -> logp f32[N], dx c[N,C], dW?
 *                f32[V,C] (with u, dv? f32[V,R]), du? c[N,R], ds? f32[V]; logp costs no more passes
 *  BROADCAST     x f32[] or f32[R] -> y f32[..]                 backward of SUM and ROW_SUM:
 *                y[i] = x[i / count], count = elements of y per element of x
 *  SLICE_BWD     dy [count,..] -> dx [R,..]                     zero outside start .. start+count-1
 *
 *  Evaluation (no derivative)
 *  HEAD_EVAL     as HEAD_LOGPROB -> logp f32[N], top_logp f32[N], top i32[N]
 *                logp as HEAD_LOGPROB, bit for bit; top: the most likely token (ties: the
 *                smallest id), top_logp: its log-probability; 0, 0, -1 where the target is -1
 *  HEAD_SAMPLE   x c[N,C], W c[V,C], targets i32[N], rng i64[5], u?, v?, s? -> sampled i32[N]
 *                smallest t with p[0] + .. + p[t] > z, p = softmax as in HEAD_LOGPROB, in f64;
 *                z of row i: words 0 and 1 of lathe_rng_block(rng[0], rng[1], rng_stream, e) as
 *                lathe_uniform_f64, e = lathe_rng_index(rng, N, i); -1: no target, or p is NaN
 *
 *  Optimizer step (no derivative); each device adds in its own fixed order
 *  SUM_SQUARES   x f32 or c[..], segments i64[S,2] -> y f64[S]
 *                y[s] = sum of x[e]^2 in f64 over segments[s][1] elements from segments[s][0]
 *  UPDATE_SQUARES  p f32[..], u f32 or c[..], s f32[*] -> y f64[ceil(n/16384)]
 *                y[k] = sum of (s[start]*(alpha*u + beta*p))^2 in f64 over the 16384 elements from
 *                16384k on: squared size of the update that APPLY_UPDATE subtracts from p
 *
 *  Fused pairs of the ops above. The core inserts them after differentiation if the device has
 *  them; they have no derivative and never accumulate. The first result is rounded to c.
 *  LINEAR_GELU   x c[N,I], W c[O,I], b? f32[O] -> y c[N,O], z? c[N,O]
 *                z = x W^T + b, y = gelu_tanh(z)
 *  LINEAR_DX_GELU  dy c[N,O], W c[O,I], z c[N,I] -> dz c[N,I]   dz = (dy W) * gelu_tanh'(z)
 *  ADD_RMSNORM   a, b c[..], w f32[D] -> x, y c[..], rstd       x = a + b, then RMSNORM of x; x
 *                may share the memory of a or b
 *  ADD_LAYERNORM a, b c[N,C], w, bias? f32[C] -> x, y, mean, rstd   the same with LAYERNORM
 */
#define LATHE_MODEL_OP_TABLE(X)                                                                    \
    X(EMBED, "embed", 2, 1)                                                                        \
    X(LINEAR, "linear", 3, 1)                                                                      \
    X(RMSNORM, "rmsnorm", 2, 2)                                                                    \
    X(LAYERNORM, "layernorm", 3, 3)                                                                \
    X(ROPE, "rope", 3, 1)                                                                          \
    X(ATTENTION, "attention", 6, 2)                                                                \
    X(SWIGLU, "swiglu", 2, 1)                                                                      \
    X(GELU_TANH, "gelu_tanh", 1, 1)                                                                \
    X(ADD, "add", 2, 1)                                                                            \
    X(SUB, "sub", 2, 1)                                                                            \
    X(MUL, "mul", 2, 1)                                                                            \
    X(SCALE, "scale", 1, 1)                                                                        \
    X(SCALE_BY, "scale_by", 2, 1)                                                                  \
    X(LINCOMB, "lincomb", 2, 1)                                                                    \
    X(DROPOUT, "dropout", 2, 1)                                                                    \
    X(HEAD_LOGPROB, "head_logprob", 6, 1)                                                          \
    X(DEQUANT, "dequant", 6, 1)                                                                    \
    X(CAST, "cast", 1, 1)                                                                          \
    X(COPY, "copy", 1, 1)                                                                          \
    X(SUM, "sum", 1, 1)                                                                            \
    X(ROW_SUM, "row_sum", 1, 1)                                                                    \
    X(SLICE, "slice", 1, 1)                                                                        \
    X(LOGSIGMOID, "logsigmoid", 1, 1)                                                              \
    X(SIGMOID, "sigmoid", 1, 1)                                                                    \
    X(KV_APPEND, "kv_append", 3, 1)                                                                \
    X(MATMUL, "matmul", 2, 1)                                                                      \
    X(L2_NORMALIZE, "l2_normalize", 1, 1)                                                          \
    X(TRANSPOSE, "transpose", 1, 1)                                                                \
    X(APPLY_UPDATE, "apply_update", 3, 1)                                                          \
    X(EMBED_BWD, "embed_bwd", 2, 1)                                                                \
    X(LINEAR_DX, "linear_dx", 2, 1)                                                                \
    X(LINEAR_DW, "linear_dw", 2, 2)                                                                \
    X(RMSNORM_BWD, "rmsnorm_bwd", 4, 2)                                                            \
    X(LAYERNORM_BWD, "layernorm_bwd", 5, 3)                                                        \
    X(ATTENTION_BWD, "attention_bwd", 8, 3)                                                        \
    X(SWIGLU_BWD, "swiglu_bwd", 3, 2)                                                              \
    X(GELU_TANH_BWD, "gelu_tanh_bwd", 2, 1)                                                        \
    X(DROPOUT_BWD, "dropout_bwd", 2, 1)                                                            \
    X(HEAD_LOGPROB_BWD, "head_logprob_bwd", 7, 5)                                                  \
    X(BROADCAST, "broadcast", 1, 1)                                                                \
    X(SLICE_BWD, "slice_bwd", 1, 1)                                                                \
    X(HEAD_EVAL, "head_eval", 6, 3)                                                                \
    X(HEAD_SAMPLE, "head_sample", 7, 1)                                                            \
    X(SUM_SQUARES, "sum_squares", 2, 1)                                                            \
    X(UPDATE_SQUARES, "update_squares", 3, 1)                                                      \
    X(CLAMP, "clamp", 2, 1)                                                                        \
    X(LINEAR_GELU, "linear_gelu", 3, 2)                                                            \
    X(LINEAR_DX_GELU, "linear_dx_gelu", 3, 1)                                                      \
    X(ADD_RMSNORM, "add_rmsnorm", 3, 3)                                                            \
    X(ADD_LAYERNORM, "add_layernorm", 4, 4)

#define LATHE_OP_TABLE(X) LATHE_MODEL_OP_TABLE(X) LATHE_TENSOR_OP_TABLE(X)

enum {
#define LATHE_X(name, text, n_in, n_out) LATHE_OP_##name,
    LATHE_OP_TABLE(LATHE_X)
#undef LATHE_X
        LATHE_N_OPS
};

#define LATHE_OP_MAX_IN 12
#define LATHE_OP_MAX_OUT 5

/** Attributes of a node. An op reads those named in its row of the table above; the others are 0.
 *  Plain data. */
typedef struct lathe_op_attrs {
    double alpha, beta;                    /* SCALE, LINCOMB, MATMUL, CLAMP, ... */
    float eps;                             /* norms, L2_NORMALIZE */
    float softcap;                         /* ATTENTION, HEAD_LOGPROB: 0 none, else c*tanh(x/c) */
    float scale;                           /* ATTENTION: factor on q k^T */
    float p;                               /* DROPOUT */
    int32_t n_heads, n_kv_heads, head_dim; /* ATTENTION, ROPE (head_dim) */
    int32_t window;                        /* ATTENTION: keys seen, itself included; 0: all */
    int32_t causal, fused_qkv;             /* ATTENTION */
    int32_t inverse;                       /* ROPE, CUMSUM, SKEW */
    int32_t offset_one;                    /* RMSNORM */
    int32_t trans_a, trans_b;              /* MATMUL, BLOCK_MATMUL */
    int64_t batch;                         /* ATTENTION: B, so that Tq = N/B */
    int64_t start, count; /* SLICE, ROW_SUM, BROADCAST, SCALE_BY, APPLY_UPDATE, ... */
    int64_t chunk_rows;   /* HEAD_LOGPROB: rows of logits at a time; 0: automatic */
    uint64_t rng_stream;  /* DROPOUT, UNIFORM_NOISE, HEAD_SAMPLE: distinct per site */
    int32_t dtype;        /* CAST, L2_NORMALIZE: dtype of y */
    int32_t fp8;          /* LINEAR, LINEAR_DX, LINEAR_DW: LATHE_FP8_*, see fp8.h; 0: no fp8 */
    int32_t invariant;    /* LINEAR(S), HEAD_EVAL, HEAD_LOGPROB: bits of a row do not depend on N */
    int32_t reserved;     /* 0 */
} lathe_op_attrs;
LATHE_ABI_SIZE(lathe_op_attrs, 128);

#endif
