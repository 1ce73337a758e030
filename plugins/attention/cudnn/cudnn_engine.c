/* Chooses a cuDNN engine.
 *
 * An engine without the note NONDETERMINISTIC may still add in no fixed order: a backward that sums
 * dq with atomic additions (into an f32 tensor in memory) has the same notes as one that does not.
 * Two things fix the order: the graph, whose product writes dq directly, and, on Blackwell, the
 * choice of the engine. cudnn-frontend does both for its is_deterministic_algorithm.
 */
#include "cudnn_engine.h"

#include <stdio.h>

enum { MAX_CONFIGS = 8 };

int32_t cudnn_engine_for_backward(int64_t arch, size_t version, const cudnn_engine **out, char *why,
                                  int64_t why_bytes)
{
    static const cudnn_engine until_9_22 = {
        5, 2, {CUDNN_KNOB_TYPE_KERNEL_CFG, CUDNN_KNOB_TYPE_STAGES}, {31, 2}};
    static const cudnn_engine from_9_23 = {5,
                                           6,
                                           {CUDNN_KNOB_TYPE_TILE_M, CUDNN_KNOB_TYPE_TILE_N,
                                            CUDNN_KNOB_TYPE_KERNEL_CFG, CUDNN_KNOB_TYPE_STREAM_K,
                                            CUDNN_KNOB_TYPE_TILE_CGA_M, CUDNN_KNOB_TYPE_STAGES},
                                           {3, 2, 2, 0, 0, 2}};
    *out = NULL;
    if (arch / 10 != 10)
        return 1;
    if (version < 91800) {
        (void)snprintf(why, (size_t)why_bytes,
                       "cuDNN before 9.18 has no backward of fixed order for sm_%lld",
                       (long long)arch);
        return 0;
    }
    *out = version < 92300 ? &until_9_22 : &from_9_23;
    return 1;
}

/* Whether the engine of the configuration has a note that it adds in no fixed order. */
static int32_t is_unordered(cudnn_graph *g, cudnn_descriptor config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0;
    cudnn_descriptor engine = NULL;
    if (g->lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
        CUDNN_STATUS_SUCCESS)
        return 1;
    int32_t unordered = 1;
    if (g->lib->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                         &engine) == CUDNN_STATUS_SUCCESS &&
        g->lib->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                         CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                         &n, notes) == CUDNN_STATUS_SUCCESS) {
        unordered = 0;
        for (int64_t i = 0; i < n; i++)
            if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
                unordered = 1;
    }
    (void)g->lib->cudnnBackendDestroyDescriptor(engine);
    return unordered;
}

/* Gets cuDNN's proposals for the graph, best first; returns their number. */
static int64_t propose(cudnn_graph *g, cudnn_descriptor ops, cudnn_descriptor target,
                       cudnn_descriptor *configs)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t n = 0;
    const cudnn_attribute query[] = {
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &ops},
        {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode},
        {CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, target != NULL, &target},
        {0},
    };
    cudnn_descriptor heuristics = cudnn_graph_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, query);
    static const cudnn_attribute none[] = {{0}};
    for (int i = 0; i < MAX_CONFIGS; i++)
        configs[i] = cudnn_graph_begin(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, none);
    if (g->status == CUDNN_STATUS_SUCCESS)
        cudnn_graph_note(g,
                         g->lib->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                          CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                          MAX_CONFIGS, &n, configs),
                         "heuristics");
    return g->status == CUDNN_STATUS_SUCCESS ? n : 0;
}

/* Makes the configuration of one engine. Returns their number: 1, or 0 if the engine does not
 * support the graph or the settings. */
static int64_t configure(cudnn_graph *g, cudnn_descriptor ops, cudnn_descriptor target,
                         const cudnn_engine *engine, cudnn_descriptor *out_config)
{
    cudnn_descriptor choices[CUDNN_ENGINE_MAX_KNOBS] = {NULL};
    const cudnn_attribute which[] = {
        {CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &ops},
        {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &engine->index},
        {CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, target != NULL, &target},
        {0},
    };
    cudnn_descriptor made = cudnn_graph_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR, which);
    for (int32_t i = 0; i < engine->n_knobs; i++) {
        const cudnn_attribute knob[] = {
            {CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &engine->knobs[i]},
            {CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &engine->values[i]},
            {0},
        };
        choices[i] = cudnn_graph_make(g, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, knob);
    }
    const cudnn_attribute config[] = {
        {CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &made},
        {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, engine->n_knobs,
         choices},
        {0},
    };
    *out_config = cudnn_graph_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, config);
    return g->status == CUDNN_STATUS_SUCCESS;
}

/* Makes the plan of one configuration; NULL if cuDNN cannot. */
static cudnn_descriptor finish(cudnn_graph *g, cudnnHandle_t handle, cudnn_descriptor target,
                               const cudnn_descriptor *config, int64_t *out_workspace)
{
    int64_t count = 0;
    cudnn_attribute attributes[3] = {
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, config},
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle},
    };
    if (handle == NULL)
        attributes[1] = (cudnn_attribute){CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target};
    cudnn_descriptor plan =
        cudnn_graph_make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes);
    if (plan != NULL)
        cudnn_graph_note(
            g,
            g->lib->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                             CUDNN_TYPE_INT64, 1, &count, out_workspace),
            "workspace");
    return g->status == CUDNN_STATUS_SUCCESS ? plan : NULL;
}

cudnn_descriptor cudnn_engine_plan(cudnn_graph *g, cudnnHandle_t handle, cudnn_descriptor target,
                                   const cudnn_engine *only, int32_t any_order,
                                   int64_t *out_workspace)
{
    cudnn_descriptor configs[MAX_CONFIGS] = {NULL};
    cudnn_attribute graph[3] = {
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->ops}};
    if (handle != NULL)
        graph[1] =
            (cudnn_attribute){CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle};
    cudnn_descriptor ops = cudnn_graph_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, graph);
    const int64_t n =
        only != NULL ? configure(g, ops, target, only, configs) : propose(g, ops, target, configs);
    int32_t n_unordered = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!any_order && is_unordered(g, configs[i])) {
            n_unordered++;
            continue;
        }
        g->status = CUDNN_STATUS_SUCCESS; /* an earlier proposal may have failed */
        cudnn_descriptor plan = finish(g, handle, target, &configs[i], out_workspace);
        if (plan != NULL)
            return plan;
    }
    if (g->error[0] == '\0')
        (void)snprintf(g->error, sizeof g->error, "%s",
                       n_unordered > 0 ? "only engines that add up in no fixed order"
                                       : "no engine for the problem");
    if (g->status == CUDNN_STATUS_SUCCESS)
        g->status = CUDNN_STATUS_NOT_SUPPORTED;
    return NULL;
}
