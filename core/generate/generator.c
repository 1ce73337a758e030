/* Creates and frees a generator: its programs, which use the same ops as training, and its memory.
 */
#include <stdlib.h>

#include "base/error.h"
#include "generate/draft_model.h"
#include "generate/generator_internal.h"
#include "model/family/model_size.h"

/* Tokens of a sequence that a program computes at a time. The rest of a prompt is computed by the
 * programs of rows, one token in each row. Without blocks there is a single row. */
static const int64_t chunks_in_blocks[] = {128, 32}, chunks_alone[] = {128, 32, 8};

enum {
    MIN_ROWS = 8,     /* rows of the largest program in blocks: for the rest of a prompt */
    ROW_TOKENS = 1024 /* of the KV cache for each sequence, where generate.cache_tokens is 0 */
};

void lathe_generator_destroy(lathe_generator *g)
{
    if (g == NULL)
        return;
    for (int i = 0; i < LATHE__MAX_PROGRAMS; i++)
        lathe_program_fini(&g->passes[i].program);
    lathe_generator_destroy(g->draft);
    free(g->draft_logits);
    free(g->state_bytes);
    lathe_sampler_destroy(g->sampler);
    lathe__sampling_destroy(g);
    lathe_machine_free(g->parts.machine, LATHE_MEM_CACHE, g->caches_bytes, g->caches);
    lathe_machine_free(g->parts.machine, LATHE_MEM_ACTIVATIONS, g->arena_bytes, g->arena);
    lathe__cache_fini(g);
    lathe_ids_fini(&g->ids);
    free(g->row_slots);
    free(g->text);
    lathe_arena_fini(&g->many);
    free(g);
}

static void bind_caches(lathe_generator *g, lathe_program *p)
{
    for (int32_t i = 0; i < g->parts.model->n_layers; i++) {
        lathe_exec_bind(p->exec, p->cache_k[i], lathe__layer_keys(g, i));
        lathe_exec_bind(p->exec, p->cache_v[i], lathe__layer_values(g, i));
    }
    const lathe_graph *graph = lathe_exec_graph(p->exec);
    char *pool = g->caches + lathe__kv_bytes(g);
    for (int32_t i = 0; i < graph->n_states; i++) {
        lathe_exec_bind(p->exec, graph->states[i], pool);
        pool += lathe__states_bytes(g, i);
    }
}

/* Adds a program of `rows` sequences, `tokens` of each. Rows have the same bits whatever the number
 * of rows; in f32, chunks have them too. */
static lathe_status add_pass(lathe_generator *g, int64_t rows, int64_t tokens)
{
    lathe__pass *pass = &g->passes[g->n_passes];
    lathe_program_config config = g->config.program;
    config.n_rows = (int32_t)rows;
    config.row_tokens = tokens;
    config.cache_rows = g->capacity;
    config.cache_blocks = g->in_blocks ? g->n_blocks : 0;
    config.block_tokens = LATHE__BLOCK_TOKENS;
    config.state_slots = g->n_slots;
    config.invariant = tokens == 1 || g->parts.params->compute_dtype == LATHE_F32;
    *pass = (lathe__pass){.rows = rows, .tokens = tokens};
    g->n_passes++;
    LATHE_TRY(lathe_program_build(&config, LATHE_PROGRAM_DECODE, &pass->program));
    LATHE_TRY(lathe_program_prepare(&pass->program, g->parts.machine));
    return lathe_program_divide(&pass->program, g->parts.store);
}

/* Rows of the largest program. */
static int64_t most_rows(const lathe_generator *g)
{
    const int64_t max = (int64_t)g->batch * g->tokens_each;
    return !g->in_blocks ? 1 : max > MIN_ROWS ? max : MIN_ROWS;
}

