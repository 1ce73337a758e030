/* Kills the process with SIGKILL at 500 random moments of saving. After each, the last good
 * checkpoint exists with the saved contents, and no incomplete folder is used as a checkpoint. */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "base/hash.h"
#include "checkpoint/state/checkpoint_writer.h"
#include "run/api/save_load.h"
#include "run/state/run_saved.h"
#include "support/checkpoint_case.h"
#include "train/training.h"

enum { KILLS = 500, STEPS = 12 };

static char dir[64];
static lathe_run *run;
static uint64_t expected[STEPS + 1]; /* hash of the state at each step */

/* The state that a checkpoint restores. */
static uint64_t state_of(void)
{
    uint64_t h = lathe_hash64(run->store.masters, run->store.master_bytes);
    h = h * 31 + lathe_hash64(run->store.slots, run->store.slot_bytes);
    return h * 31 + lathe_hash64(&run->at, (int64_t)sizeof run->at);
}

static void one_step(void)
{
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
    OK(lathe_step(run, NULL));
}

/* The child: steps and saves until it is killed. After each lathe_checkpoint_write it writes the
 * durable step to the pipe. */
static void save_until_killed(int how, int told)
{
    char path[512];
    lathe_writer *writer = NULL;
    if (how && lathe_writer_create(run->checkpoints.image, &writer) != LATHE_OK)
        _exit(2);
    while (run->at.step < STEPS) {
        one_step();
        lathe_figures f = {.n = 0};
        lathe__figures_add(&f, "eval_loss", 1.0 / (double)run->at.step);
        lathe_status status;
        const int64_t step = run->at.step;
        if (how) {
            status = lathe_writer_wait(writer, NULL);
            cr_assert_eq(lathe_image_take(run->checkpoints.image, lathe__run_saved(run)), LATHE_OK);
            lathe_writer_post(writer, &f, step % 2 == 0);
            if (status == LATHE_OK)
                status = lathe_writer_wait(writer, NULL);
        } else {
            status = lathe_checkpoint_write(lathe__run_saved(run), &f, step % 2 == 0, path,
                                            (int64_t)sizeof path);
        }
        if (status != LATHE_OK || write(told, &step, sizeof step) != (ssize_t)sizeof step) {
            (void)fprintf(stderr, "child: %s\n", lathe_error_message());
            _exit(3);
        }
    }
    _exit(0);
}

/* The last step that the child reported as durable; 0: none. */
static int64_t last_told(int from)
{
    int64_t step = 0, next;
    while (read(from, &next, sizeof next) == (ssize_t)sizeof next)
        step = next;
    return step;
}

static void check_kill(int i, uint32_t us, int64_t told, int64_t before)
{
    const char *path = NULL;
    static int64_t durable; /* last step that any child reported since the folder was empty */
    const int64_t good = told > before ? told : before;
    durable = before == 0 ? told : told > durable ? told : durable;
    OK(lathe_zero_grad(run));
    OK(lathe_checkpoint_remove_stale(in(dir, "out")));
    OK(lathe__run_resume(run, &path));
    if (good == 0 && !path)
        return;
    cr_assert_not_null(path, "kill %d after %u us: step %lld is lost", i, us, (long long)good);
    cr_assert_geq(run->at.step, good, "kill %d after %u us: step %lld was durable, %s is used", i,
                  us, (long long)good, path);
    cr_assert_eq(state_of(), expected[run->at.step],
                 "kill %d after %u us: %s is not what was saved", i, us, path);
    const int64_t latest = pointed(dir, "latest");
    if (latest < 0) { /* killed after the first rename, before `latest` was first written */
        cr_assert_eq(durable, 0, "kill %d after %u us: latest is lost, step %lld was durable", i,
                     us, (long long)durable);
        return;
    }
    /* killed between the renames of the checkpoint and of `latest`, the newer one is used */
    cr_assert_leq(latest, run->at.step, "kill %d after %u us: latest names %lld, used is %lld", i,
                  us, (long long)latest, (long long)run->at.step);
}

