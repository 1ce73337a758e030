/* The facts table of the ops. */
#include "ir/op_info.h"

#include <string.h>

#define TRAITS(op, runs, acc, inplace, always) [LATHE_OP_##op] = {runs, acc, inplace, always}

typedef struct traits {
    int32_t runs_on, accumulates;
    uint32_t inplace;
    int32_t always;
} traits;

/* Ops not named here run on the device, do not accumulate and are never in place. */
static const traits op_traits[LATHE_N_CORE_OPS] = {
    TRAITS(ATTENTION, LATHE_RUNS_ATTENTION, 0, 0, 0),
    TRAITS(ATTENTION_BWD, LATHE_RUNS_ATTENTION, 1, 0, 0),
    TRAITS(DEQUANT, LATHE_RUNS_QUANT, 0, 0, 0),
    TRAITS(ROPE, LATHE_RUNS_DEVICE, 0, 1, 0),
    TRAITS(ADD, LATHE_RUNS_DEVICE, 1, 3, 0),
    TRAITS(ADD_RMSNORM, LATHE_RUNS_DEVICE, 0, 3, 0),
    TRAITS(ADD_LAYERNORM, LATHE_RUNS_DEVICE, 0, 3, 0),
    TRAITS(SUB, LATHE_RUNS_DEVICE, 0, 1, 0),
    TRAITS(MUL, LATHE_RUNS_DEVICE, 0, 1, 0),
    TRAITS(SCALE, LATHE_RUNS_DEVICE, 1, 1, 0),
    TRAITS(SCALE_BY, LATHE_RUNS_DEVICE, 0, 1, 0),
    TRAITS(LINCOMB, LATHE_RUNS_DEVICE, 0, 3, 0),
    TRAITS(KV_APPEND, LATHE_RUNS_DEVICE, 0, 1, 1),
    TRAITS(APPLY_UPDATE, LATHE_RUNS_DEVICE, 0, 1, 1),
    TRAITS(CLAMP, LATHE_RUNS_DEVICE, 0, 1, 0),
    TRAITS(MATMUL, LATHE_RUNS_DEVICE, 1, 0, 0),
    TRAITS(EMBED_BWD, LATHE_RUNS_DEVICE, 1, 0, 0),
    TRAITS(LINEAR_DX, LATHE_RUNS_DEVICE, 1, 0, 0),
    TRAITS(LINEAR_DW, LATHE_RUNS_DEVICE, 1, 0, 0),
    TRAITS(RMSNORM_BWD, LATHE_RUNS_DEVICE, 1, 0, 0),
    TRAITS(LAYERNORM_BWD, LATHE_RUNS_DEVICE, 1, 0, 0),
    TRAITS(SWIGLU_BWD, LATHE_RUNS_DEVICE, 1, 0, 0),
    TRAITS(GELU_TANH_BWD, LATHE_RUNS_DEVICE, 1, 0, 0),
    TRAITS(DROPOUT_BWD, LATHE_RUNS_DEVICE, 1, 0, 0),
    TRAITS(HEAD_LOGPROB_BWD, LATHE_RUNS_DEVICE, 1, 0, 0),
    TRAITS(SLICE_BWD, LATHE_RUNS_DEVICE, 1, 0, 0),
    TRAITS(LEAVE, LATHE_RUNS_BESIDE, 0, 0, 0),
    TRAITS(LEFT, LATHE_RUNS_BESIDE, 0, 1, 1),
    TRAITS(FETCH, LATHE_RUNS_BESIDE, 0, 0, 0),
    TRAITS(ARRIVE, LATHE_RUNS_BESIDE, 0, 1, 1),
};

const lathe_op_info *lathe_op_info_get(int32_t op)
{
#define LATHE_X(op_name, text, ins, outs)                                                          \
    [LATHE_OP_##op_name] = {.name = text, .n_in = ins, .n_out = outs},
    static const lathe_op_info names[LATHE_N_CORE_OPS] = {
        LATHE_OP_TABLE(LATHE_X) LATHE_X(LEAVE, "leave", 1, 1) LATHE_X(LEFT, "left", 2, 1)
            LATHE_X(FETCH, "fetch", 1, 1) LATHE_X(ARRIVE, "arrive", 2, 1)};
#undef LATHE_X
    static _Thread_local lathe_op_info info;
    if (op < 0 || op >= LATHE_N_CORE_OPS)
        return NULL;
    info = names[op];
    info.runs_on = op_traits[op].runs_on;
    info.accumulates = op_traits[op].accumulates;
    info.inplace = op_traits[op].inplace;
    info.inplace_always = op_traits[op].always;
    return &info;
}

int32_t lathe_op_find(const char *name)
{
    for (int32_t op = 0; op < LATHE_N_OPS; op++)
        if (strcmp(lathe_op_info_get(op)->name, name) == 0)
            return op;
    return -1;
}
