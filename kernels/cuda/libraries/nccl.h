// NCCL without its header: the few types and functions that collective_nccl.c calls, as every version from 2.14 on has
// them. The library is loaded when several processes train on GPUs.
#pragma once

#include "kernels/cuda/libraries/library_search.h"
#include <cuda_runtime_api.h>
#include <limits.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { NCCL_VERSION_NEEDED = 21400 }; // 2.14.0: the first whose calls return before other ranks have made theirs

typedef struct NcclComm *ncclComm_t;
typedef struct {
    char bytes[128];
} ncclUniqueId;

typedef enum { NCCL_SUCCESS = 0, NCCL_INVALID_USAGE = 5, NCCL_IN_PROGRESS = 7 } ncclResult_t;
typedef enum { NCCL_UINT8 = 1, NCCL_FLOAT32 = 7 } ncclDataType_t;
typedef enum { NCCL_SUM = 0 } ncclRedOp_t;

// As in 2.17. Other versions read `size` and `version`: later ones use defaults for the members they have added, and
// 2.14 to 2.16 end with `blocking`.
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cluster_size, least_blocks, most_blocks; // of threads; NCCL_CONFIG_DEFAULT: NCCL's own
    const char *net_name;                                  // NULL: NCCL's own
} ncclConfig_t;
enum { NCCL_CONFIG_MAGIC = 0xcafebeef, NCCL_CONFIG_VERSION = 21700, NCCL_CONFIG_DEFAULT = INT_MIN };

#define NCCL_FUNCTIONS(X)                                                                                              \
    X(ncclResult_t, GetVersion, (int *version))                                                                        \
    X(ncclResult_t, GetUniqueId, (ncclUniqueId * id))                                                                  \
    X(ncclResult_t, CommInitRankConfig,                                                                                \
      (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config))                                 \
    X(ncclResult_t, CommAbort, (ncclComm_t comm))                                                                      \
    X(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                                        \
    X(const char *, GetErrorString, (ncclResult_t error))                                                              \
    X(const char *, GetLastError, (ncclComm_t comm))                                                                   \
    X(ncclResult_t, GroupStart, (void))                                                                                \
    X(ncclResult_t, GroupEnd, (void))                                                                                  \
    X(ncclResult_t, ReduceScatter,                                                                                     \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation, ncclComm_t comm,          \
       cudaStream_t stream))                                                                                           \
    X(ncclResult_t, Send,                                                                                              \
      (const void *from, size_t count, ncclDataType_t type, int to, ncclComm_t comm, cudaStream_t stream))             \
    X(ncclResult_t, Recv,                                                                                              \
      (void *to, size_t count, ncclDataType_t type, int from, ncclComm_t comm, cudaStream_t stream))                   \
    X(ncclResult_t, AllGather,                                                                                         \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream))           \
    X(ncclResult_t, Reduce,                                                                                            \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation, int root,                 \
       ncclComm_t comm, cudaStream_t stream))                                                                          \
    X(ncclResult_t, Broadcast,                                                                                         \
      (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream))

typedef struct {
#define X(result, name, arguments) result(*name) arguments;
    NCCL_FUNCTIONS(X)
#undef X
} Nccl;
extern Nccl nccl; // set by nccl_load

void nccl_find(FoundLibrary *found);

// -1 after fail() (80) when the library is not found, or an older one. Calling it again is free.
int nccl_load(void);

#ifdef __cplusplus
}
#endif
