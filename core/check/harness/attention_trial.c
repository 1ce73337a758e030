/* Problems for attention backends, run by the backend and by the dense definition. */
#include "check/harness/attention_trial.h"

#include <math.h>

#include "base/error.h"
#include "base/parallel.h"
#include "graph/ops/attention_exact.h"
#include "lathe/kit/attention_kit.h"

void lathe__attention_store(void *data, int32_t dtype, int64_t i, float x)
{
    if (dtype == LATHE_F32)
        ((float *)data)[i] = x;
    else
        ((uint16_t *)data)[i] = dtype == LATHE_BF16 ? lathe_f32_to_bf16(x) : lathe_f32_to_f16(x);
}

double lathe__attention_load(const void *data, int32_t dtype, int64_t i)
{
    if (dtype == LATHE_F32)
        return (double)((const float *)data)[i];
    const uint16_t bits = ((const uint16_t *)data)[i];
    return (double)(dtype == LATHE_BF16 ? lathe_bf16_to_f32(bits) : lathe_f16_to_f32(bits));
}

static void fill(lathe__subject *s, lathe__attention_trial *t)
{
    for (int k = 0; k < LATHE__N_ATTENTION_TENSORS; k++) {
        const int64_t n = t->count[k];
        t->data[k] = lathe__memory(s, n * lathe_dtype_bytes(t->p.dtype));
        t->exact[k] = lathe__memory(s, n * 8);
        if (k > LATHE__DO)
            continue;
        const float *x =
            lathe__random(s, n, 60 + (uint64_t)k, k == LATHE__Q || k == LATHE__K ? 2.0 : 1.0);
        for (int64_t i = 0; i < n; i++) {
            lathe__attention_store(t->data[k], t->p.dtype, i, x[i]);
            t->exact[k][i] = lathe__attention_load(t->data[k], t->p.dtype, i);
        }
    }
}

enum { DOCUMENT = 23, PREFIX = 9 }; /* tokens */

/* The end of the keys that query i sees: of its document, or of the document's prefix. */
static int32_t last_key(const lathe__attention_shape *x, int64_t i)
{
    const int64_t begin = x->packed ? i / DOCUMENT * DOCUMENT : 0;
    const int64_t end = x->packed && begin + DOCUMENT < x->tk ? begin + DOCUMENT : x->tk;
    if (x->bounded == LATHE__TWO_WAY)
        return (int32_t)end;
    return (int32_t)(i < begin + PREFIX ? begin + PREFIX : i + 1);
}

