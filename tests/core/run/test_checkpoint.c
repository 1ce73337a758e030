/* Checkpoints of a run: what is written when, what stays, what is refused and by which name. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/lock.h"
#include "base/map.h"
#include "checkpoint_case.h"
#include "io/safetensors.h"
#include "io/st_writer.h"
#include "record/metrics_read.h"
#include "run/figure_names.h"
#include "run/run_saved.h"
#include "run/save_load.h"

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

static void ignore_row(void *arg, const lathe_metrics_row *row)
{
    (void)arg, (void)row;
}

static void expect_message(const char *text)
{
    cr_assert(strstr(lathe_error_message(), text), "no '%s' in: %s", text, lathe_error_message());
}

static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+");
    cr_assert(f && fseek(f, at, SEEK_SET) == 0, "%s", path);
    const int c = fgetc(f);
    cr_assert(c != EOF && fseek(f, at, SEEK_SET) == 0 && fputc(c ^ 4, f) != EOF && fclose(f) == 0);
}

/* ---- asynchronous is the same ---- */

static void expect_same_file(const char *a, const char *b)
{
    lathe_map x, y;
    OK(lathe_map_open(a, &x));
    OK(lathe_map_open(b, &y));
    cr_assert_eq(x.bytes, y.bytes, "%s and %s: %lld and %lld bytes", a, b, (long long)x.bytes,
                 (long long)y.bytes);
    cr_assert_eq(memcmp(x.data, y.data, (size_t)x.bytes), 0, "%s and %s differ", a, b);
    lathe_map_close(&x);
    lathe_map_close(&y);
}

static void check_async(const char *const *more, const char *weights)
{
    for (int async = 0; async < 2; async++) {
        settings s = {.n = 0};
        configure(&s, dir);
        set_all(&s, more);
        set(&s, "checkpoint.dir=%s/%s", dir, async ? "async" : "sync");
        set(&s, "checkpoint.every=1");
        set(&s, "checkpoint.keep_best=2");
        set(&s, "checkpoint.async=%s", async ? "true" : "false");
        OK(train_once(&s, NULL, NULL));
    }
    for (int step = 1; step <= 6; step++) {
        const char *names[3] = {weights, "state/optimizer.safetensors", "state/run.json"};
        for (int k = 0; k < 3; k++)
            expect_same_file(in(dir, "sync/step-%08d/%s", step, names[k]),
                             in(dir, "async/step-%08d/%s", step, names[k]));
        OK(lathe_manifest_verify(in(dir, "async/step-%08d", step)));
    }
    expect_same_file(in(dir, "sync/latest"), in(dir, "async/latest"));
    expect_same_file(in(dir, "sync/best"), in(dir, "async/best"));
    OK(lathe_dir_remove(in(dir, "sync")));
    OK(lathe_dir_remove(in(dir, "async")));
}

Test(checkpoint, asynchronous_ones_hold_the_same_bits)
{
    check_async((const char *const[]){NULL}, "model.safetensors");
    check_async((const char *const[]){"train.precision=bf16", "optimizer.name=muon", NULL},
                "model.safetensors");
    check_async((const char *const[]){"adapter.name=lora", NULL}, "adapter_model.safetensors");
    check_async((const char *const[]){"adapter.name=lora", "train.precision=bf16", NULL},
                "model.safetensors");
}

Test(checkpoint, the_stall_is_a_figure_of_the_next_step)
{
    settings s = {.n = 0};
    configure(&s, dir);
    char *text = NULL;
    int64_t n = 0;
    set(&s, "checkpoint.every=2");
    OK(train_once(&s, NULL, NULL));
    OK(lathe_file_read(in(dir, "out/metrics.jsonl"), 0, &text, &n));
    int line = 0;
    for (char *at = strtok(text, "\n"); at; at = strtok(NULL, "\n"))
        cr_assert_eq(strstr(at, "\"checkpoint_stall_seconds\": ") != NULL, ++line == 3 || line == 5,
                     "line %d: %s", line, at);
    cr_assert_eq(line, 6);
    free(text);
}

/* ---- when, and what stays ---- */

Test(checkpoint, without_a_period_there_is_one_at_the_end)
{
    settings s = {.n = 0};
    configure(&s, dir);
    lathe_train_result r;
    const char *text = NULL;
    OK(train_once(&s, &r, &text));
    cr_assert_str_eq(steps_in(dir), "6");
    cr_assert(r.checkpoint && strstr(r.checkpoint, "out/step-00000006"), "%s", r.checkpoint);
    cr_assert(strstr(text, "out/step-00000006"), "%s", text);
}

