/* Runs optimizer steps for the checks of laws. */
#include "check/kinds/optimizer_math.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "graph/ops/op_values.h"
#include "lathe/rng.h"

/* ---- matrix updates ---- */

static lathe_status build_matrix(lathe__laws *l, int i, const lathe__rule *rule)
{
    struct lathe__matrix_update *m = &l->matrix[i];
    const lathe_param_info info = lathe__optimizer_info(i);
    const lathe_param row = {.name = info.name,
                             .desc = info.desc,
                             .role = info.role,
                             .layer = info.layer,
                             .trainable = 1,
                             .head_rows = info.head_rows};
    int32_t index;
    if (m->g != NULL && m->lr_mult == rule->lr_mult && m->decay_mult == rule->decay_mult)
        return LATHE_OK;
    lathe_graph_destroy(m->g);
    if (m->has_params)
        lathe_params_fini(&m->params);
    m->g = NULL;
    lathe_params_init(&m->params, LATHE_F32);
    m->params.ops = l->c.s->ops;
    m->has_params = 1;
    m->lr_mult = rule->lr_mult;
    m->decay_mult = rule->decay_mult;
    LATHE_TRY(lathe_params_add(&m->params, &row, &index));
    LATHE_TRY(lathe_graph_create(&m->params, &m->g));
    LATHE_TRY(lathe_graph_master(m->g, index, &m->param));
    LATHE_TRY(lathe_graph_grad(m->g, index, &m->grad));
    LATHE_TRY(
        lathe_graph_input(m->g, "scalars", lathe_desc_1d(LATHE_F32, LATHE_N_SCALARS), &m->scalars));
    for (int32_t k = 0; k < l->c.n_slots[i]; k++)
        LATHE_TRY(
            lathe_graph_state(m->g, l->c.slots[i][k].name, l->c.slots[i][k].desc, &m->slots[k]));
    LATHE_TRY(l->c.table->build(l->c.instance.self, lathe_graph_api_get(), m->g, &info,
                                rule->lr_mult, rule->decay_mult, m->param, m->grad, m->slots,
                                m->scalars));
    return lathe__exact_init(&m->exact, l->c.s, m->g);
}

static lathe_status step_matrix(lathe__laws *l, int i, const lathe__rule *rule,
                                const float *scalars)
{
    struct lathe__matrix_update *m = &l->matrix[i];
    lathe_optimizer_tensor *t = &l->c.tensors[i];
    LATHE_TRY(build_matrix(l, i, rule));
    for (int64_t e = 0; e < t->n; e++) {
        lathe__exact_data(&m->exact, m->param)[e] = (double)t->param[e];
        lathe__exact_data(&m->exact, m->grad)[e] = (double)l->c.grads[i][e];
    }
    for (int k = 0; k < LATHE_N_SCALARS; k++)
        lathe__exact_data(&m->exact, m->scalars)[k] = (double)scalars[k];
    for (int32_t k = 0; k < l->c.n_slots[i]; k++)
        for (int64_t e = 0; e < lathe_desc_count(&l->c.slots[i][k].desc); e++)
            lathe__exact_data(&m->exact, m->slots[k])[e] =
                lathe__op_load(t->slots[k], l->c.slots[i][k].desc.dtype, e);
    LATHE_TRY(lathe__exact_run(&m->exact));
    const lathe_val last = lathe__exact_last(&m->exact, m->param);
    for (int64_t e = 0; e < t->n; e++)
        t->param[e] = (float)lathe__exact_data(&m->exact, last)[e];
    for (int32_t k = 0; k < l->c.n_slots[i]; k++) {
        const lathe_val slot = lathe__exact_last(&m->exact, m->slots[k]);
        for (int64_t e = 0; e < lathe_desc_count(&l->c.slots[i][k].desc); e++)
            lathe__op_store(t->slots[k], l->c.slots[i][k].desc.dtype, e,
                            lathe__exact_data(&m->exact, slot)[e]);
    }
    return LATHE_OK;
}

/* ---- the rest ---- */

static void draw(lathe__laws *l, int i, const lathe__rule *rule)
{
    lathe__optimizer_case *c = &l->c;
    for (int64_t e = 0; e < c->tensors[i].n; e++) {
        const lathe_u32x4 w =
            lathe_rng_block(rule->seed, (uint64_t)c->step, (uint64_t)i, (uint64_t)e);
        const double x = 2.0 * lathe_uniform_f64(w.v[0], w.v[1]) - 1.0;
        const double pulled = (double)c->tensors[i].param[e] - 2.0 * (double)l->start[i][e];
        c->grads[i][e] = (float)(rule->grad_factor * rule->sign * (rule->pull ? pulled : x));
    }
}

