/* One cycle: from base/div_factor up to base, then down to base/(div_factor*final_div_factor).
 *
 *     phases end at   pct_start*T - 1, T - 1                            (two phases)
 *                     pct_start*T - 1, 2*pct_start*T - 2, T - 1         (three: the first mirrored)
 *     within one      p = (t - begin)/(end - begin);  cos: b + (a - b)/2*(1 + cos(pi p));  linear
 *
 * After T the rate stays at its minimum. base is the highest rate. Source:
 * torch.optim.lr_scheduler.OneCycleLR; arXiv:1708.07120. Deviation: momentum is not cycled.
 */
#include "lathe/kit/schedule.h"

typedef struct one_cycle {
    lathe_schedule common; /* only its total_steps is used */
    double pct_start, div_factor, final_div_factor;
    int32_t is_linear, three_phase;
} one_cycle;

enum {
    FIELD_TOTAL_STEPS,
    FIELD_PCT_START,
    FIELD_ANNEAL_STRATEGY,
    FIELD_DIV_FACTOR,
    FIELD_FINAL_DIV_FACTOR,
    FIELD_THREE_PHASE
};

static const lathe_field fields[] = {
    LATHE_FIELD_INT("total_steps", NULL, 1, 1e15, "steps",
                    "length of the schedule; unset: the length of the run"),
    LATHE_FIELD_FLOAT("pct_start", "0.3", 0, 1, "1", "share of the steps in which the rate rises"),
    LATHE_FIELD_STRING("anneal_strategy", "\"cos\"", "cos|linear",
                       "form of the curve: cosine or a straight line"),
    {"div_factor", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "25.0", 0, 1e12, NULL, "1",
     "the first rate is base / div_factor"},
    {"final_div_factor", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "1e4", 0, 1e18, NULL, "1",
     "the last rate is the first rate / final_div_factor"},
    LATHE_FIELD_BOOL("three_phase", "false",
                     "return to the first rate in a phase before the last one"),
};

static lathe_status read_values(const lathe_host *host, one_cycle *s, const lathe_value *values)
{
    const lathe_value *const total = &values[FIELD_TOTAL_STEPS];
    s->common.host = host;
    s->common.total_steps = total->is_set ? total->i : 0;
    s->pct_start = values[FIELD_PCT_START].f;
    s->div_factor = values[FIELD_DIV_FACTOR].f;
    s->final_div_factor = values[FIELD_FINAL_DIV_FACTOR].f;
    s->three_phase = (int32_t)values[FIELD_THREE_PHASE].i;
    s->is_linear = lathe_choice("cos|linear", values[FIELD_ANNEAL_STRATEGY].s);
    return LATHE_OK;
}

static double anneal(const one_cycle *s, double from, double to, double p)
{
    return s->is_linear ? (to - from) * p + from
                        : to + (from - to) / 2.0 * (cos(LATHE_PI * p) + 1.0);
}

static double one_cycle_at(void *self, int64_t step, int64_t total, double base_lr,
                           const double *state)
{
    const one_cycle *const s = self;
    const double length = (double)lathe_schedule_length(&s->common, total);
    const double first = base_lr / s->div_factor, last = first / s->final_div_factor;
    const double rate[4] = {first, base_lr, s->three_phase ? first : last, last};
    const double end[4] = {0.0, s->pct_start * length - 1.0,
                           s->three_phase ? 2.0 * s->pct_start * length - 2.0 : length - 1.0,
                           length - 1.0};
    const int n_phases = s->three_phase ? 3 : 2;
    const double t = (double)step;
    (void)state;
    if (t >= length - 1.0)
        return last;
    int k = 1;
    while (k < n_phases && t > end[k])
        k++;
    const double span = end[k] - end[k - 1]; /* 0: the phase consists of its last step only */
    return anneal(s, rate[k - 1], rate[k], span > 0.0 ? (t - end[k - 1]) / span : 1.0);
}

LATHE_SCHEDULER(one_cycle, read_values, lathe_schedule_check, .version = "1.0.0",
                .summary = "up to the base rate, then down far below the first one",
                .source = "arXiv:1708.07120; torch.optim.lr_scheduler.OneCycleLR");
