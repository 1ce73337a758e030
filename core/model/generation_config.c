/* Reads generation_config.json. */
#include "model/generation_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "gguf/model_files.h"
#include "model/config_reader.h"

/* Keys that change what transformers generates, which Lathe does not apply, with the number that
 * has no effect. Other values without effect: null, false, an empty list or object. */
static const struct {
    const char *key;
    double idle;
} ignored[] = {{"num_beams", 1},
               {"num_beam_groups", 1},
               {"penalty_alpha", 0},
               {"no_repeat_ngram_size", 0},
               {"encoder_no_repeat_ngram_size", 0},
               {"encoder_repetition_penalty", 1},
               {"typical_p", 1},
               {"epsilon_cutoff", 0},
               {"eta_cutoff", 0},
               {"top_h", 1},
               {"guidance_scale", 1},
               {"min_length", 0},
               {"min_new_tokens", 0},
               {"stop_strings", 0},
               {"bad_words_ids", 0},
               {"suppress_tokens", 0},
               {"begin_suppress_tokens", 0},
               {"forced_bos_token_id", -1},
               {"forced_eos_token_id", -1},
               {"exponential_decay_length_penalty", 0},
               {"sequence_bias", 0},
               {"watermarking_config", 0}};

static int does_nothing(const json_t *value, double idle)
{
    if (json_is_number(value))
        return json_number_value(value) == idle;
    if (json_is_array(value))
        return json_array_size(value) == 0;
    if (json_is_object(value))
        return json_object_size(value) == 0;
    return value == NULL || json_is_null(value) || json_is_false(value);
}

static void warn_of_ignored(const lathe_config_reader *r)
{
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) {
        const json_t *value = json_object_get(r->object, ignored[i].key);
        if (does_nothing(value, ignored[i].idle))
            continue;
        char *seen = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        lathe_log(LATHE_LOG_WARN, "%s: %s = %.100s is not applied: %s", r->name, ignored[i].key,
                  seen ? seen : "?",
                  strcmp(ignored[i].key, "stop_strings") == 0 ? "set generate.stop"
                                                              : "Lathe has no such setting");
        free(seen);
    }
}

/* Records whether the file sets a key. */
static void note(const lathe_config_reader *r, const char *key, int32_t bit,
                 lathe_generation_config *out)
{
    const json_t *value = json_object_get(r->object, key);
    if (value != NULL && !json_is_null(value))
        out->written |= 1u << bit;
}

/* A probability above 0 and at most 1. */
static double read_share(lathe_config_reader *r, const char *key, double def)
{
    const double x = lathe__config_positive(r, key, def);
    if (r->status == LATHE_OK && x > 1.0)
        lathe__config_refuse(r, key, "expected a number above 0, at most 1");
    return x;
}

static void read_keys(lathe_config_reader *r, lathe_generation_config *out)
{
    static const struct {
        const char *key;
        int32_t bit;
    } keys[] = {{"do_sample", LATHE_GENERATION_DO_SAMPLE},
                {"temperature", LATHE_GENERATION_TEMPERATURE},
                {"top_k", LATHE_GENERATION_TOP_K},
                {"top_p", LATHE_GENERATION_TOP_P},
                {"min_p", LATHE_GENERATION_MIN_P},
                {"repetition_penalty", LATHE_GENERATION_REPETITION_PENALTY},
                {"max_new_tokens", LATHE_GENERATION_MAX_NEW_TOKENS},
                {"max_length", LATHE_GENERATION_MAX_LENGTH},
                {"eos_token_id", LATHE_GENERATION_EOS}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        note(r, keys[i].key, keys[i].bit, out);
    out->do_sample = lathe__config_bool(r, "do_sample", 0);
    /* without sampling transformers reads neither; in many files the temperature is 0 then */
    const int32_t sampled = out->do_sample;
    out->temperature = sampled ? lathe__config_positive(r, "temperature", 1.0) : 1.0;
    out->top_p = read_share(r, "top_p", 1.0);
    out->min_p = lathe__config_share(r, "min_p");
    out->top_k = lathe__config_int(r, "top_k", 50, 0, INT32_MAX);
    out->repetition_penalty = lathe__config_positive(r, "repetition_penalty", 1.0);
    out->max_new_tokens = lathe__config_int(r, "max_new_tokens", 0, 1, INT32_MAX);
    out->max_length = lathe__config_int(r, "max_length", 0, 1, INT32_MAX);
    lathe__config_eos(r, out->eos, LATHE_MAX_EOS, &out->n_eos);
    if (r->status == LATHE_OK)
        warn_of_ignored(r);
}

lathe_status lathe_generation_config_load(const char *folder, lathe_generation_config *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *object = NULL;
    memset(out, 0, sizeof *out);
    const char *path = lathe_model_place(&arena, folder, "generation_config.json");
    lathe_status status = path != NULL ? LATHE_OK : LATHE_E_NOMEM;
    if (status == LATHE_OK && lathe_model_has(folder, "generation_config.json")) {
        out->is_present = 1;
        status = lathe_model_json(folder, "generation_config.json", &object);
        if (status == LATHE_OK && !json_is_object(object))
            status = lathe_error(LATHE_E_CONFIG, "%s: not a JSON object", path);
        lathe_config_reader r = {.name = path, .object = object, .status = status};
        if (status == LATHE_OK) {
            read_keys(&r, out);
            status = r.status;
        }
    }
    json_decref(object);
    lathe_arena_fini(&arena);
    return status;
}
