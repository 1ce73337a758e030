/* Generation: runs the prompt in chunks that fill the KV cache, then one token at a time. Uses the
 * same ops as training. */
#include <stdlib.h>
#include <string.h>

#include "base/api_struct.h"
#include "base/error.h"
#include "base/parallel.h"
#include "model/model_size.h"
#include "run/api_sizes.h"
#include "run/generate.h"
#include "run/run_state.h"
#include "update/nonfinite.h"

/* Tokens per call of each program; the last program decodes. */
static const int64_t sizes[] = {128, 32, 8, 1};
enum { N_SIZES = sizeof sizes / sizeof sizes[0], DECODE = N_SIZES - 1 };

/* A program of at most this many tokens runs on a team of threads. */
#define TEAM_TOKENS 8

struct lathe_generator {
    lathe_program programs[N_SIZES]; /* one per sizes[]; not built if the context is shorter */
    lathe_sampler *sampler;
    char *caches;                      /* all layers' k and v */
    char *arena;                       /* NULL: the run's shared arena is large enough */
    int64_t caches_bytes, arena_bytes; /* allocated for caches and arena */
    int64_t cache_bytes;               /* one layer's k or v */
    int64_t capacity;                  /* positions in the KV cache */
    int64_t offset;                    /* lathe_model_position_offset of what is in the caches */
    int32_t uses_team;                 /* programs of at most TEAM_TOKENS use a team of threads */
    lathe_ids ids;                     /* prompt and generated tokens */
    float *logprobs;                   /* [capacity] */
    char *text;
    lathe_arena many;      /* the results of lathe_generate_many */
    int32_t has_told_loss; /* the warning about bytes of the prompt without a token was given */
};

void lathe_generator_destroy(lathe_run *run)
{
    lathe_generator *g = run->generator;
    if (!g)
        return;
    for (int i = 0; i < N_SIZES; i++)
        lathe_program_fini(&g->programs[i]);
    lathe_sampler_destroy(g->sampler);
    lathe_machine_free(&run->machine, LATHE_MEM_CACHE, g->caches_bytes, g->caches);
    lathe_machine_free(&run->machine, LATHE_MEM_ACTIVATIONS, g->arena_bytes, g->arena);
    lathe_ids_fini(&g->ids);
    free(g->logprobs);
    free(g->text);
    lathe_arena_fini(&g->many);
    free(g);
    run->generator = NULL;
}

static void bind_caches(lathe_generator *g, lathe_program *p, int32_t n_layers, int64_t bytes_each)
{
    for (int32_t i = 0; i < n_layers; i++) {
        lathe_exec_bind(p->exec, p->cache_k[i], g->caches + (2 * i) * bytes_each);
        lathe_exec_bind(p->exec, p->cache_v[i], g->caches + (2 * i + 1) * bytes_each);
    }
}

static lathe_status build_program(lathe_run *run, lathe_generator *g, int64_t row_tokens,
                                  lathe_program *out)
{
    lathe_program_config config = lathe__run_program_config(run);
    config.n_rows = 1;
    config.row_tokens = row_tokens;
    config.cache_rows = g->capacity;
    LATHE_TRY(lathe_program_build(&config, LATHE_PROGRAM_DECODE, out));
    return lathe_program_prepare(out, &run->machine);
}

/* One token takes about two hundred loops of a few microseconds each, and waking sleeping threads
 * for each loop would take as long as the loop, so a team keeps its threads awake. Matrix products
 * other than LINEAR may call a library with its own OpenMP loops, which a team cannot share out. */
static int wants_team(const lathe_machine *m, const lathe_program *p)
{
    const lathe_graph *graph = lathe_exec_graph(p->exec);
    int n_products = 0;
    for (int32_t i = 0; i < graph->n_nodes; i++)
        n_products += graph->nodes[i].op == LATHE_OP_MATMUL;
    return n_products == 0 && lathe_machine_shares(m);
}

