/* The checks of op plugins: shapes, kernels against the plugin's reference in double precision,
 * the derivative against central differences, and that bits depend on nothing but the inputs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "check/harness/graph_exact.h"
#include "check/kinds/checks.h"
#include "check/kinds/op_trial.h"
#include "graph/passes/passes.h"

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
enum { N_DTYPES = 3 };

static int is_float(int32_t dtype)
{
    return dtype == LATHE_F32 || dtype == LATHE_BF16 || dtype == LATHE_F16;
}

/* ---- every test, in every dtype, forward and backward ---- */

typedef lathe_status (*on_trial)(lathe__op_trial *t, void *arg);

static lathe_status at_test(const lathe_op_test *test, int32_t dtype, int32_t is_backward,
                            lathe_status status)
{
    return status == LATHE_OK || status == LATHE__SKIP
               ? status
               : lathe_error_context(
                     status, "%s(%s) -> %s%s%s in %s", is_backward ? "backward of " : "", test->in,
                     test->out, test->attributes != NULL ? " with " : "",
                     test->attributes != NULL ? test->attributes : "", lathe_dtype_name(dtype));
}

static lathe_status with_trial(lathe__subject *s, const lathe_plugin_op *op,
                               const lathe_op_test *test, int32_t dtype, on_trial each, void *arg)
{
    lathe_instance instance;
    lathe__op_trial t;
    LATHE_TRY(lathe__instance_with(s, test->attributes, &instance));
    lathe_status status = lathe__op_trial_init(s, op, instance.self, test, dtype, &t);
    if (status == LATHE_OK && (t.uses_c || dtype == LATHE_F32))
        status = at_test(test, dtype, 0, each(&t, arg));
    else
        status = at_test(test, dtype, 0, status);
    if (status == LATHE_OK && op->table->backward != NULL && (t.uses_c || dtype == LATHE_F32)) {
        status = lathe__op_trial_turn(&t, 0, 0);
        if (status == LATHE_OK)
            status = each(&t, arg);
        status = at_test(test, dtype, 1, status);
    }
    lathe_instance_fini(&instance);
    return status;
}

static lathe_status each_trial(lathe__subject *s, on_trial each, void *arg)
{
    const lathe_plugin_op *op;
    LATHE_TRY(lathe_plugin_op_add(s->plugin, &op));
    for (int32_t i = 0; i < op->table->n_tests; i++)
        for (int32_t d = 0; d < N_DTYPES; d++)
            LATHE_TRY(with_trial(s, op, &op->table->tests[i], dtypes[d], each, arg));
    return LATHE_OK;
}

/* Calls `one` with each kernel that takes the trial. */
typedef struct kernels {
    lathe_status (*one)(lathe__op_trial *t, int32_t kernel, struct kernels *all);
    double worst;
    int32_t n;
} kernels;

static lathe_status each_kernel(lathe__op_trial *t, void *arg)
{
    kernels *all = arg;
    for (int32_t i = 0; i < lathe__op_trial_kernels(t); i++) {
        int32_t score = 0;
        LATHE_TRY(lathe__op_trial_score(t, i, &score));
        if (score <= LATHE_SCORE_NO)
            continue;
        all->n++;
        LATHE_TRY(all->one(t, i, all));
    }
    return LATHE_OK;
}

static lathe_status none_taken(lathe__subject *s)
{
    return s->device != NULL ? lathe__skip(s, "no kernel is for this device")
                             : lathe_error(LATHE_E_PLUGIN, "no kernel takes any test");
}

/* ---- declarations ---- */

static lathe_status no_name_of_the_core(lathe__subject *s)
{
    const lathe_plugin_op *op;
    return lathe_plugin_op_add(s->plugin, &op);
}

static lathe_status shapes_one(lathe__op_trial *t, void *arg)
{
    (void)t;
    (void)arg; /* lathe__op_trial_init has compared them */
    return LATHE_OK;
}

static lathe_status shapes_are_those_of_its_tests(lathe__subject *s)
{
    return each_trial(s, shapes_one, NULL);
}

