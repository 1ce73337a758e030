/* A failure at every write, fsync, rename, mkdir, open, close, read and map, and at every place
 * that allocates memory, one after another, of a save and of a load, on the training thread and on
 * the writer's: a clean error, the previous checkpoint complete and pointed to, no temporary file,
 * no memory leaked. */
#include <errno.h>

#include "base/hash.h"
#include "checkpoint/state/checkpoint_writer.h"
#include "run/state/run_saved.h"
#include "support/checkpoint_case.h"
#include "support/inject.h"
#include "train/training.h"

enum { SYNC, ASYNC };

static char dir[64];
static lathe_run *run;
static lathe_writer *writer;

static void swallow(void *arg, int32_t level, const char *message)
{
    (void)arg, (void)level, (void)message;
}

static lathe_figures figures_of(double eval_loss)
{
    lathe_figures f = {.n = 0};
    lathe__figures_add(&f, "eval_loss", eval_loss);
    return f;
}

/* A step, which changes every weight. */
static void one_step(void)
{
    for (int32_t k = 0; k < run->set.gradient_accumulation_steps; k++) {
        lathe_forward_result f = {.size = (uint32_t)sizeof f};
        OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
        OK(lathe_backward(run, NULL));
    }
    OK(lathe_step(run, NULL));
}

static lathe_status save(int how, int32_t gate, double eval_loss)
{
    char path[512];
    const lathe_figures f = figures_of(eval_loss);
    if (how == SYNC)
        return lathe_checkpoint_write(lathe__run_saved(run), &f, gate, path, (int64_t)sizeof path);
    cr_assert_eq(lathe_image_take(run->checkpoints.image, lathe__run_saved(run)), LATHE_OK);
    lathe_writer_post(writer, &f, gate);
    return lathe_writer_wait(writer, NULL);
}

/* Step 1 is saved as the best so far; the run is at step 2. */
static void setup(void)
{
    settings s = {.n = 0};
    if (inject_unsupported())
        cr_skip("%s", inject_unsupported());
    /* in memory if possible: every case syncs a dozen files */
    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/lathe-faults-XXXXXX"
                                              : "/tmp/lathe-faults-XXXXXX");
    make_folder(dir, 4000);
    configure(&s, dir);
    set(&s, "checkpoint.every=1");
    set(&s, "checkpoint.keep_last=1");
    set(&s, "checkpoint.keep_best=1");
    run = open_run(LATHE_OPEN_TRAIN, s.list);
    lathe_log_set_sink(swallow, NULL);
    OK(lathe__checkpoint_know_plugins(lathe__run_saved(run)));
    OK(lathe_writer_create(run->checkpoints.image, &writer));
    OK(lathe_writer_wait(writer, NULL));
    OK(lathe_dir_create(in(dir, "out")));
    one_step();
    OK(save(SYNC, 1, 1.0));
    one_step();
}

static void teardown(void)
{
    inject_disarm();
    lathe_writer_destroy(writer);
    lathe_run_close(run);
    if (dir[0])
        OK(lathe_dir_remove(dir));
}

TestSuite(checkpoint_faults, .init = setup, .fini = teardown, .timeout = 600);

static int leftovers(void)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char **names = NULL;
    int64_t n = 0;
    int found = 0;
    OK(lathe_dir_list(in(dir, "out"), &arena, &names, &n));
    for (int64_t i = 0; i < n; i++)
        found += strstr(names[i], ".tmp.") != NULL;
    lathe_arena_fini(&arena);
    return found;
}

