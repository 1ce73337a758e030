/* Optimizer state in host memory, on a device whose memory the host cannot access: the bits of a
 * run that keeps it on the device, for any size of the buffers, with streams that run as late and
 * as early as possible; the plan to the byte; and refusals. */
#include "offload_case.h"
#include "run/plan/fit.h"

/* Settings on top of set_small. */
typedef struct offload_case {
    const char *name;
    const char *set[10];
    int is_wide; /* tensors of several chunks, which are cut */
} offload_case;

static const offload_case cases[] = {
    {"adamw", {"train.precision=bf16", "train.max_grad_norm=0.05"}, 0},
    {"adamw, wide", {"train.precision=bf16"}, 1},
    {"adamw, bf16 state, wide", {"train.precision=fp32", "optimizer.state_dtype=bf16"}, 1},
    {"adamw, fp16: steps without an update",
     {"train.precision=fp16", "train.loss_scale_init=16777216"},
     0},
    {"sophia: estimates",
     {"train.precision=bf16", "optimizer.name=sophia", "optimizer.estimate_every=2"},
     0},
    {"schedule_free_adamw: averages",
     {"train.precision=bf16", "optimizer.name=schedule_free_adamw", "scheduler.name=constant",
      "data.validation_split=0.2", "train.eval_every=2"},
     0},
    {"muon", {"train.precision=bf16", "optimizer.name=muon", "train.recompute=layer"}, 0},
    {"muon, wide", {"train.precision=fp32", "optimizer.name=muon"}, 1},
    {"lora", {"train.precision=fp32", "adapter.name=lora", "adapter.r=4"}, 0},
    {"averages",
     {"train.precision=bf16", "train.weight_average=ema", "data.validation_split=0.2",
      "train.eval_every=2"},
     0},
    {"spikes that go back",
     {"train.precision=bf16", "train.on_spike=rewind", "train.spike_window=2",
      "train.spike_threshold=1", "checkpoint.every=1", "train.max_steps=12", "optimizer.lr=0.06"},
     0},
};

/* Sizes of the buffers: minimal (every tensor, or its smallest piece, is a part), for some tensors,
 * for all; and streams that run late or early. */
typedef struct way {
    const char *buffer, *eager, *capture;
} way;

static const way ways[] = {
    {"0.0001", "false", "on"}, {"0.0001", "true", "off"}, {"0.04", "true", "on"},
    {"0.2", "false", "off"},   {"0.2", "true", "on"},     {"64", "false", "on"},
};

enum { IN_THE_DEVICE = -1, N_WAYS = (int)(sizeof ways / sizeof ways[0]) };

static void set_case(settings *s, const char *dir, const offload_case *c, int w)
{
    set_small(s, dir, ON_FAR);
    if (c && c->is_wide) {
        set(s, "model.hidden_size=136");
        set(s, "model.intermediate_size=200");
        set(s, "train.max_steps=3");
    }
    if (c)
        set_all(s, c->set);
    if (w == IN_THE_DEVICE)
        return;
    set(s, "train.offload_optimizer=true");
    set(s, "train.offload_buffer=%s", ways[w].buffer);
    set(s, "device.eager=%s", ways[w].eager);
    set(s, "train.capture=%s", ways[w].capture);
}

/* Checks the plan to the byte, and that the state is only in host memory. */
static void check_memory(const char *what, const lathe_run *run, int w)
{
    check_planned(what, run);
    cr_assert_eq(run->planned.by[LATHE_MEM_OFFLOAD], w == IN_THE_DEVICE ? 0 : run->store.slot_bytes,
                 "%s", what);
}

static void run_case(const offload_case *c, int w, snapshot *out, char **figures)
{
    char dir[] = "/tmp/lathe_offload_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_case(&s, dir, c, w);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    train(run);
    snapshot_take(out, run);
    check_memory(c->name, run, w);
    const double update_norm = run->opt.update_norm;
    lathe_run_close(run);
    *figures = all_figures(dir, update_norm);
    OK(lathe_dir_remove(dir));
}

static void check_case(const offload_case *c)
{
    snapshot want, got;
    char *figures = NULL, *others = NULL, what[128];
    run_case(c, IN_THE_DEVICE, &want, &figures);
    if (strstr(c->name, "without an update"))
        cr_assert(strstr(figures, "\"skipped_steps\": 2"), "%s", figures);
    if (strstr(c->name, "go back"))
        cr_assert_not(strstr(figures, "\"spikes\": 0, \"step\": 12"), "%s", figures);
    for (int w = 0; w < N_WAYS; w += c->is_wide ? 1 : 2) {
        run_case(c, w, &got, &others);
        snprintf(what, sizeof what, "%s, buffers of %s MiB, eager %s", c->name, ways[w].buffer,
                 ways[w].eager);
        cr_assert_str_eq(others, figures, "%s", what);
        snapshot_compare(what, &got, &want);
        snapshot_free(&got);
        free(others);
    }
    snapshot_free(&want);
    free(figures);
}

