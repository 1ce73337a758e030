/* A model's configuration: parsing, generation, saving. */
#include "model/hf_config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/json_record.h"
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

static const struct {
    const char *text;
    int32_t dtype;
} dtype_names[] = {{"float32", LATHE_F32},
                   {"bfloat16", LATHE_BF16},
                   {"float16", LATHE_F16},
                   {"float64", LATHE_F64}};

/* LATHE_F32 for NULL and for what is no dtype of weights. */
static int32_t dtype_find(const char *text)
{
    for (size_t i = 0; text != NULL && i < sizeof dtype_names / sizeof dtype_names[0]; i++)
        if (strcmp(dtype_names[i].text, text) == 0)
            return dtype_names[i].dtype;
    return LATHE_F32;
}

static const char *dtype_text(int32_t dtype)
{
    for (size_t i = 0; i < sizeof dtype_names / sizeof dtype_names[0]; i++)
        if (dtype_names[i].dtype == dtype)
            return dtype_names[i].text;
    return dtype_names[0].text;
}

/* "dtype" is the newer key and the one that transformers reads first. */
static void read_file_dtype(lathe_config_reader *r, lathe_model_config *out)
{
    const char *text = json_string_value(json_object_get(r->object, "dtype"));
    if (text == NULL)
        text = json_string_value(json_object_get(r->object, "torch_dtype"));
    out->file_dtype = dtype_find(text);
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
    json_object_set_new(object, "torch_dtype", json_string(dtype_text(c->file_dtype)));
    json_object_set_new(object, "use_cache", json_true());
}

/* Whether a member of the text says another dtype than `dtype`; a missing one says float32. */
static int says_another(const char *value, int64_t n, int32_t dtype)
{
    const char *want = dtype_text(dtype);
    const size_t length = strlen(want);
    return (size_t)n != length + 2 || memcmp(value + 1, want, length) != 0;
}

/* The text that was read, with config->file_dtype as the value of its "dtype" and "torch_dtype": the rest stays
 * as it is, byte for byte. A text that has neither gets the second, which every transformers reads, unless the
 * dtype is the one that a missing key means. */
static void put_with_dtype(const lathe_model_config *config, lathe_buffer *out)
{
    const char *text = config->json, *end = text + strlen(text), *copied = text, *value;
    lathe_json_string key;
    int64_t n;
    int n_said = 0;
    for (const char *at = text; lathe_json_record_next(&at, end, &key, &value, &n);) {
        const int is_dtype = (key.n_raw == 5 && memcmp(key.text, "dtype", 5) == 0) ||
                             (key.n_raw == 11 && memcmp(key.text, "torch_dtype", 11) == 0);
        n_said += is_dtype;
        if (!is_dtype || !says_another(value, n, config->file_dtype))
            continue;
        lathe_buffer_append(out, copied, value - copied);
        lathe_buffer_printf(out, "\"%s\"", dtype_text(config->file_dtype));
        copied = value + n;
    }
    if (n_said == 0 && config->file_dtype != LATHE_F32) {
        const char *inside = strchr(text, '{') + 1;
        const int64_t space = (int64_t)strspn(inside, " \t\r\n");
        lathe_buffer_append(out, text, inside + space - text);
        lathe_buffer_printf(out, "\"torch_dtype\": \"%s\",", dtype_text(config->file_dtype));
        copied = inside;
    }
    lathe_buffer_puts(out, copied);
}

static lathe_status text_with_dtype(const lathe_model_config *config, char **out_text)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    put_with_dtype(config, &text);
    *out_text = text.status == LATHE_OK ? strdup(text.data) : NULL;
    lathe_buffer_fini(&text);
    return *out_text != NULL ? LATHE_OK
                             : lathe_error(LATHE_E_NOMEM, "no memory for the text of config.json");
}

lathe_status lathe_model_config_text(const lathe_model_config *config, char **out_text)
{
    if (config->json != NULL)
        return text_with_dtype(config, out_text);
    json_t *object = json_object();
    write_common(config, object);
    config->family->write(config, object);
    *out_text = json_dumps(object, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    json_decref(object);
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
