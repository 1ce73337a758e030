/* Checks of shapes and dtypes that several ops use. */
#include "graph/ops/rules.h"

#include <stdio.h>

#include "graph/ir/desc_text.h"
#include "lathe/packed.h"
#include "lathe/rng.h"

int32_t lathe__same_shape(const lathe_desc *a, const lathe_desc *b)
{
    if (a->rank != b->rank)
        return 0;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return 0;
    return 1;
}

int32_t lathe__is_vector(const lathe_desc *d, int64_t n)
{
    return d->rank == 1 && d->dims[0] == n && d->dtype == LATHE_F32;
}

int32_t lathe__computes(int32_t dtype)
{
    return dtype == LATHE_F32 || dtype == LATHE_BF16 || dtype == LATHE_F16;
}

const char *lathe__op_name(const lathe_op_problem *p)
{
    return lathe_op_info_get(p->op)->name;
}

lathe_status lathe__bad_inputs(const lathe_op_problem *p, const char *expected)
{
    char text[400];
    int used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < p->n_in; i++) {
        char one[64];
        const lathe_desc *d = lathe__in(p, i);
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%s", i ? ", " : "",
                         d ? lathe_desc_text(d, one, sizeof one) : "none");
        if (used >= (int)sizeof text - 70)
            break;
    }
    return lathe_error(LATHE_E_SHAPE, "%s '%s' expects %s, got (%s)", lathe__op_name(p), p->label,
                       expected, text);
}

lathe_status lathe__infer_like(lathe_op_problem *p)
{
    if (!lathe__in(p, 0))
        return lathe__bad_inputs(p, "its input");
    p->out[0] = p->in[0];
    return LATHE_OK;
}

lathe_status lathe__infer_pair(lathe_op_problem *p)
{
    const lathe_desc *a = lathe__in(p, 0), *b = lathe__in(p, 1);
    if (!a || !b || !lathe__same_shape(a, b))
        return lathe__bad_inputs(p, "two tensors of one shape");
    if (a->dtype != b->dtype)
        return lathe__bad_inputs(p, "two tensors of one dtype");
    p->out[0] = *a;
    return LATHE_OK;
}

static lathe_status check(const lathe_op_problem *p, const lathe_desc *d, const char *side,
                          int32_t i, int32_t dtype, int64_t count)
{
    if (dtype == LATHE__COMPUTE && !lathe__computes(d->dtype))
        return lathe_error(LATHE_E_UNSUPPORTED, "%s: %s %d is %s; expected f32, bf16 or f16",
                           lathe__op_name(p), side, (int)i, lathe_dtype_name(d->dtype));
    if (dtype != LATHE__COMPUTE && d->dtype != dtype)
        return lathe_error(LATHE_E_DTYPE, "%s: %s %d is %s, expected %s", lathe__op_name(p), side,
                           (int)i, d->dtype == LATHE_ABSENT ? "absent" : lathe_dtype_name(d->dtype),
                           lathe_dtype_name(dtype));
    if (lathe_desc_count(d) != count)
        return lathe_error(LATHE_E_SHAPE, "%s: %s %d has %lld elements, expected %lld",
                           lathe__op_name(p), side, (int)i, (long long)lathe_desc_count(d),
                           (long long)count);
    return LATHE_OK;
}

lathe_status lathe__check_in(const lathe_op_problem *p, int32_t i, int32_t dtype, int64_t count)
{
    return check(p, &p->in[i], "input", i, dtype, count);
}

lathe_status lathe__check_out(const lathe_op_problem *p, int32_t i, int32_t dtype, int64_t count)
{
    return check(p, &p->out[i], "output", i, dtype, count);
}

lathe_status lathe__check_weight(const lathe_op_problem *p, int32_t i)
{
    if (p->in[i].dtype != LATHE_PLANES)
        return lathe__check_in(p, i, p->in[0].dtype, lathe_desc_count(&p->in[i]));
    if (p->attrs.fp8 != 0)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s: a packed weight is not multiplied in fp8",
                           lathe__op_name(p));
    return LATHE_OK;
}

lathe_status lathe__refuse_shape(const lathe_op_problem *p, const char *text)
{
    return lathe_error(LATHE_E_SHAPE, "%s: %s", lathe__op_name(p), text);
}

lathe_status lathe__check_unary(const lathe_op_problem *p)
{
    const int64_t n = lathe_desc_count(&p->in[0]);
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n));
    return lathe__check_out(p, 0, p->in[0].dtype, n);
}

lathe_status lathe__check_binary(const lathe_op_problem *p)
{
    LATHE_TRY(lathe__check_unary(p));
    return lathe__check_in(p, 1, p->in[0].dtype, lathe_desc_count(&p->in[0]));
}

lathe_status lathe__check_alike(const lathe_op_problem *p)
{
    const int64_t n = lathe_desc_count(&p->in[0]);
    for (int32_t i = 0; i < p->n_in; i++)
        LATHE_TRY(lathe__check_in(p, i, i == 0 ? LATHE__COMPUTE : p->in[0].dtype, n));
    for (int32_t i = 0; i < p->n_out; i++)
        LATHE_TRY(lathe__check_out(p, i, p->in[0].dtype, n));
    return LATHE_OK;
}

int64_t lathe__random_index(const double *counter, int64_t n, int64_t i)
{
    int64_t whole[LATHE_RNG_COUNTER];
    for (int32_t k = 0; k < LATHE_RNG_COUNTER; k++)
        whole[k] = (int64_t)counter[k];
    return lathe_rng_index(whole, n, i);
}
