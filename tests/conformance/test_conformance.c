/* Every plugin that was built conforms; every fixture that breaks a rule is caught at that rule. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/conformance/conformance.h"
#include "base/error.h"
#include "lathe/device.h"
#include "plug/kind.h"
#include "plug/so.h"

/* oneDNN takes blocks of its own while it multiplies: test_step_allocations reports them. Under a sanitizer
 * the core's counter has to do. */
#ifndef __SANITIZE_ADDRESS__
#include "support/heap_counter.h"

static int64_t count_blocks(void)
{
    return atomic_load(&heap_counts[FROM_LATHE]);
}
#endif

typedef struct log {
    char check[64];
    char failed[1024]; /* names of failed checks, each followed by its reason */
} log;

static void begin(void *arg, const char *check)
{
    (void)snprintf(((log *)arg)->check, sizeof((log *)arg)->check, "%s", check);
}

static void end(void *arg, int32_t result, const char *text)
{
    log *l = arg;
    const size_t n = strlen(l->failed);
    if (result == LATHE_CHECK_FAILED)
        (void)snprintf(l->failed + n, sizeof l->failed - n, "%s: %s\n", l->check, text);
}

static lathe_conformance_totals run(const lathe_component *component, log *l)
{
    const lathe_report report = {begin, end, l};
    lathe_conformance_totals totals;
    *l = (log){0};
#ifndef __SANITIZE_ADDRESS__
    lathe_conformance_heap = count_blocks;
    atomic_store(&heap_counting, 1);
#endif
    cr_assert_eq(lathe_conformance_run(component, &report, &totals), LATHE_OK);
    return totals;
}

/* A device's score for this machine is not 0. */
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
    cr_assert_geq(n, 2, "two of every kind, found %lld %s", (long long)n, lathe_kind_name(kind));
    for (int64_t i = 0; i < n; i++) {
        log l;
        const lathe_conformance_totals totals = run(items[i], &l);
        cr_expect_eq(totals.failed, 0, "%s/%s:\n%s", lathe_kind_name(kind), items[i]->plugin->name,
                     l.failed);
        if (kind == LATHE_KIND_DEVICE && !runs_here(items[i]))
            continue;
        cr_expect_gt(totals.ok, 6, "%s: only %d checks ran", items[i]->plugin->name, totals.ok);
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

Test(conformance, devices)
{
    all_of(LATHE_KIND_DEVICE);
}

/* A fixture fails exactly the checks whose names are in `expected`, separated by blanks. */
static void fails(int32_t kind, const char *name, const char *expected)
{
    char path[512];
    lathe_component component = {.path = path};
    log l;
    (void)snprintf(path, sizeof path, "%s/tests/faulty/%s/%s.so", LATHE_TEST_BUILD,
                   lathe_kind_name(kind), name);
    cr_assert_eq(lathe_so_open(path, kind, name, NULL, &component.plugin), LATHE_OK, "%s",
                 lathe_error_message());
    const lathe_conformance_totals totals = run(&component, &l);
    int32_t n = 0;
    char words[256];
    (void)snprintf(words, sizeof words, "%s", expected);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "), n++)
        cr_expect_not_null(strstr(l.failed, word), "%s: %s passed; failed:\n%s", name, word,
                           l.failed);
    cr_expect_eq(totals.failed, n, "%s: %d checks failed:\n%s", name, totals.failed, l.failed);
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
    fails(LATHE_KIND_OPTIMIZER, "not_finite", "step_moves_parameters");
}

Test(faults, writing_one_element_too_many)
{
    char path[512];
    lathe_component component = {.path = path};
    log l;
    (void)snprintf(path, sizeof path, "%s/tests/faulty/optimizer/overrun.so", LATHE_TEST_BUILD);
    cr_assert_eq(lathe_so_open(path, LATHE_KIND_OPTIMIZER, "overrun", NULL, &component.plugin),
                 LATHE_OK);
    cr_expect_gt(run(&component, &l).failed, 0);
    cr_expect_not_null(strstr(l.failed, "behind a block"), "%s", l.failed);
}

Test(faults, rates_that_change_when_asked_again)
{
    fails(LATHE_KIND_SCHEDULER, "impure",
          "rates_are_finite_and_pure order_of_calls_is_free state_round_trip");
}

Test(faults, scheduler_state_outside_its_state)
{
    fails(LATHE_KIND_SCHEDULER, "hidden_state", "state_round_trip");
}
