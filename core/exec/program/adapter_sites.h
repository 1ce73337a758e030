/* The places of a model where an adapter changes it: linear layers, the token embedding, the head
 * over the vocabulary. */
#ifndef LATHE_EXEC_ADAPTER_SITES_H
#define LATHE_EXEC_ADAPTER_SITES_H

#include "exec/program/builder.h"

/** lathe_model_build.linear, embed and embeds; arg: a lathe__builder. */
lathe_status lathe__site_linear(void *arg, const lathe_site *site, lathe_val x, lathe_val *out);
lathe_status lathe__site_embed(void *arg, const lathe_site *site, lathe_val tokens, lathe_val *out);
int32_t lathe__site_embeds(void *arg, const lathe_site *site);

/** Builds what the adapter changes at the head of the model b->model: logits of x c[N,C] are
 *  (x W^T + u v^T) * s. LATHE_NONE: nothing. */
lathe_status lathe__site_head(lathe__builder *b, lathe_val x, lathe__head_change *out);

/** Builds the logits (x W^T + u v^T) * s, in f32 if there is s, else in x's dtype. */
lathe_status lathe__site_logits(lathe_graph *g, lathe_val x, lathe_val w,
                                const lathe__head_change *change, lathe_val *out);

#endif
