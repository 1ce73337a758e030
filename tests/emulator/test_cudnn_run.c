/* Whole runs with attention by cuDNN, against the same runs with reference_cuda, on the emulated
 * GPU: the plan has room for the backend's needs, and losses and gradients agree within bf16. */
#include "support/far_case.h"

enum { N_STEPS = 3 };

typedef struct figures {
    double loss[N_STEPS], grad_norm[N_STEPS];
} figures;

static void train_on(const char *backend, const char *packing, figures *out)
{
    char dir[] = "/tmp/lathe_cudnn_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 4000);
    use_emulated_gpu(LATHE_TEST_BUILD);
    set_llama(&s, 2, 64, 4, 2, 96);
    set_data(&s, dir);
    set(&s, "device.name=cuda");
    set(&s, "attention.name=%s", backend);
    set(&s, "data.seq_len=24");
    set(&s, "data.packing=%s", packing);
    set(&s, "train.micro_batch_size=2");
    set(&s, "train.precision=bf16");
    set(&s, "train.threads=1");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    for (int i = 0; i < N_STEPS; i++) {
        lathe_forward_result f = {.size = sizeof f};
        lathe_step_result r = {.size = sizeof r};
        OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
        OK(lathe_backward(run, NULL));
        OK(lathe_step(run, &r));
        OK(lathe_zero_grad(run));
        out->loss[i] = r.loss;
        out->grad_norm[i] = r.grad_norm;
    }
    for (int32_t k = 0; k < LATHE_N_MEM; k++)
        cr_assert_eq(run->machine.used.by[k], run->planned.by[k], "%s", lathe_mem_name(k));
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* Attention's outputs differ by a rounding to bf16, 2^-9 of their size; this changes a sum of
 * squares by less than 2^-6. Losses change only in second order. */
static void check_packing(const char *packing)
{
    figures got, want;
    train_on("cudnn", packing, &got);
    train_on("reference_cuda", packing, &want);
    for (int i = 0; i < N_STEPS; i++) {
        cr_assert(fabs(got.loss[i] - want.loss[i]) <= 0x1p-9 * want.loss[i],
                  "%s: step %d: loss %.6f, on reference_cuda %.6f", packing, i, got.loss[i],
                  want.loss[i]);
        cr_assert(fabs(got.grad_norm[i] - want.grad_norm[i]) <= 0x1p-6 * want.grad_norm[i],
                  "%s: step %d: gradients of %.6f, on reference_cuda %.6f", packing, i,
                  got.grad_norm[i], want.grad_norm[i]);
    }
    cr_assert(got.loss[N_STEPS - 1] < got.loss[0]);
    cr_assert(memcmp(&got, &want, sizeof got) != 0, "it was the same backend");
}

Test(cudnn_run, is_reference_cuda_s_within_rounding)
{
    check_packing("sequential");
}

Test(cudnn_run, over_packed_documents_too)
{
    check_packing("multipack");
}