/* Checks what must hold after any save, failed or not, and after a following one. */
static void check_folder(lathe_status status, const char *call)
{
    const int64_t latest = pointed(dir, "latest");
    cr_assert(latest == 1 || latest == 2, "%s: latest names step %lld", call, (long long)latest);
    cr_assert(status != LATHE_OK || latest == 2, "%s: no error, and latest is the old one", call);
    OK(lathe_manifest_verify(in(dir, "out/step-%08d", (int)latest)));
    cr_assert_eq(lathe_manifest_verify(in(dir, "out/step-00000001")), LATHE_OK, "%s: %s", call,
                 lathe_error_message());
    cr_assert_eq(pointed(dir, "best"), 1, "%s: a worse one is called the best", call);
    if (lathe_path_is_dir(in(dir, "out/step-00000002")))
        cr_assert_eq(lathe_manifest_verify(in(dir, "out/step-00000002")), LATHE_OK, "%s: %s", call,
                     lathe_error_message());
    OK(lathe_checkpoint_point(in(dir, "out"), "latest", "step-00000001"));
    OK(lathe_dir_remove(in(dir, "out/step-00000002")));
}

static void begin_count(uint32_t calls)
{
    if (calls == INJECT_MALLOC)
        inject_arm_places(calls);
    else
        inject_arm(calls, 0, 0, 0);
}

static int64_t count_calls(int how, int32_t gate, uint32_t calls)
{
    begin_count(calls);
    const lathe_status status = save(how, gate, 2.0);
    const int64_t n = inject_disarm();
    OK(status);
    check_folder(LATHE_OK, "nothing failed");
    return n;
}

/* Writes the numbers of the calls that shall fail to out: for allocations, of which there are
 * thousands, the first and the last from each place; of others, all n. */
static int64_t calls_to_fail(uint32_t calls, int64_t n, int64_t *out)
{
    if (calls == INJECT_MALLOC)
        return inject_places(out);
    for (int64_t i = 0; i < n; i++)
        out[i] = i + 1;
    return n;
}

static void fail_one(int how, int32_t gate, uint32_t calls, int64_t nth, int error)
{
    char message[1024], call[128];
    inject_arm(calls, nth, 1, error);
    const lathe_status status = save(how, gate, 2.0);
    inject_disarm();
    snprintf(message, sizeof message, "%s", lathe_error_message());
    snprintf(call, sizeof call, "%s", inject_last());
    if (status != LATHE_OK && calls != INJECT_MALLOC) {
        cr_assert(strstr(message, dir) && strstr(message, strerror(error)),
                  "%s: the message names no file or no cause: %s", call, message);
        cr_assert_eq(leftovers(), 0, "%s: something half-written stays", call);
    }
    if (status != LATHE_OK && calls == INJECT_MALLOC)
        cr_assert(status == LATHE_E_NOMEM, "%s: status %d: %s", call, status, message);
    check_folder(status, call);
}

static void fail_each(int how, int32_t gate, uint32_t calls, int error)
{
    const int64_t n_calls = count_calls(how, gate, calls);
    int64_t *numbers = malloc((size_t)n_calls * sizeof *numbers), n_failed = 0;
    cr_assert(numbers && n_calls > 10);
    const int64_t n = calls_to_fail(calls, n_calls, numbers);
    fail_one(how, gate, calls, 1, error); /* the first error allocates some memory permanently */
    const int64_t live = inject_live_blocks();
    for (int64_t i = 0; i < n; i++) {
        fail_one(how, gate, calls, numbers[i], error);
        n_failed += inject_failed();
        cr_assert_leq(inject_live_blocks(), live, "%s: %lld blocks lost", inject_last(),
                      (long long)(inject_live_blocks() - live));
    }
    printf("%s%s: %lld calls, %lld of them failed in turn\n",
           how == ASYNC ? "asynchronous" : "save", gate ? ", read back" : "", (long long)n_calls,
           (long long)n_failed);
    free(numbers);
    cr_assert_eq(n_failed, n);
}

Test(checkpoint_faults, every_call_on_the_disk_of_a_save)
{
    fail_each(SYNC, 0, INJECT_DISK, ENOSPC);
}

Test(checkpoint_faults, every_call_on_the_disk_of_an_asynchronous_save_that_is_read_back)
{
    fail_each(ASYNC, 1, INJECT_DISK | INJECT_READ | INJECT_MAP, EIO);
}