/* Everything with a checkpoint's name is complete, not only the one that is used. */
static void check_all(int i)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_checkpoint_entry *list = NULL;
    int64_t n = 0;
    OK(lathe_checkpoint_list(in(dir, "out"), &arena, &list, &n));
    for (int64_t k = 0; k < n; k++)
        cr_assert_eq(lathe_manifest_verify(list[k].path), LATHE_OK, "kill %d: %s", i,
                     lathe_error_message());
    lathe_arena_fini(&arena);
    const int64_t best = pointed(dir, "best");
    if (best >= 0)
        OK(lathe_manifest_verify(in(dir, "out/step-%08d", (int)best)));
}

/* Forks from the open run, so that nothing is opened again; kills the child; resumes in this
 * process. */
static int64_t kill_once(int i, uint32_t us, int64_t before)
{
    int tube[2], code = 0;
    cr_assert_eq(pipe(tube), 0);
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        (void)close(tube[0]);
        save_until_killed(i % 2, tube[1]);
    }
    (void)close(tube[1]);
    const struct timespec wait = {.tv_sec = 0, .tv_nsec = (long)us * 1000};
    (void)nanosleep(&wait, NULL);
    cr_assert_eq(kill(child, SIGKILL), 0);
    cr_assert_eq(waitpid(child, &code, 0), child);
    cr_assert(WIFSIGNALED(code) || WEXITSTATUS(code) == 0, "kill %d: the child ended with %d", i,
              WEXITSTATUS(code));
    const int64_t told = last_told(tube[0]);
    (void)close(tube[0]);
    check_kill(i, us, told, before);
    check_all(i);
    return run->at.step;
}

static void open_again(const settings *s)
{
    run = open_run(LATHE_OPEN_TRAIN, s->list);
    OK(lathe__checkpoint_know_plugins(lathe__run_saved(run)));
    OK(lathe_dir_create(in(dir, "out")));
}

/* Microseconds that a step and its save take on this machine. */
static uint32_t save_time(const settings *s)
{
    char path[512];
    open_again(s);
    one_step();
    OK(lathe_checkpoint_write(lathe__run_saved(run), NULL, 1, path, (int64_t)sizeof path));
    const double begin = lathe_now();
    one_step();
    OK(lathe_checkpoint_write(lathe__run_saved(run), NULL, 1, path, (int64_t)sizeof path));
    const double seconds = lathe_now() - begin;
    lathe_run_close(run);
    OK(lathe_dir_remove(in(dir, "out")));
    return (uint32_t)(1e6 * seconds);
}

/* Computes the state after each step, without saving; then goes back to the beginning. */
static void learn_states(const settings *s)
{
    run = open_run(LATHE_OPEN_TRAIN, s->list);
    expected[0] = state_of();
    for (int k = 1; k <= STEPS; k++) {
        one_step();
        expected[k] = state_of();
        for (int j = 0; j < k; j++)
            cr_assert_neq(expected[j], expected[k]);
    }
    lathe_run_close(run);
}

Test(checkpoint_kill, five_hundred_times_nothing_is_lost_and_nothing_torn_is_used, .timeout = 240)
{
    settings s = {.n = 0};
    int64_t at = 0, rounds = 0, caught = 0;
    uint32_t state = 2026;
    /* a killed process leaves the same files in memory as on a disk; a power failure is different,
     * and fsync is for that */
    strcpy(dir,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/lathe-kill-XXXXXX" : "/tmp/lathe-kill-XXXXXX");
    make_folder(dir, 4000);
    configure(&s, dir);
    set(&s, "train.max_steps=%d", STEPS);
    set(&s, "checkpoint.every=1");
    set(&s, "checkpoint.keep_last=2");
    set(&s, "checkpoint.keep_best=1");
    lathe_log_set_sink(keep_log, NULL);
    learn_states(&s);
    const uint32_t us = save_time(&s);
    open_again(&s);
    for (int i = 0; i < KILLS; i++) {
        state = state * 1664525u + 1013904223u;
        const int64_t before = at;
        at = kill_once(i, (state >> 8) % (2 * us), before);
        caught += at < STEPS;
        if (at < STEPS)
            continue;
        rounds++; /* all steps done: start again in an empty folder */
        lathe_run_close(run);
        OK(lathe_dir_remove(in(dir, "out")));
        open_again(&s);
        at = 0;
    }
    printf("%d kills within %u us, %lld of them on the way; the end was reached %lld times\n",
           KILLS, 2 * us, (long long)caught, (long long)rounds);
    cr_assert_geq(caught, KILLS / 2, "most children had ended before they were killed");
    cr_assert_geq(rounds, 1, "no child ever got on");
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}
