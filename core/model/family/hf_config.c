/* A model's configuration: reads and writes config.json. */
#include "model/family/hf_config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/json/json_record.h"
#include "base/log.h"
#include "base/model_path.h"
#include "files/gguf/model_files.h"
#include "model/family/classifier.h"
#include "model/family/config_resize.h"
#include "model/family/hf_config_keys.h"
#include "model/family/model_values.h"
#include "model/family/quant_beside.h"
#include "model/family/text_tower.h"
#include "model/family/unknown_family.h"
#include "plug/model_types.h"

#define MAX_TEXT (16 << 20)

/* Keys that the core reads for every family. */
static const char *const common_keys[] = {
    "model_type", "bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype", NULL};

static const struct {
    const char *text;
    int32_t dtype;
} dtype_names[] = {{"float32", LATHE_F32},
                   {"bfloat16", LATHE_BF16},
                   {"float16", LATHE_F16},
                   {"float64", LATHE_F64}};

/* LATHE_F32 for NULL and for names that are no dtype of weights. */
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

/* "dtype" is the newer key; transformers reads it first. */
static void read_file_dtype(lathe_config_reader *r, lathe_model_config *out)
{
    const char *text = json_string_value(json_object_get(r->object, "dtype"));
    if (text == NULL)
        text = json_string_value(json_object_get(r->object, "torch_dtype"));
    out->file_dtype = dtype_find(text);
}

static void read_common(lathe_config_reader *r, lathe_model_config *out)
{
    /* negative ids, -1 as a rule, stand for none */
    out->bos = (int32_t)lathe__config_int(r, "bos_token_id", -1, INT32_MIN, INT32_MAX);
    out->pad = (int32_t)lathe__config_int(r, "pad_token_id", -1, INT32_MIN, INT32_MAX);
    lathe__config_eos(r, out->eos, LATHE_MAX_EOS, &out->n_eos);
    read_file_dtype(r, out);
    out->n_labels = lathe__classifier_labels(r->object);
    out->is_classifier = out->n_labels > 0;
    /* not causal: each token sees the tokens after it, too */
    const json_t *causal = json_object_get(r->object, "is_causal");
    /* null, too: transformers takes every false value for it */
    out->is_two_way = json_is_false(causal) || json_is_null(causal);
    out->is_quantized = json_is_object(json_object_get(r->object, "quantization_config"));
}

/* ---- the family ---- */

static lathe_status find_family(const lathe_model_source *source, const lathe_config_reader *r,
                                const char *type, lathe_model_config *out)
{
    const lathe_component *family = source->family;
    if (type == NULL)
        return lathe_unknown_family_refuse(source->registry, r, NULL);
    if (family == NULL)
        LATHE_TRY(lathe_model_type_find(source->registry, type, &family));
    if (family == NULL)
        return lathe_unknown_family_refuse(source->registry, r, NULL);
    const lathe_model_type *row = lathe_model_type_of(family->plugin, type);
    if (row == NULL)
        return lathe_error_at(LATHE_E_CONFIG, "model", "model_type",
                              "%s%smodel_type is \"%s\", which plugin model/%s does "
                              "not serve: lathe show model/%s lists those that it does",
                              LATHE_CONFIG_AT(r), type, family->plugin->name, family->plugin->name);
    out->family.component = family;
    out->model_type = row->model_type;
    out->architecture = row->architecture;
    return LATHE_OK;
}

#define TEXT_OF(x) #x
#define NUMBER_TEXT(x) TEXT_OF(x) /* the digits of a macro */

