/* Checks of stages that make their batches themselves: iterate() and state_bytes(), with a run that
 * is not one. Every function of that run checks what it is given, writes down the call, and answers
 * by counters alone, so that two runs of the same steps must be the same calls. What it lends is
 * spoilt as soon as the loan ends. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "check/kinds/checks.h"
#include "check/kinds/stage_model.h"
#include "lathe/rng.h"
#include "lathe/stage_run.h"
#include "plug/row_shape.h"
#include "plug/stage_inputs.h"

enum { V = LATHE__STAGE_V, N_STEPS = 8, MAX_AT_ONCE = 1 << 20, MAX_T = 8192, JUNK = 0x7f };

/* Functions of the run, in the order of lathe_run_api. */
enum { PROMPTS, GENERATE, REWARD, LOGPROBS, ACCUMULATE, OUTPUTS, N_FUNCTIONS };
static const char *const names[N_FUNCTIONS] = {"prompts",  "generate",   "reward",
                                               "logprobs", "accumulate", "outputs"};

/* Memory that the stage has borrowed. */
typedef struct loan {
    void *memory;
    int64_t bytes;
    uint64_t hash; /* of its content, which the stage must leave alone */
} loan;

typedef struct fake_run {
    lathe__subject *s;
    const lathe_stage_v1 *t;
    lathe_instance instance;
    int32_t n_rows, row_tokens;
    void *state;
    int64_t state_bytes;
    uint32_t outputs; /* bit i: the loss has output i */
    /* the run's own state, which a checkpoint saves */
    uint64_t step;
    int64_t cursor; /* prompts so far */
    /* of the step */
    uint64_t hash; /* of all calls */
    int32_t n_accumulated;
    int64_t n_calls[N_FUNCTIONS];
    int64_t heap; /* blocks that this file took */
    loan prompts, records, generated;
    const lathe_stage_prompt *given; /* a copy of the prompts that are lent */
    int32_t n_given;
    /* what it does */
    int32_t fails; /* this function fails at its first call; -1: none */
    int32_t may_stop, is_stopping;
    char wrong[512]; /* the first wrong call */
} fake_run;

/* ---- notes ---- */

/* Notes the first wrong call, and returns an error, which the stage should pass on. */
__attribute__((format(printf, 2, 3))) static lathe_status wrong(fake_run *f, const char *format,
                                                                ...)
{
    va_list args;
    va_start(args, format);
    if (f->wrong[0] == '\0')
        (void)vsnprintf(f->wrong, sizeof f->wrong, format, args);
    va_end(args);
    return lathe_error(LATHE_E_ARG, "%s", f->wrong);
}

static void add_bytes(fake_run *f, const void *data, int64_t bytes)
{
    f->hash = f->hash * UINT64_C(0x9e3779b97f4a7c15) + lathe_hash64(data, bytes);
}

static void add(fake_run *f, uint64_t value)
{
    add_bytes(f, &value, (int64_t)sizeof value);
}

/* Notes the call. Returns 1 if it is to fail. */
static int begin_call(fake_run *f, int32_t function)
{
    add(f, (uint64_t)function + 1);
    return f->n_calls[function]++ == 0 && f->fails == function;
}

static lathe_status planned(int32_t function)
{
    return lathe_error(LATHE_E_IO, "%s() of the run fails, as the check wants", names[function]);
}

static void *lend(fake_run *f, loan *l, int64_t bytes)
{
    const int64_t before = lathe__heap();
    *l = (loan){lathe__memory(f->s, bytes > 0 ? bytes : 1), bytes, 0};
    f->heap += lathe__heap() - before;
    return l->memory;
}

static void seal(loan *l)
{
    l->hash = lathe_hash64(l->memory, l->bytes);
}

/* Ends a loan. */
static void spoil(fake_run *f, loan *l, const char *what)
{
    if (l->memory != NULL && lathe_hash64(l->memory, l->bytes) != l->hash)
        (void)wrong(f, "it changed %s, which it had borrowed", what);
    if (l->memory != NULL)
        memset(l->memory, JUNK, (size_t)l->bytes);
    *l = (loan){NULL, 0, 0};
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    const lathe_u32x4 r = lathe_rng_block(a, b, 77, 0);
    return (uint64_t)r.v[0] << 32 | r.v[1];
}