/* Every attribute, optional input and batched tensor is in a test. */
static lathe_status tests_cover_the_op(lathe__subject *s)
{
    const lathe_op_v1 *table = s->table;
    for (int32_t f = 0; f < s->plugin->n_fields; f++) {
        int found = 0;
        for (int32_t i = 0; i < table->n_tests && !found; i++)
            found = table->tests[i].attributes != NULL &&
                    strstr(table->tests[i].attributes, s->plugin->fields[f].key) != NULL;
        if (!found)
            return lathe_error(LATHE_E_PLUGIN, "no test sets the attribute %s",
                               s->plugin->fields[f].key);
    }
    int32_t has_batch = 0, batched = 0;
    for (int32_t i = 0; i < table->n_in; i++)
        batched |= table->inputs[i].flags & LATHE_TENSOR_BATCHED;
    for (int32_t i = 0; i < table->n_tests; i++)
        has_batch |= table->tests[i].rows > 0;
    return batched && !has_batch
               ? lathe_error(LATHE_E_PLUGIN,
                             "it has batched inputs, and no test has a batch (rows)")
               : LATHE_OK;
}

/* ---- kernels ---- */

static lathe_status agrees_one(lathe__op_trial *t, int32_t kernel, kernels *all)
{
    return lathe__op_trial_run(t, kernel, &(lathe__op_mode){0}, &all->worst);
}

static lathe_status kernels_agree_with_the_reference(lathe__subject *s)
{
    kernels all = {.one = agrees_one};
    LATHE_TRY(each_trial(s, each_kernel, &all));
    if (all.n == 0)
        return none_taken(s);
    lathe__note(s, "%d runs, worst at %.0f %% of the tolerance", all.n, 100 * all.worst);
    return LATHE_OK;
}

/* The graph of a model in any compute dtype needs the op in it. */
static lathe_status dtype_one(lathe__op_trial *t, void *arg)
{
    int32_t best = -1;
    (void)arg;
    LATHE_TRY(lathe__op_trial_best(t, &best));
    return best >= 0 || t->s->device != NULL
               ? LATHE_OK
               : lathe_error(LATHE_E_PLUGIN, "no kernel for host memory takes it");
}

static lathe_status a_kernel_takes_every_dtype(lathe__subject *s)
{
    return each_trial(s, dtype_one, NULL);
}

static lathe_status adds_one(lathe__op_trial *t, int32_t kernel, kernels *all)
{
    const lathe_op_info *info = t->is_backward ? &t->op->backward : &t->op->info;
    uint32_t present = 0;
    for (int32_t k = 0; k < t->p.n_out; k++)
        present |= t->want[k] != NULL ? 1u << k : 0u;
    if (!info->accumulates) {
        all->n--;
        return LATHE_OK;
    }
    const uint32_t masks[] = {present, present & 0x55555555u, present & 0xaaaaaaaau};
    for (int i = 0; i < 3; i++)
        if (masks[i] != 0)
            LATHE_TRY(lathe__op_trial_run(t, kernel, &(lathe__op_mode){.accumulate = masks[i]},
                                          &all->worst));
    return LATHE_OK;
}

static lathe_status adds_where_it_is_asked(lathe__subject *s)
{
    kernels all = {.one = adds_one};
    LATHE_TRY(each_trial(s, each_kernel, &all));
    return all.n > 0 ? LATHE_OK : lathe__skip(s, "its kernels do not add");
}

static lathe_status in_place_one(lathe__op_trial *t, int32_t kernel, kernels *all)
{
    all->n--;
    for (int32_t i = 0; i < t->op->table->n_in && !t->is_backward; i++) {
        const lathe_desc *x = &t->p.in[i], *y = &t->p.out[0];
        if (!(t->op->info.inplace >> i & 1u) || x->dtype == LATHE_ABSENT)
            continue;
        if (x->dtype != y->dtype || lathe_desc_count(x) != lathe_desc_count(y))
            return lathe_error(LATHE_E_PLUGIN,
                               "input %s may lend its memory to output 0, which has another shape "
                               "or dtype",
                               t->op->table->inputs[i].name);
        all->n++;
        LATHE_TRY(
            lathe__op_trial_run(t, kernel, &(lathe__op_mode){.in_place = 1 + i}, &all->worst));
    }
    return LATHE_OK;
}

