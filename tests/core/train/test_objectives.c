/* Prefix and masked objectives: loss and gradients against PyTorch on packed documents, with both
 * attention backends and every recomputation; resuming, evaluations, refusals, and the config.json
 * of a masked model. Golden: tests/golden/objectives.py. */
#include "checkpoint/state/checkpoint.h"
#include "run/parts/run_parts.h"
#include "support/small_run.h"

enum { B = 2, T = 26 };

static const char *const kinds[] = {"prefix", "masked"};
static char folder[] = "/tmp/lathe_objectives_XXXXXX";

/* ---- batches by hand ---- */

typedef struct golden_batch {
    lathe_safetensors *file;
    const char *kind;
    double n_targets;
    lathe_run_batch batch;
} golden_batch;

static const void *golden_tensor(const golden_batch *g, const char *what, const char *name)
{
    char key[256];
    snprintf(key, sizeof key, "%s.%s%s", g->kind, what, name);
    const lathe_st_tensor *t = lathe_safetensors_find(g->file, key);
    return t ? t->data : NULL;
}

static void golden_open(golden_batch *g, const char *kind)
{
    *g = (golden_batch){.kind = kind};
    OK(lathe_safetensors_open(LATHE_TEST_DATA "/golden/data/objectives.safetensors", &g->file));
    g->batch = (lathe_run_batch){.size = sizeof g->batch,
                                 .n_rows = B,
                                 .row_tokens = T,
                                 .tokens = golden_tensor(g, "tokens", ""),
                                 .targets = golden_tensor(g, "targets", ""),
                                 .positions = golden_tensor(g, "positions", ""),
                                 .doc_start = golden_tensor(g, "doc_start", ""),
                                 .key_end = golden_tensor(g, "key_end", "")};
    for (int i = 0; i < B * T; i++)
        g->n_targets += g->batch.targets[i] >= 0;
}

static lathe_run *open_golden(const char *kind, const char *const *more)
{
    settings s = {.n = 0};
    set(&s, "model.path=" MODELS "llama_tied");
    set(&s, "stage.objective=%s", kind);
    if (strcmp(kind, "masked") == 0)
        set(&s, "stage.mask_token=~");
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=%d", T);
    set(&s, "train.micro_batch_size=%d", B);
    set(&s, "train.precision=fp32");
    set(&s, "train.max_steps=10");
    set_all(&s, more);
    return open_run(LATHE_OPEN_BATCHES, s.list);
}

static double loss_sum(lathe_run *run, const golden_batch *g, uint32_t flags)
{
    lathe_forward_result f = {.size = sizeof f};
    OK(lathe_forward(run, &g->batch, flags, &f));
    cr_expect_eq(f.count, g->n_targets);
    return f.loss_sum;
}

static const char *const nothing[] = {NULL};

/* Gradients sum up to 52 products of f32 per element and pass through 2 layers. */
static void check_golden(const char *kind, const char *const *more)
{
    golden_batch g;
    int n_seen = 0;
    golden_open(&g, kind);
    lathe_run *run = open_golden(kind, more);
    const double want = (double)*(const float *)golden_tensor(&g, "loss", "");
    const double got = loss_sum(run, &g, LATHE_FORWARD_TRAIN) / g.n_targets;
    cr_expect_float_eq(got, want, 1e-6 * want, "%s %s: %.8f, PyTorch %.8f", kind, more[0], got,
                       want);
    OK(lathe_backward(run, NULL));
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *p = run->params.rows[i];
        const float *grad = golden_tensor(&g, "grad.", p->name);
        const int64_t n = lathe_desc_count(&p->desc);
        if (!grad)
            continue;
        const float *sum = lathe_store_grad(&run->store, i);
        float *mean = malloc((size_t)n * sizeof *mean);
        for (int64_t k = 0; k < n; k++)
            mean[k] = sum[k] / (float)g.n_targets;
        compare(p->name, mean, grad, n, 1e-5);
        free(mean);
        n_seen++;
    }
    cr_expect_eq(n_seen, 6);
    const double evaluated = loss_sum(run, &g, 0) / g.n_targets;
    cr_expect_float_eq(evaluated, want, 1e-6 * want, "%s: evaluated %.8f", kind, evaluated);
    lathe_run_close(run);
    lathe_safetensors_close(g.file);
}

