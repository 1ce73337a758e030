/* A run that ranks refuse, or that fails on one of them: one rank says why, in one line, and all
 * processes end, under lathe launch and under mpirun. */
#include <sys/stat.h>

#include "cli/training_case.h"

#ifndef LATHE_TEST_MPIRUN
#define LATHE_TEST_MPIRUN ""
#endif

/* Seconds that a failed job may take on a busy machine; after them it is killed. */
#define MOST_SECONDS "90"

/* Lines of mpirun that are no box, and lines of ranks. */
static char line[8192];

/* Inserts the wrapper before the program of the ranks, as `lathe launch` calls it. */
static const char inserts[] =
    "#!/bin/bash\n"
    "a=(\"$@\")\n"
    "for ((i = 0; i < ${#a[@]}; i++)); do\n"
    "    [[ ${a[i]} == */lathe ]] || continue\n"
    "    exec " LATHE_TEST_MPIRUN " \"${a[@]:0:i}\" ./wrap.sh \"${a[@]:i}\"\n"
    "done\n";

static void begin(void)
{
    setup();
    /* without an evaluation, which adds a note */
    cr_assert_eq(run("sed -i -e /validation_split/d -e /eval_every/d run.toml"), 0);
    if (LATHE_TEST_MPIRUN[0] == '\0')
        return;
    cr_assert_eq(mkdir("path", 0777), 0);
    put("path/mpirun", inserts);
    put("wrap.sh", "#!/bin/sh\nexec \"$@\"\n");
    cr_assert_eq(setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1), 0);
    cr_assert_eq(setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1), 0);
    cr_assert_eq(run("chmod +x path/mpirun wrap.sh"), 0);
}

TestSuite(one_line, .init = begin, .fini = remove_folder, .timeout = 600);

static void need_mpi(void)
{
    if (LATHE_TEST_MPIRUN[0] == '\0')
        cr_skip_test("this build has no MPI: install libopenmpi-dev and openmpi-bin");
}

/* The script that each rank runs instead of `lathe train ...`, which is "$@". */
static void wrap(const char *script)
{
    put("wrap.sh", "#!/bin/sh\n");
    FILE *f = fopen("wrap.sh", "a");
    cr_assert_not_null(f);
    cr_assert_geq(fputs(script, f), 0);
    cr_assert_eq(fclose(f), 0);
}

enum { ANY = -1 }; /* exit code but 0 */

/* Runs a job and expects one line on stderr, with the text, and the exit code. Where `alone`, one
 * rank fails before the ranks have met, and mpirun alone explains that in its boxes. */
static void expect_line(const char *job, const char *text, int code, int alone)
{
    (void)snprintf(line, sizeof line,
                   "rm -rf out; timeout -k 1 " MOST_SECONDS " %s >said 2>errors; code=$?; "
                   "%s; exit $code",
                   job,
                   alone ? "awk '/^--------------------/ { box = !box; next } !box && NF' errors"
                         : "grep -v '^.warn. Epoll' errors");
    const int got = run(line);
    int n = 0;
    for (const char *at = output; (at = strchr(at, '\n')) != NULL; at++)
        n++;
    cr_expect(got == code || (code == ANY && got != 0), "%s: exit %d, expected %d:\n%s", job, got,
              code, output);
    cr_expect_eq(n, 1, "%s: %d lines, expected one:\n%s", job, n, output);
    cr_expect_not_null(strstr(output, text), "%s: no '%s' in\n%s", job, text, output);
}

enum { MEET = 0, ALONE = 1 };

/* Expects one result under lathe launch and under mpirun. */
static void expect_both(int n, const char *words, const char *text, int code, int alone)
{
    char job[2048];
    (void)snprintf(job, sizeof job, "env PATH=$PWD/path:$PATH " LATHE " launch -n %d run.toml %s",
                   n, words);
    expect_line(job, text, code, 0);
    (void)snprintf(job, sizeof job,
                   LATHE_TEST_MPIRUN " --oversubscribe -n %d ./wrap.sh " LATHE " train run.toml %s",
                   n, words);
    expect_line(job, text, code, alone);
}

