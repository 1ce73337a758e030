/* Helpers for tests of checkpoints: train a tiny model, and look at the checkpoints that it wrote.
 */
#ifndef LATHE_TEST_CHECKPOINT_CASE_H
#define LATHE_TEST_CHECKPOINT_CASE_H

#include "base/log.h"
#include "base/map.h"
#include "checkpoint/state/checkpoint.h"
#include "files/safetensors/manifest.h"
#include "small_run.h"

/* Warnings of the run, one per line. */
static char logged[16384];

static void keep_log(void *arg, int32_t level, const char *message)
{
    (void)arg;
    if (level < LATHE_LOG_WARN)
        return;
    strncat(logged, message, sizeof logged - strlen(logged) - 1);
    strncat(logged, "\n", sizeof logged - strlen(logged) - 1);
}

/* Sets up six steps of a tiny Llama on one thread, with an evaluation after each step. */
__attribute__((unused)) static void configure(settings *s, const char *dir)
{
    set_llama(s, 1, 16, 2, 1, 24);
    set_data(s, dir);
    set(s, "data.seq_len=16");
    set(s, "data.validation_split=0.1");
    set(s, "data.prefetch=0");
    set(s, "train.precision=fp32");
    set(s, "train.micro_batch_size=2");
    set(s, "train.max_steps=6");
    set(s, "train.eval_every=1");
    set(s, "train.eval_batches=1");
    set(s, "train.threads=1");
    set(s, "optimizer.name=adamw");
    set(s, "optimizer.lr=0.01");
}

/* Opens a run with these settings, trains and closes it. Returns the status of lathe_train; its
 * warnings are in `logged`. *out_text, what it printed, and out_result->checkpoint are valid until
 * the next call. */
__attribute__((unused)) static lathe_status
train_once(const settings *s, lathe_train_result *out_result, const char **out_text)
{
    static char text[16384];
    lathe_train_result r;
    logged[0] = '\0';
    lathe_log_set_sink(keep_log, NULL);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s->list);
    FILE *f = tmpfile();
    cr_assert(f);
    const lathe_train_options options = {.out = f};
    const lathe_status status = lathe_train(run, &options, &r);
    if (out_result) {
        static char path[512];
        *out_result = r;
        snprintf(path, sizeof path, "%s", r.checkpoint ? r.checkpoint : "");
        out_result->checkpoint = r.checkpoint ? path : NULL;
    }
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    if (out_text)
        *out_text = text;
    fclose(f);
    char message[4096];
    snprintf(message, sizeof message, "%s", lathe_error_message());
    lathe_run_close(run);
    if (status != LATHE_OK)
        (void)lathe_error(status, "%s", message);
    return status;
}

/* The steps of the checkpoints in dir/out, such as "1 3 6". */
__attribute__((unused)) static const char *steps_in(const char *dir)
{
    static char text[512];
    char path[256];
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_checkpoint_entry *list = NULL;
    int64_t n = 0;
    snprintf(path, sizeof path, "%s/out", dir);
    OK(lathe_checkpoint_list(path, &arena, &list, &n));
    text[0] = '\0';
    for (int64_t i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i ? " " : "",
                 (long long)list[i].step);
    lathe_arena_fini(&arena);
    return text;
}

/* The step of the checkpoint that a pointer file of dir/out, such as "best", names; -1: there is no
 * such file. */
__attribute__((unused)) static int64_t pointed(const char *dir, const char *pointer)
{
    char path[256];
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *name = NULL;
    int64_t step = -1;
    snprintf(path, sizeof path, "%s/out", dir);
    OK(lathe_checkpoint_pointer(path, pointer, &arena, &name));
    if (name)
        cr_assert(lathe_checkpoint_step(name, &step));
    lathe_arena_fini(&arena);
    return step;
}

/* dir/<formatted path>, valid until the fourth call after this one. */
__attribute__((format(printf, 2, 3), unused)) static const char *in(const char *dir,
                                                                    const char *format, ...)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    va_list args;
    va_start(args, format);
    const int n = snprintf(path, sizeof paths[0], "%s/", dir);
    vsnprintf(path + n, sizeof paths[0] - (size_t)n, format, args);
    va_end(args);
    return path;
}

__attribute__((unused)) static void expect_message(const char *text)
{
    cr_assert(strstr(lathe_error_message(), text), "no '%s' in: %s", text, lathe_error_message());
}

/* Changes one bit of the byte at this place of a file. */
__attribute__((unused)) static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+");
    cr_assert(f && fseek(f, at, SEEK_SET) == 0, "%s", path);
    const int c = fgetc(f);
    cr_assert(c != EOF && fseek(f, at, SEEK_SET) == 0 && fputc(c ^ 4, f) != EOF && fclose(f) == 0);
}

__attribute__((unused)) static void expect_same_file(const char *a, const char *b)
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

#endif
