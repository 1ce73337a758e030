/* Products that quantize their inputs (quant.activations): which do, training and resuming, folders
 * that are quantized already, refusals. */
#include "support/checkpoint_case.h"

#include "exec/program/program.h"
#include "graph/ir/ir_graph.h"

#define FOLDER "/tmp/lathe-activations-XXXXXX"
#define QUANTIZED LATHE_TEST_DATA "/golden/data/quantized/"

static void set_int8(settings *s, const char *adapter, const char *activations)
{
    set(s, "adapter.name=%s", adapter);
    set(s, "quant.name=int8");
    set(s, "quant.activations=%s", activations);
}

/* ---- training ---- */

/* Trains to `steps` of 20, and returns the last loss. */
static double train(const char *dir, const char *activations, int steps)
{
    settings s = {.n = 0};
    lathe_train_result r;
    configure(&s, dir);
    set(&s, "train.max_steps=20");
    set(&s, "train.stop_after=%d", steps);
    set_int8(&s, "lora", activations);
    set(&s, "quant.outlier_threshold=1.5");
    OK(train_once(&s, &r, NULL));
    return r.loss;
}

Test(quantized_activations, training_resumes_bit_for_bit)
{
    char whole[] = FOLDER, parts[] = FOLDER;
    make_folder(whole, 4000);
    make_folder(parts, 4000);
    const double loss = train(whole, "int8", 20);
    (void)train(parts, "int8", 9);
    const double again = train(parts, "int8", 20);
    cr_expect_eq(loss, again);
    cr_expect_lt(loss, 5.72, "of 5.77 at random: %g", loss);
    expect_same_file(in(whole, "out/step-00000020/adapter_model.safetensors"),
                     in(parts, "out/step-00000020/adapter_model.safetensors"));
    OK(lathe_dir_remove(whole));
    OK(lathe_dir_remove(parts));
}

/* ---- which products ---- */

static lathe_run *open_llama(const char *adapter, int layers, const char *const *more)
{
    settings s = {.n = 0};
    set_llama(&s, layers, 32, 4, 2, 48);
    set(&s, "model.tie_word_embeddings=true");
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=16");
    set(&s, "train.precision=fp32");
    set(&s, "train.max_steps=5");
    set_int8(&s, adapter, "int8");
    set_all(&s, more);
    return open_run(LATHE_OPEN_PLAN, s.list);
}

/* Products of the graph that read planes, and weights that are decoded whole. */
static void count(const lathe_graph *g, int *out_packed, int *out_whole)
{
    *out_packed = *out_whole = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        *out_whole += g->nodes[i].op == LATHE_OP_DEQUANT;
        *out_packed += g->nodes[i].op == LATHE_OP_LINEAR && g->nodes[i].n_in > 1 &&
                       g->nodes[i].phase == LATHE_PHASE_FORWARD &&
                       g->values[g->nodes[i].in[1]].kind == LATHE_VALUE_PLANES;
    }
}

Test(quantized_activations, every_product_of_the_model_reads_planes)
{
    static const char *const none[] = {NULL};
    int packed, whole;
    lathe_run *run = open_llama("lora", 2, none);
    count(lathe_exec_graph(run->programs.train.exec), &packed, &whole);
    cr_expect_eq(packed, 14);
    cr_expect_eq(whole, 0);
    lathe_run_close(run);
}

/* DoRA's norms multiply A by the decoded weight: parameters, no activations. */
Test(quantized_activations, of_dora_are_those_of_its_products_alone)
{
    static const char *const none[] = {NULL};
    int packed, whole;
    lathe_run *run = open_llama("dora", 1, none);
    const lathe_graph *g = lathe_exec_graph(run->programs.train.exec);
    count(g, &packed, &whole);
    cr_expect_eq(packed, 7);
    cr_expect_gt(whole, 0);
    for (int32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == LATHE_OP_LINEAR &&
            g->values[g->nodes[i].in[1]].kind == LATHE_VALUE_PLANES)
            cr_expect_neq(g->values[g->nodes[i].in[0]].kind, LATHE_VALUE_PARAM);
    lathe_run_close(run);
}

/* ---- folders ---- */

static lathe_status open_folder(const char *const *more, lathe_run **out)
{
    settings s = {.n = 0};
    set(&s, "model.path=" QUANTIZED "bnb_int8");
    set(&s, "tokenizer.path=" LATHE_TEST_DATA "/golden/data/tokenizer/tiny_64.json");
    set(&s, "data.seq_len=16");
    set(&s, "train.precision=fp32");
    set(&s, "train.max_steps=1");
    set(&s, "adapter.name=lora");
    set_all(&s, more);
    return open_run_status(LATHE_OPEN_PLAN, s.list, out);
}

/* Checks what the folder's layers quantize, and from which magnitude on they do not. */
static void expect_folder(const char *const *more, int32_t dtype, float threshold)
{
    int32_t n = 0;
    lathe_run *run = NULL;
    OK(open_folder(more, &run));
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *p = run->params.rows[i];
        lathe_activations a = {0};
        if (p->format == NULL)
            continue;
        const lathe_quant_v1 *table = p->format->table;
        n++;
        cr_expect_eq(p->planes_on_file, 1);
        cr_expect_eq(p->activations, dtype, "%s", p->name);
        cr_expect_eq(table->activations(p->format->self, 64, 64, &a), dtype != 0);
        cr_expect(dtype == 0 || fabsf(a.threshold - threshold) < 1e-6f, "%g", (double)a.threshold);
    }
    cr_expect_eq(n, 7);
    lathe_run_close(run);
}

Test(quantized_activations, of_a_quantized_folder_hold_if_the_run_sets_them)
{
    static const char *const none[] = {NULL};
    static const char *const on[] = {"quant.name=int8", "quant.activations=int8", NULL};
    static const char *const at[] = {"quant.name=int8", "quant.activations=int8",
                                     "quant.outlier_threshold=2.5", NULL};
    static const char *const off[] = {"quant.name=int8", "quant.activations=none", NULL};
    expect_folder(none, 0, 0.0f);
    expect_folder(on, LATHE_I8, 6.0f); /* the folder's llm_int8_threshold */
    expect_folder(at, LATHE_I8, 2.5f);
    expect_folder(off, 0, 0.0f);
}

/* ---- refusals ---- */

Test(quantized_activations, need_a_threshold_only_with_outliers)
{
    static const char *const alone[] = {"quant.name=int8", "quant.outlier_threshold=2.5", NULL};
    lathe_run *run = NULL;
    cr_assert_eq(open_folder(alone, &run), LATHE_E_CONFIG);
    expect_message("outlier_threshold has no effect without activations = \"int8\"");
}
