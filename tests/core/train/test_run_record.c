/* run.json: every start is recorded, earlier starts are kept, and no error in it stops the
 * training. */
#include "base/json/json.h"
#include "base/log.h"
#include "support/small_run.h"

static char dir[] = "/tmp/lathe_record_XXXXXX";
static int warnings;
static char last_warning[1024];

static void keep_warning(void *arg, int32_t level, const char *message)
{
    (void)arg;
    if (level == LATHE_LOG_WARN) {
        warnings++;
        snprintf(last_warning, sizeof last_warning, "%s", message);
    }
}

static void prepare(void)
{
    make_folder(dir, 4096);
    lathe_log_set_sink(keep_warning, NULL);
}

static void clean(void)
{
    lathe_log_set_sink(NULL, NULL);
    OK(lathe_dir_remove(dir));
}

TestSuite(run_record, .init = prepare, .fini = clean);

/* Trains to `stop_after` of 6 steps; 0: to the end. */
static lathe_train_result train(const char *lr, int stop_after)
{
    settings s = {0};
    lathe_train_result result;
    FILE *null = fopen("/dev/null", "w");
    const lathe_train_options options = {.out = null};
    set_llama(&s, 1, 16, 2, 1, 24);
    set_data(&s, dir);
    set(&s, "data.seq_len=16");
    set(&s, "train.max_steps=6");
    set(&s, "train.precision=fp32");
    set(&s, "scheduler.warmup_steps=1");
    set(&s, "optimizer.lr=%s", lr);
    if (stop_after)
        set(&s, "train.stop_after=%d", stop_after);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(lathe_train(run, &options, &result));
    result.checkpoint = NULL; /* in the run's arena */
    lathe_run_close(run);
    fclose(null);
    return result;
}

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/out/%s", dir, name);
    return path;
}

static json_t *record(void)
{
    json_t *root = NULL;
    OK(lathe_json_load_file(in_folder("run.json"), &root));
    return root;
}

static json_t *start(const json_t *root, size_t i)
{
    return json_array_get(json_object_get(root, "lineage"), i);
}

static const char *text(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "(none)";
}

Test(run_record, tells_what_the_run_is)
{
    train("1e-3", 0);
    json_t *root = record();
    const json_t *config = json_object_get(root, "config"), *plan = json_object_get(root, "plan");
    cr_expect_str_eq(text(root, "format"), "lathe-run");
    cr_expect_str_eq(text(root, "lathe"), lathe_version());
    cr_expect_eq(json_integer_value(json_object_get(root, "max_steps")), 6);
    cr_expect_float_eq(json_real_value(json_object_get(json_object_get(config, "optimizer"), "lr")),
                       1e-3, 1e-12);
    /* a key that was not set: the configuration has all values */
    cr_expect_float_eq(
        json_real_value(json_object_get(json_object_get(config, "train"), "max_grad_norm")), 1.0,
        1e-12);
    cr_expect_str_eq(text(json_object_get(root, "precision"), "asked"), "fp32");
    cr_expect_str_eq(text(json_object_get(root, "precision"), "used"), "fp32");
    json_int_t sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(plan, "memory"), key, value) sum +=
        json_integer_value(value);
    cr_expect_gt(sum, 0);
    cr_expect_eq(sum, json_integer_value(json_object_get(plan, "memory_bytes")));
    /* a Llama with untied head: 2 V C + (2 C C + 2 C C/2 + 3 C F + 2 C) + C */
    cr_expect_eq(json_integer_value(json_object_get(json_object_get(root, "model"), "parameters")),
                 2 * 320 * 16 + 2 * 16 * 16 + 16 * 16 + 3 * 16 * 24 + 2 * 16 + 16);
    const json_t *plugins = json_object_get(root, "plugins");
    int n_hashed = 0;
    for (size_t i = 0; i < json_array_size(plugins); i++)
        n_hashed += strlen(text(json_array_get(plugins, i), "sha256")) == 64;
    cr_expect_geq(n_hashed, 6, "%d plugins with a hash", n_hashed);
    cr_expect_eq(n_hashed, (int)json_array_size(plugins));
    json_decref(root);
}

