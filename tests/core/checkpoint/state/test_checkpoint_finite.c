/* NaN and infinity in a run's state: they are never saved in a checkpoint, and no run resumes from
 * a checkpoint that contains them. */
#include "files/safetensors/folder_finite.h"
#include "run/state/run_saved.h"
#include "support/checkpoint_case.h"
#include "train/training.h"

static char dir[64];

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/lathe-finite-XXXXXX");
    make_folder(dir, 4000);
}

static void drop_dir(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(checkpoint_finite, .init = make_dir, .fini = drop_dir, .timeout = 60);

static int32_t row_of(const lathe_run *run, const char *suffix)
{
    for (int32_t i = 0; i < run->params.n; i++) {
        const char *at = strstr(run->params.rows[i]->name, suffix);
        if (at && strcmp(at, suffix) == 0)
            return i;
    }
    cr_assert_fail("no parameter %s", suffix);
    return -1;
}

/* The embedding of a byte that the corpus does not contain, so that loss and gradient never depend
 * on it. */
static float *unused(lathe_run *run)
{
    return lathe_store_master(&run->store, row_of(run, "embed_tokens.weight")) + 16 * 'Q' + 3;
}

static void one_step(lathe_run *run)
{
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
    OK(lathe_step(run, NULL));
}

/* Number of entries of a folder that begin with "step-", complete or not. */
static int n_steps_in(const char *path)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char **names = NULL;
    int64_t n = 0;
    int found = 0;
    OK(lathe_dir_list(path, &arena, &names, &n));
    for (int64_t i = 0; i < n; i++)
        found += strncmp(names[i], "step-", 5) == 0;
    lathe_arena_fini(&arena);
    return found;
}

/* Checks the refusal, which names the tensor and the element; the checkpoint before it stays the
 * latest. */
static void expect_refused(lathe_run *run, const char *tensor, const char *value)
{
    char path[512];
    const int before = n_steps_in(in(dir, "out"));
    cr_expect_eq(lathe_checkpoint_write(lathe__run_saved(run), NULL, 0, path, (int64_t)sizeof path),
                 LATHE_E_NUMERIC);
    expect_parts((const char *const[]){"a run cannot continue from the state after step 2", tensor,
                                       "holds 1 of ", value, NULL});
    cr_expect_eq(n_steps_in(in(dir, "out")), before);
    cr_expect_eq(pointed(dir, "latest"), 1);
    cr_expect_eq(pointed(dir, "best"), 1);
}

Test(checkpoint_finite, what_is_not_finite_never_becomes_latest_or_best)
{
    settings s = {.n = 0};
    char path[512];
    configure(&s, dir);
    set(&s, "checkpoint.keep_best=1");
    set(&s, "checkpoint.gate=false");
    set(&s, "train.weight_average=ema");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(lathe_dir_create(in(dir, "out")));
    one_step(run);
    lathe_figures f = {.n = 0};
    lathe__figures_add(&f, "eval_loss", 2.0);
    OK(lathe_checkpoint_write(lathe__run_saved(run), &f, 0, path, (int64_t)sizeof path));
    one_step(run);
    const int32_t row = row_of(run, "embed_tokens.weight");
    float *const places[] = {lathe_store_master(&run->store, row) + 5,
                             (float *)lathe_store_slot(&run->store, row, 1) + 5,
                             (float *)lathe_store_average(&run->store, row) + 5};
    const char *const files[] = {"in model.safetensors", "in state/optimizer.safetensors",
                                 "in average/model.safetensors"};
    for (int i = 0; i < 3; i++) {
        const float was = *places[i];
        *places[i] = i == 1 ? INFINITY : NAN;
        expect_refused(run, files[i], i == 1 ? "the first inf at 5" : "the first nan at 5");
        *places[i] = was;
    }
    OK(lathe_checkpoint_write(lathe__run_saved(run), &f, 0, path, (int64_t)sizeof path));
    cr_expect_eq(pointed(dir, "latest"), 2);
    lathe_run_close(run);
}

Test(checkpoint_finite, a_run_whose_weights_are_nan_ends_and_names_the_tensor)
{
    static const char *const ways[] = {"checkpoint.async=true", "checkpoint.async=false"};
    for (int i = 0; i < 2; i++) {
        settings s = {.n = 0};
        char said[8192];
        lathe_train_result r;
        configure(&s, dir);
        set(&s, "checkpoint.every=2");
        set(&s, "%s", ways[i]);
        set(&s, "checkpoint.dir=%s/out%d", dir, i);
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        *unused(run) = NAN;
        cr_expect_eq(train_said(run, said, sizeof said, &r), LATHE_E_NUMERIC);
        expect_parts((const char *const[]){"embed_tokens.weight", "the first nan at ",
                                           "a checkpoint was not written", "there is none yet",
                                           NULL});
        cr_expect_eq(n_steps_in(in(dir, "out%d", i)), 0);
        lathe_run_close(run);
    }
}

