/* Encodes weights: to the nearest codes, or by GPTQ, which spreads the error of each input over the
 * inputs after it.
 *
 * GPTQ, for one output w [I] and the upper triangle U with U^T U = H^-1 (H: the inputs' products):
 *
 *   for each input i:  q_i = code of w_i;  e = (w_i - w'_i) / U[i,i];  w_k -= e * U[i,k] for k > i
 *
 * The scale and zero point of a group come from its weights as they are when its first input is
 * reached. The order of the inputs is that of H's diagonal, the largest first (act_order):
 *
 *   group   groups stay what they are; the group with the largest entry comes first, and in a group
 *           its largest entry. Files and products are those of "none".
 *   full    a group is made of inputs that follow one another in that order (g_idx).
 *
 * Source: arXiv:2210.17323, algorithm 1; damping as in its code: H += damping * mean(diag H) * I.
 * "group" is act_group_aware of GPTQModel.
 */
#include <math.h>
#include <stdlib.h>

#include "gptq.h"

/* State of an encoding that all outputs share. */
typedef struct encoder {
    const gptq *q;
    int64_t rows, cols;
    const float *w;
    const int32_t *order;  /* [cols] inputs in the order in which they are quantized */
    const int32_t *groups; /* [cols] group of the k-th in that order */
    const float *upper;    /* [cols, cols] U in that order; NULL: errors are not spread */
    uint8_t *codes;        /* [cols, rows] by input */
    range_params *ranges;  /* [groups, rows] */
    int32_t bad;           /* 1: a weight is not finite; 2: no memory; set by any thread */
} encoder;

/* Copies an output in the order of its inputs; 0: a value is not finite. */
static int load(const encoder *e, int64_t row, float *w)
{
    int finite = 1;
    for (int64_t k = 0; k < e->cols; k++) {
        w[k] = e->w[row * e->cols + e->order[k]];
        finite &= isfinite(w[k]) != 0;
    }
    return finite;
}

/* The algorithm above for one output. w [cols]: its weights in the order of e->order; destroyed. */
static void encode_row(const encoder *e, int64_t row, float *w)
{
    const gptq *q = e->q;
    range_params *range = NULL;
    for (int64_t k = 0; k < e->cols; k++) {
        /* a group begins: its scale must fit the weights with the errors spread so far */
        if (k == 0 || e->groups[k] != e->groups[k - 1]) {
            int64_t n = 1;
            while (k + n < e->cols && e->groups[k + n] == e->groups[k])
                n++;
            range = &e->ranges[e->groups[k] * e->rows + row];
            *range = range_of(w + k, n, q->bits, q->symmetric, q->zero_offset, q->dtype);
        }
        const uint32_t code = range_code(range, w[k], q->bits);
        e->codes[e->order[k] * e->rows + row] = (uint8_t)code;
        if (e->upper == NULL)
            continue;
        const float *const u = e->upper + k * e->cols;
        const float error = (w[k] - range_value(range, code)) / u[k];
        for (int64_t i = k + 1; i < e->cols; i++)
            w[i] -= error * u[i];
    }
}

static void encode_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    encoder *e = arg;
    float *w = malloc((size_t)e->cols * sizeof *w);
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        if (w == NULL || !load(e, row, w)) {
            __atomic_store_n(&e->bad, w == NULL ? 2 : 1, __ATOMIC_RELAXED);
            break;
        }
        encode_row(e, row, w);
    }
    free(w);
}

/* Sets bits [at, at + bits) of a row of words that are `stride` words apart. */
static void put_bits(uint32_t *words, int64_t stride, int64_t at, int64_t bits, uint32_t code)
{
    const int64_t word = at >> 5, shift = at & 31;
    words[word * stride] |= code << shift;
    if (shift + bits > 32)
        words[(word + 1) * stride] |= code >> (32 - shift);
}

