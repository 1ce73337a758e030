/* The model in a checkpoint: the dtype of each tensor, weights that do not train, shards, and
 * resuming from the f32 masters. */
#include <sys/stat.h>

#include "base/map.h"
#include "checkpoint/state/checkpoint_diff.h"
#include "checkpoint/state/model_file.h"
#include "run/api/save_load.h"
#include "run/parts/run_parts.h"
#include "run/state/run_saved.h"
#include "support/source_case.h"

#define FOLDER "/tmp/lathe-dtype-XXXXXX"

static char *text_of(const char *path)
{
    char *text = NULL;
    int64_t n = 0;
    OK(lathe_file_read(path, 0, &text, &n));
    return text;
}

static void expect_config_says(const char *folder, const char *dtype)
{
    char want[64], *text = text_of(in(folder, "config.json"));
    snprintf(want, sizeof want, "\"torch_dtype\": \"%s\"", dtype);
    cr_expect(strstr(text, want), "no %s in %s", want, text);
    free(text);
}

/* ---- dtypes ---- */

static void check_kept(const char *kind, const char *said)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    make_folder(dir, 4000);
    make_source(dir, kind);
    from_source(&s, dir);
    set(&s, "optimizer.lr=0.0");
    set(&s, "optimizer.weight_decay=0.0");
    set(&s, "train.max_steps=1");
    OK(train_once(&s, NULL, NULL));
    cr_expect_eq(n_other(in(dir, "source"), in(dir, "out/step-00000001"), NULL), 0, "%s", kind);
    expect_config_says(in(dir, "out/step-00000001"), said);
    OK(lathe_dir_remove(dir));
}

Test(save_dtype, of_each_tensor_is_that_of_the_source_by_default)
{
    check_kept("bf16", "bfloat16");
    check_kept("fp32", "float32"); /* the source's config.json says bfloat16, which is corrected */
    check_kept("mixed", "bfloat16");
}

/* Checks that the tensor is the run's master, rounded to nearest even. */
static void expect_rounded(const lathe_run *run, int32_t i, const lathe_st_tensor *t, int32_t dtype)
{
    const int64_t n = lathe_desc_count(&run->params.rows[i]->desc);
    void *want = malloc((size_t)(n * lathe_dtype_bytes(dtype)));
    OK(lathe_convert(want, dtype, lathe_store_master(&run->store, i), LATHE_F32, n));
    cr_expect(t && t->desc.dtype == dtype &&
                  memcmp(t->data, want, (size_t)lathe_desc_bytes(&t->desc)) == 0,
              "%s", run->params.rows[i]->name);
    free(want);
}

Test(save_dtype, that_is_asked_for_is_written_and_is_what_the_configuration_says)
{
    static const struct {
        const char *setting, *said;
        int32_t dtype;
    } cases[] = {{"fp32", "float32", LATHE_F32},
                 {"bf16", "bfloat16", LATHE_BF16},
                 {"fp16", "float16", LATHE_F16}};
    for (int k = 0; k < 6; k++) {
        char dir[] = FOLDER;
        settings s = {.n = 0};
        make_folder(dir, 4000);
        make_source(dir, "mixed");
        if (k < 3)
            from_source(&s, dir);
        else /* a new model */
            configure(&s, dir);
        set(&s, "checkpoint.save_dtype=%s", cases[k % 3].setting);
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        OK(lathe_save(run, in(dir, "saved")));
        lathe_safetensors *set = open_set(in(dir, "saved"));
        for (int32_t i = 0; i < run->params.n; i++)
            expect_rounded(run, i, lathe_safetensors_find(set, run->params.rows[i]->name),
                           cases[k % 3].dtype);
        lathe_safetensors_close(set);
        expect_config_says(in(dir, "saved"), cases[k % 3].said);
        lathe_run_close(run);
        OK(lathe_dir_remove(dir));
    }
}

