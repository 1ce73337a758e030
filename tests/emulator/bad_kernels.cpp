/* Kernels that each break one rule of the GPU; the "good" ones keep it. */
#include "bad_kernels.h"

#include <cstdlib>
#include <cstring>

#include "emulator.h"

constexpr int THREADS = 64, N = 256;

struct alignas(16) four {
    float x[4];
};

struct arguments {
    float *memory; /* [N] in GPU memory */
    float *host;
    int shift;
};

static __global__ void good(arguments a)
{
    __shared__ float line[THREADS];
    __shared__ int count;
    const int t = (int)threadIdx.x;
    if (t == 0)
        count = 0;
    line[t] = (float)t;
    __syncthreads();
    atomicAdd(&count, 1);
    __syncthreads();
    a.memory[blockIdx.x * THREADS + t] = line[THREADS - 1 - t] + (float)count;
    __syncthreads();
    line[t] = __shfl_xor_sync(0xffffffffu, a.memory[blockIdx.x * THREADS + t], 1);
    __syncwarp();
    a.memory[blockIdx.x * THREADS + t] += line[t ^ 1];
}

static __global__ void no_barrier(arguments a)
{
    __shared__ float line[THREADS];
    const int t = (int)threadIdx.x;
    line[t] = (float)t;
    a.memory[blockIdx.x * THREADS + t] = line[t > 0 ? t - 1 : 0];
}

/* Uses a shuffle instead of __syncwarp. */
static __global__ void shuffle_for_barrier(arguments a)
{
    __shared__ float line[THREADS];
    const int t = (int)threadIdx.x;
    line[t] = (float)t;
    const float other = __shfl_xor_sync(0xffffffffu, line[t], 1);
    a.memory[blockIdx.x * THREADS + t] = line[t ^ 1] + other;
}

/* Correct at the first step, not at the second. */
static __global__ void barrier_at_one_end(arguments a)
{
    __shared__ float line[THREADS];
    const int t = (int)threadIdx.x;
    for (int step = 0; step < 2; step++) {
        line[t] = (float)(t + step);
        __syncthreads();
        a.memory[blockIdx.x * THREADS + t] += line[THREADS - 1 - t];
    }
}

static __global__ void blocks_meet(arguments a)
{
    a.memory[threadIdx.x + a.shift] = (float)blockIdx.x;
}

static __global__ void block_reads_block(arguments a)
{
    if (blockIdx.x == 0)
        a.memory[threadIdx.x] = 1.0f;
    else
        a.memory[THREADS + threadIdx.x] = a.memory[threadIdx.x];
}

static __global__ void beyond_the_end(arguments a)
{
    a.memory[N - 2 * THREADS + blockIdx.x * THREADS + threadIdx.x + 1] = 0.0f;
}

static __global__ void reads_beyond_the_end(arguments a)
{
    const float x = a.memory[N - 2 * THREADS + blockIdx.x * THREADS + threadIdx.x + 1];
    if (x > 1e30f)
        a.memory[0] = x;
}

static __global__ void reads_the_host(arguments a)
{
    a.memory[blockIdx.x * THREADS + threadIdx.x] = a.host[0];
}

static __global__ void odd_pack(arguments a)
{
    const four x = *(const four *)(a.memory + a.shift + 4 * threadIdx.x);
    if (x.x[0] + x.x[3] > 1e30f)
        a.memory[0] = x.x[1];
}

static __global__ void unwritten(arguments a)
{
    __shared__ float line[THREADS];
    const int t = (int)threadIdx.x;
    if (blockIdx.x == 0)
        line[t] = 1.0f;
    __syncthreads();
    a.memory[blockIdx.x * THREADS + t] = line[t];
}

static __global__ void two_barriers(arguments a)
{
    if (threadIdx.x < 32) {
        a.memory[blockIdx.x * THREADS + threadIdx.x] = 1.0f;
        __syncthreads();
    } else {
        a.memory[blockIdx.x * THREADS + threadIdx.x] = 2.0f;
        __syncthreads();
    }
}

static __global__ void barrier_of_some(arguments a)
{
    for (int i = 0; i < (threadIdx.x < 32 ? 2 : 1); i++)
        __syncwarp();
    if (threadIdx.x % 2 == 0)
        __syncwarp();
    a.memory[blockIdx.x * THREADS + threadIdx.x] = 0.0f;
}

static __global__ void not_of_the_mask(arguments a)
{
    a.memory[blockIdx.x * THREADS + threadIdx.x] = __shfl_xor_sync(0xffffu, (float)threadIdx.x, 1);
}

static __global__ void asks_outside_the_mask(arguments a)
{
    if (threadIdx.x % 32 < 16)
        a.memory[blockIdx.x * THREADS + threadIdx.x] =
            __shfl_xor_sync(0xffffu, (float)threadIdx.x, 16);
}

static const struct {
    const char *name;
    void (*kernel)(arguments);
} all[] = {
#define X(name)                                                                                    \
    {                                                                                              \
#name, name                                                                                \
    }
    X(good),
    X(no_barrier),
    X(shuffle_for_barrier),
    X(barrier_at_one_end),
    X(blocks_meet),
    X(block_reads_block),
    X(beyond_the_end),
    X(reads_beyond_the_end),
    X(reads_the_host),
    X(odd_pack),
    X(unwritten),
    X(two_barriers),
    X(barrier_of_some),
    X(not_of_the_mask),
    X(asks_outside_the_mask),
#undef X
};

int bad_kernel_run(const char *name)
{
    arguments a = {nullptr, (float *)calloc(1, sizeof(float)), 1};
    int is_done = 0;
    for (const auto &one : all) {
        void (*const kernel)(arguments) = one.kernel;
        if (strcmp(one.name, name) == 0)
            is_done =
                cudaMalloc((void **)&a.memory, N * sizeof(float)) == cudaSuccess &&
                cudaMemsetAsync(a.memory, 0, N * sizeof(float), nullptr) == cudaSuccess &&
                emulator::launch(name, 2, THREADS, nullptr, [=] { kernel(a); }) == cudaSuccess &&
                cudaStreamSynchronize(nullptr) == cudaSuccess && cudaFree(a.memory) == cudaSuccess;
    }
    free(a.host);
    return is_done;
}
