/* Reads the settings of rotary frequencies. */
#include "model/family/rope_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

/* The object that holds the settings, and its key. */
typedef struct settings {
    lathe_config_reader *r; /* of the whole file */
    const char *key;        /* "rope_scaling" */
    json_t *object;         /* NULL: no settings */
    json_t *merged;         /* owned: the settings of a type of layers; NULL: none */
    int64_t max_positions;
    int32_t flags;    /* lathe_rope_use.flags */
    int32_t by_layer; /* the settings are those of a type of layers */
    lathe_arena *arena;
} settings;

/* A number above 0 in the settings. def 0: the key is required. */
static double number(settings *s, const char *key, double def)
{
    lathe_config_reader sub = {
        .name = s->r->name, .object = s->object, .status = s->r->status, .parent = s->key};
    if (lathe__config_value(&sub, key) == NULL && def <= 0.0)
        lathe__config_refuse(&sub, key, "this rope_type needs it");
    const double x = lathe__config_positive(&sub, key, def);
    s->r->status = sub.status;
    return x;
}

/* Finds the object of the settings as transformers does: a rope_scaling that is not empty is
 * preferred to rope_parameters, whatever they contain. otherwise: lathe_rope_use.settings. */
static void find_object(settings *s, const char *otherwise)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < 2; i++) {
        json_t *value = lathe__config_value(s->r, keys[i]);
        s->key = keys[i];
        if (json_is_object(value) && json_object_size(value) > 0) {
            s->object = value;
            return;
        }
        if (value != NULL && !json_is_object(value) &&
            !(json_is_array(value) && json_array_size(value) == 0))
            lathe__config_refuse(s->r, keys[i], "expected an object");
    }
    if (otherwise == NULL || lathe__config_value(s->r, "rope_parameters") != NULL)
        return;
    s->object = s->merged = json_loads(otherwise, 0, NULL);
    if (s->object == NULL && s->r->status == LATHE_OK)
        s->r->status = lathe_error(LATHE_E_PLUGIN, "rotary settings of a family are no JSON");
}

/* Settings that have no effect beside those of types of layers. */
static void warn_of_flat(const settings *s, const json_t *parameters)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)parameters, name, value)
    {
        if (json_is_object(value) || json_is_null(value))
            continue;
        lathe_log(LATHE_LOG_WARN,
                  "%s: rope_parameters.%s changes nothing: rope_parameters of this model has "
                  "settings for each type of layer, in full_attention and sliding_attention",
                  s->r->name, name);
    }
}

/* Finds the settings of a family that has them for each type of layer: those of rope_parameters,
 * and for layers that may be scaled those of rope_scaling over them, like transformers. */
static void find_by_layer(settings *s, const char *layer_type, int may_scale)
{
    json_t *parameters = lathe__config_value(s->r, "rope_parameters");
    json_t *scaling = lathe__config_value(s->r, "rope_scaling");
    if (parameters != NULL && !json_is_object(parameters))
        lathe__config_refuse(s->r, "rope_parameters", "expected an object");
    if (scaling != NULL && !json_is_object(scaling) && json_array_size(scaling) > 0)
        lathe__config_refuse(s->r, "rope_scaling", "expected an object");
    json_t *own = json_object_get(parameters, layer_type);
    const int scales = may_scale && json_object_size(scaling) > 0;
    s->key = scales ? "rope_scaling" : "rope_parameters";
    s->merged = json_is_object(own) ? json_deep_copy(own) : json_object();
    if (parameters == NULL && scales) /* an old `type` in rope_scaling does not change it */
        json_object_set_new(s->merged, "rope_type", json_string("default"));
    if (s->merged == NULL || (scales && json_object_update(s->merged, scaling) != 0))
        s->r->status = LATHE_E_NOMEM;
    s->object = json_object_size(s->merged) > 0 ? s->merged : NULL;
    if (may_scale)
        warn_of_flat(s, parameters);
}

/* Refuses settings that hold an object for each type of layer. */
static void refuse_nested(settings *s)
{
    const char *name;
    json_t *value;
    json_object_foreach(s->object, name, value)
    {
        if (json_is_object(value))
            lathe__config_refuse(s->r, s->key,
                                 "expected the settings themselves, not an object for each type "
                                 "of layer");
    }
}

/* Finds the share of a head that is rotated, where transformers looks for it: in the settings, else
 * next to them under `key`. *out_found: the key that is set, or NULL. */
