/* The operations (ops) of the graph: inputs, outputs, formulas and attributes.
 *
 * Conventions, for every op:
 *  - Tensors are dense and row-major. N = B*T rows (tokens), C width, V vocabulary.
 *  - A "c" dtype is the compute dtype (f32, bf16 or f16): activations and matrix weights. Vectors
 *    (norm weights, biases) are f32. Statistics, losses and gradients of parameters are f32.
 *    Reductions (norms, softmax, losses, sums) are computed in f32 or wider, whatever "c" is.
 *  - A kernel overwrites its outputs (=). If bit i of lathe_kernel_args.accumulate is set, it adds
 *    to output i instead (+=). *_BWD, LINEAR_DX, LINEAR_DW, MATMUL, ADD and SCALE allow this,
 *    and EXPERT_ROWS, EXPERT_SUM and the derivatives of EXPERT_LINEAR.
 *  - "?" marks an optional tensor: if absent, its dtype is LATHE_ABSENT and its pointer NULL.
 *  - "i/o k": the output may share the memory of input k.
 *  - Target -1 is ignored: log-probability 0, no gradient. A target outside the vocabulary is
 *    LATHE_E_ARG. A device with its own memory cannot report it while a kernel runs: there the
 *    log-probability is NaN, and the target gives no gradient, no token and no stray access.
 */
#ifndef LATHE_OP_H
#define LATHE_OP_H

#include "abi.h"
#include "tensor.h"

#define LATHE_ABSENT (-1)

