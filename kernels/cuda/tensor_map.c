// cuTensorMapEncodeTiled through dlopen: programs are linked with the runtime, not with the driver, which the runtime
// has loaded; and the headers of CUDA 11.8 do not have it.
#include "kernels/cuda/tensor_map.h"
#include "common/err.h"
#include "kernels/cuda/cuda_internal.h"
#include <dlfcn.h>

enum { SIDE = 64, RANK = 4 };
// Values of CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion and
// CUtensorMapFloatOOBfill, and CUDA_SUCCESS.
enum { FLOAT16 = 6, BFLOAT16 = 9, NOT_INTERLEAVED = 0, SWIZZLE_128B = 3, L2_256B = 3, ZEROS = 0, SUCCESS = 0 };

typedef int (*Encode)(TensorMap *map, int type, uint32_t rank, void *at, const uint64_t *sizes, const uint64_t *strides,
                      const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill);

static Encode encoder(void) {
    static Encode encode;
    void *driver = encode ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
    if (driver) encode = (Encode)dlsym(driver, "cuTensorMapEncodeTiled");
    if (!encode) die(EX_GPU, "the NVIDIA driver has no cuTensorMapEncodeTiled: update it to one for CUDA 12");
    return encode;
}

TensorMap tensor_map(const void *at, int B, int T, int heads, int width, int height) {
    TensorMap map;
    const uint64_t bytes = dtype_bytes(cuda.act_type), head = (uint64_t)width * bytes, row = (uint64_t)heads * head;
    const uint64_t sizes[RANK] = {(uint64_t)width, (uint64_t)heads, (uint64_t)T, (uint64_t)B};
    const uint64_t strides[RANK - 1] = {head, row, row * (uint64_t)T}; // in bytes, of all but the channels
    const uint32_t box[RANK] = {SIDE, 1, (uint32_t)height, 1}, steps[RANK] = {1, 1, 1, 1};
    const int error = encoder()(&map, cuda.act_type == DTYPE_FP16 ? FLOAT16 : BFLOAT16, RANK, (void *)(uintptr_t)at,
                                sizes, strides, box, steps, NOT_INTERLEAVED, SWIZZLE_128B, L2_256B, ZEROS);
    if (error != SUCCESS)
        die(EX_GPU, "a tensor map of (%d,%d,%d,%d): the NVIDIA driver reports error %d", B, T, heads, width, error);
    return map;
}