static lathe_status works_in_place(lathe__subject *s)
{
    kernels all = {.one = in_place_one};
    LATHE_TRY(each_trial(s, each_kernel, &all));
    return all.n > 0 ? LATHE_OK : lathe__skip(s, "no input lends its memory");
}

/* Bit k: a gradient can flow through output k. */
static uint32_t flowing(const lathe__op_trial *t)
{
    uint32_t mask = 0;
    for (int32_t k = 0; k < t->op->table->n_out; k++)
        if (t->want[k] != NULL && is_float(t->p.out[k].dtype) &&
            !(t->op->table->outputs[k].flags & LATHE_TENSOR_FIXED))
            mask |= 1u << k;
    return mask;
}

/* Gradients that are not wanted, and outputs through which none flows. */
static lathe_status partial_one(lathe__op_trial *whole, void *arg)
{
    const lathe_op_v1 *table = whole->op->table;
    const uint32_t flows = whole->is_backward ? 0u : flowing(whole);
    kernels *all = arg;
    for (int32_t i = 0; flows != 0 && i < table->n_in + table->n_out; i++) {
        lathe__op_trial t = *whole;
        const uint32_t only = i < table->n_in ? ~(1u << i) : 0u;
        const uint32_t silent = i < table->n_in ? 0u : 1u << (i - table->n_in);
        uint32_t wanted = 0;
        if ((flows & ~silent) == 0) /* the run would not call it */
            continue;
        LATHE_TRY(lathe__op_trial_turn(&t, silent, only));
        for (int32_t k = 0; k < t.p.n_out; k++)
            wanted |= t.want[k] != NULL ? 1u << k : 0u;
        if (wanted != 0)
            LATHE_TRY(each_kernel(&t, all));
    }
    return LATHE_OK;
}

static lathe_status computes_what_is_wanted(lathe__subject *s)
{
    kernels all = {.one = agrees_one};
    const lathe_op_v1 *table = s->table;
    if (table->backward == NULL)
        return lathe__skip(s, "it has no backward of its own");
    LATHE_TRY(each_trial(s, partial_one, &all));
    return all.n > 0 ? LATHE_OK : none_taken(s);
}

/* ---- bits ---- */

/* The outputs of a run. */
typedef struct kept {
    unsigned char *bytes[LATHE_OP_MAX_OUT];
} kept;

static kept keep(const lathe__op_trial *t)
{
    kept k = {{NULL}};
    for (int32_t i = 0; i < t->p.n_out; i++)
        if (t->want[i] != NULL)
            k.bytes[i] = lathe__memory(t->s, lathe_desc_bytes(&t->p.out[i]));
    return k;
}

static lathe_status run_kept(const lathe__op_trial *t, int32_t kernel, int32_t is_measured,
                             kept *out)
{
    double unused = 0.0;
    *out = keep(t);
    const lathe__op_mode mode = {.is_measured = is_measured, .kept = out->bytes};
    return lathe__op_trial_run(t, kernel, &mode, &unused);
}

static lathe_status same_bits(const lathe__op_trial *t, const kept *a, const kept *b,
                              const char *when)
{
    for (int32_t k = 0; k < t->p.n_out; k++)
        if (t->want[k] != NULL &&
            !lathe__same(a->bytes[k], b->bytes[k], lathe_desc_bytes(&t->p.out[k])))
            return lathe_error(LATHE_E_NUMERIC, "output %d has other bits %s", (int)k, when);
    return LATHE_OK;
}

static lathe_status repeats_one(lathe__op_trial *t, int32_t kernel, kernels *all)
{
    enum { N = 5 };
    kept first, again;
    (void)all;
    LATHE_TRY(run_kept(t, kernel, 0, &first));
    for (int i = 0; i < N; i++) {
        LATHE_TRY(run_kept(t, kernel, 1, &again));
        LATHE_TRY(same_bits(t, &first, &again, "the next time"));
    }
    return LATHE_OK;
}

