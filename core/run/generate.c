/* The generator's life: its programs, its memory, and lathe_generate. Uses the same ops as
 * training. */
#include <stdlib.h>
#include <string.h>

#include "base/api_struct.h"
#include "base/error.h"
#include "model/model_size.h"
#include "run/api_sizes.h"
#include "run/generate_internal.h"

/* Tokens of a sequence that a program computes at a time. What remains of a prompt is computed by
 * the programs of rows: one token a row in blocks, else one row. */
static const int64_t chunks_in_blocks[] = {128, 32}, chunks_alone[] = {128, 32, 8};

enum {
    LEAST_ROWS = 8,   /* rows of the largest program in blocks: for the rest of a prompt */
    ROW_TOKENS = 1024 /* of the KV cache for each sequence, where generate.cache_tokens is 0 */
};

void lathe_generator_destroy(lathe_run *run)
{
    lathe_generator *g = run->generator;
    if (!g)
        return;
    for (int i = 0; i < LATHE__MOST_PROGRAMS; i++)
        lathe_program_fini(&g->passes[i].program);
    lathe_sampler_destroy(g->sampler);
    lathe_machine_free(&run->machine, LATHE_MEM_CACHE, g->caches_bytes, g->caches);
    lathe_machine_free(&run->machine, LATHE_MEM_ACTIVATIONS, g->arena_bytes, g->arena);
    lathe__cache_fini(g);
    lathe_ids_fini(&g->ids);
    free(g->row_slots);
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

/* Adds a program of `rows` sequences, `tokens` of each. Rows have the same bits whatever the number
 * of rows; in f32, chunks have them too. */
static lathe_status add_pass(lathe_run *run, lathe_generator *g, int64_t rows, int64_t tokens)
{
    lathe__pass *pass = &g->passes[g->n_passes];
    lathe_program_config config = lathe__run_program_config(run);
    config.n_rows = (int32_t)rows;
    config.row_tokens = tokens;
    config.cache_rows = g->capacity;
    config.cache_blocks = g->in_blocks ? g->n_blocks : 0;
    config.block_tokens = LATHE__BLOCK_TOKENS;
    config.invariant = tokens == 1 || run->params.compute_dtype == LATHE_F32;
    *pass = (lathe__pass){.rows = rows, .tokens = tokens};
    g->n_passes++;
    LATHE_TRY(lathe_program_build(&config, LATHE_PROGRAM_DECODE, &pass->program));
    return lathe_program_prepare(&pass->program, &run->machine);
}

static lathe_status add_passes(lathe_run *run, lathe_generator *g)
{
    const int64_t *chunks = g->in_blocks ? chunks_in_blocks : chunks_alone;
    const int32_t n = g->in_blocks ? 2 : 3;
    int64_t rows = !g->in_blocks ? 1 : g->batch > LEAST_ROWS ? g->batch : LEAST_ROWS;
    for (int32_t i = 0; i < n; i++)
        if (g->capacity >= chunks[i])
            LATHE_TRY(add_pass(run, g, 1, chunks[i]));
    g->n_chunks = g->n_passes;
    g->row_slots = calloc((size_t)rows, sizeof *g->row_slots);
    if (!g->row_slots)
        return lathe_error(LATHE_E_NOMEM, "no memory to generate");
    for (; rows > 1; rows = (rows + 1) / 2)
        LATHE_TRY(add_pass(run, g, rows, 1));
    return add_pass(run, g, 1, 1);
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

/* Blocks of the KV cache: at least for one sequence, a copy of its prompt's last block, and the
 * block of padding rows. */
static int64_t count_blocks(const lathe_run *run, const lathe_generator *g)
{
    const int64_t row = g->capacity < ROW_TOKENS ? g->capacity : ROW_TOKENS;
    const int64_t least = g->row_blocks + 2;
    const int64_t tokens =
        run->set.generate_cache_tokens > 0 ? run->set.generate_cache_tokens : g->batch * row;
    const int64_t n = (tokens + LATHE__BLOCK_TOKENS - 1) / LATHE__BLOCK_TOKENS + g->batch + 1;
    return n > least && g->batch > 1 ? n : least;
}

static lathe_status plan(lathe_run *run, lathe_generator *g, int32_t batch, int32_t in_blocks)
{
    const lathe_model_config *model = &run->model;
    g->in_blocks = in_blocks;
    g->batch = in_blocks ? batch : 1;
    g->capacity = run->set.seq_len < model->max_positions ? run->set.seq_len : model->max_positions;
    if (in_blocks) {
        g->row_blocks = (g->capacity + LATHE__BLOCK_TOKENS - 1) / LATHE__BLOCK_TOKENS;
        g->n_blocks = count_blocks(run, g);
    }
    LATHE_TRY(add_passes(run, g));
    g->uses_team = wants_team(&run->machine, &g->passes[g->n_passes - 1].program);
    const int64_t positions = in_blocks ? g->n_blocks * LATHE__BLOCK_TOKENS : g->capacity;
    g->cache_bytes =
        (positions * lathe_model_kv_width(model) * lathe_dtype_bytes(run->params.compute_dtype) +
         63) /
        64 * 64;
    LATHE_TRY(lathe_sampler_create(model->vocab, &g->sampler));
    return lathe__cache_init(run, g);
}

static lathe_status try_plan(lathe_run *run, int32_t batch, int32_t in_blocks)
{
    run->generator = calloc(1, sizeof *run->generator);
    if (!run->generator)
        return lathe_error(LATHE_E_NOMEM, "no memory to generate");
    const lathe_status status = plan(run, run->generator, batch, in_blocks);
    if (status != LATHE_OK)
        lathe_generator_destroy(run);
    return status;
}

lathe_status lathe__generator_plan(lathe_run *run, int32_t batch)
{
    lathe_status status = LATHE_E_UNSUPPORTED;
    if (lathe_machine_shares(&run->machine))
        status = try_plan(run, batch, 1);
    if (status == LATHE_E_UNSUPPORTED) { /* the device or the attention backend has no blocks */
        lathe_error_clear();
        status = try_plan(run, 1, 0);
    }
    return status;
}

lathe_exec *lathe__generator_exec(const lathe_run *run)
{
    const lathe_generator *g = run->generator;
    return g ? g->passes[g->n_passes - 1].program.exec : NULL;
}

lathe_generator_needs lathe__generator_needs(const lathe_run *run)
{
    const lathe_generator *g = run->generator;
    lathe_generator_needs needs = {.cache_bytes = 2 * run->model.n_layers * g->cache_bytes};
    for (int32_t i = 0; i < g->n_passes; i++) {
        const lathe_exec *exec = g->passes[i].program.exec;
        const lathe_plan *p = lathe_exec_plan(exec);
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
    for (int32_t i = 0; i < g->n_passes; i++) {
        lathe_program *p = &g->passes[i].program;
        LATHE_TRY(lathe_exec_place(p->exec, &run->store, arena));
        bind_caches(g, p, n_layers, g->cache_bytes);
    }
    return LATHE_OK;
}

lathe_status lathe__generator_ready(lathe_run *run, int32_t batch)
{
    if (run->generator && run->generator->in_blocks && run->generator->batch < batch)
        lathe_generator_destroy(run);
    if (run->generator)
        return LATHE_OK;
    LATHE_TRY(lathe__generator_plan(run, batch));
    const lathe_status status = lathe__generator_place(run);
    if (status != LATHE_OK)
        lathe_generator_destroy(run);
    return status;
}

lathe_status lathe__generator_check(lathe_run *run, const char *prompt)
{
    const lathe_prompt text = {.size = (uint32_t)sizeof text, .text = prompt};
    LATHE_TRY(lathe__generator_ready(run, 1));
    return lathe__prompt_read(run, &text);
}

int32_t lathe__generator_most_blocks(const lathe_run *run)
{
    const lathe_generator *g = run->generator;
    return g && g->in_blocks ? (int32_t)(g->n_blocks - 1 - g->least_free) : 0;
}

lathe_arena *lathe__generator_results(lathe_run *run)
{
    return &run->generator->many;
}

static lathe_status check_sampling(const lathe_sampling *s)
{
    for (int32_t i = 0; i < s->n_stop; i++)
        if (!s->stop || !s->stop[i] || !s->stop[i][0])
            return lathe_error(LATHE_E_ARG, "stop string %d is empty; expected a text", i);
    if (s->max_new_tokens < 1 || s->temperature < 0.0 || s->top_k < 0 || !(s->top_p > 0.0) ||
        !(s->min_p >= 0.0 && s->min_p <= 1.0) || !(s->repetition_penalty >= 0.0) ||
        s->max_length < 0 || s->n_stop < 0)
        return lathe_error(LATHE_E_ARG,
                           "sampling needs max_new_tokens >= 1, temperature >= 0, top_k >= 0, "
                           "top_p > 0, min_p from 0 to 1, repetition_penalty >= 0, "
                           "max_length >= 0 and n_stop >= 0");
    return LATHE_OK;
}

lathe_status lathe__generate_begin(lathe_run *run, const lathe_sampling *how, int32_t batch,
                                   lathe_sampling *out)
{

    LATHE_TRY(
        lathe_struct_read(how, "lathe_sampling", LATHE_LEAST_SAMPLING, out, (int64_t)sizeof *out));
    if (!run->open.placed || !run->data.tokenizer)
        return lathe_error(LATHE_E_STATE,
                           "cannot generate: the run has no weights in memory or no tokenizer");
    if (run->sum.pending)
        return lathe_error(LATHE_E_STATE, "the last training forward still waits for its backward");
    LATHE_TRY(check_sampling(out));
    return lathe__generator_ready(run, batch);
}

/* The stream of lathe_generate: one prompt. */
typedef struct one_prompt {
    lathe_prompt prompt;
    lathe_generation made;
    int32_t is_given;
} one_prompt;

static lathe_status next_prompt(void *arg, lathe_prompt *out, int32_t *out_given)
{
    one_prompt *one = arg;
    *out_given = one->is_given ? LATHE__PROMPT_NONE : LATHE__PROMPT_GIVEN;
    one->is_given = 1;
    *out = one->prompt;
    return LATHE_OK;
}

static lathe_status take_result(void *arg, int64_t index, const lathe_generation *made)
{
    (void)index;
    ((one_prompt *)arg)->made = *made; /* the slot keeps its arrays until it is used again */
    return LATHE_OK;
}

lathe_status lathe_generate(lathe_run *run, const char *prompt, const lathe_sampling *how,
                            lathe_generation *out)
{
    lathe_sampling sampling;
    int64_t failed;
    LATHE_TRY(lathe_struct_check(out, "lathe_generation", LATHE_LEAST_GENERATION));
    LATHE_TRY(lathe__generate_begin(run, how, 1, &sampling));
    one_prompt one = {
        .prompt = {.size = (uint32_t)sizeof one.prompt, .text = prompt, .seed = sampling.seed}};
    const lathe__prompt_stream stream = {&one, next_prompt, take_result, 0};
    LATHE_TRY(lathe__generate_stream(run, &sampling, &stream, &failed));
    lathe_struct_write(out, &one.made, (int64_t)sizeof one.made);
    return LATHE_OK;
}
