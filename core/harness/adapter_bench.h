/* Builds a model with one linear layer (site), around which an adapter builds its graph. */
#ifndef LATHE_HARNESS_ADAPTER_BENCH_H
#define LATHE_HARNESS_ADAPTER_BENCH_H

#include "harness/subject.h"
#include "ir/graph.h"
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

/* A model with one site: embedding, norm, the site with its bias, head, sum
 * of log-probabilities. */
typedef struct lathe__adapter_bench {
    lathe_instance instance;
    const lathe_adapter_v1 *table;
    lathe_params params;
    lathe_graph *g;
    lathe_site site;
    char module[64], names[LATHE__N_ROWS][80];
    lathe_val rows[LATHE__N_ROWS], x, y, base_y, plain_y, loss;
    int32_t compute; /* dtype */
    int32_t targeted;
} lathe__adapter_bench;

/** Builds the model with the adapter around the site `module`, in bf16 or in a compute dtype;
 * checks what the adapter declares. lathe__adapter_bench_fini after success. */
lathe_status lathe__adapter_bench_init(lathe__adapter_bench *b, lathe__subject *s,
                                       const char *module);
lathe_status lathe__adapter_bench_init_in(lathe__adapter_bench *b, lathe__subject *s,
                                          const char *module, int32_t compute);
void lathe__adapter_bench_fini(lathe__adapter_bench *b);

/** The site's output with the adapter, or with enabled = 0 of the adapter switched off; checks its
 *  shape. */
lathe_status lathe__adapter_bench_wrap(lathe__adapter_bench *b, int32_t enabled, lathe_val *out);

#endif