Test(far_offload, of_elementwise_optimizers_changes_no_bit)
{
    for (size_t i = 0; i < 4; i++)
        check_case(&cases[i]);
}

Test(far_offload, of_estimates_and_averages_changes_no_bit)
{
    for (size_t i = 4; i < 6; i++)
        check_case(&cases[i]);
}

Test(far_offload, of_matrices_changes_no_bit)
{
    for (size_t i = 6; i < 8; i++)
        check_case(&cases[i]);
}

Test(far_offload, of_adapters_averages_and_steps_taken_back_changes_no_bit)
{
    for (size_t i = 8; i < sizeof cases / sizeof cases[0]; i++)
        check_case(&cases[i]);
}

/* ---- checkpoints ---- */

/* Trains to step 3 as `first`, then to the end as `then`: IN_THE_DEVICE or a way. */
static void stop_and_go(const char *const *more, int first, int then, snapshot *out)
{
    char dir[] = "/tmp/lathe_offload_XXXXXX";
    make_folder(dir, 20000);
    for (int part = 0; part < 2; part++) {
        settings s = {.n = 0};
        set_case(&s, dir, NULL, part == 0 ? first : then);
        set_all(&s, more);
        if (part == 0)
            set(&s, "train.stop_after=3");
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        cr_assert_eq(train(run).step, part == 0 ? 3 : 6);
        if (part == 1)
            snapshot_take(out, run);
        lathe_run_close(run);
    }
    OK(lathe_dir_remove(dir));
}

static void check_resume(const char *const *more)
{
    static const int pairs[][2] = {{0, 1}, {IN_THE_DEVICE, 2}, {3, IN_THE_DEVICE}, {5, 4}};
    snapshot want, got;
    char what[128];
    stop_and_go(more, IN_THE_DEVICE, IN_THE_DEVICE, &want);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        stop_and_go(more, pairs[i][0], pairs[i][1], &got);
        snprintf(what, sizeof what, "%s: %d, then %d", more[0], pairs[i][0], pairs[i][1]);
        snapshot_compare(what, &got, &want);
        snapshot_free(&got);
    }
    snapshot_free(&want);
}

Test(far_offload, state_is_written_and_read_where_it_lies)
{
    static const char *const beside[] = {"train.weight_average=swa", "checkpoint.every=1",
                                         "checkpoint.gate=true", NULL};
    static const char *const at_once[] = {"optimizer.name=muon", "checkpoint.every=2",
                                          "checkpoint.async=false", NULL};
    check_resume(beside);
    check_resume(at_once);
}

/* ---- what a step does ---- */

static void one_step(lathe_run *run)
{
    for (int m = 0; m < 2; m++) {
        lathe_forward_result f = {.size = sizeof f};
        OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
        OK(lathe_backward(run, NULL));
    }
    lathe_step_result r = {.size = sizeof r};
    OK(lathe_step(run, &r));
    OK(lathe_zero_grad(run));
}

/* The far device copies nothing out until something waits for that stream, so the state would be in
 * host memory only if the step had waited. */
Test(far_offload, a_step_does_not_wait_for_what_leaves)
{
    char dir[] = "/tmp/lathe_offload_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_case(&s, dir, NULL, 0);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const lathe_store *x = &run->store;
    one_step(run);
    char *raw = malloc((size_t)x->slot_bytes), *settled = malloc((size_t)x->slot_bytes);
    memcpy(raw, x->slots, (size_t)x->slot_bytes);
    OK(lathe_store_get(x, settled, x->slots, x->slot_bytes));
    cr_assert_neq(memcmp(raw, settled, (size_t)x->slot_bytes), 0);
    const int64_t before = run->machine.n_syncs;
    one_step(run);
    const int64_t with = run->machine.n_syncs - before;
    lathe_run_close(run);
    s.n = 0;
    set_case(&s, dir, NULL, IN_THE_DEVICE);
    run = open_run(LATHE_OPEN_TRAIN, s.list);
    one_step(run);
    const int64_t first = run->machine.n_syncs;
    one_step(run);
    cr_assert_eq(run->machine.n_syncs - first, with);
    lathe_run_close(run);
    free(raw);
    free(settled);
    OK(lathe_dir_remove(dir));
}

/* All of the state is copied in and out once each; padding between tensors of one part may be
 * copied too. */
