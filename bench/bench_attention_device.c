/* Measures causal attention in bf16 on any device, forward and backward: GFLOP/s of the backend
 * that a training run on that device selects.
 *
 * Usage: bench_attention_device HEADSxKV_HEADSxSIZE TOKENS T[p][,T[p]...] section.key=value ...
 *
 * A p after T measures packed documents only. Each T is measured with TOKENS tokens in rows of T
 * tokens. The operation count includes only the pairs that the causal mask keeps: 4 SIZE per pair
 * and query head in the forward, 10 SIZE in the backward. "packed" adds the document starts of each
 * row, as in a training run. Each line of the output is "T forward|backward[_packed] GFLOP/s ms
 * backend". A problem that no backend supports is skipped, with a line on stderr.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bench_open.h"
#include "device_rates.h"
#include "gpt2_run.h"
#include "run/open/opening.h"

enum { MAX_SETTINGS = 32, N_TENSORS = 8 };
#define BURST 0.1 /* s */

typedef struct call {
    lathe_machine *m;
    const lathe_instance *backend;
    lathe_attention_problem problem;
    lathe_attention_args args;
} call;

static lathe_run *open_run(int n, char *const *settings)
{
    lathe_override list[MAX_SETTINGS] = {
        {"tokenizer.path", "bytes"}, {"model.model_type", "llama"},
        {"model.hidden_size", "64"}, {"model.intermediate_size", "64"},
        {"model.vocab_size", "64"},  {"model.num_hidden_layers", "1"},
        {"model.head_dim", "64"},    {"model.num_attention_heads", "1"},
        {"train.max_steps", "1"},    {"model.max_position_embeddings", "64"},
        {"train.precision", "bf16"}, {"data.seq_len", "64"}};
    int32_t n_list = 12;
    lathe_run *run = NULL;
    for (int i = 0; i < n && n_list < MAX_SETTINGS; i++) {
        char *equals = strchr(settings[i], '=');
        if (!equals)
            continue;
        *equals = '\0';
        list[n_list++] = (lathe_override){settings[i], equals + 1};
    }
    if (bench_open(list, n_list, LATHE_OPEN_BATCHES, &run) != LATHE_OK)
        bench_die("open");
    return run;
}

static void *take(lathe_machine *m, int64_t bytes)
{
    void *memory = NULL;
    if (m->dev->alloc(m->device->self, bytes > 0 ? bytes : 64, LATHE_MEM_DEVICE, &memory) !=
        LATHE_OK)
        bench_die("memory");
    return memory;
}

static lathe_status forward(void *arg)
{
    const call *c = arg;
    const lathe_attention_v1 *table = c->backend->table;
    return table->forward(c->backend->self, &c->problem, &c->args);
}

static lathe_status backward(void *arg)
{
    const call *c = arg;
    const lathe_attention_v1 *table = c->backend->table;
    return table->backward(c->backend->self, &c->problem, &c->args);
}

static void time_pass(call *c, device_rates *rates, int pass)
{
    static const char *const names[2] = {"forward", "backward"};
    const lathe_attention_problem *p = &c->problem;
    const lathe_attention_v1 *table = c->backend->table;
    const double pairs = 0.5 * (double)p->t_q * (double)(p->t_q + 1) * (double)p->batch;
    const double flops = (pass ? 10.0 : 4.0) * pairs * p->n_heads * p->head_dim;
    double seconds;
    c->args.scratch = take(c->m, pass ? table->backward_scratch(c->backend->self, p)
                                      : table->forward_scratch(c->backend->self, p));
    if (device_rates_time(rates, pass ? backward : forward, c, BURST, &seconds) != LATHE_OK)
        bench_die(names[pass]);
    (void)printf("%lld %s%s %.1f %.3f %s\n", (long long)p->t_q, names[pass],
                 p->packed ? "_packed" : "", 1e-9 * flops / seconds, 1e3 * seconds,
                 c->backend->component->plugin->name);
    c->m->dev->free(c->m->device->self, c->args.scratch);
}

