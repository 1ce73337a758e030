/* Builds graphs of cuDNN operations: descriptors and their attributes. */
#include "cudnn_builder.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define INNER_UID 1000 /* above the ids of tensors with memory */

void cudnn_graph_init(cudnn_graph *g, const cudnn_library *lib)
{
    memset(g, 0, sizeof *g);
    g->lib = lib;
    g->next_uid = INNER_UID;
}

void cudnn_graph_fini(cudnn_graph *g)
{
    while (g->n_made > 0)
        (void)g->lib->cudnnBackendDestroyDescriptor(g->made[--g->n_made]);
}

/* Records `what`, cuDNN's name of the status and cuDNN's message. */
void cudnn_graph_note(cudnn_graph *g, cudnnStatus_t status, const char *what)
{
    char words[128] = "";
    if (status == CUDNN_STATUS_SUCCESS || g->status != CUDNN_STATUS_SUCCESS)
        return;
    g->lib->cudnnGetLastErrorString(words, sizeof words);
    words[sizeof words - 1] = '\0';
    words[strcspn(words, "\n")] = '\0';
    g->status = status;
    (void)snprintf(g->error, sizeof g->error, "%s: %s%s%s", what,
                   g->lib->cudnnGetErrorString(status), words[0] ? ": " : "", words);
}

cudnn_descriptor cudnn_graph_begin(cudnn_graph *g, cudnnBackendDescriptorType_t type,
                                   const cudnn_attribute *attributes)
{
    cudnn_descriptor d = NULL;
    if (g->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (g->n_made == CUDNN_GRAPH_MAX) {
        cudnn_graph_note(g, CUDNN_STATUS_INTERNAL_ERROR, "a graph of too many descriptors");
        return NULL;
    }
    cudnn_graph_note(g, g->lib->cudnnBackendCreateDescriptor(type, &d), "descriptor");
    if (g->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    g->made[g->n_made++] = d;
    for (; attributes->count > 0; attributes++)
        cudnn_graph_note(g,
                         g->lib->cudnnBackendSetAttribute(d, attributes->name, attributes->type,
                                                          attributes->count, attributes->at),
                         "attribute");
    return d;
}

cudnn_descriptor cudnn_graph_make(cudnn_graph *g, cudnnBackendDescriptorType_t type,
                                  const cudnn_attribute *attributes)
{
    cudnn_descriptor d = cudnn_graph_begin(g, type, attributes);
    if (g->status == CUDNN_STATUS_SUCCESS)
        cudnn_graph_note(g, g->lib->cudnnBackendFinalize(d), "descriptor");
    return g->status == CUDNN_STATUS_SUCCESS ? d : NULL;
}

static cudnn_descriptor tensor(cudnn_graph *g, int64_t uid, cudnnDataType_t type,
                               const cudnn_shape *shape, bool is_inner, bool is_number)
{
    const int64_t alignment =
        is_number || type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_INT32 ? 4 : 16;
    const cudnn_attribute attributes[] = {
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid},
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape->dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, shape->strides},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_inner},
        {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_number},
        {0},
    };
    return cudnn_graph_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, attributes);
}

cudnn_descriptor cudnn_graph_tensor(cudnn_graph *g, int64_t uid, cudnnDataType_t type,
                                    const cudnn_shape *shape)
{
    return tensor(g, uid, type, shape, false, false);
}

cudnn_descriptor cudnn_graph_number(cudnn_graph *g, int64_t uid, cudnnDataType_t type)
{
    static const cudnn_shape one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    return tensor(g, uid, type, &one, false, true);
}

cudnn_descriptor cudnn_graph_inner(cudnn_graph *g, cudnnDataType_t type, const cudnn_shape *shape)
{
    return tensor(g, g->next_uid++, type, shape, true, false);
}

/* Adds an operation. A NULL tensor means an earlier failure, which is already recorded. */
static void add_op(cudnn_graph *g, cudnnBackendDescriptorType_t type,
                   const cudnn_attribute *attributes)
{
    cudnn_descriptor op = cudnn_graph_make(g, type, attributes);
    if (op != NULL && g->n_ops == CUDNN_GRAPH_MAX_OPS)
        cudnn_graph_note(g, CUDNN_STATUS_INTERNAL_ERROR, "a graph of too many operations");
    else if (op != NULL)
        g->ops[g->n_ops++] = op;
}

void cudnn_graph_pointwise(cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                           int64_t axis, cudnn_descriptor x, cudnn_descriptor b,
                           cudnn_descriptor mask, cudnn_descriptor y)
{
    const cudnn_attribute kind[] = {
        {CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute},
        {CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, mode == CUDNN_POINTWISE_GEN_INDEX, &axis},
        {0},
    };
    const cudnn_descriptor what = cudnn_graph_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, kind);
    cudnn_attribute op[6] = {
        {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &what},
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
        {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
    };
    int32_t n = 3;
    if (b != NULL)
        op[n++] = (cudnn_attribute){CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b};
    if (mask != NULL)
        op[n++] = (cudnn_attribute){CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &mask};
    add_op(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, op);
}

void cudnn_graph_reduce(cudnn_graph *g, cudnnReduceTensorOp_t mode, cudnn_descriptor x,
                        cudnn_descriptor y)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnn_attribute kind[] = {
        {CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode},
        {CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute},
        {0},
    };
    const cudnn_descriptor what = cudnn_graph_make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, kind);
    const cudnn_attribute op[] = {
        {CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &what},
        {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
        {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
        {0},
    };
    add_op(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, op);
}

void cudnn_graph_matmul(cudnn_graph *g, cudnn_descriptor a, cudnn_descriptor b, cudnn_descriptor c)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnn_attribute kind[] = {
        {CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute},
        {0},
    };
    const cudnn_descriptor what = cudnn_graph_make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, kind);
    const cudnn_attribute op[] = {
        {CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &what},
        {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &a},
        {CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b},
        {CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c},
        {0},
    };
    add_op(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, op);
}

void cudnn_graph_reshape(cudnn_graph *g, cudnn_descriptor x, cudnn_descriptor y)
{
    const cudnn_attribute op[] = {
        {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
        {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
        {0},
    };
    add_op(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, op);
}
