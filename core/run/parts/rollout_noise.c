/* Adds noise to norms for a rollout, and removes it. */
#include "run/parts/rollout_noise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/store_io.h"
#include "lathe/rng.h"
#include "model/family/param_init.h"
#include "run/parts/iteration.h"

double lathe_noise_sigma(double start, double end, int32_t stages, int64_t step, int64_t total)
{
    int64_t part = (int64_t)floor((double)step / ((double)total / stages));
    part = part < stages ? part : stages - 1;
    if (part == 0)
        return 0.0;
    return stages == 2 ? start
                       : start * pow(end / start, (double)(part - 1) / (double)(stages - 2));
}

double lathe__noise_at(const lathe_run *run, int64_t step)
{
    const lathe_settings *s = &run->set;
    return s->quant_noise > 0.0 ? lathe_noise_sigma(s->quant_noise, s->quant_noise_end,
                                                    s->quant_noise_stages, step, s->max_steps)
                                : 0.0;
}

/* ---- checks ---- */

static int is_given(const lathe_run *run, const char *key)
{
    const lathe_value *value = lathe_config_get(run->config, "quant", key);
    return value && value->is_explicit;
}

lathe_status lathe__noise_check(const lathe_run *run)
{
    static const char *const keys[] = {"noise_end", "noise_stages"};
    const lathe_settings *s = &run->set;
    if (!lathe__run_has_step(run))
        return LATHE_OK;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !(s->quant_noise > 0.0); i++)
        if (is_given(run, keys[i]))
            return lathe__run_refuse(
                run, "quant", keys[i],
                "quant.%s has no effect: it belongs to quant.noise, which is 0", keys[i]);
    if (!(s->quant_noise > 0.0) || run->parts.stage.component == NULL)
        return LATHE_OK;
    if (!lathe__run_iterates(run))
        return lathe__run_refuse(run, "quant", "noise",
                                 "quant.noise = %g has no effect: the noise is for exploration "
                                 "while a stage writes completions, and stage \"%s\" writes none; "
                                 "use ppo, or leave it at 0",
                                 s->quant_noise, run->parts.stage.component->plugin->name);
    if (s->quant_noise_end > s->quant_noise)
        return lathe__run_refuse(run, "quant", is_given(run, "noise_end") ? "noise_end" : "noise",
                                 "quant.noise_end = %g is above quant.noise = %g: the noise falls "
                                 "during a run",
                                 s->quant_noise_end, s->quant_noise);
    return LATHE_OK;
}

/* ---- the norms ---- */

/* The value that a norm computes, and its weight; 0: the node is no norm. */
static int is_norm(const lathe_ir_node *n, lathe_val *out_y, lathe_val *out_w)
{
    const int joined = n->op == LATHE_OP_ADD_RMSNORM || n->op == LATHE_OP_ADD_LAYERNORM;
    if (!joined && n->op != LATHE_OP_RMSNORM && n->op != LATHE_OP_LAYERNORM)
        return 0;
    *out_y = n->out[joined];
    *out_w = n->in[joined + 1];
    return 1;
}

/* Whether a node multiplies v by a quantized weight. */
static int multiplies(const lathe_graph *g, const lathe_ir_node *n, lathe_val v)
{
    int reads = 0, decodes = 0;
    for (int32_t k = 0; k < n->n_in; k++) {
        const lathe_ir_value *in = n->in[k] == LATHE_NONE ? NULL : &g->values[n->in[k]];
        reads |= n->in[k] == v;
        decodes |= in && (in->kind == LATHE_VALUE_PLANES ||
                          (in->node >= 0 && g->nodes[in->node].op == LATHE_OP_DEQUANT));
    }
    return reads && decodes;
}

/* The row of the weight of a norm that a quantized layer reads; -1: the node is none. */
static int32_t norm_row(const lathe_graph *g, int32_t node)
{
    lathe_val y = LATHE_NONE, w = LATHE_NONE;
    if (!is_norm(&g->nodes[node], &y, &w) || w == LATHE_NONE ||
        g->values[w].kind != LATHE_VALUE_PARAM)
        return -1;
    for (int32_t i = node + 1; i < g->n_nodes; i++)
        if (multiplies(g, &g->nodes[i], y))
            return g->values[w].param;
    return -1;
}

