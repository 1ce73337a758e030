/* The gated delta rule: linear attention whose state forgets, and corrects what it recalls. */
#include "shared/scan_op.h"

typedef scan_use gated_delta;

static const lathe_field fields[] = {
    {"tokens", LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, 1, 1e9, NULL, "tokens",
     "tokens of a row; there is a whole number of rows"},
    {"heads", LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, 1, 65536, NULL, "1", "heads of v"},
    {"key_heads", LATHE_T_INT, 0, NULL, 1, 65536, NULL, "1",
     "heads of q and k, each for as many heads of v; unset: as many as heads"},
    LATHE_FIELD_FLOAT("scale", "0.0", 0, 1e6, "1", "factor on q; 0: 1/sqrt(size of a key)"),
};

static const lathe_op_tensor inputs[] = {
    {"q", "c[N,Hk*Dk]", LATHE_TENSOR_BATCHED, 0},
    {"k", "c[N,Hk*Dk]", LATHE_TENSOR_BATCHED, 0},
    {"v", "c[N,H*Dv]", LATHE_TENSOR_BATCHED, 0},
    {"g", "f32[N,H]", LATHE_TENSOR_BATCHED, 0},
    {"beta", "f32[N,H]", LATHE_TENSOR_BATCHED, 0},
    {"doc_start", "i32[N]", LATHE_TENSOR_OPTIONAL | LATHE_TENSOR_BATCHED, 0},
};
static const lathe_op_tensor outputs[] = {{"o", "c[N,H*Dv]", LATHE_TENSOR_BATCHED, 0}};

static lathe_status gated_delta_read(const lathe_host *host, gated_delta *out,
                                     const lathe_value *values)
{
    out->tokens = values[0].i;
    out->heads = values[1].i;
    out->key_heads = values[2].is_set ? values[2].i : out->heads;
    out->scale = values[3].f;
    out->corrects = 1;
    out->n_in = LATHE_OP_COUNT(inputs);
    out->inputs = inputs;
    out->forward = "gated_delta_forward";
    out->backward = "gated_delta_backward";
    out->sum = "gated_delta_sum";
    if (out->heads % out->key_heads != 0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "key_heads",
                             "key_heads is %lld; it must divide heads, %lld",
                             (long long)out->key_heads, (long long)out->heads);
    return LATHE_OK;
}

LATHE_INSTANCE(gated_delta, gated_delta_read)

static const lathe_op_test tests[] = {
    {"c[14,3] c[14,3] c[14,5] f32[14,1] f32[14,1]", "c[14,5]", "tokens = 7\nheads = 1", 64, 8, 7,
     0},
    {"c[22,12] c[22,12] c[22,68] f32[22,4] f32[22,4] i32[22]:p11", "c[22,68]",
     "tokens = 11\nheads = 4\nkey_heads = 2\nscale = 0.5", 64, 8, 11, 0},
    {"c[142,8] c[142,8] c[142,6] f32[142,2] f32[142,2]", "c[142,6]",
     "tokens = 71\nheads = 2\nkey_heads = 2\nscale = 0.3", 200, 8, 71, 0},
    {"c[146,17] c[146,17] c[146,18] f32[146,1]:2 f32[146,1] i32[146]:p146", "c[146,18]",
     "tokens = 146\nheads = 1\nscale = 0.2", 400, 8, 0, 0},
    {"c[1,4] c[1,4] c[1,4] f32[1,1] f32[1,1]", "c[1,4]", "tokens = 1\nheads = 1", 8, 8, 0, 0},
};

static const lathe_op_backward own_backward = {
    .reads_in = 1u << SCAN_Q | 1u << SCAN_K | 1u << SCAN_V | 1u << SCAN_G | 1u << SCAN_BETA |
                1u << SCAN_DOC_START,
    .accumulates = 1,
    .kernels = scan_backward_kernels,
    .n_kernels = SCAN_N_KERNELS,
    .flops = scan_backward_flops,
    .exact = scan_backward_exact,
};

static const lathe_op_v1 gated_delta_table = {
    LATHE_OP_HEADER,           LATHE_OP_LISTS,          .traits = LATHE_OP_ACCUMULATES,
    .shape = scan_shape,       .flops = scan_flops,     .exact = scan_exact,
    .backward = &own_backward, .kernels = scan_kernels, .n_kernels = SCAN_N_KERNELS,
    .state = &scan_state,
};

LATHE_OP_ENTRY(gated_delta, LATHE_PLUGIN_FIELDS, .version = "0.1.0",
               .summary = "linear attention with a decaying state and the delta rule",
               .source = "arXiv:2412.06464; transformers, torch_chunk_gated_delta_rule; documents "
                         "and states between parts of a chunk are ours",
               .license = "Apache-2.0");
