/* Declares the part of cuDNN 9's graph API that this plugin uses, with cuDNN's own names. Do not
 * include it together with cudnn_graph.h. */
#ifndef LATHE_CUDNN_API_H
#define LATHE_CUDNN_API_H

#include <stddef.h>
#include <stdint.h>

enum {
#define X(name, value) name = (value),
#include "cudnn_values.inc"
#undef X
};

/* cuDNN's enums, which have the size of an int. */
typedef int cudnnStatus_t;
typedef int cudnnDataType_t;
typedef int cudnnBackendAttributeType_t;
typedef int cudnnBackendAttributeName_t;
typedef int cudnnBackendDescriptorType_t;
typedef int cudnnPointwiseMode_t;
typedef int cudnnReduceTensorOp_t;
typedef int cudnnBackendHeurMode_t;
typedef int cudnnBackendKnobType_t;
typedef int cudnnBackendNumericalNote_t;

typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;

/* X(result, name, parameters) */
#define CUDNN_FUNCTIONS(X)                                                                         \
    X(size_t, cudnnGetVersion, (void))                                                             \
    X(const char *, cudnnGetErrorString, (cudnnStatus_t))                                          \
    X(void, cudnnGetLastErrorString, (char *, size_t))                                             \
    X(cudnnStatus_t, cudnnCreate, (cudnnHandle_t *))                                               \
    X(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t))                                                \
    X(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t, void *))                                      \
    X(cudnnStatus_t, cudnnBackendCreateDescriptor,                                                 \
      (cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *))                                  \
    X(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t))                    \
    X(cudnnStatus_t, cudnnBackendSetAttribute,                                                     \
      (cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,         \
       int64_t, const void *))                                                                     \
    X(cudnnStatus_t, cudnnBackendGetAttribute,                                                     \
      (cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,         \
       int64_t, int64_t *, void *))                                                                \
    X(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t))                             \
    X(cudnnStatus_t, cudnnBackendExecute,                                                          \
      (cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t))

#endif
