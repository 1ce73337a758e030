/* Resuming: a damaged checkpoint is named and the previous one is used; locks, remains of dead
 * processes, and folders and disks that cannot be written. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/lock.h"
#include "files/safetensors/safetensors.h"
#include "files/safetensors/st_writer.h"
#include "run/api/save_load.h"
#include "support/checkpoint_case.h"

static char dir[64];

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/lathe-checkpoint-XXXXXX");
    make_folder(dir, 4000);
}

static void drop_dir(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(checkpoint, .init = make_dir, .fini = drop_dir);

static void train_four_of_six(settings *s)
{
    set(s, "checkpoint.every=2");
    set(s, "train.stop_after=4");
    OK(train_once(s, NULL, NULL));
    set(s, "train.stop_after=5");
}

Test(checkpoint, a_flipped_latest_is_named_and_the_one_before_is_used)
{
    settings s = {.n = 0};
    configure(&s, dir);
    const char *text = NULL;
    train_four_of_six(&s);
    flip(in(dir, "out/step-00000004/model.safetensors"), 1000);
    OK(train_once(&s, NULL, &text));
    cr_assert(strstr(logged, "out/step-00000004/model.safetensors"), "%s", logged);
    cr_assert(strstr(text, "resumed from") && strstr(text, "step-00000002 at step 2"), "%s", text);
    /* the run has replaced the damaged one */
    OK(lathe_manifest_verify(in(dir, "out/step-00000004")));
    cr_assert_str_eq(steps_in(dir), "2 4 5");
}

/* Splits the optimizer's state of a checkpoint into files of at most `most` bytes. */
static void split_optimizer(const char *folder, int64_t max)
{
    lathe_safetensors *set = NULL;
    lathe_st_writer *w = NULL;
    char *meta = NULL;
    OK(lathe_manifest_meta(folder, &meta));
    OK(lathe_safetensors_open(in(folder, "state/optimizer.safetensors"), &set));
    OK(lathe_st_writer_create(in(folder, "state"), "optimizer", max, &w));
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++)
        OK(lathe_st_writer_add(w, lathe_safetensors_at(set, i)->name,
                               &lathe_safetensors_at(set, i)->desc));
    OK(lathe_st_writer_begin(w));
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, i);
        OK(lathe_st_writer_write(w, i, 0, t->data, lathe_desc_bytes(&t->desc)));
    }
    OK(lathe_st_writer_finish(w));
    lathe_st_writer_destroy(w);
    lathe_safetensors_close(set);
    OK(lathe_manifest_write(folder, meta));
    free(meta);
    cr_assert(lathe_path_exists(in(folder, "state/optimizer.safetensors.index.json")));
    cr_assert_not(lathe_path_exists(in(folder, "state/optimizer.safetensors")));
}

#define SECOND "out/step-00000004/state/optimizer-00002-of-%05d.safetensors"

/* A large state has several files, which are read while they are hashed: the same bits are
 * restored, and if one file is damaged no part of any is kept. */
Test(checkpoint, state_in_several_files_resumes_to_the_same_bits)
{
    settings s = {.n = 0};
    configure(&s, dir);
    const char *text = NULL;
    train_four_of_six(&s);
    OK(train_once(&s, NULL, NULL));
    cr_assert_eq(rename(in(dir, "out/step-00000005"), in(dir, "whole")), 0);
    for (int damaged = 0; damaged < 2; damaged++) {
        OK(lathe_dir_remove(in(dir, "out")));
        train_four_of_six(&s);
        split_optimizer(in(dir, "out/step-00000002"), 3000);
        split_optimizer(in(dir, "out/step-00000004"), 4000);
        int n = 2; /* number of files */
        while (n < 99 && !lathe_path_exists(in(dir, SECOND, n)))
            n++;
        if (damaged)
            flip(in(dir, SECOND, n), 1500);
        OK(train_once(&s, NULL, &text));
        cr_assert(strstr(text, damaged ? "at step 2" : "at step 4"), "%s", text);
        cr_assert_eq(strstr(logged, "safetensors: its content changed") != NULL, damaged, "%s",
                     logged);
        expect_same_file(in(dir, "whole/model.safetensors"),
                         in(dir, "out/step-00000005/model.safetensors"));
        expect_same_file(in(dir, "whole/state/optimizer.safetensors"),
                         in(dir, "out/step-00000005/state/optimizer.safetensors"));
    }
}

