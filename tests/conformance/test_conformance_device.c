/* Plugins conform on devices whose memory the host cannot access: the emulated GPU and the far
 * device. Fixtures whose code for the far device breaks a rule fail the check of that rule. */
#include "conformance_log.h"

#include <unistd.h>

#include "plug/registry.h"
#include "support/plugin_override.h"

static lathe_component component_of(const char *folder, const char *kind, const char *name)
{
    char path[512];
    lathe_component component = {0};
    (void)snprintf(path, sizeof path, "%s/%s/%s/%s.so", LATHE_TEST_BUILD, folder, kind, name);
    if (access(path, F_OK) != 0)
        return component;
    cr_assert_eq(lathe_so_open(path, lathe_kind_id(kind), name, NULL, &component.plugin), LATHE_OK,
                 "%s", lathe_error_message());
    return component;
}

/* Checks every plugin of a kind in a folder on the device; returns their number. */
static int all_on(const lathe_component *device, const char *folder, int32_t kind)
{
    lathe_registry *registry;
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_component **items;
    int64_t n;
    char path[512];
    int ran = 0;
    (void)snprintf(path, sizeof path, "%s/%s", LATHE_TEST_BUILD, folder);
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", path, 1), 0);
    override_all_of(path);
    cr_assert_eq(lathe_registry_create(&registry), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_registry_scan(registry, kind), LATHE_OK);
    cr_assert_eq(lathe_registry_list(registry, kind, &arena, &items, &n), LATHE_OK);
    for (int64_t i = 0; i < n; i++) {
        log l;
        const char *name = items[i]->plugin->name;
        if (strncmp(items[i]->path, path, strlen(path)) != 0) /* from another folder */
            continue;
        const lathe_conformance_totals totals = run(items[i], device, &l);
        if (strncmp(name, "host_", 5) == 0) { /* without code for the far device */
            cr_expect_not_null(strstr(l.failed, "no code for a device"), "%s: %s", name, l.failed);
            continue;
        }
        cr_expect_eq(totals.failed, 0, "%s/%s on %s:\n%s", lathe_kind_name(kind), name,
                     device->plugin->name, l.failed);
        cr_expect_gt(totals.ok, 8, "%s: only %d checks ran", name, totals.ok);
        ran++;
    }
    lathe_arena_fini(&arena);
    lathe_registry_destroy(registry);
    return ran;
}

/* ---- the emulated GPU ---- */

static void on_cuda(const char *folder, int32_t kind, int at_least)
{
    const lathe_component device = component_of("tests/emulated", "device", "cuda");
    if (device.plugin == NULL)
        cr_skip_test("the emulated GPU is not built");
    cr_assert_geq(all_on(&device, folder, kind), at_least);
}

Test(cuda, optimizers)
{
    on_cuda("tests/emulated", LATHE_KIND_OPTIMIZER, 13);
}

Test(cuda, quantization_formats)
{
    on_cuda("tests/emulated", LATHE_KIND_QUANT, 2);
}

Test(cuda, attention_backends)
{
    on_cuda("tests/emulated", LATHE_KIND_ATTENTION, 2);
}

Test(cuda, ops)
{
    on_cuda("tests/emulated", LATHE_KIND_OP, 3);
}

Test(cuda, adapters)
{
    on_cuda("lib/lathe/plugins", LATHE_KIND_ADAPTER, 2);
}

Test(cuda, stages)
{
    on_cuda("lib/lathe/plugins", LATHE_KIND_STAGE, 2);
}

/* ---- the far device ---- */

static void on_far(int32_t kind, int at_least)
{
    const lathe_component device = component_of("tests/far", "device", "far");
    cr_assert_not_null(device.plugin);
    cr_assert_geq(all_on(&device, "tests/far", kind), at_least);
}

Test(far, optimizers)
{
    on_far(LATHE_KIND_OPTIMIZER, 5);
}

Test(far, quantization_formats)
{
    on_far(LATHE_KIND_QUANT, 2);
}

Test(far, attention_backends)
{
    on_far(LATHE_KIND_ATTENTION, 1);
}

/* ---- fixtures ---- */

typedef struct fault {
    const char *name, *expected;
} fault;

static void each_fault(int32_t kind, const fault *faults, size_t n)
{
    const lathe_component device = component_of("tests/far", "device", "far");
    cr_assert_not_null(device.plugin);
    for (size_t i = 0; i < n; i++)
        fails_exactly("faulty_on_device", kind, faults[i].name, &device, faults[i].expected);
}

