/* Checks of training stages: their data, and a loss that has a derivative. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "check/harness/graph_exact.h"
#include "check/harness/tiny_graph.h"
#include "check/kinds/checks.h"
#include "check/kinds/stage_model.h"
#include "lathe/rng.h"
#include "lathe/stage.h"
#include "plug/row_shape.h"
#include "plug/stage_inputs.h"

enum { C = LATHE__STAGE_C, T = LATHE__STAGE_T, N_STORED = 3 };

typedef lathe__stage_model model;

/* The headline is one of the metrics or figures. */
static lathe_status check_headline(const lathe_stage_v1 *t, const lathe_stage_loss *loss)
{
    if (!LATHE_HAS(t, headline) || t->headline == NULL)
        return LATHE_OK;
    for (int32_t i = 0; i < loss->n_metrics; i++)
        if (loss->metrics[i].name != NULL && strcmp(loss->metrics[i].name, t->headline) == 0)
            return LATHE_OK;
    for (int32_t i = 0; i < t->n_figures; i++)
        if (strcmp(t->figures[i].name, t->headline) == 0)
            return LATHE_OK;
    return lathe_error(LATHE_E_PLUGIN,
                       "headline is \"%s\", which is neither a metric nor a figure of the stage",
                       t->headline);
}

/* Rows of a small batch: of two records whose answers are compared, else four. */
static int32_t few_rows(const lathe__subject *s)
{
    const lathe_row_shape *shape = lathe_row_shape_get(lathe_rows_of(s->table));
    return shape->compares ? 2 * shape->n_rows : 4;
}

static lathe_status ask_for_loss(lathe__subject *s, model *m, void *self, lathe_stage_loss *loss)
{
    LATHE_TRY(lathe_graph_create(&m->params, &m->g));
    LATHE_TRY(lathe__stage_model_ask(m, self, loss));
    if (m->n_stored > 0 && (m->asked & LATHE_NEEDS_TEACHER))
        return lathe_error(LATHE_E_PLUGIN, "it reads the teacher's model besides the stored one");
    return check_headline(s->table, loss);
}

/* Makes loss, derivative and plan of n_rows rows. n_stored: tokens per target of a stored teacher;
 * 0: none. */
static lathe_status build(lathe__subject *s, int32_t n_rows, int32_t n_stored, int32_t *out_metrics,
                          lathe_buffer *text)
{
    lathe_instance instance;
    LATHE_TRY(lathe__instance(s, &instance));
    model m = {.table = s->table, .n_rows = n_rows, .n_stored = n_stored};
    lathe_stage_loss *loss = lathe__memory(s, (int64_t)sizeof *loss);
    lathe_params_init(&m.params, LATHE_BF16);
    m.params.ops = s->ops;
    lathe_status status = ask_for_loss(s, &m, instance.self, loss);
    for (int32_t i = 0; status == LATHE_OK && i < loss->n_metrics; i++)
        lathe_graph_output(m.g, loss->metrics[i].sum);
    if (status == LATHE_OK)
        status = lathe__train_graph(s, m.g, loss->sum, text);
    *out_metrics = loss->n_metrics;
    lathe_graph_destroy(m.g);
    lathe_params_fini(&m.params);
    lathe_instance_fini(&instance);
    return status;
}

/* ---- the loss as a number ---- */

/* Computes the loss and its metrics as functions of the log-probabilities. */
typedef struct numbers {
    lathe_instance instance;
    model m;
    lathe_stage_loss *loss;
    lathe__exact exact;
} numbers;

static void numbers_fini(numbers *x)
{
    lathe_graph_destroy(x->m.g);
    lathe_params_fini(&x->m.params);
    lathe_instance_fini(&x->instance);
}

static lathe_status numbers_init(numbers *x, lathe__subject *s, int32_t n_rows)
{
    *x = (numbers){.m = {.table = s->table, .n_rows = n_rows, .plain = 1}};
    LATHE_TRY(lathe__instance(s, &x->instance));
    x->loss = lathe__memory(s, (int64_t)sizeof *x->loss);
    lathe_params_init(&x->m.params, LATHE_F32);
    x->m.params.ops = s->ops;
    lathe_status status = lathe_graph_create(&x->m.params, &x->m.g);
    if (status == LATHE_OK)
        status = lathe__stage_model_ask(&x->m, x->instance.self, x->loss);
    if (status == LATHE_OK)
        status = lathe__exact_init(&x->exact, s, x->m.g);
    if (status != LATHE_OK)
        numbers_fini(x);
    return status;
}

