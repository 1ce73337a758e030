/* Checkpoints of a device whose memory the host cannot access: the same bits as a run that never
 * stopped, on this device and on the CPU. */
#include "support/far_case.h"

static lathe_train_result train(lathe_run *run)
{
    lathe_train_result result;
    FILE *quiet = fopen("/dev/null", "w");
    const lathe_train_options options = {.out = quiet};
    OK(lathe_train(run, &options, &result));
    fclose(quiet);
    return result;
}

/* Runs to the end, or to `stop_after` and then on from there on device `then`. */
static void run_to_the_end(const char *const *more, int where, int stop_after, int then,
                           snapshot *out)
{
    char dir[] = "/tmp/lathe_far_XXXXXX";
    make_folder(dir, 20000);
    for (int part = stop_after > 0 ? 0 : 1; part < 2; part++) {
        settings s = {.n = 0};
        set_small(&s, dir, part == 0 ? where : then);
        set_all(&s, more);
        if (part == 0)
            set(&s, "train.stop_after=%d", stop_after);
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        const lathe_train_result r = train(run);
        cr_assert_eq(r.step, part == 0 ? stop_after : 6);
        if (part == 1)
            snapshot_take(out, run);
        lathe_run_close(run);
    }
    OK(lathe_dir_remove(dir));
}

static void check_resume(const char *what, const char *const *more)
{
    snapshot straight, resumed;
    char text[160];
    run_to_the_end(more, ON_CPU, 0, ON_CPU, &straight);
    static const int ways[3][2] = {{ON_FAR, ON_FAR}, {ON_FAR, ON_CPU}, {ON_CPU, ON_FAR}};
    for (int k = 0; k < 3; k++) {
        run_to_the_end(more, ways[k][0], 3, ways[k][1], &resumed);
        snprintf(text, sizeof text, "%s: %s, then %s", what, where_names[ways[k][0]],
                 where_names[ways[k][1]]);
        snapshot_compare(text, &resumed, &straight);
        snapshot_free(&resumed);
    }
    snapshot_free(&straight);
}

Test(far_checkpoint, resumes_to_the_same_bits_written_beside_the_training)
{
    static const char *const more[] = {"checkpoint.every=1", "train.precision=bf16",
                                       "train.weight_average=ema", "checkpoint.gate=true", NULL};
    check_resume("beside", more);
}

Test(far_checkpoint, resumes_to_the_same_bits_written_at_once)
{
    static const char *const more[] = {"checkpoint.every=2", "checkpoint.async=false",
                                       "optimizer.name=muon", "checkpoint.gate=true", NULL};
    check_resume("at once", more);
}

Test(far_checkpoint, resumes_an_adapter_over_a_quantized_base)
{
    static const char *const more[] = {"checkpoint.every=2", "adapter.name=lora", "quant.name=nf4",
                                       "checkpoint.gate=true", NULL};
    check_resume("adapter", more);
}

/* Saves after one of two micro-batches; another run continues. */
static void check_middle(const char *grad_dtype)
{
    char dir[] = "/tmp/lathe_far_XXXXXX", path[64];
    snapshot went_on, loaded;
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_small(&s, dir, ON_FAR);
    set(&s, "train.grad_dtype=%s", grad_dtype);
    snprintf(path, sizeof path, "%s/middle", dir);
    lathe_run *a = open_run(LATHE_OPEN_TRAIN, s.list), *b = NULL;
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_forward(a, NULL, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(a, NULL));
    OK(lathe_save(a, path));
    b = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(lathe_load(b, path));
    lathe_run *const both[2] = {a, b};
    lathe_step_result step[2] = {{.size = sizeof step[0]}, {.size = sizeof step[0]}};
    for (int i = 0; i < 2; i++) {
        OK(lathe_forward(both[i], NULL, LATHE_FORWARD_TRAIN, &f));
        OK(lathe_backward(both[i], NULL));
        OK(lathe_step(both[i], &step[i]));
    }
    cr_assert_eq(step[0].grad_norm, step[1].grad_norm);
    cr_assert_eq(step[0].loss, step[1].loss);
    snapshot_take(&went_on, a);
    snapshot_take(&loaded, b);
    snapshot_compare("in the middle", &loaded, &went_on);
    snapshot_free(&went_on);
    snapshot_free(&loaded);
    lathe_run_close(a);
    lathe_run_close(b);
    OK(lathe_dir_remove(dir));
}

Test(far_checkpoint, keeps_the_gradients_of_a_step_in_its_middle)
{
    check_middle("fp32");
    check_middle("bf16");
}

/* Between steps there are no gradients, so a run with another dtype can continue. */
Test(far_checkpoint, of_a_step_in_its_middle_wants_the_dtype_of_its_gradients)
{
    char dir[] = "/tmp/lathe_far_XXXXXX", path[64], middle[80];
    settings s = {.n = 0}, other = {.n = 0};
    make_folder(dir, 20000);
    set_small(&s, dir, ON_FAR);
    set_small(&other, dir, ON_FAR);
    set(&s, "train.grad_dtype=bf16");
    snprintf(path, sizeof path, "%s/between", dir);
    snprintf(middle, sizeof middle, "%s/middle", dir);
    lathe_run *a = open_run(LATHE_OPEN_TRAIN, s.list), *b = open_run(LATHE_OPEN_TRAIN, other.list);
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_save(a, path));
    OK(lathe_load(b, path));
    OK(lathe_forward(a, NULL, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(a, NULL));
    OK(lathe_save(a, middle));
    cr_assert_eq(lathe_load(b, middle), LATHE_E_CONFIG);
    cr_assert(strstr(lathe_error_message(),
                     "in bf16; this run adds gradients in f32: resume with the train.grad_dtype of "
                     "the saved run"),
              "%s", lathe_error_message());
    lathe_run_close(a);
    lathe_run_close(b);
    OK(lathe_dir_remove(dir));
}