Test(faults, of_optimizers)
{
    static const fault faults[] = {
        {"none", ""},
        {"queued", ""},
        {"bits", "same_bits_as_the_host empty_among_others"},
        {"slots", "same_bits_as_the_host empty_among_others"},
        {"shadow", "step_moves_parameters same_bits_as_the_host empty_among_others"},
        {"hidden_state",
         "same_bits_as_the_host repeats_bit_for_bit state_round_trip parts_equal_the_whole "
         "threads_do_not_matter any_grid_will_do empty_among_others"},
        {"partition", "parts_equal_the_whole"},
        {"grid", "any_grid_will_do"},
        {"no_sums", "tells_its_update"},
        {"inputs", "leaves_inputs_alone"},
        {"scalars", "leaves_inputs_alone"},
        {"empty", "empty_among_others"},
        {"room", "same_bits_as_the_host parts_equal_the_whole"},
        {"allocates", "step_allocates_nothing"},
        {"swallows", "failures_are_passed_on"},
    };
    each_fault(LATHE_KIND_OPTIMIZER, faults, sizeof faults / sizeof *faults);
}

/* For faults that make nearly every check fail: one of them must give this reason. */
static void mentions(int32_t kind, const char *name, const char *check, const char *reason)
{
    char line[160];
    const lathe_component device = component_of("tests/far", "device", "far");
    const lathe_component component =
        component_of("tests/faulty_on_device", lathe_kind_name(kind), name);
    log l;
    cr_assert_not_null(component.plugin, "%s", name);
    cr_assert_gt(run(&component, &device, &l).failed, 0, "%s passes", name);
    (void)snprintf(line, sizeof line, "%s: ", check);
    const char *at = strstr(l.failed, line);
    cr_assert_not_null(at, "%s: %s passed; failed:\n%s", name, check, l.failed);
    cr_expect_not_null(strstr(at, reason), "%s:\n%s", name, l.failed);
}

Test(faults, of_optimizers_that_stop_all)
{
    mentions(LATHE_KIND_OPTIMIZER, "no_kernel", "image_loads", "no kernel lathe_elementwise_step");
    mentions(LATHE_KIND_OPTIMIZER, "overrun", "step_moves_parameters", "after the end of a block");
    mentions(LATHE_KIND_OPTIMIZER, "underrun", "step_moves_parameters", "before a block");
    mentions(LATHE_KIND_OPTIMIZER, "not_finite", "step_moves_parameters", "became inf");
}

Test(faults, of_quantization_formats)
{
    static const fault faults[] = {
        {"none", ""},
        {"bits", "same_bits_as_the_host"},
        {"error", "error_is_bounded same_bits_as_the_host"},
        {"zero", "zero_stays_zero"},
        {"grid", "any_grid_will_do"},
        {"planes", "error_is_bounded any_grid_will_do leaves_planes_alone"},
        {"changes", "same_bits_as_the_host repeats_bit_for_bit"},
    };
    each_fault(LATHE_KIND_QUANT, faults, sizeof faults / sizeof *faults);
    mentions(LATHE_KIND_QUANT, "no_kernel", "image_loads", "no kernel lathe_quant_decode");
    mentions(LATHE_KIND_QUANT, "overrun", "error_is_bounded", "after the end of a block");
}

Test(faults, of_attention_backends)
{
    static const fault faults[] = {
        {"wrong", "agrees_with_the_definition adds_where_it_is_asked reads_its_inputs_only"},
        {"changes", "repeats_and_allocates_nothing runs_a_thousand_times"},
    };
    each_fault(LATHE_KIND_ATTENTION, faults, sizeof faults / sizeof *faults);
    mentions(LATHE_KIND_ATTENTION, "overrun", "agrees_with_the_definition",
             "after the end of a block");
}

/* The device itself, and fixtures that break rules of devices. */
Test(far, devices)
{
    static const fault faults[] = {{"far", ""},
                                   {"far_unified", ""},
                                   {"far_timeless", ""},
                                   {"far_backwards", "events_tell_time"}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        fails_exactly("far", LATHE_KIND_DEVICE, faults[i].name, NULL, faults[i].expected);
}

/* On a device that lacks the kernels of some ops, adapters, stages and matrix updates that need
 * them do not conform. */
Test(faults, kernels_that_the_device_lacks)
{
    static const struct {
        const char *folder, *kind, *name, *expected, *op;
    } graphs[] = {
        {"lib/lathe/plugins", "adapter", "lora", "trains: ", "head_logprob_bwd"},
        {"lib/lathe/plugins", "stage", "pretrain", "loss_trains: ", "head_logprob"},
        {"tests/far", "optimizer", "muon", "matrix_update_plans: ", "lincomb"},
    };
    const lathe_component device = component_of("tests/far", "device", "far_lacking");
    cr_assert_not_null(device.plugin);
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        log l;
        const lathe_component component =
            component_of(graphs[i].folder, graphs[i].kind, graphs[i].name);
        (void)run(&component, &device, &l);
        cr_expect_not_null(strstr(l.failed, graphs[i].expected), "%s: %s", graphs[i].name,
                           l.failed);
        cr_expect_not_null(strstr(l.failed, graphs[i].op), "%s: %s", graphs[i].name, l.failed);
    }
}