static lathe_config_reader find_share(const settings *s, const char *key, const char **out_found)
{
    const lathe_config_reader sub = {
        .name = s->r->name, .object = s->object, .status = s->r->status, .parent = s->key};
    *out_found = lathe__config_value(&sub, "partial_rotary_factor") != NULL
                     ? "partial_rotary_factor"
                 : lathe__config_value(s->r, key) != NULL ? key
                                                          : NULL;
    return lathe__config_value(&sub, "partial_rotary_factor") != NULL ? sub : *s->r;
}

/* For a family that rotates whole heads. transformers reads the share only in its scaled types, and
 * a model of such a family then fails there. */
static void check_whole(settings *s, int32_t type)
{
    const char *key;
    lathe_config_reader from = find_share(s, "partial_rotary_factor", &key);
    const json_t *value = key != NULL ? lathe__config_value(&from, key) : NULL;
    if (value == NULL || json_number_value(value) == 1.0)
        return;
    if (type != LATHE_ROPE_DEFAULT || !json_is_number(value))
        lathe__config_only_number(&from, key, 1.0);
    else
        lathe_log(LATHE_LOG_WARN,
                  "%s: partial_rotary_factor is %g and changes nothing: with rope_type default, "
                  "transformers turns whole heads too",
                  s->r->name, json_number_value(value));
    s->r->status = from.status;
}

/* Number of rotated channels in a head of `use->dims` channels. */
static int32_t rotated_dims(settings *s, const lathe_rope_use *use)
{
    const char *key;
    lathe_config_reader from = find_share(s, use->share_key, &key);
    const double share = key != NULL ? lathe__config_positive(&from, key, 1.0) : use->share;
    const int32_t dims = share <= 1.0 ? (int32_t)(use->dims * share) : 0;
    char why[160];
    s->r->status = from.status;
    (void)snprintf(why, sizeof why,
                   "the rotated part of a head of %d channels must be an even number of channels, "
                   "from 2 to %d",
                   (int)use->dims, (int)use->dims);
    if (s->r->status == LATHE_OK && (dims < 2 || dims % 2 != 0)) {
        lathe__config_refuse(&from, key != NULL ? key : use->share_key, why);
        s->r->status = from.status;
    }
    return dims;
}

/* Positions of a Phi-3 whose file does not say them: its configuration in transformers has a value
 * in every case, and so never takes the one of the settings. */
#define PHI3_ORIGINAL 4096.0

/* transformers prefers the number next to the object, which is its place in Phi-3's files */
static void read_original(settings *s, lathe_rope_config *out)
{
    static const char key[] = "original_max_position_embeddings";
    const int is_phi3 = (s->flags & LATHE_ROPE_LONG_ONLY) != 0;
    double positions = lathe__config_positive(s->r, key, is_phi3 ? PHI3_ORIGINAL : 0.0);
    const json_t *within = json_object_get(s->object, key);
    if (is_phi3 && json_is_number(within) && json_number_value(within) != positions)
        lathe_log(LATHE_LOG_WARN,
                  "%s: %s.%s is %g and changes nothing: for phi3 transformers takes the key of "
                  "config.json itself, which is %g",
                  s->r->name, s->key, key, json_number_value(within), positions);
    if (positions == 0.0)
        positions = number(s, "original_max_position_embeddings", (double)s->max_positions);
    if (s->r->status == LATHE_OK && !(positions >= 1.0 && positions <= 1e15))
        lathe__config_refuse(s->r, s->key,
                             "original_max_position_embeddings must be from 1 to 1e15");
    if (s->r->status == LATHE_OK)
        out->original_max_positions = (int64_t)positions;
}

static void read_llama3(settings *s, lathe_rope_config *out)
{
    out->factor = number(s, "factor", 0.0);
    out->low_freq_factor = number(s, "low_freq_factor", 0.0);
    out->high_freq_factor = number(s, "high_freq_factor", 0.0);
    read_original(s, out);
    if (s->r->status == LATHE_OK && out->high_freq_factor <= out->low_freq_factor)
        lathe__config_refuse(s->r, s->key, "high_freq_factor must be above low_freq_factor");
}

