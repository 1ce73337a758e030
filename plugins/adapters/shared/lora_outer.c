/* LoRA of the token embedding and of the head over the vocabulary, with the names and the layout of
 * PEFT.
 *
 *   embedding  y[n] = W[t] + s B A[:,t]    A lora_embedding_A [r, V], B lora_embedding_B [C, r]
 *   head       logits = x W^T + s (dropout(x) A^T) B^T, as at a linear layer
 *
 * lora_embedding_A begins as zeros and lora_embedding_B normal. In memory A is [V, r], so that rows
 * of it are looked up. With ensure_weight_tying the head of a tied model has the same A and B, with
 * their places exchanged: its lora_A is B^T, and its lora_B is A^T.
 *
 * Source: arXiv:2106.09685, and PEFT's lora.Embedding, for the tied head
 * LoraModel._add_targets_to_tie.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "shared/lora.h"

#define TIED_MODULE "embed_tokens" /* the only module that PEFT ties */

static const char *last_part(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot != NULL ? dot + 1 : module;
}

/* Whether the head has the embedding's matrices. */
static int shares(const lora *l, const lathe_site *site)
{
    return l->targets.saved.ties && site->tied != NULL;
}

/* Ranks or alphas by pattern could give the two uses of shared matrices different ones. */
static lathe_status check_shared(const lora *l, const lathe_site *site)
{
    const double a = lora_scale(l, site->module), b = lora_scale(l, site->tied);
    if (lora_rank(l, site->module) == lora_rank(l, site->tied) && a <= b && b <= a)
        return LATHE_OK;
    return lathe_fail_at(l->host, LATHE_E_CONFIG, "ensure_weight_tying",
                         "%s: rank_pattern or alpha_pattern gives %s and %s different values, and "
                         "ensure_weight_tying makes them share their matrices",
                         l->method, site->module, site->tied);
}

/* A model with one matrix for both: without ensure_weight_tying PEFT adapts one use of it. */
static void warn_of_one_use(lora *l, const lathe_site *site)
{
    if (site->tied == NULL || shares(l, site) || l->warned_of_tied)
        return;
    l->warned_of_tied = 1;
    lathe_warn(l->host,
               "%s: %s and %s are one matrix in this model (tie_word_embeddings), and the adapter "
               "changes them apart, as in PEFT: such an adapter cannot be merged. "
               "ensure_weight_tying = true trains one pair of matrices for both",
               l->method, site->module, site->tied);
}

/* PEFT has lora_bias for linear layers only. The head is one of them in PEFT; Lathe computes it
 * apart, without a bias. */
static lathe_status refuse_bias(const lora *l, const lathe_site *site)
{
    return lathe_fail_at(l->host, LATHE_E_CONFIG, "lora_bias",
                         "%s: lora_bias is not offered for %s: take it out of target_modules",
                         l->method, site->module);
}

static lathe_status check_embedding(lora *l, const lathe_site *site)
{
    if (l->lora_bias)
        return refuse_bias(l, site);
    if (l->loftq_iter > 0)
        return lora_refuse_loftq(l, "the embedding", site->module,
                                 " is not quantized: take it out of target_modules");
    if (l->targets.saved.ties && site->tied == NULL && l->targets.strict)
        return lathe_fail_at(l->host, LATHE_E_CONFIG, "ensure_weight_tying",
                             "%s: ensure_weight_tying is true, but the model's output head is not "
                             "tied to %s: leave the key out",
                             l->method, site->module);
    if (shares(l, site) && strcmp(last_part(site->module), TIED_MODULE) != 0)
        return lathe_fail_at(
            l->host, LATHE_E_CONFIG, "ensure_weight_tying",
            "%s: ensure_weight_tying is true, and PEFT ties only modules called " TIED_MODULE
            ": leave the key out, or %s out of target_modules",
            l->method, site->module);
    if (shares(l, site) && l->mica)
        return lathe_fail_at(l->host, LATHE_E_CONFIG, "init",
                             "%s: init = \"mica\" gives %s and %s matrices of their own, and "
                             "ensure_weight_tying makes them share one pair: leave one of the keys "
                             "out",
                             l->method, site->module, site->tied);
    if (l->mica)
        LATHE_TRY(lora_check_rank(l, site, "mica"));
    if (shares(l, site))
        LATHE_TRY(check_shared(l, site));
    warn_of_one_use(l, site);
    return LATHE_OK;
}

/* Declares A [V, r] and B [C, r] of an embedding; `head`: the module that has them too, or NULL;
 * weight: of the embedding, for init = "mica". */