static lathe_status add_passes(lathe_generator *g)
{
    const int64_t *chunks = g->in_blocks ? chunks_in_blocks : chunks_alone;
    const int32_t n = g->in_blocks ? 2 : 3;
    int64_t rows = most_rows(g);
    for (int32_t i = 0; i < n; i++)
        if (g->capacity >= chunks[i])
            LATHE_TRY(add_pass(g, 1, chunks[i]));
    g->n_chunks = g->n_passes;
    g->row_slots = calloc((size_t)rows, sizeof *g->row_slots);
    if (g->row_slots == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to generate");
    for (; rows > 1; rows = (rows + 1) / 2) {
        LATHE_TRY(add_pass(g, rows, 1));
        if (rows > g->tokens_each && (rows + 1) / 2 < g->tokens_each) /* for one sequence */
            LATHE_TRY(add_pass(g, g->tokens_each, 1));
    }
    return add_pass(g, 1, 1);
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
    return n_products == 0 && lathe_machine_memory(m)->runs_host_code;
}

/* Blocks of the KV cache: at least for one sequence, a copy of its prompt's last block, and the
 * blocks of padding rows. */
static int64_t count_blocks(const lathe_generator *g)
{
    const int64_t row = g->capacity < ROW_TOKENS ? g->capacity : ROW_TOKENS;
    const int64_t least = g->row_blocks + 1 + g->n_padding;
    const int64_t tokens = g->config.cache_tokens > 0 ? g->config.cache_tokens : g->batch * row;
    const int64_t n =
        (tokens + LATHE__BLOCK_TOKENS - 1) / LATHE__BLOCK_TOKENS + g->batch + g->n_padding;
    return n > least && g->batch > 1 ? n : least;
}

static lathe_status plan(lathe_generator *g, int32_t in_blocks);

/* Finds the states that ops of the programs keep. Every program has the same ops in the same order,
 * and shares their states. */
static lathe_status find_states(lathe_generator *g)
{
    const lathe_graph *graph = lathe_exec_graph(g->passes[0].program.exec);
    g->n_states = graph->n_states;
    g->state_bytes = calloc((size_t)g->n_states + 1, sizeof *g->state_bytes);
    if (!g->state_bytes)
        return lathe_error(LATHE_E_NOMEM, "no memory to generate");
    for (int32_t i = 0; i < g->n_states; i++) {
        g->state_bytes[i] = lathe_desc_bytes(&graph->values[graph->states[i]].desc) / g->n_slots;
        g->states_bytes += lathe__states_bytes(g, i);
    }
    for (int32_t k = 1; k < g->n_passes; k++)
        if (lathe_exec_graph(g->passes[k].program.exec)->n_states != g->n_states)
            return lathe_error(LATHE_E_PLUGIN,
                               "model family %s builds other ops with states for other numbers of "
                               "tokens",
                               g->parts.model->family.component->plugin->name);
    if (g->n_states > 0 && (g->parts.draft || g->drafts))
        return lathe_error(LATHE_E_CONFIG,
                           "%s keeps a state of each sequence, which does not come back when "
                           "drafted tokens are refused: generate without a draft model",
                           g->drafts ? "the draft model" : "the model");
    return LATHE_OK;
}

static int64_t draft_logits_bytes(const lathe_generator *g)
{
    return g->draft && g->sampling == NULL
               ? (int64_t)g->batch * g->config.draft_tokens * g->parts.model->vocab *
                     (int64_t)sizeof *g->draft_logits
               : 0;
}

/* Makes the draft model's generator, with slots for the same sequences. */
static lathe_status add_draft(lathe_generator *g)
{
    lathe_generator *d = calloc(1, sizeof *d);
    g->draft = d;
    if (d == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to generate");
    lathe_draft_parts(g->parts.draft, &g->parts, &g->config, &d->parts, &d->config);
    d->drafts = 1;
    d->n_tokens = g->n_tokens;
    if (g->sampling && d->parts.model->vocab > g->n_tokens)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "the draft model has %lld rows of vocabulary, and the model %lld; on a "
                           "device with memory of its own a draft has at most as many",
                           (long long)d->parts.model->vocab, (long long)g->n_tokens);
    LATHE_TRY(plan(d, 1));
    g->uses_team &= d->uses_team;
    if (g->sampling)
        return LATHE_OK;
    g->draft_logits = calloc((size_t)draft_logits_bytes(g), 1);
    if (g->draft_logits == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for drafted tokens");
    lathe__draft_clear_logits(g, g->draft_logits, (int64_t)g->batch * g->config.draft_tokens);
    return lathe_sampler_room_to_verify(g->sampler);
}

/* The host draws where it may read the logits in place, or the device cannot. */
static lathe_status add_sampler(lathe_generator *g)
{
    lathe_status status = LATHE_E_UNSUPPORTED;
    if (!lathe_machine_memory(g->parts.machine)->is_in_place)
        status = lathe__sampling_create(g);
    if (status != LATHE_E_UNSUPPORTED)
        return status;
    lathe_error_clear();
    return lathe_sampler_create(g->n_tokens, &g->sampler);
}

static lathe_status plan(lathe_generator *g, int32_t in_blocks)
{
    const lathe_model_config *model = g->parts.model;
    g->in_blocks = in_blocks;
    g->batch = in_blocks ? g->config.batch : 1;
    g->tokens_each = g->parts.draft && in_blocks ? 1 + g->config.draft_tokens : 1;
    g->capacity =
        g->config.seq_len < model->max_positions ? g->config.seq_len : model->max_positions;
    if (in_blocks) {
        g->row_blocks = (g->capacity + LATHE__BLOCK_TOKENS - 1) / LATHE__BLOCK_TOKENS;
        g->n_padding = (most_rows(g) + LATHE__BLOCK_TOKENS - 1) / LATHE__BLOCK_TOKENS;
        g->n_blocks = count_blocks(g);
    }
    g->n_slots = g->batch + (in_blocks ? LATHE__CACHED_PROMPTS : 0) + 1;
    LATHE_TRY(add_passes(g));
    LATHE_TRY(find_states(g));
    g->uses_team = wants_team(g->parts.machine, &g->passes[g->n_passes - 1].program);
    const int64_t positions = in_blocks ? g->n_blocks * LATHE__BLOCK_TOKENS : g->capacity;
    const int64_t bytes = positions * lathe_dtype_bytes(g->parts.params->compute_dtype);
    g->keys_bytes = (bytes * lathe_model_most_keys(model) + 63) / 64 * 64;
    g->values_bytes = (bytes * lathe_model_most_values(model) + 63) / 64 * 64;
    LATHE_TRY(add_sampler(g));
    LATHE_TRY(lathe__cache_init(g));
    return g->parts.draft ? add_draft(g) : LATHE_OK;
}

static lathe_status try_plan(const lathe_generator_parts *parts,
                             const lathe_generator_config *config, int32_t in_blocks,
                             lathe_generator **out)
{
    lathe_generator *g = calloc(1, sizeof *g);
    if (g == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to generate");
    g->parts = *parts;
    g->config = *config;
    g->n_tokens = parts->model->vocab;
    const lathe_status status = plan(g, in_blocks);
    if (status == LATHE_OK)
        *out = g;
    else
        lathe_generator_destroy(g);
    return status;
}

lathe_status lathe_generator_create(const lathe_generator_parts *parts,
                                    const lathe_generator_config *config, lathe_generator **out)
{
    lathe_status status = try_plan(parts, config, 1, out);
    if (status == LATHE_E_UNSUPPORTED && parts->draft)
        return lathe_error_context(status, "a draft model needs a device and an attention plugin "
                                           "that read and write keys in blocks");
    if (status == LATHE_E_UNSUPPORTED) { /* the device or the attention backend has no blocks */
        lathe_error_clear();
        status = try_plan(parts, config, 0, out);
    }
    return status;
}

lathe_exec *lathe_generator_exec(const lathe_generator *g)
{
    return g ? g->passes[g->n_passes - 1].program.exec : NULL;
}

/* Adds the needs of the draft model's generator, which uses the same arena. */
static void add_needs(lathe_generator_memory *sum, lathe_generator_memory draft,
                      int64_t logits_bytes)
{
    sum->cache_bytes += draft.cache_bytes;
    sum->input_bytes += draft.input_bytes;
    sum->staging_bytes += draft.staging_bytes + logits_bytes;
    if (draft.arena_bytes > sum->arena_bytes)
        sum->arena_bytes = draft.arena_bytes;
    if (draft.activation_bytes > sum->activation_bytes)
        sum->activation_bytes = draft.activation_bytes;
}

lathe_generator_memory lathe_generator_needs(const lathe_generator *g)
{
    lathe_generator_memory needs = {.cache_bytes = lathe__kv_bytes(g) + g->states_bytes};
    for (int32_t i = 0; i < g->n_passes; i++) {
        const lathe_exec *exec = g->passes[i].program.exec;
        const lathe_plan *p = lathe_exec_plan(exec);
        needs.input_bytes += p->input_bytes;
        needs.staging_bytes += lathe_exec_staging_bytes(exec);
        if (lathe_exec_window_bytes(exec) > needs.window_bytes)
            needs.window_bytes = lathe_exec_window_bytes(exec);
        if (p->arena_bytes > needs.arena_bytes)
            needs.arena_bytes = p->arena_bytes;
        if (p->activation_bytes > needs.activation_bytes)
            needs.activation_bytes = p->activation_bytes;
    }
    lathe__sampling_needs(g, &needs);
    if (g->draft)
        add_needs(&needs, lathe_generator_needs(g->draft), draft_logits_bytes(g));
    return needs;
}

lathe_status lathe_generator_place(lathe_generator *g)
{
    const lathe_generator_memory needs = lathe_generator_needs(g);
    void *memory = NULL;
    g->caches_bytes = lathe__kv_bytes(g) + g->states_bytes;
    LATHE_TRY(lathe_machine_alloc(g->parts.machine, LATHE_MEM_CACHE, g->caches_bytes, &memory));
    g->caches = memory;
    char *arena = g->parts.programs->arena;
    /* The plan did not include this generator if the caller generates without having planned to. */
    if (needs.arena_bytes > g->parts.programs->arena_bytes) {
        LATHE_TRY(lathe_machine_alloc(g->parts.machine, LATHE_MEM_ACTIVATIONS, needs.arena_bytes,
                                      &memory));
        arena = g->arena = memory;
        g->arena_bytes = needs.arena_bytes;
    }
    for (int32_t i = 0; i < g->n_passes; i++) {
        lathe_program *p = &g->passes[i].program;
        LATHE_TRY(lathe_exec_place(p->exec, g->parts.store, arena));
        bind_caches(g, p);
    }
    LATHE_TRY(lathe__sampling_place(g, arena));
    return g->draft ? lathe_generator_place(g->draft) : LATHE_OK;
}

void lathe_generator_drafts(const lathe_generator *g, int64_t *out_proposed, int64_t *out_accepted)
{
    *out_proposed = g ? g->n_drafted : 0;
    *out_accepted = g ? g->n_accepted : 0;
}

int lathe_generator_is_for(const lathe_generator *g, int32_t batch)
{
    return !g->in_blocks || g->batch >= batch;
}

lathe_status lathe_generator_check(lathe_generator *g, const lathe_prompt *prompt)
{
    return lathe__prompt_read(g, prompt);
}

int32_t lathe_generator_max_blocks(const lathe_generator *g)
{
    return g && g->in_blocks ? (int32_t)(g->n_blocks - g->n_padding - g->least_free) : 0;
}

lathe_arena *lathe_generator_results(lathe_generator *g)
{
    return &g->many;
}

void lathe_generator_watch(lathe_generator *g, lathe_token_watch watch)
{
    g->watch = watch;
}
