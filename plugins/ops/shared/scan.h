/* Arguments and memory of linear attention with a decaying state (scan_rule.h), for the kernels of
 * the CPU and of GPUs.
 *
 * Matrices in scratch and in states have rows of `ld` floats: their columns rounded up to
 * SCAN_TILE, the rest zeros.
 */
#ifndef SCAN_H
#define SCAN_H

#include <stdint.h>

#ifdef __CUDACC__
#define SCAN_FN static inline __host__ __device__
#else
#define SCAN_FN static inline
#endif

/* Inputs of the ops; their gradients have the same places. */
enum { SCAN_Q, SCAN_K, SCAN_V, SCAN_G, SCAN_BETA, SCAN_DOC_START, SCAN_SKIP, SCAN_N_IN };

enum {
    SCAN_CHUNK = 64,    /* tokens of a chunk, at most */
    SCAN_TILE = 16,     /* floats */
    SCAN_THREADS = 128, /* of a block on a GPU */
    SCAN_BLOCKS = 512,  /* on a GPU, at most: each has scratch */
    SCAN_DIM_MAX = 512, /* size of a key or a value */
    SCAN_PARTS = 8,     /* that compute the gradients of one head of q and k, at most */
};

typedef struct scan_args {
    const void *q, *k, *v, *d_out; /* c; d_out: the gradient of o, in the backward */
    const float *g, *beta;         /* [N,H] */
    const float *skip;             /* [N,H] or NULL */
    const int32_t *doc_start;      /* [N] or NULL */
    const int32_t *slots;          /* [B], of rows that continue sequences; or NULL */
    float *states;                 /* [S, H, scan_state_size]; or NULL */
    void *out[SCAN_N_IN];          /* o; or the gradients of the inputs; NULL: not wanted */
    float *scratch;                /* scratch_each floats for each worker or block */
    int64_t scratch_each;
    float *sums;                /* scan_sums_size floats after those */
    int64_t n_rows, tokens;     /* B rows of T tokens */
    int32_t key_heads, heads;   /* heads of q and k; of v: a multiple */
    int32_t key_dim, value_dim; /* Dk, Dv */
    int32_t dtype;              /* of c */
    uint32_t accumulate;        /* bit i: adds to out[i] */
    float scale;
    int32_t corrects; /* 1: the delta rule */
} scan_args;

SCAN_FN int64_t scan_ld(int64_t columns)
{
    return (columns + SCAN_TILE - 1) / SCAN_TILE * SCAN_TILE;
}

/* Floats of a chunk: the state S [Dk, ld(Dv)] before it, its keys transposed [Dk, 64], its updates
 * u [64, ld(Dv)], the sums of g from its first token on [64], and in a state's memory the number of
 * its tokens, and whether there were chunks before it. */
SCAN_FN int64_t scan_state_size(int64_t key_dim, int64_t value_dim)
{
    return key_dim * scan_ld(value_dim) + key_dim * SCAN_CHUNK + SCAN_CHUNK * scan_ld(value_dim) +
           SCAN_CHUNK + SCAN_TILE;
}

/* Floats of a worker's memory in the forward: a chunk, q, k and a product of them with factors, two
 * matrices of pairs, o, beta, skip. */
SCAN_FN int64_t scan_forward_size(const scan_args *a)
{
    return scan_state_size(a->key_dim, a->value_dim) + 3 * SCAN_CHUNK * scan_ld(a->key_dim) +
           2 * SCAN_CHUNK * SCAN_CHUNK + SCAN_CHUNK * scan_ld(a->value_dim) + 2 * SCAN_CHUNK;
}

/* States before the chunks of a row that do not begin a document. */
SCAN_FN int64_t scan_kept_states(int64_t tokens)
{
    return (tokens + SCAN_CHUNK - 1) / SCAN_CHUNK;
}

/* Heads of v that share one head of q and k are divided among so many items, each of which sums the
 * gradients of q and k over its own. There is one where the heads of q and k are enough work for
 * many workers, as in all models with the delta rule. It depends on the shape alone, because the
 * order of a sum must not depend on the machine. */
SCAN_FN int32_t scan_parts(const scan_args *a)
{
    const int32_t group = a->heads / a->key_heads;
    const int32_t wanted = (SCAN_PARTS + a->key_heads - 1) / a->key_heads;
    return a->corrects ? 1 : wanted < group ? wanted : group;
}

/* Floats for the sums of those parts: q and k, [2, parts, B, Hk, T, ld(Dk)]. */
SCAN_FN int64_t scan_sums_size(const scan_args *a)
{
    const int64_t parts = scan_parts(a);
    return parts > 1 ? 2 * parts * a->n_rows * a->key_heads * a->tokens * scan_ld(a->key_dim) : 0;
}

/* Floats of a worker's memory in the backward: that of the forward, more pairs, gradients of a
 * chunk, the gradient of the state and transposed states; and for a row its kept states, the first
 * tokens of its chunks and, if there is one part, the sums of the gradients of q and k. */
SCAN_FN int64_t scan_backward_size(const scan_args *a)
{
    const int64_t k = scan_ld(a->key_dim), v = scan_ld(a->value_dim);
    return scan_forward_size(a) + 4 * SCAN_CHUNK * SCAN_CHUNK + 3 * SCAN_CHUNK * v +
           v * SCAN_CHUNK + a->key_dim * v + v * k + 3 * SCAN_CHUNK +
           scan_kept_states(a->tokens) * a->key_dim * v +
           (scan_parts(a) > 1 ? 0 : 2 * a->tokens * k) + scan_ld(a->tokens + 2);
}

/* The kernels for one instruction set. Items of the forward are (row, head of v), or heads of v
 * where rows continue sequences; those of the backward are (row, head of k, part), and those of the
 * sums (row, head of k, 64 tokens), if there are parts. */
typedef struct scan_functions {
    void (*forward)(const scan_args *a, int64_t item, float *scratch);
    void (*backward)(const scan_args *a, int64_t item, float *scratch);
    void (*sum)(const scan_args *a, int64_t item, float *scratch);
} scan_functions;

SCAN_FN int64_t scan_forward_items(const scan_args *a)
{
    return a->slots != 0 ? a->heads : a->n_rows * a->heads;
}

SCAN_FN int64_t scan_backward_items(const scan_args *a)
{
    return a->n_rows * a->key_heads * scan_parts(a);
}

SCAN_FN int64_t scan_sum_items(const scan_args *a)
{
    return scan_parts(a) > 1 ? a->n_rows * a->key_heads * scan_kept_states(a->tokens) : 0;
}

#endif
