/* Checks rules that hold for every optimizer, whatever its formula. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "check/kinds/optimizer_math.h"
#include "plug/schema_check.h"

static const lathe__rule plain = {
    .rate = 1.0, .grad_factor = 1.0, .lr_mult = 1.0, .decay_mult = 0.0, .sign = 1.0, .seed = 71};

/* Takes n steps by a rule, with fresh state, in a new instance. */
static lathe_status steps_by(lathe__laws *l, lathe__subject *s, const char *toml,
                             const lathe__rule *rule, int n)
{
    lathe_status status = lathe__laws_init(l, s, toml);
    for (int i = 0; i < n && status == LATHE_OK; i++)
        status = lathe__laws_step(l, rule, 0);
    return status;
}

/* Takes steps by two rules and compares the results with `judge`. */
static lathe_status two_runs(lathe__subject *s, const lathe__rule *a, const lathe__rule *b, int n,
                             lathe_status (*judge)(const lathe__laws *a, const lathe__laws *b))
{
    lathe__laws *l = lathe__memory(s, 2 * (int64_t)sizeof *l);
    lathe_status status = steps_by(&l[0], s, NULL, a, n);
    if (status == LATHE_OK)
        status = steps_by(&l[1], s, NULL, b, n);
    if (status == LATHE_OK)
        status = judge(&l[0], &l[1]);
    lathe__laws_fini(&l[0]);
    lathe__laws_fini(&l[1]);
    return status;
}

/* ---- gradient scale ---- */

static lathe_status same_everywhere(const lathe__laws *a, const lathe__laws *b)
{
    return lathe__optimizer_case_compare(
        &a->c, &b->c, "gradients 1,024 times as large with 1/1,024 of the gradient scale");
}

/* The factors are powers of two, so that the products are exact and the results must be equal. */
lathe_status lathe__gradient_scale_is_applied(lathe__subject *s)
{
    lathe__rule other = plain;
    other.grad_factor = 1024.0;
    return two_runs(s, &plain, &other, 3, same_everywhere);
}

/* ---- rate and multiplier ---- */

/* Checks for each tensor that b's first step is `factor` times a's. */
static lathe_status check_ratio(const lathe__laws *a, const lathe__laws *b, double factor,
                                const char *what)
{
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        const double x = lathe__laws_moved(a, i), y = lathe__laws_moved(b, i);
        if (!(y > 0.75 * factor * x && y < 1.25 * factor * x))
            return lathe_error(LATHE_E_NUMERIC,
                               "%s: the first step of %s is %.3g, expected %g times %.3g", what,
                               lathe__optimizer_info(i).name, y, factor, x);
    }
    return LATHE_OK;
}

static lathe_status four_times_the_rate(const lathe__laws *a, const lathe__laws *b)
{
    return check_ratio(a, b, 4.0, "with four times the rate");
}

static lathe_status four_times_the_multiplier(const lathe__laws *a, const lathe__laws *b)
{
    return check_ratio(a, b, 4.0, "with lr_mult 1 after 0.25");
}

static double size_of(const float *x, int64_t n)
{
    double squares = 0.0;
    for (int64_t e = 0; e < n; e++)
        squares += (double)x[e] * (double)x[e];
    return sqrt(squares);
}

static lathe_status stands_still(const lathe__laws *l, const char *what)
{
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        const double size = size_of(l->start[i], l->c.tensors[i].n);
        if (!(lathe__laws_moved(l, i) <= 1e-6 * size))
            return lathe_error(LATHE_E_NUMERIC, "%s %s moves by %.3g", what,
                               lathe__optimizer_info(i).name, lathe__laws_moved(l, i));
    }
    return LATHE_OK;
}

static lathe_status still_by(lathe__subject *s, const lathe__rule *rule, const char *what)
{
    lathe__laws *l = lathe__memory(s, (int64_t)sizeof *l);
    lathe_status status = steps_by(l, s, NULL, rule, 2);
    if (status == LATHE_OK)
        status = stands_still(l, what);
    lathe__laws_fini(l);
    return status;
}

lathe_status lathe__rate_is_applied(lathe__subject *s)
{
    lathe__rule four_times = plain, zero = plain;
    four_times.rate = 4.0;
    zero.rate = 0.0;
    LATHE_TRY(two_runs(s, &plain, &four_times, 1, four_times_the_rate));
    return still_by(s, &zero, "at a rate of 0");
}

lathe_status lathe__multiplier_is_applied(lathe__subject *s)
{
    lathe__rule quarter = plain;
    quarter.lr_mult = 0.25;
    return two_runs(s, &quarter, &plain, 1, four_times_the_multiplier);
}

