/* Makes the description of a run in run.json. */
#include "train/run_describe.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json/json.h"
#include "base/log.h"
#include "config/config_changes.h"
#include "data/rows/shards.h"
#include "exec/program/precision.h"
#include "graph/ir/flops.h"
#include "model/family/model_size.h"
#include "model/family/quant_source.h"
#include "optim/curvature.h"
#include "plug/kind.h"
#include "plug/op_library.h"
#include "plug/so.h"

static json_t *describe_model(const lathe_model_config *m, const lathe_params *params)
{
    int64_t n_trained = 0, n_adapter = 0;
    for (int32_t i = 0; i < params->n; i++) {
        const lathe_param *row = params->rows[i];
        const int64_t n = lathe_desc_count(&row->desc);
        n_trained += row->trainable ? n : 0;
        n_adapter += row->role == LATHE_ROLE_ADAPTER ? n : 0;
    }
    json_t *out = json_object();
    json_object_set_new(out, "family", json_string(m->model_type));
    json_object_set_new(out, "layers", json_integer(m->n_layers));
    json_object_set_new(out, "width", json_integer(m->width));
    json_object_set_new(out, "ffn", json_integer(m->ffn));
    json_object_set_new(out, "heads", json_integer(m->n_heads));
    json_object_set_new(out, "kv_heads", json_integer(m->n_kv_heads));
    json_object_set_new(out, "head_dim", json_integer(m->head_dim));
    json_object_set_new(out, "vocab", json_integer(m->vocab));
    json_object_set_new(out, "max_positions", json_integer(m->max_positions));
    json_object_set_new(out, "tied", json_boolean(m->tied));
    json_object_set_new(out, "parameters", json_integer(lathe_model_n_params(params)));
    json_object_set_new(out, "adapter_parameters", json_integer(n_adapter));
    json_object_set_new(out, "trained_parameters", json_integer(n_trained));
    return out;
}

static json_t *describe_plan(const lathe_run *run, double peak_flops)
{
    json_t *memory = json_object(), *out = json_object();
    const lathe_graph *g = lathe_exec_graph(run->programs.train.exec);
    const double micro = run->set.gradient_accumulation_steps;
    for (int32_t i = 0; i < LATHE_N_MEM; i++)
        if (run->planned.by[i])
            json_object_set_new(memory, lathe_mem_name(i), json_integer(run->planned.by[i]));
    json_object_set_new(out, "memory", memory);
    json_object_set_new(out, "memory_bytes", json_integer(lathe_mem_total(&run->planned)));
    if (run->ranks)
        json_object_set_new(out, "shard", json_string(lathe_shard_name(run->set.shard)));
    json_object_set_new(out, "flops_per_step",
                        json_real(lathe_graph_flops(g, 1) * micro +
                                  lathe_update_flops(run->opt.update) +
                                  lathe_curvature_flops(&run->programs, &run->parts.optimizer)));
    json_object_set_new(out, "tokens_per_step",
                        json_integer((json_int_t)run->programs.train.n_rows *
                                     (json_int_t)run->programs.train.row_tokens *
                                     (json_int_t)run->set.gradient_accumulation_steps));
    json_object_set_new(out, "nodes", json_integer(g->n_nodes));
    json_object_set_new(out, "peak_flops", json_real(peak_flops));
    return out;
}

static void add_plugin(json_t *list, int32_t kind, const lathe_instance *instance)
{
    const lathe_component *component = instance->component;
    char hex[65] = "";
    if (!component)
        return;
    if (lathe_so_sha256(component->plugin, hex) != LATHE_OK)
        lathe_log(LATHE_LOG_WARN, "a plugin's hash is not recorded: %s", lathe_error_message());
    json_t *entry = json_object();
    json_object_set_new(entry, "kind", json_string(lathe_kind_name(kind)));
    json_object_set_new(entry, "name", lathe__json_text(component->plugin->name));
    json_object_set_new(entry, "version", lathe__json_text(component->plugin->version));
    json_object_set_new(entry, "sha256", hex[0] ? json_string(hex) : json_null());
    json_object_set_new(entry, "path", lathe__json_text(component->path));
    json_array_append_new(list, entry);
}

static int is_listed(const json_t *list, int32_t kind, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *has = json_string_value(json_object_get(entry, "name"));
        if (has && strcmp(has, name) == 0 &&
            strcmp(json_string_value(json_object_get(entry, "kind")), lathe_kind_name(kind)) == 0)
            return 1;
    }
    return 0;
}

