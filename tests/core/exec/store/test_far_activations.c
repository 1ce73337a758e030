/* Activations kept in host memory between forward and backward, on a device whose memory the host
 * cannot access. The run must give the bits of a run that keeps them on the device, with streams
 * that run as late or as early as possible, captured or not; and each event must be necessary. */
#include "activations_case.h"
#include "graph/ir/op_info.h"

static void write_pairs(const char *dir)
{
    char path[256];
    snprintf(path, sizeof path, "%s/corpus.jsonl", dir);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < 60; i++)
        fprintf(f,
                "{\"prompt\": \"question %d?\", \"chosen\": \" a good answer %d\", \"rejected\": "
                "\" no\"}\n",
                i, i * i);
    fclose(f);
}

static int count_op(const lathe_run *run, int32_t op)
{
    const lathe_graph *g = lathe_exec_graph(run->programs.train.exec);
    int n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == op;
    return n;
}

static void run_case(const offload_case *c, int w, snapshot *out, char **figures)
{
    char dir[] = "/tmp/lathe_activations_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 20000);
    write_pairs(dir);
    set_case(&s, dir, c, w);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_assert_eq(count_op(run, LATHE_OP_COPY_OUT) > 0, w != ON_THE_DEVICE);
    for (int32_t op = LATHE_OP_COPY_OUT; op < LATHE_N_CORE_OPS; op++)
        cr_assert_eq(count_op(run, op), run->programs.train.n_offloaded, "%s", c->name);
    train(run);
    snapshot_take(out, run);
    check_planned(c->name, run);
    const double update_norm = run->opt.update_norm;
    lathe_run_close(run);
    *figures = all_figures(dir, update_norm);
    OK(lathe_dir_remove(dir));
}

static void check_case(const offload_case *c)
{
    snapshot want, got;
    char *figures = NULL, *others = NULL, what[128];
    run_case(c, ON_THE_DEVICE, &want, &figures);
    if (strstr(c->name, "without an update"))
        cr_assert(strstr(figures, "\"skipped_steps\": 2"), "%s", figures);
    for (int w = 0; w < N_WAYS; w++) {
        run_case(c, w, &got, &others);
        snprintf(what, sizeof what, "%s, eager %s, capture %s", c->name, ways[w].eager,
                 ways[w].capture);
        cr_assert_str_eq(others, figures, "%s", what);
        snapshot_compare(what, &got, &want);
        snapshot_free(&got);
        free(others);
    }
    snapshot_free(&want);
    free(figures);
}

Test(far_activations, of_a_plain_model_change_no_bit)
{
    check_case(&cases[0]);
}

Test(far_activations, beside_recomputation_change_no_bit)
{
    for (size_t i = 1; i < 5; i++)
        check_case(&cases[i]);
}

Test(far_activations, of_adapters_change_no_bit)
{
    for (size_t i = 5; i < 7; i++)
        check_case(&cases[i]);
}

Test(far_activations, of_two_models_change_no_bit)
{
    for (size_t i = 7; i < 9; i++)
        check_case(&cases[i]);
}

Test(far_activations, beside_all_else_change_no_bit)
{
    for (size_t i = 9; i < sizeof cases / sizeof cases[0]; i++)
        check_case(&cases[i]);
}

/* ---- the purpose of the events ---- */

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

/* Streams in the order of creation. */
enum { MAIN, IN, OUT, STREAMS = 4 };

/* Runs one step on a device that ignores the waits of stream a for stream b; returns its
 * gradients. */
static void deaf_step(int deaf, int w, char **out, int64_t *out_bytes)
{
    char dir[] = "/tmp/lathe_activations_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_case(&s, dir, &cases[0], w);
    set(&s, "device.deaf=%d", deaf);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    lathe_forward_result f = {.size = sizeof f};
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
    *out_bytes = run->store.grad_bytes;
    *out = malloc((size_t)*out_bytes);
    OK(lathe_store_get(&run->store, *out, run->store.grads, *out_bytes));
    OK(lathe_zero_grad(run));
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* If any one of the four waits is ignored, a stale value is read: each copy runs on its own stream,
 * and only its event orders it. Eager streams show what must not run too early, lazy ones what must
 * not run too late. */
Test(far_activations, no_event_can_be_left_out)
{
    static const struct {
        const char *what;
        int waits, of, w;
    } missing[] = {
        {"copy_out waits for the producer", OUT, MAIN, 3},
        {"the memory is free after wait_out", MAIN, OUT, 2},
        {"copy_in waits for what had the memory", IN, MAIN, 3},
        {"the first use waits for wait_in", MAIN, IN, 2},
    };
    char *want, *got;
    int64_t bytes, n;
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        deaf_step(0, missing[i].w, &want, &bytes);
        deaf_step(STREAMS * missing[i].waits + missing[i].of, missing[i].w, &got, &n);
        cr_assert_eq(n, bytes);
        cr_assert_neq(memcmp(got, want, (size_t)n), 0, "%s: nobody misses it", missing[i].what);
        free(want);
        free(got);
    }
}