Test(save_dtype, of_a_new_model_is_fp32)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    make_folder(dir, 4000);
    configure(&s, dir);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(lathe_save(run, in(dir, "saved")));
    lathe_safetensors *set = open_set(in(dir, "saved"));
    for (int32_t i = 0; i < run->params.n; i++)
        expect_rounded(run, i, lathe_safetensors_find(set, run->params.rows[i]->name), LATHE_F32);
    cr_expect_not(lathe_path_exists(in(dir, "saved/state/masters.safetensors")));
    lathe_safetensors_close(set);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(save_dtype, fp16_keeps_a_tensor_that_it_cannot_hold_in_fp32)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    make_folder(dir, 4000);
    configure(&s, dir);
    set(&s, "checkpoint.save_dtype=fp16");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const int32_t large = lathe_params_find(&run->params, "model.layers.0.mlp.up_proj.weight");
    lathe_store_master(&run->store, large)[3] = 65520.0f;
    logged[0] = '\0';
    lathe_log_set_sink(keep_log, NULL);
    OK(lathe_save(run, in(dir, "saved")));
    cr_expect(strstr(logged, "'model.layers.0.mlp.up_proj.weight' holds numbers above 65504"), "%s",
              logged);
    lathe_safetensors *set = open_set(in(dir, "saved"));
    for (int32_t i = 0; i < run->params.n; i++)
        expect_rounded(run, i, lathe_safetensors_find(set, run->params.rows[i]->name),
                       i == large ? LATHE_F32 : LATHE_F16);
    lathe_safetensors_close(set);
    expect_config_says(in(dir, "saved"), "float16");
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* ---- shards ---- */

Test(shards, hold_the_tensors_in_files_of_at_most_the_size_that_was_set)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    make_folder(dir, 4000);
    make_source(dir, "bf16");
    from_source(&s, dir);
    set(&s, "checkpoint.shard_size=12e-6"); /* 12 kB: the embedding is 10,240 bytes */
    set(&s, "train.max_steps=2");
    set(&s, "checkpoint.keep_best=1"); /* which is read back */
    OK(train_once(&s, NULL, NULL));
    char saved[64];
    snprintf(saved, sizeof saved, "%s/out/step-00000002", dir);
    cr_assert(lathe_path_exists(in(saved, "model.safetensors.index.json")));
    cr_assert_not(lathe_path_exists(in(saved, "model.safetensors")));
    char *index = text_of(in(saved, "model.safetensors.index.json"));
    cr_expect(strstr(index, "\"total_parameters\": ") && strstr(index, "-of-00003.safetensors\""),
              "%s", index);
    free(index);
    for (int k = 1; k <= 3; k++) {
        lathe_map map;
        OK(lathe_map_open(in(saved, "model-%05d-of-00003.safetensors", k), &map));
        cr_expect_leq(map.bytes, 12000 + 8192, "shard %d", k); /* plus its header */
        lathe_map_close(&map);
    }
    set(&s, "train.max_steps=3"); /* and the run resumes from them */
    OK(train_once(&s, NULL, NULL));
    OK(lathe_dir_remove(dir));
}

/* ---- resuming ---- */

/* Hash of masters and slots after six steps, interrupted after three or not. */
static uint64_t trained_bits(const char *kind, const char *const *more, int stops)
{
    char dir[] = FOLDER;
    uint64_t hash = 0;
    make_folder(dir, 4000);
    make_source(dir, kind);
    for (int part = stops ? 0 : 1; part < 2; part++) {
        settings s = {.n = 0};
        from_source(&s, dir);
        set_all(&s, more);
        if (part == 0)
            set(&s, "train.stop_after=3");
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        lathe_train_result r;
        char said[4096];
        OK(train_said(run, said, sizeof said, &r));
        cr_assert_eq(r.step, part == 0 ? 3 : 6);
        hash = lathe_hash64(run->store.masters, run->store.master_bytes);
        hash = hash * 31 + lathe_hash64(run->store.slots, run->store.slot_bytes);
        hash = hash * 31 + lathe_hash64(run->store.averages, run->store.average_bytes);
        lathe_run_close(run);
    }
    OK(lathe_dir_remove(dir));
    return hash;
}

Test(resume, of_a_model_saved_in_bf16_takes_the_fp32_masters_bit_by_bit)
{
    static const char *const at_once[] = {"train.precision=bf16", NULL};
    static const char *const beside[] = {"checkpoint.every=1", "checkpoint.keep_best=1",
                                         "train.weight_average=ema", "train.weight_average_start=1",
                                         NULL};
    static const char *const by_optimizer[] = {"optimizer.name=schedule_free_adamw",
                                               "scheduler.name=constant", "checkpoint.every=1",
                                               "checkpoint.keep_best=1", NULL};
    static const char *const in_fp16[] = {"checkpoint.save_dtype=fp16", NULL};
    static const char *const *const all[] = {at_once, beside, by_optimizer, in_fp16};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        const char *kind = k % 2 ? "mixed" : "bf16";
        cr_expect_eq(trained_bits(kind, all[k], 1), trained_bits(kind, all[k], 0), "%s", all[k][0]);
    }
}

