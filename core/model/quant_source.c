/* Reads quantization_config. */
#include "model/quant_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/diag.h"
#include "base/error.h"
#include "base/json.h"
#include "base/parallel.h"
#include "lathe/quant.h"
#include "plug/schema.h"

enum { MAX_GROUPS = 16 };

/* Layers that share a format. */
typedef struct source_group {
    const json_t *object;  /* of config_groups; NULL: the whole configuration */
    const json_t *targets; /* names of layers or of classes of layers; NULL: all layers */
    lathe_instance format;
} source_group;

struct lathe_quant_source {
    json_t *root;         /* config.json */
    const json_t *config; /* its quantization_config */
    const char *method;
    const char *place;
    const lathe_instance *chosen; /* by [quant]; NULL: none */
    source_group groups[MAX_GROUPS];
    int32_t n_groups;
    lathe_arena arena;
};

void lathe_quant_source_destroy(lathe_quant_source *s)
{
    if (s == NULL)
        return;
    for (int32_t i = 0; i < s->n_groups; i++)
        lathe_instance_fini(&s->groups[i].format);
    lathe_arena_fini(&s->arena);
    json_decref(s->root);
    free(s);
}

const char *lathe_quant_source_method(const lathe_quant_source *s)
{
    return s->method;
}

int32_t lathe_quant_used(const lathe_params *params, const lathe_component **out, int32_t most)
{
    int32_t n = 0;
    for (int32_t i = 0; i < params->n && n < most; i++) {
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

/* Whether a name of a list is the layer, or a module that contains it. "re:" begins a regular
 * expression that must match from the beginning on (compressed-tensors). */
static int names(const char *name, const char *module)
{
    const lathe_host *host = lathe_host_get();
    if (strncmp(name, "re:", 3) == 0) {
        void *pattern = NULL;
        int64_t spans[2];
        if (host->pattern_create(name + 3, &pattern) != LATHE_OK) {
            lathe_error_clear();
            return 0;
        }
        const int32_t n = host->pattern_find(pattern, module, (int64_t)strlen(module), 0, spans, 2);
        host->pattern_free(pattern);
        return n > 0 && spans[0] == 0;
    }
    const size_t n = strlen(name);
    const char *star = strchr(name, '*');
    if (star != NULL && star[1] == '\0') /* "lm_head*", of ModelOpt */
        return strncmp(module, name, n - 1) == 0;
    return ends_in_module(module, name) || (strncmp(module, name, n) == 0 && module[n] == '.');
}

static int is_listed(const json_t *list, const char *module)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name != NULL && names(name, module))
            return 1;
    }
    return 0;
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

static int is_target(const source_group *group, const char *module)
{
    for (size_t i = 0; i < json_array_size(group->targets); i++) {
        const char *name = json_string_value(json_array_get(group->targets, i));
        if (name != NULL && (strcmp(name, "Linear") == 0 || names(name, module)))
            return 1;
    }
    return group->targets == NULL;
}

const lathe_instance *lathe_quant_source_format(const lathe_quant_source *s, const char *module)
{
    for (const char *const *key = skip_keys; *key != NULL; key++)
        if (is_listed(json_object_get(s->config, *key), module))
            return NULL;
    for (int32_t i = 0; i < s->n_groups; i++)
        if (is_target(&s->groups[i], module))
            return &s->groups[i].format;
    return NULL;
}

/* ---- what the plugins ask ---- */

/* A configuration that a plugin reads. */
typedef struct reading {
    lathe_quant_source *source;
    const source_group *group;
} reading;

/* The value at a path of keys and indices; NULL: none. */
static const json_t *value_at(const json_t *node, const char *path)
{
    char part[128];
    while (node != NULL && *path != '\0') {
        const size_t n = strcspn(path, ".");
        if (n >= sizeof part)
            return NULL;
        memcpy(part, path, n);
        part[n] = '\0';
        node = json_is_array(node) ? json_array_get(node, (size_t)strtoul(part, NULL, 10))
                                   : json_object_get(node, part);
        path += n + (path[n] == '.');
    }
    return node;
}

static const char *text_of(lathe_arena *arena, const json_t *value)
{
    char text[64];
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    if (json_is_integer(value))
        (void)snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        (void)snprintf(text, sizeof text, "%.17g", json_real_value(value));
    else
        return NULL;
    return lathe_arena_strdup(arena, text);
}

/* lathe_quant_config.get */
static const char *get(void *ctx, const char *path)
{
    const reading *r = ctx;
    if (path[0] == '/')
        return text_of(&r->source->arena, value_at(r->source->root, path + 1));
    const json_t *value = r->group->object != NULL ? value_at(r->group->object, path) : NULL;
    if (value == NULL)
        value = value_at(r->source->config, path);
    return text_of(&r->source->arena, value);
}

/* Whether the value satisfies its field: a configuration is foreign data. */
static int is_valid(const lathe_field *field, const lathe_value *value)
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
        if (is_valid(f, &values[i]))
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

