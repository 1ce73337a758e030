/* Arguments and memory of the gated delta rule, for the kernels of the CPU and of GPUs.
 *
 * Matrices in scratch and in states have rows of `ld` floats: their columns rounded up to
 * DELTA_TILE, the rest zeros.
 */
#ifndef GATED_DELTA_H
#define GATED_DELTA_H

#include <stdint.h>

#ifdef __CUDACC__
#define DELTA_FN static inline __host__ __device__
#else
#define DELTA_FN static inline
#endif

enum {
    DELTA_CHUNK = 64,    /* tokens of a chunk, at most */
    DELTA_TILE = 16,     /* floats */
    DELTA_THREADS = 128, /* of a block on a GPU */
    DELTA_BLOCKS = 512,  /* on a GPU, at most: each has scratch */
    DELTA_DIM_MAX = 512, /* size of a key or a value */
};

typedef struct delta_args {
    const void *q, *k, *v, *d_out; /* c; d_out: the gradient of o, in the backward */
    const float *g, *beta;         /* [N,H] */
    const int32_t *doc_start;      /* [N] or NULL */
    const int32_t *slots;          /* [B], of rows that continue sequences; or NULL */
    float *states;                 /* [S, H, delta_state_size]; or NULL */
    void *out[5];                  /* o; or the gradients of q, k, v, g, beta; NULL: not wanted */
    float *scratch;                /* scratch_each floats for each worker or block */
    int64_t scratch_each;
    int64_t n_rows, tokens;     /* B rows of T tokens */
    int32_t key_heads, heads;   /* heads of q and k; of v: a multiple */
    int32_t key_dim, value_dim; /* Dk, Dv */
    int32_t dtype;              /* of c */
    uint32_t accumulate;        /* bit i: adds to out[i] */
    float scale;
    int32_t reserved;
} delta_args;

DELTA_FN int64_t delta_ld(int64_t columns)
{
    return (columns + DELTA_TILE - 1) / DELTA_TILE * DELTA_TILE;
}

/* Floats of a chunk: the state S [Dk, ld(Dv)] before it, its keys transposed [Dk, 64], its updates
 * u [64, ld(Dv)], the sums of g from its first token on [64], and in a state's memory the number of
 * its tokens, and whether there were chunks before it. */
DELTA_FN int64_t delta_state_size(int64_t key_dim, int64_t value_dim)
{
    return key_dim * delta_ld(value_dim) + key_dim * DELTA_CHUNK +
           DELTA_CHUNK * delta_ld(value_dim) + DELTA_CHUNK + DELTA_TILE;
}

/* Floats of a worker's memory in the forward: a chunk, q, k and a product of them with factors, two
 * matrices of pairs, o, beta. */
DELTA_FN int64_t delta_forward_size(const delta_args *a)
{
    return delta_state_size(a->key_dim, a->value_dim) + 3 * DELTA_CHUNK * delta_ld(a->key_dim) +
           2 * DELTA_CHUNK * DELTA_CHUNK + DELTA_CHUNK * delta_ld(a->value_dim) + DELTA_CHUNK;
}

/* States before the chunks of a row that do not begin a document. */
DELTA_FN int64_t delta_kept_states(int64_t tokens)
{
    return (tokens + DELTA_CHUNK - 1) / DELTA_CHUNK;
}

/* Floats of a worker's memory in the backward: that of the forward, more pairs, gradients of a
 * chunk, the gradient of the state and transposed states; and for a row its kept states, the sums
 * of the gradients of q and k over the heads of v, and the first tokens of its chunks. */
DELTA_FN int64_t delta_backward_size(const delta_args *a)
{
    const int64_t k = delta_ld(a->key_dim), v = delta_ld(a->value_dim);
    return delta_forward_size(a) + 4 * DELTA_CHUNK * DELTA_CHUNK + 3 * DELTA_CHUNK * v +
           v * DELTA_CHUNK + a->key_dim * v + v * k + 2 * DELTA_CHUNK +
           delta_kept_states(a->tokens) * a->key_dim * v + 2 * a->tokens * k +
           delta_ld(a->tokens + 2);
}

/* The kernels for one instruction set. Items of the forward are (row, head of v), or heads of v
 * where rows continue sequences; those of the backward are (row, head of k). */
typedef struct delta_kernels {
    void (*forward)(const delta_args *a, int64_t item, float *scratch);
    void (*backward)(const delta_args *a, int64_t item, float *scratch);
} delta_kernels;

DELTA_FN int64_t delta_forward_items(const delta_args *a)
{
    return a->slots != 0 ? a->heads : a->n_rows * a->heads;
}

DELTA_FN int64_t delta_backward_items(const delta_args *a)
{
    return a->n_rows * a->key_heads;
}

#endif