/* Checks that the rest of the core can use the plugin's description. */
static lathe_status check_info(const lathe_plugin *plugin, const lathe_model_info *info)
{
    const char *wrong = NULL;
    if (info->n_layers < 1 || info->layers == NULL)
        wrong = "has no layers";
    else if (info->vocab < 1 || info->width < 1 || info->max_positions < 1)
        wrong = "has no vocabulary, no width or no positions";
    else if (info->prefix == NULL || info->embedding == NULL || info->head == NULL)
        wrong = "does not name prefix, embedding and head";
    else if (info->n_ropes < 0 || info->n_ropes > LATHE_MAX_ROPES)
        wrong = "has more than " NUMBER_TEXT(LATHE_MAX_ROPES) " tables of rotary frequencies";
    else if (info->dropout_key == NULL && info->dropout > 0.0)
        wrong = "has a dropout without a key";
    else if (info->head_bias != NULL && info->head_scale != 0.0 && info->head_scale != 1.0)
        wrong = "has a head with a bias and a factor";
    for (int32_t i = 0; i < info->n_layers && wrong == NULL; i++) {
        const lathe_model_layer *l = &info->layers[i];
        if (l->n_heads < 1 || l->n_kv_heads < 1 || l->n_heads % l->n_kv_heads != 0 ||
            l->head_dim < 1 || l->window < 0 || l->value_dim < 0)
            wrong = "has a layer whose heads or window make no sense";
    }
    for (int32_t i = 0; i < info->n_ropes && wrong == NULL; i++)
        if (info->ropes[i].dims < 2 || info->ropes[i].dims > LATHE_MAX_ROPE_DIMS ||
            (info->ropes[i].dims % 2 != 0 && info->ropes[i].share_key == NULL) ||
            !(info->ropes[i].theta > 0.0))
            wrong = "has rotary frequencies of odd or too large size, or without a base";
    return wrong == NULL ? LATHE_OK
                         : lathe_error(LATHE_E_PLUGIN, "%s: the model that it describes %s",
                                       plugin->name, wrong);
}

/* longrope has two lists of factors: one for texts up to the original number of positions, one for
 * longer texts. All tables of a model must change at the same length, because one choice is made
 * for a batch (lathe_model_position_offset). */
static void check_longropes(lathe_config_reader *r, const lathe_model_config *c)
{
    const lathe_rope_config *first = NULL;
    for (int32_t i = 0; i < c->n_ropes; i++) {
        if (c->ropes[i].type != LATHE_ROPE_LONGROPE)
            continue;
        if (first != NULL && first->original_max_positions != c->ropes[i].original_max_positions)
            lathe__config_refuse(r, "rope_parameters",
                                 "all settings with longrope must have the same "
                                 "original_max_position_embeddings");
        first = &c->ropes[i];
    }
}

/* Gives the parameters of a text model in a wrapper the names of its modules there. The wrapper's
 * own head computes the logits, and caps none. */
