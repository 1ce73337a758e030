/* ROPE: rotates the two halves of R elements of every head, those after its first `start`, or with
 * `interleaved` their even and odd elements, by the angles of its position.
 *
 *   y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin;  inverse: sin negated; the other elements stay
 *   x c[N,H*D], pos i32[N], table f32[P,2,R/2]; y may be x
 *
 * A row whose position is outside the table becomes NaN.
 *
 * A thread processes N elements of a first half and the N elements of the second half that rotate
 * with them, or N elements that stay; N is 1 where the pairs are interleaved. Bound by memory: each
 * element is read and written once. The heads of a row share their angles in the L1 cache.
 */
#include "base/launch.cuh"

struct rope_shape {
    int64_t rows, width, d, start, half, positions; /* half: R/2 */
    int64_t step, apart; /* pair i: elements i * step and i * step + apart of a head */
    float sign;
    int accumulate;
};

template <int N, typename T>
static __device__ __forceinline__ void rotate(const T *x, T *y, const float *cosines,
                                              const rope_shape &s)
{
    const int64_t half = s.half, apart = s.apart;
    const auto x1 = cuda_load<N>(x), x2 = cuda_load<N>(x + apart);
    cuda_pack<T, N> y1 = {}, y2 = {};
    cuda_pack<float, N> c, sn;
    if (cosines != nullptr) {
        c = cuda_load<N>(cosines);
        sn = cuda_load<N>(cosines + half);
    } else
        for (int j = 0; j < N; j++)
            c.v[j] = sn.v[j] = cuda_nan();
    if (s.accumulate) {
        y1 = cuda_load<N>((const T *)y);
        y2 = cuda_load<N>((const T *)y + apart);
    }
    for (int j = 0; j < N; j++) {
        const float a = cuda_float(x1.v[j]), b = cuda_float(x2.v[j]), sine = s.sign * sn.v[j];
        cuda_put(&y1.v[j], s.accumulate, a * c.v[j] - b * sine);
        cuda_put(&y2.v[j], s.accumulate, b * c.v[j] + a * sine);
    }
    cuda_store(y, y1);
    cuda_store(y + apart, y2);
}

template <int N, typename T>
static __device__ __forceinline__ void keep(const T *x, T *y, bool valid, const rope_shape &s)
{
    if (x == y && valid && !s.accumulate)
        return;
    const auto from = cuda_load<N>(x);
    cuda_pack<T, N> to = {};
    if (s.accumulate)
        to = cuda_load<N>((const T *)y);
    for (int j = 0; j < N; j++)
        cuda_put(&to.v[j], s.accumulate, valid ? cuda_float(from.v[j]) : cuda_nan());
    cuda_store(y, to);
}

template <int N, typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    rotate_rows(const T *x, const int32_t *pos, const float *table, T *y, rope_shape s)
{
    const int64_t half = s.half, per_head = s.d - half, per_row = s.width / s.d * per_head / N;
    for (int64_t u = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; u < s.rows * per_row;
         u += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = u / per_row, first = (u - row * per_row) * N;
        const int64_t head = first / per_head, i = first - head * per_head;
        const int64_t at = row * s.width + head * s.d, p = pos[row];
        const bool valid = p >= 0 && p < s.positions;
        /* units: R/2 pairs, then the elements before them, then those after them */
        const int64_t pair = at + s.start + i * s.step;
        const int64_t alone = at + (i - half < s.start ? i - half : i + half);
        if (i < half)
            rotate<N>(x + pair, y + pair, valid ? table + p * 2 * half + i : nullptr, s);
        else
            keep<N>(x + alone, y + alone, valid, s);
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]), rows = lathe_desc_count(&k->in[1]);
    const int pairs = k->attrs.interleaved != 0;
    const rope_shape shape = {rows,
                              n / rows,
                              k->attrs.head_dim,
                              k->attrs.start,
                              k->in[2].dims[2],
                              k->in[2].dims[0],
                              pairs ? 2 : 1,
                              pairs ? 1 : k->in[2].dims[2],
                              k->attrs.inverse ? -1.0f : 1.0f,
                              (a->accumulate & 1u) != 0};
    const int64_t units = n / shape.d * (shape.d - shape.half);
    const int packs = !pairs && cuda_aligned(shape.d, k->in[0].dtype, nullptr) &&
                      cuda_aligned(shape.start, k->in[0].dtype, nullptr) &&
                      cuda_aligned(shape.half, k->in[0].dtype, a->in[0], a->in[2], a->out[0]);
    if (n == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        const T *x = (const T *)a->in[0];
        const int32_t *pos = (const int32_t *)a->in[1];
        const float *table = (const float *)a->in[2];
        T *y = (T *)a->out[0];
        constexpr int lanes = cuda_lanes<T>;
        if (packs)
            return cuda_run(k, a, cuda_blocks(cuda_of(k), units / lanes), CUDA_THREADS,
                            rotate_rows<lanes, T>, x, pos, table, y, shape);
        return cuda_run(k, a, cuda_blocks(cuda_of(k), units), CUDA_THREADS, rotate_rows<1, T>, x,
                        pos, table, y, shape);
    });
}

const kernel_op CUDA_OP(ROPE) = {nullptr, run, nullptr, 1};
