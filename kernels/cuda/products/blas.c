/* Matrix products by cuBLASLt.
 *
 * The library computes with column-major matrices. A row-major c [m,n] is computed as its
 * transpose: the library's A is our b and its B is our a, so nothing is copied.
 */
#include "products/blas.h"

#include "base/cuda_memory.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>

#include "lathe/fp8.h"

#define WORKSPACE_BYTES ((uint64_t)32 << 20) /* NVIDIA's recommendation for Hopper */
#define WORKSPACE_ALIGNED 256                /* alignment that cublasLtMatmul requires of it */
#define ALIGNED 16                           /* of operands and biases: the fast kernels need it */
#define HAS_ROW_SCALES (CUBLAS_VERSION >= 120900) /* fp8: scales per row, on Hopper only */

/* The library functions that are used. */
#define FUNCTIONS(X)                                                                               \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtGetStatusName)

typedef struct functions {
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
} functions;

struct cuda_blas {
    functions f;
    cublasLtHandle_t handle;
    cublasComputeType_t f32_compute;
};

typedef struct choice {
    cublasLtMatmulAlgo_t algo;
    size_t workspace_bytes;
    int32_t is_known;
} choice;

struct cuda_product {
    matmul_spec spec;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c; /* the library's: our b, a and c */
    choice choices[2];              /* [1]: for operands aligned to ALIGNED */
    int32_t adds_bias;
    int64_t bias_at; /* in the workspace: copy of a bias that is not aligned */
};

#ifdef LATHE_CUDA_EMULATED
static const char *load(functions *f)
{
#define X(name) f->name = name;
    FUNCTIONS(X)
#undef X
    return NULL;
}
#else
/* Opens the library. Returns NULL, or the message of dlerror. The library is never closed: its
 * threads would not survive dlclose. */