static lathe_status plan(lathe_run *run, lathe_generator *g)
{
    const lathe_model_config *model = &run->model;
    g->capacity = run->set.seq_len < model->max_positions ? run->set.seq_len : model->max_positions;
    for (int i = N_SIZES - 1; i >= 0; i--)
        if (g->capacity >= sizes[i])
            LATHE_TRY(build_program(run, g, sizes[i], &g->programs[i]));
    g->uses_team = wants_team(&run->machine, &g->programs[DECODE]);
    g->cache_bytes =
        (g->capacity * lathe_model_kv_width(model) * lathe_dtype_bytes(run->params.compute_dtype) +
         63) /
        64 * 64;
    LATHE_TRY(lathe_sampler_create(model->vocab, &g->sampler));
    g->logprobs = calloc((size_t)g->capacity, sizeof *g->logprobs);
    return g->logprobs ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory to generate");
}

lathe_status lathe__generator_plan(lathe_run *run)
{
    run->generator = calloc(1, sizeof *run->generator);
    if (!run->generator)
        return lathe_error(LATHE_E_NOMEM, "no memory to generate");
    const lathe_status status = plan(run, run->generator);
    if (status != LATHE_OK)
        lathe_generator_destroy(run);
    return status;
}

lathe_arena *lathe__generator_results(lathe_run *run)
{
    return &run->generator->many;
}

lathe_exec *lathe__generator_exec(const lathe_run *run)
{
    return run->generator ? run->generator->programs[DECODE].exec : NULL;
}

lathe_generator_needs lathe__generator_needs(const lathe_run *run)
{
    const lathe_generator *g = run->generator;
    lathe_generator_needs needs = {.cache_bytes = 2 * run->model.n_layers * g->cache_bytes};
    for (int i = 0; i < N_SIZES; i++) {
        const lathe_exec *exec = g->programs[i].exec;
        const lathe_plan *p = exec ? lathe_exec_plan(exec) : NULL;
        if (!p)
            continue;
        needs.input_bytes += p->input_bytes;
        needs.staging_bytes += lathe_exec_staging_bytes(exec);
        if (p->arena_bytes > needs.arena_bytes)
            needs.arena_bytes = p->arena_bytes;
        if (p->activation_bytes > needs.activation_bytes)
            needs.activation_bytes = p->activation_bytes;
    }
    return needs;
}

lathe_status lathe__generator_place(lathe_run *run)
{
    lathe_generator *g = run->generator;
    const int32_t n_layers = run->model.n_layers;
    const lathe_generator_needs needs = lathe__generator_needs(run);
    void *memory = NULL;
    LATHE_TRY(lathe_machine_alloc(&run->machine, LATHE_MEM_CACHE, needs.cache_bytes, &memory));
    g->caches = memory;
    g->caches_bytes = needs.cache_bytes;
    char *arena = run->programs.arena;
    /* The plan has no generator: the caller generates without planning it. */
    if (needs.arena_bytes > run->programs.arena_bytes) {
        LATHE_TRY(
            lathe_machine_alloc(&run->machine, LATHE_MEM_ACTIVATIONS, needs.arena_bytes, &memory));
        arena = g->arena = memory;
        g->arena_bytes = needs.arena_bytes;
    }
    for (int i = 0; i < N_SIZES; i++) {
        lathe_program *p = &g->programs[i];
        if (!p->exec)
            continue;
        LATHE_TRY(lathe_exec_place(p->exec, &run->store, arena));
        bind_caches(g, p, n_layers, g->cache_bytes);
    }
    return LATHE_OK;
}

static lathe_status get(lathe_run *run, lathe_generator **out)
{
    if (!run->generator) {
        LATHE_TRY(lathe__generator_plan(run));
        const lathe_status status = lathe__generator_place(run);
        if (status != LATHE_OK) {
            lathe_generator_destroy(run);
            return status;
        }
    }
    *out = run->generator;
    return LATHE_OK;
}

/* Argument of run_exec. */
typedef struct token_run {
    lathe_exec *exec;
    lathe_status status;
} token_run;

static void run_exec(void *arg)
{
    token_run *r = arg;
    r->status = lathe_exec_run(r->exec, 0);
}

/* Runs tokens [begin, begin + p->row_tokens) of the ids; *out_logits predict the token after the
 * last one. */