Test(resume, without_the_masters_of_a_rounded_model_is_refused)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    make_folder(dir, 4000);
    make_source(dir, "bf16");
    from_source(&s, dir);
    set(&s, "train.max_steps=1");
    OK(train_once(&s, NULL, NULL));
    char saved[64];
    snprintf(saved, sizeof saved, "%s/out/step-00000001", dir);
    cr_assert_eq(unlink(in(saved, "state/masters.safetensors")), 0);
    OK(lathe_manifest_write(saved, NULL));
    set(&s, "checkpoint.resume=%s", saved);
    cr_assert_eq(train_once(&s, NULL, NULL), LATHE_E_CORRUPT);
    cr_expect(strstr(lathe_error_message(), "was saved in bf16, and its fp32 master is not in"),
              "%s", lathe_error_message());
    OK(lathe_dir_remove(dir));
}

/* The loss of the run's latest checkpoint on its validation data. */
static double evaluated_loss(const settings *s, int averaged)
{
    lathe_evaluation e;
    const char *checkpoint = NULL;
    int32_t taken = 0;
    lathe_run *run = open_run(LATHE_OPEN_EVALUATE, s->list);
    OK(lathe__run_resume(run, &checkpoint));
    cr_assert_not_null(checkpoint);
    if (averaged)
        OK(lathe_checkpoint_take_average(lathe__run_saved(run), checkpoint, &taken));
    cr_assert_eq(taken, averaged);
    OK(lathe_evaluate(run, run->set.eval_batches, NULL, &e));
    lathe_run_close(run);
    return e.loss;
}

Test(save_dtype, bf16_changes_no_evaluation_of_the_run)
{
    static const char *const averages[] = {"none", "ema"};
    for (int k = 0; k < 2; k++) {
        char dir[] = FOLDER;
        settings s = {.n = 0};
        lathe_train_result r;
        make_folder(dir, 4000);
        make_source(dir, "bf16");
        from_source(&s, dir);
        set(&s, "train.weight_average=%s", averages[k]);
        OK(train_once(&s, &r, NULL));
        cr_expect_eq(evaluated_loss(&s, k), r.validation, "%s", averages[k]);
        OK(lathe_dir_remove(dir));
    }
}

static char said[4096];

static void keep_info(void *arg, int32_t level, const char *message)
{
    (void)arg, (void)level;
    strncat(said, message, sizeof said - strlen(said) - 1);
}

Test(save_dtype, that_rounds_is_reported_when_the_folder_is_a_model_again)
{
    char dir[] = FOLDER;
    settings s = {.n = 0}, next = {.n = 0};
    make_folder(dir, 4000);
    make_source(dir, "bf16");
    from_source(&s, dir);
    set(&s, "train.max_steps=1");
    OK(train_once(&s, NULL, NULL));
    from_source(&next, dir);
    set(&next, "model.path=%s/out/step-00000001", dir);
    lathe_log_set_sink(keep_info, NULL);
    lathe_run *run = open_run(LATHE_OPEN_EVALUATE, next.list);
    lathe_run_close(run);
    cr_expect(strstr(said, "the weights are read as they were saved, rounded to bf16"), "%s", said);
    OK(lathe_dir_remove(dir));
}

/* ---- output of the other commands ---- */

static int64_t bytes_of(const char *path)
{
    lathe_safetensors *set = open_set(path);
    int64_t bytes = 0;
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++)
        bytes += lathe_desc_bytes(&lathe_safetensors_at(set, i)->desc);
    lathe_safetensors_close(set);
    return bytes;
}

/* Checks that a checkpoint takes at most `planned` bytes in blocks of 4 KiB, and not much less. */
static void expect_bound(const char *path, int64_t planned)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    struct stat info;
    char **files = NULL;
    int64_t n = 0, bytes = 0;
    OK(lathe_dir_walk(path, &arena, &files, &n));
    for (int64_t i = 0; i < n; i++)
        bytes += stat(files[i], &info) == 0 ? ((int64_t)info.st_size + 4095) / 4096 * 4096 : 0;
    cr_expect(bytes <= planned && planned - bytes < 200 << 10, "%s: %lld planned, %lld there", path,
              (long long)planned, (long long)bytes);
    lathe_arena_fini(&arena);
}