/* The factor by which positions are stretched, if no key gives it. */
static double stretch(const settings *s, const lathe_rope_config *out)
{
    return s->r->status == LATHE_OK ? (double)s->max_positions / (double)out->original_max_positions
                                    : 1.0;
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static void read_yarn(settings *s, lathe_rope_config *out)
{
    lathe_config_reader sub = {
        .name = s->r->name, .object = s->object, .status = s->r->status, .parent = s->key};
    read_original(s, out);
    out->factor = number(s, "factor", stretch(s, out));
    out->beta_fast = number(s, "beta_fast", 32.0);
    out->beta_slow = number(s, "beta_slow", 1.0);
    sub.status = s->r->status;
    /* transformers reads it beside the settings of the types of layers, where no file has it */
    out->truncate = s->by_layer ? 1 : lathe__config_bool(&sub, "truncate", 1);
    if (s->by_layer && json_is_false(json_object_get(s->object, "truncate")))
        lathe_log(LATHE_LOG_WARN,
                  "%s: %s.truncate changes nothing: transformers does not read it where types of "
                  "layers have settings of their own",
                  s->r->name, s->key);
    s->r->status = sub.status;
    double def = yarn_scale(out->factor, 1.0);
    /* 0 is as if the key were absent */
    if (json_number_value(lathe__config_value(&sub, "mscale")) != 0.0 &&
        json_number_value(lathe__config_value(&sub, "mscale_all_dim")) != 0.0)
        def = yarn_scale(out->factor, number(s, "mscale", 1.0)) /
              yarn_scale(out->factor, number(s, "mscale_all_dim", 1.0));
    out->attention_factor = number(s, "attention_factor", def);
}

/* The factor on attention scores that DeepSeek's classes take from mscale_all_dim, whatever the
 * rope_type scales. */
static void read_scores(settings *s, lathe_rope_config *out)
{
    const double all = json_number_value(json_object_get(s->object, "mscale_all_dim"));
    if (all == 0.0 || out->type == LATHE_ROPE_DEFAULT || s->r->status != LATHE_OK)
        return;
    const double scale = yarn_scale(out->factor, number(s, "mscale_all_dim", 1.0));
    out->score_factor = scale * scale;
}

/* Reads a list with one factor for each pair of channels. */
static const float *read_factors(settings *s, const char *key, int32_t dims)
{
    const json_t *list = json_object_get(s->object, key);
    lathe_config_reader sub = {
        .name = s->r->name, .object = s->object, .status = s->r->status, .parent = s->key};
    float *out = lathe_arena_alloc(s->arena, dims / 2 * (int64_t)sizeof *out);
    if (out == NULL)
        s->r->status = LATHE_E_NOMEM;
    if (out == NULL || s->r->status != LATHE_OK)
        return NULL;
    if (!json_is_array(list) || json_array_size(list) != (size_t)(dims / 2))
        lathe__config_refuse(&sub, key,
                             "expected one factor for each two rotated channels of a head");
    for (int32_t i = 0; i < dims / 2 && sub.status == LATHE_OK; i++) {
        const double x = json_number_value(json_array_get(list, (size_t)i));
        out[i] = (float)x;
        if (!(x > 0.0) || !isfinite(x))
            lathe__config_refuse(&sub, key, "expected numbers above 0");
    }
    s->r->status = sub.status;
    return out;
}

static void read_longrope(settings *s, lathe_rope_config *out)
{
    read_original(s, out);
    out->factor = number(s, "factor", stretch(s, out));
    const double original = (double)out->original_max_positions;
    const double def =
        out->factor <= 1.0 || original <= 1.0 ? 1.0 : sqrt(1.0 + log(out->factor) / log(original));
    out->attention_factor = number(s, "attention_factor", def);
    out->short_factor = read_factors(s, "short_factor", out->dims);
    out->long_factor = read_factors(s, "long_factor", out->dims);
}

/* dynamic has the frequencies of default up to max_position_embeddings, the longest row. With an
 * alpha, which 0 and null switch off, they are those of a larger base instead. */
static void read_dynamic(settings *s, lathe_rope_config *out)
{
    const lathe_config_reader sub = {.name = s->r->name, .object = s->object, .parent = s->key};
    const json_t *alpha = lathe__config_value(&sub, "alpha");
    const int has_alpha = alpha != NULL && !json_is_false(alpha) &&
                          !(json_is_number(alpha) && json_number_value(alpha) == 0.0);
    out->type = LATHE_ROPE_DYNAMIC;
    out->factor = number(s, "factor", 0.0);
    if (has_alpha && !(s->flags & LATHE_ROPE_ALPHA))
        lathe_log(LATHE_LOG_WARN,
                  "%s: %s.alpha changes nothing: transformers does not read it for this family",
                  s->r->name, s->key);
    if (!has_alpha || !(s->flags & LATHE_ROPE_ALPHA))
        return;
    if (out->dims <= 2)
        lathe__config_refuse(s->r, s->key, "alpha needs heads of more than 2 channels");
    else
        out->theta *= pow(number(s, "alpha", 0.0), (double)out->dims / (out->dims - 2));
    out->type = LATHE_ROPE_DEFAULT;
}

static void read_type(settings *s, const char *type, lathe_rope_config *out)
{
    if (strcmp(type, "linear") == 0) {
        out->type = LATHE_ROPE_LINEAR;
        out->factor = number(s, "factor", 0.0);
    } else if (strcmp(type, "dynamic") == 0) {
        read_dynamic(s, out);
    } else if (strcmp(type, "llama3") == 0) {
        out->type = LATHE_ROPE_LLAMA3;
        read_llama3(s, out);
    } else if (strcmp(type, "yarn") == 0) {
        out->type = LATHE_ROPE_YARN;
        read_yarn(s, out);
    } else if (strcmp(type, "longrope") == 0) {
        out->type = LATHE_ROPE_LONGROPE;
        read_longrope(s, out);
    } else if (strcmp(type, "default") != 0) {
        lathe__config_refuse(
            s->r, s->key,
            "supported values of rope_type: default, linear, dynamic, llama3, yarn, longrope");
    }
}

/* The present name of a rope_type of LATHE_ROPE_LONG_ONLY. */
static const char *long_name(settings *s, const char *type)
{
    if (strcmp(type, "su") == 0 || strcmp(type, "yarn") == 0)
        return "longrope";
    if (strcmp(type, "default") != 0 && strcmp(type, "longrope") != 0)
        lathe__config_refuse(s->r, s->key, "supported values of rope_type: default, longrope");
    return type;
}

static void read_table(settings *s, const lathe_rope_use *use, lathe_rope_config *out)
{
    lathe_config_reader *r = s->r;
    memset(out, 0, sizeof *out);
    out->type = LATHE_ROPE_DEFAULT;
    out->attention_factor = out->score_factor = 1.0;
    out->theta = use->theta;
    if (!(use->flags & LATHE_ROPE_FIXED_THETA))
        out->theta = lathe__config_positive(
            r, use->theta_key != NULL ? use->theta_key : "rope_theta", use->theta);
    s->by_layer = use->layer_type != NULL;
    if (use->layer_type != NULL)
        find_by_layer(s, use->layer_type, !(use->flags & LATHE_ROPE_UNSCALED));
    else
        find_object(s, use->settings);
    refuse_nested(s);
    const char *type = json_string_value(json_object_get(s->object, "rope_type"));
    if (type == NULL)
        type = json_string_value(json_object_get(s->object, "type"));
    out->dims = use->share_key != NULL && r->status == LATHE_OK ? rotated_dims(s, use) : use->dims;
    if (s->object == NULL || r->status != LATHE_OK) {
        if (use->share_key == NULL)
            check_whole(s, LATHE_ROPE_DEFAULT);
        return;
    }
    out->theta = number(s, "rope_theta", out->theta);
    const char *old = json_string_value(json_object_get(s->object, "type"));
    const int is_hidden = s->by_layer && type != NULL && old != NULL && strcmp(type, old) != 0;
    if ((type == NULL || is_hidden) && json_is_number(json_object_get(s->object, "factor")))
        lathe_log(LATHE_LOG_WARN,
                  "%s: %s names no rope_type, so its factor changes nothing, as in transformers",
                  r->name, s->key);
    if (type != NULL)
        read_type(s, use->flags & LATHE_ROPE_LONG_ONLY ? long_name(s, type) : type, out);
    if (use->flags & LATHE_ROPE_SCORES)
        read_scores(s, out);
    if (use->share_key == NULL)
        check_whole(s, out->type);
}

void lathe_rope_config_read(lathe_config_reader *r, const lathe_rope_use *use,
                            int64_t max_positions, lathe_arena *arena, lathe_rope_config *out)
{
    settings s = {.r = r, .max_positions = max_positions, .arena = arena, .flags = use->flags};
    read_table(&s, use, out);
    json_decref(s.merged);
}
