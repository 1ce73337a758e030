/* Measures generation: tokens/s for prompts of 128 and 512 tokens and for 64 tokens generated one
 * by one, and the share of the memory bandwidth that decoding reaches if it reads each weight once
 * per token.
 *
 * Usage: bench_decode [DIR|-] [rounds] [profile] [section.key=value ...]
 *
 * DIR is a Hugging Face folder; "-" takes random weights of the shape of SmolLM2-135M. The two
 * figures are measured in turn, `rounds` times, and between them the tokens/s of BATCH sequences at
 * the same time. The bandwidth of a shared machine changes within
 * seconds, so each round also measures BURSTS times the bandwidth and, at once after it,
 * BURST_TOKENS tokens. The buffer for the bandwidth uses huge pages, as the weights do.
 * Prints one "key value" per line, each a median; `profile` first prints the milliseconds by kind
 * of node.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "bench_open.h"
#include "generate/generator.h"
#include "gpt2_run.h"
#include "graph/ir/op_info.h"
#include "model/family/model_size.h"
#include "read_rate.h"
#include "run/open/opening.h"
#include "run/state/run_state.h"

enum {
    PROMPT = 128,
    LONG_PROMPT = 512,
    BATCH = 16,
    TOKENS = 64,
    BURSTS = 4,
    BURST_TOKENS = 16,
    MAX_ROUNDS = 64,
    MAX_SETTINGS = 40
};

/* ---- the bandwidth ---- */

#define READ_BYTES ((int64_t)256 << 20)

static double bandwidth(read_rate *r)
{
    const double begun = lathe_now();
    read_rate_pass(r);
    return (double)r->bytes / (lathe_now() - begun);
}

/* ---- the run ---- */

static lathe_run *open_model(const char *dir, int n_more, char *const *more)
{
    static const lathe_override shape[] = {
        {"model.model_type", "llama"},        {"model.vocab_size", "49152"},
        {"model.hidden_size", "576"},         {"model.intermediate_size", "1536"},
        {"model.num_hidden_layers", "30"},    {"model.num_attention_heads", "9"},
        {"model.num_key_value_heads", "3"},   {"model.max_position_embeddings", "8192"},
        {"model.tie_word_embeddings", "true"}};
    enum { N_SHAPE = sizeof shape / sizeof shape[0] };
    char plugins[512];
    lathe_override list[MAX_SETTINGS];
    lathe_run *run = NULL;
    int32_t n = 0;
    (void)snprintf(plugins, sizeof plugins, "[\"%s/lib/lathe/plugins\"]", LATHE_BUILD);
    list[n++] = (lathe_override){"plugins.paths", plugins};
    list[n++] = (lathe_override){"tokenizer.path", "bytes"};
    list[n++] = (lathe_override){"data.seq_len", "1024"};
    if (dir)
        list[n++] = (lathe_override){"model.path", dir};
    for (int i = 0; !dir && i < N_SHAPE; i++)
        list[n++] = shape[i];
    for (int i = 0; i < n_more && n < MAX_SETTINGS; i++) {
        char *equals = strchr(more[i], '=');
        if (!equals)
            continue;
        *equals = '\0';
        list[n++] = (lathe_override){more[i], equals + 1};
    }
    if (bench_open(list, n, LATHE_OPEN_INFER, &run) != LATHE_OK)
        bench_die("open");
    return run;
}

/* Seconds to process a prompt of `prompt` bytes and generate `tokens` tokens greedily. */
static double generate(lathe_run *run, int prompt, int tokens)
{
    char text[LONG_PROMPT + 1];
    const lathe_sampling how = {
        .size = (uint32_t)sizeof how, .max_new_tokens = tokens, .temperature = 0.0, .top_p = 1.0};
    lathe_generation made = {.size = (uint32_t)sizeof made};
    for (int i = 0; i < prompt; i++)
        text[i] = (char)('a' + i * 7 % 26);
    text[prompt] = '\0';
    const double begun = lathe_now();
    if (lathe_generate(run, text, &how, &made) != LATHE_OK)
        bench_die("generate");
    return lathe_now() - begun;
}

/* Seconds to continue BATCH prompts of one token by TOKENS tokens each, at the same time. */
static double generate_batch(lathe_run *run)
{
    static const int32_t token = 7;
    const lathe_sampling how = {
        .size = (uint32_t)sizeof how, .max_new_tokens = TOKENS, .temperature = 0.0, .top_p = 1.0};
    lathe_prompt prompts[BATCH];
    lathe_generation made[BATCH];
    for (int i = 0; i < BATCH; i++) {
        prompts[i] =
            (lathe_prompt){.size = (uint32_t)sizeof prompts[i], .tokens = &token, .n_tokens = 1};
        made[i] = (lathe_generation){.size = (uint32_t)sizeof made[i]};
    }
    const double begun = lathe_now();
    if (lathe_generate_many(run, prompts, BATCH, &how, made) != LATHE_OK)
        bench_die("generate many");
    return lathe_now() - begun;
}

/* Rows of the weight of a product, or of all weights of joined products. */
static int64_t weight_rows(const lathe_graph *g, const lathe_ir_node *node)
{
    int64_t rows = 0;
    for (int32_t k = 1; k < node->n_in; k += 2)
        if (node->in[k] != LATHE_NONE)
            rows += g->values[node->in[k]].desc.dims[0];
    return rows;
}

