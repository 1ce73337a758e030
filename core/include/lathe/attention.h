/* The interface of attention plugins: o = softmax(mask(softcap(scale * q k^T))) v and its backward.
 *
 * Layout: q [B,Tq,H,D], k [B,Tk,Hkv,D], v [B,Tk,Hkv,Dv], o [B,Tq,H,Dv]; a token's row is contiguous
 * over heads, and consecutive tokens are *_stride elements apart (so q, k, v may be columns of one
 * fused tensor); consecutive batch rows are Tq (or Tk) tokens apart. Query head h uses key head h /
 * (H / Hkv). Query i of row b has the key index i + (len_b - Tq), len_b = kv_len ? kv_len[b] : Tk.
 * It sees key j iff  j < len_b,  causal: j <= its index,  window w > 0: j > its index - w,
 * packed: j >= doc_start[b*Tq + i] (index within the row at which its document begins),
 * and bounded: j < key_end[b*Tq + i]. A document that sees itself in both directions has key_end =
 * its end and causal = 0; a prefix that does, followed by causal tokens, has key_end = the end of
 * the prefix in the prefix and the token's index + 1 after it. Bounds beyond len_b count as len_b.
 * With slopes [H] (ALiBi, arXiv:2108.12409) slopes[h] * (j - its index) is added to the score of
 * key j, after the soft-cap. With sinks [H] the softmax of every query also has the score sinks[h],
 * to which no value belongs: p = exp(s) / (sum of exp(s) + exp(sinks[h])).
 *
 * Saved for the backward, exactly: o, and lse [B,H,Tq] f32, the natural log of the sum of
 * exp(masked, biased, soft-capped, scaled scores), with the sink's. All backends save the same
 * layout. A query that sees no key: o = 0, lse = -inf, or sinks[h] if there are sinks. Since lse
 * includes the sink, a backward is the same with and without sinks; the gradient of the sinks is
 * ATTENTION_SINKS_BWD (op.h).
 */
#ifndef LATHE_ATTENTION_H
#define LATHE_ATTENTION_H

#include "device.h"

#define LATHE_ATTENTION_REVISION 1

typedef struct lathe_attention_problem {
    uint32_t size;
    int32_t dtype;           /* of q k v o and their gradients: F32, BF16 or F16 */
    int64_t batch, t_q, t_k; /* t_k: keys per row, or the capacity of the cache with kv_len */
    int32_t n_heads, n_kv_heads, head_dim;
    int32_t causal, window; /* window: 0 all */
    int32_t packed, cached; /* doc_start given; kv_len given (forward only) */
    int32_t bounded;        /* key_end given */
    int32_t alibi;          /* slopes given */
    int32_t n_threads;
    float scale, softcap;                           /* softcap: 0 none */
    int64_t q_stride, k_stride, v_stride, o_stride; /* elements between consecutive tokens */
    int64_t dq_stride, dk_stride, dv_stride;
    uint32_t flags; /* LATHE_FLAG_* */
    int32_t need_backward;
    const lathe_device_info *device;
    /* Keys in blocks (with kv_len, forward only): k and v are blocks of block_tokens tokens, which
     * rows may share. kv_len[b*kv_stride] is then the length of row b, and kv_len[b*kv_stride + 1
     * + j] the number of the block with its keys j*block_tokens and on. 0: rows are contiguous. */
    int64_t block_tokens, kv_stride;
    int32_t sinks;     /* sinks given */
    int32_t value_dim; /* Dv, the size of a head of v and o; 0: head_dim */
} lathe_attention_problem;
LATHE_ABI_SIZE(lathe_attention_problem, 176);

typedef struct lathe_attention_args {
    uint32_t size;
    uint32_t accumulate; /* backward: bit 0 dq, 1 dk, 2 dv are added to */
    const void *q, *k, *v;
    const int32_t *doc_start; /* [B*Tq] or NULL */
    const int32_t *key_end;   /* [B*Tq] or NULL */
    const int32_t *kv_len;    /* [B], with blocks [B*kv_stride], or NULL */
    void *o;                  /* forward out, backward in */
    float *lse;               /* forward out, backward in */
    const void *d_o;          /* backward in; o_stride */
    void *dq, *dk, *dv;       /* backward out */
    void *scratch;            /* bytes from *_scratch, 64-byte aligned */
    lathe_stream *stream;
    const float *slopes; /* [n_heads] or NULL */
    const float *sinks;  /* [n_heads] or NULL */
} lathe_attention_args;
LATHE_ABI_SIZE(lathe_attention_args, 136);

typedef struct lathe_attention_v1 {
    uint32_t size;
    uint32_t revision;
    /** [pure] Rates how well the backend suits the problem (bands in plugin.h); 0 refuses. `why`
     *  gets one line. */
    int32_t (*score)(void *self, const lathe_attention_problem *problem, char *why,
                     int64_t why_bytes);
    /** [pure] Bytes of scratch that forward needs. */
    int64_t (*forward_scratch)(void *self, const lathe_attention_problem *problem);
    /** [pure] Bytes of scratch that backward needs. */
    int64_t (*backward_scratch)(void *self, const lathe_attention_problem *problem);
    /** [step] Queues the forward computation; bitwise repeatable with LATHE_FLAG_DETERMINISTIC. */
    lathe_status (*forward)(void *self, const lathe_attention_problem *problem,
                            const lathe_attention_args *args);
    /** [step] Queues the backward computation; repeatable as forward. */
    lathe_status (*backward)(void *self, const lathe_attention_problem *problem,
                             const lathe_attention_args *args);
} lathe_attention_v1;
LATHE_ABI_SIZE(lathe_attention_v1, 48);

#endif
