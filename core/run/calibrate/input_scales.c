/* Scales of inputs: from the format into the weights. */
#include "run/calibrate/input_scales.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"

/* Layers with their weights in memory. */
typedef struct loaded {
    int32_t *rows;      /* [n] of the table of parameters */
    int64_t *n_outputs; /* [n] */
    float **weights;    /* [n] */
    int32_t n;
} loaded;

static void unload(loaded *l)
{
    for (int32_t i = 0; l->weights != NULL && i < l->n; i++)
        free(l->weights[i]);
    free(l->weights);
    free(l->n_outputs);
    free(l->rows);
}

static lathe_status load(const lathe_scaled_weights *w, const lathe_calibrated_layers *layers,
                         loaded *l)
{
    const size_t n = (size_t)layers->n;
    *l = (loaded){.n = layers->n};
    l->rows = calloc(n, sizeof *l->rows);
    l->n_outputs = calloc(n, sizeof *l->n_outputs);
    l->weights = calloc(n, sizeof *l->weights);
    if (l->rows == NULL || l->n_outputs == NULL || l->weights == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the scales of %d layers", layers->n);
    for (int32_t i = 0; i < layers->n; i++) {
        l->rows[i] = lathe_params_find(&w->run->params, layers->weights[i]);
        l->n_outputs[i] = w->run->params.rows[l->rows[i]]->desc.dims[0];
        l->weights[i] = malloc((size_t)(l->n_outputs[i] * layers->cols) * sizeof(float));
        if (l->weights[i] == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory to scale '%s'", layers->weights[i]);
        LATHE_TRY(lathe__scaled_weights_load(w, l->rows[i], l->weights[i]));
    }
    return LATHE_OK;
}

/* The format of all layers; NULL: they have several. */
static const lathe_instance *format_of(const lathe_scaled_weights *w, const loaded *l)
{
    const lathe_instance *format = w->run->params.rows[l->rows[0]]->format;
    for (int32_t i = 1; i < l->n; i++)
        if (w->run->params.rows[l->rows[i]]->format != format)
            return NULL;
    return format;
}

static lathe_status choose(const lathe_instance *format, const lathe_calibrated_layers *layers,
                           const loaded *l, float *scales)
{
    const lathe_quant_v1 *table = format->table;
    const lathe_quant_layers asked = {.size = (uint32_t)sizeof asked,
                                      .n = l->n,
                                      .cols = layers->cols,
                                      .rows = l->n_outputs,
                                      .weights = (const float *const *)l->weights,
                                      .inputs = layers->inputs,
                                      .from = layers->from,
                                      .n_places = layers->n_places};
    LATHE_TRY(table->scale_inputs(format->self, &asked, scales));
    for (int32_t i = 0; i < layers->n_places; i++)
        if (!(scales[i] > 0.0f) || !isfinite(scales[i]))
            return lathe_error(LATHE_E_PLUGIN,
                               "quant %s: scale_inputs() gives %g for input %d of '%s'; expected "
                               "positive, finite scales",
                               format->component->plugin->name, (double)scales[i], i,
                               layers->weights[0]);
    return LATHE_OK;
}

/* Places that make no input of these layers, such as the rows of q and k beside those of v, stay.
 */
static lathe_status keep_others(const lathe_calibrated_layers *layers, float *scales)
{
    uint8_t *used = calloc((size_t)layers->n_places, 1);
    if (used == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the scales of %d inputs",
                           layers->n_places);
    for (int64_t i = 0; i < layers->cols; i++)
        used[layers->from[i]] = 1;
    for (int32_t p = 0; p < layers->n_places; p++)
        scales[p] = used[p] ? scales[p] : 1.0f;
    free(used);
    return LATHE_OK;
}

/* scales become those that are used; factors: [cols] scratch. */
static lathe_status fold(lathe_scaled_weights *w, const lathe_calibrated_layers *layers,
                         const loaded *l, float *scales, float *factors)
{
    const lathe_params *params = &w->run->params;
    const lathe_scaled_source source = {
        .weight = lathe_params_find(params, layers->source),
        .bias = layers->bias != NULL ? lathe_params_find(params, layers->bias) : -1,
        .is_norm = layers->is_norm,
        .offset_one = layers->offset_one,
        .n = layers->n_places};
    LATHE_TRY(lathe__scaled_weights_divide(w, &source, scales));
    for (int64_t i = 0; i < layers->cols; i++)
        factors[i] = scales[layers->from[i]];
    for (int32_t i = 0; i < l->n; i++)
        LATHE_TRY(lathe__scaled_weights_multiply(w, l->rows[i], factors));
    return LATHE_OK;
}

static int32_t all_one(const float *scales, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (scales[i] != 1.0f)
            return 0;
    return 1;
}

lathe_status lathe__input_scales_fold(lathe_scaled_weights *w,
                                      const lathe_calibrated_layers *layers, float *scales,
                                      int32_t *out_changed)
{
    loaded l;
    float *factors = malloc((size_t)layers->cols * sizeof *factors);
    *out_changed = 0;
    for (int32_t i = 0; i < layers->n_places; i++)
        scales[i] = 1.0f;
    lathe_status status = load(w, layers, &l);
    if (status == LATHE_OK && factors == NULL)
        status = lathe_error(LATHE_E_NOMEM, "no memory for the scales of %lld inputs",
                             (long long)layers->cols);
    const lathe_instance *format = status == LATHE_OK ? format_of(w, &l) : NULL;
    if (format != NULL)
        status = choose(format, layers, &l, scales);
    if (status == LATHE_OK)
        status = keep_others(layers, scales);
    if (status == LATHE_OK && !all_one(scales, layers->n_places)) {
        *out_changed = 1;
        status = fold(w, layers, &l, scales, factors);
    }
    free(factors);
    unload(&l);
    return status;
}