static void pack(const encoder *e, void *const *planes)
{
    const int64_t bits = e->q->bits, rows = e->rows, cols = e->cols;
    const int64_t n_groups = gptq_groups(e->q, cols), zero_words = rows * bits / 32;
    uint32_t *const codes = planes[PACKED_CODES], *const zeros = planes[PACKED_ZEROS];
    memset(codes, 0, (size_t)(cols * bits / 32 * rows) * sizeof *codes);
    memset(zeros, 0, (size_t)(n_groups * zero_words) * sizeof *zeros);
    for (int64_t i = 0; i < cols; i++)
        for (int64_t row = 0; row < rows; row++)
            put_bits(codes + row, rows, i * bits, bits, e->codes[i * rows + row]);
    for (int64_t g = 0; g < n_groups; g++)
        for (int64_t row = 0; row < rows; row++) {
            const range_params *r = &e->ranges[g * rows + row];
            put_bits(zeros + g * zero_words, 1, row * bits, bits,
                     (uint32_t)(r->zero - e->q->zero_offset));
            ((uint16_t *)planes[PACKED_SCALES])[g * rows + row] = r->bits16;
        }
    for (int64_t k = 0; k < cols; k++)
        ((int32_t *)planes[PACKED_GROUPS])[e->order[k]] = e->groups[k];
}

/* Whether a scale is too large for f16, as which files store it. */
static int has_wide_scale(const encoder *e)
{
    const int64_t n = gptq_groups(e->q, e->cols) * e->rows;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(e->ranges[i].scale))
            return 1;
    return 0;
}

/* Encodes all outputs, in any order: they do not depend on each other. */
static lathe_status run(encoder *e, void *const *planes)
{
    const gptq *q = e->q;
    const int64_t n_groups = gptq_groups(q, e->cols);
    lathe_status status = LATHE_OK;
    e->codes = malloc((size_t)(e->rows * e->cols));
    e->ranges = calloc((size_t)(n_groups * e->rows), sizeof *e->ranges);
    if (e->codes == NULL || e->ranges == NULL) {
        status = lathe_fail(q->head.host, LATHE_E_NOMEM, "gptq: no memory to encode a weight");
    } else {
        q->head.host->parallel_for(e->rows, 4, encode_rows, e);
        if (e->bad == 2)
            status = lathe_fail(q->head.host, LATHE_E_NOMEM, "gptq: no memory to encode a weight");
        else if (e->bad)
            status = lathe_fail(q->head.host, LATHE_E_NUMERIC,
                                "gptq: the weight [%lld, %lld] holds values that are not finite",
                                (long long)e->rows, (long long)e->cols);
        else if (has_wide_scale(e))
            status = lathe_fail(q->head.host, LATHE_E_NUMERIC,
                                "gptq: the weight [%lld, %lld] needs a scale above 65504, which "
                                "f16 does not have",
                                (long long)e->rows, (long long)e->cols);
        else
            pack(e, planes);
    }
    free(e->codes);
    free(e->ranges);
    return status;
}

/* ---- the order of the inputs ---- */

/* An input. The order is by group_importance, group, importance and index: the index comes last, so
 * that equal inputs have one order on every machine. */
typedef struct input {
    float group_importance; /* the largest importance in its group; 0 unless groups stay together */
    float importance;       /* its entry of H's diagonal */
    int32_t group, index;
} input;

static int by_importance(const void *a, const void *b)
{
    const input *x = a, *y = b;
    if (x->group_importance != y->group_importance)
        return x->group_importance > y->group_importance ? -1 : 1;
    if (x->group != y->group)
        return x->group - y->group;
    if (x->importance != y->importance)
        return x->importance > y->importance ? -1 : 1;
    return x->index - y->index;
}