static const char *load(functions *f)
{
    char file[64];
    (void)snprintf(file, sizeof file, "libcublasLt.so.%d", CUDART_VERSION / 1000);
    void *so = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (so == NULL)
        return dlerror();
#define X(name)                                                                                    \
    *(void **)&f->name = dlsym(so, #name);                                                         \
    if (f->name == NULL)                                                                           \
        return dlerror();
    FUNCTIONS(X)
#undef X
    return NULL;
}
#endif

int32_t cuda_blas_found(char *why, int64_t why_bytes)
{
    functions f;
    const char *error = load(&f);
    if (error != NULL)
        (void)snprintf(why, (size_t)why_bytes, "cuBLASLt cannot be opened: %s", error);
    return error == NULL;
}

static lathe_status check(const cuda_device *device, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return LATHE_OK;
    return lathe_fail(device->host,
                      status == CUBLAS_STATUS_NOT_SUPPORTED ? LATHE_E_UNSUPPORTED : LATHE_E_DEVICE,
                      "%s: %s", what, device->blas->f.cublasLtGetStatusName(status));
}

lathe_status cuda_blas_create(const lathe_host *host, int32_t tf32, cuda_blas **out)
{
    cuda_blas *blas = host->alloc((int64_t)sizeof *blas);
    if (blas == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for cuBLASLt");
    const char *error = load(&blas->f);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (error == NULL)
        status = blas->f.cublasLtCreate(&blas->handle);
    if (error != NULL || status != CUBLAS_STATUS_SUCCESS) {
        const lathe_status failed =
            lathe_fail(host, LATHE_E_DEVICE, "cuBLASLt cannot be opened: %s",
                       error != NULL ? error : blas->f.cublasLtGetStatusName(status));
        host->free(blas);
        return failed;
    }
    blas->f32_compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    *out = blas;
    return LATHE_OK;
}

void cuda_blas_destroy(const lathe_host *host, cuda_blas *blas)
{
    if (blas == NULL)
        return;
    (void)blas->f.cublasLtDestroy(blas->handle);
    host->free(blas);
}

static cudaDataType_t type_of(int32_t dtype)
{
    return dtype == LATHE_F32       ? CUDA_R_32F
           : dtype == LATHE_BF16    ? CUDA_R_16BF
           : dtype == LATHE_F16     ? CUDA_R_16F
           : dtype == LATHE_F8_E4M3 ? CUDA_R_8F_E4M3
                                    : CUDA_R_8F_E5M2;
}

static int is_fp8(const matmul_spec *s)
{
    return lathe_dtype_bytes(s->a_dtype) == 1;
}

/* Describes a row-major [rows, cols] matrix, column-major [cols, rows]; stride 0: dense. */
static cublasStatus_t layout(const functions *f, cublasLtMatrixLayout_t *out, int32_t dtype,
                             int64_t rows, int64_t cols, int64_t stride)
{
    return f->cublasLtMatrixLayoutCreate(out, type_of(dtype), (uint64_t)cols, (uint64_t)rows,
                                         stride > 0 ? stride : cols);
}

static cublasStatus_t set(const functions *f, cuda_product *p, cublasLtMatmulDescAttributes_t which,
                          const void *value, size_t bytes)
{
    return f->cublasLtMatmulDescSetAttribute(p->desc, which, value, bytes);
}

/* Sets the inverse factors of our a and b: one per operand, or one per row of each. */
static cublasStatus_t point_at_scales(const functions *f, cuda_product *p, const float *a,
                                      const float *b)
{
    cublasStatus_t status = set(f, p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b, sizeof b);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(f, p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a, sizeof a);
    return status;
}

/* Forward products (both operands E4M3) use fast accumulation: on Hopper, fewer bits than f32
 * between promotions. Gradients do not. The address is a placeholder that tells the heuristic about
 * the scales. */
static cublasStatus_t describe_fp8(const functions *f, cuda_product *p)
{
    const int8_t fast = p->spec.a_dtype == LATHE_F8_E4M3 && p->spec.b_dtype == LATHE_F8_E4M3;
    const float *some = (const float *)(uintptr_t)WORKSPACE_ALIGNED;
    cublasStatus_t status = set(f, p, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
    if (status == CUBLAS_STATUS_SUCCESS && p->spec.fp8 == LATHE_FP8_ROWWISE) {
#if HAS_ROW_SCALES
        const int32_t rows = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
        status = set(f, p, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &rows, sizeof rows);
        if (status == CUBLAS_STATUS_SUCCESS)
            status = set(f, p, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &rows, sizeof rows);
#else
        return CUBLAS_STATUS_NOT_SUPPORTED;
#endif
    }
    if (status == CUBLAS_STATUS_SUCCESS && p->spec.fp8 != LATHE_FP8_NONE)
        status = point_at_scales(f, p, some, some);
    return status;
}

static cublasStatus_t describe(const cuda_blas *blas, cuda_product *p)
{
    const functions *f = &blas->f;
    const matmul_spec *s = &p->spec;
    const cublasOperation_t op_a = s->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = s->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasComputeType_t compute =
        s->a_dtype == LATHE_F32 ? blas->f32_compute : CUBLAS_COMPUTE_32F;
    cublasStatus_t status = f->cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(f, p, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(f, p, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = s->trans_b ? layout(f, &p->a, s->b_dtype, s->n, s->k, 0)
                            : layout(f, &p->a, s->b_dtype, s->k, s->n, 0);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = s->trans_a ? layout(f, &p->b, s->a_dtype, s->k, s->m, s->a_stride)
                            : layout(f, &p->b, s->a_dtype, s->m, s->k, s->a_stride);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = layout(f, &p->c, s->c_dtype, s->m, s->n, s->c_stride);
    if (status == CUBLAS_STATUS_SUCCESS && is_fp8(s))
        status = describe_fp8(f, p);
    return status;
}

/* The library's bias per row is our bias per column. The address tells the heuristic its
 * alignment. */
static cublasStatus_t add_bias(const functions *f, cuda_product *p)
{
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const int32_t type = (int32_t)CUDA_R_32F;
    const uintptr_t address = ALIGNED;
    cublasStatus_t status = set(f, p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(f, p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(f, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &address, sizeof address);
    return status;
}

/* Excludes algorithms that split a sum and add the parts in any order (INPLACE) or store the parts
 * in 16 bits (OUTPUT_TYPE). */
static cublasStatus_t prefer(const functions *f, cublasLtMatmulPreference_t preference,
                             const matmul_spec *s, int is_aligned)
{
    const uint64_t workspace = WORKSPACE_BYTES;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const int32_t dtypes[4] = {s->b_dtype, s->a_dtype, s->c_dtype, s->c_dtype};
    static const cublasLtMatmulPreferenceAttributes_t names[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasStatus_t status = f->cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = f->cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions);
    for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++) {
        const uint32_t bytes = is_aligned ? ALIGNED : (uint32_t)lathe_dtype_bytes(dtypes[i]);
        status =
            f->cublasLtMatmulPreferenceSetAttribute(preference, names[i], &bytes, sizeof bytes);
    }
    return status;
}

/* Takes the first algorithm that the library proposes. */
static cublasStatus_t choose(const cuda_blas *blas, cuda_product *p, int is_aligned)
{
    const functions *f = &blas->f;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    cublasStatus_t status = f->cublasLtMatmulPreferenceCreate(&preference);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    status = prefer(f, preference, &p->spec, is_aligned);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = f->cublasLtMatmulAlgoGetHeuristic(blas->handle, p->desc, p->a, p->b, p->c, p->c,
                                                   preference, 1, &result, &found);
    (void)f->cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && found == 0)
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == CUBLAS_STATUS_SUCCESS)
        status = result.state;
    if (status == CUBLAS_STATUS_SUCCESS)
        p->choices[is_aligned] = (choice){result.algo, result.workspaceSize, 1};
    return status;
}

/* Chooses algorithms, also one for operands that are not aligned, if there is one. A bias is f32,
 * and the library adds only biases of the result's dtype. (It refuses a product whose description
 * has a bias of another dtype even if no epilogue reads it.) */
static cublasStatus_t choose_all(const cuda_blas *blas, cuda_product *p)
{
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    p->adds_bias = p->spec.bias && p->spec.c_dtype == LATHE_F32 && !is_fp8(&p->spec);
    if (p->adds_bias)
        status = add_bias(&blas->f, p);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = choose(blas, p, 1);
    if (status == CUBLAS_STATUS_SUCCESS && !is_fp8(&p->spec)) /* fp8 operands must be aligned */
        (void)choose(blas, p, 0);
    return status;
}

static cublasStatus_t init(const cuda_blas *blas, cuda_product *p, const matmul_spec *spec)
{
    p->spec = *spec;
    const cublasStatus_t status = describe(blas, p);
    return status == CUBLAS_STATUS_SUCCESS ? choose_all(blas, p) : status;
}

static void fini(const cuda_blas *blas, cuda_product *p)
{
    const functions *f = &blas->f;
    if (p->desc != NULL)
        (void)f->cublasLtMatmulDescDestroy(p->desc);
    if (p->a != NULL)
        (void)f->cublasLtMatrixLayoutDestroy(p->a);
    if (p->b != NULL)
        (void)f->cublasLtMatrixLayoutDestroy(p->b);
    if (p->c != NULL)
        (void)f->cublasLtMatrixLayoutDestroy(p->c);
}

int32_t cuda_product_offered(cuda_device *device, const matmul_spec *spec)
{
    cuda_product p = {.desc = NULL};
    const cublasStatus_t status = init(device->blas, &p, spec);
    fini(device->blas, &p);
    return status == CUBLAS_STATUS_SUCCESS;
}

lathe_status cuda_product_create(cuda_device *device, const matmul_spec *spec, cuda_product **out,
                                 int64_t *out_scratch)
{
    char what[160];
    cuda_product *p = device->host->alloc((int64_t)sizeof *p);
    if (p == NULL)
        return lathe_fail(device->host, LATHE_E_NOMEM, "no memory for a product");
    const cublasStatus_t status = init(device->blas, p, spec);
    if (status != CUBLAS_STATUS_SUCCESS) {
        cuda_product_destroy(device, p);
        (void)snprintf(what, sizeof what, "product [%lld,%lld]x[%lld,%lld], %s by %s to %s",
                       (long long)spec->m, (long long)spec->k, (long long)spec->k,
                       (long long)spec->n, lathe_dtype_name(spec->a_dtype),
                       lathe_dtype_name(spec->b_dtype), lathe_dtype_name(spec->c_dtype));
        return check(device, status, what);
    }
    const size_t first = p->choices[0].workspace_bytes, second = p->choices[1].workspace_bytes;
    p->bias_at = cuda_round_up((int64_t)(first > second ? first : second), WORKSPACE_ALIGNED);
    *out = p;
    *out_scratch = p->bias_at + (p->adds_bias ? spec->n * 4 : 0) + WORKSPACE_ALIGNED;
    return LATHE_OK;
}

int32_t cuda_product_adds_bias(const cuda_product *p)
{
    return p->adds_bias;
}

void cuda_product_destroy(cuda_device *device, cuda_product *p)
{
    if (p == NULL)
        return;
    fini(device->blas, p);
    device->host->free(p);
}

/* Points the product at the bias; a bias that is not aligned is first copied to the workspace. */
static lathe_status point_at_bias(cuda_device *device, cuda_product *p, const void *bias,
                                  char *workspace, lathe_stream *stream)
{
    if ((uintptr_t)bias % ALIGNED != 0) {
        LATHE_TRY(cuda_memory_copy(device, stream, workspace + p->bias_at, bias, p->spec.n * 4,
                                   LATHE_COPY_ON_DEVICE));
        bias = workspace + p->bias_at;
    }
    return check(device,
                 set(&device->blas->f, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
                 "bias of a product");
}

lathe_status cuda_product_scale(cuda_device *device, cuda_product *p, const float *a,
                                const float *b)
{
    return check(device, point_at_scales(&device->blas->f, p, a, b), "scales of a product");
}

lathe_status cuda_product_run(cuda_device *device, cuda_product *p, const void *a, const void *b,
                              const void *bias, void *c, void *scratch, int32_t accumulate,
                              lathe_stream *stream)
{
    const float alpha = (float)p->spec.alpha, beta = accumulate ? 1.0f : 0.0f;
    const int is_aligned = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % ALIGNED == 0;
    const choice *by = &p->choices[is_aligned];
    char *workspace =
        (char *)scratch + (WORKSPACE_ALIGNED - (uintptr_t)scratch % WORKSPACE_ALIGNED);
    if (!by->is_known)
        return lathe_fail(device->host, LATHE_E_UNSUPPORTED,
                          "product: cuBLASLt has none for operands that are not %d-byte aligned",
                          ALIGNED);
    if (p->adds_bias)
        LATHE_TRY(point_at_bias(device, p, bias, workspace, stream));
    return check(device,
                 device->blas->f.cublasLtMatmul(device->blas->handle, p->desc, &alpha, b, p->a, a,
                                                p->b, &beta, c, p->c, c, p->c, &by->algo, workspace,
                                                by->workspace_bytes, cuda_stream(stream)),
                 "product");
}
