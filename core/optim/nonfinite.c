/* Searches parameters and the results of nodes for NaN and infinity. */
#include "optim/nonfinite.h"

#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "exec/program/precision.h"
#include "graph/ir/desc_text.h"
#include "graph/ir/op_info.h"

/* Result of a search: `first` is -1 if every element is finite. */
typedef struct finding {
    int64_t n_bad, first;
    double value; /* of the first */
} finding;

static double element(const void *data, int32_t dtype, int64_t i)
{
    switch (dtype) {
    case LATHE_F32:
        return (double)((const float *)data)[i];
    case LATHE_BF16:
        return (double)lathe_bf16_to_f32(((const uint16_t *)data)[i]);
    case LATHE_F16:
        return (double)lathe_f16_to_f32(((const uint16_t *)data)[i]);
    default:
        return 0.0; /* whole numbers are finite */
    }
}

/* A tensor that is searched piece by piece. */
typedef struct search {
    int32_t dtype;
    finding found;
} search;

/* lathe_piece_fn */
static lathe_status look_at_piece(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    search *s = arg;
    const int64_t size = lathe_dtype_bytes(s->dtype), n = size > 0 ? bytes / size : 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = element(data, s->dtype, i);
        if (isfinite(x))
            continue;
        if (s->found.first < 0) {
            s->found.first = offset / size + i;
            /* removes the sign, which printf would print */
            s->found.value = isnan(x) ? (double)NAN : x;
        }
        s->found.n_bad++;
    }
    return LATHE_OK;
}

static lathe_status look(lathe_machine *m, const void *data, const lathe_desc *d, finding *out)
{
    search s = {d->dtype, {0, -1, 0.0}};
    if (data)
        LATHE_TRY(lathe_download_pieces(m, data, lathe_desc_bytes(d), look_at_piece, &s));
    *out = s.found;
    return LATHE_OK;
}

/* Finds the first parameter with NaN or infinity; *out_row -1: none. */
static lathe_status find_parameter(lathe_machine *m, const lathe_store *store, int32_t *out_row,
                                   finding *out)
{
    const lathe_params *params = store->params;
    *out_row = -1;
    for (int32_t i = 0; i < params->n && *out_row < 0; i++) {
        const int is_whole = lathe_store_is_whole(store, i, LATHE_OF_VALUE);
        const float *master = lathe_store_is_whole(store, i, LATHE_OF_PARAMETER) || !is_whole
                                  ? lathe_store_master(store, i)
                                  : NULL; /* the compute copy is whole */
        const int32_t of = master ? LATHE_OF_PARAMETER : LATHE_OF_VALUE;
        const lathe_desc d =
            lathe_desc_1d(master ? LATHE_F32 : lathe_params_value_dtype(params, i),
                          store->rows[i].held[of].n); /* all that this rank holds */
        LATHE_TRY(look(m, master ? (const void *)master : lathe_store_shadow(store, i), &d, out));
        if (out->first >= 0)
            out->first += store->rows[i].held[of].begin;
        if (out->first >= 0)
            *out_row = i;
    }
    return LATHE_OK;
}

lathe_status lathe_nonfinite_in_parameters(lathe_nonfinite *s)
{
    finding f;
    int32_t row;
    LATHE_TRY(find_parameter(s->machine, s->store, &row, &f));
    s->is_found = row >= 0;
    if (s->is_found)
        (void)snprintf(s->line, (size_t)s->line_bytes,
                       "the parameter '%s' was not finite before the step: %lld of %lld values, "
                       "the first %g at %lld",
                       s->store->params->rows[row]->name, (long long)f.n_bad,
                       (long long)lathe_desc_count(&s->store->params->rows[row]->desc), f.value,
                       (long long)f.first);
    return LATHE_OK;
}

lathe_status lathe_nonfinite_refuse(lathe_machine *m, const lathe_store *store,
                                    int32_t compute_dtype, const char *what, int64_t index)
{
    finding f;
    int32_t row;
    LATHE_TRY(find_parameter(m, store, &row, &f));
    if (row < 0)
        return lathe_error(
            LATHE_E_NUMERIC,
            "%s %lld are not finite, although every parameter is: the computation in "
            "%s overflows%s",
            what, (long long)index, lathe_precision_name(compute_dtype),
            compute_dtype == LATHE_F32 ? "" : "; try --train.precision fp32");
    return lathe_error(
        LATHE_E_NUMERIC,
        "%s %lld are not finite, because %lld of %lld values of the parameter '%s' are not: the "
        "first is %g, at %lld; use the weights of an earlier checkpoint",
        what, (long long)index, (long long)f.n_bad,
        (long long)lathe_desc_count(&store->params->rows[row]->desc),
        store->params->rows[row]->name, f.value, (long long)f.first);
}

static void describe(lathe_nonfinite *s, int32_t node, int32_t output, const finding *f,
                     int32_t micro)
{
    static const char *const phases[] = {"forward", "backward", "forward again"};
    const lathe_graph *g = lathe_exec_graph(s->program->exec);
    const lathe_ir_node *n = &g->nodes[node];
    const lathe_ir_value *v = &g->values[n->out[output]];
    char shape[64], layer[32] = "", which[160] = "the output";
    if (v->kind == LATHE_VALUE_GRAD)
        (void)snprintf(which, sizeof which, "the gradient of '%s',",
                       s->store->params->rows[v->param]->name);
    else if (n->n_out > 1)
        (void)snprintf(which, sizeof which, "output %d", output);
    if (n->layer >= 0)
        (void)snprintf(layer, sizeof layer, "layer %d, ", n->layer);
    (void)snprintf(
        s->line, (size_t)s->line_bytes,
        "first in micro-batch %d: %s of node %d, %s '%s' (%s%s), %s: %lld values are bad, "
        "the first %g at %lld",
        micro, which, node, lathe_op_info_get(n->op)->name, n->label, layer, phases[n->phase],
        lathe_desc_text(&v->desc, shape, sizeof shape), (long long)f->n_bad, f->value,
        (long long)f->first);
}

lathe_status lathe_nonfinite_in_nodes(lathe_nonfinite *s, int32_t begin, int32_t end,
                                      int32_t accumulates, int32_t micro)
{
    lathe_exec *x = s->program->exec;
    const lathe_graph *g = lathe_exec_graph(x);
    const int stays = s->store->gathers != NULL; /* other ranks need this one at each gather */
    for (int32_t i = begin; i < end && (!s->is_found || stays); i++) {
        LATHE_TRY(lathe_exec_run_range(x, i, i + 1, accumulates));
        const int computes = lathe_op_info_get(g->nodes[i].op)->runs_on != LATHE_RUNS_BESIDE;
        for (int32_t k = 0; k < g->nodes[i].n_out && computes && !s->is_found; k++) {
            const lathe_val v = g->nodes[i].out[k];
            if (v == LATHE_NONE)
                continue;
            finding f;
            LATHE_TRY(look(s->machine, lathe_exec_data(x, v), &g->values[v].desc, &f));
            s->is_found = f.first >= 0;
            if (s->is_found)
                describe(s, i, k, &f, micro);
        }
    }
    return LATHE_OK;
}
