/* The checks of ops that keep a state while text is generated: rows that come in parts give what
 * whole rows give, and states are touched by their own rows alone. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "check/kinds/checks.h"
#include "check/kinds/op_trial.h"

/* A test whose rows are divided into parts. */
typedef struct divided {
    lathe__subject *s;
    const lathe_plugin_op *op;
    lathe__op_trial whole;
    lathe_instance one; /* with one token to a row */
    lathe_desc state;   /* of one sequence */
    int64_t n_rows, n_tokens, n_slots;
} divided;

/* Tokens of a row that a tensor has entries for: all, or none if it has one entry for a row. */
static int64_t entries(const divided *d, const lathe_desc *of_whole)
{
    const int64_t each = of_whole->rank > 0 ? of_whole->dims[0] / d->n_rows : 0;
    return each % d->n_tokens == 0 ? each / d->n_tokens : 0;
}

/* Row r of a part is token `at[r]` of row `row[r]`. */
typedef struct part {
    int64_t n;
    const int64_t *row, *at;
    const double *slots, *states; /* [n], [n_slots, state] */
} part;

static double *gather(const divided *d, const part *q, const lathe_desc *of_whole,
                      const double *from, lathe_desc *desc)
{
    const int64_t per_token = entries(d, of_whole);
    const int64_t each = lathe_desc_count(of_whole) / of_whole->dims[0];
    const int64_t n = per_token > 0 ? per_token : of_whole->dims[0] / d->n_rows;
    *desc = *of_whole;
    desc->dims[0] = n * q->n;
    double *out = lathe__memory(d->s, 8 * lathe_desc_count(desc));
    for (int64_t r = 0; r < q->n; r++) {
        const int64_t first =
            per_token > 0 ? (q->row[r] * d->n_tokens + q->at[r]) * n : q->row[r] * n;
        memcpy(out + r * n * each, from + first * each, 8 * (size_t)(n * each));
    }
    return out;
}

/* The problem of a part. */
static lathe_status part_init(const divided *d, const part *q, lathe__op_trial *t)
{
    const lathe_op_v1 *table = d->op->table;
    const int64_t n_states = d->n_slots * lathe_desc_count(&d->state);
    *t = d->whole;
    t->self = t->p.self = d->one.self;
    t->has_states = 1;
    for (int32_t i = 0; i < table->n_in; i++)
        if (t->batched_in[i] && t->x[i] != NULL)
            t->x[i] = gather(d, q, &d->whole.p.in[i], d->whole.x[i], &t->p.in[i]);
    t->p.in[table->n_in] = lathe_desc_1d(LATHE_I32, q->n);
    t->x[table->n_in] = lathe__memory(d->s, 8 * q->n);
    memcpy(t->x[table->n_in], q->slots, 8 * (size_t)q->n);
    lathe_desc *pool = &t->p.in[table->n_in + 1];
    *pool = d->state;
    for (int32_t i = pool->rank; i > 0; i--)
        pool->dims[i] = pool->dims[i - 1];
    pool->dims[0] = d->n_slots;
    pool->rank++;
    t->x[table->n_in + 1] = lathe__memory(d->s, 8 * n_states);
    for (int64_t i = 0; i < n_states; i++)
        t->x[table->n_in + 1][i] = lathe__op_round(q->states[i], d->state.dtype);
    t->p.n_in = table->n_in + 2;
    t->p.n_out = table->n_out + 1;
    LATHE_TRY(d->op->info.infer(&t->p));
    lathe__op_trial_exact(t);
    for (int32_t k = 0; k < table->n_out; k++) /* a part may have small sums of large terms */
        t->largest[k] = fmax(t->largest[k], d->whole.largest[k]);
    return LATHE_OK;
}

/* Runs a part with the kernel that a run would choose. out: bytes of the outputs. */
static lathe_status part_run(const divided *d, const part *q, lathe__op_trial *t,
                             unsigned char *out[LATHE_OP_MAX_OUT])
{
    double worst = 0.0;
    int32_t best = -1;
    LATHE_TRY(part_init(d, q, t));
    LATHE_TRY(lathe__op_trial_best(t, &best));
    if (best < 0)
        return d->s->device != NULL
                   ? LATHE__SKIP
                   : lathe_error(LATHE_E_PLUGIN, "no kernel takes rows that continue sequences");
    for (int32_t k = 0; k < t->p.n_out; k++)
        out[k] = t->want[k] != NULL ? lathe__memory(d->s, lathe_desc_bytes(&t->p.out[k])) : NULL;
    return lathe__op_trial_run(t, best, &(lathe__op_mode){.kept = out}, &worst);
}

