/* Draws tokens on a device with memory of its own: the logits stay there, and only tokens and their
 * log-probabilities get to the host.
 *
 * The programs of the generator write their logits to rows of one tensor on the device, in which
 * the logits of kept prompts have rows too. Two small executables run the op SAMPLE on it, one of
 * them with a repetition penalty. Where the host may read the logits in place, or the device has no
 * such op, the host draws (core/model/family/sample.h), by the same rules.
 *
 *   memory: | logits f32 [rows of a step, then of kept prompts; V] | draft's logits f32 [M, V]
 *           | log-sums of the logits f64 |
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/transfer.h"
#include "generate/generator_internal.h"

/* An executable of one SAMPLE. */
typedef struct sampling_exec {
    lathe_exec *exec;
    lathe_val logits, draft, sums, rows, how, seen, token, logp;
} sampling_exec;

struct lathe__device_sampling {
    sampling_exec plain, penalized;
    sampling_exec *now; /* the one that is being filled */
    int64_t n_rows;     /* that are drawn at a time */
    int64_t n_logits, n_draft;
    int64_t vocab;
    int32_t has_sums;
    char *memory;
    int64_t draft_at, sums_at, bytes; /* in memory */
};

enum { NONE = -1 };

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* ---- the executables ---- */

static lathe_status build(const lathe__device_sampling *d, lathe_graph *g, int with_penalty,
                          sampling_exec *out)
{
    const lathe_op_attrs attrs = {.rng_stream = LATHE__STREAM_ACCEPT};
    const int64_t n = d->n_rows, v = d->vocab;
    lathe_val made[2];
    LATHE_TRY(
        lathe_graph_state(g, "logits", lathe_desc_2d(LATHE_F32, d->n_logits, v), &out->logits));
    if (d->n_draft > 0)
        LATHE_TRY(
            lathe_graph_state(g, "draft", lathe_desc_2d(LATHE_F32, d->n_draft, v), &out->draft));
    if (d->has_sums)
        LATHE_TRY(lathe_graph_state(g, "sums", lathe_desc_1d(LATHE_F64, d->n_logits), &out->sums));
    LATHE_TRY(lathe_graph_input(g, "rows", lathe_desc_2d(LATHE_I64, n, LATHE_SAMPLE_COLUMNS),
                                &out->rows));
    LATHE_TRY(
        lathe_graph_input(g, "how", lathe_desc_2d(LATHE_F64, n, LATHE_SAMPLE_SETTINGS), &out->how));
    if (with_penalty)
        LATHE_TRY(
            lathe_graph_input(g, "seen", lathe_desc_2d(LATHE_I32, n, (v + 31) / 32), &out->seen));
    const lathe_val in[6] = {out->logits, out->draft, out->sums, out->rows, out->how, out->seen};
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_SAMPLE, &attrs, in, 6, made, 2, -1, "sample"));
    out->token = made[0];
    out->logp = made[1];
    lathe_graph_output(g, out->token);
    lathe_graph_output(g, out->logp);
    return LATHE_OK;
}

static lathe_status make_exec(const lathe_generator *g, int with_penalty, sampling_exec *out)
{
    lathe_graph *graph = NULL;
    *out = (sampling_exec){.draft = LATHE_NONE, .sums = LATHE_NONE, .seen = LATHE_NONE};
    LATHE_TRY(lathe_graph_create(g->config.program.params, &graph));
    const lathe_status status = build(g->sampling, graph, with_penalty, out);
    if (status != LATHE_OK) {
        lathe_graph_destroy(graph);
        return status;
    }
    return lathe_exec_create(g->parts.machine, graph, &out->exec);
}

