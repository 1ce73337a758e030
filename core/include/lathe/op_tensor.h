/* General tensor operations, from which losses and adapters are composed: elementwise functions,
 * selection, row and column sums, gather and scatter. op.h includes this header; it has the
 * conventions, the other ops and the attributes.
 *
 * Every op is differentiable in each input of a compute dtype, unless its row says otherwise.
 */
#ifndef LATHE_OP_TENSOR_H
#define LATHE_OP_TENSOR_H

#include "abi.h"

/*  X(NAME, "name", n_in, n_out), with the inputs and outputs of each op in order
 *
 *  EXP LOG TANH ABS  x c[..] -> y c[..]                    LOG: -inf for 0, NaN below 0; i/o 0
 *  GELU          x c[..] -> y c[..]                        the exact form: y = x P(x), P(x) = share
 *                of the standard normal distribution below x; GELU_TANH approximates it
 *  DIV           a, b -> y                                 y = a / b; same shape and dtype;
 *                i/o 0
 *  MIN MAX       a, b -> y                                 NaN where a or b is NaN; where a
 *                equals b, the gradient goes to b; i/o 0 or 1
 *  LESS          a, b -> y                                 1 where a < b, else 0; derivative 0;
 *                i/o 0 or 1
 *  WHERE         condition, a, b -> y                      a where condition > 0.5, else b; all
 *                of one shape and dtype; the condition gets no gradient; i/o 1 or 2
 *  SOFTMAX       x c[..,D] -> y c[..,D]                    exp(x - max) / sum, over the last dim
 *  CUMSUM        x c[..,D] -> y c[..,D]                    y[j] = x[0] + .. + x[j], over the last
 *                dim; inverse: x[j] + .. + x[D-1]
 *  BROADCAST_ROW     v f32[C] -> y c[count,C]              y[n,j] = v[j]; dtype: that of y
 *  BROADCAST_COLUMN  v f32[N] -> y c[N,count]              y[n,j] = v[n]; dtype: that of y
 *  SUM_ROWS      x c[N,C] -> y f32[C]                      y[j] = sum of x[n,j] over n
 *  SUM_COLUMNS   x c[N,C] -> y f32[N]                      y[n] = sum of x[n,j] over j
 *  GATHER        x c[R,..], index i32[N] -> y c[N,..]      y[n] = x[index[n]]; zeros where the
 *                index is -1
 *  SCATTER       x c[N,..], index i32[N] -> y c[count,..]  y = 0, then y[index[n]] += x[n] in the
 *                order of n; index -1 adds nothing. Every row of y reads the whole index: use it
 *                for hundreds of rows, not for a vocabulary
 *  TOPK          x c[N,V] -> y c[N,count], index i32[N,count]
 *                the `count` largest of each row, largest first; ties: lowest index first. NaN is
 *                never selected; if a row has too few numbers, the rest is NaN with index -1
 *  UNIFORM_NOISE  x c[..], rng i64[5] -> y c[..]           y = x + alpha*(2u - 1); u of element e
 *                as in DROPOUT; only while training, elsewhere y = x; derivative 1; i/o 0
 *  HEAD_ENTROPY  x c[N,C], W c[V,C], targets i32[N], u?, v?, s? -> h f32[N]
 *                h = -sum of p log p, p as in HEAD_LOGPROB, chunk_rows rows at a time; h = 0
 *                where the target is -1; other targets have no influence
 *  HEAD_DIVERGENCE  x c[N,C], W c[V,C], y d[N,D], U d[V',D], targets i32[N], u?, v?, s?, u'?, v'?,
 *                s'? -> k f32[N]
 *                how far p = softmax(softcap((x W^T + u v^T) * s)/alpha) is from q =
 *                softmax(softcap'((y U^T + u' v'^T) * s')/alpha) of another model, with its own
 *                dtype d and the cap softcap' = scale; u, v and s as in HEAD_LOGPROB, u' and v' of
 *                dtype d; both softmax are over the first min(V, V') columns, the tokens that both
 *                models have;
 *                alpha: temperature; beta 0: KL(q || p), 1: KL(p || q), else beta KL(q || m) +
 *                (1-beta) KL(p || m), m = beta q + (1-beta) p; chunk_rows and targets as in
 *                HEAD_ENTROPY; y, U, u', v' and s' get no gradient
 *  HEAD_PICK     x c[N,C], W c[V,C], ids i32[N,K], u?, v?, s? -> y f32[N,K+1] or f32[N,K]
 *                p = softmax(softcap((x W^T + u v^T) * s)/alpha), chunk_rows rows at a time; alpha:
 *                temperature; u, v and s as in HEAD_LOGPROB.
 *                beta 0: y[n,j] = log p[ids[n,j]], y[n,K] = log of the probability of all tokens
 *                that row n does not pick, at least log(FLT_MIN), where it has no gradient; beta
 *                1: no column K, and p is normalised over the tokens that the row picks. An id -1
 *                gives 0 and no gradient, also to column K if a row has no other
 *  BLOCK_MATMUL  a, b -> y                                 MATMUL of each of `count` blocks of
 *                columns: y[g] = alpha*op(a[g])*op(b[g]), x[g] = columns g*w .. of x, w = its
 *                columns / count
 *  SKEW          x c[G,b(b-1)/2] -> y c[b,G*b]             block g of columns is the skew-symmetric
 *                matrix with row g of x above its diagonal, row by row; inverse: x c[b,G*b] ->
 *                y c[G,b(b-1)/2], each y = x[i,j] - x[j,i] of its block; b >= 2
 *
 *  Backward
 *  HEAD_ENTROPY_BWD  x, W, targets, dh f32[N], u?, v?, s? -> h f32[N], dx c[N,C], dW? f32[V,C]
 *                one pass over the chunks also gives the entropies; u, v, s as in HEAD_LOGPROB_BWD
 *  HEAD_DIVERGENCE_BWD  x, W, y, U, targets, dk f32[N], u?, v?, s?, u'?, v'?, s'? -> k f32[N], dx
 *                c[N,C], dW?, du?, ds? as in HEAD_LOGPROB_BWD
 *  HEAD_PICK_BWD x, W, ids, dy, u?, v?, s? -> y, dx c[N,C], dW?, du?, ds? as in HEAD_LOGPROB_BWD
 *  GELU_BWD      dy, x -> dx                               dy * (P(x) + x P'(x))
 *  ABS_BWD       dy, x -> dx                               dy * sign(x), 0 where x is 0
 *  TANH_BWD      dy, y -> dx                               dy * (1 - y^2); y = tanh(x)
 *  WHERE_BWD     dy, condition -> da, db                   where condition > 0.5: da = dy, db = 0;
 *                elsewhere: da = 0, db = dy
 *  CLAMP_BWD     dy, x, limit? -> dx                       dy where CLAMP does not change x, else 0
 *  SOFTMAX_BWD   dy, y -> dx                               y * (dy - sum of dy * y); y = softmax(x)
 *  TOPK_BWD      dy c[N,k], index i32[N,k] -> dx c[N,count]     dx[n,index[n,j]] = dy[n,j], else 0
 *
 *  Products of one input. The core inserts them where it generates text, if the device has them, on
 *  the terms of the fused pairs in op.h: no derivative, no accumulation, no other bits.
 *  LINEARS       x c[N,I], W1 c[O1,I], b1? f32[O1], W2, b2?, W3?, b3? -> y1 c[N,O1], y2, y3?
 *                each yi is LINEAR of x, Wi and bi; y3 is present if and only if W3 is
 *
 *  Generation (no derivative; inserted if the device has it)
 *  HEAD_SCORES   x c[N,V] -> y f32[N,V], lse f64[N]        y = softcap(x), lse = log of the sum of
 *                exp(y); with x = h W^T, y[t] - lse has the bits of HEAD_LOGPROB of h, W and t
 *  SAMPLE        logits f32[L,V], draft? f32[M,V], sums? f64[L], rows i64[N,8], how f64[N,4],
 *                seen? i32[N,(V+31)/32] -> token i32[N], logp f32[N]
 *                draws a token from row rows[n,ROW] of the logits (-1: none, token -1); columns:
 *                LATHE_SAMPLE_*. The logits of tokens whose bit is set in seen[n] (bit i%32 of word
 *                i/32) are divided by the penalty, or multiplied if negative. Temperature 0: the
 *                largest, the first of equal ones. Else p = softmax(logits / temperature), cut to
 *                the TOP_K likeliest (0: all), then to the fewest likeliest whose sum reaches TOP_P
 *                of that, then to those of at least MIN_P times the largest. From the likeliest on
 *                (ties: lowest first), the first token with p[0] + .. + p[token] > u is drawn; u:
 *                words 0 and 1 of lathe_rng_block(SEED, POSITION, STREAM, 0) as lathe_uniform_f64.
 *                With DRAFTED not -1 and a temperature: q is the same of row DRAFT_ROW of draft;
 *                DRAFTED stays if u' q < p of it, u' with the stream rng_stream; else the token is
 *                drawn with u from max(0, p - q), in the order of tokens. logp: log-softmax of the
 *                token, or logits[token] - sums[ROW], without penalty, temperature and cuts. Token
 *                -1 and logp NaN where a logit is not finite
 */