/*  X(NAME, "name", n_in, n_out), with the inputs and outputs of each op in order
 *
 *  Forward
 *  EMBED         tokens i32[N], W c[V,C] -> y c[N,C]            y[n] = W[tokens[n]]
 *  LINEAR        x c[N,I], W c[O,I], b? f32[O] -> y c[N,O]      y = x W^T + b
 *  RMSNORM       x c[..], w f32[D] -> y c[..], rstd f32[rows]   y = x*rstd*w over groups of D
 *                elements, rows = count(x)/D; eps; offset_one: 1+w instead of w
 *  LAYERNORM     x c[N,C], w f32[C], b? f32[C] -> y c[N,C], mean f32[N], rstd f32[N]   eps
 *  ROPE          x c[N,H*D], pos i32[N], table f32[P,2,R/2] -> y c[N,H*D]   R <= D, even
 *                table[p] = a row of cosines, a row of sines; x1, x2 = halves of a head's first
 *                R elements, or with `interleaved` their even and odd elements: y1 = x1 cos -
 *                x2 sin, y2 = x2 cos + x1 sin; the other D-R elements stay; head_dim; start: the
 *                R elements follow the first `start` of the head; inverse: -sin; i/o 0
 *  ATTENTION     q c[N,H*D], k c[M,Hkv*D], v c[M,Hkv*Dv], doc_start? i32[N], kv_len? i32[B],
 *                key_end? i32[N], slopes? f32[H], sinks? f32[H] -> o c[N,H*Dv], lse f32[B,H,Tq]
 *                semantics in attention.h; Dv = value_dim, or D if that is 0; slopes get no
 *                gradient; fused_qkv: q is c[N,(H+2Hkv)*D], k and v are absent, Dv is D
 *
 *  SWIGLU        gate c[N,F], up c[N,F] -> y c[N,F]             y = gate*sigmoid(gate)*up
 *  SWIGLU_CLAMPED  x c[N,2F] -> y c[N,F]                        y[j] = g*sigmoid(alpha*g)*(u+1),
 *                g = min(x[2j], beta), u = x[2j+1] limited to -beta .. beta
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
 *                log softmax(softcap(s * (x W^T + u v^T)))[target], chunk_rows at a time
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
 *  ATTENTION_BWD do, q, k, v, o, lse, doc_start?, key_end?, slopes?, sinks? -> dq, dk, dv
 *                fused_qkv: dqkv alone
 *  ATTENTION_SINKS_BWD  do c[N,H*Dv], o c[N,H*Dv], lse f32[B,H,Tq], sinks f32[H] -> dsinks f32[H]
 *                dsinks[h] = - sum over the queries of exp(sinks[h] - lse) * (do . o of the head)
 *  SWIGLU_BWD    dy, gate, up -> dgate, dup
 *  SWIGLU_CLAMPED_BWD  dy c[N,F], x c[N,2F] -> dx c[N,2F]
 *  GELU_TANH_BWD dy, x -> dx
 *  DROPOUT_BWD   dy, rng -> dx                                  the same mask
 *  HEAD_LOGPROB_BWD  x, W, targets, dlogp f32[N], u?, v?, s? -> logp f32[N], dx c[N,C], dW?
 *                f32[V,C], du? c[N,R], ds? f32[V], dv? f32[V,R]; logp costs no more passes
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
 *
 *  General tensor operations, from which losses and adapters are composed: elementwise functions,
 *  selection, row and column sums, gather and scatter. Each is differentiable in every input of a
 *  compute dtype, unless its row says otherwise.
 *  EXP LOG TANH ABS  x c[..] -> y c[..]                    LOG: -inf for 0, NaN below 0; i/o 0
 *  GELU          x c[..] -> y c[..]                        the exact form: y = x P(x), P(x) = share
 *                of the standard normal distribution below x; GELU_TANH approximates it
 *  XIELU         x c[..], alpha_p, alpha_n, beta, eps f32[1] -> y c[..]   P = softplus(alpha_p),
 *                N = beta + softplus(alpha_n): y = P x^2 + beta x where x > 0, else
 *                N (e^min(x,eps) - 1 - x) + beta x; beta and eps get no gradient
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
 *  Mixtures of experts: N tokens choose K of E experts each, M = N*K rows are sorted by expert
 *  EXPERT_PLACES  index i32[N,K] -> place i32[N,K], first i32[E+1]   count: E; no derivative
 *                place[n,j]: where row (n,j) lies among all rows sorted by index[n,j], equal ones
 *                in the order of n, then j; rows first[e] .. first[e+1]-1 are those of expert e.
 *                The index -1, with which TOPK marks NaN, counts as 0
 *  EXPERT_CHOICE  x f32[N,E], bias? f32[E] -> y f32[N,K], index i32[N,K]   K = count
 *                index: the K largest s = x + bias of each row, as TOPK chooses; y[n,j] =
 *                x[n,index[n,j]]; the bias gets no gradient. batch = G > 1: the columns are G
 *                groups of E/G >= 2 each, and only the `start` groups whose two largest s have
 *                the largest sum take part (ties: the lower group); K <= start*E/G, G <= 256
 *
 *  EXPERT_ROWS   x c[N,C], place i32[N,K] -> y c[N*K,C]         y[place[n,j]] = x[n]
 *
 *  EXPERT_SUM    x c[N*K,C], weight? f32[N,K], place i32[N,K] -> y c[N,C]
 *                y[n] = sum of weight[n,j]*x[place[n,j]] over j, in order, in f32; without
 *                weights each is 1
 *
 *  EXPERT_LINEAR  x c[M,I], W c[E*O,I], first i32[E+1] -> y c[M,O]
 *                rows first[e] .. first[e+1]-1: y = x W[e]^T, W[e] = rows e*O .. e*O+O-1 of W; a
 *                row's bits do not depend on the other rows if attrs.invariant
 *
 *  Backward of these
 *  EXPERT_SUM_BWD  dy c[N,C], x c[N*K,C], weight f32[N,K], place -> dx c[N*K,C], dweight? f32[N,K]
 *  EXPERT_LINEAR_DX  dy c[M,O], W c[E*O,I], first -> dx c[M,I]
 *  EXPERT_LINEAR_DW  dy c[M,O], x c[M,I], first -> dW f32 or c[E*O,I]; 0 for an expert without rows
 *  HEAD_ENTROPY_BWD  x, W, targets, dh f32[N], u?, v?, s? -> h f32[N], dx c[N,C], dW? f32[V,C]
 *                one pass over the chunks also gives the entropies; u, v, s as in HEAD_LOGPROB_BWD
 *  HEAD_DIVERGENCE_BWD  x, W, y, U, targets, dk f32[N], u?, v?, s?, u'?, v'?, s'? -> k f32[N], dx
 *                c[N,C], dW?, du?, ds?, dv? as in HEAD_LOGPROB_BWD
 *  HEAD_PICK_BWD x, W, ids, dy, u?, v?, s? -> y, dx c[N,C], dW?, du?, ds?, dv?
 *                as in HEAD_LOGPROB_BWD
 *
 *  GELU_BWD      dy, x -> dx                               dy * (P(x) + x P'(x))
 *  XIELU_BWD     dy, x, alpha_p, alpha_n, beta, eps -> dx, dalpha_p? f32[1], dalpha_n? f32[1]
 *  ABS_BWD       dy, x -> dx                               dy * sign(x), 0 where x is 0
 *  TANH_BWD      dy, y -> dx                               dy * (1 - y^2); y = tanh(x)
 *  WHERE_BWD     dy, condition -> da, db                   where condition > 0.5: da = dy, db = 0;
 *                elsewhere: da = 0, db = dy
 *  CLAMP_BWD     dy, x, limit? -> dx                       dy where CLAMP does not change x, else 0
 *  SOFTMAX_BWD   dy, y -> dx                               y * (dy - sum of dy * y); y = softmax(x)
 *  TOPK_BWD      dy c[N,k], index i32[N,k] -> dx c[N,count]     dx[n,index[n,j]] = dy[n,j], else 0
 *
 *  Products of one input. The core inserts them where it generates text, if the device has them, on
 *  the terms of the fused pairs above: no derivative, no accumulation, no other bits.
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
#define LATHE_OP_TABLE(X)                                                                          \
    X(EMBED, "embed", 2, 1)                                                                        \
    X(LINEAR, "linear", 3, 1)                                                                      \
    X(RMSNORM, "rmsnorm", 2, 2)                                                                    \
    X(LAYERNORM, "layernorm", 3, 3)                                                                \
    X(ROPE, "rope", 3, 1)                                                                          \
    X(ATTENTION, "attention", 8, 2)                                                                \
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
    X(ATTENTION_BWD, "attention_bwd", 10, 3)                                                       \
    X(SWIGLU_BWD, "swiglu_bwd", 3, 2)                                                              \
    X(GELU_TANH_BWD, "gelu_tanh_bwd", 2, 1)                                                        \
    X(DROPOUT_BWD, "dropout_bwd", 2, 1)                                                            \
    X(HEAD_LOGPROB_BWD, "head_logprob_bwd", 7, 6)                                                  \
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
    X(ADD_LAYERNORM, "add_layernorm", 4, 4)                                                        \
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
    X(HEAD_ENTROPY_BWD, "head_entropy_bwd", 7, 6)                                                  \
    X(CUMSUM, "cumsum", 1, 1)                                                                      \
    X(GELU, "gelu", 1, 1)                                                                          \
    X(GELU_BWD, "gelu_bwd", 2, 1)                                                                  \
    X(LINEARS, "linears", 7, 3)                                                                    \
    X(HEAD_DIVERGENCE, "head_divergence", 11, 1)                                                   \
    X(HEAD_DIVERGENCE_BWD, "head_divergence_bwd", 12, 6)                                           \
    X(HEAD_SCORES, "head_scores", 1, 2)                                                            \
    X(UNIFORM_NOISE, "uniform_noise", 2, 1)                                                        \
    X(BLOCK_MATMUL, "block_matmul", 2, 1)                                                          \
    X(SKEW, "skew", 1, 1)                                                                          \
    X(HEAD_PICK, "head_pick", 6, 1)                                                                \
    X(HEAD_PICK_BWD, "head_pick_bwd", 7, 6)                                                        \
    X(SAMPLE, "sample", 6, 2)                                                                      \
    X(EXPERT_PLACES, "expert_places", 1, 2)                                                        \
    X(EXPERT_ROWS, "expert_rows", 2, 1)                                                            \
    X(EXPERT_SUM, "expert_sum", 3, 1)                                                              \
    X(EXPERT_SUM_BWD, "expert_sum_bwd", 4, 2)                                                      \
    X(EXPERT_LINEAR, "expert_linear", 3, 1)                                                        \
    X(EXPERT_LINEAR_DX, "expert_linear_dx", 3, 1)                                                  \
    X(EXPERT_LINEAR_DW, "expert_linear_dw", 3, 1)                                                  \
    X(XIELU, "xielu", 5, 1)                                                                        \
    X(XIELU_BWD, "xielu_bwd", 6, 3)                                                                \
    X(EXPERT_CHOICE, "expert_choice", 2, 2)                                                        \
    X(ATTENTION_SINKS_BWD, "attention_sinks_bwd", 4, 1)                                            \
    X(SWIGLU_CLAMPED, "swiglu_clamped", 1, 1)                                                      \
    X(SWIGLU_CLAMPED_BWD, "swiglu_clamped_bwd", 2, 1)

enum {
#define LATHE_X(name, text, n_in, n_out) LATHE_OP_##name,
    LATHE_OP_TABLE(LATHE_X)
#undef LATHE_X
        LATHE_N_OPS
};

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

/* Ops of plugins have these limits, too; their own backward has 2 * outputs + inputs inputs. */
#define LATHE_OP_MAX_IN 16
#define LATHE_OP_MAX_OUT 8

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
    int64_t batch;        /* ATTENTION: B, so that Tq = N/B; EXPERT_CHOICE: groups */
    int64_t start, count; /* SLICE, ROPE, ROW_SUM, BROADCAST, SCALE_BY, APPLY_UPDATE, ... */
    int64_t chunk_rows;   /* HEAD_LOGPROB: rows of logits at a time; 0: automatic */
    uint64_t rng_stream;  /* DROPOUT, UNIFORM_NOISE, HEAD_SAMPLE: distinct per site */
    int32_t dtype;        /* CAST, L2_NORMALIZE: dtype of y */
    int32_t fp8;          /* LINEAR, LINEAR_DX, LINEAR_DW: LATHE_FP8_*, see fp8.h; 0: no fp8 */
    int32_t invariant;    /* [EXPERT_]LINEAR(S), HEAD_EVAL, HEAD_LOGPROB: bits of a row do not
                             depend on N */
    int32_t interleaved;  /* ROPE: elements 2i and 2i+1 of a head rotate together */
    int32_t value_dim;    /* ATTENTION: size of a head of v and o; 0: head_dim */
    int32_t reserved;     /* 0 */
} lathe_op_attrs;
LATHE_ABI_SIZE(lathe_op_attrs, 136);

#endif
