/* @NAME@: a decoder with RMSNorm, rotary positions, grouped attention and SwiGLU, like Llama.
 *
 * Each layer chooses its window, rotary table, scale and cap of the scores, the norms and their
 * places, and its activation.
 */
#include <lathe/kit/decoder_family.h>

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("@NAME@", "false"),
    LATHE_DECODER_FIELDS("2048"),
    LATHE_POSITIVE("rms_norm_eps", "1e-6", 1.0, "added to the mean square in RMSNorm"),
    LATHE_ROPE_FIELDS("10000.0"),
    LATHE_WINDOW_FIELD(NULL, "keys that a query sees in every other layer; unset: all"),
};

static const lathe_model_type types[] = {{"@NAME@", "@NAME@ForCausalLM"}};

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    lathe_decoder_rope(d, 10000.0);
    for (int32_t i = 0; i < d->info.n_layers; i += 2)
        d->shapes[i].window = (int32_t)lathe_key_int(k, "sliding_window");
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(@NAME@, types, NULL, 0, read, .version = "0.1.0",
                     .summary = "a decoder with RMSNorm, rotary positions and SwiGLU",
                     .source = "ours", .license = "Apache-2.0");