/* Makes the format of a group with one plugin. LATHE_E_NOT_FOUND: the weights are not of it. */
static lathe_status take_format(lathe_quant_source *s, source_group *group,
                                const lathe_component *component)
{
    const lathe_plugin *plugin = component->plugin;
    const lathe_quant_v1 *table = plugin->table;
    const lathe_schema_scope scope = {.section = "quant", .place = {s->place, 0, 0}};
    reading r = {s, group};
    const lathe_quant_config config = {
        .size = (uint32_t)sizeof config, .method = s->method, .ctx = &r, .get = get};
    lathe_diags diags = {0};
    lathe_value *values = NULL;
    lathe_status status = lathe_schema_check(&scope, NULL, plugin->fields, plugin->n_fields,
                                             &s->arena, &diags, &values);
    if (status == LATHE_OK)
        status = lathe_diags_status(&diags);
    lathe_diags_fini(&diags);
    LATHE_TRY(status);
    status = table->read_config(lathe_host_get(), &config, values);
    if (status == LATHE_E_UNSUPPORTED)
        return lathe_error(LATHE_E_CONFIG, "%s: quantization_config: %s", s->place,
                           lathe_error_message());
    LATHE_TRY(status);
    LATHE_TRY(check_values(s, plugin, values));
    for (int32_t i = 0;
         s->chosen != NULL && s->chosen->component == component && i < plugin->n_fields; i++)
        if (sets_product(s->chosen, i))
            values[i] = s->chosen->values[i];
    status = lathe_instance_init(&group->format, component, values);
    return status == LATHE_E_CONFIG ? lathe_error(LATHE_E_CONFIG, "%s: quantization_config: %s",
                                                  s->place, lathe_error_message())
                                    : status;
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
static lathe_status refuse(const lathe_quant_source *s, const lathe_component *const *list,
                           int64_t n, const source_group *group)
{
    lathe_buffer known = LATHE_BUFFER_INIT;
    const char *layout = json_string_value(json_object_get(group->object, "format"));
    if (layout == NULL)
        layout = json_string_value(json_object_get(s->config, "format"));
    for (int64_t i = 0; i < n; i++) {
        const lathe_quant_v1 *table = list[i]->plugin->table;
        for (const char *const *m = LATHE_HAS(table, methods) ? table->methods : NULL;
             m != NULL && *m != NULL; m++)
            lathe_buffer_printf(&known, "%s%s (%s)", known.len > 0 ? ", " : "", *m,
                                list[i]->plugin->name);
    }
    const lathe_status status = lathe_error(
        LATHE_E_CONFIG,
        "%s: quantization_config: quant_method \"%s\"%s%s%s is not read; those that are: %s",
        s->place, s->method, layout != NULL ? " with format \"" : "", layout != NULL ? layout : "",
        layout != NULL ? "\"" : "",
        known.data != NULL ? known.data : "none, because no quantization plugin was found");
    lathe_buffer_fini(&known);
    return status;
}

static lathe_status find_format(lathe_quant_source *s, source_group *group,
                                const lathe_component *const *list, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!reads(list[i], s->method))
            continue;
        const lathe_status status = take_format(s, group, list[i]);
        if (status != LATHE_E_NOT_FOUND)
            return status;
        lathe_error_clear();
    }
    return refuse(s, list, n, group);
}

/* ---- making one ---- */

static lathe_status add_group(lathe_quant_source *s, const json_t *object,
                              const lathe_component *const *list, int64_t n)
{
    if (s->n_groups == MAX_GROUPS)
        return lathe_error(LATHE_E_CONFIG, "%s: quantization_config has more than %d config_groups",
                           s->place, MAX_GROUPS);
    source_group *group = &s->groups[s->n_groups];
    group->object = object;
    group->targets = json_object_get(object, "targets");
    LATHE_TRY(find_format(s, group, list, n));
    s->n_groups++;
    return LATHE_OK;
}

static lathe_status add_groups(lathe_quant_source *s, const lathe_component *const *list, int64_t n)
{
    json_t *groups = json_object_get(s->config, "config_groups");
    const char *key;
    json_t *value;
    if (!json_is_object(groups) || json_object_size(groups) == 0)
        return add_group(s, NULL, list, n);
    json_object_foreach(groups, key, value) LATHE_TRY(add_group(s, value, list, n));
    return LATHE_OK;
}

static lathe_status read_source(lathe_quant_source *s, lathe_registry *registry, const char *place,
                                const char *config_json)
{
    const lathe_component **list = NULL;
    int64_t n = 0;
    s->place = lathe_arena_strdup(&s->arena, place);
    if (s->place == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_json_load(place, config_json, (int64_t)strlen(config_json), &s->root));
    s->config = json_object_get(s->root, "quantization_config");
    s->method = json_string_value(json_object_get(s->config, "quant_method"));
    if (s->method == NULL)
        return lathe_error(LATHE_E_CONFIG, "%s: quantization_config has no quant_method", place);
    lathe_status status =
        lathe_registry_candidates(registry, LATHE_KIND_QUANT, "auto", &s->arena, &list, &n);
    if (status == LATHE_E_NOT_FOUND) {
        lathe_error_clear();
        status = LATHE_OK;
        n = 0;
    }
    LATHE_TRY(status);
    return add_groups(s, list, n);
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
