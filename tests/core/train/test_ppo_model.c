/* ppo with a critic on a folder that transformers wrote: the outputs of an evaluation, and the loss
 * and gradient of every parameter as TRL's PPOTrainer has them. Goldens:
 * tests/golden/ppo_critic.py. */
#include "run/api/primitives.h"
#include "run/parts/run_parts.h"
#include "support/run_case.h"

enum { B = 3, T = 12, N_TARGETS = 14, N_INPUTS = 4 };

typedef struct critic_case {
    lathe_run *run;
    lathe_safetensors *golden;
    lathe_batch_input inputs[N_INPUTS + 2];
    float ones[B * T], zeros[B * T];
    lathe_run_batch batch;
} critic_case;

static const void *golden_tensor(const critic_case *c, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(c->golden, name);
    cr_assert(t, "the golden lacks %s", name);
    return t->data;
}

/* The run's critic becomes that of the golden; all else of it is in the folder. */
static void case_open(critic_case *c, const char *recompute)
{
    static const char *const names[N_INPUTS] = {"old_logprobs", "old_values", "advantages",
                                                "returns"};
    char mode[64];
    snprintf(mode, sizeof mode, "train.recompute=%s", recompute);
    const char *const settings[] = {"model.path=" LATHE_TEST_DATA "/golden/data/models/llama_tied",
                                    "stage.name=ppo",
                                    "stage.advantage=gae",
                                    "stage.epochs=2",
                                    "stage.max_new_tokens=4",
                                    "stage.vf_coef=0.5",
                                    "stage.cliprange_value=0.3",
                                    "reward.name=length",
                                    "reward.tokens=3",
                                    mode,
                                    "data.seq_len=12",
                                    "train.micro_batch_size=3",
                                    "train.precision=fp32",
                                    "train.max_steps=10",
                                    NULL};
    OK(lathe_safetensors_open(LATHE_TEST_DATA "/golden/data/ppo_critic.safetensors", &c->golden));
    c->run = open_run(LATHE_OPEN_BATCHES, settings);
    const int32_t row = lathe_params_find(&c->run->params, "value.weight");
    cr_assert_geq(row, 0);
    OK(lathe__run_weights(c->run));
    memcpy(lathe_store_master(&c->run->store, row), golden_tensor(c, "value.weight"),
           (size_t)c->run->model.width * sizeof(float));
    for (int i = 0; i < N_INPUTS; i++)
        c->inputs[i] = (lathe_batch_input){names[i], golden_tensor(c, names[i])};
    for (int i = 0; i < B * T; i++)
        c->ones[i] = 1.0f, c->zeros[i] = 0.0f;
    c->inputs[N_INPUTS] = (lathe_batch_input){"weights", c->ones};
    c->inputs[N_INPUTS + 1] = (lathe_batch_input){"kl_coef", c->zeros};
    c->batch = (lathe_run_batch){.size = (uint32_t)sizeof c->batch,
                                 .n_rows = B,
                                 .row_tokens = T,
                                 .tokens = golden_tensor(c, "input_ids"),
                                 .targets = golden_tensor(c, "targets"),
                                 .inputs = c->inputs,
                                 .n_inputs = N_INPUTS + 2};
}

static void case_close(critic_case *c)
{
    lathe_run_close(c->run);
    lathe_safetensors_close(c->golden);
}

Test(ppo_model, outputs_are_log_probabilities_and_values_of_each_target)
{
    critic_case c;
    float logprobs[B * T], values[B * T], masked[B * T];
    float *const out[3] = {logprobs, values, NULL};
    case_open(&c, "none");
    OK(lathe__evaluated_outputs(c.run, &c.batch, out));
    for (int i = 0; i < B * T; i++)
        masked[i] = c.batch.targets[i] >= 0 ? values[i] : 0.0f;
    compare("logprobs", logprobs, golden_tensor(&c, "logprobs"), B * T, 1e-5);
    compare("values", masked, golden_tensor(&c, "values"), B * T, 1e-5);
    float *const some[3] = {NULL, masked, NULL};
    OK(lathe__evaluated_outputs(c.run, &c.batch, some));
    cr_expect_arr_eq(masked, values, sizeof values);
    case_close(&c);
}

static void check_gradients(const char *recompute)
{
    critic_case c;
    lathe_forward_result f = {.size = sizeof f};
    case_open(&c, recompute);
    OK(lathe_forward(c.run, &c.batch, LATHE_FORWARD_TRAIN, &f));
    const double want = (double)*(const float *)golden_tensor(&c, "loss");
    cr_expect_eq(f.count, (double)N_TARGETS);
    cr_expect_float_eq(f.loss_sum / N_TARGETS, want, 1e-5 * want, "%.8f, TRL %.8f",
                       f.loss_sum / N_TARGETS, want);
    OK(lathe_backward(c.run, NULL));
    cr_assert_gt(c.run->params.n, 10);
    for (int32_t i = 0; i < c.run->params.n; i++) {
        const lathe_param *p = c.run->params.rows[i];
        const int64_t n = lathe_desc_count(&p->desc);
        const float *got = lathe_store_grad(&c.run->store, i);
        char name[160];
        float *mean = malloc((size_t)n * sizeof *mean);
        snprintf(name, sizeof name, "grad.%s", p->name);
        for (int64_t k = 0; k < n; k++)
            mean[k] = got[k] / (float)N_TARGETS;
        compare(p->name, mean, golden_tensor(&c, name), n, 1e-5);
        free(mean);
    }
    case_close(&c);
}

Test(ppo_model, loss_and_gradient_of_every_parameter_are_those_of_trl)
{
    check_gradients("none");
    check_gradients("layer");
}
