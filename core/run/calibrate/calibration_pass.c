/* Calibration data, layer by layer. */
#include "run/calibrate/calibration_pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/program/batch_load.h"
#include "exec/store/weight_fill.h"
#include "files/safetensors/convert.h"
#include "plug/answers.h"
#include "run/calibrate/channel_source.h"

enum { MAX_INPUTS = 64 };

/* The inputs of linear layers that one value of the graph is, in the range that runs. */
typedef struct gathered {
    lathe_val x;
    int64_t n, cols;   /* rows so far */
    float *products;   /* [cols, cols] sum of x x^T */
    double *sums;      /* [cols] sum of |x|; NULL: nobody asks for it */
    float *magnitudes; /* [cols] its mean */
    lathe_kernel *kernel;
    void *scratch;
} gathered;

typedef struct calibrator {
    const lathe_calibration_pass *pass;
    lathe_run *run;
    lathe_program *program;
    const lathe_graph *g;
    lathe_weight_fill fill;
    lathe_val *crossing; /* [n_crossing] values that cross the cut before the range */
    int32_t n_crossing;
    char **kept; /* [n_batches] their bytes, one after another */
    gathered inputs[MAX_INPUTS];
    int32_t n_inputs;
    int64_t n_done, n_all; /* micro-batches that ran through a range */
} calibrator;

/* ---- the graph ---- */

/* The parameter whose product node i computes, if its inputs are wanted; NULL: none. */
static const lathe_param *site_of(const calibrator *c, int32_t i)
{
    const lathe_ir_node *n = &c->g->nodes[i];
    if (n->op != LATHE_OP_LINEAR && n->op != LATHE_OP_LINEAR_GELU)
        return NULL;
    const lathe_ir_value *w = &c->g->values[n->in[1]];
    if (w->kind != LATHE_VALUE_PARAM || w->param < 0)
        return NULL;
    const lathe_param *p = c->g->params->rows[w->param];
    return c->pass->wants(c->pass->arg, p->name) ? p : NULL;
}

/* One past the last node of the model's layers 0..layer; begin: of the range before. */
static int32_t range_end(const lathe_graph *g, int32_t layer, int32_t begin)
{
    int32_t end = begin;
    for (int32_t i = begin; i < g->n_nodes; i++)
        if (g->nodes[i].layer >= 0 && g->nodes[i].layer <= layer)
            end = i + 1;
    return end;
}

/* Lists the values that nodes before `cut` write and nodes from there on read. */
static lathe_status find_crossing(calibrator *c, int32_t cut)
{
    const lathe_graph *g = c->g;
    uint8_t *made = calloc((size_t)g->n_values + 1, 1),
            *listed = calloc((size_t)g->n_values + 1, 1);
    lathe_status status = made != NULL && listed != NULL
                              ? LATHE_OK
                              : lathe_error(LATHE_E_NOMEM, "no memory for the values of a layer");
    c->n_crossing = 0;
    for (int32_t i = 0; i < cut && status == LATHE_OK; i++)
        for (int32_t k = 0; k < g->nodes[i].n_out; k++)
            if (g->nodes[i].out[k] != LATHE_NONE)
                made[lathe_graph_root(g, g->nodes[i].out[k])] = 1;
    for (int32_t i = cut; i < g->n_nodes && status == LATHE_OK; i++)
        for (int32_t k = 0; k < g->nodes[i].n_in; k++) {
            if (g->nodes[i].in[k] == LATHE_NONE)
                continue;
            const lathe_val v = lathe_graph_root(g, g->nodes[i].in[k]);
            if (!made[v] || listed[v] || lathe_graph_is_persistent(g, v))
                continue;
            listed[v] = 1;
            c->crossing[c->n_crossing++] = v;
        }
    free(made);
    free(listed);
    return status;
}