Test(objectives, loss_and_gradients_are_those_of_pytorch)
{
    static const char *const modes[] = {"none", "attention", "mlp", "layer"};
    static const char *const backends[] = {"flash_cpu", "reference"};
    for (int k = 0; k < 2; k++)
        for (int b = 0; b < 2; b++)
            for (int m = 0; m < 4; m++) {
                char backend[64], recompute[64];
                snprintf(backend, sizeof backend, "attention.name=%s", backends[b]);
                snprintf(recompute, sizeof recompute, "train.recompute=%s", modes[m]);
                const char *const more[] = {backend, recompute, NULL};
                check_golden(kinds[k], more);
            }
}

/* Without key_end all rows are full, and nothing of them is a prefix: a masked model has the loss
 * of the golden key_end, a prefix model that of a causal one. */
Test(objectives, batches_without_key_end)
{
    golden_batch g;
    golden_open(&g, "masked");
    lathe_run *run = open_golden("masked", nothing);
    const double given = loss_sum(run, &g, 0);
    const int32_t *key_end = g.batch.key_end;
    g.batch.key_end = NULL;
    cr_expect_eq(loss_sum(run, &g, 0), given);
    lathe_run_close(run);

    lathe_run *prefix = open_golden("prefix", nothing), *causal = open_golden("causal", nothing);
    cr_expect_eq(loss_sum(prefix, &g, 0), loss_sum(causal, &g, 0));
    cr_expect_neq(loss_sum(causal, &g, 0), given);

    lathe_forward_result f = {.size = sizeof f};
    g.batch.key_end = key_end;
    cr_expect_eq(lathe_forward(causal, &g.batch, 0, &f), LATHE_E_ARG);
    cr_expect(strstr(lathe_error_message(), "the run's objective is causal"));
    int32_t wrong[B * T];
    memcpy(wrong, key_end, sizeof wrong);
    wrong[T + 3] = 3;
    g.batch.key_end = wrong;
    cr_expect_eq(lathe_forward(prefix, &g.batch, 0, &f), LATHE_E_ARG);
    cr_expect_str_eq(lathe_error_message(),
                     "key_end 3 at row 1, column 3; expected more than the column and at most 26");
    lathe_run_close(prefix);
    lathe_run_close(causal);
    lathe_safetensors_close(g.file);
}

/* ---- runs ---- */

static void small_settings(settings *s, const char *out, const char *kind)
{
    set(s, "data.datasets=[{path = \"%s/corpus.txt\"}]", folder);
    set(s, "data.cache_dir=%s/cache", folder);
    set(s, "data.validation_split=0.1");
    set(s, "checkpoint.dir=%s/%s", folder, out);
    set(s, "tokenizer.path=bytes");
    set(s, "log.progress=off");
    set(s, "data.seq_len=48");
    set(s, "optimizer.lr=5e-3");
    set(s, "scheduler.name=constant");
    set(s, "train.threads=1");
    set(s, "train.micro_batch_size=2");
    set(s, "train.gradient_accumulation_steps=2");
    set(s, "train.precision=fp32");
    set(s, "train.eval_every=5");
    set_llama(s, 2, 32, 2, 2, 64);
    set(s, "stage.objective=%s", kind);
    if (strcmp(kind, "masked") == 0)
        set(s, "stage.mask_token=~");
}

static void train_to(const char *out, const char *kind, int steps, const char *const *more)
{
    static char said[4096];
    lathe_train_result result;
    settings s = {.n = 0};
    small_settings(&s, out, kind);
    set_all(&s, more);
    set(&s, "train.max_steps=%d", steps);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(train_said(run, said, sizeof said, &result));
    lathe_run_close(run);
}

static int same_weights(const char *a, const char *b)
{
    lathe_safetensors *set[2] = {NULL};
    int same = 1;
    for (int i = 0; i < 2; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s/step-00000005/model.safetensors", folder, i ? b : a);
        OK(lathe_safetensors_open(path, &set[i]));
    }
    for (int64_t i = 0; i < lathe_safetensors_count(set[0]); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set[0], i);
        const lathe_st_tensor *u = lathe_safetensors_find(set[1], t->name);
        cr_assert(u, "%s", t->name);
        same &= memcmp(t->data, u->data, (size_t)lathe_desc_bytes(&t->desc)) == 0;
    }
    lathe_safetensors_close(set[0]);
    lathe_safetensors_close(set[1]);
    return same;
}

/* Stopped after 2 of 5 steps; with prefetching in one part, and sophia, which draws labels for the
 * last micro-batch. */
