/* UNIFORM_NOISE: y = x + alpha * (2u - 1).
 *
 * An element has u of its word of random_words.cuh. A thread
 * processes the four elements of an RNG block. Each element is read and written once.
 */
#include "base/launch.cuh"
#include "base/random_words.cuh"

struct noise_spec {
    const int64_t *rng; /* [LATHE_RNG_COUNTER] in device memory */
    uint64_t stream;
    float alpha;
};

/* Processes N elements from `first` on, with the random words `u`. */
template <int N, typename T>
static __device__ __forceinline__ void add_noise(const T *x, T *y, int64_t first, const uint32_t *u,
                                                 const noise_spec &s)
{
    const auto in = cuda_load<N>(x + first);
    auto out = cuda_pack<T, N>{};
    for (int j = 0; j < N; j++)
        cuda_put(&out.v[j], 0,
                 cuda_float(in.v[j]) + s.alpha * (2.0f * lathe_uniform_f32(u[j]) - 1.0f));
    cuda_store(y + first, out);
}

template <int PACKS, typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    noise_blocks(const T *x, T *y, int64_t n, noise_spec s)
{
    for (int64_t b = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; b < (n + 3) / 4;
         b += (int64_t)gridDim.x * blockDim.x) {
        const lathe_u32x4 words = cuda_random_words(s.rng, s.stream, n, 4 * b);
        if (PACKS && 4 * b + 4 <= n)
            add_noise<4>(x, y, 4 * b, words.v, s);
        else
            for (int j = 0; j < 4 && 4 * b + j < n; j++)
                add_noise<1>(x, y, 4 * b + j, words.v + j, s);
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]);
    const int packs = ((uintptr_t)a->in[0] | (uintptr_t)a->out[0]) % 16 == 0;
    const noise_spec spec = {(const int64_t *)a->in[1], k->attrs.rng_stream, (float)k->attrs.alpha};
    const int64_t blocks = cuda_blocks(cuda_of(k), (n + 3) / 4);
    if (n == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        const T *x = (const T *)a->in[0];
        T *y = (T *)a->out[0];
        return packs ? cuda_run(k, a, blocks, CUDA_THREADS, noise_blocks<1, T>, x, y, n, spec)
                     : cuda_run(k, a, blocks, CUDA_THREADS, noise_blocks<0, T>, x, y, n, spec);
    });
}

const kernel_op CUDA_OP(UNIFORM_NOISE) = {nullptr, run, nullptr, 0};