/* Copies the crossing values of a micro-batch out of the arena, or back into it. */
static lathe_status keep(calibrator *c, int64_t batch, int restores)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < c->n_crossing; i++)
        bytes += lathe_desc_bytes(&c->g->values[c->crossing[i]].desc);
    if (!restores) {
        free(c->kept[batch]);
        c->kept[batch] = malloc((size_t)bytes + 1);
        if (c->kept[batch] == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory to keep %lld bytes of micro-batch %lld",
                               (long long)bytes, (long long)batch + 1);
    }
    char *at = c->kept[batch];
    for (int32_t i = 0; i < c->n_crossing; i++) {
        const int64_t n = lathe_desc_bytes(&c->g->values[c->crossing[i]].desc);
        void *data = lathe_exec_data(c->program->exec, c->crossing[i]);
        memcpy(restores ? data : at, restores ? at : data, (size_t)n);
        at += n;
    }
    return LATHE_OK;
}

/* ---- the products of inputs ---- */

static void forget_inputs(calibrator *c)
{
    for (int32_t i = 0; i < c->n_inputs; i++) {
        gathered *x = &c->inputs[i];
        if (x->kernel != NULL)
            c->run->machine.dev->kernel_destroy(c->run->machine.device->self, x->kernel);
        free(x->products);
        free(x->sums);
        free(x->magnitudes);
        free(x->scratch);
    }
    c->n_inputs = 0;
}

/* products += x^T x, as the product that gives the gradient of a weight. */
static lathe_status make_kernel(calibrator *c, gathered *x, const lathe_desc *desc)
{
    const lathe_machine *m = &c->run->machine;
    static const lathe_op_attrs attrs;
    const lathe_desc in[2] = {*desc, *desc};
    const lathe_desc out[2] = {lathe_desc_2d(LATHE_F32, x->cols, x->cols),
                               {LATHE_ABSENT, 0, {1, 1, 1, 1}}};
    int64_t bytes = 0;
    const lathe_kernel_problem problem = {.size = (uint32_t)sizeof problem,
                                          .op = LATHE_OP_LINEAR_DW,
                                          .attrs = &attrs,
                                          .in = in,
                                          .out = out,
                                          .n_in = 2,
                                          .n_out = 2,
                                          .may_accumulate = 1,
                                          .flags = m->flags,
                                          .n_threads = m->n_threads};
    LATHE_TRY(lathe_answer_kernel(m->device, &problem, &x->kernel, &bytes));
    x->scratch = bytes > 0 ? aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64) : NULL;
    return bytes > 0 && x->scratch == NULL
               ? lathe_error(LATHE_E_NOMEM, "no memory for products of inputs")
               : LATHE_OK;
}

static lathe_status new_input(calibrator *c, lathe_val v, gathered **out)
{
    const lathe_desc *desc = &c->g->values[v].desc;
    if (c->n_inputs == MAX_INPUTS)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "a layer with more than %d different inputs of linear layers",
                           MAX_INPUTS);
    gathered *x = &c->inputs[c->n_inputs];
    *x = (gathered){.x = v, .cols = desc->dims[1]};
    c->n_inputs++;
    x->products = aligned_alloc(64, (size_t)(x->cols * x->cols * 4 + 63) / 64 * 64);
    if (x->products == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the products of %lld inputs",
                           (long long)x->cols);
    memset(x->products, 0, (size_t)(x->cols * x->cols) * 4);
    if (c->pass->scale != NULL || c->pass->sums_magnitudes) {
        x->sums = calloc((size_t)x->cols, sizeof *x->sums);
        x->magnitudes = calloc((size_t)x->cols, sizeof *x->magnitudes);
        if (x->sums == NULL || x->magnitudes == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory for the magnitudes of %lld inputs",
                               (long long)x->cols);
    }
    *out = x;
    return make_kernel(c, x, desc);
}

static gathered *find_input(calibrator *c, lathe_val v)
{
    for (int32_t i = 0; i < c->n_inputs; i++)
        if (c->inputs[i].x == v)
            return &c->inputs[i];
    return NULL;
}

/* sums += |x| over the rows, in their order. */
static lathe_status add_magnitudes(gathered *x, const lathe_desc *desc, const void *data)
{
    const int64_t row_bytes = x->cols * lathe_dtype_bytes(desc->dtype);
    for (int64_t r = 0; r < desc->dims[0]; r++) {
        LATHE_TRY(lathe_convert(x->magnitudes, LATHE_F32, (const char *)data + r * row_bytes,
                                desc->dtype, x->cols));
        for (int64_t i = 0; i < x->cols; i++)
            x->sums[i] += (double)fabsf(x->magnitudes[i]);
    }
    return LATHE_OK;
}

