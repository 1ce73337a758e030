/* A term x W^T of the logits of the vocabulary head. */
#include "head/head_pair.h"

lathe_status cpu_head_pair_products(lathe_kernel *k, head_pair *pair, int i, int64_t rows,
                                    int64_t width, int64_t *io_scratch)
{
    const int32_t dtype = k->in[pair->in_x].dtype;
    int64_t bytes[3] = {0, 0, 0};
    const matmul_spec logits = {.m = rows,
                                .n = width,
                                .k = pair->c,
                                .a_dtype = dtype,
                                .b_dtype = dtype,
                                .c_dtype = dtype,
                                .trans_b = 1,
                                .may_overwrite = !pair->adds,
                                .may_accumulate = pair->adds,
                                .invariant = k->attrs.invariant,
                                .alpha = 1.0};
    LATHE_TRY(cpu_product_create(k->device, &logits, &pair->logits[i], &bytes[0]));
    const matmul_spec dx = {.m = rows,
                            .n = pair->c,
                            .k = width,
                            .a_dtype = dtype,
                            .b_dtype = dtype,
                            .c_dtype = LATHE_F32,
                            .may_overwrite = 1,
                            .may_accumulate = pair->by_blocks,
                            .alpha = 1.0};
    if (pair->out_dx >= 0)
        LATHE_TRY(cpu_product_create(k->device, &dx, &pair->dx[i], &bytes[1]));
    const matmul_spec dw = {.m = width,
                            .n = pair->c,
                            .k = rows,
                            .a_dtype = dtype,
                            .b_dtype = dtype,
                            .c_dtype = LATHE_F32,
                            .trans_a = 1,
                            .may_overwrite = 1,
                            .may_accumulate = 1,
                            .alpha = 1.0};
    if (pair->out_dw >= 0)
        LATHE_TRY(cpu_product_create(k->device, &dw, &pair->dw[i], &bytes[2]));
    for (int j = 0; j < 3; j++)
        if (bytes[j] > *io_scratch)
            *io_scratch = bytes[j];
    return LATHE_OK;
}

void cpu_head_pair_fini(cpu_device *device, head_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        cpu_product_destroy(device, pair->logits[i]);
        cpu_product_destroy(device, pair->dx[i]);
        cpu_product_destroy(device, pair->dw[i]);
    }
}