Test(objectives, a_resumed_run_has_the_same_bits)
{
    static const char *const ahead[] = {"data.prefetch=3", NULL};
    static const char *const sophia[] = {"optimizer.name=sophia", "optimizer.estimate_every=2",
                                         NULL};
    make_folder(folder, 6000);
    for (int k = 0; k < 2; k++) {
        char whole[32], parts[32], other[32];
        snprintf(whole, sizeof whole, "whole_%s", kinds[k]);
        snprintf(parts, sizeof parts, "parts_%s", kinds[k]);
        train_to(whole, kinds[k], 5, nothing);
        train_to(parts, kinds[k], 2, ahead);
        train_to(parts, kinds[k], 5, nothing);
        cr_expect(same_weights(whole, parts), "%s", kinds[k]);
        snprintf(other, sizeof other, "sophia_%s", kinds[k]);
        train_to(other, kinds[k], 5, sophia);
        snprintf(parts, sizeof parts, "sophia_parts_%s", kinds[k]);
        train_to(parts, kinds[k], 2, sophia);
        train_to(parts, kinds[k], 5, sophia);
        cr_expect(same_weights(other, parts), "sophia, %s", kinds[k]);
    }
    cr_expect_not(same_weights("whole_prefix", "whole_masked"));
    train_to("whole_causal", "causal", 5, nothing);
    cr_expect_not(same_weights("whole_prefix", "whole_causal"));
    OK(lathe_dir_remove(folder));
}

static double evaluate(lathe_run *run)
{
    lathe_evaluation e;
    OK(lathe_evaluate(run, 0, NULL, &e));
    cr_expect_gt(e.count, 0.0);
    cr_expect(isnan(e.bits_per_byte)); /* the loss is not that of all of the text */
    return e.loss;
}

/* Equal rows have equal masks, whatever was trained in between; other seeds give other masks. */
Test(objectives, evaluations_have_fixed_masks)
{
    make_folder(folder, 6000);
    for (int k = 0; k < 2; k++) {
        double losses[3];
        for (int seed = 0; seed < 3; seed++) {
            settings s = {.n = 0};
            small_settings(&s, "evaluated", kinds[k]);
            set(&s, "train.max_steps=5");
            set(&s, "train.seed=1");
            set(&s, "data.seed=%d", seed == 2 ? 5 : 4);
            lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
            losses[seed] = evaluate(run);
            cr_expect_eq(evaluate(run), losses[seed]);
            lathe_forward_result f = {.size = sizeof f};
            OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
            OK(lathe_backward(run, NULL));
            OK(lathe_zero_grad(run));
            cr_expect_eq(evaluate(run), losses[seed]);
            lathe_run_close(run);
        }
        cr_expect_eq(losses[0], losses[1]);
        cr_expect_neq(losses[0], losses[2]);
    }
    OK(lathe_dir_remove(folder));
}

/* ---- refusals ---- */

static void expect_refused(const char *kind, const char *const *more, const char *const *parts)
{
    lathe_run *run = NULL;
    settings s = {.n = 0};
    small_settings(&s, "refused", kind);
    set_all(&s, more);
    set(&s, "train.max_steps=5");
    cr_expect_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG, "%s", parts[0]);
    expect_parts(parts);
    lathe_run_close(run);
}

Test(objectives, what_does_not_fit_is_refused_by_name)
{
    static const struct {
        const char *kind, *more[4], *parts[4];
    } cases[] = {
        {"causal",
         {"stage.prefix_fraction=0.5"},
         {"prefix_fraction has no meaning for objective \"causal\"", "use \"prefix\""}},
        {"prefix",
         {"stage.mask_probability=0.2"},
         {"mask_probability has no meaning for objective \"prefix\"", "use \"masked\""}},
        {"masked",
         {"stage.mask_share=0.8", "stage.random_share=0.3"},
         {"mask_share is 0.8 and random_share 0.3; together they may be 1 at most"}},
        {"masked", {"stage.mask_probability=0"}, {"stage.mask_probability"}},
        {"prefix", {"stage.prefix_fraction=1"}, {"stage.prefix_fraction"}},
        {"masked", {"stage.mask_token=<mask>"}, {"mask_token \"<mask>\" is not a token"}},
        {"masked", {"stage.mask_token="}, {"mask_token is empty"}},
        {"masked", {"generate.every=2"}, {"generate.every = 2", "the objective", "is masked"}},
        {"prefix", {"generate.every=2"}, {"generate.every = 2", "is prefix"}},
        {"prefix",
         {"model.model_type=mistral", "model.sliding_window=32"},
         {"a window of 32 tokens", "set data.seq_len to 32 at most"}},
        {"unknown", {NULL}, {"stage.objective", "causal, prefix"}},
    };
    make_folder(folder, 6000);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refused(cases[i].kind, cases[i].more, cases[i].parts);
    OK(lathe_dir_remove(folder));
}

