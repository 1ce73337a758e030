/* Checks of optimizers: elementwise steps on host memory, matrix updates as graphs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "check/harness/device_side.h"
#include "check/kinds/checks.h"
#include "check/kinds/optimizer_math.h"
#include "graph/ir/dump.h"
#include "graph/passes/passes.h"
#include "graph/passes/plan.h"

/* Two cases to compare. */
typedef struct pair {
    lathe__optimizer_case a, b;
} pair;

static lathe_status pair_init(pair *p, lathe__subject *s)
{
    *p = (pair){0};
    LATHE_TRY(lathe__optimizer_case_init(&p->a, s));
    const lathe_status status = lathe__optimizer_case_init(&p->b, s);
    if (status != LATHE_OK)
        lathe_instance_fini(&p->a.instance);
    return status;
}

static void pair_fini(pair *p)
{
    lathe_instance_fini(&p->a.instance);
    lathe_instance_fini(&p->b.instance);
}

static lathe_status steps(lathe__optimizer_case *c, int n)
{
    for (int i = 0; i < n; i++)
        LATHE_TRY(lathe__optimizer_case_step(c));
    return LATHE_OK;
}

static lathe_status slots_are_declared(lathe__subject *s)
{
    lathe__optimizer_case c;
    int64_t bytes = 0, params = 0;
    LATHE_TRY(lathe__optimizer_case_init(&c, s));
    lathe_status status = LATHE_OK;
    const double lr = c.table->base_lr(c.instance.self);
    if (!isfinite(lr) || lr < 0)
        status = lathe_error(LATHE_E_NUMERIC, "base_lr is %g", lr);
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        params += c.tensors[i].n;
        for (int32_t k = 0; k < c.n_slots[i]; k++) {
            bytes += lathe_desc_bytes(&c.slots[i][k].desc);
            for (int32_t j = 0; j < k; j++)
                if (strcmp(c.slots[i][j].name, c.slots[i][k].name) == 0)
                    status =
                        lathe_error(LATHE_E_PLUGIN, "two slots are called %s", c.slots[i][k].name);
        }
        if (c.partition[i] == LATHE_PARTITION_MATRIX && !LATHE_HAS(c.table, build))
            status = lathe_error(LATHE_E_PLUGIN, "has MATRIX parameters but no build()");
    }
    lathe__note(s, "%.2f bytes of state per parameter", (double)bytes / (double)params);
    lathe_instance_fini(&c.instance);
    return status;
}

static lathe_status check_moved(const lathe__optimizer_case *c, lathe__subject *s)
{
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        const lathe_optimizer_tensor *t = &c->tensors[i];
        const float *before = lathe__random(s, t->n, 11 + (uint64_t)i, 0.5);
        const char *name = lathe__optimizer_info(i).name;
        int64_t moved = 0;
        if (c->partition[i] == LATHE_PARTITION_MATRIX)
            continue;
        for (int64_t e = 0; e < t->n; e++) {
            if (!isfinite(t->param[e]))
                return lathe_error(LATHE_E_NUMERIC, "%s[%lld] became %g", name, (long long)e,
                                   (double)t->param[e]);
            moved += !lathe__same(&t->param[e], &before[e], 4);
            /* stochastic rounding may choose either neighbour: one unit of bf16 */
            const float shadow = lathe_bf16_to_f32(t->shadow[e]);
            if (fabsf(shadow - t->param[e]) > 0x1p-7f * fabsf(t->param[e]) + 0x1p-126f)
                return lathe_error(LATHE_E_NUMERIC, "bf16 copy of %s[%lld] is %g, expected %g",
                                   name, (long long)e, (double)shadow, (double)t->param[e]);
        }
        if (moved * 2 < t->n)
            return lathe_error(LATHE_E_NUMERIC, "%lld of %lld elements of %s moved in 3 steps",
                               (long long)moved, (long long)t->n, name);
    }
    return LATHE_OK;
}

static lathe_status step_moves_parameters(lathe__subject *s)
{
    lathe__optimizer_case c;
    LATHE_TRY(lathe__optimizer_case_init(&c, s));
    lathe_status status = steps(&c, 3);
    if (status == LATHE_OK)
        status = check_moved(&c, s);
    lathe__note(s, "%d of %d tensors by step(), the rest by build()",
                lathe__optimizer_case_stepped(&c), LATHE__N_TENSORS);
    lathe_instance_fini(&c.instance);
    return status;
}

/* Both make n steps, and must then have the same bits. */
static lathe_status step_and_compare(pair *p, int n, const char *what)
{
    LATHE_TRY(steps(&p->a, n));
    LATHE_TRY(steps(&p->b, n));
    return lathe__optimizer_case_compare(&p->a, &p->b, what);
}