Test(one_line, refusals_of_all_ranks)
{
    static const struct {
        int n;
        const char *words, *text;
    } rows[] = {
        {2, "--train.max_stepz 3", "unknown key 'max_stepz' in [train]"},
        {2, "--optimizer.name sophia", "estimates curvature, which 2 ranks cannot do"},
        {2, "--stage.name ppo --reward.name match",
         "stage \"ppo\" makes its own batches, which 2 ranks cannot do"},
        {2, "--parallel.shard optimizer --parallel.shard_ranks 3",
         "parallel.shard_ranks is 3, and does not divide the 2 ranks"},
        {3, "--parallel.diloco_islands 2", "diloco_islands is 2, and does not divide the 3 ranks"},
        {2, "--collective.name nccl", "is for devices with memory of their own, and device"},
        {2, "--collective.name local", "collective/local is a group of one"},
        {2, "--data.datasets '[{ path = \"nothing.txt\" }]'", "nothing.txt"},
    };
    need_mpi();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_both(rows[i].n, rows[i].words, rows[i].text, 2, MEET);
}

/* lathe launch finds these itself; the ranks do, too, where they are started without it. */
Test(one_line, refusals_after_the_ranks_have_met)
{
    static const char job[] = LATHE_TEST_MPIRUN " --oversubscribe -n 2 " LATHE " train run.toml ";
    static const char *const engines[] = {"mpi", "throttle"};
    need_mpi();
    for (int i = 0; i < 2; i++) {
        char words[512];
        (void)snprintf(
            words, sizeof words,
            "%s --parallel.shard optimizer --parallel.shard_ranks 3 --collective.name %s", job,
            engines[i]);
        expect_line(words, "shard_ranks is 3, and does not divide the 2 ranks", 2, 0);
    }
}

Test(one_line, more_ranks_than_rows)
{
    need_mpi();
    put("few.txt", "two rows of sixteen tokens each");
    expect_both(4, "--data.datasets '[{ path = \"few.txt\" }]'",
                "fewer than the 4 ranks: give more data", 2, MEET);
}

Test(one_line, a_folder_that_cannot_be_written)
{
    need_mpi();
    expect_both(2, "--checkpoint.dir /proc/nothing", "the folder /proc cannot be written", 2, MEET);
}

/* Only rank 0 writes. */
Test(one_line, a_disk_that_is_full_on_one_rank)
{
    need_mpi();
    wrap("[ $OMPI_COMM_WORLD_RANK != 0 ] || ulimit -f 40000\nexec \"$@\"\n");
    expect_both(2,
                "--model.hidden_size 512 --model.intermediate_size 2048 --model.num_hidden_layers "
                "3 --log.progress off",
                "File too large", 1, MEET);
}

Test(one_line, ranks_with_different_files)
{
    need_mpi();
    cr_assert_eq(
        run("mkdir other && cp run.toml other && sed s/wheel/wagon/ text.txt > other/text.txt"), 0);
    wrap("[ $OMPI_COMM_WORLD_RANK != 1 ] || cd other\nexec \"$@\"\n");
    expect_both(2, "", "rank 1 of 2 on host", 2, MEET);
    cr_expect_not_null(strstr(output, "differs from rank 0: run.hash_of_the_data is"), "%s",
                       output);
    wrap("[ $OMPI_COMM_WORLD_RANK != 1 ] || set -- \"$@\" --optimizer.lr 0.5\nexec \"$@\"\n");
    expect_both(2, "", "differs from rank 0: settings.optimizer.lr is 0.5", 2, MEET);
    wrap("[ $OMPI_COMM_WORLD_RANK != 1 ] || set -- \"$@\" --optimizer.name lion\nexec \"$@\"\n");
    expect_both(2, "", "differs from rank 0: settings.optimizer.name is ", 2, MEET);
    wrap("[ $OMPI_COMM_WORLD_RANK != 1 ] || set -- \"$@\" --model.hidden_size 128\nexec \"$@\"\n");
    expect_both(2, "", "differs from rank 0: settings.model.hidden_size is 128", 2, MEET);
    /* a file that one rank does not have */
    cr_assert_eq(run("rm other/text.txt"), 0);
    wrap("[ $OMPI_COMM_WORLD_RANK != 1 ] || cd other\nexec \"$@\"\n");
    expect_both(2, "", "rank 1 of 2: run.toml:12:22: error: data.datasets: no such file", 2, ALONE);
}

/* A copy of the installation with another program, or without MPI. */
static void copy_build(void)
{
    cr_assert_eq(run("mkdir -p copy/bin && cp " LATHE " copy/bin && "
                     "cp -rs " LATHE_TEST_BUILD "/lib copy/lib 2>&1 && "
                     "cp --remove-destination " LATHE_TEST_BUILD "/lib/liblathe.so* copy/lib"),
                 0, "%s", output);
}