static lathe_status repeats_and_allocates_nothing(lathe__subject *s)
{
    kernels all = {.one = repeats_one};
    LATHE_TRY(each_trial(s, each_kernel, &all));
    return all.n > 0 ? LATHE_OK : none_taken(s);
}

/* A run on another number of threads. */
typedef struct on_threads {
    const lathe__op_trial *t;
    int32_t kernel;
    kept *out;
} on_threads;

static lathe_status run_threads(void *arg)
{
    const on_threads *r = arg;
    return run_kept(r->t, r->kernel, 0, r->out);
}

static lathe_status threads_one(lathe__op_trial *t, int32_t kernel, kernels *all)
{
    static const int32_t numbers[] = {1, 2, 3, 5, 8};
    kept first, other;
    (void)all;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        on_threads r = {t, kernel, i == 0 ? &first : &other};
        char when[40];
        (void)snprintf(when, sizeof when, "with %d threads than with 1", (int)numbers[i]);
        LATHE_TRY(lathe__with_threads(numbers[i], run_threads, &r));
        if (i > 0)
            LATHE_TRY(same_bits(t, &first, &other, when));
    }
    return LATHE_OK;
}

static lathe_status threads_change_nothing(lathe__subject *s)
{
    kernels all = {.one = threads_one};
    if (s->device != NULL)
        return lathe__skip(s, "the device computes");
    LATHE_TRY(each_trial(s, each_kernel, &all));
    return all.n > 0 ? LATHE_OK : none_taken(s);
}

/* Each row of the batch alone, with the kernel that a run of it alone would choose. */
static lathe_status batch_one(lathe__op_trial *t, void *arg)
{
    kept whole, alone;
    int32_t best = -1, *n = arg;
    LATHE_TRY(lathe__op_trial_best(t, &best));
    if (t->batch == 0 || best < 0)
        return LATHE_OK;
    LATHE_TRY(run_kept(t, best, 0, &whole));
    for (int64_t r = 0; r < t->batch; r++) {
        lathe__op_trial one;
        LATHE_TRY(lathe__op_trial_row(t, r, &one));
        LATHE_TRY(lathe__op_trial_best(&one, &best));
        if (best < 0)
            return lathe_error(LATHE_E_PLUGIN, "no kernel takes row %lld alone", (long long)r);
        LATHE_TRY(run_kept(&one, best, 0, &alone));
        for (int32_t k = 0; k < t->p.n_out; k++) {
            const int64_t bytes = t->want[k] != NULL ? lathe_desc_bytes(&one.p.out[k]) : 0;
            if (t->want[k] != NULL && t->batched_out[k] &&
                !lathe__same(whole.bytes[k] + r * bytes, alone.bytes[k], bytes))
                return lathe_error(LATHE_E_NUMERIC,
                                   "output %d of row %lld has other bits alone than in a batch of "
                                   "%d",
                                   (int)k, (long long)r, (int)t->batch);
        }
        (*n)++;
    }
    return LATHE_OK;
}

static lathe_status rows_do_not_depend_on_the_batch(lathe__subject *s)
{
    int32_t n = 0;
    LATHE_TRY(each_trial(s, batch_one, &n));
    if (n == 0)
        return lathe__skip(s, "no test has a batch");
    lathe__note(s, "%d rows", n);
    return LATHE_OK;
}

/* All tests one after the other twice, with all instances alive: nothing is carried from one to the
 * next. */
