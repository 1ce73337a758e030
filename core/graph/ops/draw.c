/* SAMPLE: draws a token from each of some rows of logits, or decides on a drafted token. */
#include <math.h>
#include <stdlib.h>

#include "graph/ops/rules.h"
#include "lathe/rng.h"

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0), *rows = lathe__in(p, 3);
    if (!x || x->rank != 2 || !rows || rows->rank != 2)
        return lathe__bad_inputs(p, "logits f32[L,V], draft? f32[M,V], sums? f64[L], rows i64[N,8],"
                                    " how f64[N,4], seen? i32[N,(V+31)/32]");
    p->out[0] = lathe_desc_1d(LATHE_I32, rows->dims[0]);
    p->out[1] = lathe_desc_1d(LATHE_F32, rows->dims[0]);
    return LATHE_OK;
}

static lathe_status check(const lathe_op_problem *p)
{
    const lathe_desc *x = &p->in[0], *draft = lathe__in(p, 1), *rows = &p->in[3];
    if (x->rank != 2 || lathe_desc_count(x) < 1 || rows->rank != 2 ||
        rows->dims[1] != LATHE_SAMPLE_COLUMNS || rows->dims[0] < 1)
        return lathe__refuse_shape(p, "logits must be [L, V] and rows [N, 8], all at least 1");
    const int64_t v = x->dims[1], n = rows->dims[0];
    if (draft && (draft->rank != 2 || draft->dims[1] != v || draft->dims[0] < 1))
        return lathe__refuse_shape(p, "the draft's logits must be [M, V] with the V of the logits");
    LATHE_TRY(lathe__check_in(p, 0, LATHE_F32, lathe_desc_count(x)));
    if (draft)
        LATHE_TRY(lathe__check_in(p, 1, LATHE_F32, lathe_desc_count(draft)));
    if (lathe__in(p, 2))
        LATHE_TRY(lathe__check_in(p, 2, LATHE_F64, x->dims[0]));
    LATHE_TRY(lathe__check_in(p, 3, LATHE_I64, n * LATHE_SAMPLE_COLUMNS));
    LATHE_TRY(lathe__check_in(p, 4, LATHE_F64, n * LATHE_SAMPLE_SETTINGS));
    if (lathe__in(p, 5))
        LATHE_TRY(lathe__check_in(p, 5, LATHE_I32, n * ((v + 31) / 32)));
    LATHE_TRY(lathe__check_out(p, 0, LATHE_I32, n));
    return lathe__check_out(p, 1, LATHE_F32, n);
}

/* ---- the exact result, in double ---- */

typedef struct candidate {
    double score, share; /* share: probability, 0 if it was cut */
    int64_t id;
} candidate;

static int likelier_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Row r of rows and how, and the bits of its seen tokens. */
typedef struct request {
    const double *row, *how, *seen;
    int64_t v;
} request;

/* The tokens of a row of logits, the likeliest first, with the probabilities that the cuts leave.
 */
