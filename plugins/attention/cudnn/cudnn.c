/* The cudnn attention backend: scores, scratch, and the execution of a plan over the parts of a
 * problem. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cudnn_plans.h"
#include "cudnn_problem.h"
#include "cudnn_rows.h"
#include "lathe/kit/attention_kit.h"

#ifndef CUDNN_LIBRARY_FILE
#define CUDNN_LIBRARY_FILE "libcudnn.so.9"
#endif

#define ALIGNED 256 /* of cuDNN's workspace, and of what follows it */

enum { FIELD_LIBRARY, FIELD_WORKSPACE, FIELD_DETERMINISTIC, FIELD_DOCUMENTS };

static const lathe_field fields[] = {
    LATHE_FIELD_STRING("library", "\"auto\"", NULL,
                       "path of cuDNN; auto: the libcudnn.so.9 that the system finds"),
    LATHE_FIELD_INT(
        "workspace_mib", "0", 0, 1 << 20, "MiB",
        "a call that needs a larger workspace runs in parts, if heads or rows can be split; 0: a "
        "sixteenth of the GPU's memory"),
    LATHE_FIELD_BOOL("deterministic", "true",
                     "each run gives the same bits; false: the backward adds to dq in any order, "
                     "which is faster and needs train.deterministic = false"),
    LATHE_FIELD_STRING("documents", "\"auto\"", "auto|bias|starts",
                       "what hides other documents: a bias, or comparisons with the starts of the "
                       "queries' documents; auto: by the GPU"),
};

typedef struct cudnn {
    const lathe_host *host;
    cudnn_plans plans;
} cudnn;

/* Offsets in the scratch, in bytes from its first multiple of ALIGNED. */
typedef struct layout {
    int64_t workspace, documents, delta, sum;
    int64_t grads[3]; /* copies of dq dk dv */
    int64_t total;    /* including the bytes for the alignment */
} layout;