Test(plan, tells_the_bytes_of_a_checkpoint_on_the_disk)
{
    static const char *const averages[] = {"none", "ema"};
    for (int k = 0; k < 4; k++) {
        char dir[] = FOLDER;
        settings s = {.n = 0};
        make_folder(dir, 4000);
        make_source(dir, k < 2 ? "mixed" : "fp32");
        from_source(&s, dir);
        set(&s, "adapter.no_train=['*up_proj*']");
        set(&s, "train.max_steps=1");
        set(&s, "train.weight_average=%s", averages[k % 2]);
        lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
        const int64_t planned = lathe__checkpoint_tensor_bytes(lathe__run_saved(run));
        const int64_t on_disk = lathe__checkpoint_disk_bytes(lathe__run_saved(run));
        lathe_run_close(run);
        OK(train_once(&s, NULL, NULL));
        char saved[64];
        snprintf(saved, sizeof saved, "%s/out/step-00000001", dir);
        int64_t there = bytes_of(saved) + bytes_of(in(saved, "state/optimizer.safetensors"));
        if (k < 2)
            there += bytes_of(in(saved, "state/masters.safetensors"));
        if (k % 2)
            there +=
                bytes_of(in(saved, "average")) + bytes_of(in(saved, "state/average.safetensors"));
        cr_expect_eq(planned, there, "case %d: %lld planned, %lld there", k, (long long)planned,
                     (long long)there);
        expect_bound(saved, on_disk);
        OK(lathe_dir_remove(dir));
    }
}

Test(plan, counts_the_files_of_the_tokenizer_in_a_checkpoint)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    make_folder(dir, 4000);
    configure(&s, dir);
    set(&s, "model.vocab_size=560");
    set(&s, "tokenizer.path=%s", LATHE_TEST_DATA "/golden/data/gguf/spm_llama");
    set(&s, "train.max_steps=1");
    set(&s, "train.weight_average=ema");
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    lathe__run_name_tokenizer(run);
    const int64_t planned = lathe__checkpoint_disk_bytes(lathe__run_saved(run));
    lathe_run_close(run);
    OK(train_once(&s, NULL, NULL));
    expect_bound(in(dir, "out/step-00000001"), planned);
    OK(lathe_dir_remove(dir));
}

static const lathe_change *change_of(const lathe_checkpoint_changes *c, const char *part,
                                     const char *name)
{
    for (int64_t i = 0; i < c->n; i++)
        if (strcmp(c->list[i].part, part) == 0 && strcmp(c->list[i].name, name) == 0)
            return &c->list[i];
    return NULL;
}

Test(checkpoint_diff, compares_values_of_different_dtypes)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    lathe_checkpoint_changes changes;
    make_folder(dir, 4000);
    make_source(dir, "bf16");
    from_source(&s, dir);
    set(&s, "train.max_steps=1");
    OK(train_once(&s, NULL, NULL));
    OK(lathe_dir_create(in(dir, "first")));
    cr_assert_eq(rename(in(dir, "out/step-00000001"), in(dir, "first/step")), 0);
    OK(lathe_dir_remove(in(dir, "out")));
    set(&s, "checkpoint.save_dtype=fp32");
    OK(train_once(&s, NULL, NULL));
    OK(lathe_checkpoint_diff(in(dir, "first/step"), in(dir, "out/step-00000001"), &changes));
    const lathe_change *weights = change_of(&changes, "weights", "model.embed_tokens.weight");
    const lathe_change *masters = change_of(&changes, "masters", "model.embed_tokens.weight");
    cr_assert(weights && masters);
    cr_expect_str_eq(weights->from, "bf16[320,16]");
    cr_expect_str_eq(weights->to, "f32[320,16]");
    cr_expect_eq(weights->n_elements, 5120);
    cr_expect(weights->n_differ > 0 && weights->relative < 0.01, "%g", weights->relative);
    cr_expect_not_null(masters->from);
    cr_expect_null(masters->to, "only the first folder has masters of its own");
    lathe_checkpoint_changes_fini(&changes);
    OK(lathe_dir_remove(dir));
}
