/* A run that goes back: newer checkpoints are no longer compared, and the two branches are never
 * mixed. */
#include "base/json/json.h"

#include "checkpoint/state/checkpoint_branch.h"
#include "metrics/metrics_read.h"
#include "run/api/save_load.h"
#include "run/state/run_saved.h"
#include "support/checkpoint_case.h"

static char dir[64];

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/lathe-branch-XXXXXX");
    make_folder(dir, 4000);
}

static void drop_dir(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(checkpoint_branch, .init = make_dir, .fini = drop_dir, .timeout = 60);

/* "3 4": the steps in out/abandoned/branch-K. */
static const char *abandoned(int64_t number)
{
    static char text[512];
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_checkpoint_entry *list = NULL;
    int64_t n = 0;
    OK(lathe_branch_abandoned(in(dir, "out"), number, &arena, &list, &n));
    text[0] = '\0';
    for (int64_t i = 0; i < n; i++) {
        OK(lathe_manifest_verify(list[i].path));
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i ? " " : "",
                 (long long)list[i].step);
    }
    lathe_arena_fini(&arena);
    return text;
}

static void note_step(void *arg, const lathe_metrics_row *row)
{
    char *text = arg;
    if (row)
        snprintf(text + strlen(text), 256 - strlen(text), "%s%lld", text[0] ? " " : "",
                 (long long)row->step);
}

/* "1 2 3": the steps of the lines in a metrics.jsonl. */
static const char *lines_in(const char *path)
{
    static char text[256];
    lathe_metrics_reader *reader = NULL;
    text[0] = '\0';
    OK(lathe_metrics_reader_create(path, &reader));
    OK(lathe_metrics_reader_poll(reader, note_step, text));
    cr_expect_eq(lathe_metrics_reader_bad_lines(reader), 0);
    lathe_metrics_reader_destroy(reader);
    return text;
}

/* Checkpoints of steps 1 to 6. */
static void six_steps(settings *s)
{
    configure(s, dir);
    set(s, "checkpoint.every=1");
    set(s, "checkpoint.keep_best=1");
    set(s, "checkpoint.best_metric=step_seconds");
    set(s, "checkpoint.gate=false");
    OK(train_once(s, NULL, NULL));
    cr_assert_str_eq(steps_in(dir), "1 2 3 4 5 6");
}

/* Makes the checkpoint of a step the best. */
static void call_best(int step)
{
    char name[32];
    snprintf(name, sizeof name, "step-%08d", step);
    OK(lathe_checkpoint_point(in(dir, "out"), "best", name));
}

static json_t *json_of(const char *path)
{
    json_t *root = NULL;
    OK(lathe_json_load_file(path, &root));
    return root;
}

Test(checkpoint_branch, what_is_newer_leaves_the_competition_when_a_run_goes_back)
{
    settings s = {.n = 0};
    const char *text = NULL;
    six_steps(&s);
    call_best(5);
    settings back = s;
    set(&back, "checkpoint.resume=%s/out/step-00000002", dir);
    set(&back, "checkpoint.keep_last=2");
    set(&back, "optimizer.lr=0.02");
    set(&back, "train.stop_after=4");
    OK(train_once(&back, NULL, &text));
    cr_expect(strstr(text, "step-00000002 at step 2"), "%s", text);
    cr_expect(strstr(logged, "the run continues from step 2 as branch 1: 4 checkpoints of the "
                             "branch before (step-00000003 to step-00000006) moved to"),
              "%s", logged);
    cr_expect_str_eq(abandoned(1), "3 4 5 6");
    cr_expect_eq(pointed(dir, "latest"), 4);
    cr_expect_leq(pointed(dir, "best"), 4);
    const char *left = steps_in(dir); /* the two newest, and the best of this branch */
    cr_expect(strstr(left, "3 4"), "%s", left);
    cr_expect_str_eq(lines_in(in(dir, "out/metrics.jsonl")), "1 2 3 4");
    cr_expect_str_eq(lines_in(in(dir, "out/abandoned/branch-1/metrics.jsonl")), "3 4 5 6");
    /* auto continues this branch, not the newer steps of the other one */
    set(&s, "optimizer.lr=0.02");
    OK(train_once(&s, NULL, &text));
    cr_expect(strstr(text, "step-00000004 at step 4"), "%s", text);
    cr_expect_eq(pointed(dir, "latest"), 6);
}

