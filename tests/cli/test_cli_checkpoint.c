/* lathe checkpoint ls|verify|diff|rm, and what signals do to lathe train. */
#include "cli_case.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>

#include "io/manifest.h"
#include "io/safetensors.h"
#include "support/child_program.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static const char run_file[] = "[model]\n"
                               "model_type = \"llama\"\n"
                               "vocab_size = 260\n"
                               "hidden_size = 32\n"
                               "intermediate_size = 64\n"
                               "num_hidden_layers = 1\n"
                               "num_attention_heads = 2\n"
                               "max_position_embeddings = 64\n"
                               "[tokenizer]\n"
                               "path = \"bytes\"\n"
                               "[data]\n"
                               "datasets = [{ path = \"text.txt\", type = \"text\" }]\n"
                               "validation_split = 0.2\n"
                               "seq_len = 16\n"
                               "[train]\n"
                               "max_steps = 6\n"
                               "eval_every = 2\n"
                               "threads = 1\n"
                               "[checkpoint]\n"
                               "dir = \"out\"\n"
                               "every = 2\n";

static void setup(void)
{
    child_programs_skip_the_leak_check();
    make_folder();
    put("run.toml", run_file);
    put_times("text.txt", "the wheel turns and the tool holds, so the part is made\n", 60);
}

TestSuite(cli_checkpoint, .init = setup, .fini = remove_folder);

/* The loss that `lathe eval` prints. */
static double loss_of(const char *arguments)
{
    char command[512];
    double loss = -1.0;
    (void)snprintf(command, sizeof command, LATHE " eval --json %s 2>/dev/null", arguments);
    cr_assert_eq(run(command), 0, "%s: %s", command, output);
    cr_assert_eq(sscanf(output, "{\"loss\": %lf", &loss), 1, "%s: %s", command, output);
    return loss;
}

/* A run that averages: its average is what a run, its folder and its checkpoint stand for. */
Test(cli_checkpoint, averaged_weights_are_taken_and_said_unless_others_are_asked_for)
{
    static const char *const words[] = {"run.toml --train.weight_average ema", "out",
                                        "out/step-00000006"};
    char arguments[320];
    put_times("valid.txt", "the part turns, the wheel is made\n", 30);
    expect(LATHE " train run.toml --train.weight_average ema --train.weight_average_decay 0.5 "
                 "--optimizer.lr 0.02 2>&1",
           0, "averaged weights");
    const double average = loss_of("out/step-00000006/average --data valid.txt");
    const double training = loss_of("out/step-00000006 --weights training --data valid.txt");
    cr_assert_gt(average > training ? average - training : training - average, 1e-3);
    for (int i = 0; i < 3; i++) {
        const char *const end = "--data valid.txt --data.seq_len 16 --train.precision fp32";
        (void)snprintf(arguments, sizeof arguments, "out/step-00000006/average %s", end);
        const double want = loss_of(arguments);
        (void)snprintf(arguments, sizeof arguments, "%s %s", words[i], end);
        cr_expect_eq(loss_of(arguments), want, "%s", arguments);
        (void)snprintf(arguments, sizeof arguments, "%s %s --weights average", words[i], end);
        cr_expect_eq(loss_of(arguments), want, "%s", arguments);
        (void)snprintf(arguments, sizeof arguments, "%s %s --weights training", words[i], end);
        cr_expect_neq(loss_of(arguments), want, "%s", arguments);
    }
    expect(LATHE " eval out --data valid.txt 2>&1", 0,
           "averaged weights, of out/step-00000006/average");
    expect(LATHE " generate run.toml --max-new-tokens 2 2>&1", 0,
           "averaged weights, of out/step-00000006/average");
    expect(LATHE " eval out --data valid.txt --weights best 2>&1", 2,
           "--weights: expected training or average, seen \"best\"");
    expect(LATHE " eval out/step-00000006/average --data valid.txt --weights average 2>&1", 2,
           "holds no averaged weights");
}