/* A caller that continues although nothing could be resumed must not see a partly read state. */
Test(checkpoint, a_state_that_does_not_verify_leaves_nothing_in_the_run)
{
    settings s = {.n = 0};
    configure(&s, dir);
    train_four_of_six(&s);
    flip(in(dir, "out/step-00000002/model.safetensors"), 1000);
    flip(in(dir, "out/step-00000004/state/optimizer.safetensors"), 3000);
    const char *from = NULL;
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_assert_eq(lathe__run_resume(run, &from), LATHE_E_CORRUPT);
    cr_assert_gt(run->store.slot_bytes, 0);
    for (int64_t i = 0; i < run->store.slot_bytes; i++)
        cr_assert_eq(run->store.slots[i], 0, "byte %lld", (long long)i);
    lathe_run_close(run);
}

Test(checkpoint, a_missing_file_is_named_and_the_one_before_is_used)
{
    settings s = {.n = 0};
    configure(&s, dir);
    const char *text = NULL;
    train_four_of_six(&s);
    cr_assert_eq(unlink(in(dir, "out/step-00000004/state/optimizer.safetensors")), 0);
    OK(train_once(&s, NULL, &text));
    cr_assert(strstr(logged, "state/optimizer.safetensors: missing"), "%s", logged);
    cr_assert(strstr(text, "at step 2"), "%s", text);
}

Test(checkpoint, a_pointer_to_a_missing_checkpoint_is_reported_and_the_newest_is_used)
{
    settings s = {.n = 0};
    configure(&s, dir);
    const char *text = NULL;
    train_four_of_six(&s);
    OK(lathe_checkpoint_point(in(dir, "out"), "latest", "step-00000077"));
    OK(train_once(&s, NULL, &text));
    cr_assert(strstr(logged, "names step-00000077, which does not exist"), "%s", logged);
    cr_assert(strstr(text, "at step 4"), "%s", text);
}

Test(checkpoint, when_none_is_whole_the_run_does_not_begin_anew)
{
    settings s = {.n = 0};
    configure(&s, dir);
    train_four_of_six(&s);
    flip(in(dir, "out/step-00000004/manifest.json"), 100);
    flip(in(dir, "out/step-00000002/config.json"), 10);
    cr_assert_eq(train_once(&s, NULL, NULL), LATHE_E_CORRUPT);
    expect_message("all of its checkpoints are damaged");
    cr_assert(strstr(logged, "step-00000002/config.json"), "%s", logged);
}

Test(checkpoint, a_path_is_resumed_from_and_later_ones_make_way)
{
    settings s = {.n = 0};
    configure(&s, dir);
    const char *text = NULL;
    train_four_of_six(&s);
    struct stat before, after;
    cr_assert_eq(stat(in(dir, "out/step-00000004"), &before), 0);
    set(&s, "checkpoint.resume=%s/out/step-00000002", dir);
    OK(train_once(&s, NULL, &text));
    cr_assert(strstr(text, "at step 2"), "%s", text);
    cr_assert_eq(stat(in(dir, "out/step-00000004"), &after), 0);
    cr_assert_neq(before.st_ino, after.st_ino, "step 4 was not written anew");
    set(&s, "checkpoint.resume=%s/out", dir); /* the folder means its latest checkpoint */
    set(&s, "train.stop_after=6");
    OK(train_once(&s, NULL, &text));
    cr_assert(strstr(text, "step-00000005 at step 5"), "%s", text);
}

Test(checkpoint, a_second_run_in_the_folder_is_refused_by_process_and_host)
{
    settings s = {.n = 0};
    configure(&s, dir);
    lathe_lock lock;
    char host[128], who[200];
    OK(lathe_dir_create(in(dir, "out")));
    OK(lathe_lock_take(in(dir, "out/lock"), &lock));
    lathe_run *run = NULL;
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    cr_assert_eq(gethostname(host, sizeof host), 0);
    snprintf(who, sizeof who, "process %ld on %s", (long)getpid(), host);
    expect_message(who);
    expect_message("choose another checkpoint.dir");
    lathe_lock_release(&lock);
    OK(train_once(&s, NULL, NULL));
}

