/* A golden model folder opened for a test: configuration, parameter table, weights as f32. */
#ifndef LATHE_TEST_GOLDEN_MODEL_H
#define LATHE_TEST_GOLDEN_MODEL_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "family_source.h"
#include "files/safetensors/expert_tensors.h"
#include "model/family/model_build.h"
#include "model/family/weights.h"

#define MODELS LATHE_TEST_DATA "/golden/data/models/"
#define OK(call) cr_assert_eq((call), LATHE_OK, "%s: %s", #call, lathe_error_message())

typedef struct golden {
    lathe_model_config config;
    lathe_params params;
    lathe_safetensors *weights, *golden; /* golden: NULL if there is none */
    float **data;                        /* [params.n], our layout */
} golden;

static lathe_status golden_place(void *arg, int32_t index, const lathe_param *row, void **out,
                                 int32_t *dtype)
{
    golden *g = arg;
    cr_assert_eq(*dtype, LATHE_F32);
    g->data[index] = malloc((size_t)lathe_desc_bytes(&row->desc));
    *out = g->data[index];
    return LATHE_OK;
}

static void golden_open(golden *g, const char *name)
{
    char path[512];
    memset(g, 0, sizeof *g);
    snprintf(path, sizeof path, "%s%s", MODELS, name);
    OK(lathe_model_config_load(family_source(), path, &g->config));
    OK(lathe_safetensors_open_joined(path, &g->weights));
    lathe_params_init(&g->params, LATHE_F32);
    OK(lathe_model_params(&g->config, &g->params));
    g->data = calloc((size_t)g->params.n, sizeof *g->data);
    const lathe_weight_sink sink = {.place = golden_place, .arg = g};
    OK(lathe_weights_load(g->weights, &g->config, &g->params, &sink));
    snprintf(path, sizeof path, "%s%s/golden.safetensors", MODELS, name);
    if (strcmp(name, "llama_sharded") != 0)
        OK(lathe_safetensors_open(path, &g->golden));
}

static void golden_close(golden *g)
{
    for (int32_t i = 0; i < g->params.n; i++)
        free(g->data[i]);
    free(g->data);
    lathe_safetensors_close(g->weights);
    lathe_safetensors_close(g->golden);
    lathe_params_fini(&g->params);
    lathe_model_config_fini(&g->config);
}

#endif
