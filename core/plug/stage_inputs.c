/* Shapes of a stage's inputs. */
#include "plug/stage_inputs.h"

#include "lathe/dtype.h"

lathe_input_shape lathe_stage_shape(const lathe_stage_v1 *stage, int32_t i)
{
    const lathe_input_shape plain = {LATHE_F32, 0};
    return LATHE_HAS(stage, input_shapes) ? stage->input_shapes[i] : plain;
}

int64_t lathe_stage_input_count(const lathe_stage_v1 *stage, int32_t i, int32_t n_stored)
{
    const lathe_input_shape shape = lathe_stage_shape(stage, i);
    if (stage->inputs[i].source == LATHE_INPUT_STORED)
        return n_stored > 0 ? n_stored + (shape.dtype != LATHE_I32) : 0;
    return shape.count > 1 ? shape.count : 1;
}

int32_t lathe_stage_takes_stored(const lathe_stage_v1 *stage)
{
    for (int32_t i = 0; LATHE_HAS(stage, inputs) && i < stage->n_inputs; i++)
        if (stage->inputs[i].source == LATHE_INPUT_STORED)
            return 1;
    return 0;
}
