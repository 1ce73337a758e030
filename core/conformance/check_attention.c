/* Checks of attention backends against the dense double-precision definition. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "conformance/device_side.h"
#include "ir/ops/attention_exact.h"

/* A problem to try; B, Tq, Tk, H, Hkv, D and what is switched on. */
typedef struct shape {
    const char *name;
    int64_t b, tq, tk;
    int32_t h, hkv, d, causal, window, packed, cached;
    float softcap;
} shape;

static const shape shapes[] = {
    {"one token", 1, 1, 1, 1, 1, 16, 1, 0, 0, 0, 0},
    {"causal", 2, 33, 33, 2, 2, 32, 1, 0, 0, 0, 0},
    {"not causal", 1, 17, 29, 2, 2, 16, 0, 0, 0, 0, 0},
    {"causal, more keys than queries", 2, 17, 41, 2, 2, 32, 1, 0, 0, 0, 0},
    {"window, more keys than queries", 1, 13, 37, 2, 1, 32, 1, 7, 0, 0, 0},
    {"one key head for all", 1, 21, 21, 5, 1, 64, 1, 0, 0, 0, 0},
    {"wide heads", 1, 33, 33, 2, 2, 128, 1, 0, 0, 0, 0},
    {"a long row", 1, 300, 300, 1, 1, 32, 1, 0, 0, 0, 0},
    {"grouped heads", 1, 70, 70, 6, 2, 64, 1, 0, 0, 0, 0},
    {"packed documents", 2, 67, 67, 2, 1, 32, 1, 0, 1, 0, 0},
    {"window", 1, 65, 65, 2, 2, 32, 1, 9, 0, 0, 0},
    {"soft cap", 1, 31, 31, 2, 2, 32, 1, 0, 0, 0, 5.0f},
    {"all at once", 2, 66, 66, 4, 2, 64, 1, 20, 1, 0, 8.0f},
    {"cached", 3, 1, 40, 4, 2, 32, 1, 0, 0, 1, 0},
    {"cached, five tokens", 2, 5, 40, 2, 2, 32, 1, 12, 0, 1, 0},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

enum { Q, K, VV, DO, O, DQ, DK, DV, N_TENSORS };

/* A problem's memory: as the backend reads it, and the same in double. */
typedef struct trial {
    lathe_attention_problem p;
    lathe_device_info device;
    int64_t count[N_TENSORS];
    void *data[N_TENSORS];
    double *exact[N_TENSORS], *exact_lse;
    float *lse;
    int32_t *doc_start, *kv_len;
    void *scratch[2];
    uint32_t accumulate; /* of the backward */
    int64_t taken;       /* heap blocks, in the last run */
} trial;

static void store(void *data, int32_t dtype, int64_t i, float x)
{
    if (dtype == LATHE_F32)
        ((float *)data)[i] = x;
    else
        ((uint16_t *)data)[i] = dtype == LATHE_BF16 ? lathe_f32_to_bf16(x) : lathe_f32_to_f16(x);
}

static double load(const void *data, int32_t dtype, int64_t i)
{
    if (dtype == LATHE_F32)
        return (double)((const float *)data)[i];
    const uint16_t bits = ((const uint16_t *)data)[i];
    return (double)(dtype == LATHE_BF16 ? lathe_bf16_to_f32(bits) : lathe_f16_to_f32(bits));
}

static void fill(lathe__subject *s, trial *t)
{
    for (int k = 0; k < N_TENSORS; k++) {
        const int64_t n = t->count[k];
        t->data[k] = lathe__memory(s, n * lathe_dtype_bytes(t->p.dtype));
        t->exact[k] = lathe__memory(s, n * 8);
        if (k > DO)
            continue;
        const float *x = lathe__random(s, n, 60 + (uint64_t)k, k == Q || k == K ? 2.0 : 1.0);
        for (int64_t i = 0; i < n; i++) {
            store(t->data[k], t->p.dtype, i, x[i]);
            t->exact[k][i] = load(t->data[k], t->p.dtype, i);
        }
    }
}

static void trial_init(lathe__subject *s, const shape *x, int32_t dtype, trial *t)
{
    *t = (trial){0};
    t->device = (lathe_device_info){.size = sizeof t->device,
                                    .n_workers = lathe_parallel_threads(),
                                    .isa = "portable",
                                    .compute_dtypes = 1u << LATHE_F32 | 1u << LATHE_BF16,
                                    .memory_bytes = (int64_t)1 << 33,
                                    .host_memory = 1};
    if (s->device != NULL)
        t->device = s->device->machine.info;
    const int64_t q = (int64_t)x->h * x->d, kv = (int64_t)x->hkv * x->d;
    t->p = (lathe_attention_problem){.size = sizeof t->p,
                                     .dtype = dtype,
                                     .batch = x->b,
                                     .t_q = x->tq,
                                     .t_k = x->tk,
                                     .n_heads = x->h,
                                     .n_kv_heads = x->hkv,
                                     .head_dim = x->d,
                                     .causal = x->causal,
                                     .window = x->window,
                                     .packed = x->packed,
                                     .cached = x->cached,
                                     .n_threads = lathe_parallel_threads(),
                                     .scale = 1.0f / sqrtf((float)x->d),
                                     .softcap = x->softcap,
                                     .q_stride = q,
                                     .k_stride = kv,
                                     .v_stride = kv,
                                     .o_stride = q,
                                     .dq_stride = q,
                                     .dk_stride = kv,
                                     .dv_stride = kv,
                                     .flags = LATHE_FLAG_DETERMINISTIC,
                                     .need_backward = !x->cached};
    for (int k = 0; k < N_TENSORS; k++)
        t->count[k] = k == Q || k == O || k == DO || k == DQ ? x->b * x->tq * q : x->b * x->tk * kv;
    fill(s, t);
    t->lse = lathe__memory(s, x->b * x->h * x->tq * 4);
    t->exact_lse = lathe__memory(s, x->b * x->h * x->tq * 8);
    if (x->packed) {
        t->doc_start = lathe__memory(s, x->b * x->tq * 4);
        for (int64_t i = 0; i < x->b * x->tq; i++) /* documents of 23 tokens */
            t->doc_start[i] = (int32_t)(i % x->tq / 23 * 23);
    }
    if (x->cached) {
        t->kv_len = lathe__memory(s, x->b * 4);
        for (int64_t b = 0; b < x->b; b++)
            t->kv_len[b] = (int32_t)(x->tq + 11 * b);
    }
}

static int32_t score(lathe__subject *s, void *self, trial *t, char *why, int64_t why_bytes)
{
    const lathe_attention_v1 *a = s->table;
    t->p.device = &t->device;
    return a->score(self, &t->p, why, why_bytes);
}

/* An address for the backend. */
static void *at(lathe__subject *s, const void *host)
{
    return s->device != NULL ? lathe__on_device(s, host) : (void *)(uintptr_t)host;
}

static lathe_status call(lathe__subject *s, void *self, trial *t, lathe_attention_args *args)
{
    const lathe_attention_v1 *a = s->table;
    LATHE_TRY(a->forward(self, &t->p, args));
    args->scratch = at(s, t->scratch[1]);
    return t->p.need_backward ? a->backward(self, &t->p, args) : LATHE_OK;
}

static lathe_status compute(lathe__subject *s, void *self, trial *t)
{
    const lathe_attention_v1 *a = s->table;
    if (t->scratch[0] == NULL) {
        t->scratch[0] = lathe__memory(s, a->forward_scratch(self, &t->p));
        t->scratch[1] = lathe__memory(s, t->p.need_backward ? a->backward_scratch(self, &t->p) : 0);
    }
    lathe_attention_args args = {.size = sizeof args,
                                 .accumulate = t->accumulate,
                                 .q = at(s, t->data[Q]),
                                 .k = at(s, t->data[K]),
                                 .v = at(s, t->data[VV]),
                                 .doc_start = at(s, t->doc_start),
                                 .kv_len = at(s, t->kv_len),
                                 .o = at(s, t->data[O]),
                                 .lse = at(s, t->lse),
                                 .d_o = at(s, t->data[DO]),
                                 .dq = at(s, t->data[DQ]),
                                 .dk = at(s, t->data[DK]),
                                 .dv = at(s, t->data[DV]),
                                 .scratch = at(s, t->scratch[0])};
    if (s->device != NULL) {
        (void)at(s, t->scratch[1]); /* before what is there is sent */
        args.stream = s->device->machine.stream;
        LATHE_TRY(lathe__send(s));
    }
    const int64_t before = lathe__heap();
    const lathe_status status = call(s, self, t, &args);
    t->taken = lathe__heap() - before;
    LATHE_TRY(status);
    return s->device != NULL ? lathe__fetch(s) : LATHE_OK;
}

static void compute_exact(lathe__subject *s, trial *t)
{
    const int back = t->p.need_backward;
    const lathe__dense_attention dense = {.q = t->exact[Q],
                                          .k = t->exact[K],
                                          .v = t->exact[VV],
                                          .d_o = t->exact[DO],
                                          .doc_start = t->doc_start,
                                          .kv_len = t->kv_len,
                                          .o = t->exact[O],
                                          .lse = t->exact_lse,
                                          .dq = back ? t->exact[DQ] : NULL,
                                          .dk = t->exact[DK],
                                          .dv = t->exact[DV],
                                          .row = lathe__memory(s, 2 * t->p.t_k * 8)};
    lathe__attention_dense(&t->p, &dense);
}

/* Largest |got - want| over the largest |want|, and the bound: a few roundings of the dtype, plus
 * f32 sums of n terms (n = keys for o, heads' queries for dk and dv). */
static lathe_status compare(const trial *t, double *worst)
{
    static const char *const names[] = {"q", "k", "v", "dO", "o", "dq", "dk", "dv"};
    const double eps = t->p.dtype == LATHE_F32    ? 0x1p-24
                       : t->p.dtype == LATHE_BF16 ? 0x1p-8
                                                  : 0x1p-11;
    const double group = (double)(t->p.n_heads / t->p.n_kv_heads);
    const double bound = 6.0 * eps + 0x1p-24 * 4.0 * (double)(t->p.t_k + t->p.head_dim) * group;
    for (int k = O; k < N_TENSORS; k++) {
        double top = 1e-30, error = 0;
        if (k > O && !t->p.need_backward)
            break;
        for (int64_t i = 0; i < t->count[k]; i++) {
            const double want = t->exact[k][i], got = load(t->data[k], t->p.dtype, i);
            if (!isfinite(got))
                return lathe_error(LATHE_E_NUMERIC, "%s[%lld] is %g", names[k], (long long)i, got);
            top = fmax(top, fabs(want));
            error = fmax(error, fabs(got - want));
        }
        /* One token: softmax is 1 and dq, dk are exactly 0; errors are against dO*v then. */
        top = k > O ? fmax(top, 0.25) : top;
        *worst = fmax(*worst, error / top / bound);
        if (!(error / top <= bound))
            return lathe_error(LATHE_E_NUMERIC, "%s is off by %.2e of its largest, expected %.2e",
                               names[k], error / top, bound);
    }
    for (int64_t i = 0; i < t->p.batch * t->p.n_heads * t->p.t_q; i++)
        if (!(fabs((double)t->lse[i] - t->exact_lse[i]) <= 0x1p-18 * (4 + fabs(t->exact_lse[i]))))
            return lathe_error(LATHE_E_NUMERIC, "lse[%lld] is %.8g, expected %.8g", (long long)i,
                               (double)t->lse[i], t->exact_lse[i]);
    return LATHE_OK;
}

/* Runs `one` over every problem in the dtypes that the backend takes. */
static lathe_status each_problem(lathe__subject *s,
                                 lathe_status (*one)(lathe__subject *s, void *self, trial *t,
                                                     double *figure),
                                 double *figure)
{
    static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    lathe_instance instance;
    char why[256] = "";
    int taken = 0;
    LATHE_TRY(lathe__instance(s, &instance));
    lathe_status status = LATHE_OK;
    for (int i = 0; i < 3 * N_SHAPES && status == LATHE_OK; i++) {
        trial t;
        trial_init(s, &shapes[i / 3], dtypes[i % 3], &t);
        if (score(s, instance.self, &t, why, sizeof why) <= LATHE_SCORE_NO)
            continue;
        taken++;
        status = one(s, instance.self, &t, figure);
        if (status == LATHE_OK &&
            s->device != NULL) { /* or every problem would be copied with each */
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

static lathe_status one_agrees(lathe__subject *s, void *self, trial *t, double *figure)
{
    LATHE_TRY(compute(s, self, t));
    compute_exact(s, t);
    return compare(t, figure);
}

static lathe_status agrees_with_the_definition(lathe__subject *s)
{
    double worst = 0;
    const lathe_status status = each_problem(s, one_agrees, &worst);
    if (status == LATHE_OK)
        lathe__note(s, "worst at %.0f %% of the tolerance", 100 * worst);
    return status;
}

/* What dq, dk and dv hold before they are added to; whole numbers, exact in every dtype. */
static double before(int k, int64_t i)
{
    return (double)((i * 7 + k) % 5) - 2.0;
}

/* Adding to some gradients, and overwriting the rest. */
static lathe_status one_adds(lathe__subject *s, void *self, trial *t, double *figure)
{
    (void)figure;
    if (!t->p.need_backward)
        return LATHE_OK;
    for (uint32_t mask = 1; mask < 8; mask += 2) { /* dq; dq dk; dq dv; all */
        t->accumulate = mask == 3 ? 6 : mask;      /* dq; dk dv; dq dv; all */
        for (int k = O; k < N_TENSORS; k++)
            memset(t->exact[k], 0, (size_t)(8 * t->count[k]));
        compute_exact(s, t);
        for (int k = DQ; k < N_TENSORS; k++)
            for (int64_t i = 0; i < t->count[k]; i++) {
                const int adds = t->accumulate >> (k - DQ) & 1u;
                store(t->data[k], t->p.dtype, i, adds ? (float)before(k, i) : NAN);
                t->exact[k][i] += adds ? before(k, i) : 0.0;
            }
        double worst = 0;
        LATHE_TRY(compute(s, self, t));
        const lathe_status status = compare(t, &worst);
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

/* q, k, v, dO, o and lse are as they were, and scratch may hold anything. */
static lathe_status one_reads(lathe__subject *s, void *self, trial *t, double *figure)
{
    const lathe_attention_v1 *a = s->table;
    const int64_t width = lathe_dtype_bytes(t->p.dtype);
    void *kept[DO + 1];
    for (int k = Q; k <= DO; k++) {
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
    for (int k = O; k < N_TENSORS; k++)
        memset(t->data[k], 0xff, (size_t)(t->count[k] * width));
    LATHE_TRY(compute(s, self, t));
    for (int k = Q; k <= DO; k++)
        if (!lathe__same(kept[k], t->data[k], t->count[k] * width))
            return lathe_error(LATHE_E_PLUGIN, "it changed its input %d", k);
    compute_exact(s, t);
    return compare(t, figure);
}

static lathe_status reads_its_inputs_only(lathe__subject *s)
{
    double unused = 0;
    return each_problem(s, one_reads, &unused);
}

/* The same problem by two instances in turn, a thousand times. */
static lathe_status runs_a_thousand_times(lathe__subject *s)
{
    static const shape small = {"small", 1, 7, 7, 2, 1, 32, 1, 0, 0, 0, 0};
    static const shape other_shape = {"other", 1, 5, 9, 4, 2, 32, 0, 0, 0, 0, 0};
    lathe_instance instance;
    char why[256] = "";
    trial t, other;
    LATHE_TRY(lathe__instance(s, &instance));
    trial_init(s, &small, LATHE_F32, &t);
    trial_init(s, &other_shape, LATHE_F32, &other);
    lathe_status status = LATHE_OK;
    if (score(s, instance.self, &t, why, sizeof why) <= LATHE_SCORE_NO ||
        score(s, instance.self, &other, why, sizeof why) <= LATHE_SCORE_NO)
        status = lathe__skip(s, "does not take it: %s", why);
    const int n = s->device != NULL ? 30 : 1000; /* each copies the tensors to a device */
    void *first = lathe__memory(s, t.count[O] * 4);
    for (int i = 1; i <= n && status == LATHE_OK; i++) {
        if (i % 10 == 2)
            status = compute(s, instance.self, &other);
        if (status == LATHE_OK)
            status = compute(s, instance.self, &t);
        if (i == 1)
            memcpy(first, t.data[O], (size_t)(t.count[O] * 4));
        else if (status == LATHE_OK && !lathe__same(first, t.data[O], t.count[O] * 4))
            status = lathe_error(LATHE_E_NUMERIC, "run %d has other bits than the first", i);
    }
    lathe_instance_fini(&instance);
    return status;
}

static lathe_status one_scores(lathe__subject *s, void *self, trial *t, double *figure)
{
    const lathe_attention_v1 *a = s->table;
    char why[256] = "", again[256] = "", few[8] = "abcdefg";
    (void)figure;
    const int32_t got = score(s, self, t, why, sizeof why);
    if (got > 1000)
        return lathe_error(LATHE_E_PLUGIN, "score is %d, expected 0 to 1000", got);
    if (score(s, self, t, again, sizeof again) != got || strcmp(why, again) != 0)
        return lathe_error(LATHE_E_PLUGIN, "score answers otherwise the second time");
    (void)score(s, self, t, few, 4);
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

static lathe_status one_repeats(lathe__subject *s, void *self, trial *t, double *figure)
{
    const int64_t width = lathe_dtype_bytes(t->p.dtype);
    void *first[N_TENSORS];
    (void)figure;
    LATHE_TRY(compute(s, self, t));
    for (int k = O; k < N_TENSORS; k++) {
        first[k] = lathe__memory(s, t->count[k] * width);
        memcpy(first[k], t->data[k], (size_t)(t->count[k] * width));
        if (k > O) /* written, not added to */
            memset(t->data[k], 0x3c, (size_t)(t->count[k] * width));
    }
    LATHE_TRY(compute(s, self, t));
    if (t->taken != 0)
        return lathe_error(LATHE_E_PLUGIN, "a run took %lld heap blocks", (long long)t->taken);
    for (int k = O; k < (t->p.need_backward ? N_TENSORS : O + 1); k++)
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
    static const shape odd = {"f64", 1, 4, 4, 3, 2, 7, 1, 0, 0, 0, 0};
    static const int32_t dtypes[] = {LATHE_F64, LATHE_I32, 99, -1};
    lathe_instance instance;
    lathe_status status = LATHE_OK;
    LATHE_TRY(lathe__instance(s, &instance));
    for (int i = 0; i < 4 && status == LATHE_OK; i++) {
        char why[256] = "";
        trial t;
        trial_init(s, &odd, LATHE_F32, &t); /* H is no multiple of Hkv */
        t.p.dtype = dtypes[i];
        const int32_t got = score(s, instance.self, &t, why, sizeof why);
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

/* Right but for one number that no enum has. */
static lathe_status refuses_unknown_dtypes(lathe__subject *s)
{
    static const shape good = {"good", 1, 8, 8, 2, 2, 32, 1, 0, 0, 0, 0};
    lathe_instance instance;
    char why[256] = "";
    trial t;
    LATHE_TRY(lathe__instance(s, &instance));
    trial_init(s, &good, LATHE_F32, &t);
    t.p.dtype = 99;
    const int32_t got = score(s, instance.self, &t, why, sizeof why);
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
