/* A model's configuration: parsing, generation, saving. */
#include "model/hf_config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json.h"
#include "model/family.h"

#define MAX_TEXT (16 << 20)

/* Keys that every family knows. */
static const char *const common_keys[] = {
    "model_type", "vocab_size",  "bos_token_id",      "eos_token_id",        "pad_token_id",
    "dtype",      "torch_dtype", "initializer_range", "tie_word_embeddings", NULL};

static int listed(const char *const *keys, const char *key)
{
    for (; *keys != NULL; keys++)
        if (strcmp(*keys, key) == 0)
            return 1;
    return 0;
}

static void refuse_unknown(lathe_config_reader *r, const lathe_family *family)
{
    const char *key;
    json_t *value;
    json_object_foreach(r->object, key, value)
    {
        if (!listed(common_keys, key) && !listed(family->keys, key)) {
            r->status = lathe_error(LATHE_E_CONFIG, "%s: model_type %s has no key %s", r->name,
                                    family->model_type, key);
            return;
        }
    }
}

static void read_file_dtype(lathe_config_reader *r, lathe_model_config *out)
{
    const char *text = json_string_value(json_object_get(r->object, "dtype"));
    if (text == NULL)
        text = json_string_value(json_object_get(r->object, "torch_dtype"));
    out->file_dtype = LATHE_F32;
    if (text != NULL && strcmp(text, "bfloat16") == 0)
        out->file_dtype = LATHE_BF16;
    else if (text != NULL && strcmp(text, "float16") == 0)
        out->file_dtype = LATHE_F16;
}

static void read_common(lathe_config_reader *r, lathe_model_config *out)
{
    out->vocab = lathe__config_int(r, "vocab_size", LATHE_REQUIRED, 1, INT32_MAX);
    out->init_range = lathe__config_positive(r, "initializer_range", 0.02);
    out->bos = (int32_t)lathe__config_int(r, "bos_token_id", -1, -1, INT32_MAX);
    out->pad = (int32_t)lathe__config_int(r, "pad_token_id", -1, -1, INT32_MAX);
    lathe__config_eos(r, out->eos, &out->n_eos);
    read_file_dtype(r, out);
    if (json_is_object(json_object_get(r->object, "quantization_config")))
        lathe__config_refuse(r, "quantization_config", "only unquantized weights are read");
}

static lathe_status read_object(const char *name, json_t *object, int32_t strict,
                                lathe_model_config *out)
{
    lathe_config_reader r = {.name = name, .object = object, .status = LATHE_OK};
    if (!json_is_object(object))
        return lathe_error(LATHE_E_CONFIG, "%s: not a JSON object", name);
    const char *type = json_string_value(json_object_get(object, "model_type"));
    if (type == NULL)
        return lathe_error(LATHE_E_CONFIG, "%s: the key model_type is missing; supported: %s", name,
                           lathe_family_names());
    const lathe_family *family = lathe_family_find(type);
    if (family == NULL)
        return lathe_error(LATHE_E_CONFIG, "%s: model_type is \"%s\"; supported: %s", name, type,
                           lathe_family_names());
    out->family = family;
    if (strict)
        refuse_unknown(&r, family);
    read_common(&r, out);
    family->read(&r, out);
    return r.status;
}

lathe_status lathe_model_config_parse(const char *name, const char *text, int64_t bytes,
                                      int32_t strict, lathe_model_config *out)
{
    memset(out, 0, sizeof *out);
    json_t *object = NULL;
    LATHE_TRY(lathe_json_load(name, text, bytes, &object));
    lathe_model_config made = {.json = NULL};
    lathe_status status = read_object(name, object, strict, &made);
    json_decref(object);
    if (status == LATHE_OK && !strict) {
        made.json = strndup(text, (size_t)bytes);
        if (made.json == NULL)
            status = lathe_error(LATHE_E_NOMEM, "%s: no memory for its text", name);
    }
    if (status == LATHE_OK)
        *out = made;
    return status;
}

lathe_status lathe_model_config_load(const char *folder, lathe_model_config *out)
{
    memset(out, 0, sizeof *out);
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, folder, "config.json");
    char *text = NULL;
    int64_t bytes = 0;
    lathe_status status =
        path != NULL ? lathe_file_read(path, MAX_TEXT, &text, &bytes) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = lathe_model_config_parse(path, text, bytes, 0, out);
    free(text);
    lathe_arena_fini(&arena);
    return status;
}

/* ---- writing ---- */

static void set_token(json_t *object, const char *key, int32_t id)
{
    json_object_set_new(object, key, id < 0 ? json_null() : json_integer(id));
}

static void write_common(const lathe_model_config *c, json_t *object)
{
    json_t *architectures = json_array(), *eos = json_array();
    json_array_append_new(architectures, json_string(c->family->architecture));
    for (int32_t i = 0; i < c->n_eos; i++)
        json_array_append_new(eos, json_integer(c->eos[i]));
    json_object_set_new(object, "architectures", architectures);
    json_object_set_new(object, "model_type", json_string(c->family->model_type));
    json_object_set_new(object, "vocab_size", json_integer(c->vocab));
    json_object_set_new(object, "initializer_range", json_real(c->init_range));
    json_object_set_new(object, "tie_word_embeddings", json_boolean(c->tied));
    set_token(object, "bos_token_id", c->bos);
    set_token(object, "pad_token_id", c->pad);
    if (c->n_eos == 1)
        json_object_set(object, "eos_token_id", json_array_get(eos, 0));
    else
        json_object_set(object, "eos_token_id", c->n_eos == 0 ? json_null() : eos);
    json_decref(eos);
    json_object_set_new(object, "torch_dtype",
                        json_string(c->file_dtype == LATHE_BF16  ? "bfloat16"
                                    : c->file_dtype == LATHE_F16 ? "float16"
                                                                 : "float32"));
    json_object_set_new(object, "use_cache", json_true());
}

lathe_status lathe_model_config_text(const lathe_model_config *config, char **out_text)
{
    if (config->json != NULL) {
        *out_text = strdup(config->json);
    } else {
        json_t *object = json_object();
        write_common(config, object);
        config->family->write(config, object);
        *out_text = json_dumps(object, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
        json_decref(object);
    }
    return *out_text != NULL ? LATHE_OK
                             : lathe_error(LATHE_E_NOMEM, "no memory for the text of config.json");
}

lathe_status lathe_model_config_save(const lathe_model_config *config, const char *folder)
{
    char *text = NULL;
    LATHE_TRY(lathe_model_config_text(config, &text));
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, folder, "config.json");
    const lathe_status status =
        path != NULL ? lathe_file_write_atomic(path, text, (int64_t)strlen(text)) : LATHE_E_NOMEM;
    lathe_arena_fini(&arena);
    free(text);
    return status;
}

void lathe_model_config_fini(lathe_model_config *config)
{
    free(config->json);
    memset(config, 0, sizeof *config);
}
