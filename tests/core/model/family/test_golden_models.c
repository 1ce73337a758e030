/* Whole runs compared with transformers: logits, log-probabilities, loss and the gradient of every
 * parameter, for each family, attention backend and recompute mode. Goldens:
 * tests/golden/models.py. */
#include "support/golden_folders.h"
#include "support/run_case.h"

enum { B = 2, T = 23, N_TARGETS = B * (T - 1) };

/* A golden folder opened as a run, with its batch. */
typedef struct model_case {
    lathe_run *run;
    lathe_safetensors *golden;
    int32_t targets[B * T];
    lathe_run_batch batch;
} model_case;

/* The shape that a run is opened with: that of the batch, or one with room for more rows and longer
 * ones, in which the batch is padded. */
typedef struct run_shape {
    int rows, seq_len;
} run_shape;
static const run_shape full = {B, T}, wider = {B + 1, T + 9};

static void case_open(model_case *c, const char *name, const char *attention, const char *recompute,
                      run_shape shape)
{
    char path[512], model[600], backend[64], mode[64], rows[64], seq_len[64];
    snprintf(path, sizeof path, "%s%s/golden.safetensors", MODELS, name);
    snprintf(model, sizeof model, "model.path=%s%s", MODELS, name);
    snprintf(backend, sizeof backend, "attention.name=%s", attention);
    snprintf(mode, sizeof mode, "train.recompute=%s", recompute);
    snprintf(rows, sizeof rows, "train.micro_batch_size=%d", shape.rows);
    snprintf(seq_len, sizeof seq_len, "data.seq_len=%d", shape.seq_len);
    const char *const settings[] = {
        model, backend, mode, seq_len, rows, "train.precision=fp32", "train.max_steps=10", NULL};
    OK(lathe_safetensors_open(path, &c->golden));
    c->run = open_run(LATHE_OPEN_BATCHES, settings);
    const int32_t *ids = lathe_safetensors_find(c->golden, "input_ids")->data;
    for (int i = 0; i < B * T; i++)
        c->targets[i] = i % T == T - 1 ? -1 : ids[i + 1];
    c->batch = (lathe_run_batch){.size = (uint32_t)sizeof c->batch,
                                 .n_rows = B,
                                 .row_tokens = T,
                                 .tokens = ids,
                                 .targets = c->targets};
}

static void case_close(model_case *c)
{
    lathe_run_close(c->run);
    lathe_safetensors_close(c->golden);
}

static const float *golden_tensor(const model_case *c, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(c->golden, name);
    cr_assert(t, "the golden lacks %s", name);
    return t->data;
}

static void check_gradients(const model_case *c)
{
    const lathe_run *run = c->run;
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *p = run->params.rows[i];
        char name[256];
        if (p->role == LATHE_ROLE_BUFFER)
            continue;
        snprintf(name, sizeof name, "grad.%s", p->name);
        const float *want = golden_tensor(c, name);
        const float *got = lathe_store_grad(&run->store, i);
        const int64_t n = lathe_desc_count(&p->desc);
        float *mean = malloc((size_t)n * sizeof *mean);
        const int64_t rows = p->desc.dims[0], cols = p->desc.rank > 1 ? p->desc.dims[1] : 1;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = 0; k < cols; k++)
                mean[p->transposed ? k * rows + r : r * cols + k] =
                    got[r * cols + k] / (float)N_TARGETS;
        compare(name, mean, want, n, 1e-4);
        free(mean);
    }
}

