/* The places of a rollout's parts in the stage's state, and of the memory of one call. */
#include "ppo_state.h"

static int64_t take(int64_t *at, int64_t bytes)
{
    const int64_t begin = *at;
    *at += (bytes + 63) / 64 * 64;
    return begin;
}

/* The place of `count` elements in the memory, after those taken before; NULL if they are not
 * `wanted` or only bytes are counted (memory NULL). */
static void *place(char *memory, int64_t *at, int wanted, int64_t count, int64_t bytes)
{
    if (!wanted)
        return NULL;
    const int64_t begin = take(at, count * bytes);
    return memory ? memory + begin : NULL;
}

/* Lays out the state; memory NULL: only counts its bytes. */
static int64_t lay_out(const ppo *p, int64_t row_tokens, char *memory, ppo_rollout *out)
{
    const int64_t n = (int64_t)p->prompts * p->group, all = n * row_tokens;
    const int gae = p->advantage == PPO_GAE, several = !ppo_updates_once(p);
    int64_t at = 0;
    *out = (ppo_rollout){.n = (int32_t)n, .row_tokens = row_tokens};
    out->head = place(memory, &at, 1, 1, (int64_t)sizeof(ppo_header));
    out->order = place(memory, &at, 1, n, 4);
    out->n_prompt = place(memory, &at, 1, n, 4);
    out->length = place(memory, &at, 1, n, 4);
    out->marks = place(memory, &at, 1, n, 4);
    out->tokens = place(memory, &at, 1, all, 4);
    out->advantages = place(memory, &at, 1, gae ? all : n, 4);
    out->old_logprobs = place(memory, &at, several, all, 4);
    out->old_values = place(memory, &at, gae && several, all, 4);
    out->returns = place(memory, &at, gae, all, 4);
    return at;
}

void ppo_state_read(const ppo *p, int64_t row_tokens, void *memory, ppo_rollout *out)
{
    (void)lay_out(p, row_tokens, memory, out);
}

/* Lays out the memory of a call in s->memory; memory NULL: only counts its bytes. */
static int64_t lay_out_scratch(const ppo *p, int64_t n_rows, int64_t row_tokens, char *memory,
                               ppo_scratch *s)
{
    const int64_t n = (int64_t)p->prompts * p->group, batch = n_rows * row_tokens;
    int64_t at = 0;
    s->tokens = place(memory, &at, 1, batch, 4);
    s->targets = place(memory, &at, 1, batch, 4);
    s->doc_start = place(memory, &at, 1, batch, 4);
    for (int i = 0; i < PPO_N_INPUTS; i++)
        s->inputs[i] = place(memory, &at, 1, batch, 4);
    for (int i = 0; i < PPO_N_OUTPUTS; i++)
        s->outputs[i] = place(memory, &at, 1, batch, 4);
    s->token_rewards = place(memory, &at, 1, row_tokens, 4);
    s->prompts = place(memory, &at, 1, p->prompts, (int64_t)sizeof *s->prompts);
    s->asked = place(memory, &at, 1, n, (int64_t)sizeof *s->asked);
    s->generated = place(memory, &at, 1, n, (int64_t)sizeof *s->generated);
    s->completions = place(memory, &at, 1, n, (int64_t)sizeof *s->completions);
    s->rewards = place(memory, &at, 1, n, (int64_t)sizeof *s->rewards);
    s->spans = place(memory, &at, 1, n, (int64_t)sizeof *s->spans);
    return at;
}

static lathe_status make_scratch(ppo *p, int64_t n_rows, int64_t row_tokens)
{
    ppo_scratch counted;
    const int64_t bytes = lay_out_scratch(p, n_rows, row_tokens, NULL, &counted);
    p->host->free(p->scratch);
    p->scratch = p->host->alloc((int64_t)sizeof *p->scratch + 64 + bytes);
    if (p->scratch == NULL)
        return lathe_fail(p->host, LATHE_E_NOMEM, "ppo: no memory for a rollout of %lld",
                          (long long)p->prompts * p->group);
    char *memory = p->scratch->memory + (64 - (uintptr_t)p->scratch->memory % 64) % 64;
    (void)lay_out_scratch(p, n_rows, row_tokens, memory, p->scratch);
    return LATHE_OK;
}

lathe_status ppo_state_bytes(void *self, int32_t n_rows, int64_t row_tokens, int64_t *out)
{
    ppo *p = self;
    ppo_rollout counted;
    if (p->max_new_tokens >= row_tokens)
        return lathe_fail_at(p->host, LATHE_E_CONFIG, "max_new_tokens",
                             "max_new_tokens = %d leaves no room for a prompt in rows of "
                             "data.seq_len = %lld tokens",
                             p->max_new_tokens, (long long)row_tokens);
    *out = lay_out(p, row_tokens, NULL, &counted);
    return make_scratch(p, n_rows, row_tokens);
}
