/* SIGTERM several times: each time the run finishes its micro-batch, writes a checkpoint and exits
 * with 143; the final result equals that of an uninterrupted run, bit for bit. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/child_program.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
enum { STEPS = 50 };

static char folder[64];

static void make_folder(void)
{
    child_programs_skip_the_leak_check();
    snprintf(folder, sizeof folder, "/tmp/lathe_interrupt_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
    FILE *f = fopen("corpus.txt", "w");
    for (int i = 0; i < 300; i++)
        fprintf(f, "line %d turns %d times %d\n", i, i * i % 97, i * 7 % 31);
    fclose(f);
    f = fopen("run.toml", "w");
    fprintf(f,
            "[model]\nmodel_type = \"llama\"\nvocab_size = 300\nhidden_size = 64\n"
            "intermediate_size = 128\nnum_hidden_layers = 2\nnum_attention_heads = 4\n"
            "max_position_embeddings = 64\n"
            "[data]\ndatasets = [{ path = \"corpus.txt\" }]\ncache_dir = \"cache\"\nseq_len = 64\n"
            "[tokenizer]\npath = \"bytes\"\n"
            "[train]\nprecision = \"fp16\"\nloss_scale_init = 1048576.0\n"
            "loss_scale_growth_interval = 3\nmax_steps = %d\nmicro_batch_size = 4\n"
            "gradient_accumulation_steps = 2\nthreads = 1\n"
            "[optimizer]\nname = \"adamw\"\nlr = 0.005\nstate_dtype = \"bf16\"\n"
            "[adapter]\nname = \"full\"\n",
            STEPS);
    fclose(f);
}

static void remove_folder(void)
{
    char command[128];
    cr_assert_eq(chdir("/"), 0);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(interrupt, .init = make_folder, .fini = remove_folder);

static pid_t start_file(const char *file, const char *dir)
{
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that times out leaves nothing running */
        const int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
        (void)dup2(log, 1);
        (void)dup2(log, 2);
        execl(LATHE, LATHE, "train", file, "--checkpoint.dir", dir, (char *)NULL);
        _exit(127);
    }
    return child;
}

static pid_t start(const char *dir)
{
    return start_file("run.toml", dir);
}

/* Returns 1 if the child has ended and still has to be waited for. */
static int has_ended(pid_t child)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

static int lines(const char *path)
{
    FILE *f = fopen(path, "r");
    int n = 0;
    for (int c; f && (c = fgetc(f)) != EOF;)
        n += c == '\n';
    if (f)
        fclose(f);
    return n;
}

/* Seconds of processor time that the child took so far, which other load does not change. */
static double cpu_seconds(pid_t child)
{
    char path[64], text[1024];
    unsigned long user = 0, system_time = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
    FILE *f = fopen(path, "r");
    const size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f != NULL)
        fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')'); /* the name before it may hold anything */
    if (after != NULL)
        (void)sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                     &system_time);
    return (double)(user + system_time) / (double)sysconf(_SC_CLK_TCK);
}

static int finish(pid_t child)
{
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "killed by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void expect_same(const char *name)
{
    char command[256];
    snprintf(command, sizeof command, "cmp 'once/step-000000%d/%s' 'often/step-000000%d/%s'", STEPS,
             name, STEPS, name);
    cr_expect_eq(system(command), 0, "%s differs", name);
}

Test(interrupt, by_sigterm_and_resumed_gives_the_same_bits, .timeout = 120)
{
    const struct timespec moment = {0, 2000000};
    cr_assert_eq(finish(start("once")), 0);
    cr_assert_eq(lines("once/metrics.jsonl"), STEPS);
    int n_stopped = 0;
    for (int until = 4; until < STEPS; until += 9) {
        /* a complete step: a process that has just started has no handler yet and is killed by the
         * signal */
        const int had = lines("often/metrics.jsonl"), wanted = had < until ? until : had + 1;
        const pid_t child = start("often");
        while (lines("often/metrics.jsonl") < wanted && !has_ended(child))
            (void)nanosleep(&moment, NULL);
        cr_assert_eq(kill(child, SIGTERM), 0);
        const int code = finish(child);
        cr_assert(code == 143 || code == 0, "exit code %d", code);
        n_stopped += code == 143;
    }
    cr_assert_geq(n_stopped, 3, "only %d of the signals found the run going on", n_stopped);
    cr_assert_eq(finish(start("often")), 0);
    cr_assert_eq(lines("often/metrics.jsonl"), STEPS);
    expect_same("model.safetensors");
    expect_same("state/optimizer.safetensors");
    expect_same("state/run.json");
}

static void wait_ms(int ms)
{
    const struct timespec moment = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&moment, NULL);
}

