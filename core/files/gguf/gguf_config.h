/* Makes a config.json from the keys of a GGUF file. */
#ifndef LATHE_FILES_GGUF_CONFIG_H
#define LATHE_FILES_GGUF_CONFIG_H

#include <jansson.h>

#include "files/gguf/gguf_family.h"
#include "files/gguf/gguf_file.h"

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

/** The shortest decimal that is this float: 1e-05 for 9.99999975e-06. */
double lathe__gguf_short_float(double x);

/** Factors f32[dims/2] that divide the rotary frequencies of rope_type llama3. */
void lathe__gguf_llama3_factors(double theta, int64_t dims, double factor, double low, double high,
                                double original, float *out);

#endif
