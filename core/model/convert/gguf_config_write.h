/* Writes the configuration of a model as keys of a GGUF file. */
#ifndef LATHE_MODEL_GGUF_CONFIG_WRITE_H
#define LATHE_MODEL_GGUF_CONFIG_WRITE_H

#include "files/gguf/gguf_family.h"
#include "files/gguf/gguf_writer.h"
#include "model/family/hf_config.h"

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

/* ---- between the files of this part ---- */

/** Writes the keys of rotary frequencies. */
lathe_status lathe__gguf_rope_write(const lathe_gguf_family *family,
                                    const lathe_model_config *config, lathe_gguf_writer *w);

#endif
