/* The cuBLASLt functions that Lathe calls: products in double, of column-major matrices as the library has
 * them. It offers one algorithm, with a workspace of 64 bytes that it checks for, and holds the caller to
 * the alignment that the heuristic was told. */
#include <cublasLt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "lathe/dtype.h"

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
    return m.type == CUDA_R_32F    ? (double)((const float *)p)[i]
           : m.type == CUDA_R_16BF ? (double)lathe_bf16_to_f32(((const uint16_t *)p)[i])
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

/* What the library multiplies: equal input types, and a result in theirs or in f32. */
bool fits(const matmul_desc &d, const layout &a, const layout &b, const layout &c)
{
    const uint64_t m = d.a == CUBLAS_OP_N ? a.rows : a.cols,
                   k = d.a == CUBLAS_OP_N ? a.cols : a.rows;
    const uint64_t n = d.b == CUBLAS_OP_N ? b.cols : b.rows,
                   kb = d.b == CUBLAS_OP_N ? b.rows : b.cols;
    return is_known(a) && is_known(c) && a.type == b.type &&
           (c.type == a.type || c.type == CUDA_R_32F) && k == kb && c.rows == m && c.cols == n &&
           a.ld >= (int64_t)a.rows && b.ld >= (int64_t)b.rows && c.ld >= (int64_t)c.rows;
}

/* Its table of types has a bias of D's type alone. */
bool fits_epilogue(const matmul_desc &d, const layout &out)
{
    return d.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
           (d.epilogue == CUBLASLT_EPILOGUE_BIAS && is_aligned(d.bias, 16) &&
            (d.bias_type < 0 || d.bias_type == (int32_t)out.type));
}

/* [cols][rows], or its transpose: once, not once for each product it is part of. */
std::vector<double> unpacked(const layout &m, const void *p, bool is_transposed)
{
    std::vector<double> out(m.rows * m.cols);
    for (uint64_t col = 0; col < m.cols; col++)
        for (uint64_t row = 0; row < m.rows; row++)
            out[is_transposed ? row * m.cols + col : col * m.rows + row] = load(m, p, row, col);
    return out;
}

void multiply(const matmul_desc &d, const layout &ma, const void *a, const layout &mb,
              const void *b, const layout &mc, void *c, double alpha, double beta)
{
    const uint64_t n_inner = d.a == CUBLAS_OP_N ? ma.cols : ma.rows, n_rows = mc.rows;
    const std::vector<double> left = unpacked(ma, a, d.a != CUBLAS_OP_N),
                              right = unpacked(mb, b, d.b != CUBLAS_OP_N);
    std::vector<double> sums(n_rows);
    for (uint64_t col = 0; col < mc.cols; col++) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (uint64_t i = 0; i < n_inner; i++) {
            const double *const x = left.data() + i * n_rows, y = right[col * n_inner + i];
            double *const sum = sums.data();
            for (uint64_t row = 0; row < n_rows; row++)
                sum[row] += x[row] * y;
        }
        for (uint64_t row = 0; row < n_rows; row++) {
            const double bias =
                d.epilogue == CUBLASLT_EPILOGUE_BIAS ? load(mc, d.bias, row, 0) : 0.0;
            store(mc, c, row, col,
                  alpha * sums[row] + bias + (beta == 0.0 ? 0.0 : beta * load(mc, c, row, col)));
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
    if (!fits(*(matmul_desc *)desc, *(layout *)a, *(layout *)b, *(layout *)c) ||
        !fits_epilogue(*(matmul_desc *)desc, *(layout *)c))
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
        !fits_epilogue(what, *(layout *)mc))
        return CUBLAS_STATUS_EXECUTION_FAILED; /* the real one: an address error on the GPU */
    const layout la = *(layout *)ma, lb = *(layout *)mb, lc = *(layout *)mc;
    const double x = (double)*(const float *)alpha, y = (double)*(const float *)beta;
    emulator::queue(stream, [=] {
        memset(workspace, 0xff, WORKSPACE); /* it is the product's while it runs */
        multiply(what, la, a, lb, b, lc, d, x, y);
    });
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
