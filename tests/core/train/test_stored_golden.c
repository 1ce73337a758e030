/* The losses on a stored teacher against PyTorch. Goldens: tests/golden/distill_stored.py. */
#include "support/golden_folders.h"
#include "support/stored_case.h"

enum { B = 2, T = 19 };

TestSuite(stored_golden, .init = setup, .fini = teardown);

static const lathe_st_tensor *golden_tensor(const lathe_safetensors *golden, const char *what,
                                            const char *variant, const char *name)
{
    char key[256];
    snprintf(key, sizeof key, "%s.%s%s%s", what, variant, name ? "." : "", name ? name : "");
    return lathe_safetensors_find(golden, key);
}

static double golden_number(const lathe_safetensors *golden, const char *what, const char *variant)
{
    return (double)*(const float *)golden_tensor(golden, what, variant, NULL)->data;
}

static void check_gradients(const lathe_run *run, const lathe_safetensors *golden,
                            const char *variant, double n_targets)
{
    int n_seen = 0;
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *p = run->params.rows[i];
        const lathe_st_tensor *want = golden_tensor(golden, "grad", variant, p->name);
        const int64_t n = lathe_desc_count(&p->desc);
        if (!want)
            continue;
        const float *got = lathe_store_grad(&run->store, i);
        float *mean = malloc((size_t)n * sizeof *mean);
        for (int64_t k = 0; k < n; k++)
            mean[k] = got[k] / (float)n_targets;
        compare(p->name, mean, want->data, n, 1e-5);
        free(mean);
        n_seen++;
    }
    cr_expect_eq(n_seen, 5);
}

/* k, temperature: of the stored log-probabilities */
static void check_variant(const char *variant, int k, double temperature, const char *const *stage)
{
    settings s = {.n = 0};
    int32_t targets[B * T];
    lathe_safetensors *golden = NULL;
    lathe_forward_result f = {.size = sizeof f};
    make_empty_folder(k, temperature, T, 128);
    set(&s, "model.path=" MODELS "llama_tied");
    set(&s, "tokenizer.path=bytes");
    set(&s, "teacher.stored=%s", in_folder("golden"));
    set(&s, "stage.name=distill");
    set_all(&s, stage);
    set(&s, "data.seq_len=%d", T);
    set(&s, "train.micro_batch_size=%d", B);
    set(&s, "train.precision=fp32");
    set(&s, "train.head_chunk_rows=7");
    set(&s, "train.max_steps=10");
    OK(lathe_safetensors_open(LATHE_TEST_DATA "/golden/data/distill_stored.safetensors", &golden));
    const int32_t *ids = lathe_safetensors_find(golden, "input_ids")->data;
    const int32_t *mask = lathe_safetensors_find(golden, "mask")->data;
    double n = 0.0;
    for (int i = 0; i < B * T; i++) {
        targets[i] = mask[i] ? ids[i + 1] : -1;
        n += mask[i];
    }
    const lathe_batch_input inputs[] = {
        {"teacher_logprobs", golden_tensor(golden, "values", variant, NULL)->data},
        {"teacher_tokens", golden_tensor(golden, "tokens", variant, NULL)->data}};
    const lathe_run_batch batch = {.size = sizeof batch,
                                   .n_rows = B,
                                   .row_tokens = T,
                                   .tokens = ids,
                                   .targets = targets,
                                   .inputs = inputs,
                                   .n_inputs = 2};
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, s.list);
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
    const double loss = golden_number(golden, "loss", variant);
    const double ce = golden_number(golden, "cross_entropy", variant);
    const double d = golden_number(golden, "divergence", variant);
    cr_expect_eq(f.count, n);
    cr_expect_float_eq(f.loss_sum / n, loss, 1e-5 * loss, "%s: %.8f, PyTorch %.8f", variant,
                       f.loss_sum / n, loss);
    cr_expect_float_eq(run->sum.metric_sums[0] / n, ce, 1e-5 * ce);
    cr_expect_float_eq(run->sum.metric_sums[1] / n, d, 1e-5 * d, "%s: %.8f, PyTorch %.8f", variant,
                       run->sum.metric_sums[1] / n, d);
    OK(lathe_backward(run, NULL));
    check_gradients(run, golden, variant, n);
    lathe_run_close(run);
    lathe_safetensors_close(golden);
}

Test(stored_golden, the_forward_divergence_with_a_tail_is_that_of_pytorch)
{
    static const char *const stage[] = {"stage.alpha=0.3", "stage.temperature=2", NULL};
    check_variant("tail_forward", 5, 2.0, stage);
}

Test(stored_golden, the_reverse_divergence_with_a_tail_is_that_of_pytorch)
{
    static const char *const stage[] = {"stage.alpha=0.0", "stage.temperature=1.5",
                                        "stage.divergence=reverse", NULL};
    check_variant("tail_reverse", 7, 1.5, stage);
}

Test(stored_golden, the_jensen_shannon_divergence_with_a_tail_is_that_of_pytorch)
{
    static const char *const stage[] = {"stage.divergence=jsd", "stage.beta=0.3", NULL};
    check_variant("tail_jsd", 3, 1.0, stage);
}

Test(stored_golden, the_forward_divergence_of_the_stored_tokens_alone_is_that_of_pytorch)
{
    static const char *const stage[] = {"stage.alpha=0.3", "stage.temperature=2",
                                        "stage.add_tail=false", NULL};
    check_variant("alone_forward", 6, 1.0, stage);
}

Test(stored_golden, the_jensen_shannon_divergence_of_the_stored_tokens_alone_is_that_of_pytorch)
{
    static const char *const stage[] = {"stage.alpha=0", "stage.divergence=jsd", "stage.beta=0.7",
                                        "stage.add_tail=false", NULL};
    check_variant("alone_jsd", 4, 1.0, stage);
}
