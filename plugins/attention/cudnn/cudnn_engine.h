/* The choice of a cuDNN engine for a graph, and its execution plan. */
#ifndef LATHE_CUDNN_ENGINE_H
#define LATHE_CUDNN_ENGINE_H

#include "cudnn_builder.h"

enum { CUDNN_ENGINE_MOST_KNOBS = 6 };

/** One engine with its settings, instead of what cuDNN proposes. */
typedef struct cudnn_engine {
    int64_t index;
    int32_t n_knobs;
    cudnnBackendKnobType_t knobs[CUDNN_ENGINE_MOST_KNOBS];
    int64_t values[CUDNN_ENGINE_MOST_KNOBS];
} cudnn_engine;

/** The engine that the backward needs on this compute capability (10 * major + minor) to add up in a fixed
 *  order; NULL: any that takes the graph. 0, and why, when this cuDNN has none. */
int32_t cudnn_engine_for_backward(int64_t arch, size_t version, const cudnn_engine **out, char *why,
                                  int64_t why_bytes);

/** An execution plan for the graph: of `only`, or NULL: of the first of cuDNN's proposals that works. Engines
 *  that say they add up in no fixed order are left out. The plan is owned by the graph; the bytes that it needs
 *  go to *out_workspace. For the GPU of `handle`, or without one for the GPU that the descriptor `target`
 *  describes. NULL: see g->error. */
cudnn_descriptor cudnn_engine_plan(cudnn_graph *g, cudnnHandle_t handle, cudnn_descriptor target,
                                   const cudnn_engine *only, int64_t *out_workspace);

#endif
