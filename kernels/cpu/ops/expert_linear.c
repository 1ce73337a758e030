/* EXPERT_LINEAR and its derivatives: one product for each expert that has rows, all workers on
 * each.
 *
 *   with attrs.invariant  gemv.c, whose bits do not depend on the number of rows: a token has the
 *                         same bits in a prompt and alone, whichever other tokens chose its experts
 *   bf16, with the processor's instructions for it  oneDNN: products of the sizes below, prepared
 *                         once; the number of rows of an expert is known only when the kernel runs
 *   otherwise             packed_gemm.c, which takes any number of rows; the order of its sums
 * depends on nothing but their length
 *
 * oneDNN computes an expert's rows in pieces, the largest first; the last few rows are copied to
 * scratch and padded with zeros. For dW the rows are the terms of a sum, and each piece reads and
 * writes all of dW, so what is left after the largest pieces is padded to one piece.
 *
 *   scratch of oneDNN: | of its products | padded rows of in[0] | of in[1], or of the result | */
#include "base/element.h"
#include "products/gemv.h"
#include "products/packed_gemm.h"
#include "products/product.h"

#define LARGEST 512
static const int64_t piece_rows[] = {LARGEST, 256, 128, 64, 32, 8};
enum { N_PIECES = sizeof piece_rows / sizeof piece_rows[0] };
#define LEAST_TERMS 64 /* of a piece of dW */

typedef struct pieces {
    cpu_product *products[N_PIECES]; /* NULL: this size is not used */
    int64_t a_at, b_at;              /* offsets in scratch */
} pieces;

typedef struct group {
    int64_t expert, first, rows;
} group;

/* Reads group e of `first`. The groups must follow each other and fill the rows. */
static lathe_status group_of(const lathe_kernel *k, const int32_t *first, int64_t e, group *out)
{
    const int64_t n = lathe_desc_count(&k->in[2]) - 1, rows = k->in[0].dims[0];
    *out = (group){e, first[e], (int64_t)first[e + 1] - first[e]};
    if (first[e] < 0 || first[e + 1] < first[e] || first[e + 1] > rows ||
        (e == 0 && first[0] != 0) || (e == n - 1 && first[n] != rows))
        return lathe_fail(
            k->host, LATHE_E_ARG, "%s: rows %d to %d of expert %lld are no group of %lld rows",
            kernel_op_name(k), (int)first[e], (int)first[e + 1], (long long)e, (long long)rows);
    return LATHE_OK;
}

static int64_t experts_of(const lathe_kernel *k)
{
    return lathe_desc_count(&k->in[2]) - 1;
}

/* The product of `rows` rows of one expert. */
static matmul_spec forward_spec(const lathe_kernel *k, int64_t rows)
{
    return (matmul_spec){.m = rows,
                         .n = k->in[1].dims[0] / experts_of(k),
                         .k = k->in[1].dims[1],
                         .a_dtype = k->in[0].dtype,
                         .b_dtype = k->in[1].dtype,
                         .c_dtype = k->out[0].dtype,
                         .trans_b = 1,
                         .may_overwrite = 1,
                         .invariant = k->attrs.invariant,
                         .alpha = 1.0};
}

static matmul_spec dx_spec(const lathe_kernel *k, int64_t rows)
{
    return (matmul_spec){.m = rows,
                         .n = k->in[1].dims[1],
                         .k = k->in[1].dims[0] / experts_of(k),
                         .a_dtype = k->in[0].dtype,
                         .b_dtype = k->in[1].dtype,
                         .c_dtype = k->out[0].dtype,
                         .may_overwrite = 1,
                         .may_accumulate = 1,
                         .alpha = 1.0};
}

static matmul_spec dw_spec(const lathe_kernel *k, int64_t rows)
{
    return (matmul_spec){.m = k->in[0].dims[1],
                         .n = k->in[1].dims[1],
                         .k = rows,
                         .a_dtype = k->in[0].dtype,
                         .b_dtype = k->in[1].dtype,
                         .c_dtype = k->out[0].dtype,
                         .trans_a = 1,
                         .may_overwrite = 1,
                         .may_accumulate = 1,
                         .alpha = 1.0};
}

/* One of the functions *_spec(). */
typedef matmul_spec (*spec_fn)(const lathe_kernel *k, int64_t rows);

static void release(lathe_kernel *k)
{
    pieces *p = k->state;
    for (int i = 0; p != NULL && i < N_PIECES; i++)
        cpu_product_destroy(k->device, p->products[i]);
    k->host->free(p);
}

