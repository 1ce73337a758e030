/* awq: searches scales of inputs that lower the error of the layers' outputs.
 *
 *   s = m^a            m: mean magnitude of an input, the paper's choice
 *   s = m^a / v^(1-a)  v: mean magnitude of its weights, relative to the largest of their group
 *
 * with a on a grid of 20 steps, divided by sqrt(max s * min s). The error of an output with the
 * weights w, whose rounded form of w*s is r, is d^T H d with d = r/s - w and H the products of the
 * inputs. The least sum over all outputs of all layers wins; s = 1 is a candidate.
 *
 * Sources: arXiv:2306.00978, section 3.2, equations 4 and 5; AutoAWQ 0.2 (duo_scaling) for the
 * second form. Deviation: the error is that of the linear layers' outputs, for q, k and v too,
 * where AutoAWQ takes the output of the attention; and it is computed from H instead of the inputs.
 */
#include <math.h>
#include <stdlib.h>

#include "awq.h"

enum { STEPS = 20, TILE = 32, WIDTH = 16, LANES = 8, HEIGHT = 4 };

typedef float lanes __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

typedef struct search {
    const awq *q;
    const lathe_quant_layers *layers;
    int64_t cols, group, stride; /* stride: cols, up to a multiple of WIDTH */
    float *panels;               /* H by blocks of WIDTH columns, each [stride, WIDTH] */
    float *scales;               /* [cols] of the candidate */
    double *errors;              /* [tiles] */
    int32_t failed;              /* 1: no memory */
} search;

/* ---- the error of a candidate ---- */

/* d[k] = the rounding of a row's weights, as seen by the inputs as they are. */
CODEC_BODY void round_row(const search *s, const float *w, float *scaled, float *d)
{
    const float top = (float)((1 << AWQ_BITS) - 1);
    for (int64_t i = 0; i < s->cols; i++)
        scaled[i] = w[i] * s->scales[i];
    for (int64_t first = 0; first < s->cols; first += s->group) {
        const range_params r =
            range_of(scaled + first, s->group, AWQ_BITS, s->q->symmetric, 0, s->q->dtype);
        const float zero = (float)r.zero, step = r.scale;
        for (int64_t i = first; i < first + s->group; i++) {
            float q = rintf(scaled[i] / step) + zero;
            q = q < 0.0f ? 0.0f : q > top ? top : q;
            d[i] = (q - zero) * step / s->scales[i] - w[i];
        }
    }
}

/* d^T H d of HEIGHT rows for the columns of one panel: those before it count twice, because H is
 * symmetric. */
CODEC_BODY double panel_error(const float *d, int64_t stride, const float *panel, int64_t first)
{
    lanes sums[HEIGHT][WIDTH / LANES] = {{{0}}};
    double error = 0.0;
    for (int64_t i = 0; i < first + WIDTH; i++) {
        if (i == first)
            for (int r = 0; r < HEIGHT; r++)
                for (int c = 0; c < WIDTH / LANES; c++)
                    sums[r][c] += sums[r][c];
        for (int c = 0; c < WIDTH / LANES; c++) {
            const lanes h = *(const lanes *)(const void *)(panel + i * WIDTH + c * LANES);
            for (int r = 0; r < HEIGHT; r++)
                sums[r][c] += h * d[r * stride + i];
        }
    }
    for (int r = 0; r < HEIGHT; r++)
        for (int k = 0; k < WIDTH; k++)
            error += (double)sums[r][k / LANES][k % LANES] * (double)d[r * stride + first + k];
    return error;
}

/* The layer and the first output of a tile. */
static int64_t find_tile(const lathe_quant_layers *layers, int64_t tile, int32_t *out_layer)
{
    int32_t layer = 0;
    while (tile >= (layers->rows[layer] + TILE - 1) / TILE) {
        tile -= (layers->rows[layer] + TILE - 1) / TILE;
        layer++;
    }
    *out_layer = layer;
    return tile * TILE;
}

/* room: [TILE + 1, stride], zero in the columns that a row does not have. */
CODEC_BODY double tile_error(const search *s, int64_t tile, float *room)
{
    int32_t layer;
    const int64_t first = find_tile(s->layers, tile, &layer);
    const int64_t left = s->layers->rows[layer] - first, n = left < TILE ? left : TILE;
    float *const scaled = room + TILE * s->stride;
    double error = 0.0;
    for (int64_t r = 0; r < TILE; r++) {
        float *const d = room + r * s->stride;
        if (r < n)
            round_row(s, s->layers->weights[layer] + (first + r) * s->cols, scaled, d);
        else
            memset(d, 0, (size_t)s->cols * sizeof *d);
    }
    for (int64_t k = 0; k < s->stride; k += WIDTH)
        for (int64_t r = 0; r < n; r += HEIGHT)
            error += panel_error(room + r * s->stride, s->stride, s->panels + k * s->stride, k);
    return error;
}

CODEC_BODY void errors_body(void *arg, int64_t begin, int64_t end)
{
    search *s = arg;
    float *room = calloc((size_t)((TILE + 1) * s->stride), sizeof *room);
    if (room == NULL)
        __atomic_store_n(&s->failed, 1, __ATOMIC_RELAXED);
    for (int64_t tile = begin; room != NULL && tile < end; tile++)
        s->errors[tile] = tile_error(s, tile, room);
    free(room);
}
CODEC_LOOP(tile_errors, errors_body)

static int64_t n_tiles(const lathe_quant_layers *layers)
{
    int64_t n = 0;
    for (int32_t i = 0; i < layers->n; i++)
        n += (layers->rows[i] + TILE - 1) / TILE;
    return n;
}