/* LATHE_NONE: nothing to fill. */
static void fill(numbers *x, lathe_val v, int64_t n, double value)
{
    for (int64_t i = 0; v != LATHE_NONE && i < n; i++)
        lathe__exact_data(&x->exact, v)[i] = value;
}

/* Records of a batch, or its rows where answers are not compared. */
static int64_t records_of(const numbers *x)
{
    const lathe_row_shape *shape = lathe_row_shape_get(lathe_rows_of(x->m.table));
    return x->m.n_rows / shape->n_rows;
}

/* Fills a value of each of `per` outputs of every token with numbers between -2 and -1. `shift` is
 * added to the policy's values of all rows; where answers are compared, it is added to those of the
 * first rows of the records and subtracted from those of the others. repeat: number of records
 * after which they repeat. v LATHE_NONE: nothing to fill. */
static void fill_values(numbers *x, lathe_val v, int which, int64_t per, double shift,
                        int32_t repeat)
{
    const int32_t n_rows = x->m.n_rows;
    const int64_t row_values = T * per;
    for (int64_t i = 0; v != LATHE_NONE && i < n_rows * row_values; i++) {
        const int64_t row = i / row_values, part = records_of(x);
        const int64_t kind = row / part, of_kind = row % part;
        const lathe_u32x4 w =
            lathe_rng_block(3 + (uint64_t)which + 10 * (uint64_t)kind, 0, 9,
                            (uint64_t)(of_kind % repeat * row_values + i % row_values));
        const double moved = which > LATHE_MODEL_POLICY && which <= LATHE_MODEL_TEACHER ? 0.0
                             : kind                                                     ? -shift
                                                                                        : shift;
        lathe__exact_data(&x->exact, v)[i] = -1.0 - lathe_uniform_f64(w.v[0], w.v[1]) + moved;
    }
}

/* Fills log-probabilities and the outputs of the stage's heads (fill_values), and computes the
 * loss. */
static lathe_status value_at(numbers *x, double shift, int32_t repeat, double *out)
{
    const int32_t n_rows = x->m.n_rows;
    for (int which = 0; which <= LATHE_MODEL_TEACHER; which++)
        fill_values(x, x->m.logp[which], which, 1, shift, repeat);
    for (int32_t i = 0; i < lathe__stage_model_heads(&x->m); i++)
        fill_values(x, x->m.heads[i], 3 + i, x->m.table->heads[i].n_outputs, shift, repeat);
    for (int which = 0; which <= LATHE_MODEL_TEACHER; which++)
        fill(x, x->m.hidden[which], (int64_t)n_rows * T * C, 0.1);
    fill(x, x->m.last_mask, (int64_t)n_rows * T, 0.0);
    for (int32_t r = 0; x->m.last_mask != LATHE_NONE && r < n_rows; r++)
        lathe__exact_data(&x->exact, x->m.last_mask)[r * T + T - 1] = 1.0;
    fill(x, x->m.record_mask, records_of(x), 1.0);
    fill(x, x->m.target_mask, (int64_t)n_rows * T, 1.0);
    for (int which = 0; which <= LATHE_MODEL_TEACHER; which++)
        fill(x, x->m.entropy[which], (int64_t)n_rows * T, 0.7);
    for (int which = 0; which <= LATHE_MODEL_TEACHER; which++)
        fill(x, x->m.divergence[which], (int64_t)n_rows * T, 0.3);
    for (int32_t i = 0; i < x->m.n_inputs; i++)
        fill(x, x->m.inputs[i], lathe__stage_model_input_size(&x->m, i), 1.0);
    LATHE_TRY(lathe__exact_run(&x->exact));
    *out = lathe__exact_data(&x->exact, x->loss->sum)[0];
    for (int32_t i = 0; i < x->loss->n_metrics; i++)
        if (!isfinite(lathe__exact_data(&x->exact, x->loss->metrics[i].sum)[0]))
            return lathe_error(LATHE_E_NUMERIC, "metric %s is %g", x->loss->metrics[i].name,
                               lathe__exact_data(&x->exact, x->loss->metrics[i].sum)[0]);
    return isfinite(*out) ? LATHE_OK
                          : lathe_error(LATHE_E_NUMERIC,
                                        "the loss is %g for log-probabilities "
                                        "between -2 and -1",
                                        *out);
}

/* A stage that iterates may compare the policy with itself, as PPO does in its first update: the
 * loss then has a derivative, which loss_trains checks, and the same value for all
 * log-probabilities. */