static double unit(uint64_t word)
{
    return (double)(word >> 11) * 0x1p-53;
}

static int are_tokens(const int32_t *tokens, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= V)
            return 0;
    return 1;
}

/* ---- the functions of the run ---- */

static lathe_status prompts(void *run, int32_t n, lathe_stage_prompt *out)
{
    enum { MAX_TOKENS = 5, RECORD = 64 };
    fake_run *f = run;
    if (begin_call(f, PROMPTS))
        return planned(PROMPTS);
    if (n < 1 || n > MAX_AT_ONCE || out == NULL)
        return wrong(f, "prompts() of %d prompts%s", n, out == NULL ? " into NULL" : "");
    spoil(f, &f->prompts, "tokens of prompts");
    spoil(f, &f->records, "records of prompts");
    int32_t *tokens = lend(f, &f->prompts, (int64_t)n * MAX_TOKENS * 4);
    char *records = lend(f, &f->records, (int64_t)n * RECORD);
    const int64_t before = lathe__heap();
    lathe_stage_prompt *given = lathe__memory(f->s, n * (int64_t)sizeof *given);
    f->heap += lathe__heap() - before;
    for (int32_t i = 0; i < n; i++) {
        const int64_t place = f->cursor++;
        const int32_t n_tokens = 1 + (int32_t)(place % MAX_TOKENS);
        for (int32_t k = 0; k < n_tokens; k++)
            tokens[i * MAX_TOKENS + k] = 2 + (int32_t)((place * 7 + k * 3) % (V - 2));
        memset(records + i * RECORD, '!', RECORD); /* it does not end with NUL */
        char text[RECORD];
        const int bytes = snprintf(
            text, sizeof text, "{\"prompt\": \"6 * 7?\", \"answer\": \"%lld\"}", (long long)place);
        memcpy(records + i * RECORD, text, (size_t)bytes);
        given[i] = (lathe_stage_prompt){.tokens = tokens + i * MAX_TOKENS,
                                        .n_tokens = n_tokens,
                                        .record = records + i * RECORD,
                                        .record_bytes = bytes};
    }
    memcpy(out, given, (size_t)n * sizeof *given);
    f->given = given;
    f->n_given = n;
    seal(&f->prompts);
    seal(&f->records);
    add(f, (uint64_t)n);
    return LATHE_OK;
}

static lathe_status check_sampling(fake_run *f, const lathe_sampling *how)
{
    if (how == NULL || how->size < 16 || how->size > sizeof *how)
        return wrong(f, "generate() with a sampling of size %u, expected %zu",
                     how != NULL ? how->size : 0, sizeof *how);
    if (how->max_new_tokens < 1)
        return wrong(f, "generate() of max_new_tokens %d", how->max_new_tokens);
    if (!(how->temperature >= 0.0) || !isfinite(how->temperature) || !(how->top_p > 0.0) ||
        how->top_p > 1.0 || how->top_k < 0)
        return wrong(f, "generate() with temperature %g, top_p %g, top_k %d", how->temperature,
                     how->top_p, how->top_k);
    return LATHE_OK;
}

static int32_t new_tokens(const fake_run *f, const lathe_prompt *p, const lathe_sampling *how,
                          uint64_t word)
{
    const int32_t n_prompt = p->tokens != NULL ? p->n_tokens : 1;
    int32_t most = how->max_new_tokens, length = f->row_tokens;
    if (how->size >= sizeof *how && how->max_length > 0 && how->max_length < length)
        length = how->max_length;
    most = most < length - n_prompt ? most : length - n_prompt;
    return most < 1 ? 0 : 1 + (int32_t)(word % (uint64_t)(most < 12 ? most : 12));
}