void lathe__attention_trial_init(lathe__subject *s, const lathe__attention_shape *x, int32_t dtype,
                                 lathe__attention_trial *t)
{
    *t = (lathe__attention_trial){0};
    t->device = (lathe_device_info){.size = sizeof t->device,
                                    .n_workers = lathe_parallel_threads(),
                                    .isa = "portable",
                                    .compute_dtypes = 1u << LATHE_F32 | 1u << LATHE_BF16,
                                    .memory_bytes = (int64_t)1 << 33,
                                    .host_memory = LATHE_MEMORY_HOST};
    if (s->device != NULL)
        t->device = s->device->machine.info;
    const int32_t value_dim = x->dv > 0 ? x->dv : x->d;
    const int64_t q = (int64_t)x->h * x->d, kv = (int64_t)x->hkv * x->d;
    const int64_t o = (int64_t)x->h * value_dim, v = (int64_t)x->hkv * value_dim;
    t->p = (lathe_attention_problem){.size = sizeof t->p,
                                     .dtype = dtype,
                                     .batch = x->b,
                                     .t_q = x->tq,
                                     .t_k = x->tk,
                                     .n_heads = x->h,
                                     .n_kv_heads = x->hkv,
                                     .head_dim = x->d,
                                     .value_dim = value_dim,
                                     .causal = x->causal,
                                     .window = x->window,
                                     .packed = x->packed,
                                     .cached = x->cached,
                                     .bounded = x->bounded != 0,
                                     .alibi = x->alibi,
                                     .sinks = x->sinks,
                                     .n_threads = lathe_parallel_threads(),
                                     .scale = 1.0f / sqrtf((float)x->d),
                                     .softcap = x->softcap,
                                     .q_stride = q,
                                     .k_stride = kv,
                                     .v_stride = v,
                                     .o_stride = o,
                                     .dq_stride = q,
                                     .dk_stride = kv,
                                     .dv_stride = v,
                                     .flags = LATHE_FLAG_DETERMINISTIC,
                                     .need_backward = !x->cached};
    t->count[LATHE__Q] = t->count[LATHE__DQ] = x->b * x->tq * q;
    t->count[LATHE__O] = t->count[LATHE__DO] = x->b * x->tq * o;
    t->count[LATHE__K] = t->count[LATHE__DK] = x->b * x->tk * kv;
    t->count[LATHE__V] = t->count[LATHE__DV] = x->b * x->tk * v;
    fill(s, t);
    t->lse = lathe__memory(s, x->b * x->h * x->tq * 4);
    t->exact_lse = lathe__memory(s, x->b * x->h * x->tq * 8);
    if (x->packed) {
        t->doc_start = lathe__memory(s, x->b * x->tq * 4);
        for (int64_t i = 0; i < x->b * x->tq; i++)
            t->doc_start[i] = (int32_t)(i % x->tq / DOCUMENT * DOCUMENT);
    }
    if (x->bounded) {
        t->key_end = lathe__memory(s, x->b * x->tq * 4);
        for (int64_t i = 0; i < x->b * x->tq; i++)
            t->key_end[i] = last_key(x, i % x->tq);
    }
    if (x->alibi) {
        t->slopes = lathe__memory(s, x->h * (int64_t)sizeof *t->slopes);
        t->exact_slopes = lathe__memory(s, x->h * (int64_t)sizeof *t->exact_slopes);
        for (int32_t h = 0; h < x->h; h++)
            t->exact_slopes[h] = (double)(t->slopes[h] = 0.5f / (float)(1 + h));
    }
    if (x->sinks) {
        t->sinks = lathe__memory(s, x->h * (int64_t)sizeof *t->sinks);
        t->exact_sinks = lathe__memory(s, x->h * (int64_t)sizeof *t->exact_sinks);
        for (int32_t h = 0; h < x->h; h++) /* below, among and above the scores */
            t->exact_sinks[h] = (double)(t->sinks[h] = -2.0f + 3.5f * (float)h);
    }
    if (x->cached) {
        t->kv_len = lathe__memory(s, x->b * 4);
        for (int64_t b = 0; b < x->b; b++)
            t->kv_len[b] = (int32_t)(x->tq + 11 * b);
    }
}

int32_t lathe__attention_trial_score(lathe__subject *s, void *self, lathe__attention_trial *t,
                                     char *why, int64_t why_bytes)
{
    const lathe_attention_v1 *a = s->table;
    t->p.device = &t->device;
    return a->score(self, &t->p, why, why_bytes);
}

/* The address that the backend gets for host memory. */
static void *at(lathe__subject *s, const void *host)
{
    return s->device != NULL ? lathe__on_device(s, host) : (void *)(uintptr_t)host;
}

static lathe_status call(lathe__subject *s, void *self, lathe__attention_trial *t,
                         lathe_attention_args *args)
{
    const lathe_attention_v1 *a = s->table;
    LATHE_TRY(a->forward(self, &t->p, args));
    args->scratch = at(s, t->scratch[1]);
    return t->p.need_backward ? a->backward(self, &t->p, args) : LATHE_OK;
}

