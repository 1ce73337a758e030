/* Lets the adapter change the model at its sites. */
#include "exec/program/adapter_sites.h"

#include <string.h>

#include "base/error.h"
#include "exec/program/token_rows.h"
#include "plug/answers.h"

/* The adapter of the model that is being built; NULL: none. */
static const lathe_instance *adapter_of(const lathe__builder *b)
{
    const lathe_program_config *c = b->config;
    return b->model == LATHE_MODEL_REFERENCE && c->reference_adapter ? c->reference_adapter
                                                                     : c->adapter;
}

/* The adapter's table, if it changes this site; else NULL. */
static const lathe_adapter_v1 *table_at(const lathe__builder *b, const lathe_site *site)
{
    const lathe_instance *adapter = adapter_of(b);
    const lathe_adapter_v1 *table = adapter ? adapter->table : NULL;
    const int has = site->kind == LATHE_SITE_EMBEDDING ? LATHE_HAS(table, embed)
                    : site->kind == LATHE_SITE_HEAD    ? lathe_answer_adapts_head(table)
                                                       : LATHE_HAS(table, wrap);
    return has && LATHE_HAS(table, targets) && table->targets(adapter->self, site) ? table : NULL;
}

static int has_token_rows(const lathe__builder *b)
{
    return lathe__token_rows_of(b).n > 0;
}

/* The key of an error that an adapter says is one of [adapter]. */
static lathe_status of_adapter(lathe_status status)
{
    return status == LATHE_OK ? status : lathe_error_about(status, "adapter", NULL);
}

/* The state of a graph while the adapter builds a site. */
typedef struct site_state {
    int32_t drop_nothing;
    int32_t enabled; /* argument of wrap and embed */
} site_state;

/* The reference is without dropout; with copies, the adapter's parameters are frozen ones, and so
 * are those of an adapter with a prefix. */
static site_state begin(const lathe__builder *b)
{
    lathe_graph *g = b->build.graph;
    const int is_reference = b->model == LATHE_MODEL_REFERENCE;
    const int with_copies =
        is_reference && (b->config->reference_has_adapter || b->config->reference_adapter);
    const site_state before = {g->drop_nothing, !is_reference || with_copies};
    g->copy_prefix = with_copies     ? LATHE_REFERENCE_PREFIX
                     : !is_reference ? b->config->adapter_prefix
                                     : NULL;
    g->drop_nothing = before.drop_nothing || is_reference;
    return before;
}

static void end(const lathe__builder *b, site_state before)
{
    b->build.graph->copy_prefix = NULL;
    b->build.graph->drop_nothing = before.drop_nothing;
}

lathe_status lathe__site_linear(void *arg, const lathe_site *site, lathe_val x, lathe_val *out)
{
    const lathe__builder *b = arg;
    const lathe_graph_api *api = lathe_graph_api_get();
    const lathe_adapter_v1 *table = table_at(b, site);
    if (!table)
        return api->linear(b->build.graph, x, site->weight, site->bias, site->module, out);
    const site_state s = begin(b);
    const lathe_status status =
        table->wrap(adapter_of(b)->self, api, b->build.graph, site, x, s.enabled, out);
    end(b, s);
    return of_adapter(status);
}

/* The rows of one matrix would change in two ways. */
static lathe_status refuse_rows(const lathe_site *site)
{
    return lathe_error_at(LATHE_E_CONFIG, "adapter", "trainable_token_rows",
                          "the adapter changes %s, of which rows train by themselves "
                          "(adapter.trainable_token_rows; those of tokenizer.add_tokens unless it "
                          "is set): take the module out of the adapter's targets, or set "
                          "trainable_token_rows = []",
                          site->module);
}

lathe_status lathe__site_embed(void *arg, const lathe_site *site, lathe_val tokens, lathe_val *out)
{
    const lathe__builder *b = arg;
    const lathe_adapter_v1 *table = table_at(b, site);
    const lathe_val in[2] = {tokens, site->weight};
    const char *dot = strrchr(site->module, '.');
    if (table && has_token_rows(b))
        return refuse_rows(site);
    if (!table)
        LATHE_TRY(lathe_graph_node(b->build.graph, LATHE_OP_EMBED, NULL, in, 2, out, 1, -1,
                                   dot ? dot + 1 : site->module));
    if (!table && !has_token_rows(b))
        return LATHE_OK;
    const site_state s = begin(b);
    lathe_status status = LATHE_OK;
    if (table)
        status = table->embed(adapter_of(b)->self, lathe_graph_api_get(), b->build.graph, site,
                              tokens, s.enabled, out);
    else if (s.enabled)
        status = lathe__token_rows_embed(b, site, tokens, out);
    end(b, s);
    return of_adapter(status);
}