static lathe_status others_change_nothing(lathe__subject *s)
{
    enum { MOST = 64 };
    const lathe_plugin_op *op;
    lathe_instance instances[MOST] = {{0}};
    lathe__op_trial *t = lathe__memory(s, 2 * MOST * (int64_t)sizeof *t);
    kept *first = lathe__memory(s, 2 * MOST * (int64_t)sizeof *first), again;
    LATHE_TRY(lathe_plugin_op_add(s->plugin, &op));
    const int32_t n = op->table->n_tests < MOST ? op->table->n_tests : MOST;
    const int32_t sides = op->table->backward != NULL ? 2 : 1;
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i < n && status == LATHE_OK; i++) {
        const lathe_op_test *test = &op->table->tests[i];
        status = lathe__instance_with(s, test->attributes, &instances[i]);
        for (int32_t b = 0; b < sides && status == LATHE_OK; b++) {
            status = lathe__op_trial_init(s, op, instances[i].self, test, LATHE_F32, &t[2 * i + b]);
            if (status == LATHE_OK && b == 1)
                status = lathe__op_trial_turn(&t[2 * i + b], 0, 0);
        }
    }
    for (int32_t i = 0; i < 3 * n * sides && status == LATHE_OK; i++) {
        /* in order, in reverse order, in order */
        const int32_t round = i / (n * sides), at = i % (n * sides);
        const int32_t k = round == 1 ? n * sides - 1 - at : at, j = 2 * (k / sides) + k % sides;
        int32_t best = -1;
        status = lathe__op_trial_best(&t[j], &best);
        if (status != LATHE_OK || best < 0)
            continue;
        status = run_kept(&t[j], best, 0, round == 0 ? &first[j] : &again);
        if (status == LATHE_OK && round > 0)
            status = same_bits(&t[j], &first[j], &again, "after runs of other problems");
        status = at_test(t[j].test, LATHE_F32, t[j].is_backward, status);
    }
    for (int32_t i = 0; i < n; i++)
        lathe_instance_fini(&instances[i]);
    return status;
}

/* ---- the derivative ---- */

#define STEP 1e-4
/* The bound of the core's ops, too (tests/conformance/test_op_rules.c): a difference with this step
 * is off by about 1e-8 times the third derivative. Relative to the largest gradient of the input.
 */
#define TOLERANCE 2e-6
enum { ELEMENTS = 25 }; /* elements of an input that are varied */

/* loss = sum over the outputs of sum(weights * output), and its derivative. */
typedef struct derived {
    const lathe__op_trial *t;
    lathe_params params;
    lathe_graph *g;
    lathe__exact e;
    lathe_val in[LATHE_OP_MAX_IN], loss, seed;
} derived;

static int is_varied(const lathe__op_trial *t, int32_t i)
{
    return t->x[i] != NULL && is_float(t->p.in[i].dtype) &&
           !(t->op->table->inputs[i].flags & LATHE_TENSOR_FIXED);
}

/* only: the input that trains; -1: all of them. */
static lathe_status add_inputs(derived *d, int32_t only)
{
    const lathe__op_trial *t = d->t;
    for (int32_t i = 0; i < t->p.n_in; i++) {
        const char *name = t->op->table->inputs[i].name;
        d->in[i] = LATHE_NONE;
        if (t->x[i] == NULL)
            continue;
        if (!is_varied(t, i) || (only >= 0 && i != only)) {
            LATHE_TRY(lathe_graph_input(d->g, name, t->p.in[i], &d->in[i]));
            continue;
        }
        const lathe_param row = {.name = name, .desc = t->p.in[i], .layer = -1, .trainable = 1};
        int32_t index;
        LATHE_TRY(lathe_params_add(&d->params, &row, &index));
        LATHE_TRY(lathe_graph_param(d->g, index, &d->in[i]));
    }
    return LATHE_OK;
}

static lathe_status add_loss(derived *d, const lathe_val *out, lathe_val *weights)
{
    const lathe_op_v1 *table = d->t->op->table;
    d->loss = LATHE_NONE;
    for (int32_t k = 0; k < table->n_out; k++) {
        weights[k] = LATHE_NONE;
        if (out[k] == LATHE_NONE || !is_float(d->g->values[out[k]].desc.dtype) ||
            table->outputs[k].flags & LATHE_TENSOR_FIXED)
            continue;
        lathe_val pair[2] = {out[k], LATHE_NONE}, y, sum;
        LATHE_TRY(lathe_graph_input(d->g, "weights", d->g->values[out[k]].desc, &weights[k]));
        pair[1] = weights[k];
        LATHE_TRY(lathe_graph_node(d->g, LATHE_OP_MUL, NULL, pair, 2, &y, 1, -1, ""));
        LATHE_TRY(lathe_graph_node(d->g, LATHE_OP_SUM, NULL, &y, 1, &sum, 1, -1, ""));
        if (d->loss != LATHE_NONE) {
            const lathe_val both[2] = {d->loss, sum};
            LATHE_TRY(lathe_graph_node(d->g, LATHE_OP_ADD, NULL, both, 2, &sum, 1, -1, ""));
        }
        d->loss = sum;
    }
    return d->loss != LATHE_NONE
               ? LATHE_OK
               : lathe_error(LATHE_E_PLUGIN, "it has a derivative, and no output with a gradient");
}

