/* Declares the parameters of adapters and other plugins. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "graph/ir/ir_graph.h"

/* Fields of a later revision than the declaration's are 0. */
static int32_t transposed_of(const lathe_param_decl *decl)
{
    const size_t known = offsetof(lathe_param_decl, transposed) + sizeof decl->transposed;
    return decl->size >= known && decl->transposed != 0;
}

static const char *second_of(const lathe_param_decl *decl)
{
    const size_t known = offsetof(lathe_param_decl, second) + sizeof decl->second;
    return decl->size >= known && decl->desc.rank == 2 ? decl->second : NULL;
}

/* Checks a plugin's declaration; an impossible shape or setting is an error here. */
static lathe_status check_decl(const lathe_param_decl *decl)
{
    const int64_t most = (int64_t)1 << 40; /* elements; more than in any model's largest tensor */
    const lathe_desc *d = &decl->desc;
    int64_t n = 1;
    if (decl->name == NULL || decl->name[0] == '\0')
        return lathe_error(LATHE_E_ARG, "a declared parameter has no name");
    if (d->dtype != LATHE_F32 || d->rank < 1 || d->rank > LATHE_MAX_RANK)
        return lathe_error(LATHE_E_ARG,
                           "parameter '%s' is declared as %s of rank %d; expected f32 of rank 1 "
                           "to %d",
                           decl->name, lathe_dtype_name(d->dtype), d->rank, LATHE_MAX_RANK);
    for (int32_t i = 0; i < d->rank; i++) {
        if (d->dims[i] < 1 || d->dims[i] > most / n)
            return lathe_error(LATHE_E_ARG, "parameter '%s' is declared with a dim of %lld",
                               decl->name, (long long)d->dims[i]);
        n *= d->dims[i];
    }
    if (decl->init < LATHE_INIT_ZERO || decl->init > LATHE_INIT_MINOR_RIGHT ||
        !isfinite(decl->init_scale))
        return lathe_error(LATHE_E_ARG, "parameter '%s' is declared with init %d of scale %g",
                           decl->name, decl->init, decl->init_scale);
    if (transposed_of(decl) && d->rank != 2)
        return lathe_error(LATHE_E_ARG,
                           "parameter '%s' is declared as transposed in files, with rank %d; "
                           "expected a matrix",
                           decl->name, d->rank);
    if ((decl->trainable != 0 && decl->trainable != 1) || decl->group < 0)
        return lathe_error(LATHE_E_ARG, "parameter '%s' is declared with trainable %d, group %d",
                           decl->name, decl->trainable, decl->group);
    return LATHE_OK;
}

static int is_loftq(int32_t init)
{
    return init == LATHE_INIT_LOFTQ_A || init == LATHE_INIT_LOFTQ_B;
}

static int is_norms(int32_t init)
{
    return init == LATHE_INIT_ROW_NORMS || init == LATHE_INIT_COLUMN_NORMS;
}

static int is_minor(int32_t init)
{
    return init == LATHE_INIT_MINOR_LEFT || init == LATHE_INIT_MINOR_RIGHT;
}

static int is_from_weight(int32_t init)
{
    return is_norms(init) || init == LATHE_INIT_SINGULAR_A || init == LATHE_INIT_SINGULAR_B ||
           is_loftq(init) || is_minor(init);
}

/* Checks the shape of a parameter that begins with row norms or singular vectors of w. */
static lathe_status check_source(const lathe_param_decl *decl, const lathe_param *w)
{
    const lathe_desc *d = &decl->desc;
    const int32_t side = decl->init == LATHE_INIT_SINGULAR_A || decl->init == LATHE_INIT_LOFTQ_A;
    if (is_norms(decl->init)) {
        const int of_rows = decl->init == LATHE_INIT_ROW_NORMS;
        if (w->desc.rank == 2 && d->rank == 1 && d->dims[0] == w->desc.dims[!of_rows])
            return LATHE_OK;
        return lathe_error(LATHE_E_SHAPE,
                           "parameter '%s' is declared with the %s norms of '%s', and is no vector "
                           "with an element for each of its %ss",
                           decl->name, of_rows ? "row" : "column", w->name,
                           of_rows ? "row" : "column");
    }
    if (is_minor(decl->init)) {
        const int32_t of_columns = decl->init == LATHE_INIT_MINOR_RIGHT;
        if (w->desc.rank == 2 && d->rank == 2 && d->dims[0] == w->desc.dims[of_columns] &&
            d->dims[1] <= w->desc.dims[0] && d->dims[1] <= w->desc.dims[1])
            return LATHE_OK;
        return lathe_error(LATHE_E_SHAPE,
                           "parameter '%s' is declared with %lld singular vectors of '%s', and "
                           "does not have their length, or there are fewer",
                           decl->name, (long long)d->dims[1], w->name);
    }
    const int64_t r = d->dims[!side];
    if (w->desc.rank == 2 && d->rank == 2 && d->dims[side] == w->desc.dims[side] &&
        r <= w->desc.dims[0] && r <= w->desc.dims[1] && decl->init_scale > 0.0)
        return LATHE_OK;
    return lathe_error(LATHE_E_SHAPE,
                       "parameter '%s' is declared with %lld singular vectors of '%s', and does "
                       "not have their length, or there are fewer, or its scale is not above 0",
                       decl->name, (long long)r, w->name);
}