static lathe_status repeats_bit_for_bit(lathe__subject *s)
{
    pair p;
    LATHE_TRY(pair_init(&p, s));
    const lathe_status status = step_and_compare(&p, 4, "the same steps twice");
    pair_fini(&p);
    return status;
}

static lathe_status state_round_trip(lathe__subject *s)
{
    pair p;
    LATHE_TRY(pair_init(&p, s));
    lathe_status status = steps(&p.a, 3);
    lathe__optimizer_case_copy(&p.b, &p.a); /* another instance continues with the saved tensors */
    if (status == LATHE_OK)
        status = step_and_compare(&p, 3, "resumed from saved state");
    pair_fini(&p);
    return status;
}

static lathe_status parts_equal_the_whole(lathe__subject *s)
{
    pair p;
    LATHE_TRY(pair_init(&p, s));
    p.b.in_parts = 1;
    const lathe_status status = step_and_compare(&p, 3, "tensors cut in three");
    pair_fini(&p);
    return status;
}

static lathe_status three_steps(void *arg)
{
    return steps(arg, 3);
}

static lathe_status threads_do_not_matter(lathe__subject *s)
{
    pair p;
    LATHE_TRY(pair_init(&p, s));
    lathe_status status = lathe__with_threads(1, three_steps, &p.a);
    if (status == LATHE_OK)
        status = lathe__with_threads(3, three_steps, &p.b);
    if (status == LATHE_OK)
        status = lathe__optimizer_case_compare(&p.a, &p.b, "with 1 and 3 threads");
    pair_fini(&p);
    return status;
}

static lathe_status step_allocates_nothing(lathe__subject *s)
{
    lathe__optimizer_case c;
    LATHE_TRY(lathe__optimizer_case_init(&c, s));
    lathe_status status = steps(&c, 2);
    c.heap_blocks = 0;
    if (status == LATHE_OK)
        status = steps(&c, 3);
    if (status == LATHE_OK && c.heap_blocks != 0)
        status =
            lathe_error(LATHE_E_PLUGIN, "3 steps took %lld heap blocks", (long long)c.heap_blocks);
    lathe_instance_fini(&c.instance);
    return status;
}

static lathe_status takes_empty_tensors(lathe__subject *s)
{
    lathe__optimizer_case c;
    LATHE_TRY(lathe__optimizer_case_init(&c, s));
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        c.tensors[i].n = 0;
        if (i % 2)
            c.tensors[i].shadow = NULL;
    }
    const lathe_status status = steps(&c, 1);
    lathe_instance_fini(&c.instance);
    return status;
}

/* Builds the graph of one MATRIX parameter's update and writes its dump to text. */
static lathe_status build_update(const lathe__optimizer_case *c, int i, lathe_params *params,
                                 lathe_buffer *text, int32_t *out_nodes)
{
    const lathe_param_info info = lathe__optimizer_info(i);
    const lathe_param row = {.name = info.name,
                             .desc = info.desc,
                             .role = info.role,
                             .layer = info.layer,
                             .trainable = 1};
    lathe_graph *g = NULL;
    lathe_plan *plan = NULL;
    lathe_val param, grad, scalars, slots[LATHE_MAX_SLOTS];
    int32_t index;
    LATHE_TRY(lathe_params_add(params, &row, &index));
    LATHE_TRY(lathe_graph_create(params, &g));
    lathe_status status = lathe_graph_master(g, index, &param);
    if (status == LATHE_OK)
        status = lathe_graph_grad(g, index, &grad);
    if (status == LATHE_OK)
        status =
            lathe_graph_input(g, "scalars", lathe_desc_1d(LATHE_F32, LATHE_N_SCALARS), &scalars);
    for (int32_t k = 0; k < c->n_slots[i] && status == LATHE_OK; k++)
        status = lathe_graph_state(g, c->slots[i][k].name, c->slots[i][k].desc, &slots[k]);
    if (status == LATHE_OK)
        status = c->table->build(c->instance.self, lathe_graph_api_get(), g, &info, 1.0, 1.0, param,
                                 grad, slots, scalars);
    if (status == LATHE_OK) {
        int32_t applied = 0;
        for (int32_t n = 0; n < g->n_nodes; n++)
            if (g->nodes[n].op == LATHE_OP_APPLY_UPDATE)
                applied += lathe_graph_root(g, g->nodes[n].out[0]) == lathe_graph_root(g, param);
        if (applied != 1)
            status = lathe_error(LATHE_E_PLUGIN, "build() has %d APPLY_UPDATE on the parameter",
                                 applied);
    }
    lathe_status (*const passes[])(lathe_graph *) = {lathe_pass_dead, lathe_pass_inplace};
    for (int k = 0; k < 2 && status == LATHE_OK; k++)
        status = passes[k](g);
    if (status == LATHE_OK && (status = lathe_plan_create(g, NULL, &plan)) == LATHE_OK)
        status = lathe__has_kernels(c->s, g);
    if (status == LATHE_OK)
        lathe_graph_dump(g, text);
    *out_nodes = g->n_nodes;
    lathe_plan_destroy(plan);
    lathe_graph_destroy(g);
    return status;
}

