/* The wall clock goes back by years, and jumps: checkpoints do not depend on it. Minutes are
 * measured with another clock, which only goes forward. This file replaces clock_gettime and time
 * for the whole process. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include "support/checkpoint_case.h"

/* Seconds by which each reading moves the wall clock back, and the monotonic clock forward. */
static atomic_llong wall_step, n_wall, monotonic_step, n_monotonic;

int clock_gettime(clockid_t clock, struct timespec *out)
{
    const long failed = syscall(SYS_clock_gettime, clock, out);
    if (clock == CLOCK_MONOTONIC)
        out->tv_sec += atomic_load(&monotonic_step) * atomic_fetch_add(&n_monotonic, 1);
    if (clock == CLOCK_REALTIME && atomic_load(&wall_step))
        out->tv_sec -= atomic_load(&wall_step) * atomic_fetch_add(&n_wall, 1);
    return (int)failed;
}

time_t time(time_t *out)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

static char dir[64];

static void make_dir(void)
{
    strcpy(dir, "/tmp/lathe-clock-XXXXXX");
    make_folder(dir, 4000);
}

static void drop_dir(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(checkpoint_clock, .init = make_dir, .fini = drop_dir);

Test(checkpoint_clock, going_backwards_changes_nothing)
{
    settings s = {.n = 0};
    const char *text = NULL;
    lathe_train_result r;
    configure(&s, dir);
    set(&s, "checkpoint.every=1");
    set(&s, "checkpoint.keep_last=2");
    set(&s, "train.stop_after=4");
    atomic_store(&wall_step, 30 * 86400);
    OK(train_once(&s, &r, NULL));
    cr_assert_gt(atomic_load(&n_wall), 3, "the clock was not asked");
    cr_assert_str_eq(steps_in(dir), "3 4");
    cr_assert_eq(pointed(dir, "latest"), 4);
    set(&s, "train.stop_after=6");
    OK(train_once(&s, &r, &text));
    cr_assert(strstr(text, "step-00000004 at step 4"), "%s", text);
    cr_assert_str_eq(steps_in(dir), "5 6");
    atomic_store(&wall_step, 0);
}

Test(checkpoint_clock, minutes_are_of_the_clock_that_only_goes_forward)
{
    settings s = {.n = 0};
    configure(&s, dir);
    set(&s, "checkpoint.every_minutes=60");
    set(&s, "train.stop_after=5");
    OK(train_once(&s, NULL, NULL)); /* no time passes: only the checkpoint at the end */
    cr_assert_str_eq(steps_in(dir), "5");
    OK(lathe_dir_remove(in(dir, "out")));
    set(&s, "checkpoint.every_minutes=0.0000001"); /* each step takes longer than that */
    set(&s, "checkpoint.async=false");
    OK(train_once(&s, NULL, NULL));
    cr_assert_str_eq(steps_in(dir), "1 2 3 4 5");
    OK(lathe_dir_remove(in(dir, "out")));
    set(&s, "checkpoint.every_minutes=60");
    atomic_store(&monotonic_step, 3600); /* every reading is an hour after the last */
    OK(train_once(&s, NULL, NULL));
    atomic_store(&monotonic_step, 0);
    cr_assert_str_eq(steps_in(dir), "1 2 3 4 5");
}