static lathe_status wrap_names(const lathe_config_reader *r, lathe_model_config *out)
{
    char name[LATHE_TENSOR_NAME];
    const char *embedding = out->embedding, *head = out->head;
    if (out->wrapper == NULL)
        return LATHE_OK;
    if (out->head_bias != NULL)
        return lathe_error(LATHE_E_PLUGIN, "%s: a head with a bias in a wrapper",
                           out->family.component->plugin->name);
    out->plain_prefix = out->prefix;
    out->plain_head = out->head;
    out->embedding = lathe_arena_strdup(
        &out->arena, lathe_text_tower_module(out->wrapper, out->plain_prefix, out->plain_head,
                                             embedding, name, (int64_t)sizeof name));
    out->head = lathe_arena_strdup(
        &out->arena, lathe_text_tower_module(out->wrapper, out->plain_prefix, out->plain_head, head,
                                             name, (int64_t)sizeof name));
    out->prefix = out->wrapper->names[0].prefix;
    out->architecture = out->wrapper->architecture;
    if (out->head_softcap > 0.0)
        lathe_log(LATHE_LOG_WARN,
                  "%s: final_logit_softcapping changes nothing in a model of type %s, whose head "
                  "caps no logits in transformers",
                  r->name, out->wrapper->model_type);
    out->head_softcap = 0.0;
    out->head_scale = 0.0;
    return out->embedding != NULL && out->head != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

static lathe_status describe(lathe_config_reader *r, lathe_model_config *out)
{
    const lathe_model_v1 *table = out->family.table;
    lathe_model_info info = {.size = (uint32_t)sizeof info};
    LATHE_TRY(table->describe(out->family.self, &info));
    LATHE_TRY(check_info(out->family.component->plugin, &info));
    out->vocab = info.vocab;
    out->width = info.width;
    out->ffn = info.ffn;
    out->n_layers = info.n_layers;
    out->layers = info.layers;
    out->n_heads = info.layers[0].n_heads;
    out->n_kv_heads = info.layers[0].n_kv_heads;
    out->head_dim = info.layers[0].head_dim;
    out->max_positions = info.max_positions;
    out->tied = info.tied;
    out->prefix = info.prefix;
    out->embedding = info.embedding;
    out->head = info.head;
    out->head_softcap = info.head_softcap;
    out->head_scale = info.head_scale;
    out->head_bias = info.head_bias;
    out->dropout = info.dropout;
    out->dropout_key = info.dropout_key;
    out->warns_of_dropout = info.warns_of_dropout;
    out->values = info.values != NULL ? info.values : out->family.values;
    out->n_ropes = info.n_ropes;
    for (int32_t i = 0; i < info.n_ropes; i++)
        lathe_rope_config_read(r, &info.ropes[i], out->max_positions, &out->arena, &out->ropes[i]);
    check_longropes(r, out);
    LATHE_TRY(r->status);
    return wrap_names(r, out);
}

/* Finds the plugin that serves the text model of a wrapper; match->wrapper NULL: it is none. */
static lathe_status find_wrapper(const lathe_model_source *source, const lathe_config_reader *r,
                                 lathe_wrapper_match *match)
{
    const char *type = json_string_value(json_object_get(r->object, "model_type"));
    *match = (lathe_wrapper_match){.wrapper = NULL};
    if (type == NULL || (source->registry == NULL && source->family == NULL))
        return LATHE_OK;
    LATHE_TRY(lathe_model_wrapper_find(source->registry, source->family, type, NULL, match));
    if (match->wrapper == NULL)
        return LATHE_OK;
    const json_t *inner = lathe_text_tower_inner(r->object, match->wrapper);
    const char *named = json_string_value(json_object_get(inner, "model_type"));
    if (inner != r->object && named != NULL)
        LATHE_TRY(lathe_model_wrapper_find(source->registry, source->family, type, named, match));
    return match->family != NULL ? LATHE_OK
                                 : lathe_unknown_family_refuse(source->registry, r, match);
}

/* Takes the text model out of a wrapper's configuration. *out NULL: it is no wrapper. */
static lathe_status unwrap(const lathe_model_source *source, const lathe_config_reader *r,
                           const char *folder, lathe_model_config *config, json_t **out)
{
    lathe_wrapper_match match;
    lathe_safetensors *set = NULL;
    *out = NULL;
    LATHE_TRY(find_wrapper(source, r, &match));
    if (match.wrapper == NULL)
        return LATHE_OK;
    if (folder != NULL && lathe_model_weights(folder, &set) != LATHE_OK)
        lathe_error_clear(); /* reading the weights reports it */
    const lathe_status status = lathe_text_tower_object(r->name, r->object, &match, set, out);
    if (status == LATHE_OK) {
        config->wrapper = match.wrapper;
        config->layout = lathe_text_tower_layout(match.wrapper, set);
        config->family.component = match.family;
        config->model_type = match.type->model_type;
        config->architecture = match.type->architecture;
    }
    lathe_safetensors_close(set);
    return status;
}

static lathe_status refuse_classifier(const char *name, const lathe_model_config *config)
{
    if (config->wrapper == NULL || config->n_labels == 0)
        return LATHE_OK;
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "%s: a sequence classifier over a model of several towers (model_type %s) "
                       "is not supported; expected %s, or a classifier of the text model alone",
                       name, config->wrapper->model_type, config->wrapper->architecture);
}

static lathe_status read_text_model(const char *name, lathe_config_reader *r, json_t *whole,
                                    int32_t strict, lathe_model_config *out)
{
    const lathe_component *family = out->family.component;
    lathe_value *values = NULL;
    /* until the instance is made below, lathe_instance_fini has nothing to free */
    out->family.component = NULL;
    if (family == NULL) /* does not happen: find_family found one, or returned an error */
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no plugin serves its model_type", name);
    if (strict)
        lathe_model_values_refuse_unknown(r, family->plugin, out->model_type, common_keys);
    else
        r->status = lathe_config_keys_check(name, family->plugin, out->wrapper, whole);
    if (r->status == LATHE_OK)
        read_common(r, out);
    if (r->status == LATHE_OK)
        r->status = refuse_classifier(name, out);
    if (r->status == LATHE_OK)
        lathe_model_values_read(r, family->plugin, &out->arena, &values);
    LATHE_TRY(r->status);
    const lathe_status status = lathe_instance_init(&out->family, family, values);
    if (status == LATHE_OK)
        return describe(r, out);
    (void)lathe_error_about(status, "model", NULL);
    return strict ? status : lathe_error_context(status, "%s", name);
}

