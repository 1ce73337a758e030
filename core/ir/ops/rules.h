/* What the files of this folder share: how an op is defined, and checks of shapes and dtypes.
 *
 * A new op is a row of LATHE_OP_TABLE (lathe/op.h, lathe/op_tensor.h) and one LATHE_OP_DEFINE here,
 * in a file of its own or in that of its forward op; a missing one fails the link.
 */
#ifndef LATHE_IR_OPS_RULES_H
#define LATHE_IR_OPS_RULES_H

#include "base/error.h"
#include "ir/graph.h"
#include "ir/op_info.h"
#include "ir/ops/op_values.h"
#include "ir/tape.h"

/* Name and arity of each op, from the tables of op.h and op_info.h. */
#define LATHE_X(op_name, text, ins, outs)                                                          \
    extern const lathe_op_info lathe__op_##op_name;                                                \
    extern const char lathe__name_##op_name[];                                                     \
    enum { LATHE__INS_##op_name = (ins), LATHE__OUTS_##op_name = (outs) };
LATHE_OP_TABLE(LATHE_X)
LATHE_CORE_OP_TABLE(LATHE_X)
#undef LATHE_X

/** Defines an op: LATHE_OP_DEFINE(ADD, .infer = .., .derive = .., ..); the members of
 *  lathe_op_info. */
#define LATHE_OP_DEFINE(op_name, ...)                                                              \
    const lathe_op_info lathe__op_##op_name = {.name = lathe__name_##op_name,                      \
                                               .n_in = LATHE__INS_##op_name,                       \
                                               .n_out = LATHE__OUTS_##op_name,                     \
                                               __VA_ARGS__}

/* Rows of a list of lathe_op_case: tensors, tensors, terms, half_units, attributes. */
#define LATHE_CASE(inputs, outputs, n_terms, units)                                                \
    {                                                                                              \
        .in = inputs, .out = outputs, .terms = n_terms, .half_units = units                        \
    }
#define LATHE_CASE_WITH(inputs, outputs, n_terms, units, ...)                                      \
    {                                                                                              \
        .in = inputs, .out = outputs, .terms = n_terms, .half_units = units, .attrs = {            \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define LATHE_LAST_CASE                                                                            \
    {                                                                                              \
        .in = NULL                                                                                 \
    }

/** Input i, output i; NULL: absent. */
static inline const lathe_desc *lathe__in(const lathe_op_problem *p, int32_t i)
{
    return i < p->n_in && p->in[i].dtype != LATHE_ABSENT ? &p->in[i] : NULL;
}

static inline const lathe_desc *lathe__out(const lathe_op_problem *p, int32_t i)
{
    return i < p->n_out && p->out[i].dtype != LATHE_ABSENT ? &p->out[i] : NULL;
}

static inline int64_t lathe__last_dim(const lathe_desc *d)
{
    return d->rank ? d->dims[d->rank - 1] : 1;
}

static inline lathe_desc lathe__with_dtype(lathe_desc d, int32_t dtype)
{
    d.dtype = dtype;
    return d;
}

int32_t lathe__same_shape(const lathe_desc *a, const lathe_desc *b);
/** f32 [n]. */
int32_t lathe__is_vector(const lathe_desc *d, int64_t n);
/** Whether kernels compute in this dtype: f32, bf16, f16. */
int32_t lathe__computes(int32_t dtype);
const char *lathe__op_name(const lathe_op_problem *p);

/* ---- inference ---- */

/** LATHE_E_SHAPE "<op> '<label>' expects <expected>, got (<shapes of the inputs>)". */
lathe_status lathe__bad_inputs(const lathe_op_problem *p, const char *expected);
/** Output 0 is like input 0. */
lathe_status lathe__infer_like(lathe_op_problem *p);
/** Output 0 is like input 0, whose shape and dtype input 1 has. */
lathe_status lathe__infer_pair(lathe_op_problem *p);

/* ---- what every device refuses ---- */

#define LATHE__COMPUTE (-1)

/** Input i is present with `count` elements of `dtype` (LATHE__COMPUTE: f32, bf16 or f16). */
lathe_status lathe__check_in(const lathe_op_problem *p, int32_t i, int32_t dtype, int64_t count);
lathe_status lathe__check_out(const lathe_op_problem *p, int32_t i, int32_t dtype, int64_t count);
/** LATHE_E_SHAPE "<op>: <text>". */
lathe_status lathe__refuse_shape(const lathe_op_problem *p, const char *text);
/** x and y of one count and compute dtype. */
lathe_status lathe__check_unary(const lathe_op_problem *p);
/** x, y and z of one count and compute dtype. */
lathe_status lathe__check_binary(const lathe_op_problem *p);
/** All inputs and outputs have the first input's count and compute dtype. */
lathe_status lathe__check_alike(const lathe_op_problem *p);

#endif
