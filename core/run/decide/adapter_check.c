/* Checks the adapter's patterns against the model's modules. */
#include "run/decide/adapter_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plug/answers.h"

/* Adds the modules of the embedding and of the head, as far as the adapter can change them. */
static lathe_status add_outer(const lathe_run *run, lathe_arena *arena, const char **names)
{
    const lathe_adapter_v1 *table = run->parts.adapter.table;
    const lathe_model_config *m = &run->model;
    const char *const tensors[2] = {LATHE_HAS(table, embed) ? m->embedding : NULL,
                                    lathe_answer_adapts_head(table) && m->n_labels == 0 ? m->head
                                                                                        : NULL};
    for (int i = 0; i < 2; i++) {
        const char *dot = tensors[i] ? strrchr(tensors[i], '.') : NULL;
        if (dot == NULL)
            continue;
        *names = lathe_arena_strndup(arena, tensors[i], dot - tensors[i]);
        if (*names++ == NULL)
            return LATHE_E_NOMEM;
    }
    *names = NULL;
    return LATHE_OK;
}

/* "model.layers.0.mlp.up_proj" of "model.layers.0.mlp.up_proj.weight", for the linear sites; after
 * them the embedding and the head, and NULL. */
static lathe_status module_names(const lathe_run *run, lathe_arena *arena, const char ***out_names,
                                 int32_t *out_n)
{
    static const char weight[] = ".weight";
    const size_t end = sizeof weight - 1;
    const lathe_params *params = &run->params;
    const char **names = lathe_arena_alloc(arena, (params->n_model + 3) * (int64_t)sizeof *names);
    int32_t n = 0;
    if (names == NULL)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < params->n_model; i++) {
        const lathe_param *p = params->rows[i];
        const size_t length = strlen(p->name);
        if (p->role != LATHE_ROLE_MATRIX || length <= end ||
            strcmp(p->name + length - end, weight) != 0)
            continue;
        names[n] = lathe_arena_strndup(arena, p->name, (int64_t)(length - end));
        if (names[n++] == NULL)
            return LATHE_E_NOMEM;
    }
    *out_names = names;
    *out_n = n;
    return add_outer(run, arena, names + n);
}

static const char *last_part(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

/* "model.norm" of "model.norm.weight", for all parameters of the model. */
static lathe_status all_modules(const lathe_params *params, lathe_arena *arena,
                                const char ***out_names)
{
    const char **names = lathe_arena_alloc(arena, (params->n_model + 1) * (int64_t)sizeof *names);
    *out_names = names;
    for (int32_t i = 0; names && i < params->n_model; i++) {
        const char *name = params->rows[i]->name, *dot = strrchr(name, '.');
        names[i] = dot ? lathe_arena_strndup(arena, name, dot - name) : name;
        if (names[i] == NULL)
            return LATHE_E_NOMEM;
    }
    return names ? LATHE_OK : LATHE_E_NOMEM;
}

/* Lists each last part of the module names once, in the model's order; the layers repeat them. */
static void put_kinds(const char *const *modules, int32_t n, lathe_buffer *out)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t k = 0;
        while (k < i && strcmp(last_part(modules[k]), last_part(modules[i])) != 0)
            k++;
        if (k == i)
            lathe_buffer_printf(out, "%s%s", i ? ", " : "", last_part(modules[i]));
    }
}

static lathe_status param_names(const lathe_params *params, lathe_arena *arena,
                                const char ***out_names)
{
    const char **names = lathe_arena_alloc(arena, (params->n_model + 1) * (int64_t)sizeof *names);
    *out_names = names;
    if (names == NULL)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < params->n_model; i++)
        names[i] = params->rows[i]->name;
    return LATHE_OK;
}

lathe_status lathe__adapter_refuse(const lathe_run *run)
{
    return lathe__run_refuse_part(run, LATHE_KIND_ADAPTER);
}

/* The adapter's first list that the file sets, which probably leaves nothing; otherwise "name". */
static const char *patterns_key(const lathe_config *config)
{
    int32_t n = 0;
    const lathe_field *fields = lathe_config_fields(config, "adapter", &n);
    for (int32_t i = 0; i < n; i++)
        if (fields[i].type == LATHE_T_STRING_LIST &&
            lathe_config_is_set(config, "adapter", fields[i].key))
            return fields[i].key;
    return "name";
}

lathe_status lathe__adapter_check_trains(const lathe_run *run)
{
    const lathe_adapter_v1 *table = run->parts.adapter.component ? run->parts.adapter.table : NULL;
    if (table == NULL || LATHE_HAS(table, wrap))
        return LATHE_OK; /* it adds parameters of its own */
    for (int32_t i = 0; i < run->params.n_model; i++)
        if (run->params.rows[i]->trainable)
            return LATHE_OK;
    return lathe__run_refuse(
        run, "adapter", patterns_key(run->config),
        "adapter \"%s\" trains nothing: all %d parameters of the model stay as "
        "they are",
        run->parts.adapter.component->plugin->name, run->params.n_model);
}