/* folder: of the file, to look at its weights; NULL: none. */
static lathe_status read_object(const lathe_model_source *source, const char *name,
                                const char *folder, json_t *object, int32_t strict,
                                lathe_model_config *out)
{
    lathe_config_reader r = {.name = strict ? "" : name, .object = object, .status = LATHE_OK};
    json_t *text = NULL;
    if (!json_is_object(object))
        return lathe_error(LATHE_E_CONFIG, "%s: not a JSON object", name);
    if (!strict) /* a new model has one tower */
        LATHE_TRY(unwrap(source, &r, folder, out, &text));
    if (text == NULL)
        LATHE_TRY(
            find_family(source, &r, json_string_value(json_object_get(object, "model_type")), out));
    if (text != NULL && lathe_text_tower_inner(object, out->wrapper) != object)
        r.parent = out->wrapper->text_key;
    r.object = text != NULL ? text : object;
    const lathe_status status = read_text_model(name, &r, object, strict, out);
    json_decref(text);
    return status;
}

static lathe_status parse(const lathe_model_source *source, const char *name, const char *folder,
                          const char *text, int64_t bytes, int32_t strict, lathe_model_config *out)
{
    memset(out, 0, sizeof *out);
    json_t *object = NULL;
    LATHE_TRY(lathe_json_load(name, text, bytes, &object));
    lathe_model_config made = {.json = NULL};
    lathe_status status = read_object(source, name, folder, object, strict, &made);
    json_decref(object);
    if (status == LATHE_OK && !strict) {
        made.json = strndup(text, (size_t)bytes);
        if (made.json == NULL)
            status = lathe_error(LATHE_E_NOMEM, "%s: no memory for its text", name);
    }
    if (status == LATHE_OK)
        *out = made;
    else
        lathe_model_config_fini(&made);
    return status;
}

lathe_status lathe_model_config_parse(const lathe_model_source *source, const char *name,
                                      const char *text, int64_t bytes, int32_t strict,
                                      lathe_model_config *out)
{
    return parse(source, name, NULL, text, bytes, strict, out);
}

/* Refuses a folder without config.json: mostly that of an adapter is named instead of a model's. */
static lathe_status refuse_other(lathe_arena *arena, const char *folder, const char *config)
{
    const char *adapter = lathe_path_join(arena, folder, "adapter_config.json");
    char hint[LATHE_HUB_HINT];
    if (!adapter)
        return LATHE_E_NOMEM;
    if (lathe_path_exists(config))
        return LATHE_OK;
    if (!lathe_path_exists(adapter))
        return lathe_error(LATHE_E_CONFIG, "%s: has no config.json, so it is not a model folder%s",
                           folder, lathe_models_hint(folder, hint));
    return lathe_error(LATHE_E_CONFIG,
                       "%s holds an adapter and no model; expected a folder with config.json",
                       folder);
}

static lathe_status load(lathe_model_texts *texts, const lathe_model_source *source,
                         const char *folder, const char *place, lathe_model_config *out)
{
    const lathe_model_text *file = NULL;
    char *made = NULL;
    int64_t bytes;
    LATHE_TRY(lathe_model_texts_read(texts, folder, "config.json", MAX_TEXT, &file));
    lathe_status status = LATHE_OK;
    if (file->text == NULL) /* reading it says that it is missing */
        status = lathe_model_read(folder, "config.json", MAX_TEXT, &made, &bytes);
    else
        status = lathe_quant_beside_add(folder, file->text, file->bytes, &made);
    if (status == LATHE_OK)
        status = parse(source, place, folder, made ? made : file->text,
                       made ? (int64_t)strlen(made) : file->bytes, 0, out);
    free(made);
    return status;
}

