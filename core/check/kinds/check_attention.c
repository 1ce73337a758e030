/* Checks of attention backends against the dense double-precision definition. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "check/harness/attention_trial.h"
#include "check/kinds/checks.h"

static const lathe__attention_shape shapes[] = {
    {"one token", 1, 1, 1, 1, 1, 16, 1, 0, 0, 0, 0, 0, 0, 0, 0},
    {"causal", 2, 33, 33, 2, 2, 32, 1, 0, 0, 0, 0, 0, 0, 0, 0},
    {"not causal", 1, 17, 29, 2, 2, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"causal, more keys than queries", 2, 17, 41, 2, 2, 32, 1, 0, 0, 0, 0, 0, 0, 0, 0},
    {"window, more keys than queries", 1, 13, 37, 2, 1, 32, 1, 7, 0, 0, 0, 0, 0, 0, 0},
    {"one key head for all", 1, 21, 21, 5, 1, 64, 1, 0, 0, 0, 0, 0, 0, 0, 0},
    {"wide heads", 1, 33, 33, 2, 2, 128, 1, 0, 0, 0, 0, 0, 0, 0, 0},
    {"a long row", 1, 300, 300, 1, 1, 32, 1, 0, 0, 0, 0, 0, 0, 0, 0},
    {"grouped heads", 1, 70, 70, 6, 2, 64, 1, 0, 0, 0, 0, 0, 0, 0, 0},
    {"packed documents", 2, 67, 67, 2, 1, 32, 1, 0, 1, 0, 0, 0, 0, 0, 0},
    {"window", 1, 65, 65, 2, 2, 32, 1, 9, 0, 0, 0, 0, 0, 0, 0},
    {"soft cap", 1, 31, 31, 2, 2, 32, 1, 0, 0, 0, 5.0f, 0, 0, 0, 0},
    {"all at once", 2, 66, 66, 4, 2, 64, 1, 20, 1, 0, 8.0f, 0, 0, 0, 0},
    {"documents that see themselves both ways", 2, 67, 67, 2, 1, 32, 0, 0, 1, 0, 0, LATHE__TWO_WAY,
     0, 0, 0},
    {"prefixes", 1, 70, 70, 4, 2, 64, 0, 0, 1, 0, 0, LATHE__PREFIX, 0, 0, 0},
    {"a prefix in a window", 1, 65, 65, 2, 2, 32, 0, 9, 0, 0, 4.0f, LATHE__PREFIX, 0, 0, 0},
    {"cached", 3, 1, 40, 4, 2, 32, 1, 0, 0, 1, 0, 0, 0, 0, 0},
    {"cached, five tokens", 2, 5, 40, 2, 2, 32, 1, 12, 0, 1, 0, 0, 0, 0, 0},
    {"slopes", 2, 67, 67, 4, 2, 32, 1, 0, 0, 0, 0, 0, 1, 0, 0},
    {"slopes of packed documents, a soft cap", 1, 70, 70, 2, 2, 32, 1, 0, 1, 0, 5.0f, 0, 1, 0, 0},
    {"slopes, cached", 3, 2, 40, 4, 2, 32, 1, 0, 0, 1, 0, 0, 1, 0, 0},
    {"sinks", 2, 67, 67, 4, 2, 32, 1, 0, 0, 0, 0, 0, 0, 1, 0},
    {"sinks of packed documents in a window", 1, 70, 70, 4, 2, 64, 1, 9, 1, 0, 0, 0, 0, 1, 0},
    {"sinks, queries without keys", 1, 9, 5, 2, 1, 32, 1, 0, 0, 0, 0, 0, 0, 1, 0},
    {"sinks, cached", 3, 2, 40, 4, 2, 32, 1, 12, 0, 1, 0, 0, 0, 1, 0},
    {"values smaller than keys", 2, 67, 67, 4, 2, 48, 1, 9, 1, 0, 0, 0, 0, 1, 32},
    {"values larger than keys", 1, 17, 41, 2, 2, 16, 0, 0, 0, 0, 4.0f, 0, 1, 0, 40},
    {"values smaller than keys, cached", 3, 2, 40, 4, 4, 48, 1, 0, 0, 1, 0, 0, 0, 0, 16},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* Runs `one` over every problem in the dtypes that the backend takes. */
