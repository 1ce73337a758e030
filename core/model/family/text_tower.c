/* Finds the text model inside a model of several towers. */
#include "model/family/text_tower.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"

/* ---- the configuration ---- */

static const char tied_key[] = "tie_word_embeddings";

json_t *lathe_text_tower_inner(json_t *outer, const lathe_model_wrapper *wrapper)
{
    json_t *inner = json_object_get(outer, wrapper->text_key);
    if (json_is_object(inner))
        return inner;
    /* older files have the keys of the text model in the outer object */
    const int is_flat = (wrapper->flags & LATHE_WRAPPER_FLAT) && inner == NULL;
    return is_flat && json_object_get(outer, "hidden_size") != NULL ? outer : NULL;
}

/* Adds the keys of a default that the object does not have. A key that is null is set. */
static lathe_status add_defaults(const lathe_wrapper_match *match, json_t *object)
{
    const lathe_plugin *plugin = match->family->plugin;
    const lathe_model_v1 *table = plugin->table;
    const char *text = match->wrapper->defaults;
    json_t *defaults = NULL;
    if (text == NULL && LATHE_HAS(table, defaults))
        text = table->defaults[match->type - table->types];
    if (text == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_json_load(plugin->name, text, (int64_t)strlen(text), &defaults));
    const int failed = json_object_update_missing(object, defaults);
    json_decref(defaults);
    return failed ? lathe_error(LATHE_E_NOMEM, "no memory for a configuration") : LATHE_OK;
}

/* Takes over keys of the outer configuration, which count before those of the inner one:
 * GenerationConfig.from_model_config for the token ids, from_pretrained for dtype and format. */
static int take_outer(json_t *outer, json_t *object)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id", "dtype",
                                       "torch_dtype",  "id2label",     "num_labels"};
    static const char *const only_outer[] = {"architectures", "quantization_config"};
    int failed = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_t *value = json_object_get(outer, keys[i]);
        if (value != NULL && !json_is_null(value))
            failed |= json_object_set(object, keys[i], value);
    }
    /* the inner class is no classifier, whatever it lists */
    for (size_t i = 0; i < sizeof only_outer / sizeof only_outer[0]; i++) {
        json_t *value = json_object_get(outer, only_outer[i]);
        (void)json_object_del(object, only_outer[i]);
        if (value != NULL)
            failed |= json_object_set(object, only_outer[i], value);
    }
    return failed;
}

/* A value of rotary settings whose type is "mrope": positions of text are equal in all sections, so
 * it turns as the default does (Qwen2VLTextConfig.convert_rope_params_to_dict). */
static int read_mrope(json_t *object, const char *key)
{
    json_t *settings = json_object_get(object, key);
    const json_t *type = json_object_get(settings, "rope_type");
    const char *name = json_string_value(type != NULL ? type : json_object_get(settings, "type"));
    return name != NULL && strcmp(name, "mrope") == 0
               ? json_object_set_new(settings, "rope_type", json_string("default"))
               : 0;
}

static const lathe_st_tensor *find_named(const lathe_safetensors *set,
                                         const lathe_tower_names *names, int is_head)
{
    char name[LATHE_TENSOR_NAME];
    (void)snprintf(name, sizeof name, "%s%s", is_head ? names->head : names->prefix,
                   is_head ? "lm_head.weight" : "embed_tokens.weight");
    return lathe_safetensors_find(set, name);
}

/* Whether the files have a head that differs from the embedding. transformers then does not tie
 * them, whatever the configuration says (PreTrainedModel.tie_weights). */
static int has_own_head(const lathe_model_wrapper *wrapper, const lathe_safetensors *set)
{
    if (set == NULL)
        return 0;
    const lathe_tower_names *names = &wrapper->names[lathe_text_tower_layout(wrapper, set)];
    const lathe_st_tensor *head = find_named(set, names, 1), *embedding = find_named(set, names, 0);
    return head != NULL && embedding != NULL &&
           (memcmp(&head->desc, &embedding->desc, sizeof head->desc) != 0 ||
            memcmp(head->data, embedding->data, (size_t)lathe_desc_bytes(&head->desc)) != 0);
}

/* Whether head and embedding are one matrix: the wrapper's class decides, not the inner one's. */
static int is_tied(json_t *outer, const json_t *inner, const lathe_model_wrapper *wrapper,
                   const lathe_safetensors *set)
{
    const json_t *said = json_object_get(outer, tied_key);
    const int is_said = said != NULL && !json_is_null(said);
    int tied = is_said ? json_is_true(said) : (wrapper->flags & LATHE_WRAPPER_TIED) != 0;
    if (wrapper->flags & LATHE_WRAPPER_TIED_BY_TEXT)
        tied |= json_is_true(json_object_get(inner, tied_key));
    return tied && !has_own_head(wrapper, set);
}