lathe_status lathe_model_config_load_with(lathe_model_texts *texts,
                                          const lathe_model_source *source, const char *folder,
                                          lathe_model_config *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *place = lathe_model_place(&arena, folder, "config.json");
    memset(out, 0, sizeof *out);
    lathe_status status = place != NULL ? LATHE_OK : LATHE_E_NOMEM;
    if (status == LATHE_OK && !lathe_path_is_gguf(folder))
        status = refuse_other(&arena, folder, place);
    if (status == LATHE_OK)
        status = load(texts, source, folder, place, out);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_model_config_load(const lathe_model_source *source, const char *folder,
                                     lathe_model_config *out)
{
    lathe_model_texts texts = {.list = NULL};
    const lathe_status status = lathe_model_config_load_with(&texts, source, folder, out);
    lathe_model_texts_fini(&texts);
    return status;
}

/* Sets tie_word_embeddings = false in the text of a wrapper's config.json, and in its inner
 * configuration, which some classes ask, too. */
static lathe_status put_untied_wrapper(const lathe_model_config *config, lathe_buffer *out)
{
    static const char name[] = "tie_word_embeddings";
    json_t *root = NULL;
    LATHE_TRY(lathe_json_load("config.json", config->json, (int64_t)strlen(config->json), &root));
    json_t *inner = lathe_text_tower_inner(root, config->wrapper);
    int failed = json_object_set_new(root, name, json_false());
    if (json_object_get(inner, name) != NULL)
        failed |= json_object_set_new(inner, name, json_false());
    char *text = failed ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(root);
    if (text == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the text of config.json");
    lathe_buffer_puts(out, text);
    free(text);
    return out->status;
}

/* Writes the text of a config.json with tie_word_embeddings = false. The other bytes stay. */
static lathe_status put_untied(const lathe_model_config *config, lathe_buffer *out)
{
    static const char name[] = "tie_word_embeddings";
    const char *text = config->json, *end = text + strlen(text), *copied = text, *value;
    lathe_json_string key;
    int64_t n;
    int found = 0;
    if (config->wrapper != NULL)
        return put_untied_wrapper(config, out);
    for (const char *at = text; lathe_json_record_next(&at, end, &key, &value, &n);) {
        if ((size_t)key.n_raw != sizeof name - 1 || memcmp(key.text, name, sizeof name - 1) != 0)
            continue;
        lathe_buffer_append(out, copied, value - copied);
        lathe_buffer_puts(out, "false");
        copied = value + n;
        found = 1;
    }
    if (!found) { /* the family's default */
        const char *inside = strchr(text, '{') + 1;
        lathe_buffer_append(out, text, inside - text);
        lathe_buffer_printf(out, "\n  \"%s\": false,", name);
        copied = inside;
    }
    lathe_buffer_puts(out, copied);
    return out->status;
}

lathe_status lathe_model_config_untie(const lathe_model_source *source, const char *folder,
                                      lathe_model_config *config)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_model_config made = {.json = NULL};
    if (config->json == NULL)
        return lathe_error_at(LATHE_E_CONFIG, "model", "tie_word_embeddings",
                              "the adapter trains the embedding or the head of a new model with "
                              "one matrix for both: set model.tie_word_embeddings = false");
    lathe_status status = put_untied(config, &text);
    if (status == LATHE_OK)
        status = parse(source, folder, folder, text.data, text.len, 0, &made);
    lathe_buffer_fini(&text);
    if (status == LATHE_OK && made.tied) {
        lathe_model_config_fini(&made);
        return lathe_error(LATHE_E_CONFIG,
                           "%s: the adapter trains the embedding or the head apart from the other, "
                           "and this family has no model with two matrices for them",
                           folder);
    }
    LATHE_TRY(status);
    made.is_untied = 1;
    made.growth = config->growth;
    lathe_model_config_fini(config);
    *config = made;
    return LATHE_OK;
}

lathe_status lathe_model_config_resize(const lathe_model_source *source, const char *folder,
                                       int64_t rows, lathe_model_config *config)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_model_config made = {.json = NULL};
    lathe_config_text_resize(config->json, (int64_t)strlen(config->json), rows, &text);
    lathe_status status = text.status;
    if (status == LATHE_OK)
        status = parse(source, folder, folder, text.data, text.len, 0, &made);
    lathe_buffer_fini(&text);
    LATHE_TRY(status);
    made.is_untied = config->is_untied;
    lathe_model_config_fini(config);
    *config = made;
    return LATHE_OK;
}

/* ---- writing ---- */

static void set_token(json_t *object, const char *key, int32_t id)
{
    json_object_set_new(object, key, id < 0 ? json_null() : json_integer(id));
}

