/* libFuzzer target: any bytes as a config.json (first byte '!': as a strict [model] table). An
 * accepted file has a shape from which a model can be built, and its own text is accepted again. */
#include <string.h>

#include "fuzz/fuzz_file.h"
#include "model/family/hf_config.h"

static void check_shape(const lathe_model_config *c)
{
    if (c->model_type == NULL || c->vocab < 1 || c->width < 1 || c->n_layers < 1 ||
        c->n_heads < 1 || c->n_kv_heads < 1 || c->n_heads % c->n_kv_heads != 0 || c->head_dim < 1 ||
        c->max_positions < 1 || c->n_eos < 0 || c->n_eos > LATHE_MAX_EOS)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int32_t strict = size > 0 && data[0] == '!';
    static lathe_model_source source; /* the built-in families */
    lathe_model_config config, again;
    if (source.registry == NULL && lathe_registry_create(&source.registry) != LATHE_OK)
        abort();
    char *text = NULL;
    if (lathe_model_config_parse(&source, "fuzz", (const char *)data + strict,
                                 (int64_t)size - strict, strict, &config) != LATHE_OK)
        return 0;
    check_shape(&config);
    if (lathe_model_config_text(&config, &text) != LATHE_OK ||
        lathe_model_config_parse(&source, "again", text, (int64_t)strlen(text), 0, &again) !=
            LATHE_OK)
        abort();
    if (again.vocab != config.vocab || again.width != config.width || again.ffn != config.ffn ||
        again.n_layers != config.n_layers || again.n_heads != config.n_heads ||
        again.n_kv_heads != config.n_kv_heads || again.head_dim != config.head_dim ||
        again.max_positions != config.max_positions || again.tied != config.tied)
        abort();
    free(text);
    lathe_model_config_fini(&again);
    lathe_model_config_fini(&config);
    return 0;
}
