/* Merges several LoRA adapters by adding their matrices. */
#include "run/merge/merge_linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "run/merge/merge_site.h"

static int ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

lathe_status lathe__lora_pair_read(const lathe_merge_part *part, int32_t index, const char *why,
                                   lathe__lora_pair *out)
{
    const lathe_saved_state *saved = part->saved;
    out->store = saved->store;
    out->n = 0;
    out->a = out->b = -1;
    if (!saved->params->rows[index]->in_adapter)
        LATHE_TRY(lathe__site_params(out->store, index, out->list, &out->n));
    for (int32_t i = 0; i < out->n; i++) {
        const char *name = out->list[i].name;
        if (ends_in(name, ".lora_A.weight") || ends_in(name, ".lora_embedding_A"))
            out->a = i;
        if (ends_in(name, ".lora_B.weight") || ends_in(name, ".lora_embedding_B"))
            out->b = i;
    }
    if (out->n == 2 && out->a >= 0 && out->b >= 0)
        return LATHE_OK;
    for (int32_t i = 0; i < out->n; i++)
        if (i != out->a && i != out->b && out->a >= 0 && out->b >= 0)
            return lathe_error(LATHE_E_CONFIG, "%s, and the adapter in %s has '%s' beside them",
                               why, part->adapter, out->list[i].name);
    return lathe_error(LATHE_E_CONFIG, "%s, and the adapter in %s has something else at '%s'", why,
                       part->adapter, saved->params->rows[index]->name);
}

/* Finds the factor by which merge() multiplies B A: it merges matrices of a single 1. */
lathe_status lathe__lora_pair_factor(const lathe_merge_part *part, const lathe__lora_pair *p,
                                     int32_t index, double *out)
{
    const lathe_saved_state *saved = part->saved;
    const lathe_param *row = saved->params->rows[index];
    const lathe_desc one = lathe_desc_2d(LATHE_F32, 1, 1);
    const int is_embedding = strcmp(row->name, saved->model->embedding) == 0; /* A is [V, r] */
    const int64_t r = p->list[p->b].desc.dims[1];
    if (row->n_experts > 0)
        return lathe_error(
            LATHE_E_UNSUPPORTED,
            "'%s' holds a matrix for each of %d experts, and adapters of experts are "
            "merged one at a time: merge without a combination",
            row->name, (int)row->n_experts);
    float *unit = calloc((size_t)r, sizeof *unit), w = 0.0f;
    if (unit == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to merge '%s'", row->name);
    unit[0] = 1.0f;
    lathe_site_param list[2] = {p->list[p->a], p->list[p->b]};
    list[0].data = list[1].data = unit;
    list[0].desc = is_embedding ? lathe_desc_2d(LATHE_F32, 1, r) : lathe_desc_2d(LATHE_F32, r, 1);
    list[1].desc = lathe_desc_2d(LATHE_F32, 1, r);
    const lathe_status status =
        lathe__merge_params(&saved->parts->adapter, saved->model, row, &one, list, 2, &w);
    *out = (double)w;
    free(unit);
    return status;
}

static int same_dims(const lathe_desc *a, const lathe_desc *b)
{
    return a->dims[0] == b->dims[0] && a->dims[1] == b->dims[1];
}

/* sum += by from, element by element. */
static void add(float *sum, const lathe_site_param *from, double by)
{
    const int64_t n = lathe_desc_count(&from->desc);
    for (int64_t i = 0; i < n; i++)
        sum[i] = (float)((double)sum[i] + by * (double)from->data[i]);
}

/* The sums of the A and of the B, of which the first adapter's merge() makes the product. */
typedef struct sums {
    float *a, *b;
    lathe_site_param list[2];
    int32_t first; /* number of the first adapter; -1: none yet */
} sums;

static lathe_status begin(sums *s, const lathe__lora_pair *p, int32_t k)
{
    s->list[0] = p->list[p->a];
    s->list[1] = p->list[p->b];
    s->a = calloc((size_t)lathe_desc_count(&s->list[0].desc), sizeof *s->a);
    s->b = calloc((size_t)lathe_desc_count(&s->list[1].desc), sizeof *s->b);
    s->list[0].data = s->a;
    s->list[1].data = s->b;
    s->first = k;
    return s->a && s->b ? LATHE_OK
                        : lathe_error(LATHE_E_NOMEM, "no memory to merge '%s'", s->list[0].name);
}

/* Adds the matrices of adapter k, of which merge() makes s_first times their product. */
static lathe_status add_adapter(const lathe_merge_part *parts, int32_t k, int32_t index, sums *s,
                                double *io_first)
{
    static const char why[] = "the combination \"linear\" adds the matrices A and B of plain LoRA "
                              "(use \"cat\" for others)";
    lathe__lora_pair p;
    double scale = 0.0;
    lathe_status status = lathe__lora_pair_read(&parts[k], index, why, &p);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe__lora_pair_factor(&parts[k], &p, index, &scale)) != LATHE_OK)
        goto out;
    if (!(fabs(scale) > 0.0)) {
        status = lathe_error(LATHE_E_CONFIG,
                             "the adapter in %s has an alpha of 0, so \"linear\" has nothing to "
                             "add: leave it out",
                             parts[k].adapter);
        goto out;
    }
    if (s->first < 0) {
        *io_first = scale;
        status = begin(s, &p, k);
    }
    if (status != LATHE_OK)
        goto out;
    if (!same_dims(&s->list[0].desc, &p.list[p.a].desc) ||
        !same_dims(&s->list[1].desc, &p.list[p.b].desc)) {
        status = lathe_error(
            LATHE_E_CONFIG,
            "the combination \"linear\" needs adapters of one rank, and those of %s "
            "and %s differ at '%s': use \"cat\"",
            parts[s->first].adapter, parts[k].adapter, parts[k].saved->params->rows[index]->name);
        goto out;
    }
    const double f = parts[k].weight * scale, root = sqrt(fabs(f));
    add(s->a, &p.list[p.a], (f < 0.0 ? -root : root) / *io_first);
    add(s->b, &p.list[p.b], root);
out:
    lathe__site_params_free(p.store, p.list, p.n);
    return status;
}

lathe_status lathe__merge_linear(const lathe_merge_part *parts, int32_t n_parts, int32_t has,
                                 int32_t index, float *w)
{
    sums s = {.first = -1};
    double scale = 1.0;
    lathe_status status = LATHE_OK;
    for (int32_t k = 0; k < n_parts && status == LATHE_OK; k++)
        if (has >> k & 1)
            status = add_adapter(parts, k, index, &s, &scale);
    if (status == LATHE_OK && s.first >= 0) {
        const lathe_saved_state *saved = parts[s.first].saved;
        const lathe_param *row = saved->params->rows[index];
        status = lathe__merge_params(&saved->parts->adapter, saved->model, row, &row->desc, s.list,
                                     2, w);
    }
    free(s.a);
    free(s.b);
    return status;
}
