/* Where `lathe train` writes its output: a pipe, a pipe that closes, a terminal, a full disk. */
#include "cli_case.h"

#include <jansson.h>

#include "support/child_program.h"
#include "support/terminal.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define STEPS 30

/* Runs bash with its stdout in `output`; returns the exit code. */
static int bash(const char *script)
{
    char command[1024];
    (void)snprintf(command, sizeof command, "bash -c '%s'", script);
    return run(command);
}

static void make(void)
{
    child_programs_skip_the_leak_check();
    make_folder();
    FILE *f = fopen("corpus.txt", "w");
    cr_assert_not_null(f);
    for (int i = 0; i < 2000; i++)
        (void)fprintf(f, "line %d turns %d.\n", i, i * 7919 % 1000);
    (void)fclose(f);
    f = fopen("run.toml", "w");
    cr_assert_not_null(f);
    (void)fprintf(f,
                  "[model]\nmodel_type = \"llama\"\nhidden_size = 16\nintermediate_size = 32\n"
                  "num_hidden_layers = 1\nnum_attention_heads = 2\nmax_position_embeddings = 64\n"
                  "[tokenizer]\npath = \"bytes\"\n"
                  "[data]\ndatasets = [{ path = \"corpus.txt\" }]\nseq_len = 32\n"
                  "validation_split = 0.01\n"
                  "[train]\nmax_steps = %d\nmicro_batch_size = 2\neval_every = 1\n"
                  "[checkpoint]\ndir = \"out\"\nevery = 5\nkeep_last = 2\n",
                  STEPS);
    (void)fclose(f);
}

TestSuite(output, .init = make, .fini = remove_folder, .timeout = 120);

static int64_t lines_in(const char *text)
{
    int64_t n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Checks that all steps were done and the last checkpoint exists. */
static void expect_finished(void)
{
    cr_expect_eq(bash("wc -l < out/metrics.jsonl"), 0);
    cr_expect_eq(atoi(output), STEPS, "%s", output);
    cr_expect_eq(bash("test -d out/step-00000030"), 0);
}

Test(output, a_log_stays_short_and_plain)
{
    cr_assert_eq(bash(LATHE " train run.toml"), 0, "%s", output);
    expect_finished();
    cr_assert_eq(bash("rm -r out; " LATHE " train run.toml"), 0, "%s", output);
    /* three lines about the model, its settings and its data, the first and the last step, the last
     * evaluation, the checkpoint; thirty evaluations and six checkpoints in between get no line */
    cr_expect_leq(lines_in(output), 8, "%s", output);
    cr_expect_null(strchr(output, '\x1b'), "%s", output);
    cr_expect_null(strchr(output, '\r'), "%s", output);
    cr_expect_not_null(strstr(output, "step 30/30"), "%s", output);
}

Test(output, a_terminal_gets_a_line_rewritten_in_place)
{
    static const char *const train[] = {LATHE, "train", "run.toml", NULL};
    static terminal tty;
    terminal_start(&tty, 24, 100, train);
    cr_assert_eq(terminal_wait(&tty), 0, "%s", tty.text);
    terminal_close(&tty);
    cr_expect_not_null(strstr(tty.text, "\rstep 3/30"), "%s", tty.text);
    cr_expect_not_null(strchr(tty.text, '\x1b'));
}

Test(output, a_closed_pipe_does_not_end_the_run)
{
    cr_expect_eq(bash(LATHE " train run.toml --train.log_every 1 2> log | head -n 1 > first; "
                            "echo ${PIPESTATUS[0]}"),
                 0);
    cr_expect_eq(atoi(output), 0, "exit code %s", output);
    cr_expect_eq(bash("wc -l < first"), 0);
    cr_expect_eq(atoi(output), 1);
    expect_finished();
    cr_expect_eq(bash("grep -c \"output cannot be written any more (Broken pipe)\" log"), 0);
    cr_expect_eq(atoi(output), 1, "told %s times", output);
}

Test(output, a_full_disk_under_the_log_does_not_end_the_run)
{
    if (access("/dev/full", W_OK) != 0)
        cr_skip_test("no /dev/full here");
    cr_expect_eq(bash(LATHE " train run.toml > /dev/full 2> log"), 0);
    expect_finished();
    cr_expect_eq(bash("grep -c \"No space left on device\" log"), 0);
    cr_expect_eq(atoi(output), 1);
}

Test(output, figures_that_cannot_be_written_end_the_run_with_their_file)
{
    if (access("/dev/full", W_OK) != 0)
        cr_skip_test("no /dev/full here");
    cr_expect_eq(
        bash("mkdir out; ln -s /dev/full out/metrics.jsonl; " LATHE " train run.toml 2>&1 > log"),
        1);
    cr_expect_not_null(strstr(output, "out/metrics.jsonl: cannot write the figures of step 1: "
                                      "No space left on device"),
                       "%s", output);
}

/* Number of events in t.json of a category; "" counts all. The file must be complete. */
static int64_t traced(const char *category)
{
    json_error_t e;
    json_t *root = json_load_file("t.json", 0, &e), *event;
    size_t i;
    int64_t n = 0;
    cr_assert(root, "%s at byte %d", e.text, e.position);
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const char *of = json_string_value(json_object_get(event, "cat"));
        n += of && (!category[0] || strcmp(of, category) == 0);
    }
    json_decref(root);
    return n;
}