static lathe_status check_inner(const char *place, json_t *outer, const json_t *inner,
                                const lathe_model_wrapper *wrapper)
{
    const json_t *seen = json_object_get(outer, wrapper->text_key);
    const json_t *format = json_object_get(inner, "quantization_config");
    const json_t *tied = json_object_get(outer, tied_key);
    if (inner == NULL)
        return lathe_error_at(LATHE_E_CONFIG, "model", wrapper->text_key,
                              "%s: model_type \"%s\" wraps a text model, and %s %s; expected an "
                              "object with its configuration",
                              place, wrapper->model_type, wrapper->text_key,
                              seen == NULL ? "is missing" : "is no object");
    if (inner != outer && json_is_object(format))
        return lathe_error_at(LATHE_E_CONFIG, "model", "quantization_config",
                              "%s: %s.quantization_config is not read: expected it beside "
                              "model_type, where it counts for all towers",
                              place, wrapper->text_key);
    if (tied != NULL && !json_is_boolean(tied) && !json_is_null(tied))
        return lathe_error_at(LATHE_E_CONFIG, "model", tied_key, "%s: %s: expected true or false",
                              place, tied_key);
    return LATHE_OK;
}

lathe_status lathe_text_tower_object(const char *place, json_t *outer,
                                     const lathe_wrapper_match *match, const lathe_safetensors *set,
                                     json_t **out)
{
    const lathe_model_wrapper *wrapper = match->wrapper;
    json_t *inner = lathe_text_tower_inner(outer, wrapper);
    *out = NULL;
    LATHE_TRY(check_inner(place, outer, inner, wrapper));
    json_t *object = json_deep_copy(inner);
    int failed = object == NULL;
    failed |= json_object_set_new(object, "model_type", json_string(match->type->model_type));
    lathe_status status = failed ? LATHE_E_NOMEM : add_defaults(match, object);
    if (status == LATHE_OK) {
        failed |= take_outer(outer, object);
        failed |= json_object_set_new(object, tied_key,
                                      json_boolean(is_tied(outer, inner, wrapper, set)));
        if (wrapper->flags & LATHE_WRAPPER_MROPE)
            failed |= read_mrope(object, "rope_scaling") | read_mrope(object, "rope_parameters");
        status = failed ? LATHE_E_NOMEM : LATHE_OK;
    }
    if (status == LATHE_OK) {
        *out = object;
        return LATHE_OK;
    }
    json_decref(object);
    return failed ? lathe_error(LATHE_E_NOMEM, "%s: no memory for its configuration", place)
                  : status;
}

/* ---- names ---- */

const char *lathe_text_tower_rename(const char *name, const char *from, const char *to, char *out,
                                    int64_t bytes)
{
    const int n = snprintf(out, (size_t)bytes, "%s%s", to, name + strlen(from));
    return n >= 0 && n < bytes ? out : name;
}

int32_t lathe_text_tower_is_of(const char *name, const char *tensor)
{
    const char *dot = strrchr(tensor, '.');
    const size_t n = dot != NULL ? (size_t)(dot - tensor) : strlen(tensor);
    return strncmp(name, tensor, n) == 0 && (name[n] == '\0' || name[n] == '.');
}

const char *lathe_text_tower_module(const lathe_model_wrapper *wrapper, const char *plain_prefix,
                                    const char *plain_head, const char *name, char *out,
                                    int64_t bytes)
{
    const lathe_tower_names *names = &wrapper->names[0];
    if (strncmp(name, plain_prefix, strlen(plain_prefix)) == 0)
        return lathe_text_tower_rename(name, plain_prefix, names->prefix, out, bytes);
    return lathe_text_tower_is_of(name, plain_head)
               ? lathe_text_tower_rename(name, "", names->head, out, bytes)
               : name;
}

int32_t lathe_text_tower_layout(const lathe_model_wrapper *wrapper, const lathe_safetensors *set)
{
    char start[LATHE_TENSOR_NAME];
    for (int32_t k = 0; k < wrapper->n_names; k++) {
        (void)snprintf(start, sizeof start, "%slayers.", wrapper->names[k].prefix);
        for (int64_t i = 0; set != NULL && i < lathe_safetensors_count(set); i++)
            if (strncmp(lathe_safetensors_at(set, i)->name, start, strlen(start)) == 0)
                return k;
    }
    return 0;
}