Test(cli_checkpoint, another_model_beside_a_run_or_a_folder_is_refused)
{
    expect(LATHE " train run.toml --train.max_steps 2 2>&1", 0, "checkpoint out/step-00000002");
    put_times("base.toml", strstr(run_file, "[tokenizer]"), 1);
    expect("sed -i '1i [model]\\npath = \"out/step-00000002\"' base.toml; " LATHE
           " train base.toml --train.max_steps 2 --checkpoint.dir two 2>&1",
           0, "checkpoint two/step-00000002");
    expect(LATHE " eval base.toml --checkpoint.dir two --model.path out/step-00000002 2>&1", 2,
           "base.toml stands for its checkpoint, two/step-00000002, which holds the whole model");
    expect(LATHE " eval out --data text.txt --model.path two/step-00000002 2>&1", 2,
           "--model.path beside the folder out: one of them");
}

Test(cli_checkpoint, going_back_needs_a_checkpoint_to_go_back_to)
{
    expect(LATHE " validate run.toml --train.on_nonfinite rewind 2>&1", 0, "");
    put_times("never.toml", run_file, 1);
    expect("sed -i 's/^every = 2/every = 0/; s/^max_steps/on_nonfinite = \"rewind\"\\nmax_steps/' "
           "never.toml; " LATHE " validate never.toml 2>&1",
           2, "never.toml:16:16: error: train.on_nonfinite = \"rewind\" needs checkpoint.every");
}

Test(cli_checkpoint, ls_shows_steps_marks_and_damage)
{
    expect(LATHE " train run.toml --checkpoint.keep_best 1 2>&1", 0,
           "checkpoint out/step-00000006");
    expect(LATHE " checkpoint ls out", 0, "eval_loss");
    cr_assert(strstr(output, "latest") && strstr(output, "best"), "%s", output);
    cr_assert_null(strstr(output, "damaged"), "%s", output);
    cr_assert_eq(truncate("out/step-00000004/model.safetensors", 99), 0);
    expect(LATHE " checkpoint ls out", 0, "step-00000004/model.safetensors: 99 bytes");
    cr_assert_eq(run(LATHE " checkpoint ls out --json"), 0);
    json_t *all = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_eq(json_array_size(all), 3, "%s", output);
    for (size_t i = 0; i < 3; i++) {
        const json_t *c = json_array_get(all, i);
        cr_assert_eq(json_integer_value(json_object_get(c, "step")), 2 * (json_int_t)i + 2);
        cr_assert(json_is_real(json_object_get(c, "loss")));
        cr_assert(json_is_real(json_object_get(c, "value")));
        cr_assert_eq(json_is_true(json_object_get(c, "latest")), i == 2);
        cr_assert_eq(json_is_string(json_object_get(c, "damage")), i == 1);
        cr_assert_gt(json_integer_value(json_object_get(c, "bytes")), 1000);
    }
    json_decref(all);
    expect(LATHE " checkpoint ls nowhere 2>&1", 2, "nowhere: no such folder");
    expect(LATHE " checkpoint ls . 2>&1", 2, "neither a checkpoint nor a folder with any");
}

Test(cli_checkpoint, verify_names_every_damaged_file)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000006");
    expect(LATHE " checkpoint verify out", 0, "whole    out/step-00000006");
    cr_assert_eq(run("printf x | dd of=out/step-00000002/model.safetensors bs=1 seek=700 "
                     "conv=notrunc 2>&1 && rm out/step-00000002/state/run.json"),
                 0);
    expect(LATHE " checkpoint verify out", 1, "out/step-00000002/state/run.json: missing");
    cr_assert(strstr(output, "out/step-00000002/model.safetensors: its content changed"), "%s",
              output);
    cr_assert(strstr(output, "whole    out/step-00000004"), "%s", output);
    expect(LATHE " checkpoint verify out/step-00000004", 0, "whole");
    expect(LATHE " checkpoint verify out/step-00000002", 1, "damaged");
    cr_assert_eq(run("echo '{}' > out/step-00000004/manifest.json"), 0);
    expect(LATHE " checkpoint verify out/step-00000004", 1, "manifest.json: truncated");
}