static lathe_status each_problem(lathe__subject *s,
                                 lathe_status (*one)(lathe__subject *s, void *self,
                                                     lathe__attention_trial *t, double *figure),
                                 double *figure)
{
    static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    lathe_instance instance;
    char why[256] = "";
    int taken = 0;
    LATHE_TRY(lathe__instance(s, &instance));
    lathe_status status = LATHE_OK;
    for (int i = 0; i < 3 * N_SHAPES && status == LATHE_OK; i++) {
        lathe__attention_trial t;
        lathe__attention_trial_init(s, &shapes[i / 3], dtypes[i % 3], &t);
        if (lathe__attention_trial_score(s, instance.self, &t, why, sizeof why) <= LATHE_SCORE_NO)
            continue;
        taken++;
        status = one(s, instance.self, &t, figure);
        if (status == LATHE_OK && s->device != NULL) { /* else each problem would also copy the
                                                        * blocks of all problems before it */
            status = lathe__guards(s);
            lathe__device_side_release(s);
        }
        if (status != LATHE_OK)
            status = lathe_error_context(status, "%s, %s", shapes[i / 3].name,
                                         lathe_dtype_name(dtypes[i % 3]));
    }
    if (status == LATHE_OK && taken == 0)
        status = lathe__skip(s, "takes no problem %s: %s",
                             s->device != NULL ? "on the device" : "on host memory", why);
    lathe_instance_fini(&instance);
    return status;
}

static lathe_status one_agrees(lathe__subject *s, void *self, lathe__attention_trial *t,
                               double *figure)
{
    LATHE_TRY(lathe__attention_trial_run(s, self, t));
    lathe__attention_trial_exact(s, t);
    return lathe__attention_trial_compare(t, figure);
}

static lathe_status agrees_with_the_definition(lathe__subject *s)
{
    double worst = 0;
    const lathe_status status = each_problem(s, one_agrees, &worst);
    if (status == LATHE_OK)
        lathe__note(s, "worst at %.0f %% of the tolerance", 100 * worst);
    return status;
}

/* Element i of dq, dk or dv before it is added to: a whole number, exact in every dtype. */
static double before(int k, int64_t i)
{
    return (double)((i * 7 + k) % 5) - 2.0;
}

/* Adds to some gradients and overwrites the others. */
static lathe_status one_adds(lathe__subject *s, void *self, lathe__attention_trial *t,
                             double *figure)
{
    (void)figure;
    if (!t->p.need_backward)
        return LATHE_OK;
    for (uint32_t mask = 1; mask < 8; mask += 2) { /* dq; dq dk; dq dv; all */
        t->accumulate = mask == 3 ? 6 : mask;      /* dq; dk dv; dq dv; all */
        for (int k = LATHE__O; k < LATHE__N_ATTENTION_TENSORS; k++)
            memset(t->exact[k], 0, (size_t)(8 * t->count[k]));
        lathe__attention_trial_exact(s, t);
        for (int k = LATHE__DQ; k < LATHE__N_ATTENTION_TENSORS; k++)
            for (int64_t i = 0; i < t->count[k]; i++) {
                const int adds = t->accumulate >> (k - LATHE__DQ) & 1u;
                lathe__attention_store(t->data[k], t->p.dtype, i, adds ? (float)before(k, i) : NAN);
                t->exact[k][i] += adds ? before(k, i) : 0.0;
            }
        double worst = 0;
        LATHE_TRY(lathe__attention_trial_run(s, self, t));
        const lathe_status status = lathe__attention_trial_compare(t, &worst);
        if (status != LATHE_OK)
            return lathe_error_context(status, "accumulate 0x%x", t->accumulate);
    }
    t->accumulate = 0;
    return LATHE_OK;
}

static lathe_status adds_where_it_is_asked(lathe__subject *s)
{
    double unused = 0;
    return each_problem(s, one_adds, &unused);
}

