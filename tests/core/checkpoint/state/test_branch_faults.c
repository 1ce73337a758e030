/* Going back to an earlier checkpoint, interrupted at each of its disk operations in turn: the next
 * start continues from that checkpoint or from where the run was before, and no checkpoint is lost
 * or assigned to the wrong branch. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "checkpoint/state/checkpoint_branch.h"
#include "run/api/save_load.h"
#include "run/state/run_saved.h"
#include "support/checkpoint_case.h"
#include "support/inject.h"
#include "train/training.h"

enum { STEPS = 4, BACK = 2 };

static char dir[64];
static lathe_run *run;

static void swallow(void *arg, int32_t level, const char *message)
{
    (void)arg, (void)level, (void)message;
}

static void save_step(int64_t step)
{
    char path[512];
    lathe_figures f = {.n = 0};
    lathe_forward_result r = {.size = (uint32_t)sizeof r};
    lathe__figures_add(&f, "eval_loss", 1.0 / (double)step); /* the newest is the best */
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &r));
    OK(lathe_backward(run, NULL));
    OK(lathe_step(run, NULL));
    OK(lathe_checkpoint_write(lathe__run_saved(run), &f, 0, path, (int64_t)sizeof path));
}

static void setup(void)
{
    settings s = {.n = 0};
    if (inject_unsupported())
        cr_skip("%s", inject_unsupported());
    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/lathe-branch-XXXXXX"
                                              : "/tmp/lathe-branch-XXXXXX");
    make_folder(dir, 4000);
    configure(&s, dir);
    set(&s, "checkpoint.keep_best=1");
    set(&s, "checkpoint.gate=false");
    set(&s, "train.max_steps=100");
    run = open_run(LATHE_OPEN_TRAIN, s.list);
    lathe_log_set_sink(swallow, NULL);
    OK(lathe_dir_create(in(dir, "out")));
    for (int64_t step = 1; step <= STEPS; step++)
        save_step(step);
    FILE *f = fopen(in(dir, "out/metrics.jsonl"), "w");
    for (int step = 1; step <= STEPS; step++)
        fprintf(f, "{\"step\": %d, \"loss\": 1}\n", step);
    cr_assert_eq(fclose(f), 0);
}

static void teardown(void)
{
    inject_disarm();
    lathe_run_close(run);
    if (dir[0])
        OK(lathe_dir_remove(dir));
}

TestSuite(branch_faults, .init = setup, .fini = teardown, .timeout = 600);

static int64_t n_in(const char *path)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_checkpoint_entry *list = NULL;
    int64_t n = 0;
    if (lathe_path_is_dir(path))
        OK(lathe_checkpoint_list(path, &arena, &list, &n));
    lathe_arena_fini(&arena);
    return n;
}

/* Restores the folder from before the run went back. */
static void restore(void)
{
    char name[32];
    for (int step = BACK + 1; step <= STEPS; step++) {
        snprintf(name, sizeof name, "step-%08d", step);
        if (lathe_path_is_dir(in(dir, "out/abandoned/branch-1/%s", name)))
            cr_assert_eq(
                rename(in(dir, "out/abandoned/branch-1/%s", name), in(dir, "out/%s", name)), 0);
    }
    OK(lathe_dir_remove(in(dir, "out/abandoned")));
    (void)unlink(in(dir, "out/branches.json"));
    OK(lathe_checkpoint_point(in(dir, "out"), "latest", name));
    OK(lathe_checkpoint_point(in(dir, "out"), "best", name));
    OK(lathe_checkpoint_remove_stale(in(dir, "out")));
    run->checkpoints.branch.json = NULL;
    run->checkpoints.branch.number = run->checkpoints.branch.began = 0;
}

static lathe_status go_back(void)
{
    run->at.step = BACK;
    return lathe_branch_begin(lathe__run_saved(run), in(dir, "out/step-%08d", BACK), 0);
}