/* Adds the inputs of node i for this micro-batch. first: the range's first node that reads them. */
static lathe_status gather(calibrator *c, int32_t i, int64_t batch, int64_t *seen)
{
    const lathe_val v = c->g->nodes[i].in[0];
    const lathe_machine *m = &c->run->machine;
    gathered *x = find_input(c, v);
    if (x == NULL)
        LATHE_TRY(new_input(c, v, &x));
    if (seen[x - c->inputs] > batch)
        return LATHE_OK; /* another layer of the same input */
    seen[x - c->inputs] = batch + 1;
    const void *data = lathe_exec_data(c->program->exec, v);
    const void *const in[2] = {data, data};
    void *const out[2] = {x->products, NULL};
    const lathe_kernel_args args = {.size = (uint32_t)sizeof args,
                                    .accumulate = 1,
                                    .in = in,
                                    .out = out,
                                    .scratch = x->scratch,
                                    .stream = m->stream};
    LATHE_TRY(m->dev->kernel_run(m->device->self, x->kernel, &args));
    x->n += c->g->values[v].desc.dims[0];
    return x->sums != NULL ? add_magnitudes(x, &c->g->values[v].desc, data) : LATHE_OK;
}

/* ---- one range ---- */

static lathe_status load_batch(calibrator *c)
{
    lathe_run *run = c->run;
    lathe_batch b;
    lathe_batch_input inputs[LATHE_MAX_STAGE_INPUTS];
    double count = 0.0;
    LATHE_TRY(lathe_loader_next(run->data.validation, &b));
    if (b.ended)
        return lathe_error(LATHE_E_STATE, "the calibration data ended early");
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = b.n_rows,
                                   .row_tokens = b.row_tokens,
                                   .tokens = b.tokens,
                                   .targets = b.targets,
                                   .positions = b.positions,
                                   .doc_start = b.doc_start,
                                   .key_end = b.key_end,
                                   .inputs = inputs,
                                   .n_inputs = run->data.n_inputs};
    for (int32_t i = 0; i < run->data.n_inputs; i++)
        inputs[i] = (lathe_batch_input){.name = run->data.inputs[i].name, .values = b.inputs[i]};
    LATHE_TRY(lathe__batch_load(c->program, &run->model, &run->parts.stage, &batch, b.n_records, 0,
                                &count));
    return lathe_exec_send(c->program->exec);
}

/* Runs the nodes [begin, end) over all micro-batches. gathers: sums the products of inputs; else
 * keeps what crosses `end`, whose values are in next. */
static lathe_status run_range(calibrator *c, int32_t begin, int32_t end, int gathers,
                              calibrator *next)
{
    int64_t seen[MAX_INPUTS] = {0};
    LATHE_TRY(lathe_loader_seek(c->run->data.validation, &c->run->data.validation_start));
    for (int64_t b = 0; b < c->pass->n_batches; b++) {
        LATHE_TRY(lathe_work_tell(c->pass->watch, c->n_done++, c->n_all));
        LATHE_TRY(load_batch(c));
        if (begin > 0)
            LATHE_TRY(keep(c, b, 1));
        for (int32_t i = begin; i < end; i++) {
            if (gathers && site_of(c, i) != NULL)
                LATHE_TRY(gather(c, i, b, seen));
            LATHE_TRY(lathe_exec_run_range(c->program->exec, i, i + 1, 0));
        }
        if (next != NULL)
            LATHE_TRY(keep(next, b, 0));
    }
    return LATHE_OK;
}

/* Puts new values into the run's memory. */
static lathe_status put_weight(calibrator *c, int32_t param, const float *values)
{
    const lathe_weight_sink sink = lathe_weight_fill_sink(&c->fill);
    const lathe_param *row = c->g->params->rows[param];
    void *data = NULL;
    int32_t dtype = LATHE_F32;
    LATHE_TRY(sink.place(sink.arg, param, row, &data, &dtype));
    LATHE_TRY(lathe_convert(data, dtype, values, LATHE_F32, lathe_desc_count(&row->desc)));
    return sink.done(sink.arg, param, row, data);
}

