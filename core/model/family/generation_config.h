/* Reads generation_config.json, the generation settings of a model's authors, as transformers'
 * generate does. */
#ifndef LATHE_MODEL_GENERATION_CONFIG_H
#define LATHE_MODEL_GENERATION_CONFIG_H

#include "model/family/hf_config.h"
#include "model/family/hf_config_keys.h"

enum {
    LATHE_GENERATION_DO_SAMPLE = 0,
    LATHE_GENERATION_TEMPERATURE = 1,
    LATHE_GENERATION_TOP_K = 2,
    LATHE_GENERATION_TOP_P = 3,
    LATHE_GENERATION_MIN_P = 4,
    LATHE_GENERATION_REPETITION_PENALTY = 5,
    LATHE_GENERATION_MAX_NEW_TOKENS = 6,
    LATHE_GENERATION_MAX_LENGTH = 7,
    LATHE_GENERATION_EOS = 8,
    LATHE_GENERATION_KEYS = 9
};

/** The keys that Lathe applies. A key that is missing or null has the value in brackets, and so has
 *  one whose value cannot be applied: `wrong` says why, and who uses it refuses it
 *  (lathe_generation_config_use). transformers loads and trains a model with any value, and refuses
 *  it in generate(). */
typedef struct lathe_generation_config {
    int32_t is_present; /* 0: the folder has no such file, and the fields below are not valid */
    int32_t do_sample;  /* 1: sampling; 0 [0]: the most likely token */
    double temperature; /* [1] > 0 */
    double top_p;       /* [1] */
    double min_p;       /* [0] */
    double repetition_penalty;          /* [1] */
    int64_t top_k;                      /* [50]; 0: all tokens */
    int64_t max_new_tokens, max_length; /* [0]: not set */
    int32_t eos[LATHE_MAX_EOS];
    int32_t n_eos;    /* [0]: the file names no end of text */
    uint32_t written; /* bit (1 << LATHE_GENERATION_*): keys that the file sets */
    char wrong[LATHE_GENERATION_KEYS][256]; /* "FILE: KEY is VALUE; expected ..."; "": usable */
} lathe_generation_config;

/** Reads folder/generation_config.json; a folder without one is fine. Warns of the keys that would
 *  change what transformers generates and that Lathe does not apply (num_beams,
 *  no_repeat_ngram_size, ...), and of keys that are not known.
 *  LATHE_E_PARSE: not JSON. LATHE_E_CONFIG: no object.
 *  Source  transformers 5.23, generation/configuration_utils.py: GenerationConfig and its
 *          defaults. */
lathe_status lathe_generation_config_load(const char *folder, lathe_generation_config *out);
/** Like lathe_generation_config_load, of a text that may have been read already. */
lathe_status lathe_generation_config_load_with(lathe_model_texts *texts, const char *folder,
                                               lathe_generation_config *out);

/** To be called for a key whose value is used: LATHE_E_CONFIG with `wrong` if it cannot be. */
lathe_status lathe_generation_config_use(const lathe_generation_config *config, int32_t key);

/** Adds a token to eos_token_id of dir/generation_config.json, whose other bytes stay. A file
 * without end tokens, or that is not there, gets those that hold without it: of `model`, and `own`,
 * the tokenizer's (-1: none). Errors: of reading and writing the file. */
lathe_status lathe_generation_config_add_end(const char *dir, const lathe_model_config *model,
                                             int32_t own, int32_t id);

/** LATHE_KEY_* (config_keys.h) of a key. */
int32_t lathe_generation_config_key(const char *key);

#endif