/* A checkpoint whose bytes are as its manifest says, and whose last norm holds a NaN. */
Test(cli_checkpoint, verify_names_tensors_that_are_not_finite)
{
    lathe_safetensors *set = NULL;
    char *meta = NULL;
    expect(LATHE " train run.toml 2>&1", 0, "step-00000006");
    cr_assert_eq(lathe_safetensors_open("out/step-00000004", &set), LATHE_OK);
    const int64_t at = lathe_safetensors_find(set, "model.norm.weight")->offset + 8;
    const int32_t dtype = lathe_safetensors_find(set, "model.norm.weight")->desc.dtype;
    lathe_safetensors_close(set);
    const float nan32 = NAN;
    const uint16_t nan16 = 0x7fc0;
    const size_t size = (size_t)lathe_dtype_bytes(dtype);
    FILE *f = fopen("out/step-00000004/model.safetensors", "r+");
    cr_assert(f && fseek(f, at, SEEK_SET) == 0 &&
              fwrite(size == 4 ? (const void *)&nan32 : &nan16, size, 1, f) == 1 && fclose(f) == 0);
    cr_assert_eq(lathe_manifest_meta("out/step-00000004", &meta), LATHE_OK);
    cr_assert_eq(lathe_manifest_write("out/step-00000004", meta), LATHE_OK);
    free(meta);
    expect(LATHE " checkpoint verify out", 1,
           "not finite  out/step-00000004/model.safetensors: 'model.norm.weight' holds 1 of 32 "
           "values that are not finite, the first nan at ");
    cr_assert_not_null(strstr(output, "whole    out/step-00000006"), "%s", output);
    cr_assert_null(strstr(output, "whole    out/step-00000004"), "%s", output);
}

Test(cli_checkpoint, diff_tells_keys_counters_and_tensors)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000006");
    expect(LATHE " train run.toml --checkpoint.dir other --optimizer.lr 0.01 2>&1", 0,
           "step-00000006");
    expect(LATHE " checkpoint diff out/step-00000004 out/step-00000004", 0, "0 of ");
    expect(LATHE " checkpoint diff out/step-00000004 out", 1, "  4 -> 6\n");
    cr_assert(strstr(output, "\nstate\n") && strstr(output, "\nweights: 12 of 12 tensors differ\n"),
              "%s", output);
    cr_assert(strstr(output, " differ, |b-a| at most "), "%s", output);
    cr_assert_not_null(strstr(output, "and 2 with smaller changes; --all shows them"), "%s",
                       output);
    expect(LATHE " checkpoint diff out/step-00000004 out --all", 1, "model.embed_tokens.weight");
    cr_assert_null(strstr(output, "smaller changes"), "%s", output);
    expect(LATHE " checkpoint diff out other", 1, "\nconfig\n");
    cr_assert(strstr(output, "optimizer.lr") && strstr(output, "-> 0.01\n"), "%s", output);
    cr_assert_null(strstr(output, "4 -> 6"), "%s", output);
    expect(LATHE " checkpoint diff out nowhere 2>&1", 2, "nowhere");
}

