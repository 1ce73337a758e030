/* The draft model of speculative decoding: its parameters and weights. */
#include "generate/draft_model.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/model_path.h"
#include "exec/store/weight_fill.h"
#include "files/gguf/model_files.h"
#include "model/family/stored_formats.h"
#include "model/family/weights.h"
#include "plug/op_library.h"

struct lathe_draft {
    lathe_draft_config config;
    lathe_model_config model;
    lathe_params params;
    lathe_quant_source *source; /* owns the formats of its folder; NULL: it is not quantized */
    lathe_store store;
    int32_t is_placed;
};

static lathe_status check_model(const lathe_draft *d)
{
    const lathe_model_config *m = &d->model;
    if (m->n_labels > 0)
        return lathe_error(LATHE_E_CONFIG,
                           "%s is a sequence classifier, which has no head over the vocabulary; "
                           "expected a language model",
                           d->config.path);
    if (d->config.seq_len > m->max_positions)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: the draft model has %lld positions, fewer than the %lld of the "
                           "sequences: set data.seq_len to at most %lld, or name another draft",
                           d->config.path, (long long)m->max_positions,
                           (long long)d->config.seq_len, (long long)m->max_positions);
    return LATHE_OK;
}

static lathe_status make_params(lathe_draft *d)
{
    lathe_params_init(&d->params, d->config.compute_dtype);
    d->params.ops = lathe_registry_ops(d->config.source.registry);
    LATHE_TRY(lathe_model_params(&d->model, &d->params));
    d->params.n_model = d->params.n;
    LATHE_TRY(lathe_stored_formats_take(d->config.source.registry, d->config.path, &d->model,
                                        &d->params, &d->source));
    for (int32_t i = 0; i < d->params.n; i++) {
        d->params.rows[i]->other = LATHE_OTHER_DRAFT;
        d->params.rows[i]->dtype = d->config.compute_dtype;
    }
    return lathe_store_init(&d->store, &d->params, NULL, 0);
}

lathe_status lathe_draft_create(const lathe_draft_config *config, lathe_draft **out)
{
    char hint[LATHE_HUB_HINT];
    *out = NULL;
    if (!lathe_path_exists(config->path))
        return lathe_error(LATHE_E_CONFIG, "%s: no such folder or GGUF file%s", config->path,
                           lathe_hub_hint(config->path, hint, sizeof hint));
    lathe_draft *d = calloc(1, sizeof *d);
    if (!d)
        return lathe_error(LATHE_E_NOMEM, "no memory for a draft model");
    d->config = *config;
    lathe_status status = lathe_model_config_load(&config->source, config->path, &d->model);
    if (status == LATHE_OK)
        status = lathe_model_config_refuse_two_way(&d->model, config->path, "generation");
    if (status == LATHE_OK)
        status = check_model(d);
    if (status == LATHE_OK)
        status = make_params(d);
    if (status != LATHE_OK) {
        lathe_draft_destroy(d);
        return status;
    }
    *out = d;
    return LATHE_OK;
}

void lathe_draft_destroy(lathe_draft *d)
{
    if (!d)
        return;
    lathe_store_fini(&d->store, d->is_placed ? d->config.machine : NULL);
    lathe_params_fini(&d->params);
    lathe_quant_source_destroy(d->source);
    lathe_model_config_fini(&d->model);
    free(d);
}

const lathe_model_config *lathe_draft_model(const lathe_draft *d)
{
    return &d->model;
}

int64_t lathe_draft_bytes(const lathe_draft *d)
{
    return d->store.other_bytes;
}

lathe_status lathe_draft_load(lathe_draft *d)
{
    lathe_safetensors *set = NULL;
    lathe_weight_fill fill = {.store = &d->store, .params = &d->params};
    const lathe_weight_sink sink = lathe_weight_fill_sink(&fill);
    if (d->is_placed)
        return LATHE_OK;
    d->is_placed = 1;
    LATHE_TRY(lathe_store_place(&d->store, d->config.machine));
    LATHE_TRY(lathe_model_weights(d->config.path, &set));
    const lathe_status status = lathe_weights_load(set, &d->model, &d->params, &sink);
    lathe_weight_fill_fini(&fill);
    lathe_safetensors_close(set);
    return status;
}

void lathe_draft_parts(const lathe_draft *d, const lathe_generator_parts *parts,
                       const lathe_generator_config *config, lathe_generator_parts *out_parts,
                       lathe_generator_config *out_config)
{
    lathe_draft *own = (lathe_draft *)(uintptr_t)d;
    *out_parts = *parts;
    out_parts->store = &own->store;
    out_parts->params = &own->params;
    out_parts->model = &own->model;
    out_parts->draft = NULL;
    *out_config = *config;
    out_config->program = (lathe_program_config){
        .model = &own->model, .params = &own->params, .machine = parts->machine};
}