static lathe_status declare_embedding(const lora *l, const lathe_graph_api *api, lathe_graph *g,
                                      const char *module, const char *head, int64_t vocabulary,
                                      int64_t width, lathe_val weight, lathe_val *out_a,
                                      lathe_val *out_b)
{
    char name[2][512], second[2][512];
    const int64_t r = lora_rank(l, module);
    lathe_param_decl decl = {.size = sizeof decl,
                             .name = name[0],
                             .desc = lathe_desc_2d(LATHE_F32, vocabulary, r),
                             .init = LATHE_INIT_ZERO,
                             .trainable = 1,
                             .transposed = 1,
                             .second = head != NULL ? second[0] : NULL};
    if (strlen(module) > 480 || (head != NULL && strlen(head) > 480))
        return lathe_fail(l->host, LATHE_E_UNSUPPORTED, "%s: the name %s is too long", l->method,
                          module);
    (void)snprintf(name[0], sizeof name[0], "%s.lora_embedding_A", module);
    (void)snprintf(name[1], sizeof name[1], "%s.lora_embedding_B", module);
    (void)snprintf(second[0], sizeof second[0], "%s.lora_B.weight", head != NULL ? head : "");
    (void)snprintf(second[1], sizeof second[1], "%s.lora_A.weight", head != NULL ? head : "");
    LATHE_TRY(api->param(g, &decl, out_a));
    decl.name = name[1];
    decl.desc = lathe_desc_2d(LATHE_F32, width, r);
    decl.init = LATHE_INIT_NORMAL;
    decl.init_scale = 1.0;
    decl.transposed = 0;
    if (l->mica) { /* the left singular vectors of the [C, V] of PEFT's embedding */
        decl.init = LATHE_INIT_MINOR_RIGHT;
        decl.init_from = weight;
        decl.trainable = 0;
    }
    if (head != NULL) { /* PEFT initializes the head's pair after the embedding's */
        decl.second = second[1];
        decl.init = l->gaussian ? LATHE_INIT_NORMAL : LATHE_INIT_UNIFORM;
        decl.init_scale = l->gaussian ? 1.0 / (double)r : 1.0 / sqrt((double)width);
    }
    return api->param(g, &decl, out_b);
}

lathe_status lora_embed_update(lora *l, const lathe_graph_api *api, lathe_graph *g,
                               const lathe_site *site, lathe_val tokens, lathe_val *out_a,
                               lathe_val *out_b, lathe_val *out_update)
{
    const lathe_op_attrs scale = {.alpha = lora_scale(l, site->module)};
    lathe_val in[2] = {tokens, LATHE_NONE}, h = LATHE_NONE;
    LATHE_TRY(check_embedding(l, site));
    LATHE_TRY(targets_remember(&l->targets, site));
    LATHE_TRY(declare_embedding(l, api, g, site->module, shares(l, site) ? site->tied : NULL,
                                site->in_features, site->out_features, site->weight, out_a, out_b));
    in[1] = *out_a;
    LATHE_TRY(api->node(g, LATHE_OP_EMBED, NULL, in, 2, &h, 1, -1, "lora_embedding_A"));
    if (scale.alpha != 1.0)
        LATHE_TRY(api->node(g, LATHE_OP_SCALE, &scale, &h, 1, &h, 1, -1, "lora.scale"));
    return api->linear(g, h, *out_b, LATHE_NONE, "lora_embedding_B", out_update);
}

lathe_status lora_embed(void *self, const lathe_graph_api *api, lathe_graph *g,
                        const lathe_site *site, lathe_val tokens, int32_t enabled, lathe_val *out_y)
{
    lathe_val in[2] = {tokens, site->weight}, a = LATHE_NONE, b = LATHE_NONE;
    LATHE_TRY(api->node(g, LATHE_OP_EMBED, NULL, in, 2, out_y, 1, -1, last_part(site->module)));
    if (!enabled)
        return LATHE_OK;
    in[0] = *out_y;
    LATHE_TRY(lora_embed_update(self, api, g, site, tokens, &a, &b, &in[1]));
    return api->node(g, LATHE_OP_ADD, NULL, in, 2, out_y, 1, 0, "lora.add");
}

static lathe_status check_head(lora *l, const lathe_site *site)
{
    if (l->lora_bias)
        return refuse_bias(l, site);
    if (l->pissa || l->loftq_iter > 0)
        return lathe_fail_at(l->host, LATHE_E_CONFIG, "init",
                             "%s: init = \"%s\" is not offered for the head %s: take it out of "
                             "target_modules, or use another init",
                             l->method, l->pissa ? "pissa" : "loftq", site->module);
    warn_of_one_use(l, site);
    return LATHE_OK;
}

