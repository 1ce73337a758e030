/* Muon for the hidden matrices, AdamW for the rest.
 *
 * A matrix takes Muon when it is the 2-D, unquantized weight of a linear site (LATHE_ROLE_MATRIX).
 * Embeddings, the head, norms and biases take AdamW, as published; so do adapter parameters, whose
 * thin factors are not what the method was made for.
 *
 * Source: Keller Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024;
 * torch.optim.Muon; the match_rms_adamw scale from arXiv:2502.16982, equation 4.
 */
#include <math.h>
#include <string.h>

#include "adamw_part.h"
#include "lathe/plugin.h"
#include "newton_schulz.h"

typedef struct muon {
    const lathe_host *host;
    double lr, momentum, weight_decay;
    double adamw_lr, beta1, beta2, eps, adamw_weight_decay;
    int nesterov, match_rms;
    int32_t ns_steps, ns_dtype, state_dtype;
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
    FIELD_STATE,
    N_FIELDS
};

static const lathe_field fields[N_FIELDS] = {
    {"lr", LATHE_T_FLOAT, 0, "0.02", 0, 1e3, NULL, "1",
     "learning rate of the matrices, that schedules multiply"},
    {"momentum", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.95", 0, 1, NULL, "1",
     "decay of the momentum"},
    {"nesterov", LATHE_T_BOOL, 0, "true", LATHE_NO_RANGE, NULL, NULL,
     "orthogonalise momentum and gradient mixed, not the momentum alone"},
    {"weight_decay", LATHE_T_FLOAT, 0, "0.0", 0, 1e3, NULL, "1",
     "decoupled weight decay of the matrices, times lr"},
    {"ns_steps", LATHE_T_INT, 0, "5", 1, 20, NULL, "1", "Newton-Schulz iterations"},
    {"ns_dtype", LATHE_T_STRING, 0, "\"bf16\"", LATHE_NO_RANGE, "bf16|f32", NULL,
     "precision of the iterations"},
    {"scaling", LATHE_T_STRING, 0, "\"original\"", LATHE_NO_RANGE, "original|match_rms_adamw", NULL,
     "update times sqrt(max(1, rows/cols)), or 0.2*sqrt(max(rows, cols)) to take AdamW's lr"},
    {"adamw_lr", LATHE_T_FLOAT, 0, "3e-4", 0, 1e3, NULL, "1",
     "learning rate of all other parameters, on the same schedule"},
    {"adamw_beta1", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.9", 0, 1, NULL, "1",
     "decay of AdamW's first moment"},
    {"adamw_beta2", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.95", 0, 1, NULL, "1",
     "decay of AdamW's second moment"},
    {"adamw_eps", LATHE_T_FLOAT, 0, "1e-10", 0, 1, NULL, "1",
     "added to the root of the second moment"},
    {"adamw_weight_decay", LATHE_T_FLOAT, 0, "0.0", 0, 1e3, NULL, "1",
     "decoupled weight decay of all other parameters, times adamw_lr"},
    {"state_dtype", LATHE_T_STRING, 0, "\"fp32\"", LATHE_NO_RANGE, "fp32|bf16", NULL,
     "type of the momentum (bf16: to nearest) and of AdamW's moments (bf16: stochastically)"},
};

/* The schema's ranges, for callers that hand over values unchecked. Written so that NaN fails. */
static lathe_status check(const lathe_host *host, const lathe_value *values, int32_t n_values)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "muon takes %d values, got %d", N_FIELDS, n_values);
    for (int32_t k = 0; k < N_FIELDS; k++) {
        const lathe_field *const f = &fields[k];
        if (f->min > f->max)
            continue;
        const double x = f->type == LATHE_T_INT ? (double)values[k].i : values[k].f;
        const int exclusive = (f->flags & LATHE_FIELD_MAX_EXCLUSIVE) != 0;
        if (!(x >= f->min) || !(exclusive ? x < f->max : x <= f->max))
            return lathe_fail(host, LATHE_E_CONFIG, "%s is %g, expected %g to %g%s", f->key, x,
                              f->min, f->max, exclusive ? " (exclusive)" : "");
    }
    return LATHE_OK;
}

