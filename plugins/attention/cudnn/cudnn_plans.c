/* Makes and caches execution plans: the library and its handle, keys, and the parts of a
 * problem. */
#include "cudnn_plans.h"

#include <stdio.h>
#include <string.h>

#include "cudnn_engine.h"
#include "cudnn_problem.h"
#include "cudnn_rows.h"

#define MAX_IF_UNKNOWN ((int64_t)1 << 30) /* bytes of a part, if the memory is not known */

LATHE_ABI_SIZE(cudnn_plan_key, 112); /* the sum of its members: no padding */

void cudnn_plans_init(cudnn_plans *plans, const lathe_host *host, cudnn_settings settings)
{
    memset(plans, 0, sizeof *plans);
    plans->host = host;
    plans->settings = settings;
}

void cudnn_plans_fini(cudnn_plans *plans)
{
    while (plans->first != NULL) {
        cudnn_plan *plan = plans->first;
        plans->first = plan->next;
        cudnn_graph_fini(&plan->graph);
        plans->host->free(plan);
    }
    if (plans->handle != NULL)
        (void)plans->lib.cudnnDestroy(plans->handle);
    plans->handle = NULL;
}

static cudnn_plan_key key_of(const lathe_attention_problem *p, int32_t backward)
{
    cudnn_plan_key key = {.batch = p->batch,
                          .t_q = p->t_q,
                          .t_k = p->t_k,
                          .strides = {p->q_stride, p->k_stride, p->v_stride, p->o_stride},
                          .dtype = p->dtype,
                          .n_heads = p->n_heads,
                          .n_kv_heads = p->n_kv_heads,
                          .head_dim = p->head_dim,
                          .causal = p->causal != 0,
                          .window = p->window > 0 ? p->window : 0,
                          .packed = p->packed != 0,
                          .backward = backward != 0};
    if (backward) {
        key.strides[4] = p->dq_stride;
        key.strides[5] = p->dk_stride;
        key.strides[6] = p->dv_stride;
    }
    return key;
}

static cudnn_plan *find(const cudnn_plans *plans, const cudnn_plan_key *key)
{
    for (cudnn_plan *plan = plans->first; plan != NULL; plan = plan->next)
        if (memcmp(&plan->key, key, sizeof *key) == 0)
            return plan;
    return NULL;
}

const cudnn_plan *cudnn_plans_find(const cudnn_plans *plans, const lathe_attention_problem *p,
                                   int32_t backward)
{
    const cudnn_plan_key key = key_of(p, backward);
    const cudnn_plan *plan = find(plans, &key);
    return plan != NULL && plan->execution != NULL ? plan : NULL;
}

/* Opens the library and a handle on the device, once. */
static int32_t open_on(cudnn_plans *plans, int32_t device, char *why, int64_t why_bytes)
{
    if (plans->handle != NULL && plans->device != device) {
        (void)snprintf(why, (size_t)why_bytes, "the instance works on GPU %d, not %d",
                       plans->device, device);
        return 0;
    }
    const char *no = cudnn_rows_follow(device);
    if (no != NULL) {
        (void)snprintf(why, (size_t)why_bytes, "GPU %d: %s", device, no);
        return 0;
    }
    if (plans->handle != NULL)
        return 1;
    if (!cudnn_library_open(&plans->lib, plans->settings.file, why, why_bytes))
        return 0;
    const cudnnStatus_t status = plans->lib.cudnnCreate(&plans->handle);
    if (status != CUDNN_STATUS_SUCCESS) {
        plans->handle = NULL;
        (void)snprintf(why, (size_t)why_bytes, "cuDNN does not start: %s",
                       plans->lib.cudnnGetErrorString(status));
        return 0;
    }
    plans->device = device;
    return 1;
}

int64_t cudnn_plan_documents_bytes(const lathe_attention_problem *p, cudnn_part part,
                                   cudnn_form form)
{
    return form.documents == CUDNN_DOCUMENTS_NONE ? 0
           : form.documents == CUDNN_DOCUMENTS_BIAS
               ? part.batch * p->t_q * cudnn_sdpa_bias_stride(p) * 2
               : part.batch * p->t_q * 4;
}

int64_t cudnn_plan_sum_bytes(const lathe_attention_problem *p, cudnn_part part, cudnn_form form)
{
    const int64_t heads = (int64_t)part.n_kv_heads * (p->n_heads / p->n_kv_heads);
    return form.any_order ? part.batch * heads * p->t_q * p->head_dim * 4 : 0;
}

/* Memory that a part needs besides cuDNN's workspace. */
static int64_t own_bytes(const lathe_attention_problem *p, cudnn_part part, cudnn_form form)
{
    return cudnn_plan_documents_bytes(p, part, form) + cudnn_plan_sum_bytes(p, part, form);
}

/* The forms in which documents are tried, best first; returns their number. Comparisons with their
 * starts are for sm_90, with cuDNN from 9.19 on: elsewhere no engine of the backward takes them. */
static int32_t forms_of(const cudnn_plans *plans, const lathe_attention_problem *p,
                        cudnn_documents list[2])
{
    int32_t n = 0;
    if (!p->packed)
        list[n++] = CUDNN_DOCUMENTS_NONE;
    else if (plans->settings.documents != CUDNN_DOCUMENTS_NONE)
        list[n++] = plans->settings.documents;
    else {
        if (cudnn_problem_arch(p->device) == 90 && plans->lib.version >= 91900)
            list[n++] = CUDNN_DOCUMENTS_STARTS;
        list[n++] = CUDNN_DOCUMENTS_BIAS;
    }
    return n;
}

