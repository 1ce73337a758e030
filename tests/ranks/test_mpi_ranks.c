/* Ranks as processes under mpirun: what they compute, and what they say when one of them ends,
 * hangs, or asks for something else. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/child_program.h"

#ifndef LATHE_TEST_MPIRUN
#define LATHE_TEST_MPIRUN ""
#endif

static char output[65536];

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Runs a command on n ranks; its output is in `output`. Returns the exit code. */
static int run(int n, const char *command, double *out_seconds)
{
    char line[2048];
    if (LATHE_TEST_MPIRUN[0] == '\0')
        cr_skip_test("this build has no MPI: install libopenmpi-dev and openmpi-bin");
    child_programs_skip_the_leak_check();
    cr_assert_eq(setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1), 0);
    cr_assert_eq(setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1), 0);
    (void)snprintf(line, sizeof line,
                   "timeout 120 %s --oversubscribe --mca btl self,vader,tcp -n %d %s 2>&1",
                   LATHE_TEST_MPIRUN, n, command);
    const double begin = now();
    FILE *pipe = popen(line, "r");
    cr_assert_not_null(pipe);
    const size_t got = fread(output, 1, sizeof output - 1, pipe);
    output[got] = '\0';
    const int status = pclose(pipe);
    if (out_seconds != NULL)
        *out_seconds = now() - begin;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int rank_program(int n, const char *mode, double deadline, double *out_seconds)
{
    char command[1024];
    (void)snprintf(command, sizeof command, "%s/tests/rank_program %s %s %g", LATHE_TEST_BUILD,
                   LATHE_TEST_PLUGIN, mode, deadline);
    return run(n, command, out_seconds);
}

static void says(const char *text)
{
    cr_expect_not_null(strstr(output, text), "expected \"%s\" in:\n%s", text, output);
}

Test(mpi_ranks, every_check_of_engines_holds_on_four_ranks)
{
    char command[1024];
    (void)snprintf(command, sizeof command, "%s/bin/lathe plugin check %s", LATHE_TEST_BUILD,
                   LATHE_TEST_PLUGIN);
    cr_expect_eq(run(4, command, NULL), 0, "%s", output);
    int n = 0;
    for (const char *at = output; (at = strstr(at, "collective/mpi: 17 ok, 0 failed")) != NULL;
         at++)
        n++;
    cr_expect_eq(n, 4, "%s", output);
}

Test(mpi_ranks, ranks_know_their_places_and_add)
{
    cr_expect_eq(rank_program(2, "report", 20.0, NULL), 0, "%s", output);
    says("rank 0 of 2, local 0 of 2, host 0 of 1");
    says("rank 1 of 2, local 1 of 2, host 0 of 1");
    cr_expect_eq(rank_program(3, "sum", 20.0, NULL), 0, "%s", output);
}

/* The death of a process on the same host is seen at once, and not after the deadline. */
Test(mpi_ranks, a_killed_rank_is_named_at_once)
{
    double seconds;
    cr_expect_neq(rank_program(3, "kill", 60.0, &seconds), 0);
    says("step 3: rank 0 of 3 on ");
    says("step 3: rank 1 of 3 on ");
    says(": all_reduce of 16.0 MB (gradients 1 of 1): rank 2 has ended (process ");
    cr_expect_lt(seconds, 30.0);
}

Test(mpi_ranks, a_stopped_rank_is_named_after_the_deadline)
{
    double seconds;
    cr_expect_neq(rank_program(2, "stop", 1.0, &seconds), 0);
    says("step 3: rank 0 of 2 on ");
    says("(gradients 1 of 1): timed out after 1.");
    says("; rank 1 (stopped by a signal) did not arrive");
    cr_expect_gt(seconds, 1.0);
    cr_expect_lt(seconds, 30.0);
}

Test(mpi_ranks, a_rank_that_leaves_without_a_word_is_named)
{
    cr_expect_neq(rank_program(2, "exit", 60.0, NULL), 0);
    says("rank 1 has ended (process ");
}

Test(mpi_ranks, different_exchanges_are_refused_on_every_rank)
{
    cr_expect_neq(rank_program(2, "differ", 20.0, NULL), 0);
    says("step 0: the ranks ask for different exchanges: rank 0 for all_reduce of 4000000 f32, sum "
         "(gradients 1 of 1), rank 1 for all_reduce of 3999999 f32");
    says("rank 1 for all_reduce of 3999999 f32, sum (gradients 1 of 1), rank 0 for");
}

/* Several processes that do not find each other would each train alone. */
Test(mpi_ranks, an_environment_that_is_wrong_is_refused)
{
    if (LATHE_TEST_MPIRUN[0] == '\0')
        cr_skip_test("this build has no MPI");
    child_programs_skip_the_leak_check();
    const char *const program = LATHE_TEST_BUILD "/tests/rank_program " LATHE_TEST_PLUGIN " sum 5 "
                                                 "2>&1";
    static const struct {
        const char *set, *want;
    } rows[] = {
        {"SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1", "Slurm has started 4 processes"},
        {"PMI_SIZE=junk PMI_RANK=0", "PMI_SIZE is \"junk\", expected a number of ranks"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[2048];
        (void)snprintf(line, sizeof line, "%s %s", rows[i].set, program);
        FILE *pipe = popen(line, "r");
        cr_assert_not_null(pipe);
        output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
        cr_expect_neq(pclose(pipe), 0);
        says(rows[i].want);
    }
}
