/* Tests why a stored teacher is refused, when it is used and when it is made. */
#include "support/stored_case.h"

TestSuite(stored_refusals, .init = setup, .fini = teardown);

static void expect_refused(settings *s, const char *const *parts)
{
    lathe_run *run = NULL;
    set(s, "train.max_steps=1");
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s->list, &run), LATHE_E_CONFIG);
    expect_parts(parts);
}

static void set_stored(settings *s)
{
    set_student(s, "out");
    set(s, "teacher.stored=%s", in_folder("stored"));
}

Test(stored_refusals, beside_a_teacher_is_refused)
{
    static const char *const parts[] = {"teacher.path and teacher.stored are both set", NULL};
    settings s = {.n = 0};
    make_teacher();
    (void)store_k("stored", 4);
    set_stored(&s);
    set(&s, "teacher.path=%s", in_folder("teacher/step-00000001"));
    expect_refused(&s, parts);
}

Test(stored_refusals, of_other_data_is_refused)
{
    static const char *const parts[] = {"teacher.stored", "made of other data", "data.datasets",
                                        "lathe logprobs", NULL};
    settings s = {.n = 0};
    make_teacher();
    (void)store_k("stored", 4);
    write_examples("train.jsonl", 17);
    set_stored(&s);
    expect_refused(&s, parts);
}

Test(stored_refusals, of_another_tokenizer_or_vocabulary_is_refused)
{
    static const char *const vocabulary[] = {"made of the first 320 tokens", "the model has 300",
                                             NULL};
    static const char *const tokenizer[] = {"made with another tokenizer", NULL};
    settings s = {.n = 0}, t = {.n = 0};
    make_teacher();
    (void)store_k("stored", 4);
    set_stored(&s);
    set(&s, "model.vocab_size=300");
    expect_refused(&s, vocabulary);
    set_stored(&t);
    for (int i = 0; i < t.n; i++)
        if (strcmp(t.list[i], "tokenizer.path=bytes") == 0)
            snprintf(t.text[i], sizeof t.text[i], "tokenizer.train={vocab_size = 300}");
    expect_refused(&t, tokenizer);
}

Test(stored_refusals, with_another_temperature_is_refused_where_it_is_unknown)
{
    static const char *const parts[] = {"temperature is 2", "made with temperature 1",
                                        "--temperature 2", NULL};
    static const char *const tail[] = {"add_tail has no meaning", "teacher.stored", NULL};
    settings s = {.n = 0}, t = {.n = 0};
    make_teacher();
    (void)store_k("stored", 4);
    set_stored(&s);
    set(&s, "stage.temperature=2");
    expect_refused(&s, parts);
    set_student(&t, "out");
    set(&t, "teacher.path=%s", in_folder("teacher/step-00000001"));
    set(&t, "stage.add_tail=true");
    expect_refused(&t, tail);
}

Test(stored_refusals, up_to_fewer_tokens_than_a_row_is_refused)
{
    static const char *const parts[] = {"made with data.seq_len = 48", "example 16 has ",
                                        "data.seq_len is 64", NULL};
    settings s = {.n = 0};
    make_teacher();
    (void)store_k("stored", 4);
    set_stored(&s);
    for (int i = 0; i < s.n; i++)
        if (strcmp(s.list[i], "data.seq_len=48") == 0)
            snprintf(s.text[i], sizeof s.text[i], "data.seq_len=64");
    expect_refused(&s, parts);
}

Test(stored_refusals, a_stage_that_needs_no_teacher_says_that_it_is_idle)
{
    settings s = {.n = 0};
    lathe_run *run = NULL;
    make_teacher();
    (void)store_k("stored", 4);
    set_run(&s, "sft", "out");
    set_llama(&s, 1, 32, 2, 2, 64);
    set(&s, "teacher.stored=%s", in_folder("stored"));
    set(&s, "train.max_steps=1");
    run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_expect_null(run->stored);
    lathe_run_close(run);
}

Test(stored_refusals, damaged_folders_are_refused)
{
    static const char *const flipped[] = {"teacher.stored", "datasets-00000.logprobs", "checksum",
                                          NULL};
    static const char *const cut[] = {"teacher.stored", "datasets-00000.logprobs", NULL};
    static const char *const other[] = {"teacher.stored", "no log-probabilities", NULL};
    settings s = {.n = 0}, t = {.n = 0}, u = {.n = 0}, v = {.n = 0};
    char *data = NULL;
    int64_t n = 0;
    make_teacher();
    (void)store_k("stored", 4);
    OK(lathe_file_read(in_folder("stored/datasets-00000.logprobs"), 0, &data, &n));
    data[300] ^= 4;
    OK(lathe_file_write_atomic(in_folder("stored/datasets-00000.logprobs"), data, n));
    set_stored(&s);
    expect_refused(&s, flipped);
    data[300] ^= 4;
    OK(lathe_file_write_atomic(in_folder("stored/datasets-00000.logprobs"), data, n - 8));
    set_stored(&t);
    expect_refused(&t, cut);
    cr_assert_eq(remove(in_folder("stored/datasets-00000.logprobs")), 0);
    set_stored(&u);
    expect_refused(&u, cut);
    set_student(&v, "out");
    set(&v, "teacher.stored=%s", in_folder("teacher/step-00000001"));
    expect_refused(&v, other);
    free(data);
}

