/* Keys and values of latent attention on GPUs: a thread copies one element, or sums one channel
 * over the heads in their order. Bound by memory. */
#include "latent_kv.h"
#include "lathe/dtype.h"
#include "lathe/kit/code_image.h"

static __device__ float load(const void *from, int32_t dtype, int64_t i)
{
    if (dtype == LATHE_F32)
        return ((const float *)from)[i];
    const uint16_t bits = ((const uint16_t *)from)[i];
    return dtype == LATHE_BF16 ? lathe_bf16_to_f32(bits) : lathe_f16_to_f32(bits);
}

/* Element `at` of `to` = element i of `from`; 0 without `from`. */
static __device__ void copy(void *to, int64_t at, const void *from, int64_t i, int32_t dtype)
{
    if (dtype == LATHE_F32)
        ((uint32_t *)to)[at] = from != NULL ? ((const uint32_t *)from)[i] : 0;
    else
        ((uint16_t *)to)[at] = from != NULL ? ((const uint16_t *)from)[i] : 0;
}

LATHE_CUDA_KERNEL(latent_kv_forward, LATENT_KV_THREADS, latent_kv_args)
{
    const int64_t key = a.own + a.shared_dim, both = a.own + a.value_dim, all = key + a.value_dim;
    const int64_t at = (int64_t)blockIdx.x * LATENT_KV_THREADS + threadIdx.x;
    const int64_t i = at / all, d = at % all; /* i: head of a token */
    if (i >= a.n_tokens * a.n_heads)
        return;
    if (d >= key && a.v != NULL)
        copy(a.v, i * a.value_dim + d - key, a.kv, i * both + d - a.shared_dim, a.dtype);
    if (d < a.own && a.k != NULL)
        copy(a.k, i * key + d, a.kv, i * both + d, a.dtype);
    if (d >= a.own && d < key && a.k != NULL)
        copy(a.k, i * key + d, a.shared, i / a.n_heads * a.shared_dim + d - a.own, a.dtype);
}

LATHE_CUDA_KERNEL(latent_kv_backward, LATENT_KV_THREADS, latent_kv_args)
{
    const int64_t key = a.own + a.shared_dim, both = a.own + a.value_dim;
    const int64_t at = (int64_t)blockIdx.x * LATENT_KV_THREADS + threadIdx.x;
    const int64_t i = at / both, d = at % both;
    if (i >= a.n_tokens * a.n_heads)
        return;
    if (d < a.own)
        copy(a.dkv, at, a.dk, i * key + d, a.dtype);
    else
        copy(a.dkv, at, a.dv, i * a.value_dim + d - a.own, a.dtype);
}

LATHE_CUDA_KERNEL(latent_kv_sum_heads, LATENT_KV_THREADS, latent_kv_args)
{
    const int64_t key = a.own + a.shared_dim;
    const int64_t at = (int64_t)blockIdx.x * LATENT_KV_THREADS + threadIdx.x;
    const int64_t n = at / a.shared_dim, d = at % a.shared_dim;
    float sum = 0.0f;
    if (n >= a.n_tokens)
        return;
    for (int64_t h = 0; h < a.n_heads && a.dk != NULL; h++)
        sum += load(a.dk, a.dtype, (n * a.n_heads + h) * key + a.own + d);
    if (a.dtype == LATHE_F32)
        ((float *)a.dshared)[at] = sum;
    else
        ((uint16_t *)a.dshared)[at] =
            a.dtype == LATHE_BF16 ? lathe_f32_to_bf16(sum) : lathe_f32_to_f16(sum);
}
