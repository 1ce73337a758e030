/* Writes a checkpoint under a temporary name, makes it durable, reads it back if requested, and
 * renames it. */
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/new_folder.h"
#include "base/trace.h"
#include "checkpoint/state/adapter_file.h"
#include "checkpoint/state/checkpoint.h"
#include "checkpoint/state/model_file.h"
#include "checkpoint/state/parents.h"
#include "checkpoint/state/train_state.h"
#include "exec/program/precision.h"
#include "files/safetensors/folder_finite.h"
#include "files/safetensors/manifest.h"
#include "lathe/lathe.h"
#include "model/family/folder_template.h"
#include "model/family/generation_config.h"
#include "model/family/quant_source.h"
#include "model/family/weights.h"
#include "plug/kind.h"
#include "plug/op_library.h"
#include "plug/so.h"

/* Whether parameters of the model are trained that no adapter's file holds. */
static int32_t trains_model(const lathe_saved_state *saved)
{
    for (int32_t i = 0; i < saved->params->n_model; i++)
        if (saved->params->rows[i]->trainable && !saved->params->rows[i]->in_adapter)
            return 1;
    return 0;
}

static int32_t is_quantized(const lathe_saved_state *saved)
{
    for (int32_t i = 0; i < saved->params->n_model; i++)
        if (saved->params->rows[i]->format)
            return 1;
    return 0;
}

/* A frozen base model is not written, unless the adapter is merged into it: it can be read from its
 * folder, or, if quantized random numbers, made from its seed. */
int32_t lathe__checkpoint_has_model(const lathe_saved_state *saved)
{
    return trains_model(saved) || saved->merges || (!saved->model_path && !is_quantized(saved));
}

/* Writes the model for transformers, except a frozen base model that was read from a folder.
 * `place`: the name that `dir` will have. */
static lathe_status write_model(const lathe_saved_state *saved, const char *dir, const char *place)
{
    if (lathe__checkpoint_has_model(saved))
        LATHE_TRY(lathe__model_file_write(saved, dir));
    LATHE_TRY(lathe__adapter_file_write(saved, dir, place));
    if (saved->data->tokenizer_dir)
        LATHE_TRY(lathe_tokenizer_files_copy(saved->data->tokenizer_dir, dir));
    if (lathe__checkpoint_has_model(saved) && saved->model->wrapper && saved->model_path)
        LATHE_TRY(lathe_tower_files_copy(saved->model_path, dir));
    if (saved->data->saves_answer_end)
        LATHE_TRY(lathe_generation_config_add_end(dir, saved->model,
                                                  lathe_tokenizer_eos(saved->data->tokenizer),
                                                  saved->data->answer_end.id));
    return lathe_folder_template_write(saved->data->given.text, saved->data->given.tools, dir);
}

/* Writes the averaged weights in the same way, into a separate folder. */
static lathe_status write_average(const lathe_saved_state *saved, const char *dir,
                                  const char *place)
{
    lathe_saved_state view = *saved;
    lathe_store store;
    if (!saved->store->has_averages)
        return LATHE_OK;
    LATHE_TRY(lathe_average_view(saved->store, saved->arena, &store));
    view.store = &store;
    const char *path = lathe_path_join(saved->arena, dir, "average");
    if (!path)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_dir_create(path));
    return write_model(&view, path, place);
}

/* ---- the manifest's "meta" ---- */

static lathe_status put_plugin(lathe_buffer *b, int32_t kind, const lathe_instance *instance,
                               int32_t *n)
{
    char hex[65];
    if (!instance->component)
        return LATHE_OK;
    const lathe_plugin *p = instance->component->plugin;
    LATHE_TRY(lathe_so_sha256(p, hex));
    lathe_buffer_printf(b, "%s{\"kind\": \"%s\", \"name\": ", (*n)++ ? ", " : "",
                        lathe_kind_name(kind));
    lathe_buffer_json_string(b, p->name);
    lathe_buffer_puts(b, ", \"version\": ");
    lathe_buffer_json_string(b, p->version ? p->version : "");
    lathe_buffer_printf(b, ", \"sha256\": \"%s\"}", hex);
    return LATHE_OK;
}