static int64_t take(int64_t *at, int64_t bytes)
{
    const int64_t here = *at;
    *at += (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
    return here;
}

/* Copies have the strides of the gradients, which the plan expects. If the gradients are columns of
 * one tensor, so are the copies. */
static void lay_out_gradients(const lathe_attention_problem *p, layout *l, int64_t *at)
{
    const int64_t d = p->head_dim, rows_q = p->batch * p->t_q, rows_k = p->batch * p->t_k;
    const int64_t dk = p->n_heads * d, dv = dk + p->n_kv_heads * d;
    if (rows_q == rows_k && p->dq_stride == p->dk_stride && p->dq_stride == p->dv_stride &&
        p->dq_stride >= dv + p->n_kv_heads * d) {
        l->grads[0] = take(at, rows_q * p->dq_stride * 2);
        l->grads[1] = l->grads[0] + dk * 2;
        l->grads[2] = l->grads[0] + dv * 2;
        return;
    }
    l->grads[0] = take(at, rows_q * p->dq_stride * 2);
    l->grads[1] = take(at, rows_k * p->dk_stride * 2);
    l->grads[2] = take(at, rows_k * p->dv_stride * 2);
}

static layout lay_out(const lathe_attention_problem *p, const cudnn_plan *plan)
{
    layout l = {0};
    int64_t at = 0;
    const int64_t heads = plan->part.n_kv_heads * (int64_t)(p->n_heads / p->n_kv_heads);
    l.workspace = take(&at, plan->workspace);
    l.documents = take(&at, cudnn_plan_documents_bytes(p, plan->part, plan->form));
    if (plan->key.backward) {
        l.delta = take(&at, plan->part.batch * heads * p->t_q * 4);
        l.sum = take(&at, cudnn_plan_sum_bytes(p, plan->part, plan->form));
        lay_out_gradients(p, &l, &at);
    }
    l.total = at > 0 ? at + ALIGNED : 0;
    return l;
}

/* ---- scores and scratch ---- */

static const cudnn_plan *planned(cudnn *s, const lathe_attention_problem *p, int32_t backward,
                                 char *why, int64_t why_bytes)
{
    const char *no = cudnn_problem_refusal(p);
    if (no == NULL && s->plans.settings.any_order && p->need_backward &&
        (p->flags & LATHE_FLAG_DETERMINISTIC))
        no = "attention.deterministic = false needs train.deterministic = false";
    if (no == NULL)
        return cudnn_plans_make(&s->plans, p, backward, why, why_bytes);
    (void)snprintf(why, (size_t)why_bytes, "%s", no);
    return NULL;
}

static int32_t cudnn_score(void *self, const lathe_attention_problem *p, char *why,
                           int64_t why_bytes)
{
    cudnn *s = self;
    char text[256] = "";
    int32_t ok = planned(s, p, 0, text, (int64_t)sizeof text) != NULL;
    if (ok && p->need_backward)
        ok = planned(s, p, 1, text, (int64_t)sizeof text) != NULL;
    const size_t v = s->plans.lib.version;
    if (ok)
        (void)snprintf(text, sizeof text, "cuDNN %zu.%zu.%zu, fused, %s", v / 10000, v / 100 % 100,
                       v % 100,
                       s->plans.settings.any_order && p->need_backward
                           ? "dq summed in any order: no run repeats bit for bit"
                           : "fixed order of sums");
    return lathe_attention_scored(ok ? NULL : text, text, LATHE_SCORE_VENDOR, why, why_bytes);
}

static int64_t scratch_bytes(void *self, const lathe_attention_problem *p, int32_t backward)
{
    char why[256];
    const cudnn_plan *plan = planned(self, p, backward, why, (int64_t)sizeof why);
    return plan != NULL ? lay_out(p, plan).total : 0;
}

static int64_t cudnn_forward_scratch(void *self, const lathe_attention_problem *p)
{
    return scratch_bytes(self, p, 0);
}

static int64_t cudnn_backward_scratch(void *self, const lathe_attention_problem *p)
{
    return scratch_bytes(self, p, 1);
}

/* ---- execution ---- */

/* The values of one run that are the same for all parts. */
typedef struct run {
    cudnn *s;
    const lathe_attention_problem *p;
    const lathe_attention_args *a;
    const cudnn_plan *plan;
    layout l;
    char *scratch; /* from its first multiple of ALIGNED on */
    void *grads[3];
    float scale, window;
} run;

static const float one = 1.0f, lowest = -INFINITY;

static lathe_status checked(const run *r, cudnnStatus_t status, const char *what)
{
    char words[160] = "";
    const cudnn_library *lib = &r->s->plans.lib;
    if (status == CUDNN_STATUS_SUCCESS)
        return LATHE_OK;
    lib->cudnnGetLastErrorString(words, sizeof words);
    words[sizeof words - 1] = '\0';
    words[strcspn(words, "\n")] = '\0';
    return lathe_fail(r->s->host, LATHE_E_DEVICE, "attention cudnn, %s: %s%s%s", what,
                      lib->cudnnGetErrorString(status), words[0] ? ": " : "", words);
}

/* Address of element `i` of p; elements have 2 bytes. */
static void *advanced(const void *p, int64_t i)
{
    return (char *)(uintptr_t)p + 2 * i;
}

/* Sets the address of each id for the part that begins at batch row b and key head h. */
static void bind(const run *r, int64_t b, int64_t h, void *to[SDPA_N])
{
    const lathe_attention_problem *p = r->p;
    const lathe_attention_args *a = r->a;
    const int64_t d = p->head_dim, head = h * (p->n_heads / p->n_kv_heads);
    const int64_t q = b * p->t_q, k = b * p->t_k, at = head * d, at_kv = h * d;
    to[SDPA_Q] = advanced(a->q, q * p->q_stride + at);
    to[SDPA_K] = advanced(a->k, k * p->k_stride + at_kv);
    to[SDPA_V] = advanced(a->v, k * p->v_stride + at_kv);
    to[SDPA_O] = advanced(a->o, q * p->o_stride + at);
    to[SDPA_LSE] = a->lse + (b * p->n_heads + head) * p->t_q;
    to[SDPA_DOCUMENTS] = r->scratch + r->l.documents;
    to[SDPA_SCALE] = (void *)(uintptr_t)&r->scale;
    to[SDPA_LOWEST] = (void *)(uintptr_t)&lowest;
    to[SDPA_WINDOW] = (void *)(uintptr_t)&r->window;
    if (!r->plan->key.backward)
        return;
    to[SDPA_DO] = advanced(a->d_o, q * p->o_stride + at);
    to[SDPA_DQ] = advanced(r->grads[0], q * p->dq_stride + at);
    to[SDPA_DK] = advanced(r->grads[1], k * p->dk_stride + at_kv);
    to[SDPA_DV] = advanced(r->grads[2], k * p->dv_stride + at_kv);
    to[SDPA_DELTA] = r->scratch + r->l.delta;
    to[SDPA_SUM] = r->scratch + r->l.sum;
    to[SDPA_ONE] = (void *)(uintptr_t)&one;
}

/* Queues one part. During the call cuDNN allocates a few hundred bytes of heap for its pack of
 * pointers. */
static lathe_status execute(const run *r, int64_t b, int64_t h)
{
    const cudnn_library *lib = &r->s->plans.lib;
    int64_t ids[SDPA_N];
    void *all[SDPA_N] = {NULL}, *pointers[SDPA_N], *workspace = r->scratch + r->l.workspace;
    cudnn_graph pack; /* of one descriptor */
    bind(r, b, h, all);
    const int64_t n = cudnn_sdpa_ids(r->p, r->plan->key.backward, r->plan->form, ids);
    for (int64_t i = 0; i < n; i++)
        pointers[i] = all[ids[i]];
    const cudnn_attribute attributes[] = {
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointers},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace},
        {0},
    };
    cudnn_graph_init(&pack, lib);
    cudnn_descriptor made =
        cudnn_graph_make(&pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, attributes);
    const cudnnStatus_t status =
        made != NULL ? lib->cudnnBackendExecute(r->s->plans.handle, r->plan->execution, made)
                     : pack.status;
    const lathe_status failed = checked(r, status, r->plan->key.backward ? "backward" : "forward");
    cudnn_graph_fini(&pack);
    return failed;
}

