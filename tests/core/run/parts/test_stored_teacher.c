/* The stored teacher: what lathe logprobs makes, the loss against the teacher itself, packing,
 * resuming, interrupted calls, a device with memory of its own. */
#include "support/padded_models.h"
#include "support/stored_case.h"

TestSuite(stored_teacher, .init = setup, .fini = teardown);

/* Both have the same numbers up to f32 rounding of the sums over the vocabulary. */
static void expect_close(const outcome *a, const outcome *b)
{
    cr_expect_float_eq(a->loss, b->loss, 2e-6 * fabs(b->loss), "%.9g %.9g", a->loss, b->loss);
    cr_expect_float_eq(a->cross_entropy, b->cross_entropy, 1e-6 * fabs(b->cross_entropy));
    cr_expect_float_eq(a->divergence, b->divergence, 4e-6 * fabs(b->divergence), "%.9g %.9g",
                       a->divergence, b->divergence);
    compare("gradient", a->gradient, b->gradient, a->n, 1e-5);
}

static void whole_vocabulary(const char *const *stage, double temperature)
{
    settings s = {.n = 0}, t = {.n = 0};
    const making how = {.k = V, .temperature = temperature};
    make_teacher();
    (void)store("stored", &how);
    set_student(&s, "a");
    set_all(&s, stage);
    set(&s, "teacher.path=%s", in_folder("teacher/step-00000001"));
    set_student(&t, "b");
    set_all(&t, stage);
    set(&t, "teacher.stored=%s", in_folder("stored"));
    outcome want = first_batches(&s, 5), got = first_batches(&t, 5);
    cr_expect_gt(want.divergence, 0.0);
    expect_close(&got, &want);
    free(want.gradient);
    free(got.gradient);
}

Test(stored_teacher, of_the_whole_vocabulary_gives_the_forward_divergence_of_the_teacher)
{
    static const char *const stage[] = {"stage.temperature=2", NULL};
    whole_vocabulary(stage, 2.0);
}

Test(stored_teacher, of_the_whole_vocabulary_gives_the_other_divergences_of_the_teacher)
{
    static const char *const reverse[] = {"stage.divergence=reverse", NULL};
    whole_vocabulary(reverse, 1.0);
}

/* Stores all tokens that the model and a teacher of another number of rows have, of one tokenizer,
 * without a rest, and compares with the teacher in the run. */
static void check_padded(const char *padded, const char *teacher, int n_common)
{
    lathe_stored made;
    settings of_teacher = {.n = 0}, stored = {.n = 0}, storing = {.n = 0};
    settings *const all[] = {&of_teacher, &stored, &storing};
    const making how = {.k = n_common};
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", padded, teacher);
    for (int i = 0; i < 3; i++) {
        set_run(all[i], "distill", "a");
        set(all[i], "tokenizer.path=");
        set(all[i], "model.path=%s/model", padded);
    }
    OK(store_status_of(&storing, path, "padded", &how, &made));
    set(&of_teacher, "teacher.path=%s", path);
    set(&stored, "teacher.stored=%s", in_folder("padded"));
    set(&stored, "stage.add_tail=false");
    outcome want = first_batches(&of_teacher, 5), got = first_batches(&stored, 5);
    cr_expect_gt(want.divergence, 0.0);
    if (n_common ==
        128) /* else the rows that the teacher lacks are in the policy's softmax alone */
        expect_close(&got, &want);
    free(want.gradient);
    free(got.gradient);
}

Test(stored_teacher, of_a_teacher_with_other_rows_has_the_tokens_that_both_have)
{
    char padded[] = "/tmp/lathe_padded_XXXXXX";
    padded_models_make(padded, "llama_tied");
    write_examples("train.jsonl", 16);
    check_padded(padded, "more", 128);
    OK(lathe_dir_remove(in_folder("padded")));
    check_padded(padded, "fewer", 100);
    (void)lathe_dir_remove(padded);
}

