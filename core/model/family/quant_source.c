/* Reads quantization_config. */
#include "model/family/quant_source.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/diag.h"
#include "base/error.h"
#include "base/json/json.h"
#include "base/json/json_at.h"
#include "base/parallel.h"
#include "lathe/quant.h"
#include "model/family/weight_planes.h"
#include "model/family/weight_tensor.h"
#include "plug/host_table.h"
#include "plug/schema_check.h"

enum { MAX_FORMATS = 64, MAX_GROUPS = 4096 };

/* How a name of the configuration is compared with that of a layer. */
enum {
    MATCH_ALL,     /* the settings of the whole configuration */
    MATCH_TARGETS, /* compressed-tensors: whole names, "re:" with a regular expression, classes */
    MATCH_NAME,    /* the whole name */
    MATCH_DYNAMIC  /* GPTQModel: "+:" or "-:" (not quantized) with a regular expression, or it alone
                    */
};

/* Layers that have settings of their own. */
typedef struct source_group {
    int32_t match;         /* MATCH_* */
    const char *name;      /* of NAME and DYNAMIC */
    const json_t *targets; /* of TARGETS; NULL: all linear layers */
    const json_t *object;  /* the settings; NULL: those of the whole configuration alone */
} source_group;

/* An instance that reads the weights of some layers. */
typedef struct source_format {
    const lathe_component *component;
    lathe_value *values; /* [n_fields] */
    lathe_instance instance;
} source_format;

struct lathe_quant_source {
    json_t *root;         /* config.json */
    const json_t *config; /* its quantization_config */
    const char *method;
    const char *place;
    const lathe_instance *chosen; /* by [quant]; NULL: none */
    const lathe_component **plugins;
    int64_t n_plugins;
    source_group whole;
    source_group *groups;
    int32_t n_groups;
    source_format formats[MAX_FORMATS];
    int32_t n_formats;
    lathe_arena arena;
};

void lathe_quant_source_destroy(lathe_quant_source *s)
{
    if (s == NULL)
        return;
    for (int32_t i = 0; i < s->n_formats; i++)
        lathe_instance_fini(&s->formats[i].instance);
    lathe_arena_fini(&s->arena);
    json_decref(s->root);
    free(s);
}

const char *lathe_quant_source_method(const lathe_quant_source *s)
{
    return s->method;
}

int32_t lathe_quant_used(const lathe_params *params, const lathe_component **out, int32_t max)
{
    int32_t n = 0;
    for (int32_t i = 0; i < params->n && n < max; i++) {
        const lathe_instance *format = params->rows[i]->format;
        int32_t k = 0;
        while (k < n && format != NULL && out[k] != format->component)
            k++;
        if (format != NULL && k == n)
            out[n++] = format->component;
    }
    return n;
}

/* ---- which layers ---- */

static int ends_in_module(const char *module, const char *name)
{
    const size_t n = strlen(module), m = strlen(name);
    return n >= m && strcmp(module + n - m, name) == 0 && (n == m || module[n - m - 1] == '.');
}

/* Whether a regular expression matches from the beginning of the name on, as Python's re.match. */
static lathe_status matches(const lathe_quant_source *s, const char *expression, const char *module,
                            int *out)
{
    const lathe_host *host = lathe_host_get();
    void *pattern = NULL;
    int64_t spans[2];
    *out = 0;
    lathe_status status = host->pattern_create(NULL, expression, &pattern);
    if (status == LATHE_E_CONFIG)
        return lathe_error(LATHE_E_CONFIG, "%s: quantization_config: \"%s\" names layers: %s",
                           s->place, expression, lathe_error_message());
    LATHE_TRY(status);
    const int32_t n = host->pattern_find(pattern, module, (int64_t)strlen(module), 0, spans, 2);
    host->pattern_free(pattern);
    *out = n > 0 && spans[0] == 0;
    return n < 0 ? (lathe_status)n : LATHE_OK;
}

/* The names of a layer: that of the module in transformers, and the one that the folder's files
 * have. Programs write either into a configuration. NULL after the last. */
