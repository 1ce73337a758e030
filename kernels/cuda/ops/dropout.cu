/* DROPOUT and its derivative: y = x / (1-p) for the elements that the counter RNG keeps, else 0.
 *
 * An element uses its word of random_words.cuh; it is kept if u >= p. Every device gives the same
 * mask, bit for bit.
 *
 * A thread processes the four elements of an RNG block. Each element is read and written once. The
 * 20 instructions per element that Philox needs fit into the time that moving 4 bytes takes.
 */
#include "base/launch.cuh"
#include "base/random_words.cuh"

struct drop_spec {
    const int64_t *rng; /* [LATHE_RNG_COUNTER] in device memory */
    uint64_t stream;
    float p, factor;
    int accumulate;
};

/* Processes N elements from `first` on, with the random words `u`. */
template <int N, typename T>
static __device__ __forceinline__ void drop(const T *x, T *y, int64_t first, const uint32_t *u,
                                            const drop_spec &s)
{
    const auto in = cuda_load<N>(x + first);
    auto out = s.accumulate ? cuda_load<N>((const T *)y + first) : cuda_pack<T, N>{};
    for (int j = 0; j < N; j++)
        cuda_put(&out.v[j], s.accumulate,
                 lathe_uniform_f32(u[j]) >= s.p ? cuda_float(in.v[j]) * s.factor : 0.0f);
    cuda_store(y + first, out);
}

template <int PACKS, typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    drop_blocks(const T *x, T *y, int64_t n, drop_spec s)
{
    for (int64_t b = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; b < (n + 3) / 4;
         b += (int64_t)gridDim.x * blockDim.x) {
        const lathe_u32x4 words = cuda_random_words(s.rng, s.stream, n, 4 * b);
        if (PACKS && 4 * b + 4 <= n)
            drop<4>(x, y, 4 * b, words.v, s);
        else
            for (int j = 0; j < 4 && 4 * b + j < n; j++)
                drop<1>(x, y, 4 * b + j, words.v + j, s);
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]);
    const int packs = ((uintptr_t)a->in[0] | (uintptr_t)a->out[0]) % 16 == 0;
    const drop_spec spec = {(const int64_t *)a->in[1], k->attrs.rng_stream, k->attrs.p,
                            1.0f / (1.0f - k->attrs.p), (a->accumulate & 1u) != 0};
    const int64_t blocks = cuda_blocks(cuda_of(k), (n + 3) / 4);
    if (n == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        const T *x = (const T *)a->in[0];
        T *y = (T *)a->out[0];
        return packs ? cuda_run(k, a, blocks, CUDA_THREADS, drop_blocks<1, T>, x, y, n, spec)
                     : cuda_run(k, a, blocks, CUDA_THREADS, drop_blocks<0, T>, x, y, n, spec);
    });
}

const kernel_op CUDA_OP(DROPOUT) = {nullptr, run, nullptr, 0};
const kernel_op CUDA_OP(DROPOUT_BWD) = {nullptr, run, nullptr, 1};