static int log_has(const char *text)
{
    char command[256];
    snprintf(command, sizeof command, "grep -aqs '%s' log", text);
    return system(command) == 0;
}

/* Waits until the child has computed for so long, or has ended. */
static void let_compute(pid_t child, double seconds)
{
    const double begin = cpu_seconds(child);
    while (!has_ended(child) && cpu_seconds(child) - begin < seconds)
        wait_ms(2);
}

/* Sends SIGTERM, and returns the exit code; *out_cpu: the processor time that the child took until
 * it had ended. */
static int stop(pid_t child, double *out_cpu)
{
    siginfo_t info;
    const double begin = cpu_seconds(child);
    if (!has_ended(child))
        cr_assert_eq(kill(child, SIGTERM), 0);
    cr_assert_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    *out_cpu = cpu_seconds(child) - begin;
    return finish(child);
}

/* Writes a run file with few steps of many micro-batches each. */
static void put_long_steps(int micro_batches)
{
    char command[512];
    snprintf(command, sizeof command,
             "sed -e 's/^gradient_accumulation_steps.*/gradient_accumulation_steps = %d/' "
             "-e 's/^max_steps.*/max_steps = 2/' -e 's/^micro_batch_size.*/micro_batch_size = 1/' "
             "-e 's/fp16/fp32/' run.toml > long.toml; sed -i '/^loss_scale/d' long.toml",
             micro_batches);
    cr_assert_eq(system(command), 0);
}

/* Micro-batches of a step that takes long enough to be stopped within it. */
#ifdef __SANITIZE_ADDRESS__
enum { LONG_STEP = 200 };
#else
enum { LONG_STEP = 800 };
#endif

/* Stops a long step between two of its micro-batches and resumes it with the remaining ones. */
Test(interrupt, within_a_step_stops_between_micro_batches_and_gives_the_same_bits, .timeout = 120)
{
    int n_within = 0;
    put_long_steps(LONG_STEP);
    cr_assert_eq(finish(start_file("long.toml", "whole")), 0);
    for (int i = 0, code = 143; code == 143 && i < 40; i++) {
        (void)unlink("log");
        const pid_t child = start_file("long.toml", "parts");
        while (!log_has("planned peak") && !has_ended(child))
            wait_ms(5);
        let_compute(child, i < 6 ? 0.06 + 0.04 * i : 60.0 / (41 - i));
        if (!has_ended(child))
            cr_assert_eq(kill(child, SIGTERM), 0);
        code = finish(child);
        cr_assert(code == 143 || code == 0, "exit code %d", code);
        n_within += log_has("in the middle of step");
    }
    cr_assert_geq(n_within, 1, "no signal came within a step");
    cr_assert_eq(finish(start_file("long.toml", "parts")), 0);
    cr_expect_eq(system("cmp whole/step-00000002/model.safetensors "
                        "parts/step-00000002/model.safetensors"),
                 0);
    cr_expect_eq(system("cmp whole/step-00000002/state/optimizer.safetensors "
                        "parts/step-00000002/state/optimizer.safetensors"),
                 0);
    cr_expect_eq(system("cmp whole/step-00000002/state/run.json "
                        "parts/step-00000002/state/run.json"),
                 0);
    cr_expect_eq(lines("parts/metrics.jsonl"), 2);
}

/* The first step alone would take minutes. */
Test(interrupt, within_a_step_of_very_many_micro_batches_stops_soon, .timeout = 120)
{
    put_long_steps(1000000);
    const pid_t child = start_file("long.toml", "out");
    while (!log_has("planned peak") && !has_ended(child))
        wait_ms(5);
    let_compute(child, 0.5);
    double cpu = 0.0;
    cr_assert_eq(stop(child, &cpu), 143);
    cr_expect_lt(cpu, 10.0);
    cr_expect(log_has("checkpoint out/step-00000000, in the middle of step 1: [0-9]* of 1000000"));
    cr_expect_eq(system(LATHE " checkpoint verify out >log2"), 0);
}

