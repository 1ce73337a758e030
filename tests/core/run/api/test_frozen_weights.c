/* Weights that do not train: a checkpoint contains the bytes that were read, whatever precision the
 * run computes in. */
#include <fcntl.h>

#include "model/family/param_init.h"
#include "run/api/save_load.h"
#include "support/far_case.h"
#include "support/source_case.h"

#define FOLDER "/tmp/lathe-frozen-XXXXXX"

/* Freezes the layer's projections; embedding, norms and head train. */
static void freeze(settings *s)
{
    set(s, "adapter.no_train=['*proj*']");
}

/* Trains three steps from dir/source, in bf16. */
static void train_frozen(const char *dir, const char *const *more, const char *stop)
{
    settings s = {.n = 0};
    from_source(&s, dir);
    freeze(&s);
    set(&s, "train.precision=bf16");
    set(&s, "train.max_steps=3");
    set_all(&s, more);
    if (stop)
        set(&s, "train.stop_after=%s", stop);
    OK(train_once(&s, NULL, NULL));
}

static void expect_frozen(const char *dir, const char *saved, const char *what)
{
    cr_expect_eq(n_other(in(dir, "source"), saved, "proj"), 0, "%s: frozen weights changed", what);
    cr_expect_gt(n_other(in(dir, "source"), saved, NULL), 0, "%s: nothing trained", what);
}

Test(frozen_weights, come_out_bit_equal_to_the_source)
{
    static const char *const kinds[] = {"fp32", "mixed", "bf16"};
    static const char *const at_once[] = {NULL};
    static const char *const beside[] = {"checkpoint.every=1", "checkpoint.keep_best=1",
                                         "train.weight_average=ema", NULL};
    for (int k = 0; k < 3; k++)
        for (int a = 0; a < 2; a++) {
            char dir[] = FOLDER;
            make_folder(dir, 4000);
            make_source(dir, kinds[k]);
            train_frozen(dir, a ? beside : at_once, NULL);
            expect_frozen(dir, in(dir, "out/step-00000003"), kinds[k]);
            if (a)
                expect_frozen(dir, in(dir, "out/step-00000003/average"), "average");
            OK(lathe_dir_remove(dir));
        }
}

Test(frozen_weights, come_out_bit_equal_after_resuming)
{
    static const char *const none[] = {NULL};
    for (int source_stays = 0; source_stays < 2; source_stays++) {
        char dir[] = FOLDER;
        make_folder(dir, 4000);
        make_source(dir, "fp32");
        train_frozen(dir, none, "2");
        if (!source_stays) /* its configuration stays, its weights do not */
            cr_assert_eq(rename(in(dir, "source/model.safetensors"), in(dir, "away")), 0);
        train_frozen(dir, none, NULL);
        if (!source_stays)
            cr_assert_eq(rename(in(dir, "away"), in(dir, "source/model.safetensors")), 0);
        expect_frozen(dir, in(dir, "out/step-00000003"), source_stays ? "source" : "no source");
        OK(lathe_dir_remove(dir));
    }
}

/* The source is fp32 and its checkpoints are bf16: when they are fp32 again, the saved weights must
 * not be the rounded ones. */
Test(frozen_weights, come_from_the_source_rather_than_from_a_rounded_checkpoint)
{
    static const char *const narrow[] = {"checkpoint.save_dtype=bf16", NULL};
    static const char *const none[] = {NULL};
    char dir[] = FOLDER;
    make_folder(dir, 4000);
    make_source(dir, "fp32");
    train_frozen(dir, narrow, "2");
    train_frozen(dir, none, NULL);
    expect_frozen(dir, in(dir, "out/step-00000003"), "fp32 again");
    OK(lathe_dir_remove(dir));
}

Test(frozen_weights, of_a_folder_that_is_removed_are_still_saved)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    make_folder(dir, 4000);
    make_source(dir, "fp32");
    from_source(&s, dir);
    freeze(&s);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_assert_eq(rename(in(dir, "source"), in(dir, "away")), 0);
    make_source(dir, "bf16"); /* replaced by another model */
    OK(lathe_save(run, in(dir, "saved")));
    lathe_run_close(run);
    cr_expect_eq(n_other(in(dir, "away"), in(dir, "saved"), "proj"), 0);
    OK(lathe_dir_remove(dir));
}

Test(frozen_weights, of_a_file_that_was_written_to_are_refused)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    make_folder(dir, 4000);
    make_source(dir, "fp32");
    from_source(&s, dir);
    freeze(&s);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const int fd = open(in(dir, "source/model.safetensors"), O_WRONLY | O_CLOEXEC);
    cr_assert(fd >= 0 && ftruncate(fd, 1000) == 0);
    close(fd);
    cr_assert_eq(lathe_save(run, in(dir, "saved")), LATHE_E_CORRUPT);
    cr_expect(strstr(lathe_error_message(), "source/model.safetensors was changed after the run "
                                            "read it"),
              "%s", lathe_error_message());
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(frozen_weights, of_a_new_model_are_the_numbers_of_its_seed)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    make_folder(dir, 4000);
    configure(&s, dir);
    freeze(&s);
    set(&s, "train.precision=bf16");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(lathe_save(run, in(dir, "saved")));
    lathe_safetensors *set = open_set(in(dir, "saved"));
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *row = run->params.rows[i];
        const int64_t n = lathe_desc_count(&row->desc);
        float *want = malloc((size_t)n * sizeof *want);
        OK(lathe_param_init(row, run->set.model_seed, want));
        const lathe_st_tensor *t = lathe_safetensors_find(set, row->name);
        cr_expect(t && t->desc.dtype == LATHE_F32 && memcmp(t->data, want, (size_t)(4 * n)) == 0,
                  "%s", row->name);
        free(want);
    }
    lathe_safetensors_close(set);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* ---- a quantized base with some trainable weights ---- */