static lathe_status generate(void *run, const lathe_prompt *list, int32_t n,
                             const lathe_sampling *how, lathe_generation *out)
{
    enum { MAX_NEW = 12 };
    fake_run *f = run;
    if (begin_call(f, GENERATE))
        return planned(GENERATE);
    if (n < 1 || n > MAX_AT_ONCE || list == NULL || out == NULL)
        return wrong(f, "generate() of %d prompts", n);
    LATHE_TRY(check_sampling(f, how));
    add(f, (uint64_t)n);
    add(f, (uint64_t)how->max_new_tokens);
    add_bytes(f, &how->temperature, (int64_t)sizeof how->temperature);
    spoil(f, &f->generated, "what it had generated");
    int32_t *tokens = lend(f, &f->generated, (int64_t)n * MAX_NEW * 8);
    float *logprobs = (float *)(void *)(tokens + n * MAX_NEW);
    f->is_stopping |= f->may_stop;
    for (int32_t i = 0; i < n; i++) {
        const lathe_prompt *p = &list[i];
        if (p->size != sizeof *p || out[i].size != sizeof *out)
            return wrong(f, "generate() with prompt %d of size %u and a result of size %u", i,
                         p->size, out[i].size);
        if (p->tokens != NULL && (p->n_tokens < 1 || p->n_tokens > f->row_tokens))
            return wrong(f, "generate() with a prompt of %d tokens in rows of %d", p->n_tokens,
                         f->row_tokens);
        if (p->tokens != NULL && !are_tokens(p->tokens, p->n_tokens))
            return wrong(f, "generate() with a token outside the vocabulary in prompt %d", i);
        add(f, p->seed);
        if (p->tokens != NULL)
            add_bytes(f, p->tokens, p->n_tokens * 4);
        lathe_generation g = {.size = (uint32_t)sizeof g};
        const int32_t m = new_tokens(f, p, how, mix(p->seed, 1));
        for (int32_t k = 0; k < m; k++) {
            tokens[i * MAX_NEW + k] = 2 + (int32_t)(mix(p->seed, 2 + (uint64_t)k) % (V - 2));
            logprobs[i * MAX_NEW + k] = -0.5f;
        }
        if (!f->is_stopping || i < n / 2) { /* the rest is missing in a run that ends */
            g.n_tokens = m;
            g.tokens = tokens + i * MAX_NEW;
            g.logprobs = logprobs + i * MAX_NEW;
            g.text = "";
            g.prompt_tokens = p->tokens;
            g.n_prompt_tokens = p->tokens != NULL ? p->n_tokens : 0;
            g.finish = m == how->max_new_tokens ? LATHE_FINISH_LENGTH : LATHE_FINISH_EOS;
        }
        out[i] = g;
    }
    seal(&f->generated);
    return LATHE_OK;
}

/* Whether a completion's record is one of the prompts that are lent. */
static int is_lent(const fake_run *f, const lathe_stage_completion *c)
{
    for (int32_t i = 0; i < f->n_given; i++)
        if (f->given[i].record == c->record && f->given[i].record_bytes == c->record_bytes)
            return f->records.memory != NULL;
    return 0;
}

static lathe_status reward(void *run, const lathe_stage_completion *list, int32_t n, double *out)
{
    fake_run *f = run;
    if (begin_call(f, REWARD))
        return planned(REWARD);
    if (!(f->t->needs & LATHE_NEEDS_REWARD))
        return wrong(f, "reward(), and its table does not say LATHE_NEEDS_REWARD");
    if (n < 1 || n > MAX_AT_ONCE || list == NULL || out == NULL)
        return wrong(f, "reward() of %d completions", n);
    for (int32_t i = 0; i < n; i++) {
        const lathe_stage_completion *c = &list[i];
        if (c->n_prompt < 0 || c->n_tokens < 0 || c->n_prompt + c->n_tokens > f->row_tokens ||
            (c->n_prompt > 0 && c->prompt == NULL) || (c->n_tokens > 0 && c->tokens == NULL))
            return wrong(f, "reward() of completion %d with %d and %d tokens", i, c->n_prompt,
                         c->n_tokens);
        if (!are_tokens(c->prompt, c->n_prompt) || !are_tokens(c->tokens, c->n_tokens))
            return wrong(f, "reward() of completion %d with a token outside the vocabulary", i);
        if (c->record == NULL || !is_lent(f, c))
            return wrong(f, "reward() of completion %d with a record that no prompt has", i);
        add_bytes(f, c->prompt, c->n_prompt * 4);
        add_bytes(f, c->tokens, c->n_tokens * 4);
        out[i] = 2.0 * unit(mix(lathe_hash64(c->tokens, c->n_tokens * 4), 5)) - 1.0;
    }
    return LATHE_OK;
}

