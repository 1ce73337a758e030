/* The LoRA instance: its settings, and names of the modules that it adapts. */
#ifndef LATHE_LORA_H
#define LATHE_LORA_H

#include "lathe/adapter.h"
#include "lora_pattern.h"

#define LORA_MAX_NAMES 64

typedef struct lora {
    const lathe_host *host;
    int64_t r;
    double alpha, dropout;
    int use_rslora;
    int all_linear;             /* target_modules is ["all-linear"] */
    const char *const *targets; /* suffixes, borrowed */
    int64_t n_targets;
    const char *rank_json, *alpha_json; /* the tables as given, borrowed */
    lora_patterns *ranks, *alphas;
    /* last parts of the module names adapted under all-linear, for adapter_config.json */
    char seen[LORA_MAX_NAMES][64];
    int n_seen;
    int saw_conv1d; /* some adapted weight is [in, out] on file */
} lora;

/** Rank and scaling factor (alpha/r, or alpha/sqrt(r) with rsLoRA) at a module. */
int64_t lora_rank(const lora *self, const char *module);
double lora_scale(const lora *self, const char *module);

/** adapter_config.json as PEFT reads it; lathe_adapter_v1.config_json. */
int64_t lora_config_json(void *self, const char *base, char *out, int64_t capacity);

#endif
