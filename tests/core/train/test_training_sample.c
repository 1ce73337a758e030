/* Samples in training: they do not change it, continue correctly after a resume, and errors name
 * them. */
#include "support/small_run.h"

static void set_sampling(settings *s, const char *dir)
{
    set_data(s, dir);
    set_llama(s, 2, 32, 2, 2, 64);
    set(s, "train.max_steps=12");
    set(s, "train.micro_batch_size=2");
    set(s, "data.seq_len=80"); /* a chunk of the prompt at once, then token by token */
    set(s, "generate.prompt=the wheel turns and a thread is cut while the oil drips down on it");
    set(s, "generate.max_new_tokens=8");
}

static lathe_status train(const settings *s, lathe_run **out)
{
    lathe_train_result result;
    const lathe_train_options options = {.out = fopen("/dev/null", "w")};
    *out = open_run(LATHE_OPEN_TRAIN, s->list);
    const lathe_status status = lathe_train(*out, &options, &result);
    fclose(options.out);
    return status;
}

static char *samples_of(const char *dir)
{
    char path[128], *text = NULL;
    int64_t n;
    snprintf(path, sizeof path, "%s/out/samples.jsonl", dir);
    OK(lathe_file_read(path, 0, &text, &n));
    return text;
}

/* With every precision and with dropout, whose counter must not change. */
static void check_unchanged(const char *precision, const char *adapter)
{
    char plain[] = "/tmp/lathe_sample_XXXXXX", sampled[] = "/tmp/lathe_sample_XXXXXX";
    settings a = {.n = 0}, b = {.n = 0};
    lathe_run *x, *y;
    make_folder(plain, 6000);
    make_folder(sampled, 6000);
    set_sampling(&a, plain);
    set_sampling(&b, sampled);
    settings *const both[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        set(both[i], "train.precision=%s", precision);
        set(both[i], "adapter.name=%s", adapter);
        if (strcmp(adapter, "lora") == 0)
            set(both[i], "adapter.dropout=0.2");
    }
    set(&b, "generate.every=3");
    OK(train(&a, &x));
    OK(train(&b, &y));
    for (int32_t i = 0; i < x->store.n_rows; i++)
        if (x->params.rows[i]->trainable)
            cr_assert_eq(memcmp(lathe_store_master(&x->store, i), lathe_store_master(&y->store, i),
                                (size_t)lathe_desc_count(&x->params.rows[i]->desc) * 4),
                         0, "%s, %s: %s", precision, adapter, x->params.rows[i]->name);
    cr_expect_eq(memcmp(&x->at.cursor, &y->at.cursor, sizeof x->at.cursor), 0);
    cr_expect_eq(x->at.micro, y->at.micro);
    char *text = samples_of(sampled);
    int lines = 0;
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    cr_expect_eq(lines, 4, "%s", text);
    cr_expect_eq(strncmp(text, "{\"step\": 3, \"prompt\": \"the wheel", 30), 0, "%s", text);
    free(text);
    lathe_run_close(x);
    lathe_run_close(y);
    OK(lathe_dir_remove(plain));
    OK(lathe_dir_remove(sampled));
}

Test(training_sample, changes_no_bit_of_the_training)
{
    check_unchanged("fp32", "full");
    check_unchanged("bf16", "full");
    check_unchanged("bf16", "lora");
}

Test(training_sample, a_resumed_run_writes_what_a_whole_one_does)
{
    char dir[] = "/tmp/lathe_sample_XXXXXX";
    settings s = {.n = 0};
    lathe_run *run;
    make_folder(dir, 6000);
    set_sampling(&s, dir);
    set(&s, "generate.every=3");
    set(&s, "checkpoint.every=4");
    OK(train(&s, &run));
    lathe_run_close(run);
    char *whole = samples_of(dir);
    set(&s, "checkpoint.resume=%s/out/step-00000008", dir); /* samples of 3 and 6 exist */
    OK(train(&s, &run));
    lathe_run_close(run);
    char *again = samples_of(dir);
    cr_expect_str_eq(again, whole);
    free(whole);
    free(again);
    OK(lathe_dir_remove(dir));
}

Test(training_sample, a_prompt_too_long_is_refused_before_the_first_step)
{
    char dir[] = "/tmp/lathe_sample_XXXXXX";
    settings s = {.n = 0};
    lathe_run *run = NULL;
    make_folder(dir, 6000);
    set_sampling(&s, dir);
    set(&s, "generate.every=3");
    set(&s, "data.seq_len=40");
    cr_expect_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "generate.every"), "%s",
                       lathe_error_message());
    cr_expect_not_null(strstr(lathe_error_message(), "the context holds 40"), "%s",
                       lathe_error_message());
    OK(lathe_dir_remove(dir));
}

Test(training_sample, a_full_disk_names_file_and_step)
{
    char dir[] = "/tmp/lathe_sample_XXXXXX", path[128];
    settings s = {.n = 0};
    lathe_run *run;
    if (access("/dev/full", W_OK) != 0)
        cr_skip_test("no /dev/full here");
    make_folder(dir, 6000);
    set_sampling(&s, dir);
    set(&s, "generate.every=3");
    snprintf(path, sizeof path, "%s/out", dir);
    OK(lathe_dir_create(path));
    snprintf(path, sizeof path, "%s/out/samples.jsonl", dir);
    cr_assert_eq(symlink("/dev/full", path), 0);
    cr_expect_eq(train(&s, &run), LATHE_E_IO);
    cr_expect_not_null(strstr(lathe_error_message(), "samples.jsonl"));
    cr_expect_not_null(strstr(lathe_error_message(), "of step 3: No space left on device"), "%s",
                       lathe_error_message());
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}