Test(one_line, another_program_on_one_rank)
{
    need_mpi();
    copy_build();
    cr_assert_eq(run("echo >> copy/bin/lathe"), 0);
    wrap("[ $OMPI_COMM_WORLD_RANK != 1 ] || { shift; set -- ./copy/bin/lathe \"$@\"; }\n"
         "exec \"$@\"\n");
    expect_both(2, "", "rank 1 of 2 on host", 2, MEET);
    cr_expect_not_null(strstr(output, "differs from rank 0: program is"), "%s", output);
}

Test(one_line, no_mpi)
{
    need_mpi();
    copy_build();
    cr_assert_eq(run("find copy -name mpi-shim.so -delete"), 0);
    wrap("shift\nexec ./copy/bin/lathe \"$@\"\n");
    expect_both(2, "", "this Lathe was built without it; install Open MPI", 2, MEET);
    wrap("[ $OMPI_COMM_WORLD_RANK != 1 ] || { shift; set -- ./copy/bin/lathe \"$@\"; }\n"
         "exec \"$@\"\n");
    expect_both(2, "", "rank 1 of 2: ", 2, ALONE);
}

Test(one_line, wrong_environment_variables)
{
    need_mpi();
    wrap("OMPI_COMM_WORLD_SIZE=many exec \"$@\"\n");
    expect_both(2, "", "OMPI_COMM_WORLD_SIZE is \"many\", expected a number of ranks", 2, ALONE);
    wrap("OMPI_COMM_WORLD_SIZE=3 exec \"$@\"\n");
    expect_both(2, "", "has started 3 processes (OMPI_COMM_WORLD_SIZE)", 2, ALONE);
    wrap("[ $OMPI_COMM_WORLD_RANK != 1 ] || export OMPI_COMM_WORLD_SIZE=3\nexec \"$@\"\n");
    expect_both(2, "", "has started 3 processes (OMPI_COMM_WORLD_SIZE)", 2, ALONE);
}

Test(one_line, a_rank_out_of_memory)
{
    need_mpi();
#ifdef LATHE_TEST_SANITIZED
    cr_skip_test("a sanitizer reserves more address space than a limit allows");
#endif
    wrap("[ $OMPI_COMM_WORLD_RANK != 1 ] || ulimit -v 200000\nexec \"$@\"\n");
    expect_both(2, "", "rank 1 of 2: this process may take ", 2, ALONE);
    wrap("[ $OMPI_COMM_WORLD_RANK != 1 ] || ulimit -v 600000\nexec \"$@\"\n");
    expect_both(2,
                "--model.hidden_size 512 --model.intermediate_size 2048 "
                "--model.num_hidden_layers 12 --train.memory_limit 8",
                "rank 1 of 2: lathe train: ", 1, MEET);
    cr_expect_not_null(strstr(output, "no memory for "), "%s", output);
    wrap("[ $OMPI_COMM_WORLD_RANK != 1 ] || ulimit -v 600000\nexec \"$@\"\n");
    expect_both(2,
                "--model.hidden_size 512 --model.intermediate_size 2048 "
                "--model.num_hidden_layers 12",
                "rank 1 of 2: run.toml: error: the plan does not fit", 2, MEET);
}

/* Each rank has an error of its own. */
Test(one_line, different_errors_are_told_by_each_rank)
{
    need_mpi();
    wrap("exec \"$@\" --train.max_step$OMPI_COMM_WORLD_RANK 3\n");
    expect("timeout -k 1 " MOST_SECONDS " env PATH=$PWD/path:$PATH " LATHE
           " launch -n 2 run.toml 2>&1 >/dev/null | sort",
           0, "rank 0 of 2: --train.max_step0: error: unknown key 'max_step0'");
    cr_expect_not_null(strstr(output, "\nrank 1 of 2: --train.max_step1: error: unknown key"), "%s",
                       output);
    cr_expect_eq(output[strlen(output) - 1], '\n');
}