/* q, k, v, dO, o and lse must not change, and scratch may contain anything. */
static lathe_status one_reads(lathe__subject *s, void *self, lathe__attention_trial *t,
                              double *figure)
{
    const lathe_attention_v1 *a = s->table;
    const int64_t width = lathe_dtype_bytes(t->p.dtype);
    void *kept[LATHE__DO + 1];
    for (int k = LATHE__Q; k <= LATHE__DO; k++) {
        kept[k] = lathe__memory(s, t->count[k] * width);
        memcpy(kept[k], t->data[k], (size_t)(t->count[k] * width));
    }
    const int64_t bytes[2] = {a->forward_scratch(self, &t->p),
                              t->p.need_backward ? a->backward_scratch(self, &t->p) : 0};
    for (int i = 0; i < 2; i++) {
        if (bytes[i] < 0 || bytes[i] > (int64_t)1 << 32)
            return lathe_error(LATHE_E_PLUGIN, "wants %lld bytes of scratch", (long long)bytes[i]);
        t->scratch[i] = lathe__memory(s, bytes[i]);
        memset(t->scratch[i], 0xff, (size_t)bytes[i]);
    }
    for (int k = LATHE__O; k < LATHE__N_ATTENTION_TENSORS; k++)
        memset(t->data[k], 0xff, (size_t)(t->count[k] * width));
    LATHE_TRY(lathe__attention_trial_run(s, self, t));
    for (int k = LATHE__Q; k <= LATHE__DO; k++)
        if (!lathe__same(kept[k], t->data[k], t->count[k] * width))
            return lathe_error(LATHE_E_PLUGIN, "it changed its input %d", k);
    lathe__attention_trial_exact(s, t);
    return lathe__attention_trial_compare(t, figure);
}

static lathe_status reads_its_inputs_only(lathe__subject *s)
{
    double unused = 0;
    return each_problem(s, one_reads, &unused);
}

/* Runs the same problem a thousand times, with another problem in between. */
static lathe_status runs_a_thousand_times(lathe__subject *s)
{
    static const lathe__attention_shape small = {"small", 1, 7, 7, 2, 1, 32, 1,
                                                 0,       0, 0, 0, 0, 0, 0,  0};
    static const lathe__attention_shape other_shape = {"other", 1, 5, 9, 4, 2, 32, 0,
                                                       0,       0, 0, 0, 0, 0, 0,  0};
    lathe_instance instance;
    char why[256] = "";
    lathe__attention_trial t, other;
    LATHE_TRY(lathe__instance(s, &instance));
    lathe__attention_trial_init(s, &small, LATHE_F32, &t);
    lathe__attention_trial_init(s, &other_shape, LATHE_F32, &other);
    lathe_status status = LATHE_OK;
    if (lathe__attention_trial_score(s, instance.self, &t, why, sizeof why) <= LATHE_SCORE_NO ||
        lathe__attention_trial_score(s, instance.self, &other, why, sizeof why) <= LATHE_SCORE_NO)
        status = lathe__skip(s, "does not take it: %s", why);
    const int n = s->device != NULL ? 30 : 1000; /* each run copies the tensors to the device */
    void *first = lathe__memory(s, t.count[LATHE__O] * 4);
    for (int i = 1; i <= n && status == LATHE_OK; i++) {
        if (i % 10 == 2)
            status = lathe__attention_trial_run(s, instance.self, &other);
        if (status == LATHE_OK)
            status = lathe__attention_trial_run(s, instance.self, &t);
        if (i == 1)
            memcpy(first, t.data[LATHE__O], (size_t)(t.count[LATHE__O] * 4));
        else if (status == LATHE_OK && !lathe__same(first, t.data[LATHE__O], t.count[LATHE__O] * 4))
            status = lathe_error(LATHE_E_NUMERIC, "run %d has other bits than the first", i);
    }
    lathe_instance_fini(&instance);
    return status;
}

static lathe_status one_scores(lathe__subject *s, void *self, lathe__attention_trial *t,
                               double *figure)
{
    const lathe_attention_v1 *a = s->table;
    char why[256] = "", again[256] = "", few[8] = "abcdefg";
    (void)figure;
    const int32_t got = lathe__attention_trial_score(s, self, t, why, sizeof why);
    if (got > 1000)
        return lathe_error(LATHE_E_PLUGIN, "score is %d, expected 0 to 1000", got);
    if (lathe__attention_trial_score(s, self, t, again, sizeof again) != got ||
        strcmp(why, again) != 0)
        return lathe_error(LATHE_E_PLUGIN, "score answers otherwise the second time");
    (void)lathe__attention_trial_score(s, self, t, few, 4);
    if (few[4] != 'e')
        return lathe_error(LATHE_E_CORRUPT, "score writes more than its capacity");
    if (a->forward_scratch(self, &t->p) != a->forward_scratch(self, &t->p))
        return lathe_error(LATHE_E_PLUGIN, "forward_scratch answers otherwise the second time");
    return LATHE_OK;
}