/* Adds the reader plugins of the files that shards were made from, each once. NULL: no shards. */
static void add_readers(json_t *list, const lathe_shards *shards)
{
    const lathe_component *last = NULL;
    int64_t n = 0;
    const lathe_source *files = shards ? lathe_shards_sources(shards, &n) : NULL;
    for (int64_t i = 0; i < n; i++) {
        const lathe_instance reader = {.component = files[i].reader};
        if (!files[i].reader || files[i].reader == last)
            continue;
        last = files[i].reader;
        if (!is_listed(list, LATHE_KIND_READER, last->plugin->name))
            add_plugin(list, LATHE_KIND_READER, &reader);
    }
}

static json_t *describe_plugins(const lathe_run *run)
{
    const char *chosen = lathe_exec_attention(run->programs.train.exec);
    const lathe_component *formats[LATHE_MOST_FORMATS];
    const int32_t n_formats = lathe_quant_used(&run->params, formats, LATHE_MOST_FORMATS);
    json_t *list = json_array();
    add_plugin(list, LATHE_KIND_MODEL, &run->model.family);
    add_plugin(list, LATHE_KIND_OPTIMIZER, &run->parts.optimizer);
    add_plugin(list, LATHE_KIND_SCHEDULER, &run->parts.scheduler);
    for (int32_t i = 0; i < n_formats; i++)
        add_plugin(list, LATHE_KIND_QUANT, &(lathe_instance){.component = formats[i]});
    add_plugin(list, LATHE_KIND_ADAPTER, &run->parts.adapter);
    add_plugin(list, LATHE_KIND_STAGE, &run->parts.stage);
    for (int64_t i = 0; chosen && i < run->parts.n_attention; i++)
        if (strcmp(run->parts.attention[i].component->plugin->name, chosen) == 0)
            add_plugin(list, LATHE_KIND_ATTENTION, &run->parts.attention[i]);
    add_plugin(list, LATHE_KIND_DEVICE, &run->parts.device);
    const lathe_component *ops[LATHE_MOST_OPS];
    const int32_t n_ops = lathe_ops_used(&run->params, lathe_exec_graph(run->programs.train.exec),
                                         ops, LATHE_MOST_OPS);
    for (int32_t i = 0; i < n_ops; i++)
        add_plugin(list, LATHE_KIND_OP, &(lathe_instance){.component = ops[i]});
    for (int32_t i = 0; i < run->parts.n_rewards; i++)
        add_plugin(list, LATHE_KIND_REWARD, &run->parts.rewards[i]);
    add_readers(list, run->data.shards);
    add_readers(list, run->data.validation_shards);
    return list;
}

static json_t *describe_machine(const lathe_machine *machine, const char *device)
{
    const lathe_device_info *info = &machine->info;
    struct utsname name;
    json_t *out = json_object();
    json_object_set_new(out, "device", lathe__json_text(device));
    json_object_set_new(out, "model", lathe__json_text(info->model));
    json_object_set_new(out, "isa", lathe__json_text(info->isa));
    json_object_set_new(out, "memory_bytes", json_integer(info->memory_bytes));
    json_object_set_new(out, "threads", json_integer(machine->n_threads));
    json_object_set_new(out, "cpus", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    if (uname(&name) == 0) {
        char system[300];
        (void)snprintf(system, sizeof system, "%s %s %s", name.sysname, name.release, name.machine);
        json_object_set_new(out, "system", lathe__json_text(system));
    }
    return out;
}

lathe_status lathe__run_describe(const lathe_run *run, double peak_flops, json_t **out)
{
    json_t *config = NULL;
    const char *attention = lathe_exec_attention(run->programs.train.exec);
    const char *asked = lathe_config_string(run->config, "train", "precision");
    *out = NULL;
    LATHE_TRY(lathe_config_object(run->config, &config));
    json_t *root = json_object();
    json_object_set_new(root, "format", json_string("lathe-run"));
    json_object_set_new(root, "version", json_integer(1));
    json_object_set_new(root, "lathe", json_string(lathe_version()));
    json_object_set_new(root, "file", lathe__json_text(lathe_config_path(run->config)));
    json_object_set_new(root, "max_steps", json_integer(run->set.max_steps));
    json_object_set_new(root, "model", describe_model(&run->model, &run->params));
    json_object_set_new(root, "precision",
                        json_pack("{s:s?, s:s}", "asked", asked, "used",
                                  lathe_precision_used(run->set.compute_dtype, run->set.fp8)));
    if (run->set.fp8 != 0)
        json_object_set_new(json_object_get(root, "precision"), "fp8_recipe",
                            json_string(lathe_fp8_recipe_name(run->set.fp8)));
    json_object_set_new(root, "attention", attention ? lathe__json_text(attention) : json_null());
    json_object_set_new(root, "plan", describe_plan(run, peak_flops));
    json_object_set_new(root, "plugins", describe_plugins(run));
    json_object_set_new(root, "machine",
                        describe_machine(&run->machine, run->parts.device.component->plugin->name));
    json_object_set_new(root, "config", config);
    *out = root;
    return LATHE_OK;
}