static lathe_status derived_init(derived *d, const lathe__op_trial *t, int32_t only)
{
    lathe_val out[LATHE_OP_MAX_OUT], weights[LATHE_OP_MAX_OUT];
    *d = (derived){.t = t};
    lathe_params_init(&d->params, LATHE_F32);
    d->params.ops = t->s->ops;
    LATHE_TRY(lathe_graph_create(&d->params, &d->g));
    LATHE_TRY(add_inputs(d, only));
    LATHE_TRY(lathe__graph_add(d->g, t->op->number, NULL, t->self, d->in, t->p.n_in, out,
                               t->p.n_out, -1, "test"));
    LATHE_TRY(add_loss(d, out, weights));
    LATHE_TRY(lathe_graph_input(d->g, "seed", d->g->values[d->loss].desc, &d->seed));
    LATHE_TRY(lathe_derive(d->g, d->loss, d->seed));
    LATHE_TRY(lathe__exact_init(&d->e, t->s, d->g));
    for (int32_t i = 0; i < t->p.n_in; i++)
        if (d->in[i] != LATHE_NONE)
            memcpy(lathe__exact_data(&d->e, d->in[i]), t->x[i],
                   8 * (size_t)lathe_desc_count(&t->p.in[i]));
    for (int32_t k = 0; k < t->p.n_out; k++)
        if (weights[k] != LATHE_NONE)
            lathe__exact_noise(&d->e, weights[k], 11 + (uint64_t)k, 1.0);
    lathe__exact_data(&d->e, d->seed)[0] = 1.0;
    return LATHE_OK;
}

static void derived_fini(derived *d)
{
    lathe_graph_destroy(d->g);
    lathe_params_fini(&d->params);
}

/* The gradient of input i, in the subject's memory; zeros: none flows to it. */
static lathe_status gradient(derived *d, int32_t i, double **out)
{
    lathe_val grad;
    const int64_t n = lathe__exact_count(&d->e, d->in[i]);
    const int32_t n_values = d->g->n_values;
    LATHE_TRY(lathe_graph_grad(d->g, d->g->values[d->in[i]].param, &grad));
    LATHE_TRY(lathe__exact_run(&d->e));
    *out = lathe__memory(d->t->s, 8 * n);
    if (grad < n_values)
        memcpy(*out, lathe__exact_data(&d->e, grad), 8 * (size_t)n);
    return LATHE_OK;
}

static lathe_status loss_at(const derived *d, double *x, double value, double *out)
{
    const double was = *x;
    *x = value;
    const lathe_status status = lathe__exact_run(&d->e);
    *x = was;
    *out = lathe__exact_data(&d->e, d->loss)[0];
    return status;
}

static lathe_status differ_input(derived *d, int32_t i)
{
    const char *name = d->t->op->table->inputs[i].name;
    double *got, *x = lathe__exact_data(&d->e, d->in[i]), largest = 0.0;
    const int64_t n = lathe__exact_count(&d->e, d->in[i]);
    int smooth = 0;
    LATHE_TRY(gradient(d, i, &got));
    for (int64_t k = 0; k < n; k++)
        largest = fmax(largest, fabs(got[k]));
    for (int64_t j = 0; j < ELEMENTS && j < n; j++) {
        const int64_t k = n <= ELEMENTS ? j : j * (n - 1) / (ELEMENTS - 1);
        double up, down, here;
        LATHE_TRY(loss_at(d, &x[k], x[k] + STEP, &up));
        LATHE_TRY(loss_at(d, &x[k], x[k] - STEP, &down));
        LATHE_TRY(loss_at(d, &x[k], x[k], &here));
        const double want = (up - down) / (2.0 * STEP), bend = up + down - 2.0 * here;
        if (fabs(bend) > 0.01 * STEP * fmax(largest, 1.0)) /* a kink: no derivative exists there */
            continue;
        smooth++;
        if (!(fabs(got[k] - want) <= TOLERANCE * fmax(largest, 1e-3)))
            return lathe_error(LATHE_E_NUMERIC,
                               "the derivative of %s at element %lld is %.9g, by differences %.9g",
                               name, (long long)k, got[k], want);
    }
    return smooth > 0
               ? LATHE_OK
               : lathe_error(LATHE_E_NUMERIC,
                             "no element of %s has a derivative: differences bend there", name);
}