/* ---- decay ---- */

static lathe_status shrinks(const lathe__laws *l)
{
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        const lathe_optimizer_tensor *t = &l->c.tensors[i];
        double along = 0.0;
        for (int64_t e = 0; e < t->n; e++)
            along += ((double)t->param[e] - (double)l->start[i][e]) * (double)l->start[i][e];
        if (along > 1e-6 * size_of(l->start[i], t->n))
            return lathe_error(LATHE_E_NUMERIC, "without a gradient, %s grows by its decay",
                               lathe__optimizer_info(i).name);
    }
    return LATHE_OK;
}

lathe_status lathe__decay_multiplier_is_applied(lathe__subject *s)
{
    const int has_key =
        lathe_schema_index(s->plugin->fields, s->plugin->n_fields, "weight_decay") >= 0;
    const char *toml = has_key ? "weight_decay = 0.1\n" : NULL;
    lathe__rule rule = plain;
    rule.sign = 0.0;
    lathe__laws *l = lathe__memory(s, (int64_t)sizeof *l);
    lathe_status status = steps_by(l, s, toml, &rule, 3);
    if (status == LATHE_OK)
        status = stands_still(l, "without a gradient and with a decay multiplier of 0,");
    lathe__laws_fini(l);
    LATHE_TRY(status);
    rule.decay_mult = 1.0;
    status = steps_by(l, s, toml, &rule, 3);
    if (status == LATHE_OK)
        status = shrinks(l);
    lathe__laws_fini(l);
    return status;
}

/* ---- direction ---- */

static lathe_status are_opposite(const lathe__laws *a, const lathe__laws *b)
{
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        double sum = 0.0;
        for (int64_t e = 0; e < a->c.tensors[i].n; e++) {
            const double x = (double)a->c.tensors[i].param[e] + (double)b->c.tensors[i].param[e] -
                             2.0 * (double)a->start[i][e];
            sum += x * x;
        }
        const double size = lathe__laws_moved(a, i) + lathe__laws_moved(b, i);
        if (!(sqrt(sum) <= 0.1 * size + 1e-12))
            return lathe_error(LATHE_E_NUMERIC,
                               "%s: the steps for g and -g are not opposite (%.2g of their size)",
                               lathe__optimizer_info(i).name, sqrt(sum) / size);
    }
    return LATHE_OK;
}

lathe_status lathe__opposite_gradients_step_back(lathe__subject *s)
{
    lathe__rule back = plain;
    back.sign = -1.0;
    return two_runs(s, &plain, &back, 1, are_opposite);
}

static double distance(const lathe__laws *l, int i)
{
    double squares = 0.0;
    for (int64_t e = 0; e < l->c.tensors[i].n; e++) {
        const double d = (double)l->c.tensors[i].param[e] - 2.0 * (double)l->start[i][e];
        squares += d * d;
    }
    return squares;
}

/* Minimizes |p - 2 p0|^2 / 2: a thousand steps of the small tensors, then thirty of all. Weight
 * decay alone cannot reach the minimum, because it shrinks p. */
static lathe_status descend(lathe__laws *l, const lathe__rule *rule, int n, int small)
{
    double before[LATHE__N_TENSORS];
    for (int i = 0; i < LATHE__N_TENSORS; i++)
        before[i] = distance(l, i);
    for (int k = 0; k < n; k++)
        LATHE_TRY(lathe__laws_step(l, rule, small));
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        const lathe_optimizer_tensor *t = &l->c.tensors[i];
        if (small && (l->c.partition[i] == LATHE_PARTITION_MATRIX || t->n > 2000))
            continue;
        if (!(distance(l, i) < before[i]))
            return lathe_error(LATHE_E_NUMERIC,
                               "%d steps on a quadratic take %s from a loss of %.6g to %.6g", n,
                               lathe__optimizer_info(i).name, before[i] / 2, distance(l, i) / 2);
    }
    return LATHE_OK;
}

lathe_status lathe__descends(lathe__subject *s)
{
    lathe__rule rule = plain;
    lathe__laws *l = lathe__memory(s, 2 * (int64_t)sizeof *l);
    rule.pull = 1;
    lathe_status status = lathe__laws_init(&l[0], s, NULL);
    if (status != LATHE_OK)
        goto out;
    if ((status = descend(&l[0], &rule, 1000, 1)) != LATHE_OK)
        goto out;
    if ((status = lathe__laws_init(&l[1], s, NULL)) != LATHE_OK)
        goto out;
    status = descend(&l[1], &rule, 30, 0);
out:
    lathe__laws_fini(&l[0]);
    lathe__laws_fini(&l[1]);
    return status;
}

/* ---- instances ---- */