Test(checkpoint_branch, manifests_and_the_lineage_name_the_branch_and_what_was_moved)
{
    settings s = {.n = 0};
    six_steps(&s);
    settings back = s;
    set(&back, "checkpoint.resume=%s/out/step-00000004", dir);
    OK(train_once(&back, NULL, NULL));
    char *meta = NULL;
    OK(lathe_manifest_meta(in(dir, "out/step-00000006"), &meta));
    json_t *root = json_loads(meta, 0, NULL);
    free(meta);
    const json_t *branch = json_array_get(json_object_get(root, "branches"), 0);
    cr_expect_eq(json_integer_value(json_object_get(branch, "number")), 1);
    cr_expect_eq(json_integer_value(json_object_get(branch, "step")), 4);
    cr_expect_str_eq(json_string_value(json_object_get(branch, "from")), "step-00000004");
    cr_expect_str_eq(json_string_value(json_object_get(branch, "why")), "resume");
    const json_t *names = json_object_get(branch, "abandoned");
    cr_expect_eq(json_array_size(names), 2);
    cr_expect_str_eq(json_string_value(json_array_get(names, 1)), "step-00000006");
    json_decref(root);
    root = json_of(in(dir, "out/run.json"));
    const json_t *starts = json_object_get(root, "lineage");
    cr_expect_eq(json_array_size(starts), 2);
    const json_t *first = json_array_get(starts, 0), *second = json_array_get(starts, 1);
    cr_expect_eq(json_integer_value(json_object_get(first, "branch")), 0);
    cr_expect_eq(json_integer_value(json_object_get(second, "branch")), 1);
    cr_expect_eq(json_array_size(json_object_get(second, "abandoned")), 2);
    json_decref(root);
}

Test(checkpoint_branch, plain_resuming_begins_none)
{
    settings s = {.n = 0};
    configure(&s, dir);
    set(&s, "checkpoint.every=2");
    set(&s, "train.stop_after=4");
    OK(train_once(&s, NULL, NULL));
    set(&s, "train.stop_after=6");
    OK(train_once(&s, NULL, NULL));
    cr_expect_not(lathe_path_exists(in(dir, "out/branches.json")));
    cr_expect_not(lathe_path_exists(in(dir, "out/abandoned")));
    cr_expect_str_eq(lines_in(in(dir, "out/metrics.jsonl")), "1 2 3 4 5 6");
}

Test(checkpoint_branch, a_run_may_go_back_to_what_it_abandoned)
{
    settings s = {.n = 0};
    six_steps(&s);
    settings back = s;
    set(&back, "checkpoint.resume=%s/out/step-00000003", dir);
    set(&back, "train.stop_after=5");
    OK(train_once(&back, NULL, NULL)); /* branch 1: 4 and 5; abandoned: 4, 5, 6 */
    settings again = s;
    const char *text = NULL;
    set(&again, "checkpoint.resume=%s/out/abandoned/branch-1/step-00000005", dir);
    OK(train_once(&again, NULL, &text));
    cr_expect(strstr(text, "at step 5"), "%s", text);
    cr_expect_str_eq(steps_in(dir), "1 2 3 6"); /* the common steps, and the new one */
    cr_expect_str_eq(abandoned(1), "4 5 6");
    cr_expect_str_eq(abandoned(2), "4 5");
    cr_expect_eq(pointed(dir, "latest"), 6);
}

Test(checkpoint_branch, from_another_folder_nothing_of_this_one_stays)
{
    settings s = {.n = 0}, other;
    six_steps(&s);
    configure(&(settings){.n = 0}, dir);
    other = s;
    set(&other, "checkpoint.dir=%s/other", dir);
    set(&other, "train.stop_after=3");
    OK(train_once(&other, NULL, NULL));
    set(&s, "checkpoint.resume=%s/other/step-00000002", dir);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const char *path = NULL;
    OK(lathe__run_resume(run, &path));
    OK(lathe_branch_begin(lathe__run_saved(run), path, 0));
    lathe_run_close(run); /* then the process was killed */
    cr_expect_str_eq(steps_in(dir), "");
    cr_expect_str_eq(abandoned(1), "1 2 3 4 5 6");
    cr_expect_eq(pointed(dir, "latest"), -1);
    set(&s, "checkpoint.resume=auto");
    const char *text = NULL;
    OK(train_once(&s, NULL, &text));
    cr_expect(strstr(text, "other/step-00000002 at step 2"), "%s", text);
    cr_expect_str_eq(steps_in(dir), "3 4 5 6");
}

Test(checkpoint_branch, a_damaged_latest_is_set_aside_and_not_overwritten)
{
    settings s = {.n = 0};
    const char *text = NULL;
    six_steps(&s);
    FILE *f = fopen(in(dir, "out/step-00000006/model.safetensors"), "r+");
    cr_assert(f && fseek(f, -3, SEEK_END) == 0 && fputc('x', f) != EOF && fclose(f) == 0);
    OK(train_once(&s, NULL, &text));
    cr_expect(strstr(text, "step-00000005 at step 5"), "%s", text);
    cr_expect_str_eq(steps_in(dir), "1 2 3 4 5 6");
    OK(lathe_manifest_verify(in(dir, "out/step-00000006")));
    cr_expect_eq(lathe_manifest_verify(in(dir, "out/abandoned/branch-1/step-00000006")),
                 LATHE_E_CORRUPT);
}

Test(checkpoint_branch, a_folder_with_checkpoints_is_no_place_for_a_new_run)
{
    settings s = {.n = 0};
    six_steps(&s);
    OK(lathe_dir_remove(in(dir, "out/step-00000006")));
    cr_assert_eq(unlink(in(dir, "out/latest")), 0);
    set(&s, "checkpoint.resume=never");
    lathe_run *run = NULL;
    cr_expect_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    expect_parts((const char *const[]){"holds the checkpoints of a run already", NULL});
}
