/* Emulates the cuBLASLt functions that Lathe calls, with products in double of column-major
 * matrices.
 *
 * It offers one algorithm, with a workspace of 64 bytes that it checks, and requires the alignment
 * that the heuristic was told. fp8 follows NVIDIA's documentation (cublasLtMatmul, "narrow
 * precision"): GPUs from 8.9 on; A transposed and B not, except on 10.x; every dim and address a
 * multiple of 16; not E5M2 by E5M2; a bias only in 16 bits; scales in device memory, per row only
 * on 9.0.
 *
 * With LATHE_EMULATOR_SPLITS=1 in the environment the order of a sum depends on the shape of the
 * product, as the algorithms that the library chooses do: sums have from 1 to 5 parts in f32. */
#include <cublasLt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "lathe/fp8.h"

namespace emulator
{
cudaError_t queue(cudaStream_t stream, std::function<void()> work);
}

namespace
{

constexpr size_t WORKSPACE = 64;

struct matmul_desc {
    cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    int32_t bias_type = -1;
    const void *bias = nullptr;
    int8_t fast = 0;
    int32_t scale_mode[2] = {0, 0}; /* of A and B */
    const float *scale[2] = {nullptr, nullptr};
    cublasComputeType_t compute;
};

struct layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
};

struct preference {
    uint64_t workspace = 0;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    uint32_t alignment[4] = {256, 256, 256, 256}; /* of A, B, C and D */
};