/* The plugins whose ops the training computes. */
static lathe_status put_ops(lathe_buffer *b, const lathe_saved_state *saved, int32_t *n)
{
    const lathe_exec *exec = saved->programs->train.exec;
    const lathe_component *ops[LATHE_MOST_OPS];
    const int32_t n_ops =
        exec ? lathe_ops_used(saved->params, lathe_exec_graph(exec), ops, LATHE_MOST_OPS) : 0;
    for (int32_t i = 0; i < n_ops; i++)
        LATHE_TRY(put_plugin(b, LATHE_KIND_OP, &(lathe_instance){.component = ops[i]}, n));
    return LATHE_OK;
}

static lathe_status list_plugins(lathe_buffer *b, const lathe_saved_state *saved)
{
    const lathe_component *formats[LATHE_MOST_FORMATS];
    const int32_t n_formats = lathe_quant_used(saved->params, formats, LATHE_MOST_FORMATS);
    int32_t n = 0;
    const char *attention =
        saved->programs->train.exec ? lathe_exec_attention(saved->programs->train.exec) : NULL;
    lathe_buffer_puts(b, "[");
    LATHE_TRY(put_plugin(b, LATHE_KIND_MODEL, &saved->model->family, &n));
    LATHE_TRY(put_plugin(b, LATHE_KIND_OPTIMIZER, &saved->parts->optimizer, &n));
    LATHE_TRY(put_plugin(b, LATHE_KIND_SCHEDULER, &saved->parts->scheduler, &n));
    for (int32_t i = 0; i < n_formats; i++)
        LATHE_TRY(put_plugin(b, LATHE_KIND_QUANT, &(lathe_instance){.component = formats[i]}, &n));
    LATHE_TRY(put_plugin(b, LATHE_KIND_ADAPTER, &saved->parts->adapter, &n));
    LATHE_TRY(put_plugin(b, LATHE_KIND_STAGE, &saved->parts->stage, &n));
    for (int64_t i = 0; attention && i < saved->parts->n_attention; i++)
        if (strcmp(saved->parts->attention[i].component->plugin->name, attention) == 0)
            LATHE_TRY(put_plugin(b, LATHE_KIND_ATTENTION, &saved->parts->attention[i], &n));
    LATHE_TRY(put_plugin(b, LATHE_KIND_DEVICE, &saved->parts->device, &n));
    LATHE_TRY(put_ops(b, saved, &n));
    for (int32_t i = 0; i < saved->parts->n_rewards; i++)
        LATHE_TRY(put_plugin(b, LATHE_KIND_REWARD, &saved->parts->rewards[i], &n));
    lathe_buffer_puts(b, "]");
    return b->status;
}

lathe_status lathe__checkpoint_know_plugins(const lathe_saved_state *saved)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    if (saved->checkpoints->plugins_json)
        return LATHE_OK;
    lathe_status status = list_plugins(&text, saved);
    if (status == LATHE_OK) {
        saved->checkpoints->plugins_json = lathe_arena_strdup(saved->arena, text.data);
        status = saved->checkpoints->plugins_json ? LATHE_OK : LATHE_E_NOMEM;
    }
    lathe_buffer_fini(&text);
    return status;
}

static lathe_status put_plugins(lathe_buffer *b, const lathe_saved_state *saved)
{
    lathe_buffer_puts(b, ", \"plugins\": ");
    if (!saved->checkpoints->plugins_json)
        return list_plugins(b, saved);
    lathe_buffer_puts(b, saved->checkpoints->plugins_json);
    return b->status;
}

static void put_figures(lathe_buffer *b, const lathe_figures *f)
{
    lathe_buffer_puts(b, ", \"figures\": {");
    for (int32_t i = 0; f && i < f->n; i++) {
        lathe_buffer_puts(b, i ? ", " : "");
        lathe_buffer_json_string(b, f->keys[i]);
        if (isfinite(f->values[i]))
            lathe_buffer_printf(b, ": %.17g", f->values[i]);
        else
            lathe_buffer_puts(b, ": null");
    }
    lathe_buffer_puts(b, "}");
}