/* Does what timeout(1) does: a signal to the process, then one to its group. */
Test(interrupt, sent_twice_at_once_is_one_signal, .timeout = 120)
{
    put_long_steps(1000000);
    const pid_t child = start_file("long.toml", "out");
    while (!log_has("planned peak") && !has_ended(child))
        wait_ms(5);
    let_compute(child, 0.5);
    cr_assert_eq(kill(child, SIGTERM), 0);
    wait_ms(1);
    (void)kill(child, SIGTERM);
    cr_assert_eq(finish(child), 143);
    cr_expect(log_has("checkpoint out/step-00000000, in the middle of step 1"));
}

/* While a tokenizer is trained there is nothing to save, so the process ends at once. */
Test(interrupt, before_the_first_step_ends_at_once_and_loses_nothing, .timeout = 120)
{
    cr_assert_eq(system("i=0; while [ $i -lt 12 ]; do i=$((i+1)); "
                        "od -An -v -tx1 -N 1000000 /dev/urandom; done > corpus.txt; "
                        "sed -i -e 's/^path = \"bytes\"/train = { vocab_size = 20000 }/' "
                        "-e '/^vocab_size/d' run.toml"),
                 0);
    const pid_t child = start("out");
    let_compute(child, 0.4);
    double cpu = 0.0;
    cr_assert_eq(stop(child, &cpu), 143);
    cr_expect_lt(cpu, 2.0);
    cr_expect(log_has("stopped before the first step; nothing was trained"));
    cr_expect_neq(access("out/latest", F_OK), 0);
}

/* Repetitions of the corpus in a large validation file: evaluating it takes much longer than a
 * step, also where a sanitizer makes both ten times slower. */
#ifdef __SANITIZE_ADDRESS__
#define REPETITIONS "20"
#else
#define REPETITIONS "60"
#endif

static void put_long_evaluation(void)
{
    cr_assert_eq(system("i=0; while [ $i -lt " REPETITIONS
                        " ]; do i=$((i+1)); cat corpus.txt; done >valid.txt; "
                        "sed -e 's/^max_steps.*/max_steps = 4\\neval_every = 2/' -e 's/fp16/fp32/' "
                        "-e '/^loss_scale/d' -e 's/^cache_dir/validation = [{ path = \"valid.txt\" "
                        "}]\\ncache_dir/' run.toml > eval.toml; printf '[scheduler]\\nname = "
                        "\"reduce_on_plateau\"\\npatience = 0\\nthreshold = 10.0\\n' >> eval.toml"),
                 0);
}

/* The evaluation of step 2, and later that of the last step, are stopped. */
Test(interrupt, within_an_evaluation_ends_soon_and_gives_the_same_bits, .timeout = 120)
{
    int n_within = 0;
    put_long_evaluation();
    double whole = 0.0, cpu = 0.0; /* processor time of a run; and from the signal to the end */
    const pid_t alone = start_file("eval.toml", "whole");
    siginfo_t info;
    cr_assert_eq(waitid(P_PID, (id_t)alone, &info, WEXITED | WNOWAIT), 0);
    whole = cpu_seconds(alone);
    cr_assert_eq(finish(alone), 0);
    for (int i = 0; i < 4 && n_within < 3; i++) {
        (void)unlink("log");
        const pid_t child = start_file("eval.toml", "parts");
        while (!log_has("planned peak") && !has_ended(child))
            wait_ms(5);
        let_compute(child, whole * (i == 0 ? 0.3 : 0.6));
        const int code = stop(child, &cpu);
        cr_assert(code == 143 || code == 0, "exit code %d", code);
        const int within = log_has("the evaluation of step [24] did not end and is made when");
        if (within)
            cr_expect_lt(cpu, 0.25 * whole + 1.0);
        n_within += within;
        if (code == 0)
            break;
    }
    cr_assert_geq(n_within, 1, "no signal came within an evaluation");
    (void)finish(start_file("eval.toml", "parts"));
    cr_expect_eq(system("for f in model.safetensors state/optimizer.safetensors state/run.json; do "
                        "cmp whole/step-00000004/$f parts/step-00000004/$f || exit 1; done"),
                 0);
    cr_expect_eq(lines("parts/metrics.jsonl"), 4);
    cr_expect_eq(
        system("for d in whole parts; do sed -n 's/.*\"step\": \\([24]\\).*\\(\"eval_loss\": "
               "[0-9.e+-]*\\).*/\\1 \\2/p' $d/metrics.jsonl > $d.evals; done; "
               "test -s whole.evals && cmp whole.evals parts.evals"),
        0);
}