/* Whether the rows of a piece of dW are too few. */
static int is_left_out(const lathe_kernel *k, int i)
{
    return k->op_id == LATHE_OP_EXPERT_LINEAR_DW && piece_rows[i] < LEAST_TERMS;
}

static lathe_status prepare_pieces(lathe_kernel *k, spec_fn say, int64_t *out_scratch)
{
    const int is_dw = k->op_id == LATHE_OP_EXPERT_LINEAR_DW;
    pieces *p = k->host->alloc((int64_t)sizeof *p);
    int64_t most = 0;
    if (p == NULL)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its products",
                          kernel_op_name(k));
    k->state = p;
    for (int i = 0; i < N_PIECES; i++) {
        const matmul_spec s = say(k, piece_rows[i]);
        int64_t bytes = 0;
        if (is_left_out(k, i))
            continue;
        LATHE_TRY(cpu_product_create(k->device, &s, &p->products[i], &bytes));
        most = bytes > most ? bytes : most;
    }
    const int64_t padded = is_dw ? LARGEST : piece_rows[N_PIECES - 1];
    const int64_t a_cols = k->in[0].dims[1];
    const int64_t b_cols = is_dw ? k->in[1].dims[1] : k->out[0].dims[1];
    p->a_at = cpu_round_up(most, 64);
    p->b_at = p->a_at + cpu_round_up(padded * a_cols * lathe_dtype_bytes(k->in[0].dtype), 64);
    *out_scratch = p->b_at + cpu_round_up(padded * b_cols * lathe_dtype_bytes(k->in[0].dtype), 64);
    return LATHE_OK;
}

static lathe_status prepare(lathe_kernel *k, spec_fn say, int64_t *out_scratch)
{
    const matmul_spec all = say(k, k->in[0].dims[0]);
    if (k->attrs.invariant && k->op_id == LATHE_OP_EXPERT_LINEAR) {
        *out_scratch = cpu_gemv_scratch(&all);
        return LATHE_OK;
    }
    /* pieces of dW would round a narrow gradient several times */
    if (LATHE_CPU_ISA == 3 && all.a_dtype == LATHE_BF16 &&
        (k->op_id != LATHE_OP_EXPERT_LINEAR_DW || all.c_dtype == LATHE_F32))
        return prepare_pieces(k, say, out_scratch);
    *out_scratch = cpu_packed_gemm_bound(&all, k->host->n_threads());
    return LATHE_OK;
}

static lathe_status prepare_linear(lathe_kernel *k, int64_t *out_scratch)
{
    return prepare(k, forward_spec, out_scratch);
}

static lathe_status prepare_dx(lathe_kernel *k, int64_t *out_scratch)
{
    return prepare(k, dx_spec, out_scratch);
}

static lathe_status prepare_dw(lathe_kernel *k, int64_t *out_scratch)
{
    return prepare(k, dw_spec, out_scratch);
}

/* c = a b by packed_gemm.c or gemv.c. */
static lathe_status multiply(lathe_kernel *k, const matmul_spec *s, const void *a, const void *b,
                             void *c, char *scratch, int accumulate)
{
    cpu_packed_gemm product;
    int64_t bytes;
    if (s->invariant) {
        cpu_gemv_run(k->host, s, a, b, NULL, c, scratch, accumulate);
        return LATHE_OK;
    }
    cpu_packed_gemm_init(s, k->host->n_threads(), &product, &bytes);
    return cpu_packed_gemm_run(k->host, &product, a, b, NULL, c, scratch, accumulate);
}

/* Copies rows to scratch and adds rows of zeros. */
static void *pad_rows(void *to, const void *from, int64_t rows, int64_t padded, int64_t row_bytes)
{
    memcpy(to, from, (size_t)(rows * row_bytes));
    memset((char *)to + rows * row_bytes, 0, (size_t)((padded - rows) * row_bytes));
    return to;
}

/* The largest piece of at most `rows` rows; the last one is the smallest. */
static int piece_of(int64_t rows)
{
    int i = 0;
    while (i + 1 < N_PIECES && piece_rows[i] > rows)
        i++;
    return i;
}