/* Notes that the weight is encoded for a parameter with INIT_LOFTQ_*. */
static lathe_status note_loftq(const lathe_param_decl *decl, lathe_param *w)
{
    const size_t known = offsetof(lathe_param_decl, init_steps) + sizeof decl->init_steps;
    const int32_t steps = decl->size >= known ? decl->init_steps : 0;
    if (!w->format || w->planes_on_file || !decl->trainable)
        return lathe_error(LATHE_E_ARG,
                           "parameter '%s' is declared with what the quantization of '%s' loses; "
                           "expected a trained parameter and a weight that [quant] encodes",
                           decl->name, w->name);
    if (steps < 1 || (w->loftq_steps != 0 && w->loftq_steps != steps))
        return lathe_error(
            LATHE_E_ARG,
            "parameter '%s' is declared with %d steps of LoftQ; expected at least 1, "
            "the same for all of '%s'",
            decl->name, steps, w->name);
    w->loftq_steps = steps;
    return LATHE_OK;
}

/* Finds the weight that a declared parameter begins with. */
static lathe_status find_source(const lathe_graph *g, const lathe_param_decl *decl, int32_t *out)
{
    const size_t known = offsetof(lathe_param_decl, init_from) + sizeof decl->init_from;
    *out = 0;
    if (!is_from_weight(decl->init))
        return LATHE_OK;
    const lathe_val v = decl->size >= known ? decl->init_from : LATHE_NONE;
    if (v < 0 || v >= g->n_values || g->values[v].kind != LATHE_VALUE_PARAM)
        return lathe_error(LATHE_E_ARG,
                           "parameter '%s' is declared with the %s of value %d, which is no weight",
                           decl->name, is_norms(decl->init) ? "norms" : "singular vectors", v);
    lathe_param *w = g->params->rows[g->values[v].param];
    LATHE_TRY(check_source(decl, w));
    if (w->trainable)
        return lathe_error(LATHE_E_ARG,
                           "parameter '%s' is declared with the %s of '%s', which trains; "
                           "expected a frozen weight",
                           decl->name, is_norms(decl->init) ? "norms" : "singular vectors",
                           w->name);
    *out = g->values[v].param;
    return is_loftq(decl->init) ? note_loftq(decl, w) : LATHE_OK;
}

lathe_status lathe__graph_declare(lathe_graph *g, const lathe_param_decl *decl, lathe_val *out)
{
    int32_t from = 0;
    LATHE_TRY(check_decl(decl));
    const int32_t n_experts = g->n_experts;
    if (n_experts > 0 && (decl->desc.rank != 2 || is_from_weight(decl->init) || second_of(decl) ||
                          transposed_of(decl)))
        return lathe_error(LATHE_E_CONFIG,
                           "the adapter's parameter '%s' is no plain matrix, which it must be for "
                           "experts: take them out of its targets, or choose another adapter",
                           decl->name);
    if (n_experts > 0 && strstr(decl->name, ".experts.") == NULL)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "'%s' would have a matrix for each expert, and adapter files have names "
                           "for these only within a module called experts: take the experts out of "
                           "the adapter's targets",
                           decl->name);
    LATHE_TRY(find_source(g, decl, &from));
    const int is_fixed = is_minor(decl->init) && !decl->trainable;
    lathe_desc desc = decl->desc;
    desc.dims[0] *= n_experts > 0 ? n_experts : 1;
    const int copies = g->copy_prefix && (decl->trainable || is_fixed);
    const char *name =
        copies ? lathe_arena_printf(&g->arena, "%s%s", g->copy_prefix, decl->name) : decl->name;
    int32_t index = name ? lathe_params_find(g->params, name) : -1;
    if (!name)
        return LATHE_E_NOMEM;
    if (index < 0) {
        const lathe_param row = {.name = name,
                                 .desc = desc,
                                 .n_experts = n_experts,
                                 .init = decl->init,
                                 .init_from = from,
                                 .is_derived =
                                     is_from_weight(decl->init) && !decl->trainable && !is_fixed,
                                 .is_fixed = is_fixed && !copies,
                                 .init_scale = decl->init_scale,
                                 .transposed = transposed_of(decl),
                                 .second = second_of(decl),
                                 .role = LATHE_ROLE_ADAPTER,
                                 .layer = g->layer,
                                 .group = decl->group,
                                 .trainable = copies ? 0 : decl->trainable,
                                 .reference = copies};
        LATHE_TRY(lathe_params_add(g->params, &row, &index));
    }
    const lathe_desc *have = &g->params->rows[index]->desc;
    if (have->rank != desc.rank || memcmp(have->dims, desc.dims, sizeof have->dims) != 0)
        return lathe_error(LATHE_E_SHAPE, "parameter '%s' is declared with two shapes", decl->name);
    return lathe_graph_param(g, index, out);
}
