/* Muon for the hidden matrices, AdamW for all other tensors.
 *
 * Muon updates a matrix if it is the 2-D, unquantized weight of a linear site (LATHE_ROLE_MATRIX).
 * Embeddings, the head, norms and biases use AdamW, as published. Adapter parameters use it too:
 * the method was not made for their thin factors.
 *
 * Source: Keller Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024;
 * torch.optim.Muon; the match_rms_adamw scale from arXiv:2502.16982, equation 4.
 */
#include "adamw_part.h"
#include "newton_schulz.h"

/* adamw: the settings of AdamW, which updates all other tensors, and adamw_lr their rate;
 * adamw.common.lr is the rate of the matrices. */
typedef struct muon {
    lathe_adamw adamw;
    double momentum, weight_decay, adamw_lr;
    int32_t nesterov, match_rms, ns_steps, ns_dtype;
} muon;

enum {
    FIELD_LR,
    FIELD_MOMENTUM,
    FIELD_NESTEROV,
    FIELD_WEIGHT_DECAY,
    FIELD_NS_STEPS,
    FIELD_NS_DTYPE,
    FIELD_SCALING,
    FIELD_ADAMW_LR,
    FIELD_ADAMW_BETA1,
    FIELD_ADAMW_BETA2,
    FIELD_ADAMW_EPS,
    FIELD_ADAMW_WEIGHT_DECAY,
    FIELD_STATE
};

static const lathe_field fields[] = {
    LATHE_FIELD_FLOAT("lr", "0.02", 0, 1e3, "1",
                      "learning rate of the matrices; the schedule multiplies it"),
    LATHE_BETA_FIELD("momentum", "0.95", "decay of the momentum"),
    LATHE_FIELD_BOOL("nesterov", "true",
                     "orthogonalise a mix of momentum and gradient instead of the momentum alone"),
    LATHE_FIELD_FLOAT("weight_decay", "0.0", 0, 1e3, "1",
                      "decoupled weight decay of the matrices, multiplied by lr"),
    LATHE_FIELD_INT("ns_steps", "5", 1, 20, "1", "Newton-Schulz iterations"),
    LATHE_FIELD_STRING("ns_dtype", "\"bf16\"", "bf16|f32",
                       "precision of the Newton-Schulz iterations"),
    LATHE_FIELD_STRING(
        "scaling", "\"original\"", "original|match_rms_adamw",
        "update times sqrt(max(1, rows/cols)), or 0.2*sqrt(max(rows, cols)) to take AdamW's lr"),
    LATHE_FIELD_FLOAT("adamw_lr", "3e-4", 0, 1e3, "1",
                      "learning rate of all other parameters; the same schedule multiplies it"),
    LATHE_BETA_FIELD("adamw_beta1", "0.9", "decay of AdamW's first moment"),
    LATHE_BETA_FIELD("adamw_beta2", "0.95", "decay of AdamW's second moment"),
    {"adamw_eps", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "1e-10", 0, 1, NULL, "1",
     "added to the root of the second moment"},
    LATHE_FIELD_FLOAT("adamw_weight_decay", "0.0", 0, 1e3, "1",
                      "decoupled weight decay of all other parameters, multiplied by adamw_lr"),
    LATHE_STATE_DTYPE_FIELD(
        "type of the momentum (bf16: to nearest) and of AdamW's moments (bf16: stochastically)"),
};

static lathe_status read_values(const lathe_host *host, muon *o, const lathe_value *values)
{
    (void)host;
    o->adamw.common.lr = values[FIELD_LR].f;
    o->adamw.common.state_dtype = lathe_state_dtype(&values[FIELD_STATE]);
    o->adamw.beta1 = values[FIELD_ADAMW_BETA1].f;
    o->adamw.beta2 = values[FIELD_ADAMW_BETA2].f;
    o->adamw.eps = values[FIELD_ADAMW_EPS].f;
    o->adamw.weight_decay = values[FIELD_ADAMW_WEIGHT_DECAY].f;
    o->adamw_lr = values[FIELD_ADAMW_LR].f;
    o->momentum = values[FIELD_MOMENTUM].f;
    o->weight_decay = values[FIELD_WEIGHT_DECAY].f;
    o->nesterov = (int32_t)values[FIELD_NESTEROV].i;
    o->match_rms = lathe_choice("original|match_rms_adamw", values[FIELD_SCALING].s);
    o->ns_steps = (int32_t)values[FIELD_NS_STEPS].i;
    o->ns_dtype = lathe_choice("bf16|f32", values[FIELD_NS_DTYPE].s) == 1 ? LATHE_F32 : LATHE_BF16;
    return LATHE_OK;
}