static void fill_scalars(const lathe__laws *l, const lathe__rule *rule, float *out)
{
    double user[8] = {0};
    const lathe__optimizer_case *c = &l->c;
    memset(out, 0, LATHE_N_SCALARS * sizeof *out);
    out[LATHE_SCALAR_LR] = (float)(c->table->base_lr(c->instance.self) * rule->rate);
    out[LATHE_SCALAR_GRAD_SCALE] = (float)(1.0 / rule->grad_factor);
    out[LATHE_SCALAR_LR_RATIO] = (float)rule->rate;
    out[LATHE_SCALAR_COUNT] = 1.0f;
    if (LATHE_HAS(c->table, scalars))
        c->table->scalars(c->instance.self, c->step, user);
    for (int i = 0; i < 8; i++)
        out[LATHE_SCALAR_USER + i] = (float)user[i];
}

/* Calls step(), and checks that its inputs are unchanged. */
static lathe_status step_listed(lathe__laws *l, const lathe_optimizer_tensor *list, int32_t n,
                                float *scalars)
{
    lathe__optimizer_case *c = &l->c;
    float kept[LATHE_N_SCALARS], *grads[LATHE__N_TENSORS];
    const lathe_optimizer_step step = lathe__optimizer_case_arguments(c, list, n, scalars);
    static unsigned char garbage;
    garbage = (unsigned char)(garbage + 37);
    if (c->scratch != NULL) /* its content is lost between steps */
        memset(c->scratch, garbage, (size_t)c->scratch_bytes);
    memcpy(kept, scalars, sizeof kept);
    for (int32_t k = 0; k < n; k++) {
        grads[k] = c->saved_grads[list[k].tensor];
        memcpy(grads[k], list[k].grad, (size_t)list[k].n * sizeof **grads);
    }
    LATHE_TRY(c->table->step(c->instance.self, &step));
    for (int32_t k = 0; k < n; k++)
        if (!lathe__same(grads[k], list[k].grad, list[k].n * 4))
            return lathe_error(LATHE_E_PLUGIN, "it writes to the gradient of %s",
                               lathe__optimizer_info(list[k].tensor).name);
    if (!lathe__same(kept, scalars, (int64_t)sizeof kept))
        return lathe_error(LATHE_E_PLUGIN, "it writes to the step's scalars");
    return LATHE_OK;
}

static lathe_status check_finite(const lathe__laws *l, int i)
{
    for (int64_t e = 0; e < l->c.tensors[i].n; e++)
        if (!isfinite(l->c.tensors[i].param[e]))
            return lathe_error(LATHE_E_NUMERIC, "%s[%lld] became %g at step %lld",
                               lathe__optimizer_info(i).name, (long long)e,
                               (double)l->c.tensors[i].param[e], (long long)l->c.step);
    return LATHE_OK;
}

lathe_status lathe__laws_step(lathe__laws *l, const lathe__rule *rule, int small)
{
    lathe_optimizer_tensor list[LATHE__N_TENSORS];
    float scalars[LATHE_N_SCALARS];
    int32_t n = 0;
    l->c.step++;
    fill_scalars(l, rule, scalars);
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        lathe_optimizer_tensor *t = &l->c.tensors[i];
        const int is_matrix = l->c.partition[i] == LATHE_PARTITION_MATRIX;
        if (small && (is_matrix || t->n > 2000))
            continue;
        draw(l, i, rule);
        t->lr_mult = rule->lr_mult;
        t->weight_decay_mult = rule->decay_mult;
        if (is_matrix)
            LATHE_TRY(step_matrix(l, i, rule, scalars));
        else
            list[n++] = *t;
    }
    if (n > 0)
        LATHE_TRY(step_listed(l, list, n, scalars));
    for (int i = 0; i < LATHE__N_TENSORS; i++)
        LATHE_TRY(check_finite(l, i));
    return LATHE_OK;
}

double lathe__laws_moved(const lathe__laws *l, int i)
{
    double squares = 0.0;
    for (int64_t e = 0; e < l->c.tensors[i].n; e++) {
        const double d = (double)l->c.tensors[i].param[e] - (double)l->start[i][e];
        squares += d * d;
    }
    return sqrt(squares);
}

lathe_status lathe__laws_init(lathe__laws *l, lathe__subject *s, const char *toml)
{
    memset(l, 0, sizeof *l);
    LATHE_TRY(lathe__optimizer_case_init_with(&l->c, s, toml));
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        const size_t bytes = (size_t)l->c.tensors[i].n * 4;
        l->start[i] = lathe__memory(s, (int64_t)bytes);
        memcpy(l->start[i], l->c.tensors[i].param, bytes);
    }
    return LATHE_OK;
}

void lathe__laws_fini(lathe__laws *l)
{
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        lathe_graph_destroy(l->matrix[i].g);
        if (l->matrix[i].has_params)
            lathe_params_fini(&l->matrix[i].params);
    }
    lathe_instance_fini(&l->c.instance);
}
