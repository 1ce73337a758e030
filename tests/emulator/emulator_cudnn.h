/* The two halves of the emulated cuDNN: descriptors (emulator_cudnn.cpp), and the evaluation of
 * graphs in double, operation by operation (emulator_cudnn_graph.cpp). */
#ifndef LATHE_EMULATOR_CUDNN_H
#define LATHE_EMULATOR_CUDNN_H

#include <cstdint>
#include <map>
#include <vector>

extern "C" {
#include "cudnn_api.h"
}

namespace emulated_cudnn
{

struct tensor {
    int64_t uid, dims[4], strides[4], alignment;
    int32_t type;
    bool is_virtual, is_number;

    int64_t count() const
    {
        return dims[0] * dims[1] * dims[2] * dims[3];
    }
};

enum class kind { pointwise, matmul, reduction, reshape };

/* y = op(x, b, t); uids of tensors, 0: not given. */
struct operation {
    kind what;
    int32_t mode; /* of a pointwise or a reduction */
    int64_t axis, x, b, t, y;
};

struct graph {
    std::vector<operation> ops;
    std::map<int64_t, tensor> tensors; /* by uid */
};

/** Whether the shapes of every operation fit each other and its inputs are computed before it
 *  runs. */
bool is_sound(const graph &g);

/** Evaluates the graph; `at` has the address of each tensor that is not virtual. */
void evaluate(const graph &g, const std::map<int64_t, void *> &at);

} // namespace emulated_cudnn

#endif
