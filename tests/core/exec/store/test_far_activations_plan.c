/* The plan of a run that keeps activations in host memory, and the messages if the option has no
 * effect or is refused. */
#include "activations_case.h"
#include "run/plan/fit_search.h"

/* ---- the plan ---- */

/* Checks the amount that the plan says the option saves on the device. */
static void expect_saved(const settings *s, int64_t want)
{
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s->list);
    cr_assert_gt(want, 0);
    cr_assert_eq(lathe_fit_saved(run, "train.offload_activations"), want);
    lathe_run_close(run);
}

/* For any depth of the model, the device has the values of a few layers; the rest of the plan does
 * not change. */
Test(far_activations, plan_grows_in_the_host_alone)
{
    char dir[] = "/tmp/lathe_activations_XXXXXX";
    lathe_mem_bytes kept[2], away[2];
    make_folder(dir, 20000);
    for (int deep = 0; deep < 2; deep++) {
        settings s = {.n = 0};
        set_case(&s, dir, &cases[0], ON_THE_DEVICE);
        set(&s, "model.num_hidden_layers=%d", deep ? 16 : 8);
        const int64_t max = planned(&s, &kept[deep]);
        set(&s, "train.offload_activations=true");
        const int64_t least = planned(&s, &away[deep]);
        expect_saved(&s, max - least);
        for (int32_t k = 0; k < LATHE_N_MEM; k++)
            if (k != LATHE_MEM_OFFLOAD && k != LATHE_MEM_ACTIVATIONS && k != LATHE_MEM_SCRATCH)
                cr_assert_eq(away[deep].by[k], kept[deep].by[k], "%s", lathe_mem_name(k));
    }
    const int64_t layers = kept[1].by[LATHE_MEM_ACTIVATIONS] - kept[0].by[LATHE_MEM_ACTIVATIONS];
    cr_assert_gt(layers, 0);
    cr_assert_eq(kept[0].by[LATHE_MEM_OFFLOAD], 0);
    cr_assert_lt(away[1].by[LATHE_MEM_ACTIVATIONS], kept[1].by[LATHE_MEM_ACTIVATIONS] / 3);
    /* eight more layers: nothing more on the device; in host memory, their stored values except
     * small statistics */
    cr_assert_eq(away[1].by[LATHE_MEM_ACTIVATIONS] / 1024 / 16,
                 away[0].by[LATHE_MEM_ACTIVATIONS] / 1024 / 16);
    cr_assert_lt(away[1].by[LATHE_MEM_OFFLOAD] - away[0].by[LATHE_MEM_OFFLOAD], layers + 1);
    cr_assert_gt(away[1].by[LATHE_MEM_OFFLOAD] - away[0].by[LATHE_MEM_OFFLOAD], layers * 9 / 10);
    OK(lathe_dir_remove(dir));
}

/* ---- messages ---- */

Test(far_activations, on_a_device_in_host_memory_give_a_warning_and_change_nothing)
{
    char dir[] = "/tmp/lathe_activations_XXXXXX";
    lathe_mem_bytes plain, asked;
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_small(&s, dir, ON_CPU);
    (void)planned(&s, &plain);
    set(&s, "train.offload_activations=true");
    (void)planned_aloud(&s, &asked);
    cr_assert_eq(memcmp(&plain, &asked, sizeof plain), 0);
    cr_assert(strstr(said, "train.offload_activations changes nothing: device"), "%s", said);
    cr_assert_eq(strchr(said, '\n'), said + strlen(said) - 1, "%s", said);
    OK(lathe_dir_remove(dir));
}

/* Two layers: the values of the forward are needed again at once, so they stay. */
Test(far_activations, of_a_shallow_model_are_not_moved_and_this_is_reported)
{
    char dir[] = "/tmp/lathe_activations_XXXXXX";
    lathe_mem_bytes bytes;
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_case(&s, dir, NULL, 0);
    set(&s, "model.num_hidden_layers=1");
    (void)planned_aloud(&s, &bytes);
    cr_assert_eq(bytes.by[LATHE_MEM_OFFLOAD], 0);
    cr_assert(strstr(said, "train.offload_activations changes nothing: the backward of a model of "
                           "1 layer"),
              "%s", said);
    OK(lathe_dir_remove(dir));
}

Test(far_activations, want_streams_with_events)
{
    char dir[] = "/tmp/lathe_activations_XXXXXX";
    settings s = {.n = 0};
    lathe_run *run = NULL;
    make_folder(dir, 20000);
    set_case(&s, dir, NULL, ON_THE_DEVICE);
    set(&s, "device.name=far_in_order");
    set(&s, "train.offload_activations=true");
    cr_assert_eq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_E_CONFIG);
    cr_assert(strstr(lathe_error_message(), "train.offload_activations: device \"far_in_order\" "
                                            "has no streams with events"),
              "%s", lathe_error_message());
    OK(lathe_dir_remove(dir));
}

/* If captures do not support events, nothing is captured, unless the settings ask for it. */
Test(far_activations, are_captured_where_captures_take_events)
{
    char dir[] = "/tmp/lathe_activations_XXXXXX";
    settings s = {.n = 0};
    lathe_run *run = NULL;
    make_folder(dir, 20000);
    set_case(&s, dir, NULL, 0);
    set(&s, "device.capture_events=false");
    cr_assert_eq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_E_CONFIG);
    cr_assert(
        strstr(lathe_error_message(), "cannot contain events, which train.offload_activations"),
        "%s", lathe_error_message());
    set(&s, "train.capture=auto");
    run = open_run(LATHE_OPEN_TRAIN, s.list);
    train(run);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* The number in the refusal equals the plan's with the option. */
Test(far_activations, are_named_when_they_would_make_a_plan_fit)
{
    char dir[] = "/tmp/lathe_activations_XXXXXX", want[128];
    lathe_mem_bytes bytes;
    settings s = {.n = 0}, with;
    lathe_run *run = NULL;
    make_folder(dir, 20000);
    set_case(&s, dir, &cases[0], ON_THE_DEVICE);
    set(&s, "model.num_hidden_layers=12");
    copy_settings(&s, &with);
    set(&with, "train.offload_activations=true");
    const int64_t least = planned(&with, &bytes);
    set(&s, "device.memory_limit=%lld", (long long)least);
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    snprintf(want, sizeof want, "\n  --train.offload_activations true   (peak %.1f MiB)",
             (double)least / 1048576.0);
    cr_assert(strstr(lathe_error_message(), want), "no '%s' in: %s", want, lathe_error_message());
    s.n--;
    set(&s, "device.memory_limit=%lld", (long long)least - 1);
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    cr_assert_not(strstr(lathe_error_message(), "\n  --train.offload_activations true   "), "%s",
                  lathe_error_message());
    OK(lathe_dir_remove(dir));
}