/* `path`: the folder's name when it is complete. */
static lathe_status write_manifest(const lathe_saved_state *saved, const lathe_figures *figures,
                                   int32_t gate, const char *dir, const char *path)
{
    lathe_buffer meta = LATHE_BUFFER_INIT;
    lathe_buffer_printf(&meta,
                        "{\"lathe\": \"%s\", \"step\": %lld, \"time\": %lld, \"read_back\": %s",
                        lathe_version(), (long long)saved->at->step, (long long)time(NULL),
                        gate ? "true" : "false");
    lathe_buffer_puts(&meta, ", \"precision\": ");
    lathe_precision_json(saved->precision, saved->compute_dtype, saved->fp8, &meta);
    put_figures(&meta, figures);
    lathe__parents_put_place(path, saved->arena, &meta);
    lathe_status status = put_plugins(&meta, saved);
    if (status == LATHE_OK)
        status = lathe__checkpoint_put_parents(saved, &meta);
    if (saved->checkpoints->branch.json) {
        lathe_buffer_puts(&meta, ", \"branches\": ");
        lathe_buffer_puts(&meta, saved->checkpoints->branch.json);
    }
    lathe_buffer_puts(&meta, ", \"config\": ");
    lathe_config_json(saved->config, &meta);
    lathe_buffer_puts(&meta, "}");
    if (status == LATHE_OK)
        status = meta.status;
    if (status == LATHE_OK)
        status = lathe_manifest_write(dir, meta.data);
    lathe_buffer_fini(&meta);
    return status;
}

/* ---- the folder ---- */

/* Refuses a state with NaN or infinity before its folder is renamed. Searches the files, not the
 * memory, to find also values that overflowed in the dtype of the file. */
static lathe_status refuse_not_finite(const lathe_saved_state *saved, const char *dir)
{
    const lathe_status status = lathe_folder_finite(dir, NULL, NULL);
    return status == LATHE_E_NUMERIC
               ? lathe_error_context(status, "a run cannot continue from the state after step %lld",
                                     (long long)saved->at->step)
               : status;
}

static lathe_status fill_folder(const lathe_saved_state *saved, const lathe_figures *figures,
                                int32_t gate, const char *dir, const char *path)
{
    const double begin = lathe_trace_now();
    LATHE_TRY(write_model(saved, dir, path));
    LATHE_TRY(write_average(saved, dir, path));
    lathe_trace_since("checkpoint", "write model", begin);
    const double written = lathe_trace_now();
    if (saved->trains)
        LATHE_TRY(lathe__train_state_write(saved, dir));
    lathe_trace_since("checkpoint", "write state", written);
    const double searched = lathe_trace_now();
    LATHE_TRY(refuse_not_finite(saved, dir));
    lathe_trace_since("checkpoint", "search for NaN", searched);
    const double complete = lathe_trace_now();
    LATHE_TRY(write_manifest(saved, figures, gate, dir, path));
    lathe_trace_since("checkpoint", "write manifest", complete);
    if (!gate)
        return LATHE_OK;
    const double described = lathe_trace_now();
    LATHE_TRY(lathe__checkpoint_read_back(saved, dir));
    lathe_trace_since("checkpoint", "read back", described);
    return LATHE_OK;
}

/* Refuses to write into a folder that is not the one that the run has locked: a second run may
 * train in a new folder of this name. */