/* A window as long as the rows hides nothing. */
Test(objectives, a_window_as_long_as_the_rows_is_accepted)
{
    static const char *const more[] = {"model.model_type=mistral", "model.sliding_window=48", NULL};
    make_folder(folder, 6000);
    train_to("window", "prefix", 5, more);
    OK(lathe_dir_remove(folder));
}

/* ---- a family that builds causal attention only ---- */

static const lathe_model_v1 *family;

static lathe_status build_causal(void *self, const lathe_model_builder *b, lathe_val *out)
{
    lathe_model_builder changed = *b;
    changed.key_end = LATHE_NONE;
    return family->build(self, &changed, out);
}

Test(objectives, a_family_that_is_always_causal_is_refused)
{
    static const char *const parts[] = {"the stage's objective is not causal",
                                        "model family llama builds causal attention only", NULL};
    for (int kind = LATHE_OBJECTIVE_CAUSAL; kind < LATHE_N_OBJECTIVES; kind++) {
        lathe_run *run = open_golden("causal", nothing);
        lathe_program_config config = lathe__run_program_config(run);
        lathe_model_config model = *config.model;
        family = model.family.table;
        lathe_model_v1 table = *family;
        lathe_program program;
        table.build = build_causal;
        model.family.table = &table;
        config.model = &model;
        config.objective = kind;
        const lathe_status want = kind == LATHE_OBJECTIVE_CAUSAL ? LATHE_OK : LATHE_E_CONFIG;
        cr_expect_eq(lathe_program_build(&config, LATHE_PROGRAM_TRAIN, &program), want);
        if (want == LATHE_OK)
            lathe_program_fini(&program);
        else
            expect_parts(parts);
        lathe_run_close(run);
    }
}

/* ---- the folder of a masked model ---- */

static int says_two_way(const char *out)
{
    static char text[8192];
    char path[300];
    snprintf(path, sizeof path, "%s/%s/step-00000005/config.json", folder, out);
    FILE *f = fopen(path, "r");
    cr_assert(f, "%s", path);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return strstr(text, "\"is_causal\": false") != NULL;
}

/* Opens the saved folder as the model of a run. */
static lathe_status open_saved(const char *out, const char *kind, int32_t mode, lathe_run **run)
{
    settings s = {.n = 0};
    set(&s, "model.path=%s/%s/step-00000005", folder, out);
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=48");
    set(&s, "train.precision=fp32");
    if (mode != LATHE_OPEN_INFER) {
        set(&s, "data.datasets=[{path = \"%s/corpus.txt\"}]", folder);
        set(&s, "data.cache_dir=%s/cache", folder);
        set(&s, "train.max_steps=2");
        set(&s, "stage.objective=%s", kind);
        if (strcmp(kind, "masked") == 0)
            set(&s, "stage.mask_token=~");
    }
    return open_run_status(mode, s.list, run);
}

Test(objectives, the_folder_of_a_masked_model_says_that_it_is_not_causal)
{
    lathe_run *run = NULL;
    lathe_generation out = {.size = sizeof out};
    lathe_sampling sampling = {.size = sizeof sampling};
    make_folder(folder, 6000);
    train_to("masked", "masked", 5, nothing);
    train_to("prefix", "prefix", 5, nothing);
    cr_expect(says_two_way("masked"));
    cr_expect_not(says_two_way("prefix"));

    OK(open_saved("masked", "masked", LATHE_OPEN_TRAIN, &run));
    OK(lathe_default_sampling(run, &sampling));
    cr_expect_eq(lathe_generate(run, "the ", &sampling, &out), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "is masked, and text is generated causally"));
    lathe_run_close(run);
    OK(open_saved("prefix", "causal", LATHE_OPEN_TRAIN, &run));
    lathe_run_close(run);
    cr_expect_eq(open_saved("masked", "causal", LATHE_OPEN_TRAIN, &run), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "is_causal is false"));
    cr_expect_eq(open_saved("masked", "prefix", LATHE_OPEN_TRAIN, &run), LATHE_E_CONFIG);

    OK(open_saved("masked", "", LATHE_OPEN_INFER, &run));
    OK(lathe_default_sampling(run, &sampling));
    cr_expect_eq(lathe_generate(run, "the ", &sampling, &out), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "is_causal is false"));
    lathe_run_close(run);
    OK(lathe_dir_remove(folder));
}
