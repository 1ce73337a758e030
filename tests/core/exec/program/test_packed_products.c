/* Which products read quantized weights from their planes, by program, format and device; and the
 * memory that this saves. */
#include "exec/program/program.h"

#include "graph/ir/ir_graph.h"
#include "graph/passes/plan.h"
#include "run/parts/run_parts.h"
#include "support/small_run.h"

enum { LAYERS = 2, PRODUCTS = 7 /* of a layer of Llama */ };

static lathe_run *open_llama(const char *format, const char *precision, const char *const *more)
{
    settings s = {.n = 0};
    set(&s, "model.model_type=llama");
    set(&s, "model.vocab_size=300");
    set(&s, "model.hidden_size=128");
    set(&s, "model.intermediate_size=192");
    set(&s, "model.num_hidden_layers=%d", LAYERS);
    set(&s, "model.num_attention_heads=4");
    set(&s, "data.seq_len=16");
    set(&s, "train.micro_batch_size=2");
    set(&s, "adapter.name=lora");
    set(&s, "quant.name=%s", format);
    set(&s, "train.precision=%s", precision);
    set_all(&s, more);
    return open_run(LATHE_OPEN_PLAN, s.list);
}

/* Nodes of a graph: those that decode a weight whole; inputs of products in planes. */
static void count(const lathe_graph *g, int *out_whole, int *out_packed)
{
    *out_whole = *out_packed = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        *out_whole += g->nodes[i].op == LATHE_OP_DEQUANT;
        for (int32_t k = 0; k < g->nodes[i].n_in; k++)
            *out_packed += g->nodes[i].in[k] != LATHE_NONE &&
                           g->values[g->nodes[i].in[k]].kind == LATHE_VALUE_PLANES;
    }
}

/* Builds a program and prepares it; returns its plan's activations. */
static int64_t activations(lathe_run *run, int32_t kind, int *out_whole, int *out_packed)
{
    lathe_program_config config = lathe__run_program_config(run);
    lathe_program p;
    if (kind == LATHE_PROGRAM_DECODE) {
        config.n_rows = 1;
        config.row_tokens = 1;
        config.cache_rows = 16;
    }
    OK(lathe_program_build(&config, kind, &p));
    count(p.graph, out_whole, out_packed);
    cr_expect_eq(p.n_packed, *out_packed);
    OK(lathe_program_prepare(&p, &run->machine));
    const int64_t bytes = lathe_exec_plan(p.exec)->activation_bytes;
    lathe_program_fini(&p);
    return bytes;
}

/* In a backward all products but those of the first layer's inputs need dX; LoRA's A and B of each
 * site, which are not quantized, are products too. */
Test(packed_products, read_planes_in_every_program)
{
    static const char *const formats[] = {"nf4", "int8", "eetq", "fp8", "mxfp4", "nvfp4", "hqq"};
    static const char *const precisions[] = {"fp32", "bf16", "fp16"};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        for (int p = 0; p < 3; p++) {
            const char *const none[] = {NULL};
            int whole, packed;
            lathe_run *run = open_llama(formats[i], precisions[p], none);
            (void)activations(run, LATHE_PROGRAM_EVAL, &whole, &packed);
            cr_expect(whole == 0 && packed == LAYERS * PRODUCTS, "%s: %d whole, %d packed",
                      formats[i], whole, packed);
            (void)activations(run, LATHE_PROGRAM_DECODE, &whole, &packed);
            cr_expect(whole == 0 && packed == LAYERS * PRODUCTS, "%s: %d whole, %d packed",
                      formats[i], whole, packed);
            (void)activations(run, LATHE_PROGRAM_TRAIN, &whole, &packed);
            cr_expect(whole == 0 && packed > LAYERS * PRODUCTS, "%s: %d whole, %d packed",
                      formats[i], whole, packed);
            lathe_run_close(run);
        }
}

/* A device that does not say that it multiplies packed weights is not asked. */
Test(packed_products, decode_whole_weights_elsewhere_and_need_more_memory)
{
    static const int32_t kinds[] = {LATHE_PROGRAM_TRAIN, LATHE_PROGRAM_EVAL, LATHE_PROGRAM_DECODE};
    const char *const none[] = {NULL};
    lathe_run *run = open_llama("nf4", "bf16", none);
    cr_assert_eq(run->machine.info.packed_weights, 1);
    for (int i = 0; i < 3; i++) {
        int whole, packed;
        const int64_t less = activations(run, kinds[i], &whole, &packed);
        run->machine.info.packed_weights = 0;
        const int64_t more = activations(run, kinds[i], &whole, &packed);
        run->machine.info.packed_weights = 1;
        cr_expect(whole >= LAYERS * PRODUCTS && packed == 0, "%d whole, %d packed", whole, packed);
        cr_expect_lt(less, more, "program %d: %lld bytes of activations, with whole weights %lld",
                     (int)kinds[i], (long long)less, (long long)more);
    }
    lathe_run_close(run);
}

/* With recomputation each weight would be decoded twice. */
Test(packed_products, are_found_after_recomputation)
{
    const char *const layers[] = {"train.recompute=layer", NULL};
    int whole, packed;
    lathe_run *run = open_llama("nf4", "fp32", layers);
    (void)activations(run, LATHE_PROGRAM_TRAIN, &whole, &packed);
    cr_expect(whole == 0 && packed > 2 * LAYERS * PRODUCTS, "%d whole, %d packed", whole, packed);
    lathe_run_close(run);
}
