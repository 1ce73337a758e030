/* Mamba-2: linear attention whose state forgets by a share that each token decides. */
#include "shared/scan_op.h"

typedef scan_use mamba2;

static const lathe_field fields[] = {
    {"tokens", LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, 1, 1e9, NULL, "tokens",
     "tokens of a row; there is a whole number of rows"},
    {"heads", LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, 1, 65536, NULL, "1", "heads of x"},
    {"groups", LATHE_T_INT, 0, "1", 1, 65536, NULL, "1",
     "groups of heads, each with a B and a C of its own"},
};

static const lathe_op_tensor inputs[] = {
    {"c", "c[N,G*S]", LATHE_TENSOR_BATCHED, 0},
    {"b", "c[N,G*S]", LATHE_TENSOR_BATCHED, 0},
    {"x", "c[N,H*P]", LATHE_TENSOR_BATCHED, 0},
    {"decay", "f32[N,H]", LATHE_TENSOR_BATCHED, 0},
    {"dt", "f32[N,H]", LATHE_TENSOR_BATCHED, 0},
    {"doc_start", "i32[N]", LATHE_TENSOR_OPTIONAL | LATHE_TENSOR_BATCHED, 0},
    {"skip", "f32[N,H]", LATHE_TENSOR_OPTIONAL | LATHE_TENSOR_BATCHED, 0},
};
static const lathe_op_tensor outputs[] = {{"y", "c[N,H*P]", LATHE_TENSOR_BATCHED, 0}};

static lathe_status mamba2_read(const lathe_host *host, mamba2 *out, const lathe_value *values)
{
    out->tokens = values[0].i;
    out->heads = values[1].i;
    out->key_heads = values[2].i;
    out->scale = 1.0;
    out->n_in = LATHE_OP_COUNT(inputs);
    out->inputs = inputs;
    out->forward = "mamba2_forward";
    out->backward = "mamba2_backward";
    out->sum = "mamba2_sum";
    if (out->heads % out->key_heads != 0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "groups",
                             "groups is %lld; it must divide heads, %lld",
                             (long long)out->key_heads, (long long)out->heads);
    return LATHE_OK;
}

LATHE_INSTANCE(mamba2, mamba2_read)

static const lathe_op_test tests[] = {
    {"c[14,3] c[14,3] c[14,5] f32[14,1] f32[14,1]", "c[14,5]", "tokens = 7\nheads = 1", 64, 8, 7,
     0},
    {"c[22,12] c[22,12] c[22,68] f32[22,4] f32[22,4] i32[22]:p11 f32[22,4]", "c[22,68]",
     "tokens = 11\nheads = 4\ngroups = 2", 64, 8, 11, 0},
    {"c[132,4] c[132,4] c[132,27] f32[132,9] f32[132,9] - f32[132,9]", "c[132,27]",
     "tokens = 66\nheads = 9", 200, 8, 66, 0},
    {"c[146,17] c[146,17] c[146,18] f32[146,1]:2 f32[146,1] i32[146]:p146", "c[146,18]",
     "tokens = 146\nheads = 1", 400, 8, 0, 0},
    {"c[1,4] c[1,4] c[1,4] f32[1,1] f32[1,1] - f32[1,1]", "c[1,4]", "tokens = 1\nheads = 1", 8, 8,
     0, 0},
};

static const lathe_op_backward own_backward = {
    .reads_in = 1u << SCAN_Q | 1u << SCAN_K | 1u << SCAN_V | 1u << SCAN_G | 1u << SCAN_BETA |
                1u << SCAN_DOC_START | 1u << SCAN_SKIP,
    .accumulates = 1,
    .kernels = scan_backward_kernels,
    .n_kernels = SCAN_N_KERNELS,
    .flops = scan_backward_flops,
    .exact = scan_backward_exact,
};

static const lathe_op_v1 mamba2_table = {
    LATHE_OP_HEADER,           LATHE_OP_LISTS,          .traits = LATHE_OP_ACCUMULATES,
    .shape = scan_shape,       .flops = scan_flops,     .exact = scan_exact,
    .backward = &own_backward, .kernels = scan_kernels, .n_kernels = SCAN_N_KERNELS,
    .state = &scan_state,
};

LATHE_OP_ENTRY(mamba2, LATHE_PLUGIN_FIELDS, .version = "0.1.0",
               .summary = "the state space of Mamba-2: linear attention with a decaying state",
               .source = "arXiv:2405.21060; transformers, mamba2_chunk_scan; documents and states "
                         "between parts of a chunk are ours",
               .license = "Apache-2.0");