Test(output, a_trace_holds_the_operations_of_the_steps_asked_for)
{
    cr_assert_eq(bash(LATHE " train run.toml --trace t.json --trace-steps 2"), 0);
    const int64_t ops = traced("op");
    cr_expect_gt(ops, 20);
    cr_expect_eq(traced("step"), 2); /* the step and its optimizer */
    cr_expect_eq(traced("evaluation"), STEPS);
    cr_expect_geq(traced("checkpoint"), 6 * 4);
    cr_assert_eq(bash("rm -r out; " LATHE " train run.toml --trace t.json"), 0);
    cr_expect_eq(traced("op"), 5 * ops);
    cr_assert_eq(bash(LATHE " eval run.toml --trace t.json --trace-steps 1"), 0, "%s", output);
    cr_expect_gt(traced("op"), 5);
    cr_expect_leq(traced("op"), ops);
}

Test(output, a_trace_of_steps_that_do_not_come_is_a_warning)
{
    cr_expect_eq(bash(LATHE " train run.toml --trace t.json --trace-steps 100:200 2>&1"), 0);
    cr_expect_not_null(strstr(output, "warning: --trace: no operation is traced: steps 100 to 200 "
                                      "are to be, and 1 to 30 are computed; choose others with "
                                      "--trace-steps"),
                       "%s", output);
    cr_expect_eq(bash(LATHE " train run.toml --train.max_steps 40 --trace t.json --trace-steps 30 "
                            "2>&1"),
                 0);
    cr_expect_not_null(strstr(output, "steps 30 to 30 are to be, and 31 to 40 are computed"), "%s",
                       output);
    cr_expect_eq(bash(LATHE " eval run.toml --trace t.json --trace-steps 100000 2>&1"), 0);
    cr_expect_not_null(strstr(output, "no operation is traced: batches 100000 to 100000"), "%s",
                       output);
    cr_expect_eq(
        bash("rm -r out; " LATHE " train run.toml --trace t.json --trace-steps 30:99 2>&1"), 0);
    cr_expect_null(strstr(output, "no operation is traced"), "%s", output);
}

Test(output, a_trace_of_nothing_that_can_be_is_refused)
{
    cr_expect_eq(bash(LATHE " train run.toml --trace t.json --trace-steps 5:2 2>&1"), 2);
    cr_expect_not_null(strstr(output, "5:2"), "%s", output);
    cr_expect_eq(bash(LATHE " train run.toml --trace t.json --trace-steps 0 2>&1"), 2);
    cr_expect_eq(bash(LATHE " train run.toml --trace t.json --trace-steps 3x 2>&1"), 2);
    cr_expect_eq(bash(LATHE " train run.toml --trace-steps 3 2>&1"), 2);
    cr_expect_not_null(strstr(output, "--trace FILE is missing"), "%s", output);
    cr_expect_eq(bash(LATHE " train run.toml --trace /nowhere/t.json 2>&1"), 1);
    cr_expect_not_null(strstr(output, "/nowhere/t.json"), "%s", output);
}