int32_t lathe__site_embeds(void *arg, const lathe_site *site)
{
    return table_at(arg, site) != NULL || has_token_rows(arg);
}

/* head_scaled, or head of an adapter without it. */
static lathe_status change_head(const lathe_adapter_v1 *table, const lathe__builder *b,
                                const lathe_site *site, lathe_val x, lathe__head_change *out)
{
    const lathe_graph_api *api = lathe_graph_api_get();
    void *self = adapter_of(b)->self;
    if (LATHE_HAS(table, head_scaled))
        return table->head_scaled(self, api, b->build.graph, site, x, &out->u, &out->v, &out->s);
    return table->head(self, api, b->build.graph, site, x, &out->u, &out->v);
}

/* The change that the adapter makes at the head of the policy or of the reference. */
static lathe_status adapted_head(lathe__builder *b, lathe_val x, lathe__head_change *out)
{
    lathe_site site;
    LATHE_TRY(lathe_model_head_site(&b->build, &site));
    const lathe_adapter_v1 *table = table_at(b, &site);
    const int has_rows = has_token_rows(b);
    if (table && has_rows)
        return refuse_rows(&site);
    if (!table && !has_rows)
        return LATHE_OK;
    const site_state s = begin(b);
    lathe_status status = LATHE_OK;
    if (s.enabled)
        status = table ? change_head(table, b, &site, x, out)
                       : lathe__token_rows_head(b, &site, x, &out->u, &out->v);
    end(b, s);
    return of_adapter(status);
}

lathe_status lathe__site_head(lathe__builder *b, lathe_val x, lathe__head_change *out)
{
    const int is_teacher = b->model == LATHE_MODEL_TEACHER;
    const lathe_model_build *build = is_teacher ? &b->teacher : &b->build;
    lathe__head_change bias = {LATHE_NONE, LATHE_NONE, LATHE_NONE};
    *out = bias;
    if (!is_teacher)
        LATHE_TRY(adapted_head(b, x, out));
    LATHE_TRY(lathe_model_head_bias(build, x, &bias.u, &bias.v));
    if (bias.u == LATHE_NONE)
        return LATHE_OK;
    if (out->u != LATHE_NONE && has_token_rows(b))
        return lathe_error_at(LATHE_E_CONFIG, "adapter", "trainable_token_rows",
                              "rows of the head %s cannot train by themselves, as it has a bias "
                              "(%s): set adapter.trainable_token_rows = []",
                              build->config->head, build->config->head_bias);
    if (out->u != LATHE_NONE)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "the adapter changes the head %s, which has a bias (%s): take the head "
                           "out of the adapter's targets",
                           build->config->head, build->config->head_bias);
    *out = bias;
    return LATHE_OK;
}

/* x * s in f32, as the ops of the head compute it. */
static lathe_status scale_logits(lathe_graph *g, lathe_val s, lathe_val *io)
{
    const lathe_desc desc = g->values[*io].desc;
    const lathe_op_attrs wide = {.dtype = LATHE_F32};
    const lathe_op_attrs rows = {.count = desc.dims[0], .dtype = LATHE_F32};
    lathe_val in[2] = {*io, LATHE_NONE};
    if (desc.dtype != LATHE_F32)
        LATHE_TRY(lathe_graph_node(g, LATHE_OP_CAST, &wide, io, 1, &in[0], 1, -1, "head.f32"));
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_BROADCAST_ROW, &rows, &s, 1, &in[1], 1, -1, "head.s"));
    return lathe_graph_node(g, LATHE_OP_MUL, NULL, in, 2, io, 1, -1, "head.scale");
}

lathe_status lathe__site_logits(lathe_graph *g, lathe_val x, lathe_val w,
                                const lathe__head_change *change, lathe_val *out)
{
    const lathe_graph_api *api = lathe_graph_api_get();
    lathe_val in[2] = {LATHE_NONE, LATHE_NONE};
    LATHE_TRY(api->linear(g, x, w, LATHE_NONE, "head", &in[0]));
    *out = in[0];
    if (change->u == LATHE_NONE)
        return LATHE_OK;
    LATHE_TRY(api->linear(g, change->u, change->v, LATHE_NONE, "head.adapter", &in[1]));
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_ADD, NULL, in, 2, out, 1, 0, "head.add"));
    return change->s == LATHE_NONE ? LATHE_OK : scale_logits(g, change->s, out);
}
