/* Writes rotary frequencies as keys and tensors of GGUF. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "files/gguf/gguf_config.h"
#include "model/convert/gguf_config_write.h"

/* The table of the layers without a window; Gemma 3 has another one for those with. */
static const lathe_rope_config *main_rope(const lathe_model_config *c)
{
    return &c->ropes[c->n_ropes - 1];
}

static void put_text(lathe_gguf_writer *w, const char *key, const char *text)
{
    lathe_gguf_put_text(w, key, text, (int64_t)strlen(text));
}

static void put_yarn(const lathe_gguf_family *family, const lathe_rope_config *rope,
                     lathe_gguf_writer *w)
{
    char key[96];
    const double usual = rope->factor > 1.0 ? 0.1 * log(rope->factor) + 1.0 : 1.0;
    lathe_gguf_put_u32(
        w, lathe__gguf_key(family, "rope.scaling.original_context_length", key, sizeof key),
        rope->original_max_positions);
    lathe_gguf_put_float(w, lathe__gguf_key(family, "rope.scaling.yarn_beta_fast", key, sizeof key),
                         rope->beta_fast);
    lathe_gguf_put_float(w, lathe__gguf_key(family, "rope.scaling.yarn_beta_slow", key, sizeof key),
                         rope->beta_slow);
    if (fabs(rope->attention_factor - usual) > 1e-6)
        lathe_gguf_put_float(
            w, lathe__gguf_key(family, "rope.scaling.yarn_attn_factor", key, sizeof key),
            rope->attention_factor);
}

static void put_scaling(const lathe_gguf_family *family, const lathe_rope_config *rope,
                        lathe_gguf_writer *w)
{
    char key[96];
    const char *type = rope->type == LATHE_ROPE_LINEAR     ? "linear"
                       : rope->type == LATHE_ROPE_YARN     ? "yarn"
                       : rope->type == LATHE_ROPE_LONGROPE ? "longrope"
                                                           : NULL;
    if (type == NULL)
        return;
    put_text(w, lathe__gguf_key(family, "rope.scaling.type", key, sizeof key), type);
    if (rope->type == LATHE_ROPE_LINEAR || rope->type == LATHE_ROPE_YARN)
        lathe_gguf_put_float(w, lathe__gguf_key(family, "rope.scaling.factor", key, sizeof key),
                             rope->factor);
    if (rope->type == LATHE_ROPE_YARN)
        put_yarn(family, rope, w);
    if (rope->type == LATHE_ROPE_LONGROPE) {
        lathe_gguf_put_u32(
            w, lathe__gguf_key(family, "rope.scaling.original_context_length", key, sizeof key),
            rope->original_max_positions);
        lathe_gguf_put_float(w,
                             lathe__gguf_key(family, "rope.scaling.attn_factor", key, sizeof key),
                             rope->attention_factor);
    }
}

lathe_status lathe__gguf_rope_write(const lathe_gguf_family *family,
                                    const lathe_model_config *config, lathe_gguf_writer *w)
{
    char key[96];
    if (config->n_ropes == 0)
        return LATHE_OK;
    const lathe_rope_config *rope = main_rope(config);
    if (config->n_ropes > 1 && config->ropes[0].type != LATHE_ROPE_DEFAULT)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "a model whose layers with a window have scaled rotary positions cannot "
                           "be written as GGUF: it has keys for the other layers alone");
    lathe_gguf_put_u32(w, lathe__gguf_key(family, "rope.dimension_count", key, sizeof key),
                       rope->dims);
    lathe_gguf_put_float(w, lathe__gguf_key(family, "rope.freq_base", key, sizeof key),
                         rope->theta);
    if (config->n_ropes > 1)
        lathe_gguf_put_float(w, lathe__gguf_key(family, "rope.freq_base_swa", key, sizeof key),
                             config->ropes[0].theta);
    if (rope->type == LATHE_ROPE_DYNAMIC)
        lathe_log(LATHE_LOG_WARN, "rope_type dynamic has no key in GGUF: the file is right for "
                                  "contexts of up to max_position_embeddings tokens");
    put_scaling(family, rope, w);
    return LATHE_OK;
}

lathe_status lathe_gguf_factors_make(const lathe_gguf_family *family,
                                     const lathe_model_config *config, lathe_arena *arena,
                                     lathe_gguf_factors out[2], int32_t *out_n)
{
    *out_n = 0;
    if (config->n_ropes == 0)
        return LATHE_OK;
    const lathe_rope_config *rope = main_rope(config);
    if (rope->type == LATHE_ROPE_LONGROPE) {
        out[0] =
            (lathe_gguf_factors){"rope_factors_long.weight", rope->long_factor, rope->dims / 2};
        out[1] =
            (lathe_gguf_factors){"rope_factors_short.weight", rope->short_factor, rope->dims / 2};
        *out_n = 2;
    }
    if (rope->type != LATHE_ROPE_LLAMA3)
        return LATHE_OK;
    if (!family->permutes && !family->reads_factors)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "rope_type llama3 cannot be written as GGUF for a model of type %s",
                           config->model_type);
    float *values = lathe_arena_alloc(arena, rope->dims / 2 * (int64_t)sizeof *values);
    if (values == NULL)
        return LATHE_E_NOMEM;
    lathe__gguf_llama3_factors(rope->theta, rope->dims, rope->factor, rope->low_freq_factor,
                               rope->high_freq_factor, (double)rope->original_max_positions,
                               values);
    out[0] = (lathe_gguf_factors){"rope_freqs.weight", values, rope->dims / 2};
    *out_n = 1;
    return LATHE_OK;
}