Test(cli_checkpoint, ls_shows_what_a_run_left_when_it_went_back_and_rm_removes_it)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000006");
    expect(LATHE " train run.toml --checkpoint.resume out/step-00000002 --train.stop_after 4 2>&1",
           0,
           "branch 1: 2 checkpoints of the branch before (step-00000004 to step-00000006) moved to "
           "out/abandoned/branch-1");
    expect(LATHE " checkpoint ls out", 0, "abandoned by branch 1\n");
    cr_expect_not_null(strstr(output, "  latest\n"), "%s", output);
    expect(LATHE " checkpoint ls out --json", 0, "out/abandoned/branch-1/step-00000006");
    cr_expect_not_null(strstr(output, "\"abandoned\": 1}"), "%s", output);
    cr_expect_not_null(strstr(output, "\"abandoned\": null}"), "%s", output);
    expect(LATHE " report out -o page.html && cat page.html", 0,
           "branch 1 begins; moved to abandoned/: ");
    expect(LATHE " checkpoint rm out --abandoned", 0,
           "removed out/abandoned/branch-1/step-00000006\n");
    expect(LATHE " checkpoint ls out", 0, "  latest\n");
    cr_expect_null(strstr(output, "abandoned"), "%s", output);
    expect(LATHE " checkpoint rm out 2>&1", 2, "expected steps, --keep-last N or --abandoned");
}

Test(cli_checkpoint, rm_spares_the_latest)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000006");
    expect(LATHE " checkpoint rm out 6 2>&1", 1, "is the latest");
    cr_assert_eq(access("out/step-00000006/manifest.json", R_OK), 0);
    expect(LATHE " checkpoint rm out 3 2>&1", 2, "no checkpoint of step 3");
    expect(LATHE " checkpoint rm out 2 --keep-last 1 2>&1", 2, "expected steps, --keep-last N or");
    expect(LATHE " checkpoint rm out 2 2>&1", 0, "removed out/step-00000002");
    expect(LATHE " checkpoint rm out 6 --force 2>&1", 0, "removed out/step-00000006");
    expect("cat out/latest", 0, "step-00000004");
    expect(LATHE " train run.toml 2>&1", 0, "resumed from out/step-00000004");
    expect(LATHE " checkpoint rm out --keep-last 1 2>&1", 0, "removed out/step-00000004");
    expect("ls out | grep -c ^step-", 0, "1");
}

/* ---- signals ---- */