/* The gradient of an input that trains alone is the same as with all others. */
static lathe_status differ_alone(const lathe__op_trial *t, derived *all, int32_t i)
{
    double *want, *got;
    derived alone;
    LATHE_TRY(gradient(all, i, &want));
    lathe_status status = derived_init(&alone, t, i);
    if (status == LATHE_OK)
        status = gradient(&alone, i, &got);
    if (status == LATHE_OK && memcmp(want, got, 8 * (size_t)lathe_desc_count(&t->p.in[i])) != 0)
        status =
            lathe_error(LATHE_E_NUMERIC, "the derivative of %s is another if no other input trains",
                        t->op->table->inputs[i].name);
    derived_fini(&alone);
    return status;
}

static lathe_status differ_one(lathe__op_trial *t, void *arg)
{
    int32_t *n = arg;
    derived d;
    if (t->is_backward || t->dtype != LATHE_F32)
        return LATHE_OK;
    lathe_status status = derived_init(&d, t, -1);
    for (int32_t i = 0; i < t->p.n_in && status == LATHE_OK; i++) {
        if (!is_varied(t, i))
            continue;
        status = differ_input(&d, i);
        if (status == LATHE_OK)
            status = differ_alone(t, &d, i);
        (*n)++;
    }
    derived_fini(&d);
    return status;
}

static lathe_status derivative_is_central_differences(lathe__subject *s)
{
    const lathe_op_v1 *table = s->table;
    int32_t n = 0;
    if (table->derive == NULL && table->backward == NULL)
        return lathe__skip(s, "it has no derivative");
    LATHE_TRY(each_trial(s, differ_one, &n));
    if (n == 0)
        return lathe_error(LATHE_E_PLUGIN, "it has a derivative, and no input has one");
    lathe__note(s, "%d inputs", n);
    return LATHE_OK;
}

/* ---- inputs that its tests do not have ---- */

/* One change of an input: a dimension one longer, one dimension fewer, another dtype. */
static int change(lathe_desc *d, int32_t how)
{
    static const int32_t others[] = {LATHE_F64, LATHE_I64, LATHE_I32, LATHE_F32, 99};
    if (how < LATHE_MAX_RANK) {
        if (how >= d->rank)
            return 0;
        d->dims[how]++;
        return 1;
    }
    if (how == LATHE_MAX_RANK) {
        d->dims[d->rank > 0 ? d->rank - 1 : 0] = 1;
        return d->rank-- > 0;
    }
    const int32_t to = others[how - LATHE_MAX_RANK - 1];
    const int differs = d->dtype != to;
    d->dtype = to;
    return differs;
}
enum { N_CHANGES = LATHE_MAX_RANK + 1 + 5 };

/* A problem that shape() accepts must be computed by each kernel that takes it. */
static lathe_status try_changed(lathe__op_trial *t)
{
    double worst = 0.0;
    for (int32_t i = 0; i < t->p.n_in; i++) {
        if (t->p.in[i].dtype >= LATHE_N_DTYPES)
            return lathe_error(LATHE_E_PLUGIN, "shape() takes an input of dtype 99");
        if (t->p.in[i].dtype != LATHE_ABSENT) {
            t->x[i] = lathe__memory(t->s, 8 * lathe_desc_count(&t->p.in[i]));
            lathe__op_case_fill(&t->c, &t->p, i, t->x[i]);
        }
    }
    lathe__op_trial_exact(t);
    for (int32_t k = 0; k < lathe__op_trial_kernels(t); k++) {
        int32_t score = 0;
        LATHE_TRY(lathe__op_trial_score(t, k, &score));
        if (score > LATHE_SCORE_NO)
            LATHE_TRY(lathe__op_trial_run(t, k, &(lathe__op_mode){0}, &worst));
    }
    return LATHE_OK;
}

