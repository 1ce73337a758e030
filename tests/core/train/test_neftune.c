/* Noise in the token embeddings (NEFTune): loss and gradients against PyTorch with the same noise,
 * evaluation without noise, resuming, recomputation, a model family that does not offer its
 * embeddings. Golden: tests/golden/neftune.py. */
#include "checkpoint/state/checkpoint.h"
#include "run/parts/run_parts.h"
#include "support/small_run.h"

enum { B = 2, T = 19 };

static char folder[] = "/tmp/lathe_neftune_XXXXXX";

/* ---- batches by hand ---- */

typedef struct golden_batch {
    lathe_safetensors *file;
    int32_t targets[B * T];
    double n_targets;
    lathe_run_batch batch;
} golden_batch;

static const float *golden_tensor(const golden_batch *g, const char *what, const char *name)
{
    char key[256];
    snprintf(key, sizeof key, "%s%s", what, name);
    const lathe_st_tensor *t = lathe_safetensors_find(g->file, key);
    return t ? t->data : NULL;
}

static void golden_open(golden_batch *g)
{
    *g = (golden_batch){.n_targets = 0.0};
    OK(lathe_safetensors_open(LATHE_TEST_DATA "/golden/data/neftune.safetensors", &g->file));
    const int32_t *ids = lathe_safetensors_find(g->file, "input_ids")->data;
    const int32_t *mask = lathe_safetensors_find(g->file, "mask")->data;
    for (int i = 0; i < B * T; i++) {
        g->targets[i] = mask[i] ? ids[i + 1] : -1;
        g->n_targets += mask[i];
    }
    g->batch = (lathe_run_batch){.size = sizeof g->batch,
                                 .n_rows = B,
                                 .row_tokens = T,
                                 .tokens = ids,
                                 .targets = g->targets};
}