static int32_t partition(void *self, const lathe_param_info *param)
{
    (void)self;
    const int has_experts = LATHE_HAS(param, n_experts) && param->n_experts > 0;
    return param->role == LATHE_ROLE_MATRIX && param->desc.rank == 2 && !param->quantized &&
                   !has_experts /* several matrices in one tensor */
               ? LATHE_PARTITION_MATRIX
               : LATHE_PARTITION_ELEMENT;
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    const int32_t dtype = ((const muon *)self)->adamw.common.state_dtype;
    if (partition(self, param) != LATHE_PARTITION_MATRIX)
        return lathe_adamw_moments(param, dtype, out);
    lathe_slot_like(&out[0], "momentum_buffer", param, dtype);
    return 1;
}

static void scalars(void *self, int64_t step, double *out)
{
    const muon *const m = self;
    lathe_adamw_scalars(self, step, out);
    out[LATHE_ADAMW_DECAY] = m->adamw_lr * m->adamw.weight_decay;
    out[LATHE_ADAMW_BIAS1] = m->adamw_lr / lathe_bias_correction(m->adamw.beta1, step);
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    return lathe_elementwise_run(lathe_optimizer_host(self), s, 2, adamw_part_chunk);
}

static lathe_status build(void *self, const lathe_graph_api *api, lathe_graph *g,
                          const lathe_param_info *info, double lr_mult, double weight_decay_mult,
                          lathe_val param, lathe_val grad, const lathe_val *slot, lathe_val scalar)
{
    const muon *const m = self;
    const double rows = (double)info->desc.dims[0], cols = (double)info->desc.dims[1];
    if (partition(self, info) != LATHE_PARTITION_MATRIX)
        return lathe_fail(m->adamw.common.host, LATHE_E_ARG,
                          "'%s' is no hidden matrix: role %d, rank %d", info->name, info->role,
                          info->desc.rank);
    const muon_matrix matrix = {
        .momentum = m->momentum,
        .update_scale =
            lr_mult * (m->match_rms ? 0.2 * sqrt(fmax(rows, cols)) : sqrt(fmax(1.0, rows / cols))),
        .decay = lr_mult * m->weight_decay * weight_decay_mult,
        .nesterov = m->nesterov,
        .ns_steps = m->ns_steps,
        .ns_dtype = m->ns_dtype,
    };
    return muon_emit(&matrix, api, g, param, grad, slot[0], scalar);
}

static void rates(void *self, const lathe_param_info *param, lathe_optimizer_rates *out)
{
    const muon *const m = self;
    const int is_matrix = partition(self, param) == LATHE_PARTITION_MATRIX;
    out->lr = is_matrix ? m->adamw.common.lr : m->adamw_lr;
    out->weight_decay = is_matrix ? m->weight_decay : m->adamw.weight_decay;
    out->lr_key = is_matrix ? "lr" : "adamw_lr";
    out->weight_decay_key = is_matrix ? "weight_decay" : "adamw_weight_decay";
    out->part = is_matrix ? "muon" : "adamw";
}

LATHE_INSTANCE(muon, read_values)

LATHE_OPTIMIZER_TABLE(muon, .slots = slots, .partition = partition, .scalars = scalars,
                      .step = step, .build = build, .cuda_image = LATHE_CUDA_IMAGE, .rates = rates);

LATHE_OPTIMIZER_ENTRY(
    muon, .version = "1.0.0",
    .summary = "momentum orthogonalised by Newton-Schulz for matrices, AdamW for the rest",
    .source = "Keller Jordan 2024 (kellerjordan.github.io/posts/muon); torch.optim.Muon");
