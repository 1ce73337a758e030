/* The CPU device itself: selection, information, memory, and the rules of kernels. */
#include "kernels/op_harness.h"

Test(device, scores_rise_with_the_instruction_set_and_give_a_reason)
{
    int32_t last = 0;
    for (int i = 0; i < N_ISAS; i++) {
        op_build b = {0};
        const int runs = op_open(op_isas[i], &b);
        char why[128] = "";
        const int32_t score = b.device->score(why, sizeof why);
        cr_assert_eq(score != 0, runs);
        cr_assert_gt(strlen(why), 0);
        cr_assert_str_eq(b.plugin->name, op_isas[i]);
        cr_assert_str_eq(b.plugin->family, "cpu");
        cr_assert_eq(b.plugin->kind, LATHE_KIND_DEVICE);
        if (!runs)
            continue;
        cr_assert_gt(score, last);
        last = score;
        op_close(&b);
    }
    cr_assert_geq(last, LATHE_SCORE_FAMILY);
}

Test(device, says_what_it_is)
{
    op_build b = {0};
    cr_assert(op_open(op_isas[0], &b));
    lathe_device_info info = {.size = sizeof info};
    cr_assert_eq(b.device->info(b.self, &info), LATHE_OK);
    cr_assert_eq(info.size, sizeof info);
    cr_assert_geq(info.n_workers, 1);
    cr_assert_gt(strlen(info.model), 0);
    cr_assert_str_eq(info.isa, "avx2");
    cr_assert_gt(info.memory_bytes, (int64_t)1 << 26);
    cr_assert_eq(info.host_memory, 1);
    /* a caller with an older, shorter struct */
    lathe_device_info small = {.size = 8, .host_memory = 42};
    cr_assert_eq(b.device->info(b.self, &small), LATHE_OK);
    cr_assert_eq(small.host_memory, 42);
    op_close(&b);
}

Test(memory, is_zeroed_aligned_and_copied_at_every_size)
{
    op_build b = {0};
    cr_assert(op_open(op_isas[0], &b));
    const int64_t sizes[] = {0, 1, 4096, (1 << 20) - 1, 1 << 20, (5 << 20) + 7};
    for (int i = 0; i < 6; i++) {
        char *x = NULL, *y = NULL;
        void *p = NULL, *q = NULL;
        cr_assert_eq(b.device->alloc(b.self, sizes[i], LATHE_MEM_DEVICE, &p), LATHE_OK);
        cr_assert_eq(b.device->alloc(b.self, sizes[i], LATHE_MEM_HOST_PINNED, &q), LATHE_OK);
        x = p;
        y = q;
        cr_assert_eq((uintptr_t)x % 64, 0);
        for (int64_t j = 0; j < sizes[i]; j++) {
            cr_assert_eq(x[j], 0);
            x[j] = (char)(j * 7);
        }
        cr_assert_eq(b.device->copy(b.self, NULL, y, x, sizes[i], LATHE_COPY_ON_DEVICE), LATHE_OK);
        cr_assert_eq(memcmp(x, y, (size_t)sizes[i]), 0);
        b.device->free(b.self, p);
        b.device->free(b.self, q);
    }
    b.device->free(b.self, NULL);
    void *p = NULL;
    cr_assert_eq(b.device->alloc(b.self, -1, 0, &p), LATHE_E_ARG);
    cr_assert_eq(b.device->alloc(b.self, INT64_MAX / 2, 0, &p), LATHE_E_NOMEM);
    cr_assert_eq(b.device->sync(b.self, NULL), LATHE_OK);
    op_close(&b);
}

Test(kernel, refuses_unknown_ops_and_additions_nobody_announced)
{
    op_build b = {0};
    cr_assert(op_open(op_isas[0], &b));
    op_case c = {.op = LATHE_OP_ADD};
    op_input(&c, 0, lathe_desc_1d(LATHE_F32, 4), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_1d(LATHE_F32, 4), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, 4));
    lathe_kernel_problem p = op_problem(&c);
    lathe_kernel *k = NULL;
    int64_t scratch = 0;
    p.op = LATHE_N_OPS;
    cr_assert_eq(b.device->kernel_create(b.self, &p, &k, &scratch), LATHE_E_UNSUPPORTED);
    p.op = LATHE_OP_DEQUANT;
    cr_assert_eq(b.device->kernel_create(b.self, &p, &k, &scratch), LATHE_E_UNSUPPORTED);
    p.op = LATHE_OP_ADD;
    cr_assert_eq(b.device->kernel_create(b.self, &p, &k, &scratch), LATHE_OK);
    const float x[4] = {1, 2, 3, 4};
    float y[4] = {0};
    const void *in[2] = {x, x};
    void *out[1] = {y};
    const lathe_kernel_args args = {.size = sizeof args, .accumulate = 1, .in = in, .out = out};
    cr_assert_eq(b.device->kernel_run(b.self, k, &args), LATHE_E_ARG);
    b.device->kernel_destroy(b.self, k);
    p.op = LATHE_OP_DROPOUT;
    p.may_accumulate = 1;
    cr_assert_eq(b.device->kernel_create(b.self, &p, &k, &scratch), LATHE_E_UNSUPPORTED);
    op_free(&c);
    op_close(&b);
}