/* Prints the products by the shapes of their weights, with the rates at which these are read. */
static void print_products(const lathe_graph *g, const double *seconds, int runs)
{
    enum { MAX_SHAPES = 16 };
    struct {
        int64_t rows, columns;
        int n;
        double seconds;
    } shapes[MAX_SHAPES];
    int n_shapes = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *node = &g->nodes[i];
        if (node->op != LATHE_OP_LINEAR && node->op != LATHE_OP_LINEARS)
            continue;
        const int64_t columns = g->values[node->in[1]].desc.dims[1], rows = weight_rows(g, node);
        int s = 0;
        while (s < n_shapes && (shapes[s].rows != rows || shapes[s].columns != columns))
            s++;
        if (s == MAX_SHAPES)
            continue;
        if (s == n_shapes) {
            shapes[n_shapes].rows = rows;
            shapes[n_shapes].columns = columns;
            shapes[n_shapes].n = 0;
            shapes[n_shapes++].seconds = 0.0;
        }
        shapes[s].n++;
        shapes[s].seconds += seconds[i] / runs;
    }
    for (int s = 0; s < n_shapes; s++)
        (void)printf("# linear %6lld x %-6lld %3d nodes %9.3f ms %6.1f GB/s of bf16\n",
                     (long long)shapes[s].rows, (long long)shapes[s].columns, shapes[s].n,
                     1e3 * shapes[s].seconds,
                     2e-9 * (double)(shapes[s].rows * shapes[s].columns) * shapes[s].n /
                         shapes[s].seconds);
}

static void print_profile(lathe_exec *exec, int runs)
{
    const lathe_graph *g = lathe_exec_graph(exec);
    double *const seconds = lathe_exec_profile_seconds(exec);
    double by_op[LATHE_OP_NUMBERS] = {0};
    int n_op[LATHE_OP_NUMBERS] = {0};
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const int op = g->nodes[i].op;
        by_op[op] += seconds[i] / runs;
        n_op[op]++;
    }
    print_products(g, seconds, runs);
    for (;;) {
        int max = 0;
        for (int op = 1; op < LATHE_OP_NUMBERS; op++)
            max = by_op[op] > by_op[max] ? op : max;
        if (by_op[max] <= 0.0)
            break;
        (void)printf("# %-18s %4d nodes %9.3f ms\n", lathe_op_info_get(max)->name, n_op[max],
                     1e3 * by_op[max]);
        by_op[max] = 0.0;
    }
}

/* Bytes of weights that one token needs: every matrix once, with the embedding as the head's. */
static double weight_bytes(const lathe_run *run)
{
    return (double)lathe_model_n_params(&run->params) *
           (double)lathe_dtype_bytes(run->params.compute_dtype);
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 && strcmp(argv[1], "-") != 0 ? argv[1] : NULL;
    const int rounds = argc > 2 ? atoi(argv[2]) : 5;
    const int profile = argc > 3 && strcmp(argv[3], "profile") == 0;
    double prefill[MAX_ROUNDS], longer[MAX_ROUNDS], decode[MAX_ROUNDS], reads[MAX_ROUNDS * BURSTS];
    double shares[MAX_ROUNDS * BURSTS], batch[MAX_ROUNDS], gain[MAX_ROUNDS];
    if (rounds < 1 || rounds > MAX_ROUNDS) {
        (void)fprintf(stderr,
                      "usage: bench_decode [DIR|-] [rounds] [profile] section.key=value ...\n");
        return 2;
    }
    lathe_run *run = open_model(dir, argc > 3 ? argc - 3 : 0, argv + 3);
    read_rate r;
    if (!read_rate_init(&r, READ_BYTES))
        bench_die("no memory");
    (void)generate_batch(run); /* makes the generator, for all that follows */
    (void)generate(run, PROMPT, 4);
    for (int i = 0; i < rounds; i++) {
        const double p = generate(run, PROMPT, 1), d = generate(run, 1, TOKENS);
        batch[i] = BATCH * TOKENS / generate_batch(run);
        gain[i] = batch[i] * d / TOKENS;
        prefill[i] = PROMPT / p;
        longer[i] = LONG_PROMPT / generate(run, LONG_PROMPT, 1);
        decode[i] = TOKENS / d;
        for (int k = i * BURSTS; k < (i + 1) * BURSTS; k++) {
            reads[k] = bandwidth(&r);
            const double burst = generate(run, 1, BURST_TOKENS);
            shares[k] = weight_bytes(run) * BURST_TOKENS / burst / reads[k];
        }
    }
    (void)printf("device %s %s\nprecision %s\nthreads %d\n", run->machine.info.isa,
                 run->machine.info.model, lathe_precision_name(run->params.compute_dtype),
                 lathe_parallel_threads());
    if (profile) {
        lathe_exec *const exec = lathe_generator_exec(run->generator);
        if (lathe_exec_profile(exec) != LATHE_OK)
            bench_die("profile");
        const double d = generate(run, 1, TOKENS);
        (void)printf("# profiled token %.3f ms\n", 1e3 * d / TOKENS);
        print_profile(exec, TOKENS);
    }
    (void)printf("weights_mb %.1f\nread_gbs %.2f\n", 1e-6 * weight_bytes(run),
                 1e-9 * bench_median(reads, rounds * BURSTS));
    (void)printf("prefill_tokens_per_s %.1f\nlong_prefill_tokens_per_s %.1f\n",
                 bench_median(prefill, rounds), bench_median(longer, rounds));
    (void)printf("decode_tokens_per_s %.1f\n", bench_median(decode, rounds));
    (void)printf("batch_tokens_per_s %.1f\nbatch_over_one %.2f\n", bench_median(batch, rounds),
                 bench_median(gain, rounds));
    (void)printf("read_share %.3f\n", bench_median(shares, rounds * BURSTS));
    lathe_run_close(run);
    read_rate_fini(&r);
    return 0;
}