static lathe_status scores_are_pure(lathe__subject *s)
{
    double unused = 0;
    return each_problem(s, one_scores, &unused);
}

static lathe_status one_repeats(lathe__subject *s, void *self, lathe__attention_trial *t,
                                double *figure)
{
    const int64_t width = lathe_dtype_bytes(t->p.dtype);
    void *first[LATHE__N_ATTENTION_TENSORS];
    (void)figure;
    LATHE_TRY(lathe__attention_trial_run(s, self, t));
    for (int k = LATHE__O; k < LATHE__N_ATTENTION_TENSORS; k++) {
        first[k] = lathe__memory(s, t->count[k] * width);
        memcpy(first[k], t->data[k], (size_t)(t->count[k] * width));
        if (k > LATHE__O) /* these are overwritten, not added to */
            memset(t->data[k], 0x3c, (size_t)(t->count[k] * width));
    }
    LATHE_TRY(lathe__attention_trial_run(s, self, t));
    if (t->taken != 0)
        return lathe_error(LATHE_E_PLUGIN, "a run took %lld heap blocks", (long long)t->taken);
    for (int k = LATHE__O; k < (t->p.need_backward ? LATHE__N_ATTENTION_TENSORS : LATHE__O + 1);
         k++)
        if (!lathe__same(first[k], t->data[k], t->count[k] * width))
            return lathe_error(LATHE_E_NUMERIC, "tensor %d has other bits the second time", k);
    return LATHE_OK;
}

static lathe_status repeats_and_allocates_nothing(lathe__subject *s)
{
    double unused = 0;
    return each_problem(s, one_repeats, &unused);
}

static lathe_status refuses_with_a_reason(lathe__subject *s)
{
    static const lathe__attention_shape odd = {"f64", 1, 4, 4, 3, 2, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0};
    static const int32_t dtypes[] = {LATHE_F64, LATHE_I32, 99, -1};
    lathe_instance instance;
    lathe_status status = LATHE_OK;
    LATHE_TRY(lathe__instance(s, &instance));
    for (int i = 0; i < 4 && status == LATHE_OK; i++) {
        char why[256] = "";
        lathe__attention_trial t;
        lathe__attention_trial_init(s, &odd, LATHE_F32, &t); /* H is not a multiple of Hkv */
        t.p.dtype = dtypes[i];
        const int32_t got = lathe__attention_trial_score(s, instance.self, &t, why, sizeof why);
        if (got != LATHE_SCORE_NO)
            status = lathe_error(LATHE_E_PLUGIN, "takes dtype %d with 3 heads over 2 key heads",
                                 dtypes[i]);
        else if (why[0] == '\0' || strchr(why, '\n') != NULL)
            status = lathe_error(LATHE_E_PLUGIN, "refuses without one line of reason");
        lathe__note(s, "%s", why);
    }
    lathe_instance_fini(&instance);
    return status;
}

/* A valid problem except for one number that is in no enum. */
static lathe_status refuses_unknown_dtypes(lathe__subject *s)
{
    static const lathe__attention_shape good = {"good", 1, 8, 8, 2, 2, 32, 1,
                                                0,      0, 0, 0, 0, 0, 0,  0};
    lathe_instance instance;
    char why[256] = "";
    lathe__attention_trial t;
    LATHE_TRY(lathe__instance(s, &instance));
    lathe__attention_trial_init(s, &good, LATHE_F32, &t);
    t.p.dtype = 99;
    const int32_t got = lathe__attention_trial_score(s, instance.self, &t, why, sizeof why);
    lathe_instance_fini(&instance);
    return got == LATHE_SCORE_NO ? LATHE_OK : lathe_error(LATHE_E_PLUGIN, "takes dtype 99");
}

const lathe__check *lathe__checks_attention(void)
{
    static const lathe__check checks[] = {
        {"agrees_with_the_definition", agrees_with_the_definition, 0},
        {"repeats_and_allocates_nothing", repeats_and_allocates_nothing, 0},
        {"adds_where_it_is_asked", adds_where_it_is_asked, 0},
        {"reads_its_inputs_only", reads_its_inputs_only, 0},
        {"runs_a_thousand_times", runs_a_thousand_times, 0},
        {"scores_are_pure", scores_are_pure, 0},
        {"refuses_with_a_reason", refuses_with_a_reason, 0},
        {"refuses_unknown_dtypes", refuses_unknown_dtypes, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