/* Queues what makes the documents of the part that begins at batch row b. */
static lathe_status make_documents(const run *r, int64_t b)
{
    const lathe_attention_problem *p = r->p;
    const lathe_host *host = r->s->host;
    const int64_t rows = r->plan->part.batch * p->t_q;
    void *to = r->scratch + r->l.documents;
    const int32_t *from = p->packed ? r->a->doc_start + b * p->t_q : NULL;
    switch (r->plan->form.documents) {
    case CUDNN_DOCUMENTS_BIAS:
        return cudnn_rows_bias(host, p->dtype, from, to, rows, p->t_q, cudnn_sdpa_bias_stride(p),
                               r->a->stream);
    case CUDNN_DOCUMENTS_STARTS:
        return cudnn_rows_starts(host, from, to, rows, p->t_q, r->a->stream);
    case CUDNN_DOCUMENTS_NONE:
        break;
    }
    return LATHE_OK;
}

static lathe_status run_parts(const run *r)
{
    const lathe_attention_problem *p = r->p;
    const cudnn_part part = r->plan->part;
    for (int64_t b = 0; b < p->batch; b += part.batch) {
        LATHE_TRY(make_documents(r, b));
        for (int64_t h = 0; h < p->n_kv_heads; h += part.n_kv_heads)
            LATHE_TRY(execute(r, b, h));
    }
    return LATHE_OK;
}

/* Errors in the arguments that do not depend on the problem. */
static lathe_status check(const lathe_host *host, const lathe_attention_problem *p,
                          const lathe_attention_args *a, int32_t backward, int64_t scratch)
{
    const void *all[] = {a->q, a->k, a->v, a->o, a->d_o, a->dq, a->dk, a->dv};
    LATHE_TRY(
        (backward ? lathe_attention_check_backward : lathe_attention_check)(host, p, a, scratch));
    if (p->cached)
        return lathe_fail(host, LATHE_E_ARG, "attention cudnn: a cache is not served");
    if (p->bounded)
        return lathe_fail(host, LATHE_E_ARG, "attention cudnn: a last key per query is not served");
    for (int i = 0; i < (backward ? 8 : 4); i++)
        if ((uintptr_t)all[i] % 16 != 0)
            return lathe_fail(host, LATHE_E_ARG,
                              "attention cudnn: a tensor does not begin at a multiple of 16 bytes");
    return LATHE_OK;
}

