/* Matrix products by cuBLASLt.
 *
 * It thinks in column-major matrices, so a row-major c [m,n] is made as its transpose: the library's A is
 * our b and its B is our a, which needs no copies.
 */
#include "blas.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>

#define WORKSPACE_BYTES ((uint64_t)32 << 20) /* what NVIDIA recommends on Hopper */

/* The functions in use. */
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

struct cuda_product {
    matmul_spec spec;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c; /* the library's: our b, a and c */
    cublasLtMatmulAlgo_t algo;
    size_t workspace_bytes;
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
/* NULL, or dlerror's words. The library stays open: its threads do not survive dlclose. */
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
    return dtype == LATHE_F32 ? CUDA_R_32F : dtype == LATHE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* A row-major [rows, cols] matrix is column-major [cols, rows]. */
static cublasStatus_t layout(const functions *f, cublasLtMatrixLayout_t *out, int32_t dtype,
                             int64_t rows, int64_t cols)
{
    return f->cublasLtMatrixLayoutCreate(out, type_of(dtype), (uint64_t)cols, (uint64_t)rows, cols);
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
        status = f->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a,
                                                   sizeof op_a);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = f->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b,
                                                   sizeof op_b);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = s->trans_b ? layout(f, &p->a, s->b_dtype, s->n, s->k)
                            : layout(f, &p->a, s->b_dtype, s->k, s->n);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = s->trans_a ? layout(f, &p->b, s->a_dtype, s->k, s->m)
                            : layout(f, &p->b, s->a_dtype, s->m, s->k);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = layout(f, &p->c, s->c_dtype, s->m, s->n);
    return status;
}

/* The first choice among algorithms that add in a fixed order. */
static cublasStatus_t choose(const cuda_blas *blas, cuda_product *p)
{
    const functions *f = &blas->f;
    const uint64_t workspace = WORKSPACE_BYTES;
    const uint32_t reductions =
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    cublasStatus_t status = f->cublasLtMatmulPreferenceCreate(&preference);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    status = f->cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = f->cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = f->cublasLtMatmulAlgoGetHeuristic(blas->handle, p->desc, p->a, p->b, p->c, p->c,
                                                   preference, 1, &result, &found);
    (void)f->cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && found == 0)
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == CUBLAS_STATUS_SUCCESS) {
        p->algo = result.algo;
        p->workspace_bytes = result.workspaceSize;
    }
    return status;
}

lathe_status cuda_product_create(cuda_device *device, const matmul_spec *spec, cuda_product **out,
                                 int64_t *out_scratch)
{
    char what[160];
    cuda_product *p = device->host->alloc((int64_t)sizeof *p);
    if (p == NULL)
        return lathe_fail(device->host, LATHE_E_NOMEM, "no memory for a product");
    p->spec = *spec;
    cublasStatus_t status = describe(device->blas, p);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = choose(device->blas, p);
    if (status != CUBLAS_STATUS_SUCCESS) {
        cuda_product_destroy(device, p);
        (void)snprintf(what, sizeof what, "product [%lld,%lld]x[%lld,%lld], %s by %s to %s",
                       (long long)spec->m, (long long)spec->k, (long long)spec->k,
                       (long long)spec->n, lathe_dtype_name(spec->a_dtype),
                       lathe_dtype_name(spec->b_dtype), lathe_dtype_name(spec->c_dtype));
        return check(device, status, what);
    }
    *out = p;
    *out_scratch = (int64_t)p->workspace_bytes;
    return LATHE_OK;
}

void cuda_product_destroy(cuda_device *device, cuda_product *p)
{
    if (p == NULL)
        return;
    const functions *f = &device->blas->f;
    if (p->desc != NULL)
        (void)f->cublasLtMatmulDescDestroy(p->desc);
    if (p->a != NULL)
        (void)f->cublasLtMatrixLayoutDestroy(p->a);
    if (p->b != NULL)
        (void)f->cublasLtMatrixLayoutDestroy(p->b);
    if (p->c != NULL)
        (void)f->cublasLtMatrixLayoutDestroy(p->c);
    device->host->free(p);
}

lathe_status cuda_product_run(cuda_device *device, cuda_product *p, const void *a, const void *b,
                              void *c, void *scratch, int32_t accumulate, lathe_stream *stream)
{
    const float alpha = (float)p->spec.alpha, beta = accumulate ? 1.0f : 0.0f;
    return check(device,
                 device->blas->f.cublasLtMatmul(device->blas->handle, p->desc, &alpha, b, p->a, a,
                                                p->b, &beta, c, p->c, c, p->c, &p->algo, scratch,
                                                p->workspace_bytes, cuda_stream(stream)),
                 "product");
}