static lathe_status run_tokens(lathe_generator *g, lathe_program *p, int64_t begin,
                               const float **out_logits)
{
    LATHE_TRY(lathe_exec_next_inputs(p->exec));
    int32_t *tokens = lathe_exec_input(p->exec, p->tokens);
    int32_t *positions = lathe_exec_input(p->exec, p->positions);
    int32_t *kv_len = lathe_exec_input(p->exec, p->kv_len);
    for (int64_t i = 0; i < p->row_tokens; i++) {
        tokens[i] = g->ids.data[begin + i];
        positions[i] = (int32_t)(begin + i + g->offset);
    }
    *kv_len = (int32_t)(begin + p->row_tokens);
    const void *logits = NULL;
    LATHE_TRY(lathe_exec_send(p->exec));
    token_run r = {p->exec, LATHE_OK};
    if (g->uses_team && p->row_tokens <= TEAM_TOKENS)
        lathe_parallel_team(run_exec, &r);
    else
        run_exec(&r);
    LATHE_TRY(r.status);
    LATHE_TRY(lathe_exec_fetch(p->exec, p->logits, &logits));
    *out_logits = logits;
    return LATHE_OK;
}

/* If generation_config.json lists end tokens, only those end the text, as in transformers.
 * Otherwise the tokenizer's end-of-text token, which training puts between documents, and the end
 * tokens of config.json do. */
static int is_eos(const lathe_generation_config *c, const lathe_model_config *model,
                  const lathe_tokenizer *tokenizer, int32_t token)
{
    for (int32_t i = 0; i < c->n_eos; i++)
        if (c->eos[i] == token)
            return 1;
    if (c->n_eos > 0)
        return 0;
    if (tokenizer && token == lathe_tokenizer_eos(tokenizer))
        return 1;
    for (int32_t i = 0; i < model->n_eos; i++)
        if (model->eos[i] == token)
            return 1;
    return 0;
}

static lathe_status encode_text(lathe_generator *g, const lathe_tokenizer *tokenizer,
                                const char *prompt)
{
    lathe_text_loss loss = {0};
    LATHE_TRY(lathe_tokenizer_encode_counting(tokenizer, prompt, (int64_t)strlen(prompt),
                                              LATHE_ENCODE_BEGIN, &g->ids, &loss));
    if (!g->has_told_loss) { /* training generates samples from the same prompt many times */
        lathe_text_loss_warn(&loss, "the prompt");
        g->has_told_loss = lathe_text_loss_total(&loss) > 0;
    }
    if (g->ids.n == 0) {
        /* an empty prompt: begin a document */
        LATHE_TRY(lathe_ids_reserve(&g->ids, 1));
        const int32_t bos = lathe_tokenizer_bos(tokenizer);
        g->ids.data[g->ids.n++] = bos >= 0 ? bos : lathe_tokenizer_eos(tokenizer);
    }
    return LATHE_OK;
}

static lathe_status copy_ids(lathe_generator *g, const lathe_prompt *prompt)
{
    if (prompt->n_tokens < 1)
        return lathe_error(LATHE_E_ARG,
                           "lathe_prompt.n_tokens is %d; expected at least 1, or tokens NULL and "
                           "the text",
                           prompt->n_tokens);
    LATHE_TRY(lathe_ids_reserve(&g->ids, prompt->n_tokens));
    memcpy(g->ids.data, prompt->tokens, (size_t)prompt->n_tokens * sizeof *prompt->tokens);
    g->ids.n = prompt->n_tokens;
    return LATHE_OK;
}

/* Writes the prompt's ids to g->ids, with room for as many tokens as the context holds. */
static lathe_status read_prompt(lathe_generator *g, const lathe_tokenizer *tokenizer, int64_t vocab,
                                const lathe_prompt *prompt)
{
    g->ids.n = 0;
    if (prompt->tokens)
        LATHE_TRY(copy_ids(g, prompt));
    else
        LATHE_TRY(encode_text(g, tokenizer, prompt->text ? prompt->text : ""));
    for (int64_t i = 0; i < g->ids.n; i++) {
        const int32_t id = g->ids.data[i];
        if (id >= 0 && id < vocab)
            continue;
        if (prompt->tokens)
            return lathe_error(LATHE_E_ARG,
                               "token %lld of the prompt is %d; expected 0 to %lld, the ids of the "
                               "model's vocabulary",
                               (long long)i, id, (long long)vocab - 1);
        return lathe_error(LATHE_E_CONFIG,
                           "the tokenizer gives id %d, but the model's vocabulary has only %lld "
                           "ids",
                           id, (long long)vocab);
    }
    if (g->ids.n >= g->capacity)
        return lathe_error(LATHE_E_ARG, "the prompt has %lld tokens, but the context holds %lld",
                           (long long)g->ids.n, (long long)g->capacity);
    return lathe_ids_reserve(&g->ids, g->capacity - g->ids.n);
}