static lathe_status matrix_update_plans(lathe__subject *s)
{
    lathe__optimizer_case c;
    lathe_buffer text[2] = {LATHE_BUFFER_INIT, LATHE_BUFFER_INIT};
    int32_t n_nodes = 0, n = 0;
    LATHE_TRY(lathe__optimizer_case_init(&c, s));
    lathe_status status = LATHE_OK;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < LATHE__N_TENSORS && status == LATHE_OK; i++) {
            lathe_params params;
            if (c.partition[i] != LATHE_PARTITION_MATRIX)
                continue;
            lathe_params_init(&params, LATHE_BF16);
            params.ops = s->ops;
            status = build_update(&c, i, &params, &text[pass], &n_nodes);
            lathe_params_fini(&params);
            n++;
        }
    if (status == LATHE_OK && n > 0 && strcmp(text[0].data, text[1].data) != 0)
        status = lathe_error(LATHE_E_PLUGIN, "build() gives another graph the second time");
    if (status == LATHE_OK && n == 0)
        status = lathe__skip(s, "no MATRIX parameters");
    else
        lathe__note(s, "%d nodes", n_nodes);
    lathe_buffer_fini(&text[0]);
    lathe_buffer_fini(&text[1]);
    lathe_instance_fini(&c.instance);
    return status;
}

const lathe__check *lathe__checks_optimizer(void)
{
    static const lathe__check checks[] = {
        {"slots_are_declared", slots_are_declared, 0},
        {"step_moves_parameters", step_moves_parameters, 0},
        {"repeats_bit_for_bit", repeats_bit_for_bit, 0},
        {"state_round_trip", state_round_trip, 0},
        {"parts_equal_the_whole", parts_equal_the_whole, 0},
        {"threads_do_not_matter", threads_do_not_matter, 0},
        {"step_allocates_nothing", step_allocates_nothing, 0},
        {"takes_empty_tensors", takes_empty_tensors, 0},
        {"matrix_update_plans", matrix_update_plans, 0},
        {"base_rate_is_the_key", lathe__base_rate_is_the_key, 0},
        {"gradient_scale_is_applied", lathe__gradient_scale_is_applied, 0},
        {"rate_is_applied", lathe__rate_is_applied, 0},
        {"multiplier_is_applied", lathe__multiplier_is_applied, 0},
        {"decay_multiplier_is_applied", lathe__decay_multiplier_is_applied, 0},
        {"opposite_gradients_step_back", lathe__opposite_gradients_step_back, 0},
        {"descends", lathe__descends, 0},
        {"instances_are_apart", lathe__instances_are_apart, 0},
        {"shadows_are_in_their_dtype", lathe__shadows_are_in_their_dtype, 0},
        {"unknown_roles_are_survived", lathe__unknown_roles_are_survived, 0},
        {NULL, NULL, 0},
    };
    return checks;
}

const lathe__check *lathe__checks_optimizer_device(void)
{
    static const lathe__check checks[] = {
        {"image_loads", lathe__image_loads, 0},
        {"slots_are_declared", slots_are_declared, 0},
        {"step_moves_parameters", step_moves_parameters, 0},
        {"same_bits_as_the_host", lathe__same_bits_as_the_host, 0},
        {"repeats_bit_for_bit", repeats_bit_for_bit, 0},
        {"state_round_trip", state_round_trip, 0},
        {"parts_equal_the_whole", parts_equal_the_whole, 0},
        {"threads_do_not_matter", threads_do_not_matter, 0},
        {"any_grid_will_do", lathe__any_grid_will_do, 0},
        {"tells_its_update", lathe__tells_its_update, 0},
        {"leaves_inputs_alone", lathe__leaves_inputs_alone, 0},
        {"step_allocates_nothing", step_allocates_nothing, 0},
        {"empty_among_others", lathe__empty_among_others, 0},
        {"failures_are_passed_on", lathe__failures_are_passed_on, 0},
        {"matrix_update_plans", matrix_update_plans, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