Test(run_record, adds_every_start_with_its_end_and_its_changes)
{
    train("1e-3", 2);
    train("1e-3", 4);
    train("2e-3", 0);
    json_t *root = record();
    cr_assert_eq(json_array_size(json_object_get(root, "lineage")), 3);
    const int steps[] = {0, 2, 4}, ends[] = {2, 4, 6};
    const char *const how[] = {"paused", "paused", "finished"};
    for (size_t i = 0; i < 3; i++) {
        const json_t *s = start(root, i);
        cr_expect_eq(json_integer_value(json_object_get(s, "step")), steps[i]);
        cr_expect_eq(json_integer_value(json_object_get(s, "end_step")), ends[i]);
        cr_expect_eq(json_integer_value(json_object_get(s, "pid")), getpid());
        cr_expect_str_eq(text(s, "end"), how[i]);
        cr_expect_eq(strlen(text(s, "time")), strlen("2026-01-01T00:00:00Z"));
        cr_expect_gt(strlen(text(s, "boot")), 10);
        cr_expect_gt(json_integer_value(json_object_get(s, "start_ticks")), 0);
    }
    cr_expect(json_is_null(json_object_get(start(root, 0), "from")));
    cr_expect_not_null(strstr(text(start(root, 1), "from"), "step-00000002"));
    const json_t *changed = json_object_get(start(root, 2), "changed");
    const json_t *lr = json_object_get(changed, "optimizer.lr");
    cr_expect_float_eq(json_real_value(json_object_get(lr, "from")), 1e-3, 1e-12);
    cr_expect_float_eq(json_real_value(json_object_get(lr, "to")), 2e-3, 1e-12);
    json_decref(root);
}

static void put(const char *name, const char *content)
{
    OK(lathe_file_write_atomic(in_folder(name), content, (int64_t)strlen(content)));
}

Test(run_record, sets_a_damaged_one_aside_and_trains_on)
{
    static const char *const damaged[] = {"{\"format\": \"lathe-run\", \"lin", "[1, 2]",
                                          "{\"mine\": 1}", ""};
    train("1e-3", 1);
    for (int i = 0; i < 4; i++) {
        char aside[64], *kept = NULL;
        int64_t bytes = 0;
        put("run.json", damaged[i]);
        warnings = 0;
        const lathe_train_result result = train("1e-3", i + 2);
        cr_expect_eq(result.step, i + 2);
        cr_expect_eq(warnings, 1, "%d warnings", warnings);
        snprintf(aside, sizeof aside, "run.json.damaged-%d", i + 1);
        cr_expect_not_null(strstr(last_warning, aside), "%s", last_warning);
        OK(lathe_file_read(in_folder(aside), 0, &kept, &bytes));
        cr_expect_str_eq(kept, damaged[i]);
        free(kept);
        json_t *root = record();
        cr_expect_eq(json_array_size(json_object_get(root, "lineage")), 1);
        json_decref(root);
    }
}

Test(run_record, does_not_stop_a_training_that_it_cannot_describe)
{
    char path[256];
    train("1e-3", 1);
    OK(lathe_dir_remove(dir));
    OK(lathe_dir_create(dir));
    snprintf(path, sizeof path, "%s/corpus.txt", dir);
    write_corpus(path, 4096);
    OK(lathe_dir_create(in_folder("run.json"))); /* a folder in place of the file */
    const lathe_train_result result = train("1e-3", 0);
    cr_expect_eq(result.step, 6);
    cr_expect(warnings > 0);
    cr_expect_not_null(strstr(last_warning, "run.json"), "%s", last_warning);
}

Test(run_record, warnings_of_a_run_go_to_its_events)
{
    char *events = NULL;
    int64_t bytes = 0;
    train("1e-3", 1);
    put("run.json", "oops");
    lathe_log(LATHE_LOG_WARN, "before the \"start\"\n<b>");
    lathe_log(LATHE_LOG_INFO, "not this");
    train("1e-3", 2);
    lathe_log(LATHE_LOG_WARN, "after the end");
    OK(lathe_file_read(in_folder("events.jsonl"), 0, &events, &bytes));
    cr_expect_not_null(strstr(events, "\"level\": \"warning\", \"text\": \"before the "
                                      "\\\"start\\\"\\n<b>\"}\n"),
                       "%s", events);
    cr_expect_not_null(strstr(events, "run.json.damaged-1"));
    cr_expect_null(strstr(events, "not this"));
    cr_expect_null(strstr(events, "after the end"));
    free(events);
}