int32_t lora_targets_head(const lora *l, const lathe_site *site)
{
    lathe_site embedding = {
        .size = sizeof embedding, .layer = -1, .module = site->tied, .kind = LATHE_SITE_EMBEDDING};
    return targets_include(&l->targets, shares(l, site) ? &embedding : site);
}

lathe_status lora_head(void *self, const lathe_graph_api *api, lathe_graph *g,
                       const lathe_site *site, lathe_val x, lathe_val *out_u, lathe_val *out_v)
{
    lathe_val a = LATHE_NONE;
    return lora_head_pair(self, api, g, site, x, out_u, &a, out_v);
}

lathe_status lora_head_pair(lora *l, const lathe_graph_api *api, lathe_graph *g,
                            const lathe_site *site, lathe_val x, lathe_val *out_u, lathe_val *out_a,
                            lathe_val *out_v)
{
    const lathe_op_attrs scale = {.alpha = lora_scale(l, site->module)};
    lathe_val a = LATHE_NONE, b = LATHE_NONE, h = LATHE_NONE;
    LATHE_TRY(check_head(l, site));
    if (shares(l, site)) { /* lora_A is the embedding's B^T, lora_B its A^T */
        LATHE_TRY(declare_embedding(l, api, g, site->tied, site->module, site->out_features,
                                    site->in_features, LATHE_NONE, &b, &a));
        LATHE_TRY(api->node(g, LATHE_OP_TRANSPOSE, NULL, &a, 1, &a, 1, -1, "lora.tied"));
    } else {
        LATHE_TRY(targets_remember(&l->targets, site));
        LATHE_TRY(lora_declare_pair(l, api, g, site, &a, &b));
    }
    LATHE_TRY(lora_drop(l, api, g, x, &h));
    LATHE_TRY(api->linear(g, h, a, LATHE_NONE, "lora_A", &h));
    if (scale.alpha != 1.0)
        LATHE_TRY(api->node(g, LATHE_OP_SCALE, &scale, &h, 1, &h, 1, -1, "lora.scale"));
    *out_u = h;
    *out_a = a;
    *out_v = b;
    return LATHE_OK;
}

/* ---- merging into an embedding ---- */

typedef struct embedding_job {
    const float *a, *b; /* [V, r], [C, r] */
    float *w;           /* [V, C] */
    int64_t r, width;
    float scale;
} embedding_job;

static void merge_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const embedding_job *job = arg;
    (void)worker;
    for (int64_t t = begin; t < end; t++)
        for (int64_t c = 0; c < job->width; c++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < job->r; k++)
                sum += job->a[t * job->r + k] * job->b[c * job->r + k];
            job->w[t * job->width + c] += job->scale * sum;
        }
}

lathe_status lora_merge_embedding(const lora *l, const lathe_site *site,
                                  const lathe_site_param *params, int32_t n_params, float *w)
{
    const lathe_site_param *a = targets_find_param(params, n_params, "lora_embedding_A");
    const lathe_site_param *b = targets_find_param(params, n_params, "lora_embedding_B");
    const int64_t r = lora_rank(l, site->module);
    if (site->tied != NULL && !l->targets.saved.ties)
        return lathe_fail(l->host, LATHE_E_CONFIG,
                          "%s: the adapter changes %s and leaves %s as it is, or changes it in "
                          "another way, and both are one matrix in this model "
                          "(tie_word_embeddings): it cannot be merged. Train with "
                          "ensure_weight_tying = true, or use the adapter without merging",
                          l->method, site->module, site->tied);
    if (a == NULL || b == NULL)
        return lathe_fail(l->host, LATHE_E_NOT_FOUND,
                          "%s: %s has no lora_embedding_A and lora_embedding_B to merge", l->method,
                          site->module);
    if (a->desc.dims[0] != site->in_features || a->desc.dims[1] != r ||
        b->desc.dims[0] != site->out_features || b->desc.dims[1] != r)
        return lathe_fail(l->host, LATHE_E_SHAPE,
                          "%s: %s: A [%lld, %lld] and B [%lld, %lld]; expected [%lld, %lld] and "
                          "[%lld, %lld]",
                          l->method, site->module, (long long)a->desc.dims[0],
                          (long long)a->desc.dims[1], (long long)b->desc.dims[0],
                          (long long)b->desc.dims[1], (long long)site->in_features, (long long)r,
                          (long long)site->out_features, (long long)r);
    embedding_job job = {
        a->data, b->data, w, r, site->out_features, (float)lora_scale(l, site->module)};
    l->host->parallel_for(site->in_features, 16, merge_rows, &job);
    return LATHE_OK;
}
