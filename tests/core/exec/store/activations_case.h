/* Runs with activations kept in host memory, in each way that the far device can run its
 * streams. */
#ifndef LATHE_TEST_ACTIVATIONS_CASE_H
#define LATHE_TEST_ACTIVATIONS_CASE_H

#include "offload_case.h"

/* Settings on top of set_small and five layers. */
typedef struct offload_case {
    const char *name;
    const char *set[8];
    int is_pairs;
} offload_case;

__attribute__((unused)) static const offload_case cases[] = {
    {"fp32", {"train.precision=fp32"}, 0},
    {"bf16, layers again", {"train.precision=bf16", "train.recompute=layer"}, 0},
    {"attention again", {"train.precision=bf16", "train.recompute=attention"}, 0},
    {"mlp again", {"train.precision=fp32", "train.recompute=mlp"}, 0},
    {"norms again", {"train.precision=bf16", "train.recompute=pointwise"}, 0},
    {"lora and dropout",
     {"train.precision=bf16", "adapter.name=lora", "adapter.r=4", "adapter.dropout=0.1"},
     0},
    {"qlora, layers again",
     {"train.precision=bf16", "adapter.name=lora", "adapter.r=4", "quant.name=nf4",
      "train.recompute=layer"},
     0},
    {"dpo", {"stage.name=dpo", "train.precision=fp32"}, 1},
    {"dpo, lora", {"stage.name=dpo", "train.precision=bf16", "adapter.name=lora"}, 1},
    {"muon, its state away too",
     {"train.precision=bf16", "optimizer.name=muon", "train.offload_optimizer=true",
      "train.offload_buffer=0.01"},
     0},
    {"sophia: estimates",
     {"train.precision=bf16", "optimizer.name=sophia", "optimizer.estimate_every=2"},
     0},
    {"fp16: steps without an update, evaluation between",
     {"train.precision=fp16", "train.loss_scale_init=16777216", "data.validation_split=0.2",
      "train.eval_every=2"},
     0},
};

typedef struct way {
    const char *eager, *capture;
} way;

__attribute__((unused)) static const way ways[] = {
    {"false", "on"}, {"true", "on"}, {"false", "off"}, {"true", "off"}};

enum { ON_THE_DEVICE = -1, N_WAYS = (int)(sizeof ways / sizeof ways[0]), LAYERS = 5 };

__attribute__((unused)) static void set_case(settings *s, const char *dir, const offload_case *c,
                                             int w)
{
    set_small(s, dir, ON_FAR);
    set(s, "model.num_hidden_layers=%d", LAYERS);
    if (c)
        set_all(s, c->set);
    if (c && c->is_pairs)
        set(s, "data.datasets=[{path = \"%s/corpus.jsonl\"}]", dir);
    if (w == ON_THE_DEVICE)
        return;
    set(s, "train.offload_activations=true");
    set(s, "device.eager=%s", ways[w].eager);
    set(s, "train.capture=%s", ways[w].capture);
}

#endif