Test(checkpoint_faults, every_allocation_of_a_save)
{
    fail_each(SYNC, 0, INJECT_MALLOC, ENOMEM);
}

Test(checkpoint_faults, every_allocation_of_an_asynchronous_save_that_is_read_back)
{
    fail_each(ASYNC, 1, INJECT_MALLOC, ENOMEM);
}

/* A disk that stays full from the nth call on: nothing can be cleaned up by writing, and nothing
 * needs to be. */
Test(checkpoint_faults, a_disk_that_stays_full)
{
    const int64_t n = count_calls(SYNC, 0, INJECT_DISK & ~(uint32_t)INJECT_OPEN);
    for (int64_t i = 1; i <= n; i++) {
        inject_arm(INJECT_DISK & ~(uint32_t)INJECT_OPEN, i, INT64_MAX, ENOSPC);
        const lathe_status status = save(SYNC, 0, 2.0);
        inject_disarm();
        /* one of the last calls closes a folder that was only synced; its result is ignored */
        cr_assert(status == LATHE_E_IO || inject_last_set() == INJECT_CLOSE, "%s: %d",
                  inject_last(), status);
        check_folder(status, inject_last());
    }
}

/* ---- loading ---- */

/* Hash of the state. */
static uint64_t state_of(void)
{
    uint64_t h = lathe_hash64(run->store.masters, run->store.master_bytes);
    h = h * 31 + lathe_hash64(run->store.slots, run->store.slot_bytes);
    return h * 31 + lathe_hash64(&run->at, (int64_t)sizeof run->at);
}

static void fail_loads(uint32_t calls, int error)
{
    const uint64_t ahead = state_of();
    OK(save(SYNC, 0, 2.0));
    begin_count(calls);
    OK(lathe_load(run, in(dir, "out/step-00000001")));
    const int64_t n_calls = inject_disarm();
    const uint64_t behind = state_of();
    int64_t *numbers = malloc((size_t)n_calls * sizeof *numbers), live = 0;
    cr_assert(ahead != behind && numbers && n_calls > 10);
    const int64_t n = calls_to_fail(calls, n_calls, numbers);
    for (int64_t i = 0; i < n; i++) {
        OK(lathe_load(run, in(dir, "out/step-00000002")));
        cr_assert_eq(state_of(), ahead);
        inject_arm(calls, numbers[i], 1, error);
        const lathe_status status = lathe_load(run, in(dir, "out/step-00000001"));
        inject_disarm();
        cr_assert_eq(inject_failed(), 1, "call %lld did not come", (long long)numbers[i]);
        if (status == LATHE_OK) /* a library ignored the failure: the load must be complete */
            cr_assert(calls == INJECT_MALLOC && state_of() == behind, "%s: nobody noticed",
                      inject_last());
        else if (calls != INJECT_MALLOC) {
            cr_assert(strstr(lathe_error_message(), dir), "%s: %s", inject_last(),
                      lathe_error_message());
            cr_assert_eq(state_of(), ahead, "%s: the state changed", inject_last());
        }
        live = i == 0 ? inject_live_blocks() : live;
        cr_assert_leq(inject_live_blocks(), live, "%s: %lld blocks lost", inject_last(),
                      (long long)(inject_live_blocks() - live));
        OK(lathe_load(run, in(dir, "out/step-00000001")));
        cr_assert_eq(state_of(), behind, "%s: a load after it is not whole", inject_last());
    }
    printf("load: %lld calls, %lld of them failed in turn\n", (long long)n_calls, (long long)n);
    free(numbers);
}

Test(checkpoint_faults, every_open_read_and_map_of_a_load)
{
    fail_loads(INJECT_LOAD, EIO);
}

Test(checkpoint_faults, every_allocation_of_a_load)
{
    fail_loads(INJECT_MALLOC, ENOMEM);
}
