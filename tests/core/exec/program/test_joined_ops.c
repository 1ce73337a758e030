/* Which ops of a run are fused with GELU, by model, adapter, quantization and device. */
#include "exec/program/program.h"

#include "graph/ir/ir_graph.h"
#include "run/parts/run_parts.h"
#include "support/small_run.h"

enum { LAYERS = 2 };

static lathe_run *open_gpt2(const char *const *more)
{
    settings s = {.n = 0};
    set(&s, "model.model_type=gpt2");
    set(&s, "model.vocab_size=300");
    set(&s, "model.n_embd=32");
    set(&s, "model.n_layer=%d", LAYERS);
    set(&s, "model.n_head=4");
    set(&s, "model.n_positions=64");
    set(&s, "data.seq_len=16");
    set(&s, "train.micro_batch_size=2");
    set_all(&s, more);
    return open_run(LATHE_OPEN_PLAN, s.list);
}

static int count(const lathe_graph *g, int32_t op)
{
    int n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == op;
    return n;
}

/* Nodes of the training graph: linear_gelu and linear_dx_gelu, and those that stay separate. */
typedef struct joined {
    const char *set[6];
    int forward, backward, forward_apart, backward_apart;
} joined;

/* recompute = "pointwise": only GELU is recomputed, from the product that linear_gelu has
 * stored. */
static const joined cases[] = {
    {{"train.precision=bf16"}, LAYERS, LAYERS, LAYERS, 0},
    {{"train.precision=fp16", "train.recompute=none"}, LAYERS, LAYERS, 0, 0},
    {{"train.precision=fp32", "train.recompute=layer"}, 2 * LAYERS, LAYERS, 0, 0},
    {{"train.recompute=none", "adapter.name=lora"}, 0, 0, LAYERS, LAYERS},
    {{"train.recompute=none", "adapter.name=lora", "adapter.target_modules=[\"c_attn\"]"},
     LAYERS,
     LAYERS,
     0,
     0},
    {{"train.recompute=none", "adapter.name=lora", "adapter.target_modules=[\"c_proj\"]"},
     LAYERS,
     0, /* the adapter's product is added to the gradient */
     0,
     LAYERS},
    {{"train.recompute=none", "adapter.name=lora", "adapter.target_modules=[\"c_attn\"]",
      "quant.name=nf4"},
     LAYERS,
     LAYERS,
     0,
     0},
};

Test(joined_ops, are_those_that_no_adapter_adds_to)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const joined *c = &cases[i];
        lathe_run *run = open_gpt2(c->set);
        const lathe_graph *g = run->programs.train.graph
                                   ? run->programs.train.graph
                                   : lathe_exec_graph(run->programs.train.exec);
        cr_expect_eq(count(g, LATHE_OP_LINEAR_GELU), c->forward, "case %zu: %d", i,
                     count(g, LATHE_OP_LINEAR_GELU));
        cr_expect_eq(count(g, LATHE_OP_LINEAR_DX_GELU), c->backward, "case %zu: %d", i,
                     count(g, LATHE_OP_LINEAR_DX_GELU));
        cr_expect_eq(count(g, LATHE_OP_GELU_TANH), c->forward_apart, "case %zu: %d", i,
                     count(g, LATHE_OP_GELU_TANH));
        cr_expect_eq(count(g, LATHE_OP_GELU_TANH_BWD), c->backward_apart, "case %zu: %d", i,
                     count(g, LATHE_OP_GELU_TANH_BWD));
        lathe_run_close(run);
    }
}

static const lathe_device_v1 *real;

/* A device from before the two ops existed. */
static lathe_status before_the_ops(void *self, const lathe_kernel_problem *problem,
                                   lathe_kernel **out, int64_t *out_scratch_bytes)
{
    if (problem->op >= LATHE_OP_LINEAR_GELU)
        return lathe_error(LATHE_E_UNSUPPORTED, "op %d is unknown to this device", problem->op);
    return real->kernel_create(self, problem, out, out_scratch_bytes);
}

Test(joined_ops, stay_apart_on_a_device_that_does_not_know_them)
{
    const char *const plain[] = {"train.recompute=none", NULL};
    lathe_run *run = open_gpt2(plain);
    lathe_device_v1 older = *run->machine.dev;
    real = run->machine.dev;
    older.kernel_create = before_the_ops;
    const lathe_instance *device = run->machine.device;
    lathe_instance patched = *device;
    patched.table = &older;
    run->machine.dev = &older;
    run->machine.device = &patched;
    lathe_error_clear();
    for (int32_t kind = LATHE_PROGRAM_TRAIN; kind <= LATHE_PROGRAM_EVAL; kind++) {
        const lathe_program_config config = lathe__run_program_config(run);
        lathe_program p;
        OK(lathe_program_build(&config, kind, &p));
        cr_expect_str_eq(lathe_error_message(), "", "that it has none is no error");
        cr_expect_eq(count(p.graph, LATHE_OP_LINEAR_GELU), 0);
        cr_expect_eq(count(p.graph, LATHE_OP_LINEAR_DX_GELU), 0);
        cr_expect_eq(count(p.graph, LATHE_OP_GELU_TANH), LAYERS);
        OK(lathe_program_prepare(&p, &run->machine));
        lathe_program_fini(&p);
    }
    run->machine.dev = real;
    run->machine.device = device;
    lathe_run_close(run);
}

/* Queries, keys and values read one input, and so do the two products in front of SWIGLU. */
Test(joined_ops, of_generation_are_the_products_of_one_input)
{
    settings s = {.n = 0};
    set(&s, "model.model_type=llama");
    set(&s, "model.vocab_size=300");
    set(&s, "model.hidden_size=32");
    set(&s, "model.intermediate_size=48");
    set(&s, "model.num_hidden_layers=%d", LAYERS);
    set(&s, "model.num_attention_heads=4");
    set(&s, "data.seq_len=16");
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    for (int32_t kind = LATHE_PROGRAM_EVAL; kind <= LATHE_PROGRAM_DECODE; kind++) {
        lathe_program_config config = lathe__run_program_config(run);
        config.n_rows = 1;
        config.row_tokens = 1;
        config.cache_rows = 16;
        lathe_program p;
        OK(lathe_program_build(&config, kind, &p));
        const int decodes = kind == LATHE_PROGRAM_DECODE;
        cr_expect_eq(count(p.graph, LATHE_OP_LINEARS), decodes ? 2 * LAYERS : 0);
        lathe_program_fini(&p);
    }
    lathe_run_close(run);
}

/* Evaluation stores nothing: GELU uses the memory of its product. */
Test(joined_ops, of_an_evaluation_store_no_product)
{
    const char *const plain[] = {NULL};
    lathe_run *run = open_gpt2(plain);
    const lathe_program_config config = lathe__run_program_config(run);
    lathe_program p;
    OK(lathe_program_build(&config, LATHE_PROGRAM_EVAL, &p));
    cr_expect_eq(count(p.graph, LATHE_OP_LINEAR_GELU), LAYERS);
    for (int32_t i = 0; i < p.graph->n_nodes; i++)
        if (p.graph->nodes[i].op == LATHE_OP_LINEAR_GELU)
            cr_expect_eq(p.graph->nodes[i].out[1], LATHE_NONE);
    lathe_program_fini(&p);
    lathe_run_close(run);
}