static const char *layer_name(const lathe_quant_layer *layer, int i)
{
    return i == 0 ? layer->module : i == 1 ? layer->in_file : NULL;
}

static int is_layer(const lathe_quant_layer *layer, const char *name)
{
    int found = 0;
    for (int i = 0; layer_name(layer, i) != NULL; i++)
        found |= strcmp(layer_name(layer, i), name) == 0;
    return found;
}

static lathe_status layer_matches(const lathe_quant_source *s, const char *expression,
                                  const lathe_quant_layer *layer, int *out)
{
    *out = 0;
    for (int i = 0; layer_name(layer, i) != NULL && !*out; i++)
        LATHE_TRY(matches(s, expression, layer_name(layer, i), out));
    return LATHE_OK;
}

/* Whether a name with wildcards is the layer, or a module that contains it. */
static int matches_wildcards(const char *name, const char *module)
{
    char inside[512];
    const int n = snprintf(inside, sizeof inside, "%s.*", name);
    return fnmatch(name, module, 0) == 0 ||
           (n > 0 && (size_t)n < sizeof inside && fnmatch(inside, module, 0) == 0);
}

/* Whether a name of a list of layers that are not quantized is the layer, or a module that contains
 * it. "re:" begins a regular expression (compressed-tensors); ModelOpt's and gpt-oss' names have
 * wildcards. */
static lathe_status names(const lathe_quant_source *s, const char *name, const char *module,
                          int *out)
{
    if (strncmp(name, "re:", 3) == 0)
        return matches(s, name + 3, module, out);
    const size_t n = strlen(name);
    *out = strpbrk(name, "*?[") != NULL ? matches_wildcards(name, module)
                                        : ends_in_module(module, name) ||
                                              (strncmp(module, name, n) == 0 && module[n] == '.');
    return LATHE_OK;
}

static lathe_status is_listed(const lathe_quant_source *s, const json_t *list,
                              const lathe_quant_layer *layer, int *out)
{
    *out = 0;
    for (size_t i = 0; i < json_array_size(list) && !*out; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        *out = name != NULL && strcmp(name, layer->kind) == 0;
        for (int k = 0; name != NULL && layer_name(layer, k) != NULL && !*out; k++)
            LATHE_TRY(names(s, name, layer_name(layer, k), out));
    }
    return LATHE_OK;
}

/* Keys under which the methods list layers that are not quantized. */
static const char *const skip_keys[] = {"modules_to_not_convert", "llm_int8_skip_modules", "ignore",
                                        "ignored_layers",         "skip_modules",          NULL};

const char *lathe_quant_skip_key(const json_t *config)
{
    for (const char *const *key = skip_keys; *key != NULL; key++)
        if (json_object_get(config, *key) != NULL)
            return *key;
    return NULL;
}

/* How a target means a layer, from the narrowest on (match_targets of compressed-tensors). */
enum { BY_NAME, BY_PATTERN, BY_CLASS, BY_NOTHING };

static lathe_status rank_of(const lathe_quant_source *s, const char *target,
                            const lathe_quant_layer *layer, int *out)
{
    int found = 0;
    *out = BY_NOTHING;
    if (strncmp(target, "re:", 3) == 0)
        LATHE_TRY(layer_matches(s, target + 3, layer, &found));
    if (found)
        *out = BY_PATTERN;
    else if (is_layer(layer, target))
        *out = BY_NAME;
    else if (strcmp(target, layer->kind) == 0)
        *out = BY_CLASS;
    return LATHE_OK;
}

/* The group with the narrowest target; of several, the one whose target is the first in the order
 * of its characters, and of equal targets the last. */
static lathe_status find_target(const lathe_quant_source *s, const lathe_quant_layer *layer,
                                const source_group **out)
{
    const char *best = NULL;
    int best_rank = BY_NOTHING;
    for (int32_t k = 0; k < s->n_groups; k++)
        for (size_t i = 0; i < json_array_size(s->groups[k].targets); i++) {
            const char *target = json_string_value(json_array_get(s->groups[k].targets, i));
            int rank = BY_NOTHING;
            if (target != NULL)
                LATHE_TRY(rank_of(s, target, layer, &rank));
            if (rank == BY_NOTHING || rank > best_rank ||
                (rank == best_rank && best != NULL && strcmp(target, best) > 0))
                continue;
            best = target;
            best_rank = rank;
            *out = &s->groups[k];
        }
    return LATHE_OK;
}