bool is_aligned(const void *p, uint64_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

double load(const layout &m, const void *p, uint64_t row, uint64_t col)
{
    const int64_t i = (int64_t)row + (int64_t)col * m.ld;
    return m.type == CUDA_R_32F       ? (double)((const float *)p)[i]
           : m.type == CUDA_R_16BF    ? (double)lathe_bf16_to_f32(((const uint16_t *)p)[i])
           : m.type == CUDA_R_8F_E4M3 ? (double)lathe_e4m3_to_f32(((const uint8_t *)p)[i])
           : m.type == CUDA_R_8F_E5M2 ? (double)lathe_e5m2_to_f32(((const uint8_t *)p)[i])
                                      : (double)lathe_f16_to_f32(((const uint16_t *)p)[i]);
}

void store(const layout &m, void *p, uint64_t row, uint64_t col, double x)
{
    const int64_t i = (int64_t)row + (int64_t)col * m.ld;
    if (m.type == CUDA_R_32F)
        ((float *)p)[i] = (float)x;
    else
        ((uint16_t *)p)[i] =
            m.type == CUDA_R_16BF ? lathe_f32_to_bf16((float)x) : lathe_f32_to_f16((float)x);
}

bool is_known(const layout &m)
{
    return m.type == CUDA_R_32F || m.type == CUDA_R_16BF || m.type == CUDA_R_16F;
}

bool is_fp8(const layout &m)
{
    return m.type == CUDA_R_8F_E4M3 || m.type == CUDA_R_8F_E5M2;
}

int machine_arch()
{
    cudaDeviceProp p;
    return cudaGetDeviceProperties(&p, 0) == cudaSuccess ? 10 * p.major + p.minor : 0;
}

bool is_device_memory(const void *p)
{
    cudaPointerAttributes a;
    return cudaPointerGetAttributes(&a, p) == cudaSuccess && a.type == cudaMemoryTypeDevice;
}

bool fits_fp8(const matmul_desc &d, const layout &a, const layout &b, const layout &c)
{
    const int arch = machine_arch();
    const bool by_rows = d.scale_mode[0] != 0;
    if (!is_fp8(a) || !is_fp8(b) || arch < 89 || d.compute != CUBLAS_COMPUTE_32F ||
        (a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2) || !is_known(c))
        return false;
    if (arch / 10 != 10 && (d.a != CUBLAS_OP_T || d.b != CUBLAS_OP_N))
        return false;
    for (const layout *m : {&a, &b, &c})
        if (m->rows % 16 != 0 || m->cols % 16 != 0 || m->ld % 16 != 0)
            return false;
    if (d.scale_mode[0] != d.scale_mode[1] ||
        (by_rows && (d.scale_mode[0] != CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F || arch != 90)))
        return false;
    return !by_rows || (d.scale[0] != nullptr && d.scale[1] != nullptr);
}

/* Whether the library can multiply these: equal input types, with a result of their type or f32; or
 * fp8. */
bool fits(const matmul_desc &d, const layout &a, const layout &b, const layout &c)
{
    const uint64_t m = d.a == CUBLAS_OP_N ? a.rows : a.cols,
                   k = d.a == CUBLAS_OP_N ? a.cols : a.rows;
    const uint64_t n = d.b == CUBLAS_OP_N ? b.cols : b.rows,
                   kb = d.b == CUBLAS_OP_N ? b.rows : b.cols;
    const bool plain = is_known(a) && is_known(c) && a.type == b.type &&
                       (c.type == a.type || c.type == CUDA_R_32F) && !d.fast && !d.scale[0] &&
                       !d.scale[1];
    return (plain || fits_fp8(d, a, b, c)) && k == kb && c.rows == m && c.cols == n &&
           a.ld >= (int64_t)a.rows && b.ld >= (int64_t)b.rows && c.ld >= (int64_t)c.rows;
}

/* The library's table of types allows only a bias of D's type; besides fp8 and f32, of bf16. The
 * type must be so even where no epilogue reads a bias (seen with cuBLASLt 13 on an H200). */
bool fits_bias_type(const matmul_desc &d, const layout &a, const layout &out)
{
    const cudaDataType_t type = is_fp8(a) && out.type == CUDA_R_32F ? CUDA_R_16BF : out.type;
    return d.bias_type < 0 || d.bias_type == (int32_t)type;
}

bool fits_epilogue(const matmul_desc &d, const layout &a, const layout &out)
{
    if (d.epilogue == CUBLASLT_EPILOGUE_DEFAULT)
        return fits_bias_type(d, a, out);
    return d.epilogue == CUBLASLT_EPILOGUE_BIAS && is_aligned(d.bias, 16) &&
           fits_bias_type(d, a, out) && (d.bias_type >= 0 || !is_fp8(a) || out.type != CUDA_R_32F);
}

bool fits_scales(const matmul_desc &d, const layout &a)
{
    for (const float *scale : d.scale)
        if (scale != nullptr && (!is_fp8(a) || !is_aligned(scale, 16) || !is_device_memory(scale)))
            return false;
    return true;
}

/* Unpacks a matrix to [cols][rows], or its transpose, once for all products that use it. */
std::vector<double> unpacked(const layout &m, const void *p, bool is_transposed)
{
    std::vector<double> out(m.rows * m.cols);
    for (uint64_t col = 0; col < m.cols; col++)
        for (uint64_t row = 0; row < m.rows; row++)
            out[is_transposed ? row * m.cols + col : col * m.rows + row] = load(m, p, row, col);
    return out;
}

/* Parts of each sum of a product. */
uint64_t parts_of(const layout &mc, uint64_t n_inner)
{
    const char *splits = getenv("LATHE_EMULATOR_SPLITS");
    return splits == nullptr || *splits != '1'
               ? 1
               : 1 + (7 * mc.rows + 11 * mc.cols + 13 * (uint64_t)mc.ld + n_inner) % 5;
}

void multiply(const matmul_desc &d, const layout &ma, const void *a, const layout &mb,
              const void *b, const layout &mc, void *c, double alpha, double beta)
{
    const uint64_t n_inner = d.a == CUBLAS_OP_N ? ma.cols : ma.rows, n_rows = mc.rows;
    const std::vector<double> left = unpacked(ma, a, d.a != CUBLAS_OP_N),
                              right = unpacked(mb, b, d.b != CUBLAS_OP_N);
    const int64_t step = d.scale_mode[0] == 0 ? 0 : 1;
    std::vector<double> sums(n_rows), earlier(n_rows); /* earlier: of the parts before */
    const uint64_t n_parts = parts_of(mc, n_inner), n_part = (n_inner + n_parts - 1) / n_parts;
    for (uint64_t col = 0; col < mc.cols; col++) {
        std::fill(sums.begin(), sums.end(), 0.0);
        std::fill(earlier.begin(), earlier.end(), 0.0);
        for (uint64_t i = 0; i < n_inner; i++) {
            for (uint64_t row = 0; n_parts > 1 && i > 0 && i % n_part == 0 && row < n_rows; row++) {
                earlier[row] = (double)(float)(earlier[row] + (double)(float)sums[row]);
                sums[row] = 0.0;
            }
            const double *const x = left.data() + i * n_rows, y = right[col * n_inner + i];
            double *const sum = sums.data();
            for (uint64_t row = 0; row < n_rows; row++)
                sum[row] += x[row] * y;
        }
        for (uint64_t row = 0; row < n_rows; row++) {
            const double bias =
                d.epilogue == CUBLASLT_EPILOGUE_BIAS ? load(mc, d.bias, row, 0) : 0.0;
            const double a_scale = d.scale[0] == nullptr ? 1.0 : d.scale[0][(int64_t)row * step];
            const double b_scale = d.scale[1] == nullptr ? 1.0 : d.scale[1][(int64_t)col * step];
            store(mc, c, row, col,
                  alpha * a_scale * b_scale * (earlier[row] + sums[row]) + bias +
                      (beta == 0.0 ? 0.0 : beta * load(mc, c, row, col)));
        }
    }
}

} // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    *out = (cublasLtHandle_t) new int(0);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete (int *)handle;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                 : "CUBLAS_STATUS_OF_THE_EMULATOR";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    auto *desc = new matmul_desc;
    desc->compute = compute;
    *out = (cublasLtMatmulDesc_t)desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete (matmul_desc *)desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    auto *d = (matmul_desc *)desc;
    void *to = nullptr;
    size_t size = sizeof(int32_t);
    if (attribute == CUBLASLT_MATMUL_DESC_TRANSA)
        to = &d->a;
    else if (attribute == CUBLASLT_MATMUL_DESC_TRANSB)
        to = &d->b;
    else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE)
        to = &d->epilogue;
    else if (attribute == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE)
        to = &d->bias_type;
    else if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) {
        to = &d->bias;
        size = sizeof d->bias;
    } else if (attribute == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER ||
               attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER) {
        to = &d->scale[attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER];
        size = sizeof d->scale[0];
    } else if (attribute == CUBLASLT_MATMUL_DESC_A_SCALE_MODE ||
               attribute == CUBLASLT_MATMUL_DESC_B_SCALE_MODE) {
        to = &d->scale_mode[attribute == CUBLASLT_MATMUL_DESC_B_SCALE_MODE];
    } else if (attribute == CUBLASLT_MATMUL_DESC_FAST_ACCUM) {
        to = &d->fast;
        size = sizeof d->fast;
    }
    if (to == nullptr || bytes != size)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    *out = (cublasLtMatrixLayout_t) new layout{type, rows, cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t m)
{
    delete (layout *)m;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = (cublasLtMatmulPreference_t) new preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete (preference *)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    auto *to = (preference *)p;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof to->workspace)
        memcpy(&to->workspace, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK &&
             bytes == sizeof to->reductions)
        memcpy(&to->reductions, value, bytes);
    else if (attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
             attribute <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES && bytes == sizeof(uint32_t))
        memcpy(&to->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
               bytes);
    else
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t p, int wanted,
                                              cublasLtMatmulHeuristicResult_t *out, int *out_n)
{
    (void)handle;
    *out_n = 0;
    if (wanted < 1 || c != d || ((preference *)p)->workspace < WORKSPACE ||
        ((preference *)p)->reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!fits_bias_type(*(matmul_desc *)desc, *(layout *)a, *(layout *)c))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!fits(*(matmul_desc *)desc, *(layout *)a, *(layout *)b, *(layout *)c) ||
        !fits_epilogue(*(matmul_desc *)desc, *(layout *)a, *(layout *)c))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (const uint32_t bytes : ((preference *)p)->alignment)
        if (is_fp8(*(layout *)a) && bytes < 16)
            return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = {};
    for (int i = 0; i < 4; i++)
        out->algo.data[i] = ((preference *)p)->alignment[i];
    out->workspaceSize = WORKSPACE;
    *out_n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t ma, const void *b,
                              cublasLtMatrixLayout_t mb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t mc, void *d, cublasLtMatrixLayout_t md,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    (void)handle;
    const matmul_desc what = *(matmul_desc *)desc;
    if (algo == nullptr || c != d || mc != md || workspace == nullptr ||
        workspace_bytes < WORKSPACE || !is_aligned(workspace, 256))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned(a, algo->data[0]) || !is_aligned(b, algo->data[1]) ||
        !is_aligned(c, algo->data[2]) || !is_aligned(d, algo->data[3]) ||
        !fits_epilogue(what, *(layout *)ma, *(layout *)mc))
        return CUBLAS_STATUS_EXECUTION_FAILED; /* the real one: an address error on the GPU */
    if (!fits_scales(what, *(layout *)ma))
        return CUBLAS_STATUS_INVALID_VALUE;
    const layout la = *(layout *)ma, lb = *(layout *)mb, lc = *(layout *)mc;
    const double x = (double)*(const float *)alpha, y = (double)*(const float *)beta;
    emulator::queue(stream, [=] {
        memset(workspace, 0xff, WORKSPACE); /* the workspace belongs to the running product */
        multiply(what, la, a, lb, b, lc, d, x, y);
    });
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