/* A model with more rows than the stored tokens takes them. */
Test(stored_teacher, of_fewer_rows_than_the_model_is_taken)
{
    settings s = {.n = 0};
    make_teacher();
    (void)store_k("stored", 8);
    set_student(&s, "a");
    set(&s, "model.vocab_size=384");
    set(&s, "teacher.stored=%s", in_folder("stored"));
    outcome got = first_batches(&s, 2);
    cr_expect_gt(got.divergence, 0.0);
    free(got.gradient);
}

Test(stored_teacher, of_the_whole_vocabulary_alone_takes_any_temperature)
{
    static const char *const jsd[] = {"stage.divergence=jsd", "stage.temperature=3", NULL};
    settings s = {.n = 0}, t = {.n = 0};
    make_teacher();
    (void)store_k("stored", V);
    set_student(&s, "a");
    set_all(&s, jsd);
    set(&s, "teacher.path=%s", in_folder("teacher/step-00000001"));
    set_student(&t, "b");
    set_all(&t, jsd);
    set(&t, "stage.add_tail=false");
    set(&t, "teacher.stored=%s", in_folder("stored"));
    outcome want = first_batches(&s, 5), got = first_batches(&t, 5);
    expect_close(&got, &want);
    free(want.gradient);
    free(got.gradient);
}

/* The teacher's stored numbers of its own run: no divergence at all. Both sides compute the same
 * sums in the same order. */
Test(stored_teacher, a_model_has_no_divergence_from_its_own_stored_numbers)
{
    settings s = {.n = 0};
    make_teacher();
    (void)store_k("stored", 8);
    set_run(&s, "distill", "self");
    set(&s, "model.path=%s", in_folder("teacher/step-00000001"));
    set(&s, "teacher.stored=%s", in_folder("stored"));
    outcome got = first_batches(&s, 5);
    cr_expect_gt(got.cross_entropy, 1.0);
    cr_expect_lt(fabs(got.divergence), 1e-6 * got.cross_entropy, "%g", got.divergence);
    free(got.gradient);
}

/* Rows of 96 tokens have other examples together than rows of 48; the sum over an epoch is the same
 * as long as no example is cut. */
Test(stored_teacher, does_not_depend_on_packing_batches_and_order)
{
    settings s = {.n = 0}, t = {.n = 0};
    make_teacher();
    write_examples("train.jsonl", 9); /* 8 short ones: without the long one */
    FILE *f = fopen(in_folder("train.jsonl"), "w");
    for (int i = 0; i < 8; i++)
        fprintf(f, "{\"prompt\": \"part %d: \", \"completion\": \"made %d ways\"}\n", i, i);
    fclose(f);
    (void)store_k("stored", 6);
    set_student(&s, "a");
    set(&s, "teacher.stored=%s", in_folder("stored"));
    set(&s, "train.gradient_accumulation_steps=1");
    set_run(&t, "distill", "b");
    set(&t, "teacher.stored=%s", in_folder("stored"));
    set_llama(&t, 1, 32, 2, 2, 64);
    set(&t, "data.shuffle=false");
    /* 8 examples of 21 tokens: 4 rows of 48, 2 batches; or 1 row of 192 */
    outcome want = first_batches(&s, 2);
    lathe_run *run = NULL;
    lathe_forward_result r = {.size = sizeof r};
    set(&t, "train.max_steps=1");
    for (int i = 0; i < t.n; i++) {
        if (strcmp(t.list[i], "data.seq_len=48") == 0)
            snprintf(t.text[i], sizeof t.text[i], "data.seq_len=192");
        if (strcmp(t.list[i], "train.micro_batch_size=2") == 0)
            snprintf(t.text[i], sizeof t.text[i], "train.micro_batch_size=1");
    }
    run = open_run(LATHE_OPEN_TRAIN, t.list);
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &r));
    cr_expect_float_eq(run->sum.metric_sums[1], want.divergence, 1e-5 * want.divergence,
                       "%.9g %.9g", run->sum.metric_sums[1], want.divergence);
    cr_expect_float_eq(r.loss_sum, want.loss, 1e-5 * want.loss);
    lathe_run_close(run);
    free(want.gradient);
}

