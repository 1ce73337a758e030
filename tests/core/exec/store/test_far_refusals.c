/* A device whose memory the host cannot access refuses what cannot run there when the run is
 * opened. Also tests the message about a NaN or infinity on such a device. */
#include "support/far_case.h"

/* Settings in addition to set_small, and a part of the message. */
typedef struct refused {
    const char *set[6];
    const char *says[6];
    int on;
} refused;

static const refused refusals[] = {
    {{"optimizer.name=host_step"},
     {"optimizer \"host_step\"", "device \"far\"", "it updates on the host", "these can:", "adamw"},
     ON_FAR},
    {{"optimizer.name=host_estimate"},
     {"optimizer \"host_estimate\"", "estimates curvature", "adamw", "sophia"},
     ON_FAR},
    {{"optimizer.name=host_average", "scheduler.name=constant"},
     {"averages the weights on the host"},
     ON_FAR},
    {{"attention.name=reference"},
     {"no attention backend takes this problem", "reference: runs on the CPU only"},
     ON_FAR},
    {{"adapter.name=lora", "quant.name=int8", "quant.activations=int8"},
     {"quant.activations: device \"far\" cannot quantize the inputs of products", "cpu", "none"},
     ON_FAR},
    {{"device.free_bytes=1100000", "train.micro_batch_size=8"},
     {"does not fit", "free memory of the far away", "too much", "train.micro_batch_size"},
     ON_FAR},
    {{"device.memory_limit=300000"}, {"does not fit", "device.memory_limit", "too much"}, ON_FAR},
    {{"train.precision=fp8", "train.fp8_recipe=rowwise"},
     {"train.fp8_recipe = \"rowwise\"", "device \"far\" has only \"tensorwise\""},
     ON_FAR},
    {{"train.capture=on"}, {"train.capture", "does not support captures"}, ON_CPU},
};

Test(far_refusals, name_the_part_the_device_and_what_would_do)
{
    char dir[] = "/tmp/lathe_far_XXXXXX";
    make_folder(dir, 20000);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        settings s = {.n = 0};
        lathe_run *run = NULL;
        set_small(&s, dir, refusals[i].on);
        set_all(&s, refusals[i].set);
        cr_assert_neq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_OK, "%s",
                      refusals[i].set[0]);
        for (int k = 0; k < 6 && refusals[i].says[k]; k++)
            cr_expect(strstr(lathe_error_message(), refusals[i].says[k]), "%s: no '%s' in: %s",
                      refusals[i].set[0], refusals[i].says[k], lathe_error_message());
    }
    OK(lathe_dir_remove(dir));
}

/* Reported before any of its code runs: a build for instructions that the processor lacks would end
 * the process. */
Test(far_refusals, a_device_that_cannot_run_here_is_refused_by_name)
{
    char dir[] = "/tmp/lathe_far_XXXXXX";
    settings s = {.n = 0};
    lathe_run *run = NULL;
    make_folder(dir, 20000);
    set_small(&s, dir, ON_FAR);
    cr_assert_eq(setenv("LATHE_FAR", "gone", 1), 0);
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(),
                     "device.name: error: device \"far\" cannot run on this machine: it is gone"),
              "%s", lathe_error_message());
    OK(lathe_dir_remove(dir));
}

/* Whether this build compiled code for GPUs into the optimizer: it needs nvcc. */
static int has_image(const char *optimizer)
{
    lathe_registry *registry;
    const lathe_component *found;
    OK(lathe_registry_create(&registry));
    OK(lathe_registry_find(registry, LATHE_KIND_OPTIMIZER, optimizer, &found));
    const lathe_optimizer_v1 *table = found->plugin->table;
    const int has = LATHE_HAS(table, cuda_image);
    lathe_registry_destroy(registry);
    return has;
}

/* Code for another device, as in an optimizer built with nvcc. */
Test(far_refusals, an_image_that_the_device_cannot_run_is_reported_at_open)
{
    char dir[] = "/tmp/lathe_far_XXXXXX";
    settings s = {.n = 0};
    lathe_run *run = NULL;
    make_folder(dir, 20000);
    set_small(&s, dir, ON_FAR);
    set(&s, "optimizer.name=lion"); /* not among those of tests/far */
    cr_assert_neq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_OK);
    cr_assert(strstr(lathe_error_message(), has_image("lion")
                                                ? "optimizer lion: far: the image holds no code "
                                                  "for it"
                                                : "no code for other devices"),
              "%s", lathe_error_message());
    OK(lathe_dir_remove(dir));
}

/* A weight near the largest float makes the first step's loss or gradient infinite or NaN. */
static void bad_number(int where, char *out, size_t bytes)
{
    char dir[] = "/tmp/lathe_far_XXXXXX";
    settings s = {.n = 0};
    lathe_train_result result;
    make_folder(dir, 20000);
    set_small(&s, dir, where);
    set(&s, "train.precision=fp32");
    set(&s, "train.gradient_accumulation_steps=3");
    set(&s, "data.shuffle=false");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const int32_t row = lathe_params_find(&run->params, "model.layers.1.mlp.up_proj.weight");
    cr_assert_geq(row, 0);
    const float bad = 3e38f;
    OK(lathe_store_put(&run->store, lathe_store_master(&run->store, row) + 77, &bad, sizeof bad));
    FILE *quiet = fopen("/dev/null", "w");
    const lathe_train_options options = {.out = quiet};
    cr_assert_eq(lathe_train(run, &options, &result), LATHE_E_NUMERIC);
    snprintf(out, bytes, "%s", lathe_error_message());
    fclose(quiet);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(far_refusals, a_bad_number_has_the_name_that_it_has_on_the_cpu)
{
    char want[1024], got[1024];
    bad_number(ON_CPU, want, sizeof want);
    cr_assert(strstr(want, "first in micro-batch 1"), "%s", want);
    for (int w = ON_FAR; w < N_WHERE; w++) {
        bad_number(w, got, sizeof got);
        cr_assert_str_eq(got, want);
    }
}