/* Sums become means. */
static void take_means(calibrator *c)
{
    for (int32_t k = 0; k < c->n_inputs; k++) {
        gathered *x = &c->inputs[k];
        const float scale = 1.0f / (float)x->n;
        for (int64_t i = 0; i < x->cols * x->cols; i++)
            x->products[i] *= scale;
        for (int64_t i = 0; x->sums != NULL && i < x->cols; i++)
            x->magnitudes[i] = (float)(x->sums[i] / (double)x->n);
    }
}

static lathe_quant_inputs inputs_of(const gathered *x)
{
    return (lathe_quant_inputs){.size = (uint32_t)sizeof(lathe_quant_inputs),
                                .n = x->n,
                                .products = x->products,
                                .magnitudes = x->magnitudes};
}

static lathe_status replace_weights(calibrator *c, int32_t begin, int32_t end)
{
    for (int32_t i = begin; i < end; i++) {
        const lathe_param *p = site_of(c, i);
        const float *values = NULL;
        if (p == NULL)
            continue;
        const gathered *x = find_input(c, c->g->nodes[i].in[0]);
        const lathe_quant_inputs inputs = inputs_of(x);
        LATHE_TRY(c->pass->replace(c->pass->arg, p->name, &inputs, &values));
        if (values != NULL)
            LATHE_TRY(put_weight(c, c->g->values[c->g->nodes[i].in[1]].param, values));
    }
    return LATHE_OK;
}

/* ---- scales of inputs ---- */

/* The weights of the linear layers that read x; 0: one of them is not replaced. */
static int32_t layers_of(const calibrator *c, const gathered *x, const char **names)
{
    int32_t n = 0;
    for (int32_t i = 0; i < c->g->n_nodes; i++) {
        const lathe_ir_node *node = &c->g->nodes[i];
        if ((node->op != LATHE_OP_LINEAR && node->op != LATHE_OP_LINEAR_GELU) ||
            node->in[0] != x->x)
            continue;
        const lathe_param *p = site_of(c, i);
        if (p == NULL || n == MAX_INPUTS)
            return 0;
        names[n++] = p->name;
    }
    return n;
}

/* The inputs after a division: products [i,k] / (s_i s_k), magnitudes / s. */
static void divide_inputs(gathered *x, const int32_t *from, const float *scales)
{
    for (int64_t i = 0; i < x->cols; i++) {
        x->magnitudes[i] /= scales[from[i]];
        for (int64_t k = 0; k < x->cols; k++)
            x->products[i * x->cols + k] /= scales[from[i]] * scales[from[k]];
    }
}

static lathe_status put_vector(calibrator *c, int32_t param)
{
    const float *values =
        param >= 0 ? c->pass->vector(c->pass->arg, c->g->params->rows[param]->name) : NULL;
    return values != NULL ? put_weight(c, param, values) : LATHE_OK;
}

