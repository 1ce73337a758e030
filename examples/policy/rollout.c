/* Group-relative PPO in a program of its own: samples rollouts, scores them by a rule, and takes
 * steps, with the primitives of lathe/lathe.h.
 *
 *     rollout RUN.toml ITERATIONS SEED
 *
 * Each iteration samples GROUP continuations of one prompt. The reward of a continuation is the
 * share of its bytes that are the letter e; its advantage is the reward less the group's mean,
 * divided by the group's deviation (arXiv:2402.03300). The same rollouts are used for EPOCHS steps,
 * which is what the clipped ratio is for. Prints the mean reward of each iteration.
 */
#include <lathe/lathe.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 8, NEW_TOKENS = 16, EPOCHS = 2, MAX_ROW = 64 };

/* A micro-batch: one row for each rollout, the prompt first, padded on the right. */
typedef struct rollouts {
    int32_t tokens[GROUP * MAX_ROW], targets[GROUP * MAX_ROW];
    float old_logprobs[GROUP * MAX_ROW], advantages[GROUP * MAX_ROW];
    double rewards[GROUP];
    double mean;
} rollouts;

static int failed(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", what, lathe_last_error());
    return 1;
}

static double reward_of(const lathe_generation *g)
{
    int64_t n = 0;
    for (int64_t i = 0; i < g->text_bytes; i++)
        n += g->text[i] == 'e';
    return g->text_bytes > 0 ? (double)n / (double)g->text_bytes : 0.0;
}

/* Row i: token t predicts token t + 1; targets are the sampled tokens. */
static int put_row(rollouts *r, int i, const lathe_generation *g)
{
    const int32_t n = g->n_prompt_tokens + g->n_tokens;
    int32_t *tokens = r->tokens + i * MAX_ROW, *targets = r->targets + i * MAX_ROW;
    if (n > MAX_ROW) {
        (void)fprintf(stderr, "a rollout of %d tokens; expected at most %d\n", n, MAX_ROW);
        return 1;
    }
    memcpy(tokens, g->prompt_tokens, (size_t)g->n_prompt_tokens * sizeof *tokens);
    memcpy(tokens + g->n_prompt_tokens, g->tokens, (size_t)g->n_tokens * sizeof *tokens);
    for (int32_t t = 0; t < MAX_ROW; t++) {
        const int32_t k = t + 1 - g->n_prompt_tokens; /* sampled token that t predicts */
        const int is_target = k >= 0 && k < g->n_tokens;
        targets[t] = is_target ? g->tokens[k] : -1;
        r->old_logprobs[i * MAX_ROW + t] = is_target ? g->logprobs[k] : 0.0F;
        tokens[t] = t < n ? tokens[t] : 0;
    }
    r->rewards[i] = reward_of(g);
    return 0;
}

static void set_advantages(rollouts *r)
{
    double mean = 0.0, squares = 0.0;
    for (int i = 0; i < GROUP; i++)
        mean += r->rewards[i] / GROUP;
    for (int i = 0; i < GROUP; i++)
        squares += (r->rewards[i] - mean) * (r->rewards[i] - mean) / GROUP;
    for (int i = 0; i < GROUP * MAX_ROW; i++)
        r->advantages[i] = (float)((r->rewards[i / MAX_ROW] - mean) / (sqrt(squares) + 1e-4));
    r->mean = mean;
}

static int sample(lathe_run *run, uint64_t seed, rollouts *r)
{
    for (int i = 0; i < GROUP; i++) {
        const lathe_sampling how = {.size = (uint32_t)sizeof how,
                                    .max_new_tokens = NEW_TOKENS,
                                    .temperature = 1.0,
                                    .top_p = 1.0,
                                    .stop_at_eos = 1,
                                    .seed = seed * GROUP + (uint64_t)i};
        lathe_generation g = {.size = (uint32_t)sizeof g};
        if (lathe_generate(run, "the ", &how, &g) != LATHE_OK)
            return failed("generate");
        if (put_row(r, i, &g))
            return 1;
    }
    set_advantages(r);
    return 0;
}

static int learn(lathe_run *run, const rollouts *r)
{
    const lathe_batch_input inputs[] = {{"old_logprobs", r->old_logprobs},
                                        {"advantages", r->advantages}};
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = GROUP,
                                   .row_tokens = MAX_ROW,
                                   .tokens = r->tokens,
                                   .targets = r->targets,
                                   .inputs = inputs,
                                   .n_inputs = 2};
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        lathe_forward_result result = {.size = (uint32_t)sizeof result};
        lathe_step_result step = {.size = (uint32_t)sizeof step};
        if (lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &result) != LATHE_OK)
            return failed("forward");
        if (lathe_backward(run, NULL) != LATHE_OK)
            return failed("backward");
        if (lathe_step(run, &step) != LATHE_OK)
            return failed("step");
    }
    return 0;
}

int main(int argc, char **argv)
{
    static rollouts r;
    lathe_run *run = NULL;
    if (argc != 4) {
        (void)fprintf(stderr, "usage: rollout RUN.toml ITERATIONS SEED\n");
        return 2;
    }
    const long iterations = strtol(argv[2], NULL, 10), seed = strtol(argv[3], NULL, 10);
    if (lathe_run_open(argv[1], 0, NULL, &run) != LATHE_OK)
        return failed("open");
    int status = 0;
    for (long i = 0; i < iterations && status == 0; i++) {
        status = sample(run, (uint64_t)(seed + i), &r);
        if (status == 0)
            (void)printf("iteration %ld  reward %.3f\n", i + 1, r.mean);
        if (status == 0)
            status = learn(run, &r);
    }
    lathe_run_close(run);
    return status;
}