/* The numbers of one input of a batch. */
static lathe_status check_input(fake_run *f, const char *what, const lathe_run_batch *b,
                                const lathe_batch_input *input)
{
    int32_t at = -1;
    for (int32_t i = 0; i < f->t->n_inputs && input->name != NULL; i++)
        if (strcmp(f->t->inputs[i].name, input->name) == 0)
            at = i;
    if (at < 0 || input->values == NULL)
        return wrong(f, "%s() with an input '%s', which %s", what, input->name ? input->name : "",
                     at < 0 ? "the stage does not declare" : "has no values");
    const int64_t places =
        f->t->inputs[at].per == LATHE_PER_ROW ? b->n_rows : (int64_t)b->n_rows * b->row_tokens;
    const int64_t n = places * lathe_stage_input_count(f->t, at, 0);
    const int is_float = lathe_stage_shape(f->t, at).dtype == LATHE_F32;
    for (int64_t i = 0; is_float && i < n; i++)
        if (!isfinite(((const float *)input->values)[i]))
            return wrong(f, "%s() with '%s' %g at %lld", what, input->name,
                         (double)((const float *)input->values)[i], (long long)i);
    add_bytes(f, input->values, n * 4);
    return LATHE_OK;
}

static lathe_status check_inputs(fake_run *f, const char *what, const lathe_run_batch *b,
                                 int needs_all)
{
    if (b->n_inputs < 0 || b->n_inputs > LATHE_MAX_STAGE_INPUTS ||
        (b->n_inputs > 0 && b->inputs == NULL))
        return wrong(f, "%s() with %d inputs", what, b->n_inputs);
    for (int32_t i = 0; i < b->n_inputs; i++)
        LATHE_TRY(check_input(f, what, b, &b->inputs[i]));
    for (int32_t i = 0; needs_all && i < f->t->n_inputs; i++) {
        int found = f->t->inputs[i].source == LATHE_INPUT_STORED;
        for (int32_t k = 0; k < b->n_inputs; k++)
            found |= strcmp(b->inputs[k].name, f->t->inputs[i].name) == 0;
        if (!found)
            return wrong(f, "%s() without its input '%s'", what, f->t->inputs[i].name);
    }
    return LATHE_OK;
}

static lathe_status check_batch(fake_run *f, const char *what, const lathe_run_batch *b,
                                int needs_inputs)
{
    const int32_t most = f->n_rows * lathe_row_shape_get(lathe_rows_of(f->t))->n_rows;
    if (b == NULL || b->size < 48 || b->size > sizeof *b)
        return wrong(f, "%s() with a batch of size %u, expected %zu", what, b ? b->size : 0,
                     sizeof *b);
    if (b->n_rows < 1 || b->n_rows > most || b->row_tokens < 1 || b->row_tokens > f->row_tokens)
        return wrong(f, "%s() of %d rows of %d tokens; a batch has at most %d rows of %d tokens",
                     what, b->n_rows, b->row_tokens, most, f->row_tokens);
    if (b->tokens == NULL || b->targets == NULL)
        return wrong(f, "%s() of a batch without tokens or targets", what);
    const int64_t n = (int64_t)b->n_rows * b->row_tokens;
    for (int64_t i = 0; i < n; i++) {
        const int32_t t = (int32_t)(i % b->row_tokens);
        if (b->tokens[i] < 0 || b->tokens[i] >= V || b->targets[i] < -1 || b->targets[i] >= V)
            return wrong(f, "%s() with token %d and target %d at %lld, of a vocabulary of %d", what,
                         b->tokens[i], b->targets[i], (long long)i, V);
        if (b->doc_start != NULL && (b->doc_start[i] < 0 || b->doc_start[i] > t))
            return wrong(f, "%s() with doc_start %d at token %d of a row", what, b->doc_start[i],
                         t);
        if (b->positions != NULL && (b->positions[i] < 0 || b->positions[i] >= f->row_tokens))
            return wrong(f, "%s() with position %d in rows of %d tokens", what, b->positions[i],
                         f->row_tokens);
    }
    add(f, (uint64_t)b->n_rows << 32 | (uint64_t)b->row_tokens);
    add_bytes(f, b->tokens, n * 4);
    add_bytes(f, b->targets, n * 4);
    if (b->doc_start != NULL)
        add_bytes(f, b->doc_start, n * 4);
    if (b->positions != NULL)
        add_bytes(f, b->positions, n * 4);
    return check_inputs(f, what, b, needs_inputs);
}

