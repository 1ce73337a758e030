/* The adapters that a run generates with, one at a time. */
#include "run/parts/named_adapters.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/state/adapter_file.h"
#include "files/safetensors/manifest.h"
#include "generate/generator.h"
#include "plug/answers.h"
#include "run/decide/new_tokens.h"
#include "run/state/run_saved.h"

lathe_status lathe__named_adapters_create(int32_t n, lathe_named_adapters **out)
{
    lathe_named_adapters *named = calloc(1, sizeof *named);
    lathe_named_adapter *list = calloc((size_t)n + 1, sizeof *list); /* calloc(0) may give NULL */
    *out = named;
    if (!named || !list) {
        free(named);
        free(list);
        *out = NULL;
        return lathe_error(LATHE_E_NOMEM, "no memory for %d adapters", n);
    }
    named->list = list;
    named->used = -1;
    return LATHE_OK;
}

void lathe__named_adapters_destroy(lathe_named_adapters *named)
{
    for (int32_t i = 0; named && i < named->n; i++) {
        lathe_instance_fini(&named->list[i].part);
        lathe_config_destroy(named->list[i].config);
    }
    if (!named)
        return;
    lathe_arena_fini(&named->arena);
    free(named->list);
    free(named);
}

/* Names appear in the names of parameters ("adapter:NAME:..."), in option values NAME=DIR and in
 * JSON, so only characters that need no escape anywhere are allowed. */
static int is_name(const char *text)
{
    const char *at = text;
    while (isalnum((unsigned char)*at) || *at == '_' || *at == '-' || *at == '.')
        at++;
    return at > text && *at == '\0' && strlen(text) <= 64;
}

lathe_status lathe__named_adapters_add(lathe_named_adapters *named, const char *name,
                                       const char *dir)
{
    lathe_named_adapter *adapter = &named->list[named->n];
    if (!is_name(name))
        return lathe_error(LATHE_E_ARG,
                           "\"%s\" is no name of an adapter; expected up to 64 letters, digits, "
                           "'_', '-' and '.'",
                           name);
    if (strcmp(name, LATHE_NAMED_BASE) == 0)
        return lathe_error(LATHE_E_ARG, "\"" LATHE_NAMED_BASE
                                        "\" names the model without an adapter; give the adapter "
                                        "another name");
    for (int32_t i = 0; i < named->n; i++)
        if (strcmp(named->list[i].name, name) == 0)
            return lathe_error(LATHE_E_ARG, "two adapters are named \"%s\": %s and %s", name,
                               named->list[i].dir, dir);
    adapter->name = lathe_arena_strdup(&named->arena, name);
    adapter->dir = lathe_arena_strdup(&named->arena, dir);
    adapter->prefix = lathe_arena_printf(&named->arena, "adapter:%s:", name);
    if (!adapter->name || !adapter->dir || !adapter->prefix)
        return LATHE_E_NOMEM;
    named->n++;
    return LATHE_OK;
}

lathe_status lathe__named_adapters_find(const lathe_named_adapters *named, const char *name,
                                        int32_t *out)
{
    lathe_buffer names = LATHE_BUFFER_INIT;
    *out = -1;
    if (strcmp(name, LATHE_NAMED_BASE) == 0)
        return LATHE_OK;
    for (int32_t i = 0; i < named->n; i++) {
        if (strcmp(named->list[i].name, name) == 0) {
            *out = i;
            lathe_buffer_fini(&names);
            return LATHE_OK;
        }
        lathe_buffer_printf(&names, "%s, ", named->list[i].name);
    }
    const lathe_status status =
        lathe_error(LATHE_E_ARG, "no adapter is named \"%s\"; expected %sor " LATHE_NAMED_BASE,
                    name, names.data ? names.data : "");
    lathe_buffer_fini(&names);
    return status;
}

const lathe_named_adapters *lathe__run_named(const lathe_run *run)
{
    return run->named;
}

const lathe_named_adapter *lathe__named_adapter_used(const lathe_run *run)
{
    return run->named && run->named->used >= 0 ? &run->named->list[run->named->used] : NULL;
}

/* Frees the generator: its graph has the adapter's matrices as inputs, and its cache holds keys
 * that were computed with them. The next generation makes another one. */