static void add_row(lathe_noise *noise, const lathe_params *params, int32_t row)
{
    const int64_t n = lathe_desc_count(&params->rows[row]->desc);
    for (int32_t i = 0; i < noise->n; i++)
        if (noise->rows[i] == row) /* the reference model has the same norms */
            return;
    noise->rows[noise->n++] = row;
    noise->total += n;
    noise->max = n > noise->max ? n : noise->max;
}

static int64_t memory_bytes(const lathe_noise *noise)
{
    return 4 * (noise->total + noise->max);
}

lathe_status lathe__noise_plan(lathe_run *run)
{
    lathe_noise *noise = &run->iteration.noise;
    if (!(run->set.quant_noise > 0.0) || run->programs.eval.exec == NULL)
        return LATHE_OK;
    const lathe_graph *g = lathe_exec_graph(run->programs.eval.exec);
    noise->rows =
        lathe_arena_alloc(&run->arena, (run->params.n + 1) * (int64_t)sizeof *noise->rows);
    if (noise->rows == NULL)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const int32_t row = norm_row(g, i);
        if (row >= 0)
            add_row(noise, &run->params, row);
    }
    run->planned.by[LATHE_MEM_STAGING] += memory_bytes(noise);
    if (noise->n > 0)
        return LATHE_OK;
    return lathe__run_refuse(run, "quant", "noise",
                             "quant.noise = %g has no effect: no quantized layer of this model "
                             "reads a norm directly",
                             run->set.quant_noise);
}

lathe_status lathe__noise_place(lathe_run *run)
{
    void *memory = NULL;
    LATHE_TRY(lathe_machine_alloc(&run->machine, LATHE_MEM_STAGING,
                                  memory_bytes(&run->iteration.noise), &memory));
    run->iteration.noise.memory = memory;
    return LATHE_OK;
}

void lathe__noise_close(lathe_run *run)
{
    lathe_noise *noise = &run->iteration.noise;
    lathe_machine_free(&run->machine, LATHE_MEM_STAGING, memory_bytes(noise), noise->memory);
}

/* ---- the noise ---- */

/* w[n] = saved[n] + sigma z. */
static lathe_status make_noisy(const lathe_run *run, int32_t row, double sigma, const float *saved,
                               float *w)
{
    const uint64_t stream = 0x6e6f697365ULL; /* "noise" */
    const lathe_u32x4 words = lathe_rng_block(run->set.seed, (uint64_t)run->at.step, stream, 0);
    lathe_param z = *run->params.rows[row];
    const int64_t n = lathe_desc_count(&z.desc);
    z.init = LATHE_INIT_NORMAL;
    z.init_scale = sigma;
    LATHE_TRY(lathe_param_init(&z, (uint64_t)words.v[0] << 32 | words.v[1], w));
    for (int64_t i = 0; i < n; i++)
        w[i] += saved[i];
    return LATHE_OK;
}

lathe_status lathe__noise_add(lathe_run *run)
{
    lathe_noise *noise = &run->iteration.noise;
    const double sigma = lathe__noise_at(run, run->at.step);
    float *saved = noise->memory, *w = noise->memory + noise->total;
    noise->n_added = 0;
    for (int32_t k = 0; sigma > 0.0 && k < noise->n; k++) {
        const int32_t row = noise->rows[k];
        const int64_t n = lathe_desc_count(&run->params.rows[row]->desc);
        LATHE_TRY(lathe_store_get(&run->store, saved, lathe_store_master(&run->store, row), 4 * n));
        noise->n_added = k + 1;
        LATHE_TRY(make_noisy(run, row, sigma, saved, w));
        LATHE_TRY(lathe_store_set(&run->store, row, w));
        saved += n;
    }
    return LATHE_OK;
}

lathe_status lathe__noise_remove(lathe_run *run)
{
    lathe_noise *noise = &run->iteration.noise;
    const float *saved = noise->memory;
    lathe_status first = LATHE_OK;
    for (int32_t k = 0; k < noise->n_added; k++) {
        const lathe_status status = lathe_store_set(&run->store, noise->rows[k], saved);
        first = first != LATHE_OK ? first : status;
        saved += lathe_desc_count(&run->params.rows[noise->rows[k]]->desc);
    }
    noise->n_added = 0;
    return first;
}
