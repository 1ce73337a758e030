/* Opens a run of the GPT-2 124M shape with its settings, and makes its tokens. */
#include "gpt2_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bench_open.h"
#include "run/open/opening.h"

enum { V = 50257, MAX_SETTINGS = 32 };

void bench_die(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", what, lathe_error_message());
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

lathe_run *gpt2_run_open(const char *precision, int rows, int row_tokens, int n_more,
                         char *const *more)
{
    char batch[16], tokens[16], plugins[512];
    (void)snprintf(batch, sizeof batch, "%d", rows);
    (void)snprintf(tokens, sizeof tokens, "%d", row_tokens);
    (void)snprintf(plugins, sizeof plugins, "[\"%s/lib/lathe/plugins\"]", LATHE_BUILD);
    const lathe_override settings[MAX_SETTINGS] = {
        {"model.model_type", "gpt2"},   {"model.vocab_size", "50257"},
        {"model.n_embd", "768"},        {"model.n_layer", "12"},
        {"model.n_head", "12"},         {"model.n_positions", "1024"},
        {"tokenizer.path", "bytes"},    {"train.max_steps", "1000000"},
        {"train.precision", precision}, {"train.micro_batch_size", batch},
        {"data.seq_len", tokens},       {"optimizer.lr", "3e-4"},
        {"plugins.paths", plugins}};
    lathe_run *run = NULL;
    lathe_override list[MAX_SETTINGS];
    int32_t n = 0;
    for (; settings[n].key; n++)
        list[n] = settings[n];
    for (int i = 0; i < n_more && n < MAX_SETTINGS; i++) {
        char *equals = strchr(more[i], '=');
        if (!equals)
            continue;
        *equals = '\0';
        list[n++] = (lathe_override){more[i], equals + 1};
    }
    if (bench_open(list, n, LATHE_OPEN_BATCHES, &run) != LATHE_OK)
        bench_die("open");
    return run;
}

/* Random tokens. */
static void make_tokens(int32_t *tokens, int64_t n)
{
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        tokens[i] = (int32_t)((uint64_t)(state >> 8) * V >> 24);
    }
}

lathe_run_batch gpt2_batch(int rows, int row_tokens)
{
    const int64_t n = (int64_t)rows * row_tokens;
    int32_t *const tokens = malloc((size_t)(n + 1) * sizeof *tokens);
    if (!tokens)
        bench_die("no memory for the tokens");
    make_tokens(tokens, n + 1);
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = rows,
                                   .row_tokens = row_tokens,
                                   .tokens = tokens,
                                   .targets = tokens + 1};
    return batch;
}