/* Starts `lathe train` with output into the file; more arguments after it. */
static pid_t start(const char *file, const char *const *more)
{
    const char *argv[32] = {
        LATHE, "train",          "run.toml", "--train.max_steps", "100000000", "--train.eval_every",
        "0",   "--log.progress", "plain"};
    int n = 9;
    while (*more)
        argv[n++] = *more++;
    argv[n] = NULL;
    const pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that times out leaves nothing running */
        const int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
            _exit(126);
        (void)execv(LATHE, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return child;
}

/* Waits, 20 s at most, until the path is there. */
static void wait_for(const char *path)
{
    const struct timespec ten_ms = {.tv_sec = 0, .tv_nsec = 10000000};
    for (int i = 0; i < 2000 && access(path, F_OK) != 0; i++)
        (void)nanosleep(&ten_ms, NULL);
    cr_assert_eq(access(path, F_OK), 0, "%s did not come", path);
}

/* Waits, 20 s at most, until the file holds the text. */
static void wait_for_text(const char *path, const char *text)
{
    char command[256];
    const struct timespec ten_ms = {.tv_sec = 0, .tv_nsec = 10000000};
    (void)snprintf(command, sizeof command, "grep -qs '%s' %s", text, path);
    int i = 0;
    while (run(command) != 0 && i++ < 1000)
        (void)nanosleep(&ten_ms, NULL);
    cr_assert_lt(i, 1000, "no '%s' in %s", text, path);
}

static int exit_code(pid_t child)
{
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void check_signal(int number, int code, const char *async)
{
    const char *const more[] = {"--checkpoint.async", async, "--checkpoint.keep_last", "2", NULL};
    const pid_t child = start("log", more);
    wait_for("out/latest");
    cr_assert_eq(kill(child, number), 0);
    cr_assert_eq(exit_code(child), code);
    expect("cat log", 0, "finishing the micro-batch and writing a checkpoint");
    expect(LATHE " checkpoint verify out", 0, "whole");
    /* the last line of the metrics is the step of the checkpoint: nothing was lost */
    expect("tail -1 out/metrics.jsonl | sed 's/^{\"step\": \\([0-9]*\\),.*/\\1/' > step; "
           "printf 'step-%08d' $(cat step) | diff - out/latest && echo same",
           0, "same");
    cr_assert_eq(run("ls out | grep tmp"), 1, "%s", output);
    cr_assert_eq(run("rm -r out"), 0);
}

Test(cli_checkpoint, the_first_signal_finishes_the_step_and_writes_a_checkpoint, .timeout = 120)
{
    check_signal(SIGINT, 130, "true");
    check_signal(SIGTERM, 143, "false");
}

/* A lost connection: the terminal and the shell each send one. */
Test(cli_checkpoint, a_hangup_ends_the_run_with_a_checkpoint_as_a_signal_to_stop_does,
     .timeout = 120)
{
    check_signal(SIGHUP, 129, "true");
    const pid_t child = start("log", (const char *const[]){NULL});
    wait_for("out/latest");
    for (int i = 0; i < 3; i++) {
        const struct timespec some = {.tv_nsec = 2000000};
        (void)kill(child, SIGHUP);
        (void)nanosleep(&some, NULL);
    }
    cr_assert_eq(exit_code(child), 129);
    expect("tail -1 out/metrics.jsonl | sed 's/^{\"step\": \\([0-9]*\\),.*/\\1/' > step; "
           "printf 'step-%08d' $(cat step) | diff - out/latest && echo same",
           0, "same");
}

Test(cli_checkpoint, under_nohup_a_hangup_does_not_end_the_run, .timeout = 120)
{
    const struct timespec some = {.tv_nsec = 300000000};
    (void)signal(SIGHUP, SIG_IGN); /* what nohup does before it starts the program */
    const pid_t child = start("log", (const char *const[]){NULL});
    wait_for("out/latest");
    cr_assert_eq(kill(child, SIGHUP), 0);
    (void)nanosleep(&some, NULL);
    cr_assert_eq(kill(child, 0), 0);
    cr_assert_eq(kill(child, SIGTERM), 0);
    cr_assert_eq(exit_code(child), 143);
}

Test(cli_checkpoint, a_pipe_as_data_configuration_or_model_is_refused_at_once, .timeout = 60)
{
    cr_assert_eq(run("mkfifo pipe && mkdir model && mkfifo model/config.json"), 0);
    expect(LATHE " train run.toml --data.datasets '[{path = \"pipe\"}]' 2>&1", 2,
           "pipe is a named pipe (FIFO); expected a regular file or a folder");
    expect(LATHE " validate run.toml --data.datasets '[{path = \"pipe\"}]' 2>&1", 2,
           "pipe is a named pipe (FIFO); expected a regular file or a folder");
    expect(LATHE " train run.toml --data.datasets '[{path = \"/dev/zero\"}]' 2>&1", 2,
           "is a device");
    expect(LATHE " train run.toml --data.datasets '[{path = \"p*e\"}]' 2>&1", 2,
           "no file matches the pattern p*e"); /* a pattern takes regular files only */
    expect(LATHE " train pipe 2>&1", 2, "pipe: is a named pipe (FIFO); expected a regular file");
    expect(LATHE " eval model --data text.txt 2>&1", 2,
           "model/config.json: is a named pipe (FIFO); expected a regular file");
    expect(LATHE " train run.toml --tokenizer.path pipe 2>&1", 2, "is a named pipe (FIFO)");
}

/* A cache on a disk that somebody cleans up while the run reads it. */
Test(cli_checkpoint, a_shard_cut_during_a_run_is_one_error_that_names_it, .timeout = 120)
{
    const pid_t child = start("log", (const char *const[]){"--data.cache_dir", "cache", NULL});
    wait_for("out/latest");
    cr_assert_eq(run("truncate -s 600 cache/shard-*-00000.bin"), 0);
    cr_assert_eq(exit_code(child), 1);
    expect("grep -c 'became shorter' log", 0, "1\n");
    expect("grep '^lathe train: cache/shard-.*-00000.bin: the file became shorter' log", 0, "bin");
    expect(LATHE " checkpoint verify out", 0, "whole"); /* what was saved is sound */
    expect("grep -c 'null' out/metrics.jsonl", 1, "0\n");
    expect(LATHE " train run.toml --data.cache_dir other --train.max_steps 100000000 "
                 "--train.stop_after 1 2>&1",
           0, "resumed from out/step-");
}

/* Notes on the data come with the first start of a run, and with no other. */
Test(cli_checkpoint, what_of_a_folder_is_left_out_is_said_once)
{
    static const char train[] =
        LATHE " train run.toml --data.datasets '[{path = \"corpus\", type = \"jsonl\"}]'";
    char command[512];
    cr_assert_eq(run("mkdir -p corpus/deep && mkfifo corpus/pipe && ln -s nowhere corpus/link && "
                     "echo notes > corpus/notes.md && touch corpus/deep/.hidden"),
                 0);
    put_times("corpus/a.jsonl", "{\"text\": \"the wheel turns and the tool holds, so it is\"}\n",
              60);
    put_times("corpus/deep/b.jsonl", "{\"text\": \"\"}\n", 2);
    (void)snprintf(command, sizeof command, "%s --train.stop_after 2 2>&1", train);
    expect(
        command, 0,
        "corpus: 2 files are read; left out: 2 not named *.jsonl or *.ndjson (corpus/deep/.hidden, "
        "corpus/notes.md), 2 that are no regular files (corpus/link, corpus/pipe)\n");
    cr_expect_not_null(strstr(output, "2 files or records of the data are left out: no UTF-8 text"),
                       "%s", output);
    (void)snprintf(command, sizeof command, "%s 2>&1", train);
    expect(command, 0, "resumed from out/step-00000002");
    cr_expect_null(strstr(output, "left out"), "%s", output);
}

Test(cli_checkpoint, files_that_are_no_text_are_named_when_the_data_are_prepared)
{
    cr_assert_eq(run("mkdir corpus && printf 'a\\377b' > corpus/noise.bin && cp text.txt corpus"),
                 0);
    expect(LATHE " train run.toml --data.datasets '[{path = \"corpus\", type = \"text\"}]' 2>&1", 0,
           "corpus: left out because they are no UTF-8 text: corpus/noise.bin\n");
}

Test(cli_checkpoint, one_document_in_the_data_is_a_note_of_the_first_start_alone)
{
    expect(LATHE " train run.toml --train.stop_after 2 2>&1", 0,
           "the data is one document: validation takes its last tokens");
    expect(LATHE " train run.toml 2>&1", 0, "resumed from out/step-00000002");
    cr_expect_null(strstr(output, "one document"), "%s", output);
}

Test(cli_checkpoint, resuming_with_another_number_of_threads_is_said)
{
    expect(LATHE " train run.toml --train.stop_after 2 2>&1", 0, "step-00000002");
    expect(LATHE " train run.toml --train.stop_after 4 2>&1", 0, "resumed from out/step-00000002");
    cr_expect_null(strstr(output, "the run goes on with"), "%s", output);
    expect(
        LATHE " train run.toml --train.threads 2 2>&1", 0,
        "out/step-00000004/state/run.json was written with 1 thread, the run goes on with 2: not "
        "bit for bit what the uninterrupted run would have been; train.threads = 1 would be");
}

Test(cli_checkpoint, data_that_changed_are_named_by_their_file)
{
    put_times("other.txt", "chips fly off and the part spins on, as the feed is slow\n", 60);
    static const char train[] = LATHE " train run.toml --data.datasets '[{path = \"text.txt\"}, "
                                      "{path = \"other.txt\"}]' 2>&1";
    char command[512];
    (void)snprintf(command, sizeof command, "%s --train.stop_after 2", train);
    expect(command, 0, "step-00000002");
    cr_assert_eq(run("echo 'one line more' >> other.txt"), 0);
    expect(train, 2,
           "out/step-00000002 cannot be resumed, because the data changed since it was written: "
           "other.txt has 3434 bytes, then it had 3420; put the data back as they were");
    expect(LATHE " train run.toml 2>&1", 2, "other.txt is no longer there");
    expect(LATHE " train run.toml --data.datasets '[{path = \"text.txt\"}, "
                 "{path = \"run.toml\", type = \"text\"}]' 2>&1",
           2, "run.toml is new (");
}

Test(cli_checkpoint, a_disk_that_the_checkpoints_will_fill_is_said_before_the_first_step)
{
    static const char many[] = " run.toml --train.max_steps 1000000000000 --checkpoint.every 1";
    char command[256];
    (void)snprintf(command, sizeof command, LATHE " plan%s 2>&1", many);
    expect(command, 0,
           "1000000000000 checkpoints at a time (checkpoint.keep_last = 0 keeps all) take ");
    cr_expect_not_null(strstr(output, " are free in out: not enough; set checkpoint.keep_last to "),
                       "%s", output);
    (void)snprintf(command, sizeof command, LATHE " plan%s --json 2>&1", many);
    expect(command, 0, "\"at_a_time\": 1000000000000, \"bytes_free\": ");
    cr_expect_not_null(strstr(output, "\"fit\": false"), "%s", output);
    (void)snprintf(command, sizeof command, LATHE " train%s --train.stop_after 1 2>&1", many);
    expect(command, 0, "warning: the disk will be full: 1000000000000 checkpoints");
    expect(LATHE " plan run.toml --checkpoint.keep_last 2 2>&1", 0,
           "3 checkpoints at a time (checkpoint.keep_last = 2, plus the one being written) take ");
    cr_expect_null(strstr(output, "not enough"), "%s", output);
}

/* The second one comes while the step is finished or the checkpoint written: wherever that is, the
 * process ends at once with the signal's code, and the folder can be gone on with. */
Test(cli_checkpoint, the_second_signal_ends_at_once, .timeout = 120)
{
    const char *const more[] = {"--model.hidden_size",
                                "512",
                                "--model.intermediate_size",
                                "2048",
                                "--model.num_hidden_layers",
                                "6",
                                NULL};
    for (int i = 0; i < 4; i++) {
        const struct timespec some = {.tv_sec = 0, .tv_nsec = i * 30000000};
        (void)unlink("log");
        const pid_t child = start("log", more);
        wait_for_text("log", "planned peak"); /* it listens by now */
        wait_for("out/latest");
        cr_assert_eq(kill(child, SIGINT), 0);
        (void)nanosleep(&some, NULL);
        const int second = i % 2 ? SIGTERM : SIGINT;
        (void)kill(child, second);
        const int code = exit_code(child);
        cr_assert(code == 128 + second || code == 130, "exit %d", code);
        expect(LATHE " checkpoint verify out", 0, "whole");
    }
    expect(LATHE
           " train run.toml --model.hidden_size 512 --model.intermediate_size 2048 "
           "--model.num_hidden_layers 6 --train.max_steps 100000000 --train.stop_after 1 2>&1",
           0, "resumed from out/step-");
    cr_assert_eq(run("ls out | grep tmp"), 1, "%s", output);
}

Test(cli_checkpoint, two_runs_in_one_folder, .timeout = 60)
{
    const char *const none[] = {NULL};
    char who[64];
    const pid_t child = start("log", none);
    wait_for("out/latest");
    (void)snprintf(who, sizeof who, "held by process %ld on ", (long)child);
    expect(
        LATHE " train run.toml 2>&1", 2,
        "run.toml:20:7: error: checkpoint.dir = \"out\" is the folder of a run that is going on");
    cr_assert_not_null(strstr(output, who), "%s", output);
    expect(LATHE " checkpoint rm out --keep-last 1 2>&1", 1, who);
    cr_assert_eq(kill(child, SIGKILL), 0);
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    expect(LATHE " train run.toml --train.max_steps 100000000 --train.stop_after 1 2>&1", 0,
           "resumed from");
}