static void fill_logprobs(const lathe_run_batch *b, int32_t which, float *out)
{
    for (int64_t i = 0; i < (int64_t)b->n_rows * b->row_tokens; i++)
        out[i] = b->targets[i] < 0
                     ? 0.0f
                     : -(float)(0.5 + unit(mix((uint64_t)b->targets[i],
                                               (uint64_t)b->tokens[i] + 100 * (uint64_t)which)));
}

static lathe_status logprobs(void *run, const lathe_run_batch *batch, float *out)
{
    fake_run *f = run;
    if (begin_call(f, LOGPROBS))
        return planned(LOGPROBS);
    LATHE_TRY(check_batch(f, "logprobs", batch, 0));
    if (out == NULL)
        return wrong(f, "logprobs() into NULL");
    fill_logprobs(batch, 0, out);
    return LATHE_OK;
}

static lathe_status accumulate(void *run, const lathe_run_batch *batch)
{
    fake_run *f = run;
    if (begin_call(f, ACCUMULATE))
        return planned(ACCUMULATE);
    LATHE_TRY(check_batch(f, "accumulate", batch, 1));
    f->n_accumulated++;
    return LATHE_OK;
}

static lathe_status outputs(void *run, const lathe_run_batch *batch, float *const *out)
{
    fake_run *f = run;
    if (begin_call(f, OUTPUTS))
        return planned(OUTPUTS);
    if (f->outputs == 0)
        return wrong(f, "outputs(), and its loss gives none");
    LATHE_TRY(check_batch(f, "outputs", batch, 0));
    if (out == NULL)
        return wrong(f, "outputs() into NULL");
    for (int32_t i = 0; i < LATHE_MAX_STAGE_OUTPUTS; i++)
        if (((f->outputs >> i) & 1) && out[i] != NULL)
            fill_logprobs(batch, i, out[i]);
    return LATHE_OK;
}

static void figure(void *run, int32_t index, double value)
{
    fake_run *f = run;
    const int32_t n = LATHE_HAS(f->t, figures) && f->t->figures != NULL ? f->t->n_figures : 0;
    if (index < 0 || index >= n)
        (void)wrong(f, "figure() %d of %d", index, n);
    add(f, (uint64_t)index);
    if (!isnan(value)) /* NaN has many forms */
        add_bytes(f, &value, (int64_t)sizeof value);
}

static uint64_t random_word(void *run, uint64_t index)
{
    const fake_run *f = run;
    return mix(1234 + f->step, index);
}

static int32_t stops(void *run)
{
    return ((const fake_run *)run)->is_stopping;
}

/* ---- runs ---- */

static lathe_status told_bytes(fake_run *f, int64_t *out)
{
    int64_t again = -1;
    *out = -1;
    lathe_error_clear();
    const lathe_status status = f->t->state_bytes(f->instance.self, f->n_rows, f->row_tokens, out);
    if (status != LATHE_OK && lathe_error_message()[0] == '\0')
        return lathe_error(LATHE_E_PLUGIN, "state_bytes() returns %d and records no message",
                           status);
    LATHE_TRY(status);
    LATHE_TRY(f->t->state_bytes(f->instance.self, f->n_rows, f->row_tokens, &again));
    if (*out < 0 || *out % 8 != 0 || *out > (int64_t)1 << 40)
        return lathe_error(LATHE_E_PLUGIN,
                           "state_bytes() says %lld bytes for %d rows of %d tokens, expected a "
                           "multiple of 8",
                           (long long)*out, f->n_rows, f->row_tokens);
    if (*out != again)
        return lathe_error(LATHE_E_PLUGIN,
                           "state_bytes() says %lld bytes, and %lld when asked "
                           "again",
                           (long long)*out, (long long)again);
    return LATHE_OK;
}