/* Lets the pass choose scales for the layers that read x, and takes what they change. */
static lathe_status scale_from(calibrator *c, gathered *x, const lathe_channel_source *source)
{
    const char *names[MAX_INPUTS];
    const lathe_param *const *rows = (const lathe_param *const *)c->g->params->rows;
    const lathe_quant_inputs inputs = inputs_of(x);
    const lathe_calibrated_layers layers = {.weights = names,
                                            .n = layers_of(c, x, names),
                                            .cols = x->cols,
                                            .inputs = &inputs,
                                            .source = rows[source->weight]->name,
                                            .bias =
                                                source->bias >= 0 ? rows[source->bias]->name : NULL,
                                            .is_norm = source->is_norm,
                                            .offset_one = source->offset_one,
                                            .n_places = source->n,
                                            .from = source->from};
    if (layers.n == 0)
        return LATHE_OK;
    float *scales = malloc((size_t)source->n * sizeof *scales);
    if (scales == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the scales of %d inputs", source->n);
    for (int32_t i = 0; i < source->n; i++)
        scales[i] = 1.0f;
    lathe_status status = c->pass->scale(c->pass->arg, &layers, scales);
    if (status != LATHE_OK)
        goto out;
    divide_inputs(x, source->from, scales);
    if (source->is_norm && (status = put_vector(c, source->weight)) != LATHE_OK)
        goto out;
    status = put_vector(c, source->bias);
out:
    free(scales);
    return status;
}

/* Whether the source is computed in the range, by a norm or by a layer that is replaced. */
static int is_in_range(const calibrator *c, const lathe_channel_source *source, int32_t begin)
{
    return source->node >= begin && (source->is_norm || site_of(c, source->node) != NULL);
}

static lathe_status scale_inputs(calibrator *c, int32_t begin)
{
    lathe_status status = LATHE_OK;
    for (int32_t k = 0; c->pass->scale != NULL && k < c->n_inputs && status == LATHE_OK; k++) {
        gathered *x = &c->inputs[k];
        lathe_channel_source source;
        int32_t *from = malloc((size_t)x->cols * sizeof *from);
        if (from == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory for the scales of %lld inputs",
                               (long long)x->cols);
        lathe__channel_source_find(c->g, x->x, from, &source);
        if (is_in_range(c, &source, begin))
            status = scale_from(c, x, &source);
        free(from);
    }
    return status;
}

/* Quantizes the weights of [begin, end) by the inputs that its first run gathers. */
static lathe_status quantize_range(calibrator *c, int32_t begin, int32_t end)
{
    LATHE_TRY(run_range(c, begin, end, 1, NULL));
    take_means(c);
    LATHE_TRY(scale_inputs(c, begin));
    return replace_weights(c, begin, end);
}

static lathe_status calibrate_range(calibrator *c, int32_t begin, int32_t end)
{
    calibrator next = *c; /* shares what was kept; has the values that cross `end` */
    next.crossing = calloc((size_t)c->g->n_values + 1, sizeof *next.crossing);
    if (next.crossing == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the values of a layer");
    lathe_status status = quantize_range(c, begin, end);
    forget_inputs(c);
    if (status == LATHE_OK)
        status = find_crossing(&next, end);
    if (status == LATHE_OK)
        status = run_range(c, begin, end, 0, &next);
    memcpy(c->crossing, next.crossing, (size_t)c->g->n_values * sizeof *c->crossing);
    c->n_crossing = next.n_crossing;
    free(next.crossing);
    return status;
}

static lathe_status go_through(calibrator *c)
{
    int32_t begin = 0;
    for (int32_t layer = 0; layer < c->run->params.n_layers; layer++) {
        const int32_t end = range_end(c->g, layer, begin);
        c->n_all += end > begin ? 2 * c->pass->n_batches : 0;
        begin = end;
    }
    begin = 0;
    for (int32_t layer = 0; layer < c->run->params.n_layers; layer++) {
        const int32_t end = range_end(c->g, layer, begin);
        if (end > begin)
            LATHE_TRY(calibrate_range(c, begin, end));
        begin = end;
    }
    return LATHE_OK;
}

lathe_status lathe__calibration_pass(const lathe_calibration_pass *pass)
{
    lathe_run *run = pass->run;
    if (!lathe_machine_memory(&run->machine)->is_in_place)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "calibration runs on a CPU: device \"%s\" has its own memory",
                           run->parts.device.component->plugin->name);
    calibrator c = {.pass = pass,
                    .run = run,
                    .program = &run->programs.eval,
                    .g = lathe_exec_graph(run->programs.eval.exec),
                    .fill = {.store = &run->store, .params = &run->params}};
    c.crossing = calloc((size_t)c.g->n_values + 1, sizeof *c.crossing);
    c.kept = calloc((size_t)pass->n_batches + 1, sizeof *c.kept);
    lathe_status status = c.crossing != NULL && c.kept != NULL
                              ? go_through(&c)
                              : lathe_error(LATHE_E_NOMEM, "no memory for a calibration");
    for (int64_t b = 0; c.kept != NULL && b < pass->n_batches; b++)
        free(c.kept[b]);
    free(c.kept);
    free(c.crossing);
    lathe_weight_fill_fini(&c.fill);
    return status;
}
