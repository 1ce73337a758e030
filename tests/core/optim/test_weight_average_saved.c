/* The average of the weights in checkpoints: written, resumed, evaluated; and averages of
 * adapters. */
#include "average_case.h"
#include "checkpoint/state/adapter_file.h"
#include "run/state/run_saved.h"
#include "train/training.h"

static void expect_same_in(const char *dir, const char *a, const char *b, const char *file)
{
    expect_same_file(in(dir, "%s/%s", a, file), in(dir, "%s/%s", b, file));
}

typedef struct variant {
    const char *optimizer, *average;
} variant;

static const variant variants[] = {
    {"adamw", "ema"}, {"adamw", "swa"}, {"schedule_free_adamw", "none"}};
#define N_VARIANTS (sizeof variants / sizeof variants[0])

static void configure_variant(settings *s, const char *dir, const char *out, const variant *v)
{
    configure(s, dir);
    set(s, "checkpoint.dir=%s/%s", dir, out);
    set(s, "checkpoint.every=1");
    set(s, "optimizer.name=%s", v->optimizer);
    set(s, "scheduler.name=constant"); /* schedule_free_adamw requires it */
    set(s, "train.weight_average=%s", v->average);
    if (strcmp(v->average, "ema") == 0)
        set(s, "train.weight_average_decay=0.9");
    if (strcmp(v->average, "none") != 0)
        set(s, "train.weight_average_start=2");
}

static void expect_same(const char *dir, const char *a, const char *b, const variant *v)
{
    expect_same_in(dir, a, b, "model.safetensors");
    expect_same_in(dir, a, b, "average/model.safetensors");
    expect_same_in(dir, a, b, "state/optimizer.safetensors");
    expect_same_in(dir, a, b, "state/run.json");
    if (strcmp(v->average, "none") != 0)
        expect_same_in(dir, a, b, "state/average.safetensors");
}

/* Written at once and asynchronously; stopped after three steps; and written by the training
 * itself. */
Test(weight_average, resumed_gives_the_same_bits)
{
    char dir[] = FOLDER;
    make_folder(dir, 3000);
    for (size_t k = 0; k < N_VARIANTS; k++) {
        const variant *v = &variants[k];
        settings whole = {.n = 0}, part = {.n = 0}, sync = {.n = 0};
        lathe_train_result want, got;
        configure_variant(&whole, dir, "whole", v);
        OK(train_once(&whole, &want, NULL));
        configure_variant(&part, dir, "part", v);
        set(&part, "train.stop_after=3");
        OK(train_once(&part, &got, NULL));
        cr_assert_eq(got.step, 3);
        part = (settings){.n = 0};
        configure_variant(&part, dir, "part", v);
        OK(train_once(&part, &got, NULL));
        cr_assert_str_empty(logged);
        cr_assert_eq(got.validation, want.validation);
        expect_same(dir, "whole/step-00000006", "part/step-00000006", v);
        configure_variant(&sync, dir, "sync", v);
        set(&sync, "checkpoint.async=false");
        OK(train_once(&sync, &got, NULL));
        for (int step = 1; step <= 6; step++) {
            char a[64], b[64];
            snprintf(a, sizeof a, "whole/step-%08d", step);
            snprintf(b, sizeof b, "sync/step-%08d", step);
            expect_same(dir, a, b, v);
        }
        OK(lathe_dir_remove(in(dir, "whole")));
        OK(lathe_dir_remove(in(dir, "part")));
        OK(lathe_dir_remove(in(dir, "sync")));
    }
    OK(lathe_dir_remove(dir));
}