Test(far_offload, figures_tell_what_moved)
{
    char dir[] = "/tmp/lathe_offload_XXXXXX", path[512], line[8192];
    settings s = {.n = 0};
    json_error_t error;
    int64_t state = 0;
    make_folder(dir, 20000);
    set_case(&s, dir, NULL, 2);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    for (int32_t i = 0; i < run->store.n_rows; i++)
        for (int32_t k = 0; k < run->store.rows[i].n_slots; k++)
            state += lathe_desc_bytes(&run->store.rows[i].slots[k].desc);
    train(run);
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", dir);
    FILE *f = fopen(path, "r");
    cr_assert(f);
    int n = 0;
    for (; fgets(line, sizeof line, f); n++) {
        json_t *row = json_loads(line, 0, &error);
        const double moved = json_number_value(json_object_get(row, "offload_bytes"));
        cr_assert(moved >= 2.0 * (double)state && moved <= 2.0 * (double)run->store.slot_bytes,
                  "%s", line);
        json_decref(row);
    }
    cr_assert_eq(n, 6);
    fclose(f);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* Reads offload_wait_seconds of every step of a run on `device`; returns the number of lines. NULL:
 * checks that the metric is absent. */
static int waits_of(const char *device, const char *eager, double *out)
{
    char dir[] = "/tmp/lathe_offload_XXXXXX", path[512], line[8192];
    settings s = {.n = 0};
    json_error_t error;
    int n = 0;
    make_folder(dir, 20000);
    set_case(&s, dir, NULL, 0);
    set(&s, "device.name=%s", device);
    set(&s, "device.eager=%s", eager);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    train(run);
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", dir);
    FILE *f = fopen(path, "r");
    cr_assert(f);
    for (; fgets(line, sizeof line, f); n++) {
        json_t *row = json_loads(line, 0, &error);
        const json_t *waited = json_object_get(row, "offload_wait_seconds");
        cr_assert_eq(waited != NULL, out != NULL, "%s", line);
        if (out)
            out[n] = json_number_value(waited);
        if (out)
            cr_assert(out[n] >= 0.0 &&
                          out[n] <= json_number_value(json_object_get(row, "step_seconds")),
                      "%s", line);
        json_decref(row);
    }
    fclose(f);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
    return n;
}

/* If copies run only when waited for, the update waits for the whole copy in; if they run early,
 * for almost nothing. */
Test(far_offload, figures_tell_what_the_update_waited)
{
    double late[16], early[16];
    cr_assert_eq(waits_of("far", "false", late), 6);
    cr_assert_eq(waits_of("far", "true", early), 6);
    for (int i = 0; i < 6; i++)
        cr_assert_gt(late[i], 0.0);
    cr_assert_eq(waits_of("far_timeless", "false", NULL), 6);
}

/* ---- the plan ---- */

/* The device has two buffers of the requested size, or of the largest piece that cannot be cut. */
Test(far_offload, plan_tells_both_sides)
{
    char dir[] = "/tmp/lathe_offload_XXXXXX";
    lathe_mem_bytes in_device, by_part, whole;
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_case(&s, dir, &cases[1], IN_THE_DEVICE);
    const int64_t max = planned(&s, &in_device);
    set(&s, "train.offload_optimizer=true");
    set(&s, "train.offload_buffer=0.0001");
    const int64_t least = planned(&s, &by_part);
    const int64_t state = by_part.by[LATHE_MEM_OFFLOAD];
    /* the longest piece that is not cut: 136 * 200 elements minus a chunk; or a chunk */
    const int64_t buffer = 2 * 4 * 16384;
    cr_assert_eq(in_device.by[LATHE_MEM_OFFLOAD], 0);
    cr_assert_eq(max - least, state - 2 * buffer -
                                  (by_part.by[LATHE_MEM_OPTIMIZER] - 2 * buffer -
                                   (in_device.by[LATHE_MEM_OPTIMIZER] - state)));
    cr_assert(by_part.by[LATHE_MEM_OPTIMIZER] > 2 * buffer &&
              by_part.by[LATHE_MEM_OPTIMIZER] < 2 * buffer + 65536);
    set(&s, "train.offload_buffer=64");
    (void)planned(&s, &whole);
    cr_assert_eq(whole.by[LATHE_MEM_OFFLOAD], state);
    cr_assert_eq(whole.by[LATHE_MEM_OPTIMIZER], in_device.by[LATHE_MEM_OPTIMIZER]); /* one buffer */
    for (int32_t k = 0; k < LATHE_N_MEM; k++)
        if (k != LATHE_MEM_OFFLOAD && k != LATHE_MEM_OPTIMIZER)
            cr_assert_eq(by_part.by[k], in_device.by[k], "%s", lathe_mem_name(k));
    OK(lathe_dir_remove(dir));
}

/* An optimizer without state has nothing to offload. */
Test(far_offload, of_no_state_is_nothing)
{
    char dir[] = "/tmp/lathe_offload_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_case(&s, dir, NULL, 0);
    set(&s, "optimizer.name=sgd");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_assert_eq(run->store.slot_bytes, 0);
    train(run);
    check_memory("sgd", run, 0);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* ---- messages ---- */

/* If the device shares the host's memory, nothing changes, and one line says so. */
Test(far_offload, on_a_device_in_host_memory_gives_a_warning_and_changes_nothing)
{
    char dir[] = "/tmp/lathe_offload_XXXXXX";
    lathe_mem_bytes plain, asked;
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_small(&s, dir, ON_CPU);
    (void)planned(&s, &plain);
    set(&s, "train.offload_optimizer=true");
    (void)planned_aloud(&s, &asked);
    cr_assert_eq(memcmp(&plain, &asked, sizeof plain), 0);
    cr_assert(strstr(said, "train.offload_optimizer changes nothing"), "%s", said);
    cr_assert_eq(strchr(said, '\n'), said + strlen(said) - 1, "%s", said);
    OK(lathe_dir_remove(dir));
}

Test(far_offload, wants_streams_with_events)
{
    char dir[] = "/tmp/lathe_offload_XXXXXX";
    settings s = {.n = 0};
    lathe_run *run = NULL;
    make_folder(dir, 20000);
    set_case(&s, dir, NULL, IN_THE_DEVICE);
    set(&s, "device.name=far_in_order");
    run = open_run(LATHE_OPEN_PLAN, s.list);
    lathe_run_close(run);
    set(&s, "train.offload_optimizer=true");
    cr_assert_eq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_E_CONFIG);
    cr_assert(strstr(lathe_error_message(), "train.offload_optimizer: device \"far_in_order\" has "
                                            "no streams with events"),
              "%s", lathe_error_message());
    OK(lathe_dir_remove(dir));
}

/* The number in the refusal equals the plan's with the option. */
Test(far_offload, is_named_when_it_would_make_a_plan_fit)
{
    char dir[] = "/tmp/lathe_offload_XXXXXX", want[128];
    lathe_mem_bytes bytes;
    settings s = {.n = 0};
    lathe_run *run = NULL;
    make_folder(dir, 20000);
    set_case(&s, dir, &cases[1], IN_THE_DEVICE);
    settings with;
    copy_settings(&s, &with);
    set(&with, "train.offload_optimizer=true");
    set(&with, "train.offload_buffer=0.1");
    const int64_t least = planned(&with, &bytes);
    set(&s, "train.offload_buffer=0.1");
    set(&s, "device.memory_limit=%lld", (long long)least);
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    snprintf(want, sizeof want, "--train.offload_optimizer true   (peak %.1f MiB)",
             (double)least / 1048576.0);
    cr_assert(strstr(lathe_error_message(), want), "no '%s' in: %s", want, lathe_error_message());
    s.n--;
    set(&s, "device.memory_limit=%lld", (long long)least - 1);
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    cr_assert_not(strstr(lathe_error_message(), "offload_optimizer true   "), "%s",
                  lathe_error_message());
    OK(lathe_dir_remove(dir));
}

/* More state than any host has, on a device with room for everything else. */
Test(far_offload, must_fit_the_host)
{
    char dir[] = "/tmp/lathe_offload_XXXXXX";
    settings s = {.n = 0};
    lathe_fit fit;
    make_folder(dir, 20000);
    set_case(&s, dir, NULL, 5);
    set(&s, "model.hidden_size=262144");
    set(&s, "model.num_attention_heads=256");
    set(&s, "model.num_key_value_heads=256");
    set(&s, "model.intermediate_size=262144");
    set(&s, "device.free_bytes=1000000000000000000");
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    lathe_fit_check(run, &fit);
    cr_assert_gt(run->planned.by[LATHE_MEM_OFFLOAD], (int64_t)1 << 42);
    cr_assert_geq(fit.need, run->planned.by[LATHE_MEM_OFFLOAD]);
    cr_assert_lt(fit.have, fit.need, "%s", fit.source);
    cr_assert(strstr(fit.source, "in the host's memory: "), "%s", fit.source);
    lathe_run_close(run);
    s.n--;
    set(&s, "device.free_bytes=1000"); /* the device's lack is reported first */
    run = open_run(LATHE_OPEN_PLAN, s.list);
    lathe_fit_check(run, &fit);
    cr_assert(strstr(fit.source, "of the far away"), "%s", fit.source);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}
