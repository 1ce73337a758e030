/* Builds a graph of cuDNN operations. The first failure is kept in `error`; later calls do nothing
 * and return NULL. */
#ifndef LATHE_CUDNN_BUILDER_H
#define LATHE_CUDNN_BUILDER_H

#include "cudnn_library.h"

enum { CUDNN_GRAPH_MAX = 192, CUDNN_GRAPH_MAX_OPS = 48 };

typedef cudnnBackendDescriptor_t cudnn_descriptor;

typedef struct cudnn_graph {
    const cudnn_library *lib;
    cudnn_descriptor made[CUDNN_GRAPH_MAX]; /* all descriptors, in the order of creation */
    cudnn_descriptor ops[CUDNN_GRAPH_MAX_OPS];
    int32_t n_made, n_ops;
    int64_t next_uid; /* for tensors without memory */
    cudnnStatus_t status;
    char error[192]; /* message of the first failure */
} cudnn_graph;

/** [d0,d1,d2,d3] and the distance between elements along each dim. */
typedef struct cudnn_shape {
    int64_t dims[4], strides[4];
} cudnn_shape;

/** One attribute of a descriptor: name, type, count, address. A list ends with count 0. */
typedef struct cudnn_attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    const void *at;
} cudnn_attribute;

void cudnn_graph_init(cudnn_graph *g, const cudnn_library *lib);
/** Destroys all descriptors of the graph. */
void cudnn_graph_fini(cudnn_graph *g);

/** Makes a descriptor with these attributes and finalizes it; the graph owns it. */
cudnn_descriptor cudnn_graph_make(cudnn_graph *g, cudnnBackendDescriptorType_t type,
                                  const cudnn_attribute *attributes);

/** A tensor with memory, which each run passes under `uid`: 16-byte aligned; f32 and int32
 *  4-byte. */
cudnn_descriptor cudnn_graph_tensor(cudnn_graph *g, int64_t uid, cudnnDataType_t type,
                                    const cudnn_shape *shape);
/** A number that each run passes from host memory under `uid`. */
cudnn_descriptor cudnn_graph_number(cudnn_graph *g, int64_t uid, cudnnDataType_t type);
/** A tensor that exists only inside the graph. */
cudnn_descriptor cudnn_graph_inner(cudnn_graph *g, cudnnDataType_t type, const cudnn_shape *shape);

/** y = mode(x, b); with `mask`: y = mask ? x : b. b and mask may be NULL; axis is for
 *  CUDNN_POINTWISE_GEN_INDEX. */
void cudnn_graph_pointwise(cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                           int64_t axis, cudnn_descriptor x, cudnn_descriptor b,
                           cudnn_descriptor mask, cudnn_descriptor y);
/** y = x reduced along the dims where y has 1 (or fewer), in f32. */
void cudnn_graph_reduce(cudnn_graph *g, cudnnReduceTensorOp_t mode, cudnn_descriptor x,
                        cudnn_descriptor y);
/** c = a b over the last two dims, in f32. */
void cudnn_graph_matmul(cudnn_graph *g, cudnn_descriptor a, cudnn_descriptor b, cudnn_descriptor c);
/** y = x with other dims. */
void cudnn_graph_reshape(cudnn_graph *g, cudnn_descriptor x, cudnn_descriptor y);

/** Makes a descriptor with these attributes and does not finalize it; the graph owns it. Needed for
 *  descriptors that cuDNN fills in. */
cudnn_descriptor cudnn_graph_begin(cudnn_graph *g, cudnnBackendDescriptorType_t type,
                                   const cudnn_attribute *attributes);
/** Notes a failure, unless there was one before or the status is success. */
void cudnn_graph_note(cudnn_graph *g, cudnnStatus_t status, const char *what);

#endif