/* Spoils the weights once, when the evaluation after step 4 is reported, before that step is
 * saved. */
typedef struct saboteur {
    lathe_run *run;
    int done;
} saboteur;

static ssize_t spoil(void *cookie, const char *text, size_t n)
{
    saboteur *s = cookie;
    (void)text;
    if (!s->done && s->run->at.step == 4) {
        s->done = 1;
        *unused(s->run) = NAN;
    }
    return (ssize_t)n;
}

Test(checkpoint_finite, rewind_goes_back_to_finite_weights_and_ends_well)
{
    settings s = {.n = 0};
    lathe_train_result r;
    configure(&s, dir);
    set(&s, "checkpoint.every=2");
    set(&s, "checkpoint.async=false");
    set(&s, "train.on_nonfinite=rewind");
    set(&s, "log.progress=plain");
    set(&s, "train.log_every=1");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    saboteur who = {run, 0};
    FILE *out = fopencookie(&who, "w", (cookie_io_functions_t){.write = spoil});
    setvbuf(out, NULL, _IONBF, 0);
    const lathe_train_options options = {.out = out};
    OK(lathe_train(run, &options, &r));
    fclose(out);
    cr_expect_eq(who.done, 1);
    cr_expect_eq(r.step, 6);
    cr_expect(isfinite(*unused(run)));
    cr_expect_eq(pointed(dir, "latest"), 6);
    lathe_run_close(run);
    cr_expect_str_eq(steps_in(dir), "2 4 6");
    OK(lathe_folder_finite(in(dir, "out"), NULL, NULL));
}

/* Changes a file as an earlier version, which did not check, would have written it. */
static void spoil_file(const char *folder)
{
    lathe_safetensors *set = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    OK(lathe_safetensors_open(path, &set));
    const int64_t at = lathe_safetensors_find(set, "model.norm.weight")->offset + 4;
    lathe_safetensors_close(set);
    const float bad = -INFINITY;
    FILE *f = fopen(path, "r+");
    cr_assert(f && fseek(f, at, SEEK_SET) == 0 && fwrite(&bad, 4, 1, f) == 1 && fclose(f) == 0);
    char *meta = NULL;
    OK(lathe_manifest_meta(folder, &meta));
    OK(lathe_manifest_write(folder, meta));
    free(meta);
}

Test(checkpoint_finite, one_that_holds_nan_is_not_resumed_from)
{
    settings s = {.n = 0};
    const char *text = NULL;
    configure(&s, dir);
    set(&s, "checkpoint.every=2");
    set(&s, "train.stop_after=4");
    OK(train_once(&s, NULL, NULL));
    spoil_file(in(dir, "out/step-00000004"));
    settings other = s;
    set(&other, "checkpoint.resume=%s/out/step-00000004", dir);
    cr_expect_eq(train_once(&other, NULL, NULL), LATHE_E_NUMERIC);
    expect_parts((const char *const[]){"checkpoint.resume = ", "'model.norm.weight'",
                                       "the first -inf at 1", NULL});
    OK(train_once(&s, NULL, &text));
    cr_expect(strstr(text, "step-00000002 at step 2"), "%s", text);
    cr_expect(strstr(logged, "step-00000004 is not used: 'model.norm.weight'"), "%s", logged);
}

/* ---- the learning rate ---- */

static double rate; /* of the fourth update */

static double bad_rate(void *self, int64_t step, int64_t total, double base, const double *state)
{
    (void)self, (void)total, (void)state;
    return step == 3 ? rate : base;
}

Test(learning_rate, one_that_is_negative_or_not_finite_ends_the_run_and_names_the_scheduler,
     .init = make_dir, .fini = drop_dir)
{
    static const double rates[] = {-0.001, NAN, INFINITY};
    static const char *const said[] = {"rate -0.001;", "rate nan;", "rate inf;"};
    for (int i = 0; i < 3; i++) {
        settings s = {.n = 0};
        char text[8192];
        lathe_train_result r;
        configure(&s, dir);
        set(&s, "checkpoint.dir=%s/rate%d", dir, i);
        set(&s, "scheduler.name=cosine");
        lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
        lathe_scheduler_v1 table = *(const lathe_scheduler_v1 *)run->parts.scheduler.table;
        const void *const was = run->parts.scheduler.table;
        rate = rates[i];
        table.at = bad_rate;
        run->parts.scheduler.table = &table;
        cr_expect_eq(train_said(run, text, sizeof text, &r), LATHE_E_NUMERIC);
        expect_parts((const char *const[]){"step 4: scheduler \"cosine\" gives the learning ",
                                           said[i], "expected a finite number of at least 0",
                                           NULL});
        cr_expect_eq(r.step, 3);
        run->parts.scheduler.table = was;
        lathe_run_close(run);
    }
}
