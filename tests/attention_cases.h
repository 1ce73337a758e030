/* Test cases for every attention backend: problems, a dense reference in double, and the
 * comparison.
 *
 * The test of each backend includes this file; LATHE_TEST_PLUGIN is its .so. Backends are also
 * called through hosts of our own, which spread work over a chosen number of workers in a chosen
 * order.
 *
 * A backend for a device with its own memory defines ATTENTION_ON_DEVICE first
 * (attention_device.h): every call then uses copies of its arguments on the device.
 *
 * A backend that does not support everything defines ATTENTION_REFUSES(problem), which its score
 * must match exactly; ATTENTION_FIRST_DTYPE, the first of F32, BF16, F16 that it supports;
 * ATTENTION_GAP, the elements between rows that it can skip.
 */
#ifndef LATHE_TESTS_ATTENTION_CASES_H
#define LATHE_TESTS_ATTENTION_CASES_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "lathe/attention.h"
#include "lathe/plugin.h"
#include "plug/host_table.h"

#ifdef ATTENTION_ON_DEVICE
#include "attention_device.h"
#else
static inline const lathe_plugin *attention_plugin(void)
{
    void *so = dlopen(LATHE_TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    cr_assert(so, "%s", dlerror());
    const lathe_plugin *plugin = dlsym(so, LATHE_PLUGIN_ENTRY_NAME);
    cr_assert(plugin && plugin->kind == LATHE_KIND_ATTENTION);
    return plugin;
}

/* The device that problems name; NULL: host memory. */
static inline const lathe_device_info *attention_device(void)
{
    return NULL;
}

/* Runs forward (pass 0) or backward (1) on host memory. */
static inline lathe_status attention_compute(void *self, const lathe_attention_problem *p,
                                             const lathe_attention_args *a, int pass)
{
    const lathe_attention_v1 *t = attention_plugin()->table;
    return (pass ? t->backward : t->forward)(self, p, a);
}
#endif

#include "attention_reference.h" /* after attention_device(), which it calls */

#ifndef ATTENTION_REFUSES
#define ATTENTION_REFUSES(problem) 0
#endif
#ifndef ATTENTION_FIRST_DTYPE
#define ATTENTION_FIRST_DTYPE LATHE_F32
#endif

/* Hosts: the process's own, and one that gives chunk c to worker c % n, last chunk first. */
static int32_t attention_workers = 2;

static inline void attention_backwards(int64_t n, int64_t grain, lathe_range_fn fn, void *arg)
{
    const int64_t g = grain < 1 ? 1 : grain, chunks = (n + g - 1) / g;
    for (int64_t c = chunks; c-- > 0;)
        fn(arg, c * g, (c + 1) * g < n ? (c + 1) * g : n, (int32_t)(c % attention_workers));
}

static inline int32_t attention_n_threads(void)
{
    return attention_workers;
}

static inline const lathe_host *attention_host(int32_t workers)
{
    static lathe_host host;
    host = *lathe_host_get();
    attention_workers = workers;
    host.parallel_for = attention_backwards;
    host.n_threads = attention_n_threads;
    return &host;
}

/* The default value of a field: a whole number, true, false, or a string in quotes, which is copied
 * to `text`. */
static inline lathe_value attention_default(const lathe_field *field, char text[32])
{
    const char *word = field->default_value;
    lathe_value v = {.type = field->type, .is_set = 1};
    if (field->type == LATHE_T_STRING) {
        cr_assert(sscanf(word, "\"%31[^\"]\"", text) == 1, "%s", word);
        v.s = text;
    } else if (field->type == LATHE_T_BOOL) {
        v.i = strcmp(word, "true") == 0;
    } else {
        v.i = strtoll(word, NULL, 10);
    }
    return v;
}

/* Makes an instance. `isa` sets the plugin's first field if it has any; NULL: its default. The
 * other fields have their defaults. */
static inline void *attention_instance(const lathe_host *host, const char *isa)
{
    const lathe_plugin *plugin = attention_plugin();
    static lathe_value values[4];
    static char text[4][32];
    cr_assert(plugin->n_fields <= 4);
    values[0] = (lathe_value){.type = LATHE_T_STRING, .is_set = 1, .s = isa ? isa : "auto"};
    for (int32_t i = 1; i < plugin->n_fields; i++)
        values[i] = attention_default(&plugin->fields[i], text[i]);
    void *self = NULL;
    const lathe_status status = plugin->create(host, values, plugin->n_fields, &self);
    return status == LATHE_OK ? self : NULL;
}

/* Whether the backend refuses the problem; it must do so exactly if ATTENTION_REFUSES says so. */
static inline int attention_is_refused(void *self, const lathe_attention_problem *p)
{
    const lathe_attention_v1 *t = attention_plugin()->table;
    char why[192] = "";
    const int32_t score = t->score(self, p, why, sizeof why);
    cr_assert((score == LATHE_SCORE_NO) == (ATTENTION_REFUSES(p) != 0), "scored %d: %s", score,
              why);
    cr_assert(why[0] != '\0');
    return score == LATHE_SCORE_NO;
}

static inline lathe_attention_args attention_args(attention_memory *m, uint32_t accumulate)
{
    return (lathe_attention_args){.size = sizeof(lathe_attention_args),
                                  .accumulate = accumulate,
                                  .q = m->q,
                                  .k = m->k,
                                  .v = m->v,
                                  .doc_start = m->doc_start,
                                  .key_end = m->key_end,
                                  .kv_len = m->kv_len,
                                  .slopes = m->slopes,
                                  .sinks = m->sinks,
                                  .o = m->o,
                                  .lse = m->lse,
                                  .d_o = m->d_o,
                                  .dq = m->dq,
                                  .dk = m->dk,
                                  .dv = m->dv};
}

/* Runs forward (pass 0) or backward (1), with scratch full of NaN and a guard after it. */
static inline lathe_status attention_call(void *self, const lathe_attention_problem *p,
                                          lathe_attention_args a, int pass)
{
    const lathe_attention_v1 *t = attention_plugin()->table;
    const int64_t bytes = pass ? t->backward_scratch(self, p) : t->forward_scratch(self, p);
    unsigned char *scratch = attention_zeroed(bytes + 64);
    memset(scratch, 0xff, (size_t)bytes + 64);
    a.scratch = scratch;
    const lathe_status status = attention_compute(self, p, &a, pass);
    for (int i = 0; i < 64; i++)
        cr_assert(scratch[bytes + i] == 0xff, "wrote behind its scratch");
    free(scratch);
    return status;
}

/* Runs forward and (unless forward_only) backward; returns 0 if the backend refuses the problem. */
static inline int attention_run(void *self, attention_memory *m, const attention_case *c)
{
    const lathe_attention_args a = attention_args(m, c->accumulate);
    if (attention_is_refused(self, &m->p))
        return 0;
    for (int pass = 0; pass < (c->forward_only ? 1 : 2); pass++)
        cr_assert(attention_call(self, &m->p, a, pass) == LATHE_OK);
    return 1;
}

/* Checks |got - want| <= relative * bound[i] (or `bound1` if bound is NULL) + rounding * |want|. */
static inline void attention_compare(const char *what, const attention_case *c, const void *got,
                                     int64_t rows, int64_t width, int64_t stride,
                                     const double *want, const double *old, const double *bound,
                                     double bound1, double relative, double rounding)
{
    /* half the smallest unit; summands below the normal numbers of f32 may be taken as 0 */
    const double least = c->dtype == LATHE_F16 ? 0x1p-25 : 0x1p-118;
    for (int64_t i = 0; i < rows * width; i++) {
        const double g = attention_load(got, i / width * stride + i % width, c->dtype);
        const double w = want[i] + (old ? old[i] : 0.0);
        const double tolerance =
            relative * (bound ? bound[i] : bound1) + rounding * fabs(w) + least;
        cr_assert(
            fabs(g - w) <= tolerance,
            "%s[%lld,%lld] is %.9g, expected %.9g within %.3g (dtype %d B %lld Tq %lld Tk "
            "%lld H %d/%d D %d causal %d window %d packed %d cached %d bounded %d alibi %d sinks "
            "%d cap %g)",
            what, (long long)(i / width), (long long)(i % width), g, w, tolerance, c->dtype,
            (long long)c->batch, (long long)c->t_q, (long long)c->t_k, c->heads, c->kv_heads,
            c->dim, c->causal, c->window, c->packed, c->cached, c->bounded, c->alibi, c->sinks,
            (double)c->softcap);
    }
}

/* Error bounds. u = 2^-24: an f32 score is off by about 2u sqrt(D) times its sum of magnitudes,
 * which is the relative error of exp, and by about 4u times its bias; sums over keys add u
 * sqrt(Tk); exp and similar functions 8u. r: rounding of stored values, and of probabilities and
 * their gradients if a backend multiplies in the stored type; 2 of these in the forward, 4 in the
 * backward (p, ds, saved o, d_o * o). */
static inline void attention_check(const attention_case *c, attention_memory *m)
{
    const lathe_attention_problem *p = &m->p;
    const double r = c->dtype == LATHE_F32 ? 0x1p-24 : c->dtype == LATHE_BF16 ? 0x1p-8 : 0x1p-11;
    const double u = 0x1p-24;
    const double most_bias = c->alibi ? 0.5 * (double)(c->t_k + c->t_q) : 0.0; /* slope 0.5 */
    const double score_error =
        u * (8.0 + (4.0 * sqrt((double)c->dim)) * (1.0 + m->most_s) + 4.0 * most_bias);
    const double e = score_error + u * (4.0 * sqrt((double)c->t_k + (double)c->t_q) + 8.0);
    const int64_t rq = c->batch * c->t_q, rk = c->batch * c->t_k;
    const int64_t wq = c->heads * (int64_t)c->dim, wk = c->kv_heads * (int64_t)c->dim;
    const int64_t wo = c->heads * attention_value_dim(p), wv = c->kv_heads * attention_value_dim(p);
    const uint32_t add = c->accumulate;
    attention_exact(m, !c->forward_only);
    attention_compare("o", c, m->o, rq, wo, p->o_stride, m->x_o, NULL, NULL, m->most_v, e + 2 * r,
                      r);
    for (int64_t i = 0; i < c->heads * rq; i++) {
        const double w = m->x_lse[i], g = (double)m->lse[i];
        if (isinf(w))
            cr_assert(isinf(g) && g < 0.0, "lse[%lld] is %g, expected -inf", (long long)i, g);
        else
            cr_assert(fabs(g - w) <= e + u * fabs(w) * 4, "lse[%lld] is %.9g, expected %.9g",
                      (long long)i, g, w);
    }
    if (c->forward_only)
        return;
    attention_compare("dq", c, m->dq, rq, wq, p->dq_stride, m->x_dq, add & 1 ? m->old_dq : NULL,
                      m->a_dq, 0, 2 * e + 4 * r, r * 1.01);
    attention_compare("dk", c, m->dk, rk, wk, p->dk_stride, m->x_dk, add & 2 ? m->old_dk : NULL,
                      m->a_dk, 0, 2 * e + 4 * r, r * 1.01);
    attention_compare("dv", c, m->dv, rk, wv, p->dv_stride, m->x_dv, add & 4 ? m->old_dv : NULL,
                      m->a_dv, 0, e + 4 * r, r * 1.01);
}

static inline void attention_try(void *self, const attention_case *c)
{
    attention_memory m;
    attention_memory_init(&m, c);
    if (attention_run(self, &m, c))
        attention_check(c, &m);
    attention_memory_fini(&m);
}

#endif
