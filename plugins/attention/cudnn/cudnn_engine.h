/* Chooses a cuDNN engine for a graph, and makes its execution plan. */
#ifndef LATHE_CUDNN_ENGINE_H
#define LATHE_CUDNN_ENGINE_H

#include "cudnn_builder.h"

enum { CUDNN_ENGINE_MAX_KNOBS = 6 };

/** One engine with its settings, instead of what cuDNN proposes. */
typedef struct cudnn_engine {
    int64_t index;
    int32_t n_knobs;
    cudnnBackendKnobType_t knobs[CUDNN_ENGINE_MAX_KNOBS];
    int64_t values[CUDNN_ENGINE_MAX_KNOBS];
} cudnn_engine;

/** Finds the engine with which the backward adds up in a fixed order on this compute capability
 *  (arch = 10 * major + minor). *out is NULL if any engine that supports the graph does. Returns 0,
 *  with the reason in `why`, if this version of cuDNN has none. */
int32_t cudnn_engine_for_backward(int64_t arch, size_t version, const cudnn_engine **out, char *why,
                                  int64_t why_bytes);

/** Makes an execution plan for the graph with the engine `only`, or, if that is NULL, with the
 * first of cuDNN's proposals that works. Skips engines whose notes say that they add up in no fixed
 *  order, unless any_order is set. The GPU is that of `handle`, or without a handle the one that
 * the descriptor `target` describes. The graph owns the plan; *out_workspace is the workspace in
 * bytes. Returns NULL on failure, with the reason in g->error. */
cudnn_descriptor cudnn_engine_plan(cudnn_graph *g, cudnnHandle_t handle, cudnn_descriptor target,
                                   const cudnn_engine *only, int32_t any_order,
                                   int64_t *out_workspace);

#endif