/* 0 or 1: which of two words; -1 with the error recorded. */
static int choice(const lathe_host *host, const char *key, const char *text, const char *zero,
                  const char *one)
{
    if (text != NULL && strcmp(text, zero) == 0)
        return 0;
    if (text != NULL && strcmp(text, one) == 0)
        return 1;
    (void)lathe_fail(host, LATHE_E_CONFIG, "%s is \"%s\", expected \"%s\" or \"%s\"", key,
                     text != NULL ? text : "", zero, one);
    return -1;
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    LATHE_TRY(check(host, values, n_values));
    const int is_f32 = choice(host, "ns_dtype", values[FIELD_NS_DTYPE].s, "bf16", "f32");
    const int match_rms = is_f32 < 0 ? -1
                                     : choice(host, "scaling", values[FIELD_SCALING].s, "original",
                                              "match_rms_adamw");
    const int is_bf16 =
        match_rms < 0 ? -1 : choice(host, "state_dtype", values[FIELD_STATE].s, "fp32", "bf16");
    if (is_bf16 < 0)
        return LATHE_E_CONFIG;
    muon *const m = host->alloc((int64_t)sizeof *m);
    if (m == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of muon");
    *m = (muon){
        .host = host,
        .lr = values[FIELD_LR].f,
        .momentum = values[FIELD_MOMENTUM].f,
        .weight_decay = values[FIELD_WEIGHT_DECAY].f,
        .adamw_lr = values[FIELD_ADAMW_LR].f,
        .beta1 = values[FIELD_ADAMW_BETA1].f,
        .beta2 = values[FIELD_ADAMW_BETA2].f,
        .eps = values[FIELD_ADAMW_EPS].f,
        .adamw_weight_decay = values[FIELD_ADAMW_WEIGHT_DECAY].f,
        .nesterov = values[FIELD_NESTEROV].i != 0,
        .match_rms = match_rms,
        .ns_steps = (int32_t)values[FIELD_NS_STEPS].i,
        .ns_dtype = is_f32 ? LATHE_F32 : LATHE_BF16,
        .state_dtype = is_bf16 ? LATHE_BF16 : LATHE_F32,
    };
    *out_self = m;
    return LATHE_OK;
}

static void destroy(void *self)
{
    muon *const m = self;
    if (m != NULL)
        m->host->free(m);
}

static int32_t partition(void *self, const lathe_param_info *param)
{
    (void)self;
    return param->role == LATHE_ROLE_MATRIX && param->desc.rank == 2 && !param->quantized
               ? LATHE_PARTITION_MATRIX
               : LATHE_PARTITION_ELEMENT;
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    out[0].desc = out[1].desc = param->desc;
    out[0].desc.dtype = out[1].desc.dtype = ((const muon *)self)->state_dtype;
    if (partition(self, param) == LATHE_PARTITION_MATRIX) {
        out[0].name = "momentum_buffer";
        return 1;
    }
    out[0].name = "exp_avg";
    out[1].name = "exp_avg_sq";
    return 2;
}

static double base_lr(void *self)
{
    return ((const muon *)self)->lr;
}

static void scalars(void *self, int64_t step, double *out)
{
    const muon *const m = self;
    out[NEW1] = 1.0 - m->beta1;
    out[BETA2] = m->beta2;
    out[NEW2] = 1.0 - m->beta2;
    out[EPS] = m->eps;
    out[DECAY] = m->adamw_lr * m->adamw_weight_decay;
    out[RATE] = m->adamw_lr / (1.0 - pow(m->beta1, (double)step));
    out[ROOT_BIAS] = 1.0 / sqrt(1.0 - pow(m->beta2, (double)step));
    out[7] = 0.0;
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    return lathe_elementwise_run(((const muon *)self)->host, s, 2, adamw_part_chunk);
}

static lathe_status build(void *self, const lathe_graph_api *api, lathe_graph *g,
                          const lathe_param_info *info, double lr_mult, double weight_decay_mult,
                          lathe_val param, lathe_val grad, const lathe_val *slot, lathe_val scalar)
{
    const muon *const m = self;
    const double rows = (double)info->desc.dims[0], cols = (double)info->desc.dims[1];
    if (partition(self, info) != LATHE_PARTITION_MATRIX)
        return lathe_fail(m->host, LATHE_E_ARG, "'%s' is no hidden matrix: role %d, rank %d",
                          info->name, info->role, info->desc.rank);
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

static const lathe_optimizer_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_OPTIMIZER_REVISION,
    .slots = slots,
    .partition = partition,
    .base_lr = base_lr,
    .scalars = scalars,
    .step = step,
    .build = build,
    .cuda_image = LATHE_CUDA_IMAGE,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_OPTIMIZER,
    .revision = LATHE_OPTIMIZER_REVISION,
    .n_fields = N_FIELDS,
    .name = "muon",
    .version = "1.0.0",
    .summary = "momentum orthogonalised by Newton-Schulz for matrices, AdamW for the rest",
    .source = "Keller Jordan 2024 (kellerjordan.github.io/posts/muon); torch.optim.Muon",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};