Test(checkpoint, every_so_many_epochs)
{
    settings s = {.n = 0};
    configure(&s, dir);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const int64_t rows = lathe_loader_rows(run->data.loader);
    char want[64];
    lathe_run_close(run);
    const int64_t first = (2 * rows + 1) / 2; /* two rows a step: the step that ends epoch 2 */
    set(&s, "checkpoint.every_epochs=2");
    set(&s, "train.eval_every=0");
    set(&s, "train.max_steps=%lld", (long long)first + 3);
    OK(train_once(&s, NULL, NULL));
    snprintf(want, sizeof want, "%lld %lld", (long long)first, (long long)first + 3);
    cr_assert_str_eq(steps_in(dir), want);
}

Test(checkpoint, the_last_and_the_best_are_kept)
{
    settings s = {.n = 0};
    configure(&s, dir);
    char *text = NULL, want[64];
    int64_t n = 0;
    double loss[7] = {0};
    set(&s, "checkpoint.every=1");
    set(&s, "checkpoint.keep_last=1");
    set(&s, "checkpoint.keep_best=2");
    set(&s, "optimizer.lr=0.3"); /* so high that it does not only fall */
    OK(train_once(&s, NULL, NULL));
    OK(lathe_file_read(in(dir, "out/metrics.jsonl"), 0, &text, &n));
    int step = 0;
    for (char *at = strtok(text, "\n"); at; at = strtok(NULL, "\n"))
        cr_assert_eq(sscanf(strstr(at, "\"eval_loss\""), "\"eval_loss\": %lf", &loss[++step]), 1);
    free(text);
    int first = 1, second = 0;
    for (int i = 2; i <= 6; i++)
        if (loss[i] < loss[first]) {
            second = first;
            first = i;
        } else if (!second || loss[i] < loss[second]) {
            second = i;
        }
    const int a = first < second ? first : second, b = first < second ? second : first;
    if (b == 6)
        snprintf(want, sizeof want, "%d 6", a);
    else
        snprintf(want, sizeof want, "%d %d 6", a, b);
    cr_assert_str_eq(steps_in(dir), want);
    cr_assert_eq(pointed(dir, "best"), first);
    cr_assert_eq(pointed(dir, "latest"), 6);
}

/* Evaluations alone, without a period: those among the best are written, and a resumed run goes on
 * with the list it finds. */
Test(checkpoint, an_evaluation_among_the_best_is_written)
{
    settings s = {.n = 0};
    configure(&s, dir);
    set(&s, "checkpoint.keep_best=1");
    set(&s, "checkpoint.keep_last=1");
    set(&s, "train.stop_after=3");
    OK(train_once(&s, NULL, NULL));
    const int64_t best = pointed(dir, "best");
    cr_assert_geq(best, 1);
    set(&s, "train.stop_after=5");
    set(&s, "optimizer.lr=30"); /* from here on it gets worse */
    OK(train_once(&s, NULL, NULL));
    cr_assert_eq(pointed(dir, "best"), best);
    cr_assert_eq(pointed(dir, "latest"), 5);
}

Test(checkpoint, best_by_a_metric_of_which_there_is_none_is_refused)
{
    settings s = {.n = 0};
    configure(&s, dir);
    set(&s, "checkpoint.keep_best=1");
    set(&s, "data.validation_split=0.0");
    lathe_run *run = NULL;
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    expect_message("checkpoint.keep_best goes by eval_loss, and the run evaluates nothing: set "
                   "data.validation");
}

Test(checkpoint, an_empty_folder_name_is_refused_before_anything_is_trained)
{
    settings s = {.n = 0};
    lathe_run *run = NULL;
    configure(&s, dir);
    set(&s, "checkpoint.dir=");
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    expect_message("--checkpoint.dir: error: checkpoint.dir is empty: the run would train and save "
                   "nothing; expected a folder, such as \"out\"");
}

Test(checkpoint, a_best_metric_that_never_comes_is_refused_with_the_one_that_was_meant)
{
    static const char *const wrong[] = {"eval_losss", "eval_rewards/margins", "grad_norm/heads"};
    static const char *const near[] = {"(did you mean 'eval_loss'?)", "is no figure of this run",
                                       "(did you mean 'grad_norm/head'?)"};
    for (int i = 0; i < 3; i++) {
        settings s = {.n = 0};
        lathe_run *run = NULL;
        configure(&s, dir);
        set(&s, "checkpoint.keep_best=1");
        set(&s, "optimizer.groups=[{name = \"head\", params = [\"lm_head.*\"], lr = 0.1}]");
        set(&s, "checkpoint.best_metric=%s", wrong[i]);
        cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
        expect_message("checkpoint.best_metric = \"");
        expect_message(near[i]);
        set(&s, "checkpoint.best_metric=grad_norm/head");
        OK(open_run_status(LATHE_OPEN_TRAIN, s.list, &run));
        lathe_run_close(run);
    }
}

