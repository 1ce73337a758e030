/* The CUDA kernel of AdamW, its code run on the host thread after thread: the same bits as the CPU
 * loop, for any grid. What only a GPU can show (its own roundings) is left to the device's tests. */
#include "support/optimizer_case.h"

#include "support/cuda_on_host.h"

#include "adamw.c"
#undef __CUDACC__

static void launch(const lathe_elementwise_args *args, unsigned blocks)
{
    CUDA_ON_HOST_GRID(blocks, LATHE_ELEMENTWISE_THREADS, lathe_elementwise_step(*args));
}

static const int64_t sizes[6] = {16384, 1, 0, 16385, 50001, 7};

/* half: bit k, slot k is bf16; shadow_dtype of tensor 4. */
static void fill(optimizer_case *c, uint32_t half, int32_t shadow_dtype)
{
    for (int k = 0; k < 6; k++) {
        case_add(c, sizes[k], 1, 2, 0.5 * k);
        lathe_optimizer_tensor *const x = &c->tensors[k];
        x->lr_mult = 1.0 + k;
        case_gradient((uint64_t)k, 20, c->grads[k], x->n);
        x->half_slots = half;
        x->first = k == 4 ? 40 * 16384 + 13 : 0; /* a shard: its counters begin mid-block */
        for (int64_t i = 0; i < x->n; i++)
            if (half & 2u)
                ((uint16_t *)x->slots[1])[i] = lathe_f32_to_bf16(fabsf(case_uniform(50, 1, i)));
            else
                ((float *)x->slots[1])[i] = fabsf(case_uniform(50, 1, i));
    }
    c->tensors[4].shadow_dtype = shadow_dtype;
    c->tensors[4].shadow = calloc((size_t)sizes[4], sizeof(uint16_t));
}

static void compare(const optimizer_case *cpu, const optimizer_case *gpu)
{
    for (int k = 0; k < 6; k++) {
        const lathe_optimizer_tensor *const a = &cpu->tensors[k], *const b = &gpu->tensors[k];
        const size_t bytes = (size_t)a->n * sizeof(float);
        cr_assert_arr_eq(a->param, b->param, bytes, "parameters of tensor %d", k);
        cr_assert_arr_eq(a->slots[0], b->slots[0], bytes, "exp_avg of tensor %d", k);
        cr_assert_arr_eq(a->slots[1], b->slots[1], bytes, "exp_avg_sq of tensor %d", k);
        if (a->shadow != NULL)
            cr_assert_arr_eq(a->shadow, b->shadow, bytes / 2, "narrow copy of tensor %d", k);
    }
}

/* What the kernel says of the update, against the tensors before and after. */
static void check_sums(const optimizer_case *before, const optimizer_case *after,
                       const int64_t *first_chunk, const double *sums)
{
    for (int t = 0; t < 6; t++)
        for (int64_t c = first_chunk[t]; c < first_chunk[t + 1]; c++) {
            const int64_t from = (c - first_chunk[t]) * LATHE_ELEMENTWISE_CHUNK;
            double change = 0.0, size = 0.0;
            for (int64_t i = from; i < sizes[t] && i < from + LATHE_ELEMENTWISE_CHUNK; i++) {
                const double now = (double)after->tensors[t].param[i];
                const double d = now - (double)before->tensors[t].param[i];
                change += d * d;
                size += now * now;
            }
            cr_assert_float_eq(sums[2 * c], change, 1e-12 * change, "tensor %d", t);
            cr_assert_float_eq(sums[2 * c + 1], size, 1e-12 * size, "tensor %d", t);
            cr_assert_gt(change, 0.0);
        }
}

static void check_bits(unsigned blocks, uint32_t half, int32_t shadow_dtype)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    optimizer_case cpu = {0}, gpu = {0}, was = {0};
    double sums[2 * 16];
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "lr=0.01 weight_decay=0.1", &self), LATHE_OK);
    fill(&cpu, half, shadow_dtype);
    fill(&gpu, half, shadow_dtype);
    fill(&was, half, shadow_dtype);
    case_scalars(&cpu, table, self, 3, 0.01, 0.125);
    cr_assert_eq(case_step(&cpu, table, self, 3), LATHE_OK, "%s", lathe_test_message);
    int64_t first_chunk[7] = {0};
    for (int t = 0; t < 6; t++)
        first_chunk[t + 1] =
            first_chunk[t] + (sizes[t] + LATHE_ELEMENTWISE_CHUNK - 1) / LATHE_ELEMENTWISE_CHUNK;
    const uint64_t counter[2] = {7, 3};
    const lathe_elementwise_args args = {.tensors = gpu.tensors,
                                         .first_chunk = first_chunk,
                                         .scalars = cpu.scalars,
                                         .counter = counter,
                                         .n_chunks = first_chunk[6],
                                         .n_tensors = 6,
                                         .sums = sums};
    cr_assert_leq(first_chunk[6], 16);
    launch(&args, blocks);
    compare(&cpu, &gpu);
    check_sums(&was, &gpu, first_chunk, sums);
    case_free(&was);
    case_free(&cpu);
    case_free(&gpu);
    plugin->destroy(self);
}

Test(adamw_cuda, kernel_gives_the_bits_of_the_cpu_loop_for_any_grid)
{
    static const unsigned grids[3] = {1, 3, 100};
    for (int k = 0; k < 3; k++)
        check_bits(grids[k], 0, LATHE_BF16);
}

Test(adamw_cuda, kernel_gives_the_bits_of_the_cpu_loop_with_narrow_slots_and_shadows)
{
    for (uint32_t half = 1; half < 4; half++) {
        check_bits(3, half, LATHE_BF16);
        check_bits(3, half, LATHE_F16);
    }
    check_bits(3, 0, LATHE_F16);
}

Test(adamw_cuda, embedded_image_is_a_fatbin_where_nvcc_built_one)
{
    const lathe_optimizer_v1 *const table = fixture_plugin()->table;
    if (table->cuda_image == NULL)
        cr_skip_test("built without nvcc");
    uint32_t magic;
    memcpy(&magic, table->cuda_image, sizeof magic);
    cr_assert_eq(magic, 0xBA55ED50u, "%08x", magic);
}