/* Runs two instances in turn, step by step, then each alone in a new instance; the bits must be
 * equal. */
lathe_status lathe__instances_are_apart(lathe__subject *s)
{
    lathe__laws *l = lathe__memory(s, 4 * (int64_t)sizeof *l);
    const lathe__rule rules[2] = {
        plain, {.rate = 1.0, .grad_factor = 1.0, .lr_mult = 1.0, .sign = 1.0, .seed = 1234}};
    lathe_status status = lathe__laws_init(&l[0], s, NULL);
    if (status == LATHE_OK)
        status = lathe__laws_init(&l[1], s, NULL);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 2 && status == LATHE_OK; i++)
            status = lathe__laws_step(&l[i], &rules[i], 0);
    for (int i = 0; i < 2; i++) {
        if (status == LATHE_OK)
            status = steps_by(&l[2 + i], s, NULL, &rules[i], 3);
        if (status == LATHE_OK)
            status = lathe__optimizer_case_compare(&l[i].c, &l[2 + i].c,
                                                   "two instances in turn and each of them alone");
    }
    for (int i = 0; i < 4; i++)
        lathe__laws_fini(&l[i]);
    return status;
}

lathe_status lathe__base_rate_is_the_key(lathe__subject *s)
{
    const lathe_optimizer_v1 *table = s->table;
    const int32_t k = lathe_schema_index(s->plugin->fields, s->plugin->n_fields, "lr");
    const double rates[2] = {0.25, 0.0078125};
    if (k < 0 || s->plugin->fields[k].type != LATHE_T_FLOAT)
        return lathe__skip(s, "it has no key lr");
    for (int i = 0; i < 2; i++) {
        lathe_instance instance;
        char toml[64];
        (void)snprintf(toml, sizeof toml, "lr = %.17g\n", rates[i]);
        if (lathe__instance_with(s, toml, &instance) != LATHE_OK)
            return lathe__skip(s, "it refuses lr = %g", rates[i]);
        const double got = table->base_lr(instance.self);
        lathe_instance_fini(&instance);
        if (!(fabs(got - rates[i]) <= 1e-6 * rates[i]))
            return lathe_error(LATHE_E_PLUGIN, "with lr = %g, base_lr() is %g", rates[i], got);
    }
    return LATHE_OK;
}

/* Checks the f16 copy of parameters; step_moves_parameters checks the bf16 copy. */
lathe_status lathe__shadows_are_in_their_dtype(lathe__subject *s)
{
    lathe__laws *l = lathe__memory(s, (int64_t)sizeof *l);
    lathe_status status = lathe__laws_init(l, s, NULL);
    for (int i = 0; i < LATHE__N_TENSORS; i++)
        l->c.tensors[i].shadow_dtype = LATHE_F16;
    if (status == LATHE_OK)
        status = lathe__laws_step(l, &plain, 0);
    for (int i = 0; i < LATHE__N_TENSORS && status == LATHE_OK; i++)
        for (int64_t e = 0; e < l->c.tensors[i].n && status == LATHE_OK; e++) {
            const double p = (double)l->c.tensors[i].param[e];
            const double copy = (double)lathe_f16_to_f32(l->c.tensors[i].shadow[e]);
            if (l->c.partition[i] == LATHE_PARTITION_MATRIX) /* the core makes the copy of these */
                break;
            if (!(fabs(copy - p) <= 0x1p-10 * fabs(p) + 0x1p-24)) /* either neighbour */
                status = lathe_error(LATHE_E_NUMERIC, "f16 copy of %s[%lld] is %g, expected %g",
                                     lathe__optimizer_info(i).name, (long long)e, copy, p);
        }
    lathe__laws_fini(l);
    return status;
}

/* A later version of the core may have roles that this plugin does not know. */
lathe_status lathe__unknown_roles_are_survived(lathe__subject *s)
{
    const lathe_optimizer_v1 *table = s->table;
    lathe_instance instance;
    lathe_slot slots[LATHE_MAX_SLOTS];
    lathe_param_info info = lathe__optimizer_info(0);
    info.role = 99;
    LATHE_TRY(lathe__instance(s, &instance));
    const int32_t partition =
        LATHE_HAS(table, partition) ? table->partition(instance.self, &info) : 0;
    const int32_t n = table->slots(instance.self, &info, slots);
    lathe_instance_fini(&instance);
    if (partition < 0 || partition > LATHE_PARTITION_TENSOR || n < 0 || n > LATHE_MAX_SLOTS)
        return lathe_error(LATHE_E_PLUGIN, "for a parameter of role 99: partition %d, %d slots",
                           partition, n);
    return LATHE_OK;
}