lathe_status lathe__attention_trial_run(lathe__subject *s, void *self, lathe__attention_trial *t)
{
    const lathe_attention_v1 *a = s->table;
    if (t->scratch[0] == NULL) {
        t->scratch[0] = lathe__memory(s, a->forward_scratch(self, &t->p));
        t->scratch[1] = lathe__memory(s, t->p.need_backward ? a->backward_scratch(self, &t->p) : 0);
    }
    lathe_attention_args args = {.size = sizeof args,
                                 .accumulate = t->accumulate,
                                 .q = at(s, t->data[LATHE__Q]),
                                 .k = at(s, t->data[LATHE__K]),
                                 .v = at(s, t->data[LATHE__V]),
                                 .doc_start = at(s, t->doc_start),
                                 .key_end = at(s, t->key_end),
                                 .kv_len = at(s, t->kv_len),
                                 .slopes = at(s, t->slopes),
                                 .sinks = at(s, t->sinks),
                                 .o = at(s, t->data[LATHE__O]),
                                 .lse = at(s, t->lse),
                                 .d_o = at(s, t->data[LATHE__DO]),
                                 .dq = at(s, t->data[LATHE__DQ]),
                                 .dk = at(s, t->data[LATHE__DK]),
                                 .dv = at(s, t->data[LATHE__DV]),
                                 .scratch = at(s, t->scratch[0])};
    if (s->device != NULL) {
        (void)at(s, t->scratch[1]); /* allocates its device copy before the blocks are sent */
        args.stream = s->device->machine.stream;
        LATHE_TRY(lathe__send(s));
    }
    const int64_t before = lathe__heap();
    const lathe_status status = call(s, self, t, &args);
    t->taken = lathe__heap() - before;
    LATHE_TRY(status);
    return s->device != NULL ? lathe__fetch(s) : LATHE_OK;
}

void lathe__attention_trial_exact(lathe__subject *s, lathe__attention_trial *t)
{
    const int back = t->p.need_backward;
    const lathe__dense_attention dense = {.q = t->exact[LATHE__Q],
                                          .k = t->exact[LATHE__K],
                                          .v = t->exact[LATHE__V],
                                          .d_o = t->exact[LATHE__DO],
                                          .doc_start = t->doc_start,
                                          .key_end = t->key_end,
                                          .slopes = t->exact_slopes,
                                          .sinks = t->exact_sinks,
                                          .kv_len = t->kv_len,
                                          .o = t->exact[LATHE__O],
                                          .lse = t->exact_lse,
                                          .dq = back ? t->exact[LATHE__DQ] : NULL,
                                          .dk = t->exact[LATHE__DK],
                                          .dv = t->exact[LATHE__DV],
                                          .row = lathe__memory(s, 2 * t->p.t_k * 8)};
    lathe__attention_dense(&t->p, &dense);
}

/* Compares the largest |got - want| relative to the largest |want| with its bound: a few roundings
 * of the dtype, plus f32 sums of n terms (n = keys for o, queries of the group's heads for dk and
 * dv). */
lathe_status lathe__attention_trial_compare(const lathe__attention_trial *t, double *worst)
{
    static const char *const names[] = {"q", "k", "v", "dO", "o", "dq", "dk", "dv"};
    const double eps = t->p.dtype == LATHE_F32    ? 0x1p-24
                       : t->p.dtype == LATHE_BF16 ? 0x1p-8
                                                  : 0x1p-11;
    const double group = (double)(t->p.n_heads / t->p.n_kv_heads);
    const int64_t value_dim = lathe_attention_value_dim(&t->p);
    const int64_t width = value_dim > t->p.head_dim ? value_dim : t->p.head_dim;
    const double bound = 6.0 * eps + 0x1p-24 * 4.0 * (double)(t->p.t_k + width) * group;
    for (int k = LATHE__O; k < LATHE__N_ATTENTION_TENSORS; k++) {
        double top = 1e-30, error = 0;
        if (k > LATHE__O && !t->p.need_backward)
            break;
        for (int64_t i = 0; i < t->count[k]; i++) {
            const double want = t->exact[k][i],
                         got = lathe__attention_load(t->data[k], t->p.dtype, i);
            if (!isfinite(got))
                return lathe_error(LATHE_E_NUMERIC, "%s[%lld] is %g", names[k], (long long)i, got);
            top = fmax(top, fabs(want));
            error = fmax(error, fabs(got - want));
        }
        /* With one token, softmax is 1 and dq, dk are exactly 0; their errors
         * are relative to dO*v. */
        top = k > LATHE__O ? fmax(top, 0.25) : top;
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