static int is_sign(const char *name)
{
    return (name[0] == '+' || name[0] == '-') && name[1] == ':';
}

static lathe_status find_group(const lathe_quant_source *s, const lathe_quant_layer *layer,
                               const source_group **out)
{
    *out = s->n_groups == 0 || s->groups[0].match == MATCH_DYNAMIC ? &s->whole : NULL;
    for (int32_t k = 0; k < s->n_groups; k++) {
        const source_group *g = &s->groups[k];
        int found = 0;
        if (g->match == MATCH_TARGETS && g->targets != NULL)
            return find_target(s, layer, out);
        if (g->match == MATCH_DYNAMIC)
            LATHE_TRY(layer_matches(s, g->name + (is_sign(g->name) ? 2 : 0), layer, &found));
        else
            found = g->match == MATCH_TARGETS || is_layer(layer, g->name);
        if (!found)
            continue;
        *out = g->match == MATCH_DYNAMIC && g->name[0] == '-' && is_sign(g->name) ? NULL : g;
        return LATHE_OK;
    }
    return LATHE_OK;
}

/* The group of a layer; NULL: it is not quantized. */
static lathe_status group_of(const lathe_quant_source *s, const lathe_quant_layer *layer,
                             const source_group **out)
{
    int is_left_out = 0;
    *out = NULL;
    for (const char *const *key = skip_keys; *key != NULL && !is_left_out; key++)
        LATHE_TRY(is_listed(s, json_object_get(s->config, *key), layer, &is_left_out));
    return is_left_out ? LATHE_OK : find_group(s, layer, out);
}

/* ---- what the plugins ask ---- */

/* A configuration that a plugin reads. */
typedef struct reading {
    lathe_quant_source *source;
    const source_group *group;
    const lathe_quant_layer *layer; /* NULL: no particular one */
} reading;

const json_t *lathe_quant_config_at(const json_t *root, const json_t *group, const json_t *config,
                                    const char *path)
{
    if (path[0] == '/')
        return lathe_json_at(root, path + 1);
    const json_t *value = group != NULL ? lathe_json_at(group, path) : NULL;
    if (value == NULL || json_is_null(value)) /* null is absent, as in compressed-tensors */
        value = lathe_json_at(config, path);
    return value;
}

/* lathe_quant_config.get */
static const char *get(void *ctx, const char *path)
{
    const reading *r = ctx;
    const lathe_quant_source *s = r->source;
    return lathe_json_scalar(&r->source->arena,
                             lathe_quant_config_at(s->root, r->group->object, s->config, path));
}

/* lathe_quant_config.tensor */
static const void *tensor(void *ctx, const char *suffix, lathe_desc *out)
{
    const reading *r = ctx;
    char weight[512], name[512];
    if (r->layer == NULL || r->layer->set == NULL)
        return NULL;
    const int n = snprintf(weight, sizeof weight, "%s.weight", r->layer->module);
    if (n < 0 || (size_t)n >= sizeof weight ||
        lathe_plane_name(weight, suffix, name, sizeof name) != LATHE_OK)
        return NULL;
    const lathe_st_tensor *t = lathe_weights_find(r->layer->set, r->layer->model, name);
    if (t == NULL || t->decode != NULL)
        return NULL;
    *out = t->desc;
    return t->data;
}

int lathe_quant_value_fits(const lathe_field *field, const lathe_value *value)
{
    if (field->type == LATHE_T_INT && field->min <= field->max)
        return (double)value->i >= field->min && (double)value->i <= field->max;
    if (field->type == LATHE_T_STRING && field->choices != NULL && value->s != NULL) {
        const size_t n = strlen(value->s);
        for (const char *at = field->choices; *at != '\0'; at += *at == '|') {
            const size_t m = strcspn(at, "|");
            if (m == n && memcmp(at, value->s, n) == 0)
                return 1;
            at += m;
        }
        return 0;
    }
    return 1;
}