lathe_status lathe__sampling_create(lathe_generator *g)
{
    const int64_t n_kept = g->in_blocks && g->batch > 1 ? LATHE__CACHED_PROMPTS : 0;
    lathe__device_sampling *d = calloc(1, sizeof *d);
    if (d == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to generate");
    g->sampling = d;
    d->n_rows = g->passes[g->n_chunks].rows;
    d->n_logits = d->n_rows + n_kept;
    d->n_draft = g->parts.draft ? (int64_t)g->batch * g->config.draft_tokens : 0;
    d->vocab = g->parts.model->vocab;
    d->has_sums = g->passes[g->n_chunks].program.log_sums != LATHE_NONE;
    d->draft_at = round_up(d->n_logits * d->vocab * 4);
    d->sums_at = d->draft_at + round_up(d->n_draft * d->vocab * 4);
    d->bytes = d->sums_at + round_up(d->n_logits * 8);
    lathe_status status = make_exec(g, 0, &d->plain);
    if (status == LATHE_OK)
        status = make_exec(g, 1, &d->penalized);
    if (status != LATHE_OK) {
        lathe__sampling_destroy(g);
        g->sampling = NULL;
    }
    return status;
}

void lathe__sampling_destroy(lathe_generator *g)
{
    lathe__device_sampling *d = g->sampling;
    if (d == NULL)
        return;
    if (d->plain.exec)
        lathe_exec_destroy(d->plain.exec);
    if (d->penalized.exec)
        lathe_exec_destroy(d->penalized.exec);
    if (d->memory)
        lathe_machine_free(g->parts.machine, LATHE_MEM_ACTIVATIONS, d->bytes, d->memory);
    free(d);
}

static void add_exec(const lathe_exec *exec, lathe_generator_memory *io_needs)
{
    const lathe_plan *p = lathe_exec_plan(exec);
    io_needs->input_bytes += p->input_bytes;
    io_needs->staging_bytes += lathe_exec_staging_bytes(exec);
    if (p->arena_bytes > io_needs->arena_bytes)
        io_needs->arena_bytes = p->arena_bytes;
    if (p->activation_bytes > io_needs->activation_bytes)
        io_needs->activation_bytes = p->activation_bytes;
}

void lathe__sampling_needs(const lathe_generator *g, lathe_generator_memory *io_needs)
{
    if (g->sampling == NULL)
        return;
    add_exec(g->sampling->plain.exec, io_needs);
    add_exec(g->sampling->penalized.exec, io_needs);
    io_needs->input_bytes += g->sampling->bytes;
}

static lathe_status place_exec(lathe_generator *g, sampling_exec *x, void *arena)
{
    lathe__device_sampling *d = g->sampling;
    LATHE_TRY(lathe_exec_place(x->exec, g->parts.store, arena));
    lathe_exec_bind(x->exec, x->logits, d->memory);
    if (x->draft != LATHE_NONE)
        lathe_exec_bind(x->exec, x->draft, d->memory + d->draft_at);
    if (x->sums != LATHE_NONE)
        lathe_exec_bind(x->exec, x->sums, d->memory + d->sums_at);
    return LATHE_OK;
}

/* Lets the programs write their logits to the first rows of d->memory. */
static void bind_logits(lathe_generator *g)
{
    const lathe__device_sampling *d = g->sampling;
    for (int32_t i = 0; i < g->n_passes; i++) {
        const lathe_program *p = &g->passes[i].program;
        const lathe_graph *graph = lathe_exec_graph(p->exec);
        lathe_exec_bind(p->exec, lathe_graph_root(graph, p->logits), d->memory);
        if (p->log_sums != LATHE_NONE)
            lathe_exec_bind(p->exec, lathe_graph_root(graph, p->log_sums), d->memory + d->sums_at);
    }
}

/* Fills the draft's rows once: a step overwrites the logits that the draft model has. */
static lathe_status clear_draft_logits(const lathe_generator *g)
{
    const lathe__device_sampling *d = g->sampling;
    float *row = calloc((size_t)d->vocab, sizeof *row);
    lathe_status status = LATHE_OK;
    if (row == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to generate");
    lathe__draft_clear_logits(g, row, 1);
    for (int64_t r = 0; status == LATHE_OK && r < d->n_draft; r++)
        status = lathe_upload(g->parts.machine, d->memory + d->draft_at + r * d->vocab * 4, row,
                              d->vocab * 4);
    free(row);
    return status;
}

lathe_status lathe__sampling_place(lathe_generator *g, void *arena)
{
    void *memory = NULL;
    if (g->sampling == NULL)
        return LATHE_OK;
    LATHE_TRY(
        lathe_machine_alloc(g->parts.machine, LATHE_MEM_ACTIVATIONS, g->sampling->bytes, &memory));
    g->sampling->memory = memory;
    LATHE_TRY(place_exec(g, &g->sampling->plain, arena));
    LATHE_TRY(place_exec(g, &g->sampling->penalized, arena));
    bind_logits(g);
    return g->draft ? clear_draft_logits(g) : LATHE_OK;
}

/* ---- draws ---- */

static int is_penalized(const lathe_sampling *how)
{
    return how->repetition_penalty > 0.0 && how->repetition_penalty != 1.0;
}

/* Begins the inputs of a run in which no row draws yet. */
static lathe_status begin(lathe__device_sampling *d, const lathe_sampling *how)
{
    d->now = is_penalized(how) ? &d->penalized : &d->plain;
    LATHE_TRY(lathe_exec_next_inputs(d->now->exec));
    int64_t *rows = lathe_exec_input(d->now->exec, d->now->rows);
    for (int64_t i = 0; i < d->n_rows * LATHE_SAMPLE_COLUMNS; i++)
        rows[i] = NONE;
    return LATHE_OK;
}

/* Draw i: the token at `position` of the sequence, from row `row` of the logits. drafted: the token
 * of the draft model, with the draft's logits in row `draft_row`; NONE: none. */
static void put(const lathe_generator *g, int64_t i, const lathe__sequence *s, int64_t row,
                int64_t position, int32_t drafted, int64_t draft_row)
{
    const lathe__device_sampling *d = g->sampling;
    const sampling_exec *x = d->now;
    const lathe_sampling *how = &s->how;
    int64_t *r = (int64_t *)lathe_exec_input(x->exec, x->rows) + i * LATHE_SAMPLE_COLUMNS;
    double *h = (double *)lathe_exec_input(x->exec, x->how) + i * LATHE_SAMPLE_SETTINGS;
    r[LATHE_SAMPLE_ROW] = row;
    r[LATHE_SAMPLE_DRAFT_ROW] = draft_row;
    r[LATHE_SAMPLE_DRAFTED] = drafted;
    r[LATHE_SAMPLE_POSITION] = position;
    memcpy(&r[LATHE_SAMPLE_SEED], &how->seed, sizeof how->seed);
    r[LATHE_SAMPLE_STREAM] = (int64_t)(g->drafts ? LATHE__STREAM_DRAFT : LATHE__STREAM_SAMPLE);
    r[LATHE_SAMPLE_TOP_K] = how->top_k;
    r[LATHE_SAMPLE_COLUMNS - 1] = 0;
    h[LATHE_SAMPLE_TEMPERATURE] = how->temperature;
    h[LATHE_SAMPLE_TOP_P] = how->top_p;
    h[LATHE_SAMPLE_MIN_P] = how->min_p;
    h[LATHE_SAMPLE_PENALTY] = how->repetition_penalty;
    if (x->seen == LATHE_NONE)
        return;
    const int64_t words = (d->vocab + 31) / 32;
    uint32_t *seen = (uint32_t *)lathe_exec_input(x->exec, x->seen) + i * words;
    memset(seen, 0, (size_t)words * sizeof *seen);
    for (int64_t k = 0; k < position; k++)
        seen[s->ids[k] / 32] |= UINT32_C(1) << (s->ids[k] % 32);
}

static lathe_status run(const lathe__device_sampling *d, lathe__logits *io)
{
    const void *token = NULL, *logp = NULL;
    LATHE_TRY(lathe_exec_send(d->now->exec));
    LATHE_TRY(lathe_exec_run(d->now->exec, 0));
    LATHE_TRY(lathe_exec_fetch(d->now->exec, d->now->token, &token));
    LATHE_TRY(lathe_exec_fetch(d->now->exec, d->now->logp, &logp));
    io->tokens = token;
    io->logprobs = logp;
    return LATHE_OK;
}

lathe_status lathe__sample_rows(lathe_generator *g, int64_t n, lathe__logits *io)
{
    lathe__device_sampling *d = g->sampling;
    int64_t later = 0, n_draws = 0; /* later: rows of the same sequence after row r */
    if (n == 0)
        return LATHE_OK;
    LATHE_TRY(begin(d, &g->slots[g->row_slots[0]].how));
    for (int64_t r = n - 1; r >= 0; r--) {
        const int32_t slot = g->row_slots[r];
        const lathe__sequence *s = &g->slots[slot];
        later = r + 1 < n && g->row_slots[r + 1] == slot ? later + 1 : 0;
        const int64_t position = s->computed - later, k = position - s->n;
        if (k < 0) /* a token of the prompt follows */
            continue;
        if (k < s->n_drafted)
            put(g, r, s, r, position, s->ids[position], (int64_t)slot * g->config.draft_tokens + k);
        else
            put(g, r, s, r, position, NONE, 0);
        n_draws++;
    }
    return n_draws > 0 ? run(d, io) : LATHE_OK;
}

lathe_status lathe__sample_one(lathe_generator *g, const lathe__sequence *s, lathe__logits *io)
{
    LATHE_TRY(begin(g->sampling, &s->how));
    put(g, 0, s, io->first, s->n, NONE, 0);
    return run(g->sampling, io);
}

/* ---- logits that are kept on the device ---- */

/* Copies row `from` of a generator's logits to memory of a device's row. */
static lathe_status move_row(const lathe_generator *g, char *to, int64_t from)
{
    const int64_t bytes = g->sampling->vocab * 4;
    return lathe_move(g->parts.machine, to, g->sampling->memory + from * bytes, bytes);
}

int64_t lathe__cached_row(const lathe_generator *g, const lathe__cached_prompt *k)
{
    return g->sampling->n_rows + (k - g->cached);
}

lathe_status lathe__keep_logits(const lathe_generator *g, const lathe__cached_prompt *k,
                                int64_t row)
{
    const lathe__device_sampling *d = g->sampling;
    const int64_t to = lathe__cached_row(g, k);
    LATHE_TRY(move_row(g, d->memory + to * d->vocab * 4, row));
    char *sums = d->memory + d->sums_at;
    return d->has_sums ? lathe_move(g->parts.machine, sums + to * 8, sums + row * 8, 8) : LATHE_OK;
}

lathe_status lathe__keep_draft_logits(const lathe_generator *g, int64_t draft_row, int64_t row)
{
    const lathe__device_sampling *d = g->sampling;
    return move_row(g->draft, d->memory + d->draft_at + draft_row * d->vocab * 4, row);
}