/* ---- whole rows and parts ---- */

/* Sequences begin with zeros; slot 0 is nobody's, and full of sevens. */
static double *first_states(const divided *d)
{
    const int64_t each = lathe_desc_count(&d->state);
    double *states = lathe__memory(d->s, 8 * d->n_slots * each);
    for (int64_t i = 0; i < each; i++)
        states[i] = 7.0;
    return states;
}

static int64_t slot_of(const divided *d, int64_t row)
{
    return d->n_rows - row; /* not in the order of rows, and never 0 */
}

/* In double precision, with states that are not rounded, tokens one by one give the whole row. */
static lathe_status reference_continues(const divided *d)
{
    const lathe_op_v1 *table = d->op->table;
    double *states = first_states(d);
    const int64_t bytes = 8 * d->n_slots * lathe_desc_count(&d->state);
    int64_t *row = lathe__memory(d->s, 8 * d->n_rows), *at = lathe__memory(d->s, 8 * d->n_rows);
    double *slots = lathe__memory(d->s, 8 * d->n_rows);
    for (int64_t token = 0; token < d->n_tokens; token++) {
        lathe__op_trial t;
        for (int64_t r = 0; r < d->n_rows; r++) {
            row[r] = r;
            at[r] = token;
            slots[r] = (double)slot_of(d, r);
        }
        LATHE_TRY(part_init(d, &(part){d->n_rows, row, at, slots, states}, &t));
        memcpy(t.x[table->n_in + 1], states, (size_t)bytes);
        lathe__op_trial_exact(&t);
        memcpy(states, t.want[table->n_out], (size_t)bytes);
        for (int32_t k = 0; k < table->n_out; k++) {
            const int64_t n = t.want[k] != NULL ? entries(d, &d->whole.p.out[k]) : 0;
            const int64_t each =
                n > 0 ? lathe_desc_count(&t.p.out[k]) / d->n_rows : 0; /* numbers of a token */
            for (int64_t i = 0; d->whole.batched_out[k] && i < d->n_rows * each; i++) {
                const double want =
                    d->whole.want[k][(i / each * d->n_tokens + token) * each + i % each];
                if (!(fabs(t.want[k][i] - want) <= 1e-9 * fmax(1.0, d->whole.largest[k])))
                    return lathe_error(LATHE_E_NUMERIC,
                                       "exact(): token %lld of row %lld, continued, gives %s %.9g, "
                                       "in its whole row %.9g",
                                       (long long)token, (long long)(i / each),
                                       table->outputs[k].name, t.want[k][i], want);
            }
        }
    }
    for (int64_t i = 0; i < lathe_desc_count(&d->state); i++)
        if (states[i] != 7.0)
            return lathe_error(LATHE_E_CORRUPT, "exact() changes the states of another sequence");
    return LATHE_OK;
}

/* All tokens of all rows in one call, those of a row one after the other; and each token in a call
 * of its own. Padding rows stand between them. */
