/* Tests which of mpirun's own words `lathe launch` passes on. The boxes are those of Open MPI
 * 4.1.4. */
#include "cmd/main/launch_output.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define DASHES "--------------------------------------------------------------------------\n"

static lathe_launch_output words;

/* Gives it the lines of a text; what it prints is to be freed. */
static char *pass(const char *text)
{
    char *out = NULL, *const copy = strdup(text);
    size_t bytes = 0;
    FILE *const to = open_memstream(&out, &bytes);
    cr_assert(to != NULL && copy != NULL);
    lathe_launch_output_init(&words);
    for (char *line = copy, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        lathe_launch_output_line(&words, line, to);
    }
    lathe_launch_output_end(&words, to);
    cr_assert_eq(fclose(to), 0);
    free(copy);
    return out;
}

static void expect_pass(const char *text, const char *want)
{
    char *const out = pass(text);
    cr_expect_str_eq(out, want);
    free(out);
}

#define ENDED                                                                                      \
    DASHES "Primary job  terminated normally, but 1 process returned\n"                            \
           "a non-zero exit code. Per user-direction, the job has been aborted.\n" DASHES

Test(launch_output, exits_are_noted_and_left_out)
{
    expect_pass(
        ENDED DASHES
        "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
        "the job to be terminated. The first process to do so was:\n\n"
        "  Process name: [[1718,1],3]\n  Exit code:    2\n" DASHES,
        "");
    cr_expect_eq(words.exited_rank, 3);
    cr_expect_eq(words.code, 2);
    cr_expect_eq(words.killed_rank, -1);
    cr_expect_eq(words.n_told, 0);
}

/* The break in the line depends on its length. */
Test(launch_output, signals_are_noted)
{
    expect_pass(ENDED DASHES "mpirun noticed that process rank 1 with PID 0 on node vm exited on "
                             "signal 9 (Killed).\n" DASHES,
                "");
    cr_expect_eq(words.killed_rank, 1);
    cr_expect_eq(words.signal, 9);
    expect_pass(DASHES
                "mpiexec noticed that process rank 12 with PID 77 on node a-long-name exited "
                "on\nsignal 11 (Segmentation fault).\n" DASHES,
                "");
    cr_expect_eq(words.killed_rank, 12);
    cr_expect_eq(words.signal, 11);
}

Test(launch_output, an_abort_and_what_repeats_it_are_left_out)
{
    expect_pass(DASHES "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\n"
                       "with errorcode 2.\n\nNOTE: ...\n" DASHES
                       "[vm:1] 1 more process has sent help message help-mpi-api.txt / mpi-abort\n"
                       "[vm:1] Set MCA parameter \"orte_base_help_aggregate\" to 0 to see all\n"
                       "2 total processes killed (some possibly by mpirun during cleanup)\n",
                "");
}

Test(launch_output, other_boxes_become_one_line)
{
    expect_pass(DASHES
                "mpirun was unable to launch the specified application as it could not access\n"
                "or execute an executable:\n\nExecutable: ./nowhere\nNode: vm\n\n"
                "while attempting to start process rank 0.\n" DASHES,
                "lathe launch: mpirun: mpirun was unable to launch the specified application as it "
                "could not access or execute an executable: Executable: ./nowhere Node: vm while "
                "attempting to start process rank 0.\n");
    cr_expect_eq(words.n_told, 1);
}

/* Nothing is lost: lines outside boxes, a box without an end, one that is none. */
Test(launch_output, what_is_not_known_is_passed_on)
{
    expect_pass("[vm:1] a warning of a part of mpirun\n", "[vm:1] a warning of a part of mpirun\n");
    expect_pass(DASHES "half a box\nof two lines\n",
                "lathe launch: mpirun: half a box of two lines\n");
    char text[3 * LATHE_BOX_BYTES] = DASHES;
    for (int i = 0; i < 100; i++)
        strcat(text, "a line of some sixty bytes, as a library may print after dashes\n");
    strcat(text, "the last line\n");
    char *const out = pass(text);
    cr_expect_not_null(strstr(out, "lathe launch: mpirun: a line of some"), "%s", out);
    cr_expect_not_null(strstr(out, "\nthe last line\n"), "%s", out);
    free(out);
}

/* SIGCONT, which ends the hold of a rank that saves, under each name that mpirun has. */
Test(launch_output, a_forwarded_continuation_is_left_out)
{
    expect_pass("mpirun: Forwarding signal 18 to job\n", "");
    expect_pass("mpiexec: Forwarding signal 18 to job\n", "");
    expect_pass("/opt/ompi/bin/orterun: Forwarding signal 18 to job\n", "");
    expect_pass("mpiexec: Forwarding signal 15 to job\n", "mpiexec: Forwarding signal 15 to job\n");
    expect_pass("rank 1 said: Forwarding signal 18 to job\n",
                "rank 1 said: Forwarding signal 18 to job\n");
}

/* A box of MPI's start, once, without what follows from it; that alone if there is nothing else. */
Test(launch_output, what_only_follows_is_left_out)
{
#define FOLLOWS                                                                                    \
    DASHES "It looks like MPI_INIT failed for some reason; your parallel process is\nlikely to "   \
           "abort.\n" DASHES "[vm:7] *** An error occurred in MPI_Init_thread\n"
#define NOT_FOUND DASHES "A requested component was not found.\n\nHost: vm\n" DASHES
    expect_pass(FOLLOWS NOT_FOUND NOT_FOUND FOLLOWS,
                "lathe launch: mpirun: A requested component was not found. Host: vm\n");
    expect_pass(FOLLOWS,
                "lathe launch: mpirun: It looks like MPI_INIT failed for some reason; your "
                "parallel process is likely to abort.\n");
}

/* mpirun has lost the box: of what is left, that which says most. */
Test(launch_output, a_lost_explanation)
{
#define LOST "[vm:1] [[6702,0],0] ORTE_ERROR_LOG: Out of resource in file show_help.c at line 501\n"
    expect_pass(LOST FOLLOWS, "lathe launch: mpirun: It looks like MPI_INIT failed for some "
                              "reason; your parallel process is likely to abort.\n");
    expect_pass(LOST "[vm:7] *** An error occurred in MPI_Init_thread\n[vm:7] *** more\n",
                "lathe launch: mpirun: [vm:7] *** An error occurred in MPI_Init_thread\n");
    expect_pass(LOST LOST,
                "lathe launch: mpirun failed and lost its explanation, which another try may show; "
                "it says only: " LOST);
}

Test(launch_output, no_slots_are_told)
{
    char *const out =
        pass(DASHES "There are not enough slots available in the system to satisfy the 40\n"
                    "slots that were requested by the application:\n\n  ./t\n\n"
                    "Either request fewer slots for your application, or make more slots\n"
                    "available for use.\n\nA \"slot\" is the Open MPI term for an allocatable unit "
                    "where we can\nlaunch a process.  The number of slots available are defined by "
                    "the\nenvironment in which Open MPI processes are run:\n\n"
                    "  1. Hostfile, via \"slots=N\" clauses (N defaults to number of\n"
                    "     processor cores if not provided)\n"
                    "  2. The --host command line parameter, via a \":N\" suffix on the\n"
                    "     hostname (N defaults to 1 if not provided)\n"
                    "  3. Resource manager (e.g., SLURM, PBS/Torque, LSF, etc.)\n" DASHES);
    cr_expect_str_eq(out,
                     "lathe launch: mpirun: There are not enough slots available in the system "
                     "to satisfy the 40 slots that were requested by the application: ./t "
                     "Either request fewer slots for your application, or make more slots "
                     "available for use.\n");
    free(out);
}
