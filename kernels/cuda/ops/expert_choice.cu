/* EXPERT_CHOICE: the experts of each token, by scores x with a bias that does not count in y.
 *
 * A block processes a row. With groups, each thread adds the two largest scores of one group, and
 * then counts the groups that rank before its own. The row is then read K times; each time the
 * block finds the largest score after the one found before.
 */
#include "base/launch.cuh"

enum { MAX_GROUPS = 256 };
static_assert(MAX_GROUPS <= CUDA_THREADS, "a thread for each group");

struct choice {
    const float *x, *bias; /* [N,V], [V] or nullptr */
    float *y;
    int32_t *index;
    int64_t k, v;
    int32_t groups, open;
};

static __device__ __forceinline__ float score(const choice &c, const float *row, int64_t i)
{
    return c.bias != nullptr ? row[i] + c.bias[i] : row[i];
}

static __device__ float two_largest(const choice &c, const float *row, int64_t begin, int64_t end)
{
    float first = -INFINITY, second = -INFINITY;
    for (int64_t i = begin; i < end; i++) {
        const float s = score(c, row, i);
        if (s > first) {
            second = first;
            first = s;
        } else if (s > second) {
            second = s;
        }
    }
    return first + second;
}

/* Whether (s, i) ranks before (t, j); a place -1 is none. */
static __device__ __forceinline__ int is_before(float s, int32_t i, float t, int32_t j)
{
    return i >= 0 && (j < 0 || s > t || (s == t && i < j));
}

static __global__ void __launch_bounds__(CUDA_THREADS) choose(choice c)
{
    __shared__ float scores[CUDA_THREADS];
    __shared__ int32_t places[CUDA_THREADS];
    __shared__ int32_t is_open[MAX_GROUPS];
    const float *row = c.x + (int64_t)blockIdx.x * c.v;
    const int64_t size = c.v / c.groups;
    const int32_t t = (int32_t)threadIdx.x;
    if (t < c.groups)
        scores[t] = c.groups > 1 ? two_largest(c, row, t * size, (t + 1) * size) : 0.0f;
    __syncthreads();
    if (t < c.groups) {
        int32_t before = 0;
        for (int32_t g = 0; g < c.groups; g++)
            before += scores[g] > scores[t] || (scores[g] == scores[t] && g < t);
        is_open[t] = c.groups == 1 || before < c.open;
    }
    __syncthreads();
    float last = 0.0f;
    int32_t last_place = -1;
    for (int64_t j = 0; j < c.k; j++) {
        float best = 0.0f;
        int32_t place = -1;
        for (int64_t i = t; i < c.v && (j == 0 || last_place >= 0); i += CUDA_THREADS) {
            const float s = score(c, row, i);
            if (s == s && is_open[i / size] &&
                (j == 0 || is_before(last, last_place, s, (int32_t)i)) &&
                is_before(s, (int32_t)i, best, place)) {
                best = s;
                place = (int32_t)i;
            }
        }
        scores[t] = best;
        places[t] = place;
        __syncthreads();
        for (int32_t half = CUDA_THREADS / 2; half > 0; half /= 2) {
            if (t < half && is_before(scores[t + half], places[t + half], scores[t], places[t])) {
                scores[t] = scores[t + half];
                places[t] = places[t + half];
            }
            __syncthreads();
        }
        last = scores[0];
        last_place = places[0];
        __syncthreads(); /* the next pass uses the arrays again */
        if (t == 0) {
            c.y[(int64_t)blockIdx.x * c.k + j] = last_place < 0 ? cuda_nan() : row[last_place];
            c.index[(int64_t)blockIdx.x * c.k + j] = last_place;
        }
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const choice c = {(const float *)a->in[0],
                      kernel_has_in(k, 1) ? (const float *)a->in[1] : nullptr,
                      (float *)a->out[0],
                      (int32_t *)a->out[1],
                      k->out[0].dims[1],
                      k->in[0].dims[1],
                      k->attrs.batch > 1 ? (int32_t)k->attrs.batch : 1,
                      (int32_t)k->attrs.start};
    if (k->in[0].dims[0] == 0)
        return LATHE_OK;
    return cuda_run(k, a, k->in[0].dims[0], CUDA_THREADS, choose, c);
}

const kernel_op CUDA_OP(EXPERT_CHOICE) = {nullptr, run, nullptr, 0};
