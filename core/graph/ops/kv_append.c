/* KV_APPEND: writes new rows of keys or values to a cache. */
#include "graph/ops/rules.h"

/* Whether the cache is in blocks: kv_len i32[B,1+n]. */
static int in_blocks(const lathe_op_problem *p)
{
    return p->in[2].rank == 2;
}

static int64_t rows_of(const lathe_op_problem *p)
{
    return in_blocks(p) ? p->in[2].dims[0] : p->in[0].dims[0];
}

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *cache = lathe__in(p, 0), *x = lathe__in(p, 1), *len = lathe__in(p, 2);
    if (!cache || !x || !len || cache->rank != 3 || x->rank != 2 || cache->dims[2] != x->dims[1] ||
        cache->dtype != x->dtype || len->dtype != LATHE_I32 || rows_of(p) < 1 ||
        (!in_blocks(p) && lathe_desc_count(len) != cache->dims[0]) || x->dims[0] % rows_of(p))
        return lathe__bad_inputs(p, "cache c[B,P,W], x c[B*Tq,W], kv_len i32[B], or cache "
                                    "c[blocks,P,W] and kv_len i32[B,1+n]");
    p->out[0] = *cache;
    return LATHE_OK;
}

static lathe_status check(const lathe_op_problem *p)
{
    const lathe_desc *cache = &p->in[0];
    if (cache->rank != 3 || lathe_desc_count(cache) < 1)
        return lathe__refuse_shape(p, "the cache must be [B, P, W]");
    if (p->in[2].rank != 1 && !(in_blocks(p) && p->in[2].dims[1] > 1))
        return lathe__refuse_shape(p, "kv_len must be [B], or [B, 1+n] for a cache in blocks");
    const int64_t b = rows_of(p), w = cache->dims[2];
    const int64_t positions = cache->dims[1] * (in_blocks(p) ? p->in[2].dims[1] - 1 : 1);
    const int64_t n = lathe_desc_count(&p->in[1]);
    if (n < 1 || n % (b * w) != 0 || n / (b * w) > positions)
        return lathe__refuse_shape(p, "x must be [B*Tq, W] with Tq at most P");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, lathe_desc_count(cache)));
    LATHE_TRY(lathe__check_in(p, 1, cache->dtype, n));
    LATHE_TRY(lathe__check_in(p, 2, LATHE_I32, b * (in_blocks(p) ? p->in[2].dims[1] : 1)));
    return lathe__check_out(p, 0, cache->dtype, lathe_desc_count(cache));
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t b = rows_of(p), positions = p->in[0].dims[1], w = p->in[0].dims[2];
    const int64_t tq = lathe_desc_count(&p->in[1]) / (b * w);
    const int64_t stride = in_blocks(p) ? p->in[2].dims[1] : 1;
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++)
        out[0][i] = in[0][i];
    for (int64_t i = 0; i < b * tq * w; i++) {
        const double *len = in[2] + i / (tq * w) * stride;
        int64_t block = i / (tq * w), at = (int64_t)len[0] - tq + i / w % tq;
        if (in_blocks(p)) {
            block = (int64_t)len[1 + at / positions];
            at %= positions;
        }
        out[0][(block * positions + at) * w + i % w] = in[1][i];
    }
}

static const lathe_op_case cases[] = {
    LATHE_CASE("c[3,9,10] c[9,10] i32[3]:k", "c[3,9,10]", 0, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(KV_APPEND, .inplace = 1, .inplace_always = 1, .infer = infer, .check = check,
                .exact = exact, .cases = cases);