/* A captured range ends after both streams have joined it again; if one has not, the device reports
 * an error. */
Test(far_activations, a_capture_ends_where_its_streams_have_joined)
{
    char dir[] = "/tmp/lathe_activations_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_case(&s, dir, &cases[0], 0);
    set(&s, "device.deaf=%d", STREAMS * MAIN + OUT);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    one_step(run); /* its second half accumulates: each range has run once */
    lathe_forward_result f = {.size = sizeof f};
    cr_assert_neq(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f), LATHE_OK);
    cr_assert(strstr(lathe_error_message(), "a stream has not been waited for"), "%s",
              lathe_error_message());
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* The option does not make the host wait more often. */
Test(far_activations, a_step_does_not_wait_for_them)
{
    int64_t waits[2];
    for (int w = ON_THE_DEVICE; w < 1; w++) {
        char dir[] = "/tmp/lathe_activations_XXXXXX";
        settings s = {.n = 0};
        make_folder(dir, 20000);
        set_case(&s, dir, NULL, w);
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        one_step(run);
        const int64_t before = run->machine.n_syncs;
        one_step(run);
        waits[w + 1] = run->machine.n_syncs - before;
        lathe_run_close(run);
        OK(lathe_dir_remove(dir));
    }
    cr_assert_eq(waits[0], waits[1]);
}

/* All activations that are copied out are copied back in, in both micro-batches of a step, captured
 * or not. */
Test(far_activations, figures_tell_what_moved)
{
    char dir[] = "/tmp/lathe_activations_XXXXXX", path[512], line[8192];
    settings s = {.n = 0};
    json_error_t error;
    double values = 0.0;
    int n = 0;
    make_folder(dir, 20000);
    set_case(&s, dir, NULL, 0);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const lathe_graph *g = lathe_exec_graph(run->programs.train.exec);
    for (int32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == LATHE_OP_COPY_OUT)
            values += (double)lathe_desc_bytes(&g->values[g->nodes[i].out[0]].desc);
    train(run);
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", dir);
    FILE *f = fopen(path, "r");
    cr_assert(f);
    for (; fgets(line, sizeof line, f); n++) {
        json_t *row = json_loads(line, 0, &error);
        cr_assert_eq(json_number_value(json_object_get(row, "offload_bytes")), 4.0 * values, "%s",
                     line);
        json_decref(row);
    }
    cr_assert_eq(n, 6);
    fclose(f);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* A row of weights in the fourth layer makes products overflow; `text` gets the message. */
static void say_overflow(int w, char *text, size_t bytes)
{
    float large[32];
    static const char wanted[] = "model.layers.3.mlp.up_proj.weight";
    char dir[] = "/tmp/lathe_activations_XXXXXX", printed[4096];
    settings s = {.n = 0};
    lathe_train_result result;
    int32_t row = 0;
    make_folder(dir, 20000);
    set_case(&s, dir, &cases[0], w);
    set(&s, "train.on_nonfinite=stop");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    while (strcmp(run->params.rows[row]->name, wanted) != 0)
        row++;
    for (int i = 0; i < 32; i++)
        large[i] = 3e38f;
    OK(lathe_upload(&run->machine, lathe_store_master(&run->store, row), large, sizeof large));
    cr_assert_eq(train_said(run, printed, sizeof printed, &result), LATHE_E_NUMERIC);
    const char *rest = strstr(lathe_error_message(), "first in micro-batch 1: the output of node ");
    cr_assert(rest, "%s", lathe_error_message());
    snprintf(text, bytes, "%s", strchr(rest, ',')); /* without the number of the node */
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(far_activations, a_bad_number_is_found_among_them)
{
    char want[1024], got[1024];
    say_overflow(ON_THE_DEVICE, want, sizeof want);
    cr_assert(strstr(want, "linear 'model.layers.3.mlp.up_proj' (layer 3"), "%s", want);
    for (int w = 0; w < N_WAYS; w++) {
        say_overflow(w, got, sizeof got);
        cr_assert_str_eq(got, want);
    }
}

/* ---- checkpoints ---- */

/* Trains to step 3 as `first`, then to the end as `then`. */
static void stop_and_go(int first, int then, snapshot *out)
{
    char dir[] = "/tmp/lathe_activations_XXXXXX";
    make_folder(dir, 20000);
    for (int part = 0; part < 2; part++) {
        settings s = {.n = 0};
        set_case(&s, dir, &cases[1], part == 0 ? first : then);
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

Test(far_activations, a_run_goes_on_with_them_and_without)
{
    static const int pairs[][2] = {{0, 1}, {ON_THE_DEVICE, 2}, {3, ON_THE_DEVICE}};
    snapshot want, got;
    char what[128];
    stop_and_go(ON_THE_DEVICE, ON_THE_DEVICE, &want);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        stop_and_go(pairs[i][0], pairs[i][1], &got);
        snprintf(what, sizeof what, "%d, then %d", pairs[i][0], pairs[i][1]);
        snapshot_compare(what, &got, &want);
        snapshot_free(&got);
    }
    snapshot_free(&want);
}