/* c [rows, n] = a [rows, k] b, piece by piece. */
static lathe_status multiply_rows(lathe_kernel *k, const matmul_spec *s, const void *a,
                                  const void *b, void *c, char *scratch, int accumulate)
{
    const pieces *p = k->state;
    const int64_t bytes = lathe_dtype_bytes(s->a_dtype);
    for (int64_t row = 0, n = 0; row < s->m; row += n) {
        const int i = piece_of(s->m - row);
        const void *from = at(a, row * s->k, s->a_dtype);
        void *to = at_mut(c, row * s->n, s->c_dtype);
        n = piece_rows[i];
        if (n <= s->m - row) {
            LATHE_TRY(
                cpu_product_run(k->device, p->products[i], from, b, NULL, to, scratch, accumulate));
            continue;
        }
        n = s->m - row;
        const void *padded = pad_rows(scratch + p->a_at, from, n, piece_rows[i], s->k * bytes);
        void *wide = scratch + p->b_at;
        if (accumulate) /* the product adds before it rounds */
            (void)pad_rows(wide, to, n, piece_rows[i], s->n * bytes);
        LATHE_TRY(
            cpu_product_run(k->device, p->products[i], padded, b, NULL, wide, scratch, accumulate));
        memcpy(to, wide, (size_t)(n * s->n * bytes));
    }
    return LATHE_OK;
}

/* c [m, n] = a [terms, m]^T b [terms, n], piece by piece. */
static lathe_status multiply_terms(lathe_kernel *k, const matmul_spec *s, const void *a,
                                   const void *b, void *c, char *scratch, int accumulate)
{
    const pieces *p = k->state;
    const int64_t bytes = lathe_dtype_bytes(s->a_dtype);
    for (int64_t at_k = 0, n = 0; at_k < s->k; at_k += n) {
        const int64_t left = s->k - at_k;
        int i = 0;
        while (i + 1 < N_PIECES && p->products[i + 1] != NULL && piece_rows[i + 1] >= left)
            i++;
        const void *x = at(a, at_k * s->m, s->a_dtype), *y = at(b, at_k * s->n, s->a_dtype);
        n = left < piece_rows[i] ? left : piece_rows[i];
        if (n < piece_rows[i]) {
            x = pad_rows(scratch + p->a_at, x, n, piece_rows[i], s->m * bytes);
            y = pad_rows(scratch + p->b_at, y, n, piece_rows[i], s->n * bytes);
        }
        LATHE_TRY(cpu_product_run(k->device, p->products[i], x, y, NULL, c, scratch,
                                  accumulate || at_k > 0));
    }
    return LATHE_OK;
}

/* EXPERT_LINEAR and EXPERT_LINEAR_DX */
static lathe_status run_each(lathe_kernel *k, const lathe_kernel_args *a, spec_fn say)
{
    const int32_t dtype = k->in[0].dtype;
    for (int64_t e = 0; e < experts_of(k); e++) {
        group g;
        LATHE_TRY(group_of(k, a->in[2], e, &g));
        if (g.rows == 0)
            continue;
        const matmul_spec s = say(k, g.rows);
        const void *x = at(a->in[0], g.first * s.k, dtype);
        const void *w = at(a->in[1], e * s.n * s.k, dtype);
        void *y = at_mut(a->out[0], g.first * s.n, dtype);
        LATHE_TRY((k->state != NULL ? multiply_rows : multiply)(k, &s, x, w, y, a->scratch,
                                                                (a->accumulate & 1u) != 0));
    }
    return LATHE_OK;
}

static lathe_status run_linear(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_each(k, a, forward_spec);
}

static lathe_status run_dx(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_each(k, a, dx_spec);
}

static lathe_status run_dw(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int32_t dtype = k->in[0].dtype, adds = (a->accumulate & 1u) != 0;
    for (int64_t e = 0; e < experts_of(k); e++) {
        group g;
        LATHE_TRY(group_of(k, a->in[2], e, &g));
        const matmul_spec s = dw_spec(k, g.rows);
        void *dw = at_mut(a->out[0], e * s.m * s.n, k->out[0].dtype);
        const void *dy = at(a->in[0], g.first * s.m, dtype),
                   *x = at(a->in[1], g.first * s.n, dtype);
        if (g.rows > 0)
            LATHE_TRY(
                (k->state != NULL ? multiply_terms : multiply)(k, &s, dy, x, dw, a->scratch, adds));
        else if (!adds)
            memset(dw, 0, (size_t)(s.m * s.n * lathe_dtype_bytes(k->out[0].dtype)));
    }
    return LATHE_OK;
}

const kernel_op CPU_OP(EXPERT_LINEAR) = {prepare_linear, run_linear, release, 0};
const kernel_op CPU_OP(EXPERT_LINEAR_DX) = {prepare_dx, run_dx, release, 1};
const kernel_op CPU_OP(EXPERT_LINEAR_DW) = {prepare_dw, run_dw, release, 1};
