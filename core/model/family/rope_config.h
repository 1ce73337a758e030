/* The settings of a table of rotary frequencies: rope_theta with rope_scaling or rope_parameters of
 * a config.json. */
#ifndef LATHE_MODEL_ROPE_CONFIG_H
#define LATHE_MODEL_ROPE_CONFIG_H

#include "base/arena.h"
#include "lathe/model.h"
#include "model/family/config_reader.h"

enum {
    LATHE_ROPE_NONE = 0,
    LATHE_ROPE_DEFAULT = 1,
    LATHE_ROPE_LINEAR = 2,
    LATHE_ROPE_LLAMA3 = 3,
    LATHE_ROPE_DYNAMIC = 4, /* as DEFAULT up to max_position_embeddings, the longest row */
    LATHE_ROPE_YARN = 5,
    LATHE_ROPE_LONGROPE = 6
};

#define LATHE_MAX_ROPES 4
#define LATHE_MAX_ROPE_DIMS 1024

typedef struct lathe_rope_config {
    int32_t type; /* LATHE_ROPE_* */
    int32_t dims; /* channels of a head that are rotated */
    double theta;
    double factor;                            /* LINEAR, LLAMA3, YARN */
    double low_freq_factor, high_freq_factor; /* LLAMA3 */
    int64_t original_max_positions;           /* LLAMA3, YARN, LONGROPE */
    double attention_factor;                  /* factor of the cosines and sines; 1: no effect */
    double score_factor;                      /* lathe_model_builder.score_factor */
    double beta_fast, beta_slow;              /* YARN */
    /* YARN: the range of blended channels begins and ends at whole channels */
    int32_t truncate, reserved;
    const float *short_factor, *long_factor; /* LONGROPE: [dims/2] */
} lathe_rope_config;

/** Reads the settings of one table. max_positions is the model's. Lists are allocated in the arena.
 *  Failures are stored in r->status.
 *
 *   Source  transformers 5.23, modeling_rope_utils.py. */
void lathe_rope_config_read(lathe_config_reader *r, const lathe_rope_use *use,
                            int64_t max_positions, lathe_arena *arena, lathe_rope_config *out);

#endif