/* Builds the loss once, as a run does before its first step, and notes its outputs. */
static lathe_status build_loss(fake_run *f)
{
    lathe__stage_model m = {.table = f->t, .n_rows = 4, .plain = 1};
    lathe_stage_loss *loss = lathe__memory(f->s, (int64_t)sizeof *loss);
    lathe_params_init(&m.params, LATHE_F32);
    m.params.ops = f->s->ops;
    lathe_status status = lathe_graph_create(&m.params, &m.g);
    if (status == LATHE_OK)
        status = lathe__stage_model_ask(&m, f->instance.self, loss);
    for (int32_t i = 0; status == LATHE_OK && i < loss->n_outputs; i++)
        f->outputs |= loss->outputs[i] != LATHE_NONE ? 1u << i : 0u;
    lathe_graph_destroy(m.g);
    lathe_params_fini(&m.params);
    return status;
}

static void stop_run(fake_run *f)
{
    lathe_instance_fini(&f->instance);
}

/* Opens a run with batches of n_rows rows, in the smallest rows that the stage takes. `from`: a run
 * that it continues, with a copy of its state in other memory; NULL: from the beginning. */
static lathe_status start_run(fake_run *f, lathe__subject *s, int32_t n_rows, const fake_run *from)
{
    *f = (fake_run){.s = s, .t = s->table, .n_rows = n_rows, .row_tokens = 16, .fails = -1};
    LATHE_TRY(lathe__instance(s, &f->instance));
    lathe_status status = build_loss(f);
    for (; status == LATHE_OK && f->row_tokens < MAX_T; f->row_tokens *= 2) {
        lathe_error_clear();
        const lathe_status fits =
            f->t->state_bytes(f->instance.self, n_rows, f->row_tokens, &f->state_bytes);
        if (fits != LATHE_E_CONFIG)
            break;
    }
    if (status == LATHE_OK)
        status = told_bytes(f, &f->state_bytes);
    if (status != LATHE_OK) {
        stop_run(f);
        return status;
    }
    f->state = lathe__memory(s, f->state_bytes);
    if (from != NULL) {
        f->step = from->step;
        f->cursor = from->cursor;
        memcpy(f->state, from->state, (size_t)f->state_bytes);
    }
    return LATHE_OK;
}

/* One step. Returns what iterate() does, and finds its faults. */
static lathe_status step(fake_run *f)
{
    const lathe_run_api api = {.size = (uint32_t)sizeof api,
                               .n_rows = f->n_rows,
                               .row_tokens = f->row_tokens,
                               .prompts = prompts,
                               .generate = generate,
                               .reward = reward,
                               .logprobs = logprobs,
                               .accumulate = accumulate,
                               .figure = figure,
                               .random = random_word,
                               .stops = stops,
                               .outputs = outputs};
    f->hash = 0;
    f->n_accumulated = 0;
    f->heap = 0;
    memset(f->n_calls, 0, sizeof f->n_calls);
    lathe_error_clear();
    const int64_t before = lathe__heap();
    const lathe_status status = f->t->iterate(f->instance.self, &api, f, f->state);
    const int64_t taken = lathe__heap() - before - f->heap;
    const int is_silent = status != LATHE_OK && lathe_error_message()[0] == '\0';
    char message[512];
    (void)snprintf(message, sizeof message, "%s", lathe_error_message());
    spoil(f, &f->prompts, "tokens of prompts");
    spoil(f, &f->records, "records of prompts");
    spoil(f, &f->generated, "what it had generated");
    f->n_given = 0;
    if (f->wrong[0] != '\0')
        return lathe_error(LATHE_E_PLUGIN, "step %llu: it calls %s",
                           (unsigned long long)f->step + 1, f->wrong);
    if (is_silent)
        return lathe_error(LATHE_E_PLUGIN, "iterate() returns %d and records no message", status);
    if (status != LATHE_OK)
        return lathe_error(status, "%s", message);
    if (f->n_accumulated == 0 && !f->is_stopping)
        return lathe_error(LATHE_E_PLUGIN, "step %llu: iterate() accumulated no batch",
                           (unsigned long long)f->step + 1);
    if (taken != 0)
        return lathe_error(LATHE_E_PLUGIN,
                           "step %llu: iterate() took %lld blocks of memory; a step takes none",
                           (unsigned long long)f->step + 1, (long long)taken);
    LATHE_TRY(lathe__guards(f->s));
    f->step += f->n_accumulated > 0;
    return LATHE_OK;
}