void lathe__named_adapters_use(lathe_run *run, int32_t index)
{
    int64_t drafted, accepted;
    if (index == run->named->used)
        return;
    run->named->used = index;
    lathe_generator_drafts(run->generator, &drafted, &accepted);
    run->named->n_drafted += drafted;
    run->named->n_accepted += accepted;
    lathe_generator_destroy(run->generator);
    run->generator = NULL;
}

/* Leaves the adapter in use as it was, also after an error. */
lathe_status lathe__named_adapters_each(lathe_run *run, lathe_status (*fn)(lathe_run *run))
{
    const int32_t used = run->named->used;
    lathe_status status = LATHE_OK;
    for (int32_t i = -1; i < run->named->n && status == LATHE_OK; i++) {
        run->named->used = i;
        status = fn(run);
        if (status != LATHE_OK && i >= 0)
            status = lathe_error_context(status, "adapter %s=%s", run->named->list[i].name,
                                         run->named->list[i].dir);
    }
    run->named->used = used;
    return status;
}

/* ---- parameters ---- */

/* Adds a row for each parameter of the model that the adapter's file holds as a whole
 * (modules_to_save, bias): the base keeps its own, because the other adapters use it. An adapter
 * whose select() trains nothing of the model replaces nothing. */
static lathe_status add_replaced(lathe_run *run, const lathe_named_adapter *adapter)
{
    const lathe_adapter_v1 *table = adapter->part.table;
    if (!LATHE_HAS(table, file_key) || !LATHE_HAS(table, base_is_frozen) ||
        !table->base_is_frozen(adapter->part.self) || !LATHE_HAS(table, select))
        return LATHE_OK;
    for (int32_t i = 0; i < run->params.n_model; i++) {
        const lathe_param_info info = lathe_params_info(&run->params, i);
        lathe_param copy = *run->params.rows[i];
        int32_t replaced = 0, group = 0, index;
        LATHE_TRY(lathe_answer_select(&adapter->part, &info, LATHE_MAX_GROUPS, &replaced, &group));
        if (!replaced)
            continue;
        if (copy.planes_on_file)
            return lathe_error(LATHE_E_CONFIG,
                               "adapter %s=%s replaces %s, which %s stores quantized; only plain "
                               "numbers can be trained",
                               adapter->name, adapter->dir, copy.name, run->set.model_path);
        copy.name = lathe_arena_printf(&run->arena, "%s%s", adapter->prefix, copy.name);
        if (!copy.name)
            return LATHE_E_NOMEM;
        copy.trainable = 0; /* this run only generates */
        copy.reference = copy.in_adapter = 1;
        copy.format = NULL; /* the file has numbers, also where the base is quantized */
        copy.stored = NULL;
        copy.n_planes = copy.loftq_steps = 0;
        LATHE_TRY(lathe_params_add(&run->params, &copy, &index));
    }
    return LATHE_OK;
}

lathe_status lathe__named_adapters_params(lathe_run *run)
{
    for (int32_t i = 0; run->named && i < run->named->n; i++) {
        lathe_named_adapter *one = &run->named->list[i];
        LATHE_TRY(lathe__token_rows_of_other(run, one->config, one->dir, &one->rows));
        LATHE_TRY(add_replaced(run, one));
    }
    return LATHE_OK;
}

lathe_status lathe__named_adapters_load(lathe_run *run)
{
    for (int32_t i = 0; run->named && i < run->named->n; i++) {
        const lathe_named_adapter *adapter = &run->named->list[i];
        lathe_status status = LATHE_OK;
        const char *manifest = lathe_path_join(&run->arena, adapter->dir, LATHE_MANIFEST_NAME);
        if (!manifest)
            return LATHE_E_NOMEM;
        if (lathe_path_exists(manifest))
            status = lathe_manifest_verify(adapter->dir);
        if (status == LATHE_OK)
            status = lathe__adapter_file_frozen(lathe__run_saved(run), &adapter->part,
                                                adapter->prefix, adapter->dir, 1);
        if (status != LATHE_OK)
            return lathe_error_context(status, "adapter %s=%s", adapter->name, adapter->dir);
    }
    return LATHE_OK;
}