static lathe_status check_values(const lathe_quant_source *s, const lathe_plugin *plugin,
                                 const lathe_value *values)
{
    for (int32_t i = 0; i < plugin->n_fields; i++) {
        const lathe_field *f = &plugin->fields[i];
        if (lathe_quant_value_fits(f, &values[i]))
            continue;
        char number[32];
        (void)snprintf(number, sizeof number, "%lld", (long long)values[i].i);
        const char *seen = f->type == LATHE_T_STRING ? values[i].s : number;
        if (f->type == LATHE_T_STRING)
            return lathe_error(LATHE_E_CONFIG,
                               "%s: quantization_config: quant.%s of format %s would be %s; "
                               "expected %s",
                               s->place, f->key, plugin->name, seen, f->choices);
        return lathe_error(LATHE_E_CONFIG,
                           "%s: quantization_config: quant.%s of format %s would be %s; expected "
                           "%g to %g",
                           s->place, f->key, plugin->name, seen, f->min, f->max);
    }
    return LATHE_OK;
}

/* Whether field i of a plugin is a product field that the instance sets explicitly. */
static int sets_product(const lathe_instance *chosen, int32_t i)
{
    const lathe_quant_v1 *table = chosen->table;
    const char *key = chosen->component->plugin->fields[i].key;
    if (!LATHE_HAS(table, product_fields) || chosen->values == NULL ||
        !chosen->values[i].is_explicit)
        return 0;
    for (const char *const *name = table->product_fields; *name != NULL; name++)
        if (strcmp(*name, key) == 0)
            return 1;
    return 0;
}

int32_t lathe_quant_sets_products(const lathe_instance *chosen)
{
    const int32_t n = chosen->component != NULL ? chosen->component->plugin->n_fields : 0;
    int32_t i = 0;
    while (i < n && !sets_product(chosen, i))
        i++;
    return i < n;
}

static int is_same(const lathe_field *field, const lathe_value *a, const lathe_value *b)
{
    if (a->is_set != b->is_set || a->is_explicit != b->is_explicit)
        return 0;
    if (field->type == LATHE_T_STRING)
        return a->s == b->s || (a->s != NULL && b->s != NULL && strcmp(a->s, b->s) == 0);
    if (field->type == LATHE_T_FLOAT)
        return !(a->f < b->f) && !(a->f > b->f); /* values of a checked file: none is NaN */
    return a->i == b->i;
}

/* The format that was made from the same values; NULL: none. */
static source_format *find_made(lathe_quant_source *s, const lathe_component *component,
                                const lathe_value *values)
{
    for (int32_t k = 0; k < s->n_formats; k++) {
        const int32_t n = component->plugin->n_fields;
        int32_t i = 0;
        if (s->formats[k].component != component)
            continue;
        while (i < n &&
               is_same(&component->plugin->fields[i], &values[i], &s->formats[k].values[i]))
            i++;
        if (i == n)
            return &s->formats[k];
    }
    return NULL;
}

static lathe_status make_format(lathe_quant_source *s, const lathe_component *component,
                                lathe_value *values, const lathe_instance **out)
{
    source_format *made = find_made(s, component, values);
    if (made == NULL && s->n_formats == MAX_FORMATS)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: quantization_config gives layers more than %d different settings",
                           s->place, MAX_FORMATS);
    if (made == NULL) {
        made = &s->formats[s->n_formats];
        made->component = component;
        made->values = values;
        const lathe_status status = lathe_instance_init(&made->instance, component, values);
        if (status == LATHE_E_CONFIG)
            return lathe_error(LATHE_E_CONFIG, "%s: quantization_config: %s", s->place,
                               lathe_error_message());
        LATHE_TRY(status);
        s->n_formats++;
    }
    *out = &made->instance;
    return LATHE_OK;
}