/* Each figure that a run writes is one that best_metric may name. */
Test(checkpoint, every_figure_in_metrics_jsonl_is_a_name_that_best_metric_takes)
{
    static const char *const precisions[] = {"fp16", "bf16"};
    for (int i = 0; i < 2; i++) {
        settings s = {.n = 0};
        configure(&s, dir);
        set(&s, "train.precision=%s", precisions[i]);
        set(&s, "checkpoint.dir=%s/%s", dir, precisions[i]);
        set(&s, "train.spike_window=2");
        set(&s, "optimizer.groups=[{name = \"a\\\"b\", params = [\"lm_head.*\"], lr = 0.1}]");
        OK(train_once(&s, NULL, NULL));
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        lathe_metrics_reader *reader = NULL;
        OK(lathe_metrics_reader_create(in(dir, "%s/metrics.jsonl", precisions[i]), &reader));
        OK(lathe_metrics_reader_poll(reader, ignore_row, NULL));
        cr_expect_eq(lathe_metrics_reader_bad_lines(reader), 0);
        const int32_t n = lathe_metrics_reader_n_keys(reader);
        cr_expect_geq(n, 25);
        for (int32_t k = 0; k < n; k++)
            cr_expect(lathe__figure_is_known(run, lathe_metrics_reader_key(reader, k)), "%s",
                      lathe_metrics_reader_key(reader, k));
        lathe_metrics_reader_destroy(reader);
        lathe_run_close(run);
    }
}

Test(checkpoint, what_is_read_back_must_be_what_was_written)
{
    settings s = {.n = 0};
    configure(&s, dir);
    OK(train_once(&s, NULL, NULL));
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const char *path = in(dir, "out/step-00000006");
    OK(lathe_load(run, path));
    OK(lathe__checkpoint_read_back(lathe__run_saved(run), path));
    uint32_t bits;
    float *w = lathe_store_master(&run->store, 0);
    memcpy(&bits, &w[5], sizeof bits);
    bits ^= 1;
    memcpy(&w[5], &bits, sizeof bits);
    cr_assert_eq(lathe__checkpoint_read_back(lathe__run_saved(run), path), LATHE_E_CORRUPT);
    expect_message(run->params.rows[0]->name);
    lathe_run_close(run);
}

/* ---- what is refused ---- */

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
    /* the damaged one was replaced on the way */
    OK(lathe_manifest_verify(in(dir, "out/step-00000004")));
    cr_assert_str_eq(steps_in(dir), "2 4 5");
}

/* The optimizer's state of a checkpoint in files of at most `most` bytes. */
static void split_optimizer(const char *folder, int64_t most)
{
    lathe_safetensors *set = NULL;
    lathe_st_writer *w = NULL;
    char *meta = NULL;
    OK(lathe_manifest_meta(folder, &meta));
    OK(lathe_safetensors_open(in(folder, "state/optimizer.safetensors"), &set));
    OK(lathe_st_writer_create(in(folder, "state"), "optimizer", most, &w));
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

/* A large state is in several files, which are read as they are hashed: the same bits come back,
 * and when one file is damaged nothing of any is left. */
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
        int n = 2; /* files */
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

/* Who goes on although nothing could be resumed has no half-read state. */
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

Test(checkpoint, a_pointer_to_nothing_is_told_and_the_newest_is_used)
{
    settings s = {.n = 0};
    configure(&s, dir);
    const char *text = NULL;
    train_four_of_six(&s);
    OK(lathe_checkpoint_point(in(dir, "out"), "latest", "step-00000077"));
    OK(train_once(&s, NULL, &text));
    cr_assert(strstr(logged, "names step-00000077, which is not there"), "%s", logged);
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
    expect_message("none of its checkpoints is whole");
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
    set(&s, "checkpoint.resume=%s/out", dir); /* the folder stands for its latest */
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
    cr_assert_eq(waitpid(child, NULL, 0), child); /* its number is free now */
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
        return; /* root may write anywhere */
    OK(lathe_dir_create(in(dir, "closed")));
    cr_assert_eq(chmod(in(dir, "closed"), 0500), 0);
    set(&s, "checkpoint.dir=%s/closed", dir);
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    expect_message("closed cannot be written");
}

/* A limit on the size of files stands for a full disk: the same path, another errno. */
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
    expect_message("out/step-00000005.tmp.");
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
