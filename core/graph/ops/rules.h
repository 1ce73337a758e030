/* How an op is defined, and checks of shapes and dtypes, for the files of this folder.
 *
 * A new op is a row of LATHE_OP_TABLE (lathe/op.h) and a LATHE_OP_DEFINE here,
 * in its own file or in that of its forward op. A missing one is a link error.
 */
#ifndef LATHE_GRAPH_RULES_H
#define LATHE_GRAPH_RULES_H

#include "base/error.h"
#include "graph/ir/ir_graph.h"
#include "graph/ir/op_info.h"
#include "graph/ir/tape.h"
#include "graph/ops/op_values.h"

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

/* Entries of a list of lathe_op_case: tensors, tensors, terms, half_units, attributes. */
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

/** Input i; output i; NULL if absent. */
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
/** Whether d is f32 [n]. */
int32_t lathe__is_vector(const lathe_desc *d, int64_t n);
/** Whether kernels can compute in this dtype: f32, bf16, f16. */
int32_t lathe__computes(int32_t dtype);
const char *lathe__op_name(const lathe_op_problem *p);

/* ---- inference ---- */

/** LATHE_E_SHAPE "<op> '<label>' expects <expected>, got (<shapes of the inputs>)". */
lathe_status lathe__bad_inputs(const lathe_op_problem *p, const char *expected);
/** Output 0 has the shape and dtype of input 0. */
lathe_status lathe__infer_like(lathe_op_problem *p);
/** Output 0 has the shape and dtype of input 0; input 1 must have them too. */
lathe_status lathe__infer_pair(lathe_op_problem *p);

/* ---- checks for all devices ---- */

#define LATHE__COMPUTE (-1)

/** Checks that input i is present, with `count` elements of `dtype` (LATHE__COMPUTE: f32, bf16 or
 *  f16). */
lathe_status lathe__check_in(const lathe_op_problem *p, int32_t i, int32_t dtype, int64_t count);
lathe_status lathe__check_out(const lathe_op_problem *p, int32_t i, int32_t dtype, int64_t count);
/** Checks that input i, a matrix [O,I], is of the first input's dtype, or stays in its planes
 *  (lathe/packed.h), which products in fp8 do not read. */
lathe_status lathe__check_weight(const lathe_op_problem *p, int32_t i);
/** LATHE_E_SHAPE "<op>: <text>". */
lathe_status lathe__refuse_shape(const lathe_op_problem *p, const char *text);
/** Checks that x and y have the same count and compute dtype. */
lathe_status lathe__check_unary(const lathe_op_problem *p);
/** Checks that x, y and z have the same count and compute dtype. */
lathe_status lathe__check_binary(const lathe_op_problem *p);
/** Checks that all inputs and outputs have the first input's count and compute dtype. */
lathe_status lathe__check_alike(const lathe_op_problem *p);

/* ---- exact results ---- */

/** lathe_rng_index with a counter [LATHE_RNG_COUNTER] of doubles. */
int64_t lathe__random_index(const double *counter, int64_t n, int64_t i);

#endif