static void check_training(const char *family, const char *attention, const char *recompute,
                           run_shape shape)
{
    model_case c;
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    case_open(&c, family, attention, recompute, shape);
    OK(lathe_forward(c.run, &c.batch, LATHE_FORWARD_TRAIN, &f));
    cr_assert_eq(f.count, (double)N_TARGETS);
    const double want = (double)*golden_tensor(&c, "loss");
    cr_assert_float_eq(f.loss_sum / f.count, want, 1e-5 * want, "%s %s %s: loss %.8f, golden %.8f",
                       family, attention, recompute, f.loss_sum / f.count, want);
    OK(lathe_backward(c.run, NULL));
    check_gradients(&c);
    /* the same batch again: gradients accumulate, so all values double within rounding */
    const int64_t n = lathe_desc_count(&c.run->params.rows[0]->desc);
    const float *g = lathe_store_grad(&c.run->store, 0);
    float *twice = malloc((size_t)n * sizeof *twice);
    for (int64_t i = 0; i < n; i++)
        twice[i] = 2.0f * g[i];
    OK(lathe_forward(c.run, &c.batch, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(c.run, NULL));
    compare("accumulated gradient", g, twice, n, 1e-6);
    free(twice);
    case_close(&c);
}

static void check_logits_in(const char *family, run_shape shape)
{
    model_case c;
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    case_open(&c, family, "auto", "none", shape);
    OK(lathe_forward(c.run, &c.batch, LATHE_FORWARD_LOGITS, &f));
    compare(family, f.logits, golden_tensor(&c, "logits"), B * T * f.vocab_size, 2e-5);
    case_close(&c);
}

static void check_logprobs_in(const char *family, run_shape shape)
{
    model_case c;
    float logprobs[B * T];
    case_open(&c, family, "auto", "none", shape);
    OK(lathe_logprobs(c.run, &c.batch, logprobs));
    compare(family, logprobs, golden_tensor(&c, "logprobs"), B * T, 2e-5);
    case_close(&c);
}

static void check_logits(const char *family)
{
    check_logits_in(family, full);
}

static void check_logprobs(const char *family)
{
    check_logprobs_in(family, full);
}

static void check_gradients_of(const char *family)
{
    check_training(family, "auto", "none", full);
}

static void check_short_rows(const char *family)
{
    check_logits_in(family, wider);
    check_logprobs_in(family, wider);
    check_training(family, "auto", "none", wider);
}

static void check_reference_attention(const char *family)
{
    check_training(family, "reference", "none", full);
}

static void check_recompute(const char *family)
{
    static const char *const modes[] = {"layer", "attention", "mlp", "pointwise"};
    for (size_t m = 0; m < 4; m++)
        check_training(family, "auto", modes[m], full);
}

static void each_family(void (*check)(const char *family))
{
    golden_folders all;
    golden_folders_find(&all);
    for (int i = 0; i < all.n; i++)
        check(all.names[i]);
}

Test(golden_models, logits_agree_with_transformers)
{
    each_family(check_logits);
}

Test(golden_models, log_probabilities_agree_with_transformers)
{
    each_family(check_logprobs);
}

Test(golden_models, loss_and_gradients_agree_with_transformers)
{
    each_family(check_gradients_of);
}

Test(golden_models, gradients_agree_with_the_reference_attention)
{
    each_family(check_reference_attention);
}

Test(golden_models, gradients_agree_in_every_recompute_mode)
{
    each_family(check_recompute);
}

/* Logits of gpt_oss with another swiglu_alpha; free them. */
static float *logits_with_alpha(const char *alpha)
{
    char folder[] = "/tmp/lathe-alpha-XXXXXX", command[900], model[100];
    model_case c = {0};
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    cr_assert_not_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "cp %sgpt_oss/model* %s/ && sed 's/\"swiglu_alpha\": 1.702/\"swiglu_alpha\": %s/' "
             "%sgpt_oss/config.json > %s/config.json",
             MODELS, folder, alpha, MODELS, folder);
    cr_assert_eq(system(command), 0);
    snprintf(model, sizeof model, "model.path=%s", folder);
    snprintf(command, sizeof command, "%sgpt_oss/golden.safetensors", MODELS);
    const char *const settings[] = {model,
                                    "data.seq_len=23",
                                    "train.micro_batch_size=2",
                                    "train.precision=fp32",
                                    "train.max_steps=10",
                                    NULL};
    OK(lathe_safetensors_open(command, &c.golden));
    c.run = open_run(LATHE_OPEN_BATCHES, settings);
    c.batch = (lathe_run_batch){.size = (uint32_t)sizeof c.batch,
                                .n_rows = B,
                                .row_tokens = T,
                                .tokens = lathe_safetensors_find(c.golden, "input_ids")->data};
    OK(lathe_forward(c.run, &c.batch, LATHE_FORWARD_LOGITS, &f));
    const size_t bytes = (size_t)(B * T * f.vocab_size) * sizeof(float);
    float *logits = malloc(bytes);
    cr_assert_not_null(logits);
    memcpy(logits, f.logits, bytes);
    case_close(&c);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
    return logits;
}

/* With 0 the sigmoid is 1/2 everywhere, as nearly with 1e-9; gate and up stay pairs. */
Test(golden_models, gpt_oss_takes_an_alpha_of_0)
{
    float *zero = logits_with_alpha("0.0"), *small = logits_with_alpha("1e-9");
    float *usual = logits_with_alpha("1.702");
    compare("swiglu_alpha 0", zero, small, B * T * 64, 1e-6);
    cr_expect_neq(memcmp(zero, usual, B * T * 64 * sizeof *zero), 0);
    free(zero);
    free(small);
    free(usual);
}

Test(golden_models, linear_attention_refuses_an_objective_that_is_not_causal)
{
    static const char *const settings[] = {"model.path=" MODELS "qwen3_5",
                                           "tokenizer.path=" LATHE_TEST_DATA
                                           "/golden/data/tokenizer/tiny_64.json",
                                           "stage.name=pretrain",
                                           "stage.objective=prefix",
                                           "data.seq_len=16",
                                           "train.max_steps=1",
                                           NULL};
    lathe_run *run = NULL;
    cr_expect_eq(open_run_status(LATHE_OPEN_BATCHES, settings, &run), LATHE_E_UNSUPPORTED);
    cr_expect_not_null(strstr(lathe_error_message(),
                              "layer 0 has linear attention, which is causal: set "
                              "stage.objective = \"causal\", or choose another model"),
                       "%s", lathe_error_message());
    lathe_run_close(run);
}

Test(golden_models, short_rows_of_a_wider_run_agree_with_transformers)
{
    each_family(check_short_rows);
}