/* A plugin's defaults, as values that read_config changes. */
static lathe_status defaults_of(lathe_quant_source *s, const lathe_plugin *plugin,
                                lathe_value **out)
{
    const lathe_schema_scope scope = {.section = "quant", .place = {s->place, 0, 0}};
    lathe_diags diags = {0};
    lathe_status status =
        lathe_schema_check(&scope, NULL, plugin->fields, plugin->n_fields, &s->arena, &diags, out);
    if (status == LATHE_OK)
        status = lathe_diags_status(&diags);
    lathe_diags_fini(&diags);
    return status;
}

/* Makes the format of a layer, or of a group without a layer, with one plugin.
 * LATHE_E_NOT_FOUND: the weights are not of it. */
static lathe_status take_format(reading *r, const lathe_component *component,
                                const lathe_instance **out)
{
    lathe_quant_source *s = r->source;
    const lathe_plugin *plugin = component->plugin;
    const lathe_quant_v1 *table = plugin->table;
    const lathe_quant_config config = {.size = (uint32_t)sizeof config,
                                       .method = s->method,
                                       .ctx = r,
                                       .get = get,
                                       .tensor = tensor};
    lathe_value *values = NULL;
    LATHE_TRY(defaults_of(s, plugin, &values));
    const lathe_status status = table->read_config(lathe_host_get(), &config, values);
    if (status == LATHE_E_UNSUPPORTED)
        return lathe_error(LATHE_E_CONFIG, "%s: quantization_config%s%s: %s", s->place,
                           r->layer != NULL ? ", for " : "",
                           r->layer != NULL ? r->layer->module : "", lathe_error_message());
    LATHE_TRY(status);
    LATHE_TRY(check_values(s, plugin, values));
    for (int32_t i = 0;
         s->chosen != NULL && s->chosen->component == component && i < plugin->n_fields; i++)
        if (sets_product(s->chosen, i))
            values[i] = s->chosen->values[i];
    return make_format(s, component, values, out);
}

static int reads(const lathe_component *component, const char *method)
{
    const lathe_quant_v1 *table = component->plugin->table;
    for (const char *const *m = LATHE_HAS(table, methods) ? table->methods : NULL;
         m != NULL && *m != NULL; m++)
        if (strcmp(*m, method) == 0)
            return 1;
    return 0;
}

/* Refuses a method, or a layout of it, that no plugin reads. */
static lathe_status refuse(const reading *r)
{
    const lathe_quant_source *s = r->source;
    lathe_buffer known = LATHE_BUFFER_INIT;
    const char *key = "format", *layout = get((void *)(uintptr_t)r, key);
    if (layout == NULL)
        layout = get((void *)(uintptr_t)r, key = "quant_algo");
    for (int64_t i = 0; i < s->n_plugins; i++) {
        const lathe_quant_v1 *table = s->plugins[i]->plugin->table;
        for (const char *const *m = LATHE_HAS(table, methods) ? table->methods : NULL;
             m != NULL && *m != NULL; m++)
            lathe_buffer_printf(&known, "%s%s (%s)", known.len > 0 ? ", " : "", *m,
                                s->plugins[i]->plugin->name);
    }
    const lathe_status status = lathe_error(
        LATHE_E_CONFIG,
        "%s: quantization_config: quant_method \"%s\"%s%s%s%s%s is not read; those that are: %s",
        s->place, s->method, layout != NULL ? " with " : "", layout != NULL ? key : "",
        layout != NULL ? " \"" : "", layout != NULL ? layout : "", layout != NULL ? "\"" : "",
        known.data != NULL ? known.data : "none, because no quantization plugin was found");
    lathe_buffer_fini(&known);
    return status;
}

static lathe_status find_format(reading *r, const lathe_instance **out)
{
    const lathe_quant_source *s = r->source;
    for (int64_t i = 0; i < s->n_plugins; i++) {
        if (!reads(s->plugins[i], s->method))
            continue;
        const lathe_status status = take_format(r, s->plugins[i], out);
        if (status != LATHE_E_NOT_FOUND)
            return status;
        lathe_error_clear();
    }
    return refuse(r);
}