/* The mean of 32 log-probabilities of -1 to -20 is wrong by half a unit of f16. */
Test(stored_teacher, f16_changes_the_divergence_by_its_rounding_only)
{
    settings s = {.n = 0}, t = {.n = 0};
    const making half = {.k = 32, .is_f16 = 1};
    make_teacher();
    const lathe_stored a = store_k("full", 32), b = store("half", &half);
    cr_expect_lt(b.bytes, a.bytes * 3 / 4);
    set_student(&s, "a");
    set(&s, "teacher.stored=%s", in_folder("full"));
    set_student(&t, "b");
    set(&t, "teacher.stored=%s", in_folder("half"));
    outcome want = first_batches(&s, 5), got = first_batches(&t, 5);
    cr_expect_neq(got.divergence, want.divergence);
    cr_expect_float_eq(got.divergence, want.divergence, 0x1p-9 * want.cross_entropy, "%g %g",
                       got.divergence, want.divergence);
    free(want.gradient);
    free(got.gradient);
}

static lathe_safetensors *open_file(const char *out, int step, const char *file)
{
    lathe_safetensors *set = NULL;
    char path[400];
    snprintf(path, sizeof path, "%s/step-%08d/%s", in_folder(out), step, file);
    OK(lathe_safetensors_open(path, &set));
    return set;
}

Test(stored_teacher, a_resumed_run_has_the_same_bits)
{
    settings whole = {.n = 0}, first = {.n = 0}, second = {.n = 0};
    make_teacher();
    (void)store_k("stored", 8);
    set_student(&whole, "whole");
    set(&whole, "teacher.stored=%s", in_folder("stored"));
    train_to(&whole, 5);
    set_student(&first, "parts");
    set(&first, "teacher.stored=%s", in_folder("stored"));
    train_to(&first, 2);
    set_student(&second, "parts");
    set(&second, "teacher.stored=%s", in_folder("stored"));
    train_to(&second, 5);
    lathe_safetensors *x = open_file("whole", 5, "model.safetensors");
    lathe_safetensors *y = open_file("parts", 5, "model.safetensors");
    cr_assert_eq(lathe_safetensors_count(x), lathe_safetensors_count(y));
    for (int64_t i = 0; i < lathe_safetensors_count(x); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(x, i);
        const lathe_st_tensor *u = lathe_safetensors_find(y, t->name);
        cr_expect_eq(memcmp(t->data, u->data, (size_t)lathe_desc_bytes(&t->desc)), 0, "%s",
                     t->name);
    }
    lathe_safetensors_close(x);
    lathe_safetensors_close(y);
}

Test(stored_teacher, validation_data_and_splits_have_their_numbers)
{
    settings s = {.n = 0}, t = {.n = 0}, of_other = {.n = 0};
    lathe_stored stored;
    lathe_evaluation e;
    const making how = {.k = 8};
    make_teacher();
    write_examples("other.jsonl", 6);
    set_student(&of_other, "unused");
    set(&of_other, "data.validation=[{path = \"%s\"}]", in_folder("other.jsonl"));
    OK(store_status(&of_other, "stored", &how, &stored));
    cr_expect_eq(stored.n_records, 16 + 6);
    cr_expect_eq(stored.n_files, 2);
    set_student(&s, "a");
    set(&s, "teacher.stored=%s", in_folder("stored"));
    set(&s, "data.validation=[{path = \"%s\"}]", in_folder("other.jsonl"));
    set(&s, "train.max_steps=1");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(lathe_evaluate(run, 0, NULL, &e));
    cr_expect(isfinite(e.loss) && e.metrics[1] > 0.0);
    lathe_run_close(run);
    set_student(&t, "b");
    set(&t, "teacher.stored=%s", in_folder("stored"));
    set(&t, "data.validation_count=3");
    set(&t, "train.max_steps=1");
    run = open_run(LATHE_OPEN_TRAIN, t.list);
    OK(lathe_evaluate(run, 0, NULL, &e));
    cr_expect(isfinite(e.loss) && e.metrics[1] > 0.0);
    lathe_run_close(run);
}