static int compares_with_itself(const numbers *x, double a, double b)
{
    return LATHE_HAS(x->m.table, iterate) && a == b;
}

/* The loss of every row and of every token must decrease when the model predicts its targets
 * better. */
static lathe_status falls_as_targets_grow_likelier(lathe__subject *s)
{
    numbers x;
    double at[3];
    LATHE_TRY(numbers_init(&x, s, few_rows(s)));
    lathe_status status = LATHE_OK;
    for (int i = 0; i < 3 && status == LATHE_OK; i++)
        status = value_at(&x, 0.01 * (i - 1), 4, &at[i]);
    if (status == LATHE_OK && compares_with_itself(&x, at[0], at[2]))
        status = lathe__skip(s, "it compares the policy with itself");
    else if (status == LATHE_OK && !(at[0] > at[1] && at[1] > at[2]))
        status = lathe_error(
            LATHE_E_NUMERIC, "the loss goes from %.9g over %.9g to %.9g as %s grow likelier", at[0],
            at[1], at[2],
            x.m.record_mask != LATHE_NONE ? "the first rows of the records" : "targets");
    numbers_fini(&x);
    return status;
}

/* Rows that come twice count twice: the stage must not divide by the count,
 * because the core does. */
static lathe_status is_a_sum_over_rows(lathe__subject *s)
{
    numbers few, many;
    double once = 0, twice = 0;
    LATHE_TRY(numbers_init(&few, s, few_rows(s)));
    lathe_status status = numbers_init(&many, s, 2 * few_rows(s));
    if (status != LATHE_OK) {
        numbers_fini(&few);
        return status;
    }
    const int32_t repeat = (int32_t)records_of(&few);
    status = value_at(&few, 0.0, repeat, &once);
    if (status == LATHE_OK)
        status = value_at(&many, 0.0, repeat, &twice);
    if (status == LATHE_OK && !(fabs(twice - 2 * once) <= 1e-6 * fabs(twice) + 1e-9))
        status = lathe_error(LATHE_E_NUMERIC,
                             "%d rows have a loss of %.9g, and the same rows twice of %.9g; "
                             "expected a sum over the rows",
                             few.m.n_rows, once, twice);
    numbers_fini(&few);
    numbers_fini(&many);
    return status;
}

/* The log-probability of every target must influence the loss; or the head's output of every row,
 * at its last token if the loss asks for the last tokens. */
static lathe_status every_row_counts(lathe__subject *s)
{
    numbers x;
    double base = 0, moved;
    LATHE_TRY(numbers_init(&x, s, few_rows(s)));
    lathe_status status = value_at(&x, 0.0, 4, &base);
    const int by_row = x.m.logp[LATHE_MODEL_POLICY] == LATHE_NONE && x.m.last_mask != LATHE_NONE;
    double *logp = lathe__stage_model_reading(&x.m) != LATHE_NONE
                       ? lathe__exact_data(&x.exact, lathe__stage_model_reading(&x.m))
                       : NULL;
    if (status == LATHE_OK && !logp)
        status = lathe__skip(s, "it reads hidden states alone");
    for (int64_t i = by_row ? T - 1 : 0; logp && i < x.m.n_rows * T && status == LATHE_OK;
         i += by_row ? T : 1) {
        const double keep = logp[i];
        logp[i] = keep + 0.5;
        status = lathe__exact_run(&x.exact);
        moved = lathe__exact_data(&x.exact, x.loss->sum)[0];
        logp[i] = keep;
        if (status == LATHE_OK && compares_with_itself(&x, moved, base)) {
            status = lathe__skip(s, "it compares the policy with itself");
            break;
        }
        if (status == LATHE_OK && fabs(moved - base) <= 1e-9)
            status = lathe_error(LATHE_E_NUMERIC, "token %d of row %d does not move the loss",
                                 (int)(i % T), (int)(i / T));
    }
    numbers_fini(&x);
    return status;
}

/* Computes the loss with the second of two records masked, and its rows changed by `shift`. */
static lathe_status masked_value(numbers *x, double shift, double *out)
{
    const int64_t n = records_of(x);
    LATHE_TRY(value_at(x, 0.0, 4, out));
    lathe__exact_data(&x->exact, x->m.record_mask)[1] = 0.0;
    for (int64_t k = 0; k < x->m.n_rows / n; k++)
        for (int64_t i = 0; i < T; i++)
            lathe__exact_data(&x->exact, lathe__stage_model_reading(&x->m))[(k * n + 1) * T + i] +=
                k ? -shift : shift;
    LATHE_TRY(lathe__exact_run(&x->exact));
    *out = lathe__exact_data(&x->exact, x->loss->sum)[0];
    for (int32_t i = 0; i < x->loss->n_metrics; i++)
        *out += lathe__exact_data(&x->exact, x->loss->metrics[i].sum)[0] * (i + 2);
    return LATHE_OK;
}