/* Checks that the branch is complete: two checkpoints are compared, two are in abandoned/. */
static void expect_branch(const char *call)
{
    cr_assert_eq(n_in(in(dir, "out")), BACK, "%s", call);
    cr_assert_eq(n_in(in(dir, "out/abandoned/branch-1")), STEPS - BACK, "%s", call);
    cr_assert_eq(n_in(in(dir, "out/abandoned/branch-2")), 0, "%s", call);
    cr_assert_eq(pointed(dir, "latest"), BACK, "%s", call);
    cr_assert_eq(pointed(dir, "best"), BACK, "%s", call);
    char *lines = NULL;
    int64_t bytes = 0;
    OK(lathe_file_read(in(dir, "out/abandoned/branch-1/metrics.jsonl"), 0, &lines, &bytes));
    cr_assert_str_eq(lines, "{\"step\": 3, \"loss\": 1}\n{\"step\": 4, \"loss\": 1}\n");
    free(lines);
}

/* Checks what the next start finds; first with resume = "auto", then by going back once more as the
 * user wanted. */
static void start_again(const char *call)
{
    const char *path = NULL;
    cr_assert_eq(n_in(in(dir, "out")) + n_in(in(dir, "out/abandoned/branch-1")), STEPS,
                 "%s: a checkpoint is lost", call);
    OK(lathe_checkpoint_remove_stale(in(dir, "out")));
    OK(lathe_zero_grad(run));
    OK(lathe__run_resume(run, &path));
    cr_assert(path && (run->at.step == BACK || run->at.step == STEPS), "%s: resumed %s", call,
              path);
    OK(lathe_branch_begin(lathe__run_saved(run), path, 0));
    if (run->at.step == STEPS) {
        cr_assert_eq(n_in(in(dir, "out")), STEPS, "%s: two branches are mixed", call);
        cr_assert_eq(n_in(in(dir, "out/abandoned/branch-1")), 0, "%s", call);
        OK(go_back());
    }
    expect_branch(call);
}

static void cut_off_at_each(uint32_t calls, int error, int64_t every)
{
    char call[128];
    inject_arm(calls, 0, 0, 0);
    const lathe_status status = go_back();
    const int64_t n = inject_disarm();
    OK(status);
    expect_branch("nothing failed");
    cr_assert_gt(n, 10);
    for (int64_t i = 1; i <= n; i += every) {
        restore();
        inject_arm(calls, i, 1, error);
        const lathe_status failed = go_back();
        inject_disarm();
        snprintf(call, sizeof call, "%s, call %lld of %lld: %d", inject_last(), (long long)i,
                 (long long)n, (int)failed);
        start_again(call);
    }
    printf("going back: of %lld calls every %lld. failed in turn\n", (long long)n,
           (long long)every);
}

Test(branch_faults, cut_off_at_any_call_on_the_disk_the_next_start_finishes_it)
{
    cut_off_at_each(INJECT_DISK | INJECT_REMOVE | INJECT_READ, EIO, 1);
}

Test(branch_faults, without_memory_at_any_allocation_the_next_start_finishes_it)
{
    cut_off_at_each(INJECT_MALLOC, ENOMEM, 7);
}

/* Kills the process with kill -9 at moments spread over the time that going back takes. */
Test(branch_faults, killed_while_it_goes_back_the_next_start_finishes_it)
{
    enum { KILLS = 60 };
    const double begin = lathe_now();
    OK(go_back());
    const double seconds = lathe_now() - begin;
    for (int i = 0; i < KILLS; i++) {
        char call[64];
        int code = 0;
        restore();
        const pid_t child = fork();
        cr_assert_geq(child, 0);
        if (child == 0) {
            (void)go_back();
            _exit(0);
        }
        const struct timespec wait = {.tv_nsec = (long)(1.5e9 * seconds * i / KILLS)};
        (void)nanosleep(&wait, NULL);
        (void)kill(child, SIGKILL);
        cr_assert_eq(waitpid(child, &code, 0), child);
        snprintf(call, sizeof call, "kill %d", i);
        start_again(call);
    }
}