/* The store of the making run has the teacher alone, and no logits of the whole batch (96 tokens of
 * 320 words in f32: 122880 bytes). */
Test(stored_teacher, making_holds_the_teacher_alone_and_no_logits_of_a_batch)
{
    settings s = {.n = 0};
    lathe_override list[MAX_SETTINGS];
    lathe_run *run = NULL;
    make_teacher();
    set_student(&s, "unused");
    set(&s, "teacher.path=%s", in_folder("teacher/step-00000001"));
    set(&s, "train.head_chunk_rows=4");
    const int n = split(s.list, list);
    OK(open_to_store(list, n, 4, 1.0, &run));
    cr_expect_eq(run->store.master_bytes + run->store.shadow_bytes + run->store.grad_bytes, 0);
    cr_expect_gt(run->store.other_bytes, 0);
    cr_expect_lt(run->programs.arena_bytes, 96 * V * 4 + 96 * 64 * 4 * 4);
    lathe_run_close(run);
}

/* ---- an interrupted call ---- */

static void expect_same_file(const char *a, const char *b, const char *name)
{
    char x[400], y[400], *left = NULL, *right = NULL;
    int64_t n = 0, m = 0;
    snprintf(x, sizeof x, "%s/%s", in_folder(a), name);
    snprintf(y, sizeof y, "%s/%s", in_folder(b), name);
    OK(lathe_file_read(x, 0, &left, &n));
    OK(lathe_file_read(y, 0, &right, &m));
    cr_expect(n == m && memcmp(left, right, (size_t)n) == 0, "%s", name);
    free(left);
    free(right);
}

Test(stored_teacher, an_interrupted_call_goes_on_and_gives_the_same_files)
{
    const making how = {.k = 5, .file_bytes = 2000};
    char path[400];
    make_teacher();
    const lathe_stored whole = store("whole", &how);
    cr_assert_geq(whole.n_files, 3);
    (void)store("parts", &how);
    for (int64_t i = 1; i < whole.n_files; i++) {
        snprintf(path, sizeof path, "%s/datasets-%05lld.logprobs", in_folder("parts"),
                 (long long)i);
        cr_assert_eq(remove(path), 0);
    }
    cr_assert_eq(remove(in_folder("parts/manifest.json")), 0);
    FILE *half = fopen(in_folder("parts/datasets-00001.logprobs.tmp.77"), "w");
    cr_assert(half);
    fclose(half);
    const lathe_stored again = store("parts", &how);
    cr_expect_eq(again.n_kept, 1);
    cr_expect_eq(again.n_files, whole.n_files);
    cr_expect_eq(again.n_records, whole.n_records);
    cr_expect_eq(again.n_targets, whole.n_targets);
    cr_expect(!lathe_path_exists(in_folder("parts/datasets-00001.logprobs.tmp.77")));
    for (int64_t i = 0; i < whole.n_files; i++) {
        snprintf(path, sizeof path, "datasets-%05lld.logprobs", (long long)i);
        expect_same_file("whole", "parts", path);
    }
    cr_expect(lathe_path_exists(in_folder("parts/manifest.json")));
}

/* ---- a device with memory of its own ---- */

static double loss_on(int where)
{
    settings s = {.n = 0};
    lathe_stored stored;
    const making how = {.k = 6};
    set_where(&s, where);
    set_student(&s, "unused");
    OK(store_status(&s, where == ON_CPU ? "on_cpu" : "on_far", &how, &stored));
    settings t = {.n = 0};
    set_where(&t, where);
    set_student(&t, "out");
    set(&t, "teacher.stored=%s", in_folder(where == ON_CPU ? "on_cpu" : "on_far"));
    outcome got = first_batches(&t, 3);
    free(got.gradient);
    return got.loss;
}

Test(stored_teacher, a_device_with_its_own_memory_stores_and_learns_the_same)
{
    make_teacher();
    const double want = loss_on(ON_CPU);
    cr_expect(isfinite(want) && want > 0.0);
    cr_expect_eq(loss_on(ON_FAR), want);
    expect_same_file("on_cpu", "on_far", "datasets-00000.logprobs");
}
