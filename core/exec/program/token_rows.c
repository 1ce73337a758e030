/* Declares trained rows of tokens, and builds what they change. */
#include "exec/program/token_rows.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* D - F, M. */
typedef struct token_rows {
    lathe_val change, marks;
} token_rows;

lathe_token_rows lathe__token_rows_of(const lathe__builder *b)
{
    const lathe_program_config *c = b->config;
    if (c->adapter == NULL && c->reference_adapter == NULL)
        return (lathe_token_rows){NULL, 0};
    return b->model == LATHE_MODEL_REFERENCE && c->reference_adapter ? c->reference_token_rows
                                                                     : c->token_rows;
}

/* Rows of another list than the run's adapter has: those of an adapter beside others, or of the
 * reference's own. */
static int has_other_list(const lathe__builder *b)
{
    return b->model == LATHE_MODEL_REFERENCE ? b->config->reference_adapter != NULL
                                             : b->config->adapter_prefix != NULL;
}

static lathe_status declare(const lathe__builder *b, const char *module, const char *end,
                            const lathe_param *like, int is_copied, lathe_val *out)
{
    lathe_graph *g = b->build.graph;
    lathe_param row = *like;
    char name[512];
    const int copies = is_copied && g->copy_prefix != NULL;
    const int n = snprintf(name, sizeof name, "%s%s%s", copies ? g->copy_prefix : "", module, end);
    if (n < 0 || n >= (int)sizeof name)
        return lathe_error(LATHE_E_UNSUPPORTED, "the name of %s is too long", module);
    row.name = name;
    row.role = LATHE_ROLE_ADAPTER;
    row.layer = -1;
    if (copies) { /* of a reference or of an adapter beside others: frozen, and D is in its file */
        row.trainable = 0;
        row.reference = !row.is_derived;
    }
    int32_t index = lathe_params_find(g->params, name);
    if (index < 0)
        LATHE_TRY(lathe_params_add(g->params, &row, &index));
    return lathe_graph_param(g, index, out);
}

static lathe_status make_rows(const lathe__builder *b, const char *module, token_rows *out)
{
    lathe_graph *g = b->build.graph;
    const lathe_token_rows list = lathe__token_rows_of(b);
    const int copies = has_other_list(b);
    char weight[512];
    (void)snprintf(weight, sizeof weight, "%s.weight", module);
    const int32_t from = lathe_params_find(g->params, weight);
    if (from < 0)
        return lathe_error(LATHE_E_NOT_FOUND, "%s has no weight of which rows could train", module);
    const lathe_desc *w = &g->params->rows[from]->desc;
    lathe_param row = {.desc = lathe_desc_2d(LATHE_F32, list.n, w->dims[1]),
                       .init = LATHE_INIT_TOKEN_ROWS,
                       .init_from = from,
                       .tokens = list,
                       .trainable = 1};
    lathe_val in[2];
    LATHE_TRY(declare(b, module, LATHE_TOKEN_ROWS_END, &row, 1, &in[0]));
    row.trainable = 0;
    row.is_derived = 1;
    LATHE_TRY(declare(b, module, LATHE_TOKEN_FIRST_END, &row, copies, &in[1]));
    row.init = LATHE_INIT_TOKEN_MARKS;
    row.desc = lathe_desc_2d(LATHE_F32, w->dims[0], list.n);
    LATHE_TRY(declare(b, module, LATHE_TOKEN_MARKS_END, &row, copies, &out->marks));
    return lathe_graph_node(g, LATHE_OP_SUB, NULL, in, 2, &out->change, 1, -1, "token_rows");
}

lathe_status lathe__token_rows_embed(const lathe__builder *b, const lathe_site *site,
                                     lathe_val tokens, lathe_val *io_y)
{
    const lathe_graph_api *api = lathe_graph_api_get();
    lathe_graph *g = b->build.graph;
    token_rows rows;
    lathe_val in[2] = {*io_y, LATHE_NONE}, turned = LATHE_NONE;
    LATHE_TRY(make_rows(b, site->module, &rows));
    const lathe_val look[2] = {tokens, rows.marks};
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_EMBED, NULL, look, 2, &in[1], 1, -1, "token_marks"));
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_TRANSPOSE, NULL, &rows.change, 1, &turned, 1, -1,
                               "token_rows.t"));
    LATHE_TRY(api->linear(g, in[1], turned, LATHE_NONE, "token_rows.embed", &in[1]));
    return lathe_graph_node(g, LATHE_OP_ADD, NULL, in, 2, io_y, 1, 0, "token_rows.add");
}

/* Whether the adapter trains the whole matrix, or has one instead of it. */
static int is_replaced(const lathe__builder *b, lathe_val weight)
{
    const lathe_graph *g = b->build.graph;
    if (g->values[weight].kind != LATHE_VALUE_PARAM)
        return 0;
    const lathe_param *row = g->params->rows[g->values[weight].param];
    return row->trainable || row->in_adapter || row->reference;
}

lathe_status lathe__token_rows_head(const lathe__builder *b, const lathe_site *site, lathe_val x,
                                    lathe_val *out_u, lathe_val *out_v)
{
    const lathe_model_config *model = b->build.config;
    const char *dot = strrchr(model->embedding, '.');
    char embedding[512];
    token_rows rows;
    if (is_replaced(b, site->weight))
        return LATHE_OK;
    (void)snprintf(embedding, sizeof embedding, "%.*s", (int)(dot ? dot - model->embedding : 0),
                   model->embedding);
    /* another adapter of the run has made two matrices of the model's one */
    LATHE_TRY(make_rows(b, site->tied || model->is_untied ? embedding : site->module, &rows));
    *out_v = rows.marks;
    return lathe_graph_api_get()->linear(b->build.graph, x, rows.change, LATHE_NONE,
                                         "token_rows.head", out_u);
}
