/* Declares the part of NCCL that this plugin uses, with NCCL's own names. Do not include it
 * together with nccl.h. Source: the application interface of NCCL 2.14 and later. */
#ifndef LATHE_NCCL_API_H
#define LATHE_NCCL_API_H

#include <stddef.h>

typedef struct ncclComm *ncclComm_t;

/** Passed by value. */
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;

/* NCCL's enums, which have the size of an int. */
typedef int ncclResult_t;
typedef int ncclDataType_t;
typedef int ncclRedOp_t;

enum { ncclSuccess = 0, ncclInvalidUsage = 5, ncclRemoteError = 6, ncclInProgress = 7 };
enum {
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt64 = 4,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9
};
enum { ncclSum = 0, ncclMax = 2, ncclMin = 3 };

/** The configuration of a communicator as of 2.14; a later library takes its own defaults for what
 *  it has more, by `size` and `version`. */
typedef struct ncclConfig_t {
    size_t size;
    unsigned int magic, version;
    int blocking; /* 0: calls return at once, with ncclInProgress */
    int padding;
} ncclConfig_t;

enum { NCCL_CONFIG_VERSION = 21400 };
#define NCCL_CONFIG_MAGIC 0xcafebeefu

/* X(result, name, parameters); streams are cudaStream_t */
#define NCCL_FUNCTIONS(X)                                                                          \
    X(ncclResult_t, ncclGetVersion, (int *))                                                       \
    X(const char *, ncclGetErrorString, (ncclResult_t))                                            \
    X(const char *, ncclGetLastError, (ncclComm_t))                                                \
    X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId *))                                             \
    X(ncclResult_t, ncclCommInitRankConfig,                                                        \
      (ncclComm_t *, int n_ranks, ncclUniqueId, int rank, ncclConfig_t *))                         \
    X(ncclResult_t, ncclCommFinalize, (ncclComm_t))                                                \
    X(ncclResult_t, ncclCommDestroy, (ncclComm_t))                                                 \
    X(ncclResult_t, ncclCommAbort, (ncclComm_t))                                                   \
    X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t, ncclResult_t *))                           \
    X(ncclResult_t, ncclGroupStart, (void))                                                        \
    X(ncclResult_t, ncclGroupEnd, (void))                                                          \
    X(ncclResult_t, ncclAllReduce,                                                                 \
      (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, void *stream))       \
    X(ncclResult_t, ncclReduce,                                                                    \
      (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int root, ncclComm_t,            \
       void *stream))                                                                              \
    X(ncclResult_t, ncclReduceScatter,                                                             \
      (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, void *stream))       \
    X(ncclResult_t, ncclAllGather,                                                                 \
      (const void *, void *, size_t, ncclDataType_t, ncclComm_t, void *stream))                    \
    X(ncclResult_t, ncclBroadcast,                                                                 \
      (const void *, void *, size_t, ncclDataType_t, int root, ncclComm_t, void *stream))          \
    X(ncclResult_t, ncclSend,                                                                      \
      (const void *, size_t, ncclDataType_t, int peer, ncclComm_t, void *stream))                  \
    X(ncclResult_t, ncclRecv, (void *, size_t, ncclDataType_t, int peer, ncclComm_t, void *stream))

#endif