#define LATHE_TENSOR_OP_TABLE(X)                                                                   \
    X(EXP, "exp", 1, 1)                                                                            \
    X(LOG, "log", 1, 1)                                                                            \
    X(ABS, "abs", 1, 1)                                                                            \
    X(TANH, "tanh", 1, 1)                                                                          \
    X(ABS_BWD, "abs_bwd", 2, 1)                                                                    \
    X(TANH_BWD, "tanh_bwd", 2, 1)                                                                  \
    X(DIV, "div", 2, 1)                                                                            \
    X(MIN, "min", 2, 1)                                                                            \
    X(MAX, "max", 2, 1)                                                                            \
    X(LESS, "less", 2, 1)                                                                          \
    X(WHERE, "where", 3, 1)                                                                        \
    X(WHERE_BWD, "where_bwd", 2, 2)                                                                \
    X(CLAMP_BWD, "clamp_bwd", 3, 1)                                                                \
    X(SOFTMAX, "softmax", 1, 1)                                                                    \
    X(SOFTMAX_BWD, "softmax_bwd", 2, 1)                                                            \
    X(BROADCAST_ROW, "broadcast_row", 1, 1)                                                        \
    X(BROADCAST_COLUMN, "broadcast_column", 1, 1)                                                  \
    X(SUM_ROWS, "sum_rows", 1, 1)                                                                  \
    X(SUM_COLUMNS, "sum_columns", 1, 1)                                                            \
    X(GATHER, "gather", 2, 1)                                                                      \
    X(SCATTER, "scatter", 2, 1)                                                                    \
    X(TOPK, "topk", 1, 2)                                                                          \
    X(TOPK_BWD, "topk_bwd", 2, 1)                                                                  \
    X(HEAD_ENTROPY, "head_entropy", 6, 1)                                                          \
    X(HEAD_ENTROPY_BWD, "head_entropy_bwd", 7, 5)                                                  \
    X(CUMSUM, "cumsum", 1, 1)                                                                      \
    X(GELU, "gelu", 1, 1)                                                                          \
    X(GELU_BWD, "gelu_bwd", 2, 1)                                                                  \
    X(LINEARS, "linears", 7, 3)                                                                    \
    X(HEAD_DIVERGENCE, "head_divergence", 11, 1)                                                   \
    X(HEAD_DIVERGENCE_BWD, "head_divergence_bwd", 12, 5)                                           \
    X(HEAD_SCORES, "head_scores", 1, 2)                                                            \
    X(UNIFORM_NOISE, "uniform_noise", 2, 1)                                                        \
    X(BLOCK_MATMUL, "block_matmul", 2, 1)                                                          \
    X(SKEW, "skew", 1, 1)                                                                          \
    X(HEAD_PICK, "head_pick", 6, 1)                                                                \
    X(HEAD_PICK_BWD, "head_pick_bwd", 7, 5)                                                        \
    X(SAMPLE, "sample", 6, 2)

/* Columns of SAMPLE's `rows` and `how`. */
enum {
    LATHE_SAMPLE_ROW = 0,       /* of the logits; -1: no token is drawn */
    LATHE_SAMPLE_DRAFT_ROW = 1, /* of the draft's logits */
    LATHE_SAMPLE_DRAFTED = 2,   /* token that the draft's model proposes; -1: none */
    LATHE_SAMPLE_POSITION = 3,
    LATHE_SAMPLE_SEED = 4,
    LATHE_SAMPLE_STREAM = 5,
    LATHE_SAMPLE_TOP_K = 6, /* column 7 is 0 */
    LATHE_SAMPLE_COLUMNS = 8,
    LATHE_SAMPLE_TEMPERATURE = 0,
    LATHE_SAMPLE_TOP_P = 1,
    LATHE_SAMPLE_MIN_P = 2,
    LATHE_SAMPLE_PENALTY = 3,
    LATHE_SAMPLE_SETTINGS = 4
};

#endif
