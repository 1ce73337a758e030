/* Ops of plugins for graphs. */
#include "plug/op_library.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/ir/plugin_op.h"
#include "plug/registry_state.h"
#include "plug/schema_check.h"

/* An instance for one node. */
typedef struct made {
    lathe_op_opened opened;
    lathe_instance instance;
} made;

/* The attribute as a value of a run file, so that one schema checker serves both. */
static lathe_status node_of(const lathe_op_attr *attr, lathe_arena *arena, lathe_toml_node **out)
{
    lathe_toml_node *node = lathe_arena_alloc(arena, (int64_t)sizeof *node);
    if (node == NULL)
        return LATHE_E_NOMEM;
    *node = (lathe_toml_node){.key = attr->key, .i = attr->i, .f = (double)attr->i};
    switch (attr->type) {
    case LATHE_T_BOOL:
        node->kind = LATHE_TOML_BOOL;
        break;
    case LATHE_T_INT:
        node->kind = LATHE_TOML_INT;
        break;
    case LATHE_T_FLOAT:
        node->kind = LATHE_TOML_FLOAT;
        node->f = attr->f;
        break;
    case LATHE_T_STRING:
        node->kind = LATHE_TOML_STRING;
        node->s = attr->s != NULL ? lathe_arena_strdup(arena, attr->s) : NULL;
        if (node->s == NULL)
            return lathe_error(LATHE_E_ARG, "attribute %s has no text", attr->key);
        break;
    default:
        return lathe_error(LATHE_E_ARG,
                           "attribute %s is of type %d; expected a truth value, a number or a text",
                           attr->key, (int)attr->type);
    }
    *out = node;
    return LATHE_OK;
}

lathe_status lathe_op_values(const lathe_plugin *plugin, const lathe_op_attr *attrs,
                             int32_t n_attrs, lathe_arena *arena, lathe_value **out)
{
    lathe_toml_node table = {.kind = LATHE_TOML_TABLE};
    lathe_diags diags = {0};
    const char *const place = lathe_arena_printf(arena, "op %s", plugin->name);
    const lathe_schema_scope scope = {.section = plugin->name, .place = {place, 0, 0}};
    for (int32_t i = 0; i < n_attrs; i++) {
        lathe_toml_node *node = NULL;
        if (attrs[i].key == NULL || lathe_toml_find(&table, attrs[i].key) != NULL)
            return lathe_error(LATHE_E_ARG, "op %s: attribute '%s' is given twice", plugin->name,
                               attrs[i].key != NULL ? attrs[i].key : "");
        LATHE_TRY(node_of(&attrs[i], arena, &node));
        LATHE_TRY(lathe_toml_set(&table, node, arena));
    }
    lathe_status status =
        lathe_schema_check(&scope, &table, plugin->fields, plugin->n_fields, arena, &diags, out);
    if (status == LATHE_OK)
        status = lathe_diags_status(&diags);
    lathe_diags_fini(&diags);
    return status;
}

static void close_op(lathe_op_opened *opened)
{
    made *m = (made *)opened;
    lathe_instance_fini(&m->instance);
}

static lathe_status open_op(void *arg, const char *name, const lathe_op_attr *attrs,
                            int32_t n_attrs, lathe_arena *arena, int32_t *out_op,
                            lathe_op_opened **out)
{
    const lathe_component *component = NULL;
    const lathe_plugin_op *op = NULL;
    lathe_value *values = NULL;
    LATHE_TRY(lathe_registry_find(arg, LATHE_KIND_OP, name, &component));
    LATHE_TRY(lathe_plugin_op_add(component->plugin, &op));
    LATHE_TRY(lathe_op_values(component->plugin, attrs, n_attrs, arena, &values));
    made *m = lathe_arena_alloc(arena, (int64_t)sizeof *m);
    if (m == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_instance_init(&m->instance, component, values));
    m->opened = (lathe_op_opened){.self = m->instance.self, .close = close_op};
    *out_op = op->number;
    *out = &m->opened;
    return LATHE_OK;
}

const lathe_op_source *lathe_registry_ops(lathe_registry *registry)
{
    if (registry == NULL)
        return NULL;
    registry->ops = (lathe_op_source){.arg = registry, .open = open_op};
    return &registry->ops;
}

static int by_name(const void *a, const void *b)
{
    const lathe_component *const *x = a, *const *y = b;
    return strcmp((*x)->plugin->name, (*y)->plugin->name);
}

static const lathe_component *component_of(const lathe_registry *registry,
                                           const lathe_plugin *plugin)
{
    for (int64_t i = 0; i < registry->n_items; i++)
        if (registry->items[i]->plugin == plugin)
            return registry->items[i];
    return NULL;
}

int32_t lathe_ops_used(const lathe_params *params, const lathe_graph *g,
                       const lathe_component **out, int32_t most)
{
    int32_t n = 0;
    for (int32_t i = 0; params->ops != NULL && i < g->n_nodes; i++) {
        const lathe_plugin_op *op = lathe_plugin_op_get(g->nodes[i].op);
        const lathe_component *c = op ? component_of(params->ops->arg, op->plugin) : NULL;
        int32_t k = 0;
        while (k < n && out[k] != c)
            k++;
        if (c != NULL && k == n && n < most)
            out[n++] = c;
    }
    if (n > 1)
        qsort(out, (size_t)n, sizeof(const lathe_component *), by_name);
    return n;
}
