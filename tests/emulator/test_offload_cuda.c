/* Optimizer state and activations in host memory on the emulated CUDA device, whose streams run
 * only when something waits for them: the same bits as a run that keeps them on the device. Blocks
 * of 256 elements with a scale (adamw_8bit), blocks of a head or a row (adam_mini) and matrices
 * (muon) are cut where allowed. */
#include "support/far_case.h"

typedef struct offload_case {
    const char *optimizer, *buffer;
    const char *set[3];
} offload_case;

static void set_case(settings *s, const char *dir, const offload_case *c, int offloads)
{
    use_emulated_gpu(LATHE_TEST_BUILD);
    set_llama(s, 1, 64, 2, 1, 96);
    set_data(s, dir);
    set(s, "device.name=cuda");
    set(s, "attention.name=reference_cuda");
    set(s, "data.seq_len=16");
    set(s, "train.precision=bf16");
    set(s, "train.threads=1");
    set(s, "optimizer.name=%s", c->optimizer);
    set_all(s, c->set);
    if (!offloads)
        return;
    set(s, "train.offload_optimizer=true");
    set(s, "train.offload_buffer=%s", c->buffer);
}

/* Uses the primitives, because lathe_train first measures a large product, which is slow on the
 * emulator. */
static void one_step(lathe_run *run)
{
    lathe_forward_result f = {.size = sizeof f};
    lathe_step_result r = {.size = sizeof r};
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
    OK(lathe_step(run, &r));
    OK(lathe_zero_grad(run));
}

static void train_case(const offload_case *c, int offloads, snapshot *out, double *update_norm)
{
    char dir[] = "/tmp/lathe_offload_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 4000);
    set_case(&s, dir, c, offloads);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    for (int i = 0; i < 3; i++)
        one_step(run);
    snapshot_take(out, run);
    *update_norm = run->opt.update_norm;
    for (int32_t k = 0; k < LATHE_N_MEM; k++) {
        cr_assert_eq(run->machine.used.by[k], run->planned.by[k], "%s", lathe_mem_name(k));
        cr_assert_eq(run->machine.peak.by[k], run->planned.by[k], "%s", lathe_mem_name(k));
    }
    cr_assert_eq(run->planned.by[LATHE_MEM_OFFLOAD], offloads ? run->store.slot_bytes : 0);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

static void check_case(const offload_case *c)
{
    snapshot want, got;
    double norms[2];
    train_case(c, 0, &want, &norms[0]);
    train_case(c, 1, &got, &norms[1]);
    snapshot_compare(c->optimizer, &got, &want);
    cr_assert(norms[0] == norms[1] && norms[0] > 0.0, "%s: %a and %a", c->optimizer, norms[0],
              norms[1]);
    snapshot_free(&want);
    snapshot_free(&got);
}

Test(offload_cuda, of_8_bit_state_changes_no_bit)
{
    static const offload_case c = {"adamw_8bit", "0.0001", {"optimizer.min_8bit_size=0"}};
    check_case(&c);
}

Test(offload_cuda, of_one_second_moment_a_block_changes_no_bit)
{
    static const offload_case c = {"adam_mini", "0.1", {NULL}};
    check_case(&c);
}

Test(offload_cuda, of_matrices_changes_no_bit)
{
    static const offload_case c = {"muon", "0.01", {NULL}};
    check_case(&c);
}

/* ---- activations ---- */

typedef struct values_case {
    const char *name;
    const char *set[5];
} values_case;

static void set_values(settings *s, const char *dir, const values_case *c, const char *capture)
{
    static const offload_case none = {"adamw", NULL, {NULL}};
    set_case(s, dir, &none, 0);
    set(s, "model.num_hidden_layers=4");
    set_all(s, c->set);
    if (!capture)
        return;
    set(s, "train.offload_activations=true");
    set(s, "train.capture=%s", capture);
}

/* Three steps of two micro-batches: one range after another is captured and launched. */
static void train_values(const values_case *c, const char *capture, snapshot *out, double *loss)
{
    char dir[] = "/tmp/lathe_offload_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 4000);
    set_values(&s, dir, c, capture);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    for (int step = 0; step < 3; step++) {
        for (int m = 0; m < 2; m++) {
            lathe_forward_result f = {.size = sizeof f};
            OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
            OK(lathe_backward(run, NULL));
            *loss = f.loss_sum;
        }
        lathe_step_result r = {.size = sizeof r};
        OK(lathe_step(run, &r));
        OK(lathe_zero_grad(run));
    }
    snapshot_take(out, run);
    for (int32_t k = 0; k < LATHE_N_MEM; k++) {
        cr_assert_eq(run->machine.used.by[k], run->planned.by[k], "%s", lathe_mem_name(k));
        cr_assert_eq(run->machine.peak.by[k], run->planned.by[k], "%s", lathe_mem_name(k));
    }
    cr_assert_eq(run->planned.by[LATHE_MEM_OFFLOAD] > 0, capture != NULL);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

static void check_values(const values_case *c)
{
    static const char *const captures[] = {"on", "off"};
    snapshot want, got;
    double losses[2];
    train_values(c, NULL, &want, &losses[0]);
    for (int i = 0; i < 2; i++) {
        train_values(c, captures[i], &got, &losses[1]);
        snapshot_compare(c->name, &got, &want);
        cr_assert(losses[0] == losses[1] && losses[0] > 0.0, "%s: %a and %a", c->name, losses[0],
                  losses[1]);
        snapshot_free(&got);
    }
    snapshot_free(&want);
}

Test(offload_cuda, of_activations_changes_no_bit)
{
    static const values_case c = {"bf16", {NULL}};
    check_values(&c);
}

Test(offload_cuda, of_what_layers_are_computed_again_from_changes_no_bit)
{
    static const values_case c = {
        "nf4, layers again",
        {"adapter.name=lora", "adapter.r=4", "quant.name=nf4", "train.recompute=layer"}};
    check_values(&c);
}
