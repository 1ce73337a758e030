/* Many prompts continued by a golden model on some device, and what must hold of the results
 * wherever they were computed. The includer defines set_where(). */
#ifndef LATHE_TEST_GENERATE_CASE_H
#define LATHE_TEST_GENERATE_CASE_H

#include "generate/generator.h"

enum { LONGEST = 100, MAX_PROMPTS = 24 };

/* How a run is opened; draft, adapter NULL: none. Models are folders of MODELS, or paths. */
typedef struct opening {
    const char *model, *draft, *precision;
    int where, batch, cache_tokens, draft_tokens;
    const char *adapter; /* a folder of tests/golden/data/adapters */
} opening;

static const char *root_of(const char *model)
{
    return model[0] == '/' ? "" : MODELS;
}

__attribute__((unused)) static lathe_run *open_with(opening o)
{
    settings s = {.n = 0};
    set_where(&s, o.where);
    set(&s, "model.path=%s%s", root_of(o.model), o.model);
    if (o.adapter)
        set(&s, "model.adapter=" LATHE_TEST_DATA "/golden/data/adapters/%s", o.adapter);
    if (o.model[0] != '/')
        set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=64");
    set(&s, "train.precision=%s", o.precision);
    set(&s, "train.threads=1");
    set(&s, "train.max_steps=1");
    set(&s, "generate.batch=%d", o.batch);
    set(&s, "generate.cache_tokens=%d", o.cache_tokens);
    if (o.draft)
        set(&s, "generate.draft=%s%s", root_of(o.draft), o.draft);
    set(&s, "generate.draft_tokens=%d", o.draft_tokens ? o.draft_tokens : 4);
    return open_run(o.draft ? LATHE_OPEN_INFER : LATHE_OPEN_BATCHES, s.list);
}

/* Prompts of 1 to `longest` tokens; three after one another have the same tokens and other seeds.
 */
static void make_prompts(lathe_prompt *out, int n, int longest)
{
    static int32_t ids[LONGEST + 2];
    for (int i = 0; i < LONGEST + 2; i++)
        ids[i] = (i * i + 7 * i) % 60;
    for (int i = 0; i < n; i++)
        out[i] = (lathe_prompt){.size = (uint32_t)sizeof *out,
                                .n_tokens = 1 + i / 3 * 37 % longest,
                                .tokens = ids + i / 3 % 2,
                                .seed = (uint64_t)i};
}

static void generate(lathe_run *run, const lathe_sampling *how, int n, lathe_generation *out)
{
    lathe_prompt prompts[MAX_PROMPTS];
    make_prompts(prompts, n, 45);
    for (int i = 0; i < n; i++)
        out[i] = (lathe_generation){.size = (uint32_t)sizeof *out};
    OK(lathe_generate_many(run, prompts, n, how, out));
}

static void expect_same(const lathe_generation *got, const lathe_generation *want, int n,
                        const char *what)
{
    for (int i = 0; i < n; i++) {
        cr_assert_eq(got[i].n_tokens, want[i].n_tokens, "%s, prompt %d", what, i);
        cr_assert_eq(got[i].finish, want[i].finish, "%s, prompt %d", what, i);
        for (int k = 0; k < want[i].n_tokens; k++) {
            cr_assert_eq(got[i].tokens[k], want[i].tokens[k], "%s, prompt %d, token %d", what, i,
                         k);
            cr_assert(got[i].logprobs[k] == want[i].logprobs[k],
                      "%s, prompt %d, token %d: log-probability %.9g, expected %.9g", what, i, k,
                      (double)got[i].logprobs[k], (double)want[i].logprobs[k]);
        }
    }
}

/* The log-probabilities of a result are those of lathe_logprobs of the whole text, bit for bit. */
__attribute__((unused)) static void expect_logprobs(lathe_run *run, const lathe_generation *g,
                                                    const char *what)
{
    int32_t tokens[64], targets[64];
    float logprobs[64];
    const int n = g->n_prompt_tokens + g->n_tokens;
    memcpy(tokens, g->prompt_tokens, (size_t)g->n_prompt_tokens * sizeof *tokens);
    memcpy(tokens + g->n_prompt_tokens, g->tokens, (size_t)g->n_tokens * sizeof *tokens);
    for (int k = 0; k < n; k++)
        targets[k] = k + 1 < n ? tokens[k + 1] : -1;
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = 1,
                                   .row_tokens = n,
                                   .tokens = tokens,
                                   .targets = targets};
    OK(lathe_logprobs(run, &batch, logprobs));
    for (int k = 0; k < g->n_tokens; k++)
        cr_assert(g->logprobs[k] == logprobs[g->n_prompt_tokens - 1 + k],
                  "%s, %d tokens of prompt, token %d: log-probability %.9g, %.9g by lathe_logprobs",
                  what, g->n_prompt_tokens, k, (double)g->logprobs[k],
                  (double)logprobs[g->n_prompt_tokens - 1 + k]);
}

#endif
