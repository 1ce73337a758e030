/* Describes what all ranks of a run must have in common. */
#include "train/rank_compare.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "config/config.h"
#include "parallel/ranks/ranks.h"
#include "plug/so.h"

static void add_file(json_t *out, const char *key, const char *path)
{
    char hex[65] = "";
    json_object_set_new(out, key,
                        lathe_sha256_file(path, hex) == LATHE_OK ? json_string(hex) : json_null());
}

/* The library that holds this function; the program itself if it is linked into it. */
static void add_library(json_t *out)
{
    static const char here = 0;
    Dl_info info;
    if (dladdr(&here, &info) != 0 && info.dli_fname != NULL)
        add_file(out, "library", info.dli_fname);
}

static void add_plugin(json_t *out, const char *key, const lathe_instance *instance)
{
    char hex[65] = "";
    if (!instance->component)
        return;
    const lathe_status status = lathe_so_sha256(instance->component->plugin, hex);
    json_object_set_new(out, key, status == LATHE_OK ? json_string(hex) : json_null());
}

static json_t *plugins_of(const lathe_run *run)
{
    json_t *out = json_object();
    add_plugin(out, "model", &run->model.family);
    add_plugin(out, "optimizer", &run->parts.optimizer);
    add_plugin(out, "scheduler", &run->parts.scheduler);
    add_plugin(out, "quant", &run->parts.quant);
    add_plugin(out, "adapter", &run->parts.adapter);
    add_plugin(out, "stage", &run->parts.stage);
    add_plugin(out, "device", &run->parts.device);
    return out;
}

/* Bytes of what ranks may divide, of all ranks together. */
static void add_whole_bytes(json_t *out, const lathe_store *store)
{
    int64_t gradients = 0, slots = 0;
    for (int32_t i = 0; i < store->n_rows; i++) {
        if (store->params->rows[i]->trainable)
            gradients += lathe_desc_count(&store->params->rows[i]->desc) *
                         lathe_dtype_bytes(lathe_params_grad_dtype(store->params, i));
        for (int32_t k = 0; k < store->rows[i].n_slots; k++)
            slots += lathe_desc_bytes(&store->rows[i].slots[k].desc);
    }
    json_object_set_new(out, "gradient_bytes", json_integer((json_int_t)gradients));
    json_object_set_new(out, "optimizer_bytes", json_integer((json_int_t)slots));
}

/* The first row of the data and their identity, the plan of the gradients, the length. */
static json_t *run_of(const lathe_run *run)
{
    lathe_cursor cursor = {0};
    json_t *out = json_object();
    if (run->data.loader)
        lathe_loader_cursor(run->data.loader, &cursor);
    json_object_set_new(out, "hash_of_the_data", json_integer((json_int_t)cursor.identity));
    json_object_set_new(out, "rows_per_epoch", json_integer((json_int_t)cursor.rows_per_epoch));
    json_object_set_new(out, "steps", json_integer((json_int_t)run->set.max_steps));
    json_object_set_new(out, "threads", json_integer(run->machine.n_threads));
    add_whole_bytes(out, &run->store);
    json_object_set_new(out, "compute_dtype", json_integer(run->set.compute_dtype));
    return out;
}

lathe_status lathe__ranks_compare(lathe_run *run)
{
    lathe_buffer settings = LATHE_BUFFER_INIT;
    json_t *all = json_object(), *config = NULL;
    lathe_config_json(run->config, &settings);
    lathe_status status = settings.status;
    if (status == LATHE_OK)
        status = lathe_json_load("the run's settings", settings.data, settings.len, &config);
    if (status == LATHE_OK) {
        json_object_set_new(all, "settings", config);
        json_object_set_new(all, "plugins", plugins_of(run));
        json_object_set_new(all, "run", run_of(run));
        add_file(all, "program", "/proc/self/exe");
        add_library(all);
        char *text = json_dumps(all, JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
        status = text ? lathe_ranks_compare(run->ranks, text)
                      : lathe_error(LATHE_E_NOMEM, "no memory to compare ranks");
        free(text);
    }
    json_decref(all);
    lathe_buffer_fini(&settings);
    return status;
}