/* An average that is computed on request is also computed for a checkpoint. */
Test(weight_average, of_an_optimizer_is_saved_without_an_evaluation)
{
    char dir[] = FOLDER, file[64];
    make_folder(dir, 3000);
    for (int k = 0; k < 3; k++) {
        settings s = {.n = 0};
        configure_variant(&s, dir, k == 0 ? "evaluated" : k == 1 ? "async" : "sync", &variants[2]);
        set(&s, "train.eval_every=%d", k == 0);
        set(&s, "checkpoint.async=%s", k < 2 ? "true" : "false");
        OK(train_once(&s, NULL, NULL));
    }
    for (int step = 1; step <= 6; step++) {
        snprintf(file, sizeof file, "step-%08d/average/model.safetensors", step);
        expect_same_in(dir, "evaluated", "async", file);
        expect_same_in(dir, "evaluated", "sync", file);
    }
    settings s = {.n = 0};
    configure_variant(&s, dir, "evaluated", &variants[2]);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(lathe_load(run, in(dir, "evaluated/step-00000003")));
    OK(lathe_save(run, in(dir, "again")));
    expect_same_in(dir, "evaluated/step-00000003", "again", "average/model.safetensors");
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* The loss that `lathe eval` gives of a folder; weights: model.weights. */
static double evaluated(const char *dir, const char *path, const char *weights)
{
    settings s = {.n = 0};
    lathe_evaluation e;
    configure(&s, dir);
    set(&s, "model.path=%s", path);
    set(&s, "model.weights=%s", weights);
    const char *list[MAX_SETTINGS + 1];
    int n = 0;
    for (int i = 0; i < s.n; i++)
        if (strncmp(s.list[i], "model.", 6) != 0 || strncmp(s.list[i], "model.path", 10) == 0 ||
            strncmp(s.list[i], "model.weights", 13) == 0)
            list[n++] = s.list[i];
    list[n] = NULL;
    lathe_run *run = open_run(LATHE_OPEN_EVALUATE, list);
    OK(lathe_evaluate(run, run->set.eval_batches, NULL, &e));
    lathe_run_close(run);
    return e.loss;
}

Test(weight_average, is_a_model_folder_whose_loss_is_the_evaluation)
{
    char dir[] = FOLDER;
    make_folder(dir, 3000);
    for (size_t k = 0; k < N_VARIANTS; k++) {
        settings s = {.n = 0};
        lathe_train_result r;
        configure_variant(&s, dir, "out", &variants[k]);
        set(&s, "checkpoint.keep_best=2"); /* also reads back and compares the average */
        OK(train_once(&s, &r, NULL));
        const char *average = in(dir, "out/step-00000006/average");
        const char *checkpoint = in(dir, "out/step-00000006");
        cr_assert_eq(evaluated(dir, average, "auto"), r.validation);
        cr_assert_eq(evaluated(dir, checkpoint, "auto"), r.validation);
        cr_assert_eq(evaluated(dir, checkpoint, "average"), r.validation);
        cr_assert_neq(evaluated(dir, checkpoint, "training"), r.validation);
        OK(lathe_dir_remove(in(dir, "out")));
    }
    OK(lathe_dir_remove(dir));
}

Test(weight_average, damaged_on_the_disk_is_no_best_checkpoint)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    make_folder(dir, 3000);
    configure_variant(&s, dir, "out", &variants[0]);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    for (int k = 0; k < 3; k++)
        (void)one_step(run);
    OK(lathe_save(run, in(dir, "saved")));
    OK(lathe__checkpoint_read_back(lathe__run_saved(run), in(dir, "saved")));
    lathe_store_average(&run->store, 0)[5] += 1.0f;
    cr_assert_eq(lathe__checkpoint_read_back(lathe__run_saved(run), in(dir, "saved")),
                 LATHE_E_CORRUPT);
    cr_assert(strstr(lathe_error_message(), "saved/average"), "%s", lathe_error_message());
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(weight_average, of_an_adapter_is_an_adapter)
{
    char dir[] = FOLDER;
    settings base = {.n = 0}, s = {.n = 0};
    lathe_store store;
    make_folder(dir, 3000);
    configure(&base, dir);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, base.list);
    OK(lathe_save(run, in(dir, "base")));
    lathe_run_close(run);
    configure(&s, dir);
    for (int i = 0; i < s.n; i++)
        if (strncmp(s.list[i], "model.", 6) == 0) /* the folder determines the shape */
            s.list[i] = "log.level=warn";
    set(&s, "model.path=%s/base", dir);
    set(&s, "adapter.name=lora");
    set(&s, "train.weight_average=ema");
    set(&s, "train.weight_average_decay=0.5");
    run = open_run(LATHE_OPEN_TRAIN, s.list);
    for (int k = 0; k < 3; k++)
        (void)one_step(run);
    OK(lathe_save(run, in(dir, "tuned")));
    cr_assert(lathe_path_exists(in(dir, "tuned/average/adapter_config.json")));
    cr_assert_not(lathe_path_exists(in(dir, "tuned/average/model.safetensors")));
    lathe_saved_state view = *lathe__run_saved(run);
    OK(lathe_average_view(&run->store, &run->arena, &store));
    view.store = &store;
    OK(lathe__adapter_file_compare(&view, in(dir, "tuned/average")));
    OK(lathe__adapter_file_compare(lathe__run_saved(run), in(dir, "tuned")));
    cr_assert_eq(lathe__adapter_file_compare(&view, in(dir, "tuned")), LATHE_E_CORRUPT);
    const uint64_t was = hash_of(run);
    (void)one_step(run);
    cr_assert_neq(hash_of(run), was);
    OK(lathe_load(run, in(dir, "tuned")));
    cr_assert_eq(hash_of(run), was);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(weight_average, that_a_checkpoint_lacks_begins_with_its_weights)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    make_folder(dir, 3000);
    configure(&s, dir);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    (void)one_step(run);
    OK(lathe_save(run, in(dir, "without")));
    cr_assert_not(lathe_path_exists(in(dir, "without/average")));
    lathe_run_close(run);
    set(&s, "train.weight_average=ema");
    run = open_run(LATHE_OPEN_TRAIN, s.list);
    (void)one_step(run);
    (void)one_step(run);
    logged[0] = '\0';
    lathe_log_set_sink(keep_log, NULL);
    OK(lathe_load(run, in(dir, "without")));
    cr_assert(strstr(logged, "weight average none, the run has ema"), "%s", logged);
    cr_assert_eq(run->at.averaged, 0);
    for (int32_t i = 0; i < run->params.n; i++)
        cr_assert_arr_eq(lathe_store_average(&run->store, i), lathe_store_master(&run->store, i),
                         (size_t)(4 * count_of(run, i)));
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}