static lathe_run *open_golden(const char *const *more)
{
    settings s = {.n = 0};
    set(&s, "model.path=" MODELS "llama_tied");
    set(&s, "stage.name=sft");
    set(&s, "data.seq_len=%d", T);
    set(&s, "train.micro_batch_size=%d", B);
    set(&s, "train.precision=fp32");
    set(&s, "train.seed=1234");
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

static const char *const noisy[] = {"stage.neftune_noise_alpha=5", NULL};
static const char *const zero[] = {"stage.neftune_noise_alpha=0", NULL};
static const char *const nothing[] = {NULL};

Test(neftune, loss_and_gradients_are_those_of_pytorch_with_the_same_noise)
{
    golden_batch g;
    int n_seen = 0;
    golden_open(&g);
    lathe_run *run = open_golden(noisy);
    const double want = (double)*golden_tensor(&g, "loss.noisy", "");
    const double got = loss_sum(run, &g, LATHE_FORWARD_TRAIN) / g.n_targets;
    cr_expect_float_eq(got, want, 1e-5 * want, "%.8f, PyTorch %.8f", got, want);
    OK(lathe_backward(run, NULL));
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *p = run->params.rows[i];
        const float *grad = golden_tensor(&g, "grad.noisy.", p->name);
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
    cr_expect_eq(n_seen, 5);
    lathe_run_close(run);
    lathe_safetensors_close(g.file);
}

Test(neftune, evaluation_has_no_noise_and_each_micro_batch_has_its_own)
{
    golden_batch g;
    golden_open(&g);
    lathe_run *run = open_golden(noisy), *plain = open_golden(nothing);
    const double clean = loss_sum(plain, &g, 0);
    cr_expect_float_eq(clean / g.n_targets, (double)*golden_tensor(&g, "loss.plain", ""), 1e-5);
    cr_expect_eq(loss_sum(run, &g, 0), clean);
    const double first = loss_sum(run, &g, LATHE_FORWARD_TRAIN);
    OK(lathe_backward(run, NULL));
    const double second = loss_sum(run, &g, LATHE_FORWARD_TRAIN);
    cr_expect_neq(first, clean);
    cr_expect_neq(first, second);
    OK(lathe_backward(run, NULL));
    lathe_run_close(run);
    lathe_run_close(plain);
    lathe_safetensors_close(g.file);
}

Test(neftune, alpha_0_has_the_graph_and_the_bits_of_a_run_without_it)
{
    golden_batch g;
    golden_open(&g);
    lathe_run *a = open_golden(zero), *b = open_golden(nothing);
    cr_expect_eq(a->programs.train.rng, LATHE_NONE);
    cr_expect_eq(loss_sum(a, &g, LATHE_FORWARD_TRAIN), loss_sum(b, &g, LATHE_FORWARD_TRAIN));
    OK(lathe_backward(a, NULL));
    OK(lathe_backward(b, NULL));
    for (int32_t i = 0; i < a->params.n; i++)
        cr_expect_eq(memcmp(lathe_store_grad(&a->store, i), lathe_store_grad(&b->store, i),
                            (size_t)lathe_desc_count(&a->params.rows[i]->desc) * 4),
                     0, "%s", a->params.rows[i]->name);
    lathe_run_close(a);
    lathe_run_close(b);
    lathe_safetensors_close(g.file);
}

/* ---- runs ---- */

static void write_examples(void)
{
    char path[256];
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/train.jsonl", folder);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < 16; i++)
        fprintf(f, "{\"prompt\": \"part %d: \", \"completion\": \"made in %d ways\"}\n", i, i % 3);
    fclose(f);
}

static void train_to(const char *out, int steps, const char *const *more)
{
    static char said[4096];
    lathe_train_result result;
    settings s = {.n = 0};
    set(&s, "data.datasets=[{path = \"%s/train.jsonl\"}]", folder);
    set(&s, "data.cache_dir=%s/cache", folder);
    set(&s, "checkpoint.dir=%s/%s", folder, out);
    set(&s, "tokenizer.path=bytes");
    set(&s, "log.progress=off");
    set(&s, "data.seq_len=48");
    set(&s, "stage.name=sft");
    set(&s, "stage.neftune_noise_alpha=10");
    set(&s, "optimizer.lr=5e-3");
    set(&s, "scheduler.name=constant");
    set(&s, "train.threads=1");
    set(&s, "train.micro_batch_size=2");
    set(&s, "train.precision=fp32");
    set_llama(&s, 2, 32, 2, 2, 64);
    set_all(&s, more);
    set(&s, "train.max_steps=%d", steps);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(train_said(run, said, sizeof said, &result));
    lathe_run_close(run);
}

static lathe_safetensors *saved(const char *out, const char *file)
{
    lathe_safetensors *set = NULL;
    char path[300];
    snprintf(path, sizeof path, "%s/%s/step-00000005/%s", folder, out, file);
    OK(lathe_safetensors_open(path, &set));
    return set;
}

static int same_weights(const char *a, const char *b, const char *file)
{
    lathe_safetensors *x = saved(a, file), *y = saved(b, file);
    int same = 1;
    cr_assert_eq(lathe_safetensors_count(x), lathe_safetensors_count(y));
    for (int64_t i = 0; i < lathe_safetensors_count(x); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(x, i);
        const lathe_st_tensor *u = lathe_safetensors_find(y, t->name);
        cr_assert(u, "%s", t->name);
        same &= memcmp(t->data, u->data, (size_t)lathe_desc_bytes(&t->desc)) == 0;
    }
    lathe_safetensors_close(x);
    lathe_safetensors_close(y);
    return same;
}

Test(neftune, a_resumed_run_has_the_same_bits)
{
    static const char *const lora[] = {"adapter.name=lora", "adapter.r=2", "adapter.dropout=0.3",
                                       NULL};
    write_examples();
    train_to("whole", 5, nothing);
    train_to("parts", 2, nothing);
    train_to("parts", 5, nothing);
    cr_expect(same_weights("whole", "parts", "model.safetensors"));
    train_to("whole_lora", 5, lora);
    train_to("parts_lora", 2, lora);
    train_to("parts_lora", 5, lora);
    cr_expect(same_weights("whole_lora", "parts_lora", "adapter_model.safetensors"));
    OK(lathe_dir_remove(folder));
}

Test(neftune, recomputation_changes_no_bit_and_the_noise_does)
{
    static const char *const all[] = {"train.recompute=layer", NULL};
    static const char *const none[] = {"train.recompute=none", NULL};
    write_examples();
    train_to("none", 5, none);
    train_to("all", 5, all);
    train_to("clean", 5, zero);
    cr_expect(same_weights("none", "all", "model.safetensors"));
    cr_expect_not(same_weights("none", "clean", "model.safetensors"));
    OK(lathe_dir_remove(folder));
}

/* ---- a family that does not offer its embeddings ---- */

static const lathe_model_v1 *family;
static int n_calls;

static lathe_status keep(void *ctx, lathe_val *x)
{
    (void)ctx;
    (void)x;
    return LATHE_OK;
}

static lathe_status (*offered)(void *ctx, lathe_val *x);

static lathe_status twice(void *ctx, lathe_val *x)
{
    LATHE_TRY(offered(ctx, x));
    return offered(ctx, x);
}

static lathe_status build_without(void *self, const lathe_model_builder *b, lathe_val *out)
{
    lathe_model_builder changed = *b;
    offered = b->embedded;
    changed.embedded = n_calls == 0 ? keep : twice;
    return family->build(self, &changed, out);
}

static void expect_refused(int calls, lathe_status status, const char *const *parts)
{
    lathe_run *run = open_golden(noisy);
    lathe_program_config config = lathe__run_program_config(run);
    lathe_model_config model = *config.model;
    family = model.family.table;
    lathe_model_v1 table = *family;
    lathe_program program;
    table.build = build_without;
    model.family.table = &table;
    config.model = &model;
    n_calls = calls;
    cr_expect_eq(lathe_program_build(&config, LATHE_PROGRAM_TRAIN, &program), status);
    expect_parts(parts);
    cr_expect_eq(lathe_program_build(&config, LATHE_PROGRAM_EVAL, &program), LATHE_OK);
    lathe_program_fini(&program);
    lathe_run_close(run);
}

Test(neftune, a_model_family_that_does_not_offer_its_embeddings_is_refused)
{
    static const char *const none[] = {"adds noise to the token embeddings",
                                       "model family llama does not", "train without noise", NULL};
    static const char *const both[] = {"llama: build() calls embedded() twice", NULL};
    expect_refused(0, LATHE_E_CONFIG, none);
    expect_refused(2, LATHE_E_PLUGIN, both);
}
