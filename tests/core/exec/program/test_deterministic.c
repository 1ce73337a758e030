/* train.deterministic: kernels whose bits are not repeatable are refused when the plan is made. */
#include "support/graph_fixture.h"
#include "support/small_run.h"

static void configure(settings *s, const char *attention, const char *deterministic)
{
    set_llama(s, 1, 32, 2, 2, 64);
    set(s, "data.seq_len=16");
    set(s, "plugins.paths=[\"%s/tests/unordered\"]", LATHE_TEST_BUILD);
    set(s, "train.deterministic=%s", deterministic);
    if (attention)
        set(s, "attention.name=%s", attention);
}

static lathe_status plan(const char *attention, const char *deterministic, char *chosen)
{
    settings s = {.n = 0};
    lathe_override list[MAX_SETTINGS];
    char keys[MAX_SETTINGS][128];
    lathe_run *run = NULL;
    configure(&s, attention, deterministic);
    for (int i = 0; i < s.n; i++) {
        const char *equals = strchr(s.list[i], '=');
        snprintf(keys[i], sizeof keys[i], "%.*s", (int)(equals - s.list[i]), s.list[i]);
        list[i] = (lathe_override){keys[i], equals + 1};
    }
    const lathe_status status = open_options(NULL, list, s.n, LATHE_OPEN_PLAN, &run);
    if (status == LATHE_OK)
        snprintf(chosen, 64, "%s", lathe_exec_attention(run->programs.train.exec));
    lathe_run_close(run);
    return status;
}

Test(deterministic, passes_over_a_backend_that_does_not_repeat)
{
    char chosen[64] = "";
    OK(plan(NULL, "false", chosen));
    cr_assert_str_eq(chosen, "unordered"); /* the best one if bits do not matter */
    OK(plan(NULL, "true", chosen));
    cr_assert_str_eq(chosen, "flash_cpu");
}

Test(deterministic, refuses_a_named_backend_that_does_not_repeat)
{
    char chosen[64] = "";
    cr_assert_neq(plan("unordered", "true", chosen), LATHE_OK);
    cr_assert(strstr(lathe_error_message(), "adds in the order in which threads arrive"), "%s",
              lathe_error_message());
    cr_assert(strstr(lathe_error_message(), "node "), "%s", lathe_error_message());
    OK(plan("unordered", "false", chosen));
    cr_assert_str_eq(chosen, "unordered");
}

/* The CPU device with a LINEAR whose bits depend on the threads. */
static const lathe_device_v1 *real;

static lathe_status create_or_refuse(void *self, const lathe_kernel_problem *p, lathe_kernel **out,
                                     int64_t *out_scratch)
{
    if (p->op == LATHE_OP_LINEAR && (p->flags & LATHE_FLAG_DETERMINISTIC))
        return lathe_error(LATHE_E_UNSUPPORTED, "splits its sums over the threads");
    return real->kernel_create(self, p, out, out_scratch);
}

Test(deterministic, refuses_a_kernel_that_does_not_repeat_and_names_its_node)
{
    for (int asked = 0; asked < 2; asked++) {
        fixture f;
        lathe_exec *exec = NULL;
        fixture_open(&f, LATHE_F32);
        real = f.m.dev;
        lathe_device_v1 patched = *real;
        patched.kernel_create = create_or_refuse;
        const lathe_instance *device = f.m.device;
        lathe_instance with_patch = *device;
        with_patch.table = &patched;
        f.m.dev = &patched;
        f.m.device = &with_patch;
        f.m.flags = asked ? LATHE_FLAG_DETERMINISTIC : 0;
        const lathe_val x = fixture_matrix(&f, "x", 3, 4), w = fixture_matrix(&f, "w", 5, 4);
        lathe_graph_output(f.g, fixture_linear(&f, x, w, LATHE_NONE));
        const lathe_status status = lathe_exec_create(&f.m, f.g, &exec);
        OK(lathe_graph_create(&f.params, &f.g)); /* the executable owns the other one */
        cr_assert_eq(status, asked ? LATHE_E_UNSUPPORTED : LATHE_OK);
        if (asked) {
            cr_assert(strstr(lathe_error_message(), "node 0, linear"), "%s", lathe_error_message());
            cr_assert(strstr(lathe_error_message(), "splits its sums over the threads"));
        }
        lathe_exec_destroy(exec);
        f.m.dev = real;
        f.m.device = device;
        fixture_close(&f);
    }
}