/* The error of the candidate `scales`, one for each place. */
static double error_of(search *s, const float *scales)
{
    const int64_t n = n_tiles(s->layers);
    double sum = 0.0;
    for (int64_t i = 0; i < s->cols; i++)
        s->scales[i] = scales[s->layers->from[i]];
    s->q->head.host->parallel_for(n, 1, tile_errors[s->q->head.build], s);
    for (int64_t i = 0; i < n; i++)
        sum += s->errors[i];
    return sum;
}

/* ---- the candidates ---- */

/* Means over the inputs of each place, from which the candidates are computed. A place with no
 * weights or whose inputs are always 0 has m = 0 and keeps the scale 1. */
typedef struct magnitudes {
    double *m, *v; /* [n_places] */
    int64_t n;
} magnitudes;

static void measure(const search *s, double *counts, magnitudes *x)
{
    const lathe_quant_layers *l = s->layers;
    double n_rows = 0.0;
    for (int32_t k = 0; k < l->n; k++) {
        n_rows += (double)l->rows[k];
        for (int64_t at = 0; at < l->rows[k] * l->cols; at += s->group) {
            const float *const w = l->weights[k] + at;
            float top = 0.0f;
            for (int64_t i = 0; i < s->group; i++)
                top = fabsf(w[i]) > top ? fabsf(w[i]) : top;
            for (int64_t i = 0; i < s->group; i++)
                x->v[l->from[at % l->cols + i]] += (double)(fabsf(w[i]) / (top + 1e-6f));
        }
    }
    for (int64_t i = 0; i < l->cols; i++) {
        x->m[l->from[i]] += (double)l->inputs->magnitudes[i];
        counts[l->from[i]] += 1.0;
    }
    for (int64_t p = 0; p < x->n; p++) {
        if (counts[p] == 0.0)
            continue;
        x->m[p] /= counts[p];
        x->v[p] /= counts[p] * n_rows;
    }
}

/* The scales for the exponent a; with_weights: the second form. */
static void make_scales(const magnitudes *x, double a, int with_weights, float *scales)
{
    double least = INFINITY, max = 0.0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t p = 0; p < x->n; p++) {
            const double weight = with_weights ? pow(x->v[p], 1.0 - a) + 1e-4 : 1.0;
            const double raw = pow(x->m[p], a) / weight, s = raw > 1e-4 ? raw : 1e-4;
            if (x->m[p] > 0.0 && pass == 0) {
                least = s < least ? s : least;
                max = s > max ? s : max;
            }
            if (pass == 1)
                scales[p] = x->m[p] > 0.0 ? (float)(s / sqrt(least * max)) : 1.0f;
        }
}

static void choose(search *s, const magnitudes *x, float *candidate, float *best)
{
    double least = INFINITY;
    for (int with_weights = 0; with_weights < 2; with_weights++)
        for (int step = 0; step <= STEPS; step++) {
            make_scales(x, (double)step / STEPS, with_weights, candidate);
            const double error = error_of(s, candidate);
            if (error < least) {
                least = error;
                memcpy(best, candidate, (size_t)x->n * sizeof *best);
            }
        }
}

/* ---- the table's function ---- */

/* The panel of columns k .. k+WIDTH-1 has the rows 0 .. k+WIDTH-1 of H; the rest is not read. */
static void pack(search *s, const float *products)
{
    for (int64_t k = 0; k < s->stride; k += WIDTH)
        for (int64_t i = 0; i < k + WIDTH && i < s->cols; i++)
            for (int64_t c = 0; c < WIDTH && k + c < s->cols; c++)
                s->panels[k * s->stride + i * WIDTH + c] = products[i * s->cols + k + c];
}

static lathe_status run(search *s, float *scales)
{
    const int64_t n = s->layers->n_places;
    float *candidate = calloc((size_t)n, sizeof *candidate);
    double *counts = calloc((size_t)n, sizeof *counts);
    magnitudes x = {
        .m = calloc((size_t)n, sizeof *x.m), .v = calloc((size_t)n, sizeof *x.v), .n = n};
    if (candidate == NULL || counts == NULL || x.m == NULL || x.v == NULL) {
        s->failed = 1;
    } else {
        pack(s, s->layers->inputs->products);
        measure(s, counts, &x);
        choose(s, &x, candidate, scales);
    }
    free(x.v);
    free(x.m);
    free(counts);
    free(candidate);
    return s->failed ? lathe_fail(s->q->head.host, LATHE_E_NOMEM,
                                  "awq: no memory to search the scales of %lld inputs",
                                  (long long)s->cols)
                     : LATHE_OK;
}

lathe_status awq_scale_inputs(void *self, const lathe_quant_layers *layers, float *scales)
{
    const awq *q = self;
    const int64_t stride = (layers->cols + WIDTH - 1) / WIDTH * WIDTH;
    search s = {.q = q,
                .layers = layers,
                .cols = layers->cols,
                .group = awq_group(q, layers->cols),
                .stride = stride};
    for (int64_t p = 0; p < layers->n_places; p++)
        scales[p] = 1.0f;
    if (!q->scales_inputs)
        return LATHE_OK;
    for (int32_t i = 0; i < layers->n; i++)
        LATHE_TRY(awq_accepts(self, layers->rows[i], layers->cols));
    s.panels = calloc((size_t)(stride * stride), sizeof *s.panels);
    s.scales = calloc((size_t)layers->cols, sizeof *s.scales);
    s.errors = calloc((size_t)n_tiles(layers), sizeof *s.errors);
    s.failed = s.panels == NULL || s.scales == NULL || s.errors == NULL;
    const lathe_status status =
        s.failed ? lathe_fail(q->head.host, LATHE_E_NOMEM,
                              "awq: no memory to search the scales of %lld inputs",
                              (long long)layers->cols)
                 : run(&s, scales);
    free(s.errors);
    free(s.scales);
    free(s.panels);
    return status;
}