lathe_status lathe__generator_check(lathe_run *run, const char *prompt)
{
    lathe_generator *g = NULL;
    const lathe_prompt text = {.size = (uint32_t)sizeof text, .text = prompt};
    LATHE_TRY(get(run, &g));
    return read_prompt(g, run->data.tokenizer, run->model.vocab, &text);
}

/* Runs the prompt in whole chunks of each size, largest first. If more than half a chunk remains, a
 * whole chunk that ends at the prompt's end is run: its first tokens, which are in the caches
 * already, are computed again. */
static lathe_status take_prompt(const lathe_run *run, lathe_generator *g, int64_t n_prompt,
                                const float **out_logits)
{
    int64_t at = 0;
    g->offset = lathe_model_position_offset(&run->model, g->capacity, n_prompt);
    for (int i = 0; i < N_SIZES; i++) {
        lathe_program *p = &g->programs[i];
        if (!p->exec)
            continue;
        for (; n_prompt - at >= sizes[i]; at += sizes[i])
            LATHE_TRY(run_tokens(g, p, at, out_logits));
        if (2 * (n_prompt - at) > sizes[i] && n_prompt >= sizes[i]) {
            LATHE_TRY(run_tokens(g, p, n_prompt - sizes[i], out_logits));
            at = n_prompt;
        }
    }
    return LATHE_OK;
}

/* Runs the last token of the ids. Where longrope changes its factors, all keys in the caches are
 * computed again, as transformers does for Phi-3. */
static lathe_status run_last(const lathe_run *run, lathe_generator *g, const float **out_logits)
{
    if (lathe_model_position_offset(&run->model, g->capacity, g->ids.n) != g->offset)
        return take_prompt(run, g, g->ids.n, out_logits);
    return run_tokens(g, &g->programs[DECODE], g->ids.n - 1, out_logits);
}

/* Argument of make_tokens. */
typedef struct continuation {
    lathe_run *run;
    lathe_generator *g;
    const lathe_sampling *how;
    const float *logits; /* those that follow the prompt */
    lathe_status status;
} continuation;

static lathe_status make_more(lathe_run *run, lathe_generator *g, const lathe_sampling *how,
                              const float *logits)
{
    const int64_t limit =
        how->max_length > 0 && how->max_length < g->capacity ? how->max_length : g->capacity;
    for (int32_t i = 0; i < how->max_new_tokens && g->ids.n < limit; i++) {
        float logprob;
        const int32_t token =
            lathe_sampler_pick(g->sampler, logits, how, g->ids.data, g->ids.n, &logprob);
        if (token < 0)
            return lathe_nonfinite_refuse(&run->machine, &run->store, run->set.compute_dtype,
                                          "the logits of token", g->ids.n);
        g->logprobs[i] = logprob;
        g->ids.data[g->ids.n++] = token;
        if (how->stop_at_eos && is_eos(&run->generation, &run->model, run->data.tokenizer, token))
            break;
        if (i + 1 < how->max_new_tokens && g->ids.n < limit)
            LATHE_TRY(run_last(run, g, &logits));
    }
    return LATHE_OK;
}

static void make_tokens(void *arg)
{
    continuation *c = arg;
    c->status = make_more(c->run, c->g, c->how, c->logits);
}

static lathe_status continue_prompt(lathe_run *run, lathe_generator *g, const lathe_sampling *how,
                                    int64_t n_prompt)
{
    continuation c = {.run = run, .g = g, .how = how};
    LATHE_TRY(take_prompt(run, g, n_prompt, &c.logits));
    if (g->uses_team)
        lathe_parallel_team(make_tokens, &c);
    else
        make_tokens(&c);
    return c.status;
}

