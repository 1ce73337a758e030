/* state/ of a checkpoint: the middle of a step, older versions, other precisions, damaged entries.
 */
#include "files/safetensors/manifest.h"
#include "support/small_run.h"

static char dir[64];

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/lathe-state-XXXXXX");
    make_folder(dir, 4000);
}

static void drop_dir(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(train_state, .init = make_dir, .fini = drop_dir);

static lathe_run *open_small(const char *precision)
{
    settings s = {.n = 0};
    set_llama(&s, 1, 16, 2, 1, 32);
    set_data(&s, dir);
    set(&s, "data.seq_len=16");
    set(&s, "train.precision=%s", precision);
    set(&s, "train.micro_batch_size=2");
    set(&s, "train.gradient_accumulation_steps=2");
    set(&s, "train.max_steps=20");
    return open_run(LATHE_OPEN_TRAIN, s.list);
}

static void micro(lathe_run *run)
{
    lathe_forward_result f = {.size = sizeof f};
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
}

static void step(lathe_run *run)
{
    micro(run);
    micro(run);
    OK(lathe_step(run, NULL));
}

/* Replaces `from` by `to` in the state's run.json and updates the manifest. */
static void edit(const char *checkpoint, const char *from, const char *to)
{
    char path[256], *text = NULL;
    int64_t bytes = 0;
    snprintf(path, sizeof path, "%s/state/run.json", checkpoint);
    OK(lathe_file_read(path, 0, &text, &bytes));
    const char *at = strstr(text, from);
    cr_assert(at, "no '%s' in %s", from, text);
    FILE *f = fopen(path, "w");
    fwrite(text, 1, (size_t)(at - text), f);
    fputs(to, f);
    fputs(at + strlen(from), f);
    fclose(f);
    free(text);
    OK(lathe_manifest_write(checkpoint, "{}"));
}

static void expect_refusal(const char *precision, const char *checkpoint, lathe_status code,
                           const char *text)
{
    lathe_run *run = open_small(precision);
    const float before = lathe_store_master(&run->store, 0)[0];
    cr_expect_eq(lathe_load(run, checkpoint), code, "%s", lathe_error_message());
    cr_expect(strstr(lathe_error_message(), text), "no '%s' in: %s", text, lathe_error_message());
    cr_expect(strstr(lathe_error_message(), "run.json") || strstr(text, "gradients"), "%s",
              lathe_error_message());
    cr_expect_eq(run->at.step, 0);
    cr_expect_eq(lathe_store_master(&run->store, 0)[0], before);
    lathe_run_close(run);
}

static const char *checkpoint_of(const char *precision, const char *name, int in_the_middle)
{
    static char path[128];
    lathe_run *run = open_small(precision);
    step(run);
    step(run);
    if (in_the_middle)
        micro(run);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(lathe_save(run, path));
    lathe_run_close(run);
    return path;
}

Test(train_state, is_not_saved_between_forward_and_backward)
{
    char path[128];
    lathe_forward_result f = {.size = sizeof f};
    lathe_run *run = open_small("fp32");
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
    snprintf(path, sizeof path, "%s/early", dir);
    cr_assert_eq(lathe_save(run, path), LATHE_E_STATE);
    cr_assert(strstr(lathe_error_message(), "between a forward and its backward"), "%s",
              lathe_error_message());
    cr_assert(!lathe_path_exists(path));
    OK(lathe_backward(run, NULL));
    OK(lathe_save(run, path));
    lathe_run_close(run);
}

Test(train_state, comes_with_the_precision_in_the_manifest)
{
    char path[256], *text = NULL;
    int64_t bytes = 0;
    snprintf(path, sizeof path, "%s/manifest.json", checkpoint_of("fp8", "fallen", 0));
    OK(lathe_file_read(path, 0, &text, &bytes));
    cr_assert(strstr(text, "\"precision\": {\"asked\": \"fp8\", \"used\": \"bf16\"}"), "%s", text);
    free(text);
}

Test(train_state, of_version_1_is_read)
{
    const char *path = checkpoint_of("fp16", "one", 0);
    edit(path, "\"version\": 2", "\"version\": 1");
    edit(path, "\"skipped\"", "\"forgotten\"");
    edit(path, "\"scaler\"", "\"no_scaler\"");
    edit(path, "\"accumulated\"", "\"no_sums\"");
    edit(path, "\"precision\"", "\"no_precision\"");
    edit(path, "\"loss_spikes\"", "\"no_spikes\"");
    lathe_run *run = open_small("fp16");
    OK(lathe_load(run, path));
    cr_assert_eq(run->at.step, 2);
    cr_assert_eq(run->at.skipped, 0);
    cr_assert_eq(run->at.scaler.scale, 1024.0f);
    cr_assert_eq(run->sum.backwards, 0);
    cr_assert_eq(run->at.spike.n_accepted, 0);
    step(run);
    lathe_run_close(run);
}

Test(train_state, of_a_later_version_is_refused)
{
    const char *path = checkpoint_of("fp32", "later", 0);
    edit(path, "\"version\": 2", "\"version\": 3");
    expect_refusal("fp32", path, LATHE_E_UNSUPPORTED, "is of version 3, this Lathe reads 1 to 2");
}

Test(train_state, goes_on_in_another_precision_between_steps_only)
{
    const char *path = checkpoint_of("fp16", "whole", 0);
    lathe_run *run = open_small("bf16");
    OK(lathe_load(run, path));
    cr_assert_eq(run->at.step, 2);
    cr_assert_eq(run->at.scaler.scale, 1.0f);
    step(run);
    lathe_run_close(run);
    path = checkpoint_of("fp16", "middle", 1);
    expect_refusal("bf16", path, LATHE_E_CONFIG,
                   "was written in fp16 in the middle of a step, the run computes in bf16");
}

Test(train_state, with_a_bad_entry_is_refused_by_its_name)
{
    static const struct {
        const char *from, *to, *text;
    } rows[] = {
        {"\"skipped\": 0", "\"skipped\": 3", "'skipped' is 3, expected 0 to 2"},
        {"\"skipped\": 0", "\"skipped\": -1", "'skipped' is -1"},
        {"\"skipped_in_row\": 0", "\"skipped_in_row\": 1",
         "'skipped_in_row' is 1, expected 0 to 0"},
        {"\"scale\": \"4090000000000000\"", "\"scale\": \"7ff0000000000000\"",
         "'scale' is inf, expected a positive number"},
        {"\"scale\": \"4090000000000000\"", "\"scale\": \"0\"", "'scale' holds a bad number"},
        {"\"n_good\": 2", "\"n_good\": \"2\"", "'n_good' is no integer"},
        {"\"backwards\": 0", "\"backwards\": 5000000000", "'backwards' is 5000000000"},
        {"\"sums\": [", "\"sums\": [\"0\", ", "'sums' wants"},
        {"\"precision\"", "\"decision\"", "'precision' is missing"},
        {"\"seen\": 0", "\"seen\": -1", "'seen' is -1"},
        {"\"losses\": [", "\"looses\": [", "'losses' must be a list of at most 1024"},
        {"\"losses\": []", "\"losses\": [\"7ff0000000000000\"]", "'losses' holds inf"},
        {"\"losses\": []", "\"losses\": [\"0\"]", "'losses' holds a bad number"},
    };
    char name[16];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(name, sizeof name, "bad-%zu", i);
        const char *path = checkpoint_of("fp16", name, 0);
        edit(path, rows[i].from, rows[i].to);
        expect_refusal("fp16", path, LATHE_E_CORRUPT, rows[i].text);
    }
}

Test(train_state, without_the_gradients_it_counts_is_refused)
{
    char file[160];
    const char *path = checkpoint_of("fp32", "torn", 1);
    snprintf(file, sizeof file, "%s/state/gradients.safetensors", path);
    cr_assert(lathe_path_exists(file));
    cr_assert_eq(remove(file), 0);
    OK(lathe_manifest_write(path, "{}"));
    lathe_run *run = open_small("fp32");
    cr_assert_neq(lathe_load(run, path), LATHE_OK);
    cr_assert(strstr(lathe_error_message(), "gradients.safetensors"), "%s", lathe_error_message());
    cr_assert_eq(run->at.step, 0);
    lathe_run_close(run);
}