/* The projections do not train: by the list of the adapter that trains everything else, or by an
 * adapter (tests/norms) that trains norms and biases. */
static void set_adapter(settings *s, const char *adapter)
{
    if (strcmp(adapter, "full") == 0) {
        freeze(s);
        return;
    }
    set(s, "plugins.paths=[\"%s/tests/norms\"]", LATHE_TEST_BUILD);
    set(s, "adapter.name=%s", adapter);
}

static void set_quantized(settings *s, const char *dir, const char *quant, const char *adapter)
{
    from_source(s, dir);
    set_adapter(s, adapter);
    set(s, "quant.name=%s", quant);
    set(s, "train.max_steps=4");
    set(s, "checkpoint.keep_best=1");
}

/* Hash of masters, slots and planes after four steps, interrupted after two or not; the last
 * evaluation in *out_loss. */
static uint64_t quantized_bits(const char *dir, const char *quant, const char *adapter, int stops,
                               double *out_loss)
{
    uint64_t hash = 0;
    for (int part = stops ? 0 : 1; part < 2; part++) {
        settings s = {.n = 0};
        lathe_train_result r;
        char said[4096];
        set_quantized(&s, dir, quant, adapter);
        if (part == 0)
            set(&s, "train.stop_after=2");
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        OK(train_said(run, said, sizeof said, &r));
        hash = lathe_hash64(run->store.masters, run->store.master_bytes);
        hash = hash * 31 + lathe_hash64(run->store.slots, run->store.slot_bytes);
        hash = hash * 31 + lathe_hash64(run->store.planes, run->store.plane_bytes);
        cr_assert_gt(run->store.plane_bytes, 0);
        *out_loss = r.validation;
        lathe_run_close(run);
    }
    return hash;
}

/* The result of `lathe eval` with the run file, for its latest checkpoint. */
static double evaluated(const char *dir, const char *quant, const char *adapter)
{
    settings s = {.n = 0};
    lathe_evaluation e;
    const char *checkpoint = NULL;
    set_quantized(&s, dir, quant, adapter);
    lathe_run *run = open_run(LATHE_OPEN_EVALUATE, s.list);
    OK(lathe__run_resume(run, &checkpoint));
    cr_assert_not_null(checkpoint);
    OK(lathe_evaluate(run, run->set.eval_batches, NULL, &e));
    lathe_run_close(run);
    return e.loss;
}

static void check_quantized(const char *quant, const char *adapter)
{
    char dir[] = FOLDER;
    double loss, again;
    make_folder(dir, 4000);
    make_source(dir, "mixed");
    const uint64_t straight = quantized_bits(dir, quant, adapter, 0, &loss);
    expect_frozen(dir, in(dir, "out/step-00000004"), quant);
    const int has_file = lathe_path_exists(in(dir, "out/step-00000004/adapter_model.safetensors"));
    cr_expect_eq(has_file, strcmp(adapter, "full") != 0);
    OK(lathe_dir_remove(in(dir, "out")));
    cr_expect_eq(quantized_bits(dir, quant, adapter, 1, &again), straight,
                 "%s, %s: resumed to other bits", quant, adapter);
    expect_frozen(dir, in(dir, "out/step-00000004"), quant);
    cr_expect_eq(again, loss);
    cr_expect_eq(evaluated(dir, quant, adapter), loss, "%s, %s", quant, adapter);
    OK(lathe_dir_remove(dir));
}

Test(frozen_weights, of_a_quantized_base_are_saved_with_what_trains_beside_them)
{
    check_quantized("int8", "full");
    check_quantized("nf4", "full");
}

Test(frozen_weights, of_a_quantized_base_are_saved_beside_an_adapter_that_trains_norms)
{
    check_quantized("int8", "norms_and_biases");
    check_quantized("nf4", "norms_and_biases");
}

Test(frozen_weights, of_a_base_in_newer_formats_are_saved_beside_an_adapter_that_trains_norms)
{
    static const char *const formats[] = {"fp8", "hqq"}; /* the others need wider rows */
    for (int k = 0; k < 2; k++)
        check_quantized(formats[k], "norms_and_biases");
}

/* ---- a device with memory of its own ---- */

Test(frozen_weights, of_a_device_with_memory_of_its_own_are_saved_beside_the_training)
{
    for (int async = 0; async < 2; async++) {
        char dir[] = FOLDER;
        settings s = {.n = 0};
        make_folder(dir, 4000);
        make_source(dir, "mixed");
        from_source(&s, dir);
        set_where(&s, ON_FAR);
        freeze(&s);
        set(&s, "train.precision=bf16");
        set(&s, "checkpoint.every=2");
        set(&s, "checkpoint.keep_best=1");
        set(&s, "checkpoint.async=%s", async ? "true" : "false");
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        lathe_train_result r;
        char said[4096];
        cr_assert_eq(run->checkpoints.image != NULL, async);
        OK(train_said(run, said, sizeof said, &r));
        lathe_run_close(run);
        expect_frozen(dir, in(dir, "out/step-00000006"), async ? "beside" : "at once");
        OK(lathe_dir_remove(dir));
    }
}