static lathe_status begin(run *r, cudnn *s, const lathe_attention_problem *p,
                          const lathe_attention_args *a, int32_t backward)
{
    *r = (run){.s = s, .p = p, .a = a, .scale = p->scale, .window = (float)p->window};
    r->plan = cudnn_plans_find(&s->plans, p, backward);
    if (r->plan != NULL)
        r->l = lay_out(p, r->plan);
    LATHE_TRY(check(s->host, p, a, backward, r->l.total));
    if (r->plan == NULL)
        return lathe_fail(s->host, LATHE_E_UNSUPPORTED,
                          "attention cudnn: there is no plan of this problem, score it first");
    r->scratch = (char *)a->scratch + (ALIGNED - (uintptr_t)a->scratch % ALIGNED) % ALIGNED;
    const char *no = cudnn_rows_follow(s->plans.device);
    if (no != NULL)
        return lathe_fail(s->host, LATHE_E_DEVICE, "attention cudnn: GPU %d: %s", s->plans.device,
                          no);
    return checked(r, s->plans.lib.cudnnSetStream(s->plans.handle, cudnn_rows_stream(a->stream)),
                   "stream");
}

static lathe_status cudnn_forward(void *self, const lathe_attention_problem *p,
                                  const lathe_attention_args *a)
{
    run r;
    LATHE_TRY(begin(&r, self, p, a, 0));
    return run_parts(&r);
}

/* cuDNN overwrites gradients and cannot add to them. Gradients to add to, and gradients that the
 * caller does not want, are therefore written to scratch first. */
static lathe_status cudnn_backward(void *self, const lathe_attention_problem *p,
                                   const lathe_attention_args *a)
{
    run r;
    void *const wanted[3] = {a->dq, a->dk, a->dv};
    const int64_t strides[3] = {p->dq_stride, p->dk_stride, p->dv_stride};
    LATHE_TRY(begin(&r, self, p, a, 1));
    for (int i = 0; i < 3; i++) {
        const int32_t is_copied = wanted[i] == NULL || (a->accumulate >> i & 1u);
        r.grads[i] = is_copied ? r.scratch + r.l.grads[i] : wanted[i];
    }
    LATHE_TRY(run_parts(&r));
    for (int i = 0; i < 3; i++) {
        const int64_t heads = i == 0 ? p->n_heads : p->n_kv_heads;
        if (wanted[i] != NULL && (a->accumulate >> i & 1u))
            LATHE_TRY(cudnn_rows_add(r.s->host, p->dtype, r.grads[i], wanted[i],
                                     p->batch * (i == 0 ? p->t_q : p->t_k), heads * p->head_dim,
                                     strides[i], a->stream));
    }
    return LATHE_OK;
}

/* ---- the plugin ---- */

static cudnn_documents documents_named(const char *name)
{
    return strcmp(name, "bias") == 0     ? CUDNN_DOCUMENTS_BIAS
           : strcmp(name, "starts") == 0 ? CUDNN_DOCUMENTS_STARTS
                                         : CUDNN_DOCUMENTS_NONE;
}

static lathe_status read_values(const lathe_host *host, cudnn *s, const lathe_value *values)
{
    const char *file = values[FIELD_LIBRARY].s;
    const cudnn_settings settings = {.file = strcmp(file, "auto") == 0 ? CUDNN_LIBRARY_FILE : file,
                                     .workspace_max = values[FIELD_WORKSPACE].i << 20,
                                     .any_order = values[FIELD_DETERMINISTIC].i == 0,
                                     .documents = documents_named(values[FIELD_DOCUMENTS].s)};
    cudnn_plans_init(&s->plans, host, settings);
    return LATHE_OK;
}

LATHE_INSTANCE_MADE(cudnn, read_values)

static void cudnn_destroy(void *self)
{
    cudnn *s = self;
    if (s == NULL)
        return;
    cudnn_plans_fini(&s->plans);
    s->host->free(s);
}

LATHE_ATTENTION_ENTRY(
    cudnn, LATHE_PLUGIN_FIELDS, .family = "cuda", .version = "1.0.0",
    .summary = "NVIDIA's fused attention for bf16 and f16, with gradients of fixed order",
    .source = "cuDNN 9, graph API; the graphs follow NVIDIA's cudnn-frontend");