/* The calls and the last state of N_STEPS steps that nothing interrupts. */
typedef struct history {
    uint64_t hash[N_STEPS];
    void *state;
    int64_t state_bytes;
} history;

/* Runs steps [f->step, N_STEPS) and compares them with `whole`, or writes them there. */
static lathe_status compare(fake_run *f, history *whole, int writes, const char *when)
{
    while (f->step < N_STEPS) {
        const uint64_t at = f->step;
        LATHE_TRY(step(f));
        if (writes)
            whole->hash[at] = f->hash;
        else if (whole->hash[at] != f->hash)
            return lathe_error(LATHE_E_PLUGIN, "step %llu is another one %s",
                               (unsigned long long)at + 1, when);
    }
    if (writes) {
        whole->state = f->state;
        whole->state_bytes = f->state_bytes;
    } else if (!lathe__same(whole->state, f->state, f->state_bytes)) {
        return lathe_error(LATHE_E_PLUGIN, "after %d steps the state has other bytes %s", N_STEPS,
                           when);
    }
    return LATHE_OK;
}

static lathe_status run_whole(lathe__subject *s, int32_t n_rows, history *out, int writes,
                              const char *when)
{
    fake_run f;
    LATHE_TRY(start_run(&f, s, n_rows, NULL));
    const lathe_status status = compare(&f, out, writes, when);
    stop_run(&f);
    return status;
}

/* ---- checks ---- */

static int iterates(const lathe__subject *s)
{
    const lathe_stage_v1 *t = s->table;
    return LATHE_HAS(t, iterate) && t->iterate != NULL;
}

#define NEEDS_ITERATE(s)                                                                           \
    if (!iterates(s))                                                                              \
    return lathe__skip(s, "it takes its batches from the data")

static lathe_status makes_its_steps(lathe__subject *s)
{
    static const int32_t rows[] = {4, 1, 3};
    history whole = {{0}, NULL, 0};
    NEEDS_ITERATE(s);
    for (int i = 0; i < 3; i++)
        LATHE_TRY(run_whole(s, rows[i], &whole, 1, ""));
    lathe__note(s, "%d steps, %lld bytes of state", N_STEPS, (long long)whole.state_bytes);
    return LATHE_OK;
}

static lathe_status same_steps_again(lathe__subject *s)
{
    history whole = {{0}, NULL, 0};
    NEEDS_ITERATE(s);
    LATHE_TRY(run_whole(s, 4, &whole, 1, ""));
    for (int i = 0; i < 2; i++)
        LATHE_TRY(run_whole(s, 4, &whole, 0, "in a second run"));
    return LATHE_OK;
}

/* Continues after each step with a new instance, from a copy of the state at another place. */
static lathe_status its_state_is_everything(lathe__subject *s)
{
    history whole = {{0}, NULL, 0};
    fake_run f, resumed;
    NEEDS_ITERATE(s);
    LATHE_TRY(run_whole(s, 4, &whole, 1, ""));
    for (int k = 1; k < N_STEPS; k++) {
        LATHE_TRY(start_run(&f, s, 4, NULL));
        lathe_status status = LATHE_OK;
        for (int i = 0; i < k && status == LATHE_OK; i++)
            status = step(&f);
        if (status == LATHE_OK)
            status = start_run(&resumed, s, 4, &f);
        if (f.state_bytes > 0 && status == LATHE_OK)
            memset(f.state, JUNK, (size_t)f.state_bytes);
        stop_run(&f);
        LATHE_TRY(status);
        status = compare(&resumed, &whole, 0, "in a run that was resumed from its state");
        stop_run(&resumed);
        LATHE_TRY(status);
    }
    return LATHE_OK;
}