/* Gives the inputs of each group the key that keeps them together. */
static void rank_groups(const gptq *q, int64_t cols, input *list)
{
    const int64_t size = gptq_group(q, cols);
    for (int64_t g = 0; g < cols; g += size) {
        const int64_t end = g + size < cols ? g + size : cols;
        float largest = list[g].importance;
        for (int64_t i = g; i < end; i++)
            largest = fmaxf(largest, list[i].importance);
        for (int64_t i = g; i < end; i++) {
            list[i].group_importance = largest;
            list[i].group = (int32_t)(g / size);
        }
    }
}

/* Fills order and groups, [cols] each. products: [cols, cols] or NULL. */
static lathe_status make_order(const gptq *q, int64_t cols, const float *products, int32_t *order,
                               int32_t *groups)
{
    input *list = malloc((size_t)cols * sizeof *list);
    if (list == NULL)
        return lathe_fail(q->head.host, LATHE_E_NOMEM, "gptq: no memory for the order of inputs");
    const int32_t by = products != NULL ? q->act_order : GPTQ_ORDER_NONE;
    for (int64_t i = 0; i < cols; i++)
        list[i] = (input){.importance = products != NULL ? products[i * cols + i] : 0.0f,
                          .index = (int32_t)i};
    if (by == GPTQ_ORDER_GROUP)
        rank_groups(q, cols, list);
    if (by != GPTQ_ORDER_NONE)
        qsort(list, (size_t)cols, sizeof *list, by_importance);
    for (int64_t k = 0; k < cols; k++) {
        const int64_t place = by == GPTQ_ORDER_FULL ? k : list[k].index;
        order[k] = list[k].index;
        groups[k] = (int32_t)(place / gptq_group(q, cols));
    }
    free(list);
    return LATHE_OK;
}

/* ---- U ---- */

/* Rows that are eliminated together: each row after a panel stays in the cache while the 64 rows of
 * the panel are subtracted from it. */
enum { PANEL = 64 };

/* A matrix [n, n] under way; threads share its rows or columns. */
typedef struct factor {
    double *r, *x; /* [n, n] R, and its inverse */
    int64_t n, panel;
} factor;

/* Row i -= r[j, i] * row j, from column i on: the columns before it are of the lower triangle. */
static void subtract(const factor *f, int64_t i, int64_t j)
{
    double *const to = f->r + i * f->n;
    const double *const row = f->r + j * f->n, c = row[i];
    for (int64_t k = i; k < f->n; k++)
        to[k] -= c * row[k];
}

/* Subtracts the part of the panel's rows in R^T R from rows [begin, end) after the panel. */
static void eliminate(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const factor *f = arg;
    const int64_t after = f->panel + PANEL;
    (void)worker;
    for (int64_t i = after + begin; i < after + end; i++)
        for (int64_t j = f->panel; j < after; j++)
            subtract(f, i, j);
}

/* In place: the upper triangle R of a matrix R^T R, from its upper triangle, a panel of rows at a
 * time. 0: it is not positive definite. */
static int cholesky(const lathe_host *host, factor *f)
{
    const int64_t n = f->n;
    for (f->panel = 0; f->panel < n; f->panel += PANEL) {
        const int64_t end = f->panel + PANEL < n ? f->panel + PANEL : n;
        for (int64_t j = f->panel; j < end; j++) {
            double *const row = f->r + j * n;
            if (!(row[j] > 0.0)) /* also NaN */
                return 0;
            const double root = sqrt(row[j]);
            for (int64_t k = j; k < n; k++)
                row[k] /= root;
            for (int64_t i = j + 1; i < end; i++)
                subtract(f, i, j);
        }
        if (end < n)
            host->parallel_for(n - end, 16, eliminate, f);
    }
    return 1;
}

/* Columns [begin, end) of the inverse of R: row by row from the last on. */
static void invert_columns(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const factor *f = arg;
    const int64_t n = f->n;
    (void)worker;
    for (int64_t j = end - 1; j >= 0; j--) {
        double *const to = f->x + j * n;
        const double *const r = f->r + j * n;
        for (int64_t k = j + 1; k < end; k++) {
            const double *const from = f->x + k * n;
            const int64_t first = begin > k ? begin : k;
            for (int64_t c = first; c < end; c++)
                to[c] -= r[k] * from[c];
        }
        if (j >= begin)
            to[j] += 1.0;
        for (int64_t c = begin > j ? begin : j; c < end; c++)
            to[c] /= r[j];
    }
}