static void distribution(const request *q, const double *x, candidate *out)
{
    const double temperature = q->how[LATHE_SAMPLE_TEMPERATURE];
    const double penalty = q->how[LATHE_SAMPLE_PENALTY];
    const int64_t top_k = (int64_t)q->row[LATHE_SAMPLE_TOP_K];
    double total = 0.0, mass = 0.0, kept = 0.0;
    int64_t n = top_k > 0 && top_k < q->v ? top_k : q->v;
    for (int64_t i = 0; i < q->v; i++) {
        const uint32_t word = q->seen ? (uint32_t)(int32_t)q->seen[i / 32] : 0;
        out[i] = (candidate){x[i], 0.0, i};
        if (word >> (i % 32) & 1u && penalty > 0.0)
            out[i].score = x[i] < 0.0 ? x[i] * penalty : x[i] / penalty;
    }
    qsort(out, (size_t)q->v, sizeof *out, likelier_first);
    if (!(temperature > 0.0)) {
        out[0].share = 1.0;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        total += exp((out[i].score - out[0].score) / temperature);
    const double enough =
        q->how[LATHE_SAMPLE_TOP_P] < 1.0 ? q->how[LATHE_SAMPLE_TOP_P] * total : HUGE_VAL;
    for (int64_t i = 0; i < n; i++) {
        const double w = exp((out[i].score - out[0].score) / temperature);
        if (i > 0 && (mass >= enough || w < q->how[LATHE_SAMPLE_MIN_P]))
            break;
        out[i].share = w;
        mass += w;
    }
    for (int64_t i = 0; i < n; i++)
        kept += out[i].share;
    for (int64_t i = 0; i < n; i++)
        out[i].share /= kept;
}

static double uniform(const request *q, uint64_t stream)
{
    const lathe_u32x4 w = lathe_rng_block((uint64_t)(int64_t)q->row[LATHE_SAMPLE_SEED],
                                          (uint64_t)q->row[LATHE_SAMPLE_POSITION], stream, 0);
    return lathe_uniform_f64(w.v[0], w.v[1]);
}

static int64_t drawn(const candidate *c, int64_t v, double u)
{
    int64_t i = 0;
    while (i + 1 < v && c[i + 1].share > 0.0 && u >= c[i].share)
        u -= c[i++].share;
    return c[i].id;
}

static double share_of(const candidate *c, int64_t v, int64_t id)
{
    for (int64_t i = 0; i < v; i++)
        if (c[i].id == id)
            return c[i].share;
    return 0.0;
}

/* A token of max(0, p - q), in the order of the tokens. */
static int64_t rest_of(const candidate *p, const candidate *q, int64_t v, double u, int64_t other)
{
    double total = 0.0;
    int64_t last = other;
    for (int64_t i = 0; i < v; i++)
        total += fmax(0.0, share_of(p, v, i) - share_of(q, v, i));
    u *= total;
    for (int64_t i = 0; i < v; i++) {
        const double rest = share_of(p, v, i) - share_of(q, v, i);
        if (!(rest > 0.0))
            continue;
        last = i;
        if (u < rest)
            break;
        u -= rest;
    }
    return last;
}

static int64_t token_of(const lathe_op_problem *p, const request *q, const double *x,
                        const double *draft, candidate *room)
{
    const int64_t drafted = (int64_t)q->row[LATHE_SAMPLE_DRAFTED];
    const double u = uniform(q, (uint64_t)q->row[LATHE_SAMPLE_STREAM]);
    distribution(q, x, room);
    if (!(q->how[LATHE_SAMPLE_TEMPERATURE] > 0.0))
        return room[0].id;
    if (drafted < 0 || draft == NULL)
        return drawn(room, q->v, u);
    distribution(q, draft, room + q->v);
    const double stays = uniform(q, p->attrs.rng_stream);
    if (stays * share_of(room + q->v, q->v, drafted) < share_of(room, q->v, drafted))
        return drafted;
    return rest_of(room, room + q->v, q->v, u, drafted);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t v = p->in[0].dims[1], words = (v + 31) / 32;
    candidate *room = malloc(2 * (size_t)v * sizeof *room);
    for (int64_t r = 0; room != NULL && r < p->in[3].dims[0]; r++) {
        const double *row = in[3] + r * LATHE_SAMPLE_COLUMNS;
        const request q = {row, in[4] + r * LATHE_SAMPLE_SETTINGS, in[5] ? in[5] + r * words : NULL,
                           v};
        const int64_t at = (int64_t)row[LATHE_SAMPLE_ROW];
        out[0][r] = -1.0;
        if (at < 0)
            continue;
        const double *x = in[0] + at * v;
        double top = -HUGE_VAL, sum = 0.0;
        for (int64_t i = 0; i < v; i++)
            top = fmax(top, x[i]);
        for (int64_t i = 0; i < v; i++)
            sum += exp(x[i] - top);
        const int64_t token = token_of(
            p, &q, x, in[1] ? in[1] + (int64_t)row[LATHE_SAMPLE_DRAFT_ROW] * v : NULL, room);
        out[0][r] = (double)token;
        out[1][r] = x[token] - (in[2] ? in[2][at] : top + log(sum));
    }
    free(room);
}

/* d: requests without drafted tokens, D: with them; h: settings; b: bits. */
static const lathe_op_case cases[] = {
    LATHE_CASE_WITH("f32[5,37]:2 - - i64[48,8]:d5 f64[48,4]:h -", "i32[48] f32[48]", 40, 0,
                    .rng_stream = 3),
    LATHE_CASE_WITH("f32[4,700]:2 - f64[4]:+ i64[40,8]:d4 f64[40,4]:h i32[40,22]:b",
                    "i32[40] f32[40]", 700, 0, .rng_stream = 3),
    LATHE_CASE_WITH("f32[6,65]:2 f32[6,65]:2 - i64[60,8]:D6 f64[60,4]:h i32[60,3]:b",
                    "i32[60] f32[60]", 70, 0, .rng_stream = 3),
    LATHE_CASE_WITH("f32[2,1500]:w - - i64[24,8]:d2 f64[24,4]:h -", "i32[24] f32[24]", 1500, 0,
                    .rng_stream = 3),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(SAMPLE, .infer = infer, .check = check, .exact = exact, .cases = cases);
