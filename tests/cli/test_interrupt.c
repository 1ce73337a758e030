/* SIGTERM again and again: each time the run finishes its step, writes a checkpoint and exits with 143;
 * what it ends with is what an uninterrupted run ends with, to the bit. */
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

static pid_t start(const char *dir)
{
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that times out leaves nothing running */
        const int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
        (void)dup2(log, 1);
        (void)dup2(log, 2);
        execl(LATHE, LATHE, "train", "run.toml", "--checkpoint.dir", dir, (char *)NULL);
        _exit(127);
    }
    return child;
}

/* 1: the child has ended; it is still to be waited for. */
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

Test(interrupt, by_sigterm_and_resumed_gives_the_same_bits, .timeout = 60)
{
    const struct timespec moment = {0, 2000000};
    cr_assert_eq(finish(start("once")), 0);
    cr_assert_eq(lines("once/metrics.jsonl"), STEPS);
    int n_stopped = 0;
    for (int until = 4; until < STEPS; until += 9) {
        /* a step of its own: one that has only begun has no handler yet, and dies of the signal */
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