static void write_common(const lathe_model_config *c, json_t *object)
{
    json_t *architectures = json_array(), *eos = json_array();
    json_array_append_new(architectures, json_string(c->architecture));
    for (int32_t i = 0; i < c->n_eos; i++)
        json_array_append_new(eos, json_integer(c->eos[i]));
    json_object_set_new(object, "architectures", architectures);
    json_object_set_new(object, "model_type", json_string(c->model_type));
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

/* Whether a value of n bytes, as it stands in JSON, is another than the name of `dtype` in quotes.
 */
static int names_another_dtype(const char *value, int64_t n, int32_t dtype)
{
    const char *want = dtype_text(dtype);
    const size_t length = strlen(want), quotes = 2;
    return (size_t)n != length + quotes || memcmp(value + 1, want, length) != 0;
}

/* The text that was read, with config->file_dtype as the value of its "dtype" and "torch_dtype";
 * the other bytes are unchanged. If the text has neither key, "torch_dtype" is added, which every
 * version of transformers reads, unless the dtype is float32, the one that a missing key means. */
static void put_with_dtype(const lathe_model_config *config, lathe_buffer *out)
{
    const char *text = config->json, *end = text + strlen(text), *copied = text, *value;
    lathe_json_string key;
    int64_t n;
    int n_dtype_keys = 0;
    for (const char *at = text; lathe_json_record_next(&at, end, &key, &value, &n);) {
        const int is_dtype = (key.n_raw == 5 && memcmp(key.text, "dtype", 5) == 0) ||
                             (key.n_raw == 11 && memcmp(key.text, "torch_dtype", 11) == 0);
        n_dtype_keys += is_dtype;
        if (!is_dtype || !names_another_dtype(value, n, config->file_dtype))
            continue;
        lathe_buffer_append(out, copied, value - copied);
        lathe_buffer_printf(out, "\"%s\"", dtype_text(config->file_dtype));
        copied = value + n;
    }
    if (n_dtype_keys == 0 && config->file_dtype != LATHE_F32) {
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

static lathe_status dump(const json_t *object, size_t flags, char **out_text)
{
    *out_text = json_dumps(object, JSON_INDENT(2) | flags | JSON_REAL_PRECISION(17));
    return *out_text != NULL ? LATHE_OK
                             : lathe_error(LATHE_E_NOMEM, "no memory for the text of config.json");
}

static lathe_status new_text(const lathe_model_config *config, char **out_text)
{
    json_t *object = json_object();
    lathe_status status =
        lathe_model_values_write(config->family.component->plugin, config->values, object);
    if (status == LATHE_OK) {
        write_common(config, object);
        status = dump(object, JSON_SORT_KEYS, out_text);
    }
    json_decref(object);
    return status;
}

/* Adds the keys of a sequence classifier or of a model that is not causal to the text. With
 * is_causal = false, every token attends to the whole document in transformers (masking_utils.py,
 * create_causal_mask). */
static lathe_status add_kind_keys(const lathe_model_config *config, char **io_text)
{
    json_t *object = NULL;
    char *text = NULL;
    lathe_status status =
        lathe_json_load("config.json", *io_text, (int64_t)strlen(*io_text), &object);
    if (status == LATHE_OK && config->n_labels > 0)
        status =
            lathe__classifier_write(config->architecture, config->n_labels, config->pad, object);
    json_t *of_text = config->wrapper != NULL ? lathe_text_tower_inner(object, config->wrapper)
                                              : object; /* whose layers read it */
    if (status == LATHE_OK && config->is_two_way &&
        json_object_set_new(of_text, "is_causal", json_false()) != 0)
        status = lathe_error(LATHE_E_NOMEM, "no memory for the text of config.json");
    if (status == LATHE_OK)
        status = dump(object, 0, &text);
    json_decref(object);
    if (status != LATHE_OK)
        return status;
    free(*io_text);
    *io_text = text;
    return LATHE_OK;
}

lathe_status lathe_model_config_text(const lathe_model_config *config, char **out_text)
{
    *out_text = NULL;
    LATHE_TRY(config->json != NULL ? text_with_dtype(config, out_text)
                                   : new_text(config, out_text));
    const int changes = config->n_labels > 0 || config->is_two_way;
    const lathe_status status = changes ? add_kind_keys(config, out_text) : LATHE_OK;
    if (status == LATHE_OK)
        return LATHE_OK;
    free(*out_text);
    *out_text = NULL;
    return status;
}

double lathe_model_initializer_range(const lathe_model_config *config)
{
    const lathe_plugin *plugin = config->family.component->plugin;
    for (int32_t i = 0; i < plugin->n_fields; i++)
        if (strcmp(plugin->fields[i].key, "initializer_range") == 0 && config->values[i].is_set)
            return config->values[i].f;
    return 0.02;
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

lathe_status lathe_model_config_refuse_two_way(const lathe_model_config *config, const char *folder,
                                               const char *what)
{
    if (!config->is_two_way)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s/config.json: is_causal is false: the model reads texts in both "
                       "directions, and %s is causal; choose a causal model",
                       folder, what);
}

lathe_status lathe_model_config_refuse_quantized(const lathe_model_config *config,
                                                 const char *folder, const char *what)
{
    if (!config->is_quantized)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s/config.json: quantization_config: %s needs weights that are not "
                       "quantized: use the folder that this one was made from",
                       folder, what);
}

void lathe_model_config_fini(lathe_model_config *config)
{
    lathe_instance_fini(&config->family);
    lathe_arena_fini(&config->arena);
    free(config->json);
    memset(config, 0, sizeof *config);
}