static lathe_status change_one(lathe__op_trial *t, void *arg)
{
    int32_t *n = arg;
    if (t->is_backward || t->dtype != LATHE_F32)
        return LATHE_OK;
    for (int32_t i = 0; i < t->p.n_in; i++)
        for (int32_t how = 0; how < N_CHANGES; how++) {
            lathe__op_trial other = *t;
            if (t->x[i] == NULL || !change(&other.p.in[i], how))
                continue;
            lathe_error_clear();
            const lathe_status asked = t->op->info.infer(&other.p);
            if (asked != LATHE_OK && asked != LATHE_E_SHAPE && asked != LATHE_E_DTYPE &&
                asked != LATHE_E_UNSUPPORTED && asked != LATHE_E_ARG && asked != LATHE_E_CONFIG)
                return lathe_error_context(asked, "input %s changed", t->op->table->inputs[i].name);
            const lathe_status status = asked == LATHE_OK ? try_changed(&other) : LATHE_OK;
            if (status != LATHE_OK)
                return lathe_error_context(status,
                                           "input %s with other dimensions or dtype, which "
                                           "shape() takes",
                                           t->op->table->inputs[i].name);
            (*n)++;
        }
    return LATHE_OK;
}

static lathe_status computes_what_it_accepts(lathe__subject *s)
{
    int32_t n = 0;
    LATHE_TRY(each_trial(s, change_one, &n));
    lathe__note(s, "%d changed inputs", n);
    return LATHE_OK;
}

/* ---- figures ---- */

static lathe_status flops_one(lathe__op_trial *t, void *arg)
{
    const lathe_op_info *info = t->is_backward ? &t->op->backward : &t->op->info;
    double *total = arg;
    if (info->flops == NULL)
        return LATHE_OK;
    const double flops = info->flops(&t->p);
    if (!(flops >= 0.0) || !isfinite(flops) || info->flops(&t->p) != flops)
        return lathe_error(LATHE_E_PLUGIN,
                           "flops is %g, and %g the second time; expected a finite "
                           "number, at least 0",
                           flops, info->flops(&t->p));
    *total += flops;
    return LATHE_OK;
}

static lathe_status counts_its_flops(lathe__subject *s)
{
    double total = 0.0;
    LATHE_TRY(each_trial(s, flops_one, &total));
    lathe__note(s, "%.0f in all tests", total);
    return LATHE_OK;
}

const lathe__check *lathe__checks_op(void)
{
    static const lathe__check checks[] = {
        {"no_name_of_the_core", no_name_of_the_core, 0},
        {"shapes_are_those_of_its_tests", shapes_are_those_of_its_tests, 0},
        {"tests_cover_the_op", tests_cover_the_op, 0},
        {"kernels_agree_with_the_reference", kernels_agree_with_the_reference, 0},
        {"a_kernel_takes_every_dtype", a_kernel_takes_every_dtype, 0},
        {"computes_what_is_wanted", computes_what_is_wanted, 0},
        {"adds_where_it_is_asked", adds_where_it_is_asked, 0},
        {"works_in_place", works_in_place, 0},
        {"repeats_and_allocates_nothing", repeats_and_allocates_nothing, 0},
        {"threads_change_nothing", threads_change_nothing, 0},
        {"rows_do_not_depend_on_the_batch", rows_do_not_depend_on_the_batch, 0},
        {"others_change_nothing", others_change_nothing, 0},
        {"derivative_is_central_differences", derivative_is_central_differences, 0},
        {"computes_what_it_accepts", computes_what_it_accepts, 0},
        {"counts_its_flops", counts_its_flops, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