/* Only mpirun knows the signal of a rank that says nothing, so lathe launch says it. */
Test(one_line, a_rank_that_says_nothing)
{
    need_mpi();
    wrap("[ $OMPI_COMM_WORLD_RANK != 1 ] || kill -SEGV $$\nexec \"$@\"\n");
    expect_line("env PATH=$PWD/path:$PATH " LATHE " launch -n 2 run.toml",
                " was ended by signal 11 (Segmentation fault)", 139,
                0); /* rank 1, if mpirun says so */
    wrap("[ $OMPI_COMM_WORLD_RANK != 1 ] || exit 9\nexec \"$@\"\n");
    expect_line("env PATH=$PWD/path:$PATH " LATHE " launch -n 2 run.toml",
                " exited with 9, and said nothing", 9, 0);
    put("path/mpirun", "#!/bin/sh\nexec " LATHE_TEST_MPIRUN " --nothing \"$@\"\n");
    expect("timeout -k 1 " MOST_SECONDS " env PATH=$PWD/path:$PATH " LATHE
           " launch -n 2 run.toml 2>&1",
           1, "nothing");
    put("path/mpirun", "#!/bin/sh\nexec " LATHE_TEST_MPIRUN " -n 2 ./nowhere\n");
    expect_line("env PATH=$PWD/path:$PATH " LATHE " launch -n 2 run.toml",
                "lathe launch: mpirun: mpiexec was unable to launch the specified application", ANY,
                0);
}

Test(one_line, a_word_too_many)
{
    need_mpi();
    expect_line(LATHE_TEST_MPIRUN " --oversubscribe -n 2 " LATHE " train run.toml nofile",
                "lathe train: unexpected argument 'nofile'", 2, 0);
}

/* Parts of Open MPI that are not there, folders that it cannot write: several boxes and lines of
 * mpirun, of which all but the first only follow. mpirun 4.1 loses the first in one of 20 jobs on
 * an idle machine and in most jobs on a busy one; one line is left of its words then. So jobs are
 * started until one of them has it. */
Test(one_line, an_environment_that_mpi_does_not_like)
{
    static const char job[] = "env OMPI_MCA_pml=nothing " LATHE " launch -n 2 run.toml";
    need_mpi();
    bool is_named = false;
    for (int i = 0; i < 30 && !is_named; i++) {
        expect_line(job, "lathe launch: mpirun", ANY, 0);
        is_named =
            strstr(output, "lathe launch: mpirun: A requested component was not found") != NULL;
    }
    cr_expect(is_named, "%s", output);
    expect_line("env TMPDIR=/proc " LATHE " launch -n 2 run.toml",
                "lathe launch: mpirun: A call to mkdir was unable to create", ANY, 0);
    expect_line(LATHE_TEST_MPIRUN " --oversubscribe -n 2 " LATHE " launch -n 2 run.toml",
                "lathe launch: another launcher (mpirun, srun) has started this process", 2, 0);
}

/* A dry run joins the ranks, as the training does, and rank 0 tells of it. */
Test(one_line, of_a_dry_run_are_those_of_rank_0)
{
    need_mpi();
    expect(LATHE_TEST_MPIRUN " --oversubscribe -n 2 " LATHE " train run.toml --dry-run 2>&1", 0,
           "2 ranks: Open MPI");
    const char *end = strstr(output, "dry run: 2 steps of ");
    cr_assert_not_null(end, "%s", output);
    cr_expect_null(strstr(end + 1, "dry run:"), "%s", output);
    const char *begin = strstr(output, " trained;");
    cr_assert_not_null(begin, "%s", output);
    cr_expect_null(strstr(begin + 1, " trained;"), "%s", output);
    cr_expect_neq(access("out", F_OK), 0);
}

/* The folders of its data are removed also where the ranks refuse the run. */
Test(one_line, a_refused_dry_run_leaves_nothing)
{
    need_mpi();
    cr_assert_eq(mkdir("tmp", 0777), 0);
    put("few.txt", "a few words\n");
    expect("TMPDIR=$PWD/tmp " LATHE_TEST_MPIRUN " --oversubscribe -n 2 " LATHE
           " train run.toml --dry-run --data.datasets '[{path = \"few.txt\"}]' 2>&1",
           2, "fewer than one row of data.seq_len = 16");
    expect("ls -d tmp/lathe-dry-run-* 2>&1", 2, "No such file");
}

Test(one_line, a_pipeline_takes_no_ranks)
{
    need_mpi();
    put("pipe.toml", "[[step]]\nname = \"a\"\nrun = \"run.toml\"\n");
    static const char *const options[] = {"", " --dry-run"};
    for (size_t i = 0; i < 2; i++) {
        char job[1024];
        (void)snprintf(job, sizeof job,
                       LATHE_TEST_MPIRUN " --oversubscribe -n 2 " LATHE " pipeline pipe.toml%s",
                       options[i]);
        expect_line(job, "and a pipeline runs its steps in one process", 2, ALONE);
    }
    expect(LATHE_TEST_MPIRUN " -n 1 " LATHE " pipeline pipe.toml --dry-run 2>&1", 0,
           "dry run: 1 steps are valid");
}