Test(checkpoint, the_lock_of_a_dead_process_is_no_obstacle)
{
    settings s = {.n = 0};
    configure(&s, dir);
    OK(lathe_dir_create(in(dir, "out")));
    const pid_t child = fork();
    if (child == 0) {
        lathe_lock lock;
        _exit(lathe_lock_take(in(dir, "out/lock"), &lock) != LATHE_OK);
    }
    int code = -1;
    cr_assert_eq(waitpid(child, &code, 0), child);
    cr_assert_eq(code, 0);
    struct stat info;
    cr_assert(stat(in(dir, "out/lock"), &info) == 0 && info.st_size > 0, "it left its name");
    OK(train_once(&s, NULL, NULL));
}

Test(checkpoint, what_dead_processes_were_writing_is_removed)
{
    settings s = {.n = 0};
    configure(&s, dir);
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    cr_assert_eq(waitpid(child, NULL, 0), child); /* its process id is free now */
    OK(lathe_dir_create(in(dir, "out/step-00000001.tmp.%ld/state", (long)child)));
    OK(lathe_dir_create(in(dir, "out/step-00000002.tmp.%ld", (long)getppid())));
    OK(lathe_file_write_atomic(in(dir, "out/latest.tmp.%ld", (long)child), "x", 1));
    OK(train_once(&s, NULL, NULL));
    cr_assert_not(lathe_path_exists(in(dir, "out/step-00000001.tmp.%ld", (long)child)));
    cr_assert_not(lathe_path_exists(in(dir, "out/latest.tmp.%ld", (long)child)));
    cr_assert(lathe_path_exists(in(dir, "out/step-00000002.tmp.%ld", (long)getppid())));
}

Test(checkpoint, a_folder_that_cannot_be_written_is_refused_before_the_first_step)
{
    settings s = {.n = 0};
    configure(&s, dir);
    set(&s, "checkpoint.dir=%s/corpus.txt/out", dir);
    lathe_run *run = NULL;
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    expect_message("corpus.txt is a file, expected a folder");
    if (geteuid() == 0)
        return; /* root can write everywhere */
    OK(lathe_dir_create(in(dir, "closed")));
    cr_assert_eq(chmod(in(dir, "closed"), 0500), 0);
    set(&s, "checkpoint.dir=%s/closed", dir);
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    expect_message("closed cannot be written");
}

/* A limit on file sizes replaces a full disk: the same code path with another errno. */
static void check_full(const char *async)
{
    settings s = {.n = 0};
    configure(&s, dir);
    lathe_train_result r;
    struct rlimit was, tight;
    set(&s, "checkpoint.async=%s", async);
    train_four_of_six(&s);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &was), 0);
    tight = was;
    tight.rlim_cur = 8192;
    cr_assert_neq(signal(SIGXFSZ, SIG_IGN), SIG_ERR);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &tight), 0);
    set(&s, "train.stop_after=6");
    set(&s, "checkpoint.every=1");
    const lathe_status status = train_once(&s, &r, NULL);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &was), 0);
    cr_assert_eq(status, LATHE_E_IO, "%s", lathe_error_message());
    expect_message("a checkpoint was not written");
    expect_message("out/step-00000005/");
    expect_message("safetensors");
    expect_message("the newest whole one is");
    expect_message("out/step-00000004");
    cr_assert_str_eq(steps_in(dir), "2 4");
    cr_assert_not(lathe_path_exists(in(dir, "out/step-00000005.tmp.%ld", (long)getpid())));
    OK(train_once(&s, &r, NULL));
    cr_assert_eq(r.step, 6);
    OK(lathe_dir_remove(in(dir, "out")));
}

Test(checkpoint, a_save_that_fails_ends_the_run_and_leaves_the_one_before)
{
    check_full("false");
    check_full("true");
}