static lathe_status kernel_continues(const divided *d)
{
    const lathe_op_v1 *table = d->op->table;
    const int64_t n = 2 * d->n_rows * d->n_tokens, each = lathe_desc_count(&d->state);
    int64_t *row = lathe__memory(d->s, 8 * n), *at = lathe__memory(d->s, 8 * n);
    double *slots = lathe__memory(d->s, 8 * n), *states = first_states(d);
    unsigned char *all[LATHE_OP_MAX_OUT], *one[LATHE_OP_MAX_OUT];
    lathe__op_trial t, alone;
    for (int64_t r = 0; r < n; r++) {
        row[r] = r / 2 / d->n_tokens;
        at[r] = r / 2 % d->n_tokens;
        slots[r] = r % 2 ? -1.0 : (double)slot_of(d, row[r]);
    }
    LATHE_TRY(part_run(d, &(part){n, row, at, slots, states}, &t, all));
    for (int64_t r = 0; r < n; r += 2) {
        LATHE_TRY(part_run(d, &(part){1, row + r, at + r, slots + r, states}, &alone, one));
        for (int32_t k = 0; k < table->n_out; k++) {
            const int64_t bytes = t.want[k] != NULL ? lathe_desc_bytes(&alone.p.out[k]) : 0;
            if (bytes > 0 && t.batched_out[k] && !lathe__same(all[k] + r * bytes, one[k], bytes))
                return lathe_error(
                    LATHE_E_NUMERIC,
                    "output %s of token %lld of row %lld has other bits in a call of "
                    "its own than among %lld rows",
                    table->outputs[k].name, (long long)at[r], (long long)row[r], (long long)n);
        }
        for (int64_t i = 0; i < d->n_slots * each; i++)
            states[i] = lathe__op_load(one[table->n_out], d->state.dtype, i);
    }
    return lathe__same(all[table->n_out], one[table->n_out],
                       lathe_desc_bytes(&t.p.out[table->n_out]))
               ? LATHE_OK
               : lathe_error(LATHE_E_NUMERIC,
                             "the states have other bits after single calls than after one call");
}

/* ---- every test with rows ---- */

static lathe_status one_token_instance(divided *d, const lathe_op_test *test)
{
    lathe_toml_node *table = NULL;
    const lathe_value *values;
    char text[128];
    const char *lines = test->attributes != NULL ? test->attributes : "";
    (void)snprintf(text, sizeof text, "%.100s = 1", d->op->table->state->tokens);
    LATHE_TRY(lathe_toml_load("check", lines, (int64_t)strlen(lines), &d->s->arena, &table));
    LATHE_TRY(lathe__values_of(d->s->plugin, table, text, &d->s->arena, &values));
    return lathe_instance_init(&d->one, d->s->component, values);
}

static lathe_status continue_both(divided *d, const lathe_op_test *test)
{
    LATHE_TRY(one_token_instance(d, test));
    LATHE_TRY(reference_continues(d));
    return kernel_continues(d);
}

static lathe_status check_divided(divided *d, const lathe_op_test *test, int32_t dtype,
                                  int32_t *io_n)
{
    lathe_instance instance;
    LATHE_TRY(lathe__instance_with(d->s, test->attributes, &instance));
    lathe_status status = lathe__op_trial_init(d->s, d->op, instance.self, test, dtype, &d->whole);
    const lathe_status has =
        status == LATHE_OK ? d->op->info.state(&d->whole.p, &d->state) : LATHE_OK;
    if (has == LATHE_E_PLUGIN)
        status = has;
    else if (has != LATHE_OK) { /* such as rows of documents, which nobody continues */
        lathe_instance_fini(&instance);
        lathe_error_clear();
        return LATHE_OK;
    }
    d->n_rows = d->whole.batch;
    d->n_tokens = test->rows;
    d->n_slots = d->n_rows + 1;
    if (status == LATHE_OK)
        status = continue_both(d, test);
    lathe_instance_fini(&d->one);
    lathe_instance_fini(&instance);
    *io_n += status == LATHE_OK;
    return status == LATHE_OK || status == LATHE__SKIP
               ? status
               : lathe_error_context(status, "(%s) in %s, token by token", test->in,
                                     lathe_dtype_name(dtype));
}

static lathe_status parts_equal_the_whole(lathe__subject *s)
{
    static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    const lathe_op_v1 *table = s->table;
    int32_t n = 0;
    divided d = {.s = s};
    if (!LATHE_HAS(table, state))
        return lathe__skip(s, "it keeps no state");
    LATHE_TRY(lathe_plugin_op_add(s->plugin, &d.op));
    for (int32_t i = 0; i < table->n_tests; i++)
        for (int k = 0; k < 3; k++)
            if (table->tests[i].rows > 0)
                LATHE_TRY(check_divided(&d, &table->tests[i], dtypes[k], &n));
    if (n == 0)
        return lathe_error(LATHE_E_PLUGIN, "it keeps a state, and no test has rows that have one");
    lathe__note(s, "%d problems", n);
    return LATHE_OK;
}

const lathe__check *lathe__checks_op_state(void)
{
    static const lathe__check checks[] = {
        {"parts_equal_the_whole", parts_equal_the_whole, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