/* U of the products in the given order, with damping. With the inputs in the reverse order the
 * products are R^T R; then U is the inverse of R^T, turned around in both directions. */
static lathe_status make_upper(const gptq *q, int64_t n, const float *products,
                               const int32_t *order, float *upper)
{
    const lathe_host *host = q->head.host;
    factor f = {.r = malloc((size_t)(n * n) * sizeof *f.r),
                .x = calloc((size_t)(n * n), sizeof *f.x),
                .n = n};
    lathe_status status = LATHE_OK;
    double mean = 0.0;
    /* in doubles: H of thousands of similar inputs is nearly singular */
    if (f.r == NULL || f.x == NULL) {
        status = lathe_fail(host, LATHE_E_NOMEM,
                            "gptq: no memory to invert products of %lld inputs", (long long)n);
        goto done;
    }
    for (int64_t i = 0; i < n; i++)
        mean += (double)products[i * n + i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++)
            f.r[i * n + k] = (double)products[order[n - 1 - i] * n + order[n - 1 - k]];
    for (int64_t i = 0; i < n; i++)
        f.r[i * n + i] +=
            q->damping * mean + (f.r[i * n + i] == 0.0 ? 1.0 : 0.0); /* unused input */
    if (!cholesky(host, &f)) {
        status =
            lathe_fail(host, LATHE_E_NUMERIC,
                       "gptq: the products of %lld inputs are singular: raise quant.damping, or "
                       "calibrate on more text",
                       (long long)n);
        goto done;
    }
    host->parallel_for(n, 64, invert_columns, &f);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = i; k < n; k++)
            upper[i * n + k] = (float)f.x[(n - 1 - k) * n + n - 1 - i];
done:
    free(f.r);
    free(f.x);
    return status;
}

/* ---- the table's functions ---- */

/* order and groups: [cols] scratch; upper: [cols, cols], or NULL without products. */
static lathe_status encode_in(const gptq *q, int64_t rows, int64_t cols, const float *w,
                              const float *products, int32_t *order, int32_t *groups, float *upper,
                              void *const *planes)
{
    encoder e = {.q = q,
                 .rows = rows,
                 .cols = cols,
                 .w = w,
                 .order = order,
                 .groups = groups,
                 .upper = upper};
    LATHE_TRY(make_order(q, cols, products, order, groups));
    if (upper != NULL)
        LATHE_TRY(make_upper(q, cols, products, order, upper));
    return run(&e, planes);
}

static lathe_status encode(const gptq *q, int64_t rows, int64_t cols, const float *w,
                           const float *products, void *const *planes)
{
    int32_t *order = calloc((size_t)cols, sizeof *order);
    int32_t *groups = calloc((size_t)cols, sizeof *groups);
    float *upper = products != NULL ? calloc((size_t)(cols * cols), sizeof *upper) : NULL;
    const int has_room = order != NULL && groups != NULL && (products == NULL || upper != NULL);
    const lathe_status status =
        has_room ? encode_in(q, rows, cols, w, products, order, groups, upper, planes)
                 : lathe_fail(q->head.host, LATHE_E_NOMEM, "gptq: no memory to encode a weight");
    free(order);
    free(groups);
    free(upper);
    return status;
}

lathe_status gptq_encode(void *self, int64_t rows, int64_t cols, const float *w,
                         void *const *planes)
{
    return encode(self, rows, cols, w, NULL, planes);
}

lathe_status gptq_encode_calibrated(void *self, int64_t rows, int64_t cols, const float *w,
                                    const lathe_quant_inputs *inputs, void *const *planes)
{
    return encode(self, rows, cols, w, inputs->products, planes);
}