/* A masked record must change neither the loss nor a metric. */
static lathe_status padding_pairs_count_for_nothing(lathe__subject *s)
{
    numbers x;
    double at = 0, moved = 0;
    LATHE_TRY(numbers_init(&x, s, few_rows(s)));
    lathe_status status = LATHE_OK;
    if (x.m.record_mask == LATHE_NONE || lathe__stage_model_reading(&x.m) == LATHE_NONE)
        status = lathe__skip(s, "its rows have no mask of records");
    if (status == LATHE_OK)
        status = masked_value(&x, 0.0, &at);
    if (status == LATHE_OK)
        status = masked_value(&x, 0.75, &moved);
    if (status == LATHE_OK && fabs(moved - at) > 1e-9)
        status = lathe_error(LATHE_E_NUMERIC,
                             "a record whose record_mask is 0 moves the loss or a metric by %.3g",
                             moved - at);
    numbers_fini(&x);
    return status;
}

/* Two instances used in turn must build the same graphs as each alone. */
static lathe_status instances_are_apart(lathe__subject *s)
{
    numbers a, b, again;
    double first = 0, second = 0, other = 0;
    LATHE_TRY(numbers_init(&a, s, few_rows(s)));
    lathe_status status = value_at(&a, 0.0, 4, &first);
    if (status == LATHE_OK)
        status = numbers_init(&b, s, 2 * few_rows(s));
    if (status == LATHE_OK) {
        status = value_at(&b, 0.1, 8, &other);
        if (status == LATHE_OK)
            status = numbers_init(&again, s, few_rows(s));
        if (status == LATHE_OK) {
            status = value_at(&again, 0.0, 4, &second);
            numbers_fini(&again);
        }
        numbers_fini(&b);
    }
    if (status == LATHE_OK && !(first == second || (isnan(first) && isnan(second))))
        status = lathe_error(LATHE_E_PLUGIN, "another instance changes the loss from %.9g to %.9g",
                             first, second);
    numbers_fini(&a);
    return status;
}

static lathe_status declares_its_data(lathe__subject *s)
{
    const lathe_stage_v1 *t = s->table;
    int32_t required = 0;
    if (t->columns == NULL || t->n_columns < 1)
        return lathe_error(LATHE_E_PLUGIN, "it names no column of its dataset");
    for (int32_t i = 0; i < t->n_columns; i++) {
        if (t->columns[i].required != 0 && t->columns[i].required != 1)
            return lathe_error(LATHE_E_PLUGIN, "column %d has required = %d, expected 0 or 1", i,
                               t->columns[i].required);
        for (int32_t k = 0; k < i && t->columns[i].name != NULL; k++)
            if (strcmp(t->columns[k].name, t->columns[i].name) == 0)
                return lathe_error(LATHE_E_PLUGIN, "two columns are called %s", t->columns[i].name);
        if (t->columns[i].name == NULL || t->columns[i].name[0] == '\0' ||
            t->columns[i].doc == NULL)
            return lathe_error(LATHE_E_PLUGIN, "column %d has no name or no doc", i);
        required += t->columns[i].required;
    }
    if (required == 0)
        return lathe_error(LATHE_E_PLUGIN, "no column is required");
    if (!lathe_rows_valid(lathe_rows_of(t)))
        return lathe_error(LATHE_E_PLUGIN, "rows is %d, n_answers is %d", t->rows, t->n_answers);
    if (t->needs & ~(uint32_t)(LATHE_NEEDS_REFERENCE | LATHE_NEEDS_TEACHER | LATHE_NEEDS_REWARD))
        return lathe_error(LATHE_E_PLUGIN, "needs has unknown bits: 0x%x", t->needs);
    return LATHE_OK;
}

/* An instance may narrow what its table declares, never widen it, and must answer alike each time,
 * because the core asks more than once. */