/* Makes the tensors of a problem, all random except lse and doc_start. */
static void make_args(call *c, const device_rates *rates, void *memory[N_TENSORS + 2])
{
    const lathe_attention_problem *p = &c->problem;
    const int64_t q = 2 * p->batch * p->t_q * p->q_stride, k = 2 * p->batch * p->t_k * p->k_stride;
    const int64_t bytes[N_TENSORS] = {q, k, k, q, q, q, k, k};
    for (int i = 0; i < N_TENSORS; i++) {
        memory[i] = take(c->m, bytes[i]);
        if (device_rates_fill(rates, memory[i], bytes[i]) != LATHE_OK)
            bench_die("values");
    }
    memory[N_TENSORS] = take(c->m, 4 * p->batch * p->t_q * p->n_heads);
    memory[N_TENSORS + 1] = take(c->m, 4 * p->batch * p->t_q); /* zeros: one document per row */
    c->args = (lathe_attention_args){.size = (uint32_t)sizeof c->args,
                                     .q = memory[0],
                                     .k = memory[1],
                                     .v = memory[2],
                                     .o = memory[3],
                                     .d_o = memory[4],
                                     .dq = memory[5],
                                     .dk = memory[6],
                                     .dv = memory[7],
                                     .lse = memory[N_TENSORS],
                                     .doc_start = p->packed ? memory[N_TENSORS + 1] : NULL,
                                     .stream = c->m->stream};
}

static void bench(lathe_run *run, device_rates *rates, const int32_t heads[3], int64_t batch,
                  int64_t t, int packed)
{
    lathe_machine *m = &run->machine;
    const int64_t q = (int64_t)heads[0] * heads[2], k = (int64_t)heads[1] * heads[2];
    call c = {.m = m,
              .problem = {.size = (uint32_t)sizeof c.problem,
                          .dtype = LATHE_BF16,
                          .batch = batch,
                          .t_q = t,
                          .t_k = t,
                          .n_heads = heads[0],
                          .n_kv_heads = heads[1],
                          .head_dim = heads[2],
                          .causal = 1,
                          .packed = packed,
                          .n_threads = m->n_threads,
                          .scale = 1.0f / sqrtf((float)heads[2]),
                          .q_stride = q,
                          .k_stride = k,
                          .v_stride = k,
                          .o_stride = q,
                          .dq_stride = q,
                          .dk_stride = k,
                          .dv_stride = k,
                          .flags = m->flags,
                          .need_backward = 1,
                          .device = &m->info}};
    void *memory[N_TENSORS + 2];
    int64_t index;
    const char *why;
    if (lathe_select_attention(m->attention, m->n_attention, &c.problem, &run->arena, &index,
                               &why) != LATHE_OK) {
        (void)fprintf(stderr, "T %lld: %s\n", (long long)t, lathe_error_message());
        return;
    }
    c.backend = &m->attention[index];
    make_args(&c, rates, memory);
    for (int pass = 0; pass < 2; pass++)
        time_pass(&c, rates, pass);
    for (int i = 0; i < N_TENSORS + 2; i++)
        m->dev->free(m->device->self, memory[i]);
}

int main(int argc, char **argv)
{
    enum { RATES_BYTES = 512 << 20, SMALL = 4 << 20 };
    int32_t heads[3];
    device_rates rates;
    double product;
    if (argc < 4 || sscanf(argv[1], "%dx%dx%d", &heads[0], &heads[1], &heads[2]) != 3) {
        (void)fprintf(stderr,
                      "usage: bench_attention_device HEADSxKV_HEADSxSIZE TOKENS T[p][,T...] "
                      "section.key=value ...\n");
        return 2;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    lathe_run *run = open_run(argc - 4, argv + 4);
    const int64_t tokens = atoll(argv[2]), bytes = tokens >= 4096 ? RATES_BYTES : SMALL;
    void *memory = take(&run->machine, bytes);
    if (device_rates_open(&run->machine, LATHE_BF16, memory, bytes, &rates) != LATHE_OK)
        bench_die("rates");
    for (char *t = argv[3]; t && *t; t = strchr(t, ',') ? strchr(t, ',') + 1 : NULL) {
        char *end;
        const int64_t row = strtoll(t, &end, 10);
        for (int packed = *end == 'p'; packed < 2 && row > 0; packed++)
            bench(run, &rates, heads, tokens > row ? tokens / row : 1, row, packed);
    }
    if (device_rates_product(&rates, BURST, &product) != LATHE_OK)
        bench_die("product");
    (void)printf("product_gflops %.1f\n", 1e-9 * product);
    device_rates_close(&rates);
    run->machine.dev->free(run->machine.device->self, memory);
    lathe_run_close(run);
    return 0;
}
