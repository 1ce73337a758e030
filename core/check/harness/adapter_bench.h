/* Builds a model with one site, around which an adapter builds its graph: a linear layer, the token
 * embedding, or the head. */
#ifndef LATHE_CHECK_ADAPTER_BENCH_H
#define LATHE_CHECK_ADAPTER_BENCH_H

#include "check/harness/subject.h"
#include "graph/ir/ir_graph.h"
#include "lathe/adapter.h"

enum {
    LATHE__SITE_IN = 24,
    LATHE__SITE_OUT = 16,
    LATHE__SITE_TOKENS = 6,
    LATHE__SITE_VOCABULARY = 40
};

/* The model's own parameters: one of every role, so that an adapter may train any of them. */
enum {
    LATHE__ROW_WEIGHT,
    LATHE__ROW_BIAS,
    LATHE__ROW_NORM,
    LATHE__ROW_EMBEDDING,
    LATHE__ROW_HEAD,
    LATHE__N_ROWS
};

/* Modules of the embedding and of the head, for lathe__adapter_bench_init. */
#define LATHE__EMBEDDING_MODULE "model.embed_tokens"
#define LATHE__HEAD_MODULE "lm_head"

/* A model: embedding, norm, a linear layer with its bias, head, sum of log-probabilities. One of
 * them is the site. */
typedef struct lathe__adapter_bench {
    lathe_instance instance;
    const lathe_adapter_v1 *table;
    lathe_params params;
    lathe_graph *g;
    lathe_site site;
    char module[64], names[LATHE__N_ROWS][80];
    lathe_val rows[LATHE__N_ROWS], tokens;
    lathe_val x;                  /* the site's input; LATHE_NONE at the embedding */
    lathe_val u, v, s;            /* of the head; LATHE_NONE: the head stays */
    lathe_val y, base_y, plain_y; /* the site's output with the adapter, with enabled = 0, and
                                     without; of the head: the logits */
    lathe_val loss;
    int32_t compute; /* dtype */
    int32_t targeted;
} lathe__adapter_bench;

/** Builds the model with the adapter around the site `module`, in bf16 or in a compute dtype;
 * checks what the adapter declares. An adapter with a key target_modules that does not target the
 * embedding or the head gets it by that key. lathe__adapter_bench_fini after success. */
lathe_status lathe__adapter_bench_init(lathe__adapter_bench *b, lathe__subject *s,
                                       const char *module);
lathe_status lathe__adapter_bench_init_in(lathe__adapter_bench *b, lathe__subject *s,
                                          const char *module, int32_t compute);
void lathe__adapter_bench_fini(lathe__adapter_bench *b);

/** The site's output with the adapter, or with enabled = 0 of the adapter switched off; checks its
 *  shape. */
lathe_status lathe__adapter_bench_wrap(lathe__adapter_bench *b, int32_t enabled, lathe_val *out);

#endif
