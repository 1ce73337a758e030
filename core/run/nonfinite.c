/* Searches a step for its first NaN or infinity. */
#include "run/nonfinite.h"

#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "ir/desc_text.h"
#include "ir/op_info.h"

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

static lathe_status look(lathe_run *run, const void *data, const lathe_desc *d, finding *out)
{
    search s = {d->dtype, {0, -1, 0.0}};
    if (data)
        LATHE_TRY(
            lathe_download_pieces(&run->machine, data, lathe_desc_bytes(d), look_at_piece, &s));
    *out = s.found;
    return LATHE_OK;
}

/* Finds the first parameter with NaN or infinity; *out_row -1: none. */
static lathe_status find_parameter(lathe_run *run, int32_t *out_row, finding *out)
{
    *out_row = -1;
    for (int32_t i = 0; i < run->params.n && *out_row < 0; i++) {
        const float *master = lathe_store_master(&run->store, i);
        lathe_desc d = run->params.rows[i]->desc;
        d.dtype = master ? LATHE_F32 : lathe_params_value_dtype(&run->params, i);
        LATHE_TRY(
            look(run, master ? (const void *)master : lathe_store_shadow(&run->store, i), &d, out));
        if (out->first >= 0)
            *out_row = i;
    }
    return LATHE_OK;
}

/* Searches the parameters. *out_found 1: one holds NaN or infinity, and the line names it. */
static lathe_status look_at_parameters(lathe_run *run, char *out, int64_t bytes, int *out_found)
{
    finding f;
    int32_t row;
    LATHE_TRY(find_parameter(run, &row, &f));
    *out_found = row >= 0;
    if (*out_found)
        (void)snprintf(out, (size_t)bytes,
                       "the parameter '%s' was bad before the step: %lld of %lld values, the first "
                       "%g at %lld",
                       run->params.rows[row]->name, (long long)f.n_bad,
                       (long long)lathe_desc_count(&run->params.rows[row]->desc), f.value,
                       (long long)f.first);
    return LATHE_OK;
}

lathe_status lathe__nonfinite_refuse(lathe_run *run, const char *what, int64_t index)
{
    finding f;
    int32_t row;
    LATHE_TRY(find_parameter(run, &row, &f));
    if (row < 0)
        return lathe_error(
            LATHE_E_NUMERIC,
            "%s %lld are not finite, although every parameter is: the computation in "
            "%s overflows%s",
            what, (long long)index, lathe_precision_name(run->set.compute_dtype),
            run->set.compute_dtype == LATHE_F32 ? "" : "; try --train.precision fp32");
    return lathe_error(
        LATHE_E_NUMERIC,
        "%s %lld are not finite, because %lld of %lld values of the parameter '%s' are "
        "not: the first is %g, at %lld; take the weights of an earlier checkpoint",
        what, (long long)index, (long long)f.n_bad,
        (long long)lathe_desc_count(&run->params.rows[row]->desc), run->params.rows[row]->name,
        f.value, (long long)f.first);
}

static void describe(const lathe_run *run, int32_t node, int32_t output, const finding *f,
                     int32_t micro, char *out, int64_t bytes)
{
    static const char *const phases[] = {"forward", "backward", "forward again"};
    const lathe_graph *g = lathe_exec_graph(run->programs.train.exec);
    const lathe_ir_node *n = &g->nodes[node];
    const lathe_ir_value *v = &g->values[n->out[output]];
    char shape[64], layer[32] = "", which[160] = "the output";
    if (v->kind == LATHE_VALUE_GRAD)
        (void)snprintf(which, sizeof which, "the gradient of '%s',",
                       run->params.rows[v->param]->name);
    else if (n->n_out > 1)
        (void)snprintf(which, sizeof which, "output %d", output);
    if (n->layer >= 0)
        (void)snprintf(layer, sizeof layer, "layer %d, ", n->layer);
    (void)snprintf(
        out, (size_t)bytes,
        "first in micro-batch %d: %s of node %d, %s '%s' (%s%s), %s: %lld values are bad, "
        "the first %g at %lld",
        micro, which, node, lathe_op_info_get(n->op)->name, n->label, layer, phases[n->phase],
        lathe_desc_text(&v->desc, shape, sizeof shape), (long long)f->n_bad, f->value,
        (long long)f->first);
}

/* Runs the nodes [begin, end) one by one. *out_found 1: a result was not finite, and the line names
 * it. */
static lathe_status run_looking(lathe_run *run, int32_t begin, int32_t end, int32_t micro,
                                char *out, int64_t bytes, int *out_found)
{
    lathe_exec *x = run->programs.train.exec;
    const lathe_graph *g = lathe_exec_graph(x);
    for (int32_t i = begin; i < end && !*out_found; i++) {
        LATHE_TRY(lathe_exec_run_range(x, i, i + 1, run->sum.backwards > 0));
        const int computes = lathe_op_info_get(g->nodes[i].op)->runs_on != LATHE_RUNS_BESIDE;
        for (int32_t k = 0; k < g->nodes[i].n_out && computes && !*out_found; k++) {
            const lathe_val v = g->nodes[i].out[k];
            if (v == LATHE_NONE)
                continue;
            finding f;
            LATHE_TRY(look(run, lathe_exec_data(x, v), &g->values[v].desc, &f));
            *out_found = f.first >= 0;
            if (*out_found)
                describe(run, i, k, &f, micro, out, bytes);
        }
    }
    return LATHE_OK;
}

static lathe_status replay(lathe_run *run, int32_t done, char *out, int64_t bytes)
{
    const int32_t n = run->set.gradient_accumulation_steps;
    const int32_t end = lathe_exec_graph(run->programs.train.exec)->n_nodes;
    int found = 0;
    for (int32_t m = done + 1; m <= n && !found; m++) {
        lathe_forward_result f = {.size = (uint32_t)sizeof f};
        LATHE_TRY(
            lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f)); /* the batch is in place now */
        run->sum.pending = 0;
        LATHE_TRY(run_looking(run, 0, run->programs.train.forward_end, m, out, bytes, &found));
        if (!found)
            LATHE_TRY(
                run_looking(run, run->programs.train.forward_end, end, m, out, bytes, &found));
        run->sum.backwards++;
    }
    if (!found)
        (void)snprintf(
            out, (size_t)bytes,
            "every tensor is finite when the step is computed again: suspect the hardware, "
            "or a kernel that does not repeat its results");
    return LATHE_OK;
}

lathe_status lathe__nonfinite_find(lathe_run *run, const lathe_position *begin, char *out,
                                   int64_t bytes)
{
    const lathe_counters at = run->at;
    int found = 0;
    LATHE_TRY(look_at_parameters(run, out, bytes, &found));
    if (found)
        return lathe_zero_grad(run);
    LATHE_TRY(lathe_zero_grad(run));
    LATHE_TRY(lathe_loader_seek(run->data.loader, &begin->cursor));
    run->at.micro = begin->micro;
    const lathe_status status = replay(run, begin->backwards, out, bytes);
    run->at = at;
    LATHE_TRY(lathe_zero_grad(run));
    LATHE_TRY(status);
    return lathe_loader_seek(run->data.loader, &at.cursor);
}