static void expect_not_stored(settings *s, const char *to, const making *how,
                              const char *const *parts)
{
    lathe_stored out;
    cr_expect_eq(store_status(s, to, how, &out), LATHE_E_CONFIG, "%s", lathe_error_message());
    expect_parts(parts);
}

Test(stored_refusals, making_refuses_what_it_cannot_make)
{
    static const char *const large[] = {"--top-k is 321", "320 tokens", NULL};
    static const char *const stage[] = {"stage \"sft\" does not learn from stored",
                                        "stage.name = \"distill\" and teacher.path", NULL};
    static const char *const alone[] = {"teacher.path is missing", "lathe logprobs runs", NULL};
    static const char *const foreign[] = {"has other files", "notes.txt", NULL};
    static const char *const changed[] = {"datasets-00000.logprobs", "with other settings",
                                          "--output", NULL};
    settings s = {.n = 0}, t = {.n = 0}, u = {.n = 0}, v = {.n = 0}, w = {.n = 0};
    const making too_many = {.k = V + 1}, four = {.k = 4}, five = {.k = 5};
    make_teacher();
    set_student(&s, "unused");
    expect_not_stored(&s, "a", &too_many, large);
    set_run(&t, "sft", "unused");
    set_llama(&t, 1, 32, 2, 2, 64);
    expect_not_stored(&t, "a", &four, stage);
    set_run(&w, "distill", "unused");
    set_llama(&w, 1, 32, 2, 2, 64);
    lathe_override list[MAX_SETTINGS];
    lathe_run *run = NULL;
    const int n = split(w.list, list);
    cr_expect_eq(open_to_store(list, n, 4, 1.0, &run), LATHE_E_CONFIG);
    expect_parts(alone);
    OK(lathe_dir_create(in_folder("b")));
    OK(lathe_file_write_atomic(in_folder("b/notes.txt"), "mine", 4));
    set_student(&u, "unused");
    expect_not_stored(&u, "b", &four, foreign);
    (void)store_k("c", 4);
    set_student(&v, "unused");
    expect_not_stored(&v, "c", &five, changed);
    cr_expect(lathe_path_exists(in_folder("c/manifest.json")), "a refused call changes nothing");
}

/* Both lists of data are stored, so both are checked where the run file names them. */
Test(stored_refusals, making_checks_the_data_to_train_on_beside_those_to_evaluate_on)
{
    static const char *const where[] = {"--data.datasets: error: ", "no column", NULL};
    static const char wrong[] = "{\"one\": \"a\", \"two\": \"b\"}\n";
    const making four = {.k = 4};
    settings s = {.n = 0};
    make_teacher();
    OK(lathe_file_write_atomic(in_folder("wrong.jsonl"), wrong, (int64_t)strlen(wrong)));
    set_student(&s, "unused");
    set(&s, "data.validation=[{path = \"%s\"}]", in_folder("train.jsonl"));
    set(&s, "data.datasets=[{path = \"%s\"}]", in_folder("wrong.jsonl"));
    expect_not_stored(&s, "a", &four, where);
}

/* Rows that the prompts alone fill leave nothing to learn, for making as for training. */
Test(stored_refusals, data_without_a_target_are_refused_as_in_training)
{
    static const char *const none[] = {
        "the data has no rows for training: 0 examples of 16, 16 left out because their prompt "
        "alone fills 8 tokens",
        "set data.seq_len higher", NULL};
    settings s = {.n = 0}, t = {.n = 0};
    const making four = {.k = 4};
    lathe_run *run = NULL;
    make_teacher();
    set_student(&s, "unused");
    set(&s, "data.seq_len=8");
    expect_not_stored(&s, "none", &four, none);
    cr_expect_not(lathe_path_exists(in_folder("none")));
    set_run(&t, "sft", "unused");
    set_llama(&t, 1, 32, 2, 2, 64);
    set(&t, "train.max_steps=1");
    set(&t, "data.seq_len=8");
    cr_expect_eq(open_run_status(LATHE_OPEN_TRAIN, t.list, &run), LATHE_E_CONFIG);
    expect_parts((const char *const[]){none[0], NULL});
}