/* Makes the execution plan for `part`; returns 1 on success. */
static int32_t plan_part(cudnn_plans *plans, const lathe_attention_problem *p, cudnn_plan *plan,
                         cudnn_part part)
{
    const cudnn_engine *only = NULL;
    cudnn_graph_fini(&plan->graph);
    cudnn_graph_init(&plan->graph, &plans->lib);
    plan->execution = NULL;
    plan->part = part;
    if (plan->key.backward && !plan->form.any_order &&
        !cudnn_engine_for_backward(cudnn_problem_arch(p->device), plans->lib.version, &only,
                                   plan->why, (int64_t)sizeof plan->why))
        return 0;
    (plan->key.backward ? cudnn_sdpa_backward : cudnn_sdpa_forward)(&plan->graph, p, part,
                                                                    plan->form);
    plan->execution = cudnn_engine_plan(&plan->graph, plans->handle, NULL, only,
                                        plan->form.any_order, &plan->workspace);
    if (plan->execution == NULL)
        (void)snprintf(plan->why, sizeof plan->why, "%s: %s",
                       plan->key.backward ? "backward" : "forward", plan->graph.error);
    return plan->execution != NULL;
}

/* The largest part whose workspace and own bytes are within the bounds, assuming that the workspace
 * is proportional to the heads; if none is, the smallest part. Among parts of equal size it takes
 * the one with more heads, because heads share the documents. */
static cudnn_part part_within(const lathe_attention_problem *p, cudnn_form form, int64_t workspace,
                              int64_t max)
{
    cudnn_part best = {1, 1};
    const int64_t each = workspace / (p->batch * p->n_kv_heads);
    for (int64_t b = p->batch; b >= 1; b--)
        for (int32_t h = p->n_kv_heads; h >= 1 && p->batch % b == 0; h--) {
            const cudnn_part part = {b, h};
            if (p->n_kv_heads % h == 0 && each * b * h + own_bytes(p, part, form) <= max &&
                (b * h > best.batch * best.n_kv_heads ||
                 (b * h == best.batch * best.n_kv_heads && h > best.n_kv_heads)))
                best = part;
        }
    return best;
}

/* Plans the whole problem in the plan's form, or smaller parts if the whole takes too much
 * memory. */
static int32_t plan_form(cudnn_plans *plans, const lathe_attention_problem *p, cudnn_plan *plan)
{
    const cudnn_part whole = {p->batch, p->n_kv_heads};
    const int64_t quarter = p->device->memory_bytes / 4; /* 0: not known */
    int64_t max = plans->settings.workspace_max;
    if (max == 0)
        max = quarter > 0 ? quarter / 4 : MAX_IF_UNKNOWN;
    if (quarter > 0 && quarter < max)
        max = quarter;
    if (!plan_part(plans, p, plan, whole))
        return 0;
    if (plan->workspace + own_bytes(p, whole, plan->form) > max) {
        const cudnn_part part = part_within(p, plan->form, plan->workspace, max);
        if ((part.batch < whole.batch || part.n_kv_heads < whole.n_kv_heads) &&
            !plan_part(plans, p, plan, part))
            return 0;
    }
    const int64_t bytes = plan->workspace + own_bytes(p, plan->part, plan->form);
    if (quarter > 0 && bytes > quarter) {
        (void)snprintf(plan->why, sizeof plan->why,
                       "%s: a workspace of %lld MiB is more than a quarter of the GPU's memory",
                       plan->key.backward ? "backward" : "forward", (long long)(bytes >> 20));
        plan->execution = NULL;
        return 0;
    }
    return 1;
}

/* Plans the problem in the first form of documents that cuDNN has an engine for. */
static void plan_problem(cudnn_plans *plans, const lathe_attention_problem *p, cudnn_plan *plan)
{
    cudnn_documents list[2];
    const int32_t n = forms_of(plans, p, list);
    for (int32_t i = 0; i < n; i++) {
        plan->form = (cudnn_form){list[i], plan->key.backward && plans->settings.any_order};
        if (plan_form(plans, p, plan))
            return;
    }
}

const cudnn_plan *cudnn_plans_make(cudnn_plans *plans, const lathe_attention_problem *p,
                                   int32_t backward, char *why, int64_t why_bytes)
{
    const cudnn_plan_key key = key_of(p, backward);
    if (!open_on(plans, p->device->index, why, why_bytes))
        return NULL;
    cudnn_plan *plan = find(plans, &key);
    if (plan == NULL) {
        plan = plans->host->alloc((int64_t)sizeof *plan);
        if (plan == NULL) {
            (void)snprintf(why, (size_t)why_bytes, "no memory for a plan");
            return NULL;
        }
        plan->key = key;
        plan->next = plans->first;
        plans->first = plan;
        plan_problem(plans, p, plan);
    }
    if (plan->execution == NULL)
        (void)snprintf(why, (size_t)why_bytes, "%s", plan->why);
    return plan->execution != NULL ? plan : NULL;
}