static lathe_status runs_are_apart(lathe__subject *s)
{
    history whole = {{0}, NULL, 0};
    fake_run a, b;
    NEEDS_ITERATE(s);
    LATHE_TRY(run_whole(s, 4, &whole, 1, ""));
    LATHE_TRY(start_run(&a, s, 4, NULL));
    lathe_status status = start_run(&b, s, 3, NULL);
    if (status != LATHE_OK) {
        stop_run(&a);
        return status;
    }
    for (int i = 0; i < N_STEPS && status == LATHE_OK; i++) {
        status = step(&a);
        if (status == LATHE_OK && a.hash != whole.hash[i])
            status =
                lathe_error(LATHE_E_PLUGIN, "step %d is another one beside another run", i + 1);
        if (status == LATHE_OK)
            status = step(&b);
    }
    stop_run(&a);
    stop_run(&b);
    return status;
}

/* A run that ends while step k generates, and is resumed. */
static lathe_status stop_at(lathe__subject *s, history *whole, int k, int *out_stopped)
{
    fake_run f, resumed;
    LATHE_TRY(start_run(&f, s, 4, NULL));
    lathe_status status = LATHE_OK;
    for (int i = 0; i < k && status == LATHE_OK; i++)
        status = step(&f);
    const int64_t cursor = f.cursor;
    f.may_stop = 1;
    if (status == LATHE_OK)
        status = step(&f);
    *out_stopped = f.is_stopping && f.n_accumulated == 0;
    if (status != LATHE_OK)
        status = lathe_error_context(status, "when the run is to end");
    else if (f.is_stopping && f.n_accumulated > 0)
        status = lathe_error(LATHE_E_PLUGIN,
                             "step %d: it accumulates completions of which some are "
                             "missing, as the run is to end",
                             k + 1);
    f.cursor = cursor; /* the same prompts come again */
    if (status == LATHE_OK && *out_stopped)
        status = start_run(&resumed, s, 4, &f);
    stop_run(&f);
    LATHE_TRY(status);
    if (!*out_stopped)
        return LATHE_OK;
    status = compare(&resumed, whole, 0, "in a run that was stopped while it generated");
    stop_run(&resumed);
    return status;
}

static lathe_status stops_when_the_run_ends(lathe__subject *s)
{
    history whole = {{0}, NULL, 0};
    int n = 0;
    NEEDS_ITERATE(s);
    LATHE_TRY(run_whole(s, 4, &whole, 1, ""));
    for (int k = 0; k < N_STEPS; k++) {
        int stopped = 0;
        LATHE_TRY(stop_at(s, &whole, k, &stopped));
        n += stopped;
    }
    lathe__note(s, "%d of %d steps stopped", n, N_STEPS);
    return LATHE_OK;
}

/* Each function of the run fails at the first step that calls it. */
static lathe_status passes_errors_on(lathe__subject *s)
{
    NEEDS_ITERATE(s);
    for (int32_t k = 0; k < N_FUNCTIONS; k++) {
        fake_run f;
        LATHE_TRY(start_run(&f, s, 4, NULL));
        f.fails = k;
        lathe_status status = LATHE_OK;
        for (int i = 0; i < N_STEPS && status == LATHE_OK && f.n_calls[k] == 0; i++)
            status = step(&f);
        const int was_called = f.n_calls[k] > 0;
        stop_run(&f);
        if (!was_called && status != LATHE_OK)
            return status;
        if (was_called && status != LATHE_E_IO)
            return lathe_error(LATHE_E_PLUGIN,
                               "%s() of the run fails with code %d, and iterate() returns %d: %s",
                               names[k], LATHE_E_IO, status,
                               status != LATHE_OK ? lathe_error_message() : "all is well");
    }
    return LATHE_OK;
}

const lathe__check *lathe__checks_iterate(void)
{
    static const lathe__check checks[] = {
        {"makes_its_steps", makes_its_steps, 0},
        {"same_steps_again", same_steps_again, 0},
        {"its_state_is_everything", its_state_is_everything, 0},
        {"runs_are_apart", runs_are_apart, 0},
        {"stops_when_the_run_ends", stops_when_the_run_ends, 0},
        {"passes_errors_on", passes_errors_on, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
