/* Reads generation_config.json, and adds end tokens to it. */
#include "model/family/generation_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/json/json_cut.h"
#include "base/log.h"
#include "files/gguf/model_files.h"
#include "model/family/config_reader.h"

static const char file_name[] = "generation_config.json";

/* All keys of transformers 5.24's GenerationConfig. `neutral`: the number with which a key that
 * Lathe does not apply has no effect; other values without effect are null, false, and an empty
 * list or object. A test compares the table with the keys of the class
 * (tests/golden/config_keys.py). */
static const struct {
    const char *key;
    double neutral;
    int32_t use;
} keys[] = {
    {"do_sample", 0, LATHE_KEY_READ},
    {"temperature", 0, LATHE_KEY_READ},
    {"top_k", 0, LATHE_KEY_READ},
    {"top_p", 0, LATHE_KEY_READ},
    {"min_p", 0, LATHE_KEY_READ},
    {"repetition_penalty", 0, LATHE_KEY_READ},
    {"max_new_tokens", 0, LATHE_KEY_READ},
    {"max_length", 0, LATHE_KEY_READ},
    {"eos_token_id", 0, LATHE_KEY_READ},
    {"num_beams", 1, LATHE_KEY_WARNED},
    {"num_beam_groups", 1, LATHE_KEY_WARNED},
    {"diversity_penalty", 0, LATHE_KEY_WARNED},
    {"penalty_alpha", 0, LATHE_KEY_WARNED},
    {"dola_layers", 0, LATHE_KEY_WARNED},
    {"no_repeat_ngram_size", 0, LATHE_KEY_WARNED},
    {"encoder_no_repeat_ngram_size", 0, LATHE_KEY_WARNED},
    {"encoder_repetition_penalty", 1, LATHE_KEY_WARNED},
    {"typical_p", 1, LATHE_KEY_WARNED},
    {"epsilon_cutoff", 0, LATHE_KEY_WARNED},
    {"eta_cutoff", 0, LATHE_KEY_WARNED},
    {"top_h", 1, LATHE_KEY_WARNED},
    {"guidance_scale", 1, LATHE_KEY_WARNED},
    {"min_length", 0, LATHE_KEY_WARNED},
    {"min_new_tokens", 0, LATHE_KEY_WARNED},
    {"max_time", 0, LATHE_KEY_WARNED},
    {"stop_strings", 0, LATHE_KEY_WARNED},
    {"bad_words_ids", 0, LATHE_KEY_WARNED},
    {"force_words_ids", 0, LATHE_KEY_WARNED},
    {"constraints", 0, LATHE_KEY_WARNED},
    {"suppress_tokens", 0, LATHE_KEY_WARNED},
    {"begin_suppress_tokens", 0, LATHE_KEY_WARNED},
    {"force_bos_token_to_be_generated", 0, LATHE_KEY_WARNED},
    {"forced_bos_token_id", -1, LATHE_KEY_WARNED},
    {"forced_eos_token_id", -1, LATHE_KEY_WARNED},
    {"exponential_decay_length_penalty", 0, LATHE_KEY_WARNED},
    {"sequence_bias", 0, LATHE_KEY_WARNED},
    {"watermarking_config", 0, LATHE_KEY_WARNED},
    {"num_return_sequences", 1, LATHE_KEY_WARNED},
    {"token_healing", 0, LATHE_KEY_WARNED},
    /* a prompt is never empty or padded here, and there is no encoder */
    {"bos_token_id", 0, LATHE_KEY_HARMLESS},
    {"pad_token_id", 0, LATHE_KEY_HARMLESS},
    {"decoder_start_token_id", 0, LATHE_KEY_HARMLESS},
    /* of beam search, which is warned of */
    {"early_stopping", 0, LATHE_KEY_HARMLESS},
    {"length_penalty", 0, LATHE_KEY_HARMLESS},
    {"low_memory", 0, LATHE_KEY_HARMLESS},
    {"renormalize_logits", 0, LATHE_KEY_HARMLESS}, /* a softmax follows in any case */
    {"remove_invalid_values", 0, LATHE_KEY_HARMLESS},
    /* how fast it is, not which tokens */
    {"use_cache", 0, LATHE_KEY_HARMLESS},
    {"use_mtp", 0, LATHE_KEY_HARMLESS},
    {"cache_config", 0, LATHE_KEY_HARMLESS},
    {"cache_implementation", 0, LATHE_KEY_HARMLESS},
    {"max_cache_len", 0, LATHE_KEY_HARMLESS},
    {"compile_config", 0, LATHE_KEY_HARMLESS},
    {"disable_compile", 0, LATHE_KEY_HARMLESS},
    {"continuous_batching_config", 0, LATHE_KEY_HARMLESS},
    {"prefill_chunk_size", 0, LATHE_KEY_HARMLESS},
    {"prompt_lookup_num_tokens", 0, LATHE_KEY_HARMLESS},
    {"max_matching_ngram_size", 0, LATHE_KEY_HARMLESS},
    {"speculation_type", 0, LATHE_KEY_HARMLESS},
    {"is_assistant", 0, LATHE_KEY_HARMLESS},
    {"num_assistant_tokens", 0, LATHE_KEY_HARMLESS},
    {"num_assistant_tokens_schedule", 0, LATHE_KEY_HARMLESS},
    {"assistant_confidence_threshold", 0, LATHE_KEY_HARMLESS},
    {"assistant_early_exit", 0, LATHE_KEY_HARMLESS},
    {"assistant_ensemble_weight", 0, LATHE_KEY_HARMLESS},
    {"assistant_lookbehind", 0, LATHE_KEY_HARMLESS},
    {"target_lookbehind", 0, LATHE_KEY_HARMLESS},
    /* what generate() returns beside the tokens */
    {"output_attentions", 0, LATHE_KEY_HARMLESS},
    {"output_hidden_states", 0, LATHE_KEY_HARMLESS},
    {"output_logits", 0, LATHE_KEY_HARMLESS},
    {"output_scores", 0, LATHE_KEY_HARMLESS},
    {"return_dict_in_generate", 0, LATHE_KEY_HARMLESS},
    /* where the file comes from */
    {"transformers_version", 0, LATHE_KEY_HARMLESS},
    {"_from_model_config", 0, LATHE_KEY_HARMLESS},
    {"_commit_hash", 0, LATHE_KEY_HARMLESS},
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

int32_t lathe_generation_config_key(const char *key)
{
    for (int i = 0; i < N_KEYS; i++)
        if (strcmp(keys[i].key, key) == 0)
            return keys[i].use;
    return LATHE_KEY_UNKNOWN;
}

/* Many folders have keys with values that change nothing; warnings of them would hide the others.
 */
static int has_no_effect(const json_t *value, double neutral)
{
    if (json_is_number(value))
        return json_number_value(value) == neutral;
    if (json_is_array(value))
        return json_array_size(value) == 0;
    if (json_is_object(value))
        return json_object_size(value) == 0;
    return value == NULL || json_is_null(value) || json_is_false(value);
}

static void warn_of_ignored(const lathe_config_reader *r)
{
    const char *key;
    json_t *value;
    for (int i = 0; i < N_KEYS; i++) {
        value = json_object_get(r->object, keys[i].key);
        if (keys[i].use != LATHE_KEY_WARNED || has_no_effect(value, keys[i].neutral))
            continue;
        char *seen = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        lathe_log(LATHE_LOG_WARN, "%s: %s = %.100s is not applied: %s", r->name, keys[i].key,
                  seen ? seen : "?",
                  strcmp(keys[i].key, "stop_strings") == 0 ? "set generate.stop"
                                                           : "Lathe has no such setting");
        free(seen);
    }
    json_object_foreach(r->object, key, value)
    {
        if (lathe_generation_config_key(key) == LATHE_KEY_UNKNOWN)
            lathe_log(LATHE_LOG_WARN,
                      "%s: %.100s is not a key of generation settings that Lathe "
                      "knows, so it is not applied",
                      r->name, key);
    }
}

/* Records whether the file sets a key, and begins to read it: with a reader of its own, since a
 * value that cannot be used is not an error yet. */
static lathe_config_reader begin(const lathe_config_reader *r, const char *key, int32_t bit,
                                 lathe_generation_config *out)
{
    const json_t *value = json_object_get(r->object, key);
    if (value != NULL && !json_is_null(value))
        out->written |= 1u << bit;
    return (lathe_config_reader){.name = r->name, .object = r->object};
}

/* Keeps the refusal of the key, if there is one. Returns 1 if the value can be used. */
static int end(const lathe_config_reader *reader, int32_t bit, lathe_generation_config *out)
{
    if (reader->status == LATHE_OK)
        return 1;
    (void)snprintf(out->wrong[bit], sizeof out->wrong[bit], "%s", lathe_error_message());
    lathe_error_clear();
    return 0;
}

/* Reads do_sample like a condition in Python: 1 is true. */
static void read_do_sample(const lathe_config_reader *r, lathe_generation_config *out)
{
    lathe_config_reader reader = begin(r, "do_sample", LATHE_GENERATION_DO_SAMPLE, out);
    const json_t *value = json_object_get(r->object, "do_sample");
    if (json_is_number(value))
        out->do_sample = json_number_value(value) != 0.0;
    else
        out->do_sample = lathe__config_bool(&reader, "do_sample", 0);
    if (!end(&reader, LATHE_GENERATION_DO_SAMPLE, out))
        out->do_sample = 0;
}

/* A number above 0, and at most 1 if `is_share`. */
static double read_positive(const lathe_config_reader *r, const char *key, int32_t bit,
                            int is_share, lathe_generation_config *out)
{
    lathe_config_reader reader = begin(r, key, bit, out);
    const double x = lathe__config_positive(&reader, key, 1.0);
    if (is_share && reader.status == LATHE_OK && x > 1.0)
        lathe__config_refuse(&reader, key, "expected a number above 0, at most 1");
    return end(&reader, bit, out) ? x : 1.0;
}

/* `lo`: the smallest value that is allowed; `def`: the value where the key is absent or wrong. */
static int64_t read_count(const lathe_config_reader *r, const char *key, int32_t bit, int64_t def,
                          int64_t lo, lathe_generation_config *out)
{
    lathe_config_reader reader = begin(r, key, bit, out);
    const int64_t n = lathe__config_int(&reader, key, def, lo, INT32_MAX);
    return end(&reader, bit, out) ? n : def;
}

/* Defaults are those of transformers' GenerationConfig. A wrong value is kept as a refusal of its
 * key (end), for whoever uses the key: options may replace it, and a training reads none of them.
 */
static void read_keys(const lathe_config_reader *r, lathe_generation_config *out)
{
    lathe_config_reader reader;
    read_do_sample(r, out);
    out->temperature = read_positive(r, "temperature", LATHE_GENERATION_TEMPERATURE, 0, out);
    out->top_p = read_positive(r, "top_p", LATHE_GENERATION_TOP_P, 1, out);
    reader = begin(r, "min_p", LATHE_GENERATION_MIN_P, out);
    out->min_p = lathe__config_share(&reader, "min_p");
    if (!end(&reader, LATHE_GENERATION_MIN_P, out))
        out->min_p = 0.0;
    out->top_k = read_count(r, "top_k", LATHE_GENERATION_TOP_K, 50, 0, out);
    out->repetition_penalty =
        read_positive(r, "repetition_penalty", LATHE_GENERATION_REPETITION_PENALTY, 0, out);
    out->max_new_tokens =
        read_count(r, "max_new_tokens", LATHE_GENERATION_MAX_NEW_TOKENS, 0, 1, out);
    out->max_length = read_count(r, "max_length", LATHE_GENERATION_MAX_LENGTH, 0, 1, out);
    reader = begin(r, "eos_token_id", LATHE_GENERATION_EOS, out);
    lathe__config_eos(&reader, out->eos, LATHE_MAX_EOS, &out->n_eos);
    if (!end(&reader, LATHE_GENERATION_EOS, out))
        out->n_eos = 0;
}

lathe_status lathe_generation_config_use(const lathe_generation_config *config, int32_t key)
{
    return config->wrong[key][0] == '\0' ? LATHE_OK
                                         : lathe_error(LATHE_E_CONFIG, "%s", config->wrong[key]);
}

/* warns 1: of keys that are not applied. */
static lathe_status read_object(lathe_model_texts *texts, const char *folder, int warns,
                                lathe_generation_config *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_model_text *file = NULL;
    json_t *object = NULL;
    memset(out, 0, sizeof *out);
    LATHE_TRY(lathe_model_texts_read(texts, folder, file_name, 0, &file));
    if (file->text == NULL)
        return LATHE_OK;
    out->is_present = 1;
    const char *path = lathe_model_place(&arena, folder, file_name);
    lathe_status status =
        path != NULL ? lathe_json_load(path, file->text, file->bytes, &object) : LATHE_E_NOMEM;
    if (status != LATHE_OK)
        goto out;
    if (!json_is_object(object)) {
        status = lathe_error(LATHE_E_CONFIG, "%s: not a JSON object", path);
        goto out;
    }
    const lathe_config_reader r = {.name = path, .object = object};
    read_keys(&r, out);
    if (warns)
        warn_of_ignored(&r);
out:
    json_decref(object);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_generation_config_load_with(lathe_model_texts *texts, const char *folder,
                                               lathe_generation_config *out)
{
    return read_object(texts, folder, 1, out);
}

/* Reads a folder that the run itself writes, whose keys were warned of when they were read. */
static lathe_status read_written(const char *folder, lathe_generation_config *out)
{
    lathe_model_texts texts = {.list = NULL};
    const lathe_status status = read_object(&texts, folder, 0, out);
    lathe_model_texts_fini(&texts);
    return status;
}

lathe_status lathe_generation_config_load(const char *folder, lathe_generation_config *out)
{
    lathe_model_texts texts = {.list = NULL};
    const lathe_status status = read_object(&texts, folder, 1, out);
    lathe_model_texts_fini(&texts);
    return status;
}

/* ---- writing ---- */

/* Appends an id to a list, unless it is there. */
static void put_id(int32_t *ids, int32_t *n, int32_t id)
{
    for (int32_t i = 0; i < *n; i++)
        if (ids[i] == id)
            return;
    if (id >= 0)
        ids[(*n)++] = id;
}

/* Writes text[0, n), an object, with another eos_token_id, at its beginning. */
static void put_object(const char *text, int64_t n, const int32_t *ids, int32_t n_ids,
                       lathe_buffer *out)
{
    int64_t from = n, to = n, at = 0;
    if (!lathe_json_cut(text, n, "eos_token_id", &from, &to))
        from = to = n;
    while (at < n && text[at] != '{')
        at++;
    /* the rest of the text is copied, not written anew: its order and its numbers stay as they are
     */
    lathe_buffer_puts(out, "{\n  \"eos_token_id\": [");
    for (int32_t i = 0; i < n_ids; i++)
        lathe_buffer_printf(out, i ? ", %d" : "%d", ids[i]);
    lathe_buffer_puts(out, "]");
    lathe_buffer rest = LATHE_BUFFER_INIT;
    lathe_buffer_append(&rest, text + at + 1, from - at - 1);
    lathe_buffer_append(&rest, text + to, n - to);
    const size_t blank = rest.data ? strspn(rest.data, " \t\r\n") : 0;
    if (rest.data && rest.data[blank] != '}')
        lathe_buffer_puts(out, ",");
    lathe_buffer_append(out, rest.data ? rest.data : "}", rest.data ? rest.len : 1);
    if (rest.status != LATHE_OK)
        out->status = rest.status;
    lathe_buffer_fini(&rest);
}

/* The object of a folder without the file: what transformers would take from config.json. */
static void put_new(const lathe_model_config *model, lathe_buffer *out)
{
    lathe_buffer_puts(out, "{\n");
    if (model->bos >= 0)
        lathe_buffer_printf(out, "  \"bos_token_id\": %d%s\n", model->bos,
                            model->pad >= 0 ? "," : "");
    if (model->pad >= 0)
        lathe_buffer_printf(out, "  \"pad_token_id\": %d\n", model->pad);
    lathe_buffer_puts(out, "}\n");
}

lathe_status lathe_generation_config_add_end(const char *dir, const lathe_model_config *model,
                                             int32_t own, int32_t id)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_buffer was = LATHE_BUFFER_INIT, out = LATHE_BUFFER_INIT;
    lathe_generation_config config;
    char *text = NULL;
    int64_t bytes = 0;
    int32_t ids[2 * LATHE_MAX_EOS + 2], n = 0; /* of both files, `own` and `id` */
    const char *path = lathe_path_join(&arena, dir, file_name);
    lathe_status status = path != NULL ? read_written(dir, &config) : LATHE_E_NOMEM;
    if (status != LATHE_OK)
        goto out;
    if (config.is_present && (status = lathe_file_read(path, 0, &text, &bytes)) != LATHE_OK)
        goto out;
    if (text == NULL)
        put_new(model, &was);
    for (int32_t i = 0; i < config.n_eos; i++)
        put_id(ids, &n, config.eos[i]);
    for (int32_t i = 0; i < model->n_eos && config.n_eos == 0; i++)
        put_id(ids, &n, model->eos[i]);
    if (config.n_eos == 0)
        put_id(ids, &n, own);
    put_id(ids, &n, id);
    put_object(text != NULL ? text : was.data, text != NULL ? bytes : was.len, ids, n, &out);
    if ((status = was.status != LATHE_OK ? was.status : out.status) != LATHE_OK)
        goto out;
    status = lathe_file_write_atomic(path, out.data, out.len);
out:
    lathe_buffer_fini(&was);
    lathe_buffer_fini(&out);
    free(text);
    lathe_arena_fini(&arena);
    return status;
}