lathe_status lathe__adapter_check_base(const lathe_run *run)
{
    const lathe_adapter_v1 *table = run->parts.adapter.component ? run->parts.adapter.table : NULL;
    if (!LATHE_HAS(table, needs_quantized_base) ||
        !table->needs_quantized_base(run->parts.adapter.self))
        return LATHE_OK;
    for (int32_t i = 0; i < run->params.n_model; i++)
        if (run->params.rows[i]->format)
            return LATHE_OK;
    const lathe_value *init = lathe_config_get(run->config, "adapter", "init");
    if (init && init->is_explicit && strcmp(init->s, "loftq") == 0)
        return lathe__run_refuse(run, "adapter", "init",
                                 "adapter.init = \"loftq\" starts from the quantization error, and "
                                 "the base is in full precision: set quant.name (\"nf4\"), or "
                                 "another init");
    return lathe__run_refuse(
        run, "adapter", "name",
        "adapter \"%s\" trains beside a quantized base, and the base is in full "
        "precision: set quant.name (\"nf4\"), or adapter.name = \"lora\"",
        run->parts.adapter.component->plugin->name);
}

/* Says in `out` that the entry which matches nothing names the embedding or the head, which the
 * model has and the adapter does not adapt. */
static void put_unadapted(const lathe_run *run, const char *entry, lathe_buffer *out)
{
    const lathe_instance *adapter = &run->parts.adapter;
    const lathe_adapter_v1 *table = adapter->table;
    const struct {
        const char *tensor, *what;
        int has;
    } outer[2] = {{run->model.embedding, "the token embedding", LATHE_HAS(table, embed)},
                  {run->model.n_labels == 0 ? run->model.head : NULL,
                   "the head over the vocabulary", lathe_answer_adapts_head(table)}};
    for (int i = 0; i < 2; i++) {
        const char *dot = outer[i].tensor ? strrchr(outer[i].tensor, '.') : NULL, *name = dot;
        while (name && name > outer[i].tensor && name[-1] != '.')
            name--;
        if (dot == NULL || outer[i].has)
            continue;
        const size_t n = (size_t)(dot - name);
        if (strlen(entry) == n && strncmp(entry, name, n) == 0)
            lathe_buffer_printf(out, "; %.*s is %s, which \"%s\" does not adapt, \"lora\" does",
                                (int)n, name, outer[i].what, adapter->component->plugin->name);
    }
}

/* The element of a list that the error's key names: of "target_modules.2". "": of no list. */
static const char *entry_of(const lathe_config *config, const char *path)
{
    char key[64];
    const size_t n = strcspn(path, ".");
    (void)snprintf(key, sizeof key, "%.*s", (int)n, path);
    const lathe_value *value = path[n] ? lathe_config_get(config, "adapter", key) : NULL;
    const long long i = path[n] ? atoll(path + n + 1) : 0;
    return value && value->strs && i >= 0 && i < value->n ? value->strs[i] : "";
}

/* Adds the names that a pattern could have matched to the adapter's message. */
static lathe_status refuse_pattern(lathe_run *run, const char *const *sites, int32_t n_sites)
{
    const char **modules = NULL;
    lathe_buffer kinds = LATHE_BUFFER_INIT;
    const char *why = lathe_arena_strdup(&run->arena, lathe_error_message());
    const char *key = lathe_arena_strdup(&run->arena, lathe_error_key());
    if (why == NULL || key == NULL)
        return LATHE_E_NOMEM;
    if (strcmp(key, "modules_to_save") == 0) {
        LATHE_TRY(all_modules(&run->params, &run->arena, &modules));
        put_kinds(modules, run->params.n_model, &kinds);
    } else {
        while (sites[n_sites])
            n_sites++;
        put_kinds(sites, n_sites, &kinds);
        put_unadapted(run, entry_of(run->config, key), &kinds);
    }
    (void)lathe_error_at(LATHE_E_CONFIG, "adapter", key, "%s; the model has %s", why,
                         kinds.data ? kinds.data : "none");
    lathe_buffer_fini(&kinds);
    return lathe__run_refuse_part(run, LATHE_KIND_ADAPTER);
}

lathe_status lathe__adapter_check(lathe_run *run)
{
    const lathe_adapter_v1 *table = run->parts.adapter.component ? run->parts.adapter.table : NULL;
    const char **modules = NULL, **params = NULL;
    int32_t n = 0;
    if (!LATHE_HAS(table, check))
        return LATHE_OK;
    LATHE_TRY(module_names(run, &run->arena, &modules, &n));
    LATHE_TRY(param_names(&run->params, &run->arena, &params));
    const lathe_status status =
        table->check(run->parts.adapter.self, modules, n, params, run->params.n_model);
    if (status == LATHE_E_NOT_FOUND)
        return refuse_pattern(run, modules, n);
    return status == LATHE_E_CONFIG ? lathe__adapter_refuse(run) : status;
}

int32_t lathe__adapter_starts_elsewhere(const lathe_instance *adapter)
{
    const lathe_adapter_v1 *table = adapter->component ? adapter->table : NULL;
    return LATHE_HAS(table, starts_elsewhere) && table->starts_elsewhere(adapter->self);
}