lathe_status lathe_quant_source_format(lathe_quant_source *s, const lathe_quant_layer *layer,
                                       const lathe_instance **out)
{
    const source_group *group = NULL;
    *out = NULL;
    LATHE_TRY(group_of(s, layer, &group));
    reading r = {s, group, layer};
    return group != NULL ? find_format(&r, out) : LATHE_OK;
}

/* ---- making one ---- */

/* Adds the members of an object as groups. Each has settings that a plugin must read, whether or
 * not a layer has them. */
static lathe_status add_groups(lathe_quant_source *s, int32_t match, json_t *list)
{
    const char *key;
    json_t *value;
    const size_t n = json_object_size(list);
    if (n == 0)
        return LATHE_OK;
    s->groups =
        n <= MAX_GROUPS ? lathe_arena_alloc(&s->arena, (int64_t)(n * sizeof *s->groups)) : NULL;
    if (n > MAX_GROUPS)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: quantization_config has settings for %zu groups of layers; "
                           "expected at most %d",
                           s->place, n, MAX_GROUPS);
    if (s->groups == NULL)
        return LATHE_E_NOMEM;
    json_object_foreach(list, key, value)
    {
        const source_group group = {match, key, json_object_get(value, "targets"), value};
        const lathe_instance *format = NULL;
        reading r = {s, &group, NULL};
        if (match != MATCH_DYNAMIC || key[0] != '-' || !is_sign(key))
            LATHE_TRY(find_format(&r, &format));
        s->groups[s->n_groups++] = group;
    }
    return LATHE_OK;
}

static lathe_status add_all_groups(lathe_quant_source *s)
{
    const lathe_instance *format = NULL;
    json_t *layers = json_object_get(s->config, "quantized_layers");
    json_t *groups = json_object_get(s->config, "config_groups");
    reading r = {s, &s->whole, NULL};
    if (json_object_size(layers) > 0)
        return add_groups(s, MATCH_NAME, layers);
    if (json_object_size(groups) > 0)
        return add_groups(s, MATCH_TARGETS, groups);
    LATHE_TRY(find_format(&r, &format));
    return add_groups(s, MATCH_DYNAMIC, json_object_get(s->config, "dynamic"));
}

static lathe_status read_source(lathe_quant_source *s, lathe_registry *registry, const char *place,
                                const char *config_json)
{
    s->place = lathe_arena_strdup(&s->arena, place);
    if (s->place == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_json_load(place, config_json, (int64_t)strlen(config_json), &s->root));
    s->config = json_object_get(s->root, "quantization_config");
    s->method = json_string_value(json_object_get(s->config, "quant_method"));
    if (s->method == NULL)
        return lathe_error(LATHE_E_CONFIG, "%s: quantization_config has no quant_method", place);
    const lathe_status status = lathe_registry_candidates(registry, LATHE_KIND_QUANT, "auto",
                                                          &s->arena, &s->plugins, &s->n_plugins);
    if (status == LATHE_E_NOT_FOUND) {
        lathe_error_clear();
        s->n_plugins = 0;
    } else {
        LATHE_TRY(status);
    }
    return add_all_groups(s);
}

lathe_status lathe_quant_source_create(lathe_registry *registry, const char *place,
                                       const char *config_json, const lathe_instance *chosen,
                                       lathe_quant_source **out)
{
    *out = NULL;
    lathe_quant_source *s = calloc(1, sizeof *s);
    if (s == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the quantization_config of %s", place);
    s->chosen = chosen != NULL && chosen->component != NULL ? chosen : NULL;
    const lathe_status status = read_source(s, registry, place, config_json);
    if (status != LATHE_OK)
        lathe_quant_source_destroy(s);
    else
        *out = s;
    return status;
}

lathe_status lathe_quant_source_forget(const char *config_json, char **out)
{
    json_t *root = NULL;
    *out = NULL;
    LATHE_TRY(lathe_json_load("config.json", config_json, (int64_t)strlen(config_json), &root));
    (void)json_object_del(root, "quantization_config");
    *out = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(root);
    return *out != NULL ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for config.json");
}