/* Decodes the new tokens to text. Ids of padding rows of the vocabulary, which the tokenizer lacks,
 * are skipped. */
static lathe_status decode_text(lathe_generator *g, const lathe_tokenizer *tokenizer,
                                int64_t n_prompt, int64_t *out_bytes)
{
    const int64_t n = g->ids.n - n_prompt;
    int32_t *known = malloc((size_t)(n + 1) * sizeof *known);
    int64_t n_known = 0, bytes;
    free(g->text);
    g->text = NULL;
    if (!known)
        return lathe_error(LATHE_E_NOMEM, "no memory to decode %lld tokens", (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (lathe_tokenizer_token(tokenizer, g->ids.data[n_prompt + i], &bytes))
            known[n_known++] = g->ids.data[n_prompt + i];
    const lathe_status status = lathe_tokenizer_decode(
        tokenizer, known, n_known, LATHE_DECODE_SKIP_SPECIAL, &g->text, out_bytes);
    free(known);
    return status;
}

static lathe_status check_sampling(const lathe_sampling *s)
{
    if (s->max_new_tokens < 1 || s->temperature < 0.0 || s->top_k < 0 || !(s->top_p > 0.0) ||
        !(s->min_p >= 0.0 && s->min_p <= 1.0) || !(s->repetition_penalty >= 0.0) ||
        s->max_length < 0)
        return lathe_error(LATHE_E_ARG,
                           "sampling needs max_new_tokens >= 1, temperature >= 0, top_k >= 0, "
                           "top_p > 0, min_p from 0 to 1, repetition_penalty >= 0 and "
                           "max_length >= 0");
    return LATHE_OK;
}

lathe_status lathe__generate_begin(lathe_run *run, const lathe_sampling *how, lathe_sampling *out)
{
    lathe_generator *g = NULL;
    LATHE_TRY(
        lathe_struct_read(how, "lathe_sampling", LATHE_LEAST_SAMPLING, out, (int64_t)sizeof *out));
    if (!run->open.placed || !run->data.tokenizer)
        return lathe_error(LATHE_E_STATE,
                           "cannot generate: the run has no weights in memory or no tokenizer");
    if (run->sum.pending)
        return lathe_error(LATHE_E_STATE, "the last training forward still waits for its backward");
    LATHE_TRY(check_sampling(out));
    return get(run, &g);
}

lathe_status lathe__generate_one(lathe_run *run, const lathe_prompt *prompt,
                                 const lathe_sampling *sampling, lathe_generation *out)
{
    lathe_generator *const g = run->generator;
    LATHE_TRY(read_prompt(g, run->data.tokenizer, run->model.vocab, prompt));
    const int64_t n_prompt = g->ids.n;
    LATHE_TRY(continue_prompt(run, g, sampling, n_prompt));
    int64_t bytes = 0;
    LATHE_TRY(decode_text(g, run->data.tokenizer, n_prompt, &bytes));
    *out = (lathe_generation){.size = (uint32_t)sizeof *out,
                              .n_tokens = (int32_t)(g->ids.n - n_prompt),
                              .tokens = g->ids.data + n_prompt,
                              .logprobs = g->logprobs,
                              .text = g->text,
                              .text_bytes = bytes,
                              .prompt_tokens = g->ids.data,
                              .n_prompt_tokens = (int32_t)n_prompt};
    return LATHE_OK;
}

lathe_status lathe_generate(lathe_run *run, const char *prompt, const lathe_sampling *how,
                            lathe_generation *out)
{
    const lathe_prompt text = {.size = (uint32_t)sizeof text, .text = prompt};
    lathe_sampling sampling;
    lathe_generation made;
    LATHE_TRY(lathe_struct_check(out, "lathe_generation", LATHE_LEAST_GENERATION));
    LATHE_TRY(lathe__generate_begin(run, how, &sampling));
    LATHE_TRY(lathe__generate_one(run, &text, &sampling, &made));
    lathe_struct_write(out, &made, (int64_t)sizeof made);
    return LATHE_OK;
}
