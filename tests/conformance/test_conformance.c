/* Every built plugin conforms; every fixture that breaks a rule fails the check of that rule. */
#include "conformance_log.h"

/* Whether a device's score for this machine is not 0. */
static int runs_here(const lathe_component *component)
{
    char why[256];
    const lathe_device_v1 *device = component->plugin->table;
    return device->score(why, sizeof why) != LATHE_SCORE_NO;
}

static void all_of(int32_t kind)
{
    lathe_registry *registry;
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_component **items;
    int64_t n;
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", LATHE_TEST_BUILD "/lib/lathe/plugins", 1), 0);
    cr_assert_eq(lathe_registry_create(&registry), LATHE_OK);
    cr_assert_eq(lathe_registry_scan(registry, kind), LATHE_OK);
    cr_assert_eq(lathe_registry_list(registry, kind, &arena, &items, &n), LATHE_OK);
    /* the second reader and the second op are the template's, which the package test builds; the
     * second collective needs MPI */
    const int one = kind == LATHE_KIND_READER || kind == LATHE_KIND_OP;
    cr_assert_geq(n, one || kind == LATHE_KIND_COLLECTIVE ? 1 : 2,
                  "two of every kind, found %lld %s", (long long)n, lathe_kind_name(kind));
    for (int64_t i = 0; i < n; i++) {
        log l;
        const lathe_conformance_totals totals = run(items[i], NULL, &l);
        cr_expect_eq(totals.failed, 0, "%s/%s:\n%s", lathe_kind_name(kind), items[i]->plugin->name,
                     l.failed);
        if (kind == LATHE_KIND_DEVICE && !runs_here(items[i]))
            continue;
        /* without Apache Arrow, the checks of a reader's records are skipped */
        cr_expect_gt(totals.ok, kind == LATHE_KIND_READER ? 5 : 6, "%s: only %d checks ran",
                     items[i]->plugin->name, totals.ok);
    }
    lathe_arena_fini(&arena);
    lathe_registry_destroy(registry);
}

Test(conformance, optimizers)
{
    all_of(LATHE_KIND_OPTIMIZER);
}

Test(conformance, schedulers)
{
    all_of(LATHE_KIND_SCHEDULER);
}

Test(conformance, quantization_formats)
{
    all_of(LATHE_KIND_QUANT);
}

Test(conformance, adapters)
{
    all_of(LATHE_KIND_ADAPTER);
}

Test(conformance, stages)
{
    all_of(LATHE_KIND_STAGE);
}

Test(conformance, attention_backends)
{
    all_of(LATHE_KIND_ATTENTION);
}

Test(conformance, model_families)
{
    all_of(LATHE_KIND_MODEL);
}

/* The command is the one reward that needs a setting: a program. */
static lathe_conformance_totals run_reward(const lathe_component *component, log *l)
{
    static const char program[] =
        "command = [\"/bin/sh\", \"-c\", \"while read -r line; do echo ${#line}; done\"]";
    const lathe_report report = {begin, end, l};
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_toml_node *settings = NULL;
    lathe_conformance_totals totals;
    *l = (log){0};
    cr_assert_eq(lathe_toml_load("check", program, sizeof program - 1, &arena, &settings),
                 LATHE_OK);
    const int is_command = strcmp(component->plugin->name, "command") == 0;
    const lathe_conformance_setup setup = {.settings = is_command ? settings : NULL};
    cr_assert_eq(lathe_conformance_run(component, &setup, &report, &totals), LATHE_OK, "%s",
                 lathe_error_message());
    lathe_arena_fini(&arena);
    return totals;
}

Test(conformance, rewards)
{
    lathe_registry *registry;
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_component **items;
    int64_t n;
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", LATHE_TEST_BUILD "/lib/lathe/plugins", 1), 0);
    cr_assert_eq(lathe_registry_create(&registry), LATHE_OK);
    cr_assert_eq(lathe_registry_scan(registry, LATHE_KIND_REWARD), LATHE_OK);
    cr_assert_eq(lathe_registry_list(registry, LATHE_KIND_REWARD, &arena, &items, &n), LATHE_OK);
    cr_assert_geq(n, 3);
    for (int64_t i = 0; i < n; i++) {
        log l;
        const lathe_conformance_totals totals = run_reward(items[i], &l);
        cr_expect_eq(totals.failed, 0, "%s:\n%s", items[i]->plugin->name, l.failed);
        cr_expect_gt(totals.ok, 6);
    }
    lathe_arena_fini(&arena);
    lathe_registry_destroy(registry);
}

Test(conformance, renderers)
{
    all_of(LATHE_KIND_RENDERER);
}

Test(conformance, readers)
{
    all_of(LATHE_KIND_READER);
}

Test(conformance, collectives)
{
    all_of(LATHE_KIND_COLLECTIVE);
}

Test(conformance, ops)
{
    all_of(LATHE_KIND_OP);
}

Test(conformance, devices)
{
    all_of(LATHE_KIND_DEVICE);
}

static void fails(int32_t kind, const char *name, const char *expected)
{
    fails_exactly("faulty", kind, name, NULL, expected);
}

Test(faults, a_sound_optimizer_passes)
{
    fails(LATHE_KIND_OPTIMIZER, "none", "");
}

Test(faults, memory_taken_in_a_step)
{
    fails(LATHE_KIND_OPTIMIZER, "allocates", "step_allocates_nothing");
}

Test(faults, optimizer_state_outside_its_slots)
{
    fails(LATHE_KIND_OPTIMIZER, "hidden_state", "state_round_trip");
}

Test(faults, update_that_depends_on_the_partition)
{
    fails(LATHE_KIND_OPTIMIZER, "partition", "parts_equal_the_whole");
}

Test(faults, update_that_depends_on_threads)
{
    fails(LATHE_KIND_OPTIMIZER, "threads", "threads_do_not_matter");
}

Test(faults, parameters_that_become_infinite)
{
    fails(LATHE_KIND_OPTIMIZER, "not_finite",
          "step_moves_parameters gradient_scale_is_applied rate_is_applied multiplier_is_applied "
          "decay_multiplier_is_applied opposite_gradients_step_back descends instances_are_apart "
          "shadows_are_in_their_dtype");
}

Test(faults, writing_one_element_too_many)
{
    char path[512];
    lathe_component component = {.path = path};
    log l;
    (void)snprintf(path, sizeof path, "%s/tests/faulty/optimizer/overrun.so", LATHE_TEST_BUILD);
    cr_assert_eq(lathe_so_open(path, LATHE_KIND_OPTIMIZER, "overrun", NULL, &component.plugin),
                 LATHE_OK);
    cr_expect_gt(run(&component, NULL, &l).failed, 0);
    cr_expect_not_null(strstr(l.failed, "after the end of a block"), "%s", l.failed);
}

Test(faults, rates_that_change_when_asked_again)
{
    fails(LATHE_KIND_SCHEDULER, "impure",
          "rates_are_finite_and_pure order_of_calls_is_free state_round_trip instances_are_apart");
}

Test(faults, scheduler_state_outside_its_state)
{
    fails(LATHE_KIND_SCHEDULER, "hidden_state", "state_round_trip instances_are_apart");
}
