/* The ops by number, and the host function with which devices check a problem. */
#include <string.h>

#include "graph/ir/plugin_op.h"
#include "graph/ops/kernel_problem.h"
#include "graph/ops/rules.h"
#include "lathe/device.h"

#define LATHE_X(op_name, text, ins, outs) const char lathe__name_##op_name[] = text;
LATHE_OP_TABLE(LATHE_X)
LATHE_CORE_OP_TABLE(LATHE_X)
#undef LATHE_X

const lathe_op_info *lathe_op_info_get(int32_t op)
{
#define LATHE_X(op_name, text, ins, outs) [LATHE_OP_##op_name] = &lathe__op_##op_name,
    static const lathe_op_info *const ops[LATHE_N_CORE_OPS] = {LATHE_OP_TABLE(LATHE_X)
                                                                   LATHE_CORE_OP_TABLE(LATHE_X)};
#undef LATHE_X
    const lathe_plugin_op *of_plugin = lathe_plugin_op_get(op);
    if (of_plugin != NULL)
        return op == of_plugin->number ? &of_plugin->info : &of_plugin->backward;
    return op < 0 || op >= LATHE_N_CORE_OPS ? NULL : ops[op];
}

int32_t lathe_op_find(const char *name)
{
    for (int32_t op = 0; op < LATHE_N_OPS; op++)
        if (strcmp(lathe_op_info_get(op)->name, name) == 0)
            return op;
    return -1;
}

lathe_status lathe_kernel_problem_check(const struct lathe_kernel_problem *problem)
{
    const lathe_desc absent = {LATHE_ABSENT, 0, {1, 1, 1, 1}};
    const lathe_op_info *info = problem->op < LATHE_N_OPS ? lathe_op_info_get(problem->op) : NULL;
    if (info == NULL || problem->n_in < 0 || problem->n_in > LATHE_OP_MAX_IN ||
        problem->n_out < 1 || problem->n_out > LATHE_OP_MAX_OUT)
        return lathe_error(LATHE_E_ARG, "op %d with %d inputs and %d outputs", problem->op,
                           problem->n_in, problem->n_out);
    lathe_op_problem p = {.op = problem->op,
                          .n_in = problem->n_in,
                          .n_out = problem->n_out,
                          .may_accumulate = problem->may_accumulate};
    for (int32_t i = 0; i < problem->n_in; i++)
        if (problem->in[i].dtype == LATHE_PLANES &&
            !(LATHE_HAS(problem, weights) && problem->weights[i].table != NULL))
            return lathe_error(LATHE_E_ARG, "%s: input %d is in planes of no format", info->name,
                               (int)i);
    if (problem->attrs != NULL)
        p.attrs = *problem->attrs;
    for (int32_t i = 0; i < LATHE_OP_MAX_IN; i++)
        p.in[i] = i < p.n_in ? problem->in[i] : absent;
    for (int32_t i = 0; i < LATHE_OP_MAX_OUT; i++)
        p.out[i] = i < p.n_out ? problem->out[i] : absent;
    return info->check == NULL ? LATHE_OK : info->check(&p);
}

lathe_status lathe__op_exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const lathe_op_info *info = lathe_op_info_get(p->op);
    if (info == NULL || info->exact == NULL)
        return lathe_error(LATHE_E_UNSUPPORTED, "op %d has no reference", p->op);
    info->exact(p, in, out);
    return LATHE_OK;
}