static lathe_status settings_narrow_the_table(lathe__subject *s)
{
    const lathe_stage_v1 *t = s->table;
    lathe_instance instance;
    LATHE_TRY(lathe__instance(s, &instance));
    lathe_status status = LATHE_OK;
    const uint32_t needs = LATHE_HAS(t, needs_of) ? t->needs_of(instance.self) : 0u;
    if (needs & ~t->needs)
        status = lathe_error(LATHE_E_PLUGIN, "needs_of() is 0x%x, and the table's needs 0x%x",
                             needs, t->needs);
    else if (LATHE_HAS(t, needs_of) && t->needs_of(instance.self) != needs)
        status = lathe_error(LATHE_E_PLUGIN, "needs_of() answers otherwise the second time");
    const uint32_t heads = LATHE_HAS(t, heads) ? (1u << t->n_heads) - 1u : 0u;
    if (status == LATHE_OK && LATHE_HAS(t, heads_of) && (t->heads_of(instance.self) & ~heads))
        status = lathe_error(LATHE_E_PLUGIN, "heads_of() is 0x%x, and the table has %d heads",
                             t->heads_of(instance.self), LATHE_HAS(t, heads) ? t->n_heads : 0);
    lathe_objective objective = {.size = (uint32_t)sizeof objective};
    if (status == LATHE_OK && LATHE_HAS(t, objective)) {
        t->objective(instance.self, &objective);
        if (objective.size != sizeof objective || objective.kind < 0 ||
            objective.kind >= LATHE_N_OBJECTIVES)
            status = lathe_error(LATHE_E_PLUGIN, "objective() gives kind %d and size %u",
                                 objective.kind, objective.size);
    }
    lathe_instance_fini(&instance);
    return status;
}

static lathe_status loss_trains(lathe__subject *s)
{
    const lathe_row_shape *shape = lathe_row_shape_get(lathe_rows_of(s->table));
    int32_t metrics = 0;
    /* records that mix need another one in the batch */
    for (int i = shape->mixes; i < 3; i++) {
        lathe_buffer text = LATHE_BUFFER_INIT;
        const lathe_status status = build(s, few_rows(s) / 2 << i, 0, &metrics, &text);
        lathe_buffer_fini(&text);
        LATHE_TRY(status);
    }
    lathe__note(s, "%d metrics beside the loss", metrics);
    return LATHE_OK;
}

/* A stage that takes a stored teacher has a loss without the teacher's model, which trains, and the
 * same metrics. */
static lathe_status learns_from_a_stored_teacher(lathe__subject *s)
{
    const lathe_stage_v1 *t = s->table;
    int32_t metrics = 0, stored = 0;
    if (!lathe_stage_takes_stored(t))
        return lathe__skip(s, "it takes no stored teacher");
    lathe_buffer text[2] = {LATHE_BUFFER_INIT, LATHE_BUFFER_INIT};
    lathe_status status = build(s, few_rows(s), 0, &metrics, &text[0]);
    if (status == LATHE_OK)
        status = build(s, few_rows(s), N_STORED, &stored, &text[1]);
    if (status == LATHE_OK && stored != metrics)
        status = lathe_error(LATHE_E_PLUGIN, "%d metrics, and %d with a stored teacher", metrics,
                             stored);
    lathe_buffer_fini(&text[0]);
    lathe_buffer_fini(&text[1]);
    return status;
}

static lathe_status builds_the_same_again(lathe__subject *s)
{
    lathe_buffer text[2] = {LATHE_BUFFER_INIT, LATHE_BUFFER_INIT};
    int32_t metrics;
    lathe_status status = build(s, few_rows(s), 0, &metrics, &text[0]);
    if (status == LATHE_OK)
        status = build(s, few_rows(s), 0, &metrics, &text[1]);
    if (status == LATHE_OK && strcmp(text[0].data, text[1].data) != 0)
        status = lathe_error(LATHE_E_PLUGIN, "it builds another graph the second time");
    lathe_buffer_fini(&text[0]);
    lathe_buffer_fini(&text[1]);
    return status;
}

const lathe__check *lathe__checks_stage(void)
{
    static const lathe__check checks[] = {
        {"declares_its_data", declares_its_data, 0},
        {"settings_narrow_the_table", settings_narrow_the_table, 0},
        {"loss_trains", loss_trains, 0},
        {"learns_from_a_stored_teacher", learns_from_a_stored_teacher, 0},
        {"builds_the_same_again", builds_the_same_again, 0},
        {"falls_as_targets_grow_likelier", falls_as_targets_grow_likelier, 0},
        {"is_a_sum_over_rows", is_a_sum_over_rows, 0},
        {"every_row_counts", every_row_counts, 0},
        {"padding_pairs_count_for_nothing", padding_pairs_count_for_nothing, 0},
        {"instances_are_apart", instances_are_apart, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
