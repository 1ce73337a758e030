/* The configuration of a model as keys of a GGUF file, and as a config.json. */
#ifndef LATHE_GGUF_GGUF_CONFIG_H
#define LATHE_GGUF_GGUF_CONFIG_H

#include <jansson.h>

#include "gguf/gguf_family.h"
#include "gguf/gguf_file.h"
#include "gguf/gguf_writer.h"

/** Writes the keys of the architecture and of rotary frequencies. Warns of settings that GGUF has
 *  no key for, or that llama.cpp does not apply. LATHE_E_UNSUPPORTED: it cannot be written. */
lathe_status lathe_gguf_config_write(const lathe_gguf_family *family,
                                     const lathe_model_config *config, lathe_gguf_writer *w);

/** Rotary factors that are tensors in GGUF, f32[n]: name and values in the arena; count at most 2.
 */
typedef struct lathe_gguf_factors {
    const char *name;
    const float *values;
    int64_t n;
} lathe_gguf_factors;

lathe_status lathe_gguf_factors_make(const lathe_gguf_family *family,
                                     const lathe_model_config *config, lathe_arena *arena,
                                     lathe_gguf_factors out[2], int32_t *out_n);

/** The object of a config.json for the file's model, without token ids and dtype. LATHE_E_CONFIG
 *  names the key that is missing or cannot be used. */
lathe_status lathe_gguf_config_read(const lathe_gguf_family *family, const lathe_gguf *file,
                                    json_t **out);

/* ---- between the files of this part ---- */

/** Name of a key of the architecture, "llama.block_count", in buffer[n]; returns it. */
const char *lathe__gguf_key(const lathe_gguf_family *family, const char *name, char *buffer,
                            size_t n);

/** Adds rope_theta, rope_scaling and partial_rotary_factor to a config.json. */
lathe_status lathe__gguf_rope_read(const lathe_gguf_family *family, const lathe_gguf *file,
                                   int64_t head_dim, json_t *config);

/** Writes the keys of rotary frequencies. */
lathe_status lathe__gguf_rope_write(const lathe_gguf_family *family,
                                    const lathe_model_config *config, lathe_gguf_writer *w);

/** The shortest decimal that is this float: 1e-05 for 9.99999975e-06. */
double lathe__gguf_short_float(double x);

#endif