static lathe_status check_folder(const lathe_saved_state *saved, lathe_arena *arena)
{
    const lathe_lock *lock = saved->checkpoints->lock;
    const char *dir = saved->set->dir, *path = lathe_path_join(arena, dir, "lock");
    char where[4096], now[4096] = "";
    if (!path)
        return LATHE_E_NOMEM;
    if (!lock || lathe_lock_is_there(lock, path))
        return LATHE_OK;
    (void)snprintf(where, sizeof where, "/proc/self/fd/%d", lock->fd);
    const ssize_t n = readlink(where, now, sizeof now - 1);
    now[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(now, '/'), *gone = strstr(now, " (deleted)");
    if (slash)
        *slash = '\0';
    if (slash && !gone)
        return lathe_error(LATHE_E_STATE,
                           "%s was moved to %s while the run trained in it: nothing is written to "
                           "either; move it back, and start the run again",
                           dir, now);
    return lathe_error(LATHE_E_STATE,
                       "%s was deleted or replaced while the run trained in it (its file lock is "
                       "not the one that this run holds): nothing more is written there; start the "
                       "run again, in another checkpoint.dir if a second run uses this one",
                       dir);
}

/* in_folder 1: a checkpoint of the run's own folder. */
static lathe_status save(const lathe_saved_state *saved, const lathe_figures *figures, int32_t gate,
                         const char *path, int in_folder)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_saved_state view = *saved;
    view.arena = &arena; /* texts of this checkpoint only */
    const char *beside = NULL;
    lathe_status status = lathe_new_folder_begin(&arena, path, &beside);
    if (status == LATHE_OK) {
        status = fill_folder(&view, figures, gate, beside, path);
        if (status == LATHE_OK && in_folder) /* before the folder of another run gets the name */
            status = check_folder(saved, &arena);
        status = lathe_new_folder_replace(status, beside, path);
    }
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_checkpoint_save(const lathe_saved_state *saved, const lathe_figures *figures,
                                   int32_t gate, const char *path)
{
    return save(saved, figures, gate, path, 0);
}

/* ---- in the run's folder ---- */

lathe_keep lathe__checkpoint_keep(const lathe_saved_state *saved)
{
    const lathe_keep keep = {.last = saved->set->keep_last,
                             .best = saved->set->keep_best,
                             .metric = saved->set->best_metric,
                             .higher = saved->set->best_is_higher,
                             .read_back = saved->set->gate};
    return keep;
}

/* Writes the folder, unless it is there since an earlier attempt, and what follows it. */
static lathe_status write_all(const lathe_saved_state *saved, const lathe_figures *figures,
                              int32_t gate, const char *name, const char *path, int32_t *is_whole)
{
    const char *dir = saved->set->dir;
    const lathe_keep keep = lathe__checkpoint_keep(saved);
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status still, status = check_folder(saved, &arena);
    if (status == LATHE_OK && !*is_whole)
        status = save(saved, figures, gate, path, 1);
    *is_whole |= status == LATHE_OK;
    if (status != LATHE_OK)
        goto out;
    /* once more, before `latest` of a folder of another run is written */
    if ((status = check_folder(saved, &arena)) != LATHE_OK)
        goto out;
    if ((status = lathe_checkpoint_point(dir, "latest", name)) != LATHE_OK)
        goto out;
    if ((status = lathe_checkpoint_point_best(dir, &keep)) != LATHE_OK)
        goto out;
    status = lathe_checkpoint_remove_old(dir, &keep);
out:
    /* A folder that went away in any of these calls is the reason for whatever failed there. */
    still = check_folder(saved, &arena);
    lathe_arena_fini(&arena);
    return still != LATHE_OK ? still : status;
}

lathe_status lathe_checkpoint_write(const lathe_saved_state *saved, const lathe_figures *figures,
                                    int32_t gate, char *out_path, int64_t capacity)
{
    static const struct timespec pause = {0, 200000000};
    char name[64], path[PATH_MAX], why[1024];
    int32_t is_whole = 0;
    out_path[0] = '\0';
    (void)snprintf(name, sizeof name, LATHE_STEP_FORMAT, (long long)saved->at->step);
    const int n = snprintf(path, sizeof path, "%s/%s", saved->set->dir, name);
    if (n < 0 || n >= (int)sizeof path || n >= capacity)
        return lathe_error(LATHE_E_ARG, "checkpoint.dir is too long: %s", saved->set->dir);
    lathe_status status = write_all(saved, figures, gate, name, path, &is_whole);
    if (status == LATHE_E_IO) { /* such as one failure of a network's disk */
        (void)snprintf(why, sizeof why, "%s", lathe_error_message());
        (void)nanosleep(&pause, NULL);
        lathe_error_clear();
        status = write_all(saved, figures, gate, name, path, &is_whole);
        if (status == LATHE_OK)
            lathe_log(LATHE_LOG_WARN, "%s is whole at the second attempt; the first: %s", path,
                      why);
    }
    if (is_whole)
        (void)snprintf(out_path, (size_t)capacity, "%s", path);
    return status;
}
