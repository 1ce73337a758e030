/* Writing a checkpoint: beside, made durable, read back if asked, then given its name. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/trace.h"
#include "checkpoint/checkpoint_finite.h"
#include "io/manifest.h"
#include "model/weights.h"
#include "plug/kind.h"
#include "run/adapter_file.h"
#include "run/checkpoint.h"
#include "run/model_file.h"
#include "run/train_state.h"
#include "run/training.h"
#include "run/weight_average.h"

static int32_t trains_model(const lathe_run *run)
{
    for (int32_t i = 0; i < run->params.n_model; i++)
        if (run->params.rows[i]->trainable)
            return 1;
    return 0;
}

static int32_t is_quantized(const lathe_run *run)
{
    for (int32_t i = 0; i < run->params.n_model; i++)
        if (run->params.rows[i]->quantized)
            return 1;
    return 0;
}

/* A frozen base stays where it came from: its folder, or, quantized from random numbers, its seed. */
int32_t lathe__checkpoint_has_model(const lathe_run *run)
{
    return trains_model(run) || (!run->set.model_path && !is_quantized(run));
}

/* The model as transformers reads it; a frozen base that came from a folder stays there. */
static lathe_status write_model(lathe_run *run, const char *dir)
{
    if (lathe__checkpoint_has_model(run))
        LATHE_TRY(lathe__model_file_write(run, dir));
    if (run->params.n > run->params.n_model)
        LATHE_TRY(lathe__adapter_file_write(run, dir));
    if (run->data.tokenizer_dir)
        return lathe_tokenizer_files_copy(run->data.tokenizer_dir, dir);
    return LATHE_OK;
}

/* The same of the weights' average, in a folder of its own. */
static lathe_status write_average(const lathe_run *run, const char *dir)
{
    lathe_run view;
    if (run->store.average_bytes == 0)
        return LATHE_OK;
    LATHE_TRY(lathe__average_view(run, &view));
    const char *path = lathe_path_join(&view.arena, dir, "average");
    lathe_status status = path ? lathe_dir_create(path) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = write_model(&view, path);
    lathe__average_view_fini(&view);
    return status;
}

/* ---- the manifest's "meta" ---- */

static lathe_status put_plugin(lathe_buffer *b, int32_t kind, const lathe_instance *instance,
                               int32_t *n)
{
    char hex[65];
    if (!instance->component)
        return LATHE_OK;
    const lathe_plugin *p = instance->component->plugin;
    LATHE_TRY(lathe_sha256_file(instance->component->path, hex));
    lathe_buffer_printf(b, "%s{\"kind\": \"%s\", \"name\": ", (*n)++ ? ", " : "",
                        lathe_kind_name(kind));
    lathe_buffer_json_string(b, p->name);
    lathe_buffer_puts(b, ", \"version\": ");
    lathe_buffer_json_string(b, p->version ? p->version : "");
    lathe_buffer_printf(b, ", \"sha256\": \"%s\"}", hex);
    return LATHE_OK;
}

static lathe_status list_plugins(lathe_buffer *b, const lathe_run *run)
{
    int32_t n = 0;
    const char *attention =
        run->programs.train.exec ? lathe_exec_attention(run->programs.train.exec) : NULL;
    lathe_buffer_puts(b, "[");
    LATHE_TRY(put_plugin(b, LATHE_KIND_OPTIMIZER, &run->parts.optimizer, &n));
    LATHE_TRY(put_plugin(b, LATHE_KIND_SCHEDULER, &run->parts.scheduler, &n));
    LATHE_TRY(put_plugin(b, LATHE_KIND_QUANT, &run->parts.quant, &n));
    LATHE_TRY(put_plugin(b, LATHE_KIND_ADAPTER, &run->parts.adapter, &n));
    LATHE_TRY(put_plugin(b, LATHE_KIND_STAGE, &run->parts.stage, &n));
    for (int64_t i = 0; attention && i < run->parts.n_attention; i++)
        if (strcmp(run->parts.attention[i].component->plugin->name, attention) == 0)
            LATHE_TRY(put_plugin(b, LATHE_KIND_ATTENTION, &run->parts.attention[i], &n));
    LATHE_TRY(put_plugin(b, LATHE_KIND_DEVICE, &run->parts.device, &n));
    lathe_buffer_puts(b, "]");
    return b->status;
}

lathe_status lathe__checkpoint_know_plugins(lathe_run *run)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    if (run->checkpoints.plugins_json)
        return LATHE_OK;
    lathe_status status = list_plugins(&text, run);
    if (status == LATHE_OK) {
        run->checkpoints.plugins_json = lathe_arena_strdup(&run->arena, text.data);
        status = run->checkpoints.plugins_json ? LATHE_OK : LATHE_E_NOMEM;
    }
    lathe_buffer_fini(&text);
    return status;
}

static lathe_status put_plugins(lathe_buffer *b, const lathe_run *run)
{
    lathe_buffer_puts(b, ", \"plugins\": ");
    if (!run->checkpoints.plugins_json)
        return list_plugins(b, run);
    lathe_buffer_puts(b, run->checkpoints.plugins_json);
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

static lathe_status write_manifest(const lathe_run *run, const lathe_figures *figures, int32_t gate,
                                   const char *dir)
{
    lathe_buffer meta = LATHE_BUFFER_INIT;
    lathe_buffer_printf(
        &meta, "{\"lathe\": \"%s\", \"step\": %lld, \"time\": %lld, \"read_back\": %s",
        lathe_version(), (long long)run->at.step, (long long)time(NULL), gate ? "true" : "false");
    lathe_buffer_puts(&meta, ", \"precision\": ");
    lathe_precision_json(run->set.precision, run->set.compute_dtype, run->set.fp8, &meta);
    put_figures(&meta, figures);
    lathe_status status = put_plugins(&meta, run);
    if (run->checkpoints.branch.json) {
        lathe_buffer_puts(&meta, ", \"branches\": ");
        lathe_buffer_puts(&meta, run->checkpoints.branch.json);
    }
    lathe_buffer_puts(&meta, ", \"config\": ");
    lathe_config_json(run->config, &meta);
    lathe_buffer_puts(&meta, "}");
    if (status == LATHE_OK)
        status = meta.status;
    if (status == LATHE_OK)
        status = lathe_manifest_write(dir, meta.data);
    lathe_buffer_fini(&meta);
    return status;
}

/* ---- the folder ---- */

/* A state with NaN or infinity in it never gets a checkpoint's name. The files are searched, not the memory they
 * came from: a value that overflowed in the dtype of its file is found as well. */
static lathe_status refuse_not_finite(const lathe_run *run, const char *dir)
{
    const lathe_status status = lathe_checkpoint_finite(dir, NULL, NULL);
    return status == LATHE_E_NUMERIC
               ? lathe_error_context(status, "the state after step %lld is not fit to go on from",
                                     (long long)run->at.step)
               : status;
}

static lathe_status fill_folder(lathe_run *run, const lathe_figures *figures, int32_t gate,
                                const char *dir)
{
    const double begin = lathe_trace_now();
    LATHE_TRY(lathe_dir_create(dir));
    LATHE_TRY(write_model(run, dir));
    LATHE_TRY(write_average(run, dir));
    lathe_trace_since("checkpoint", "write model", begin);
    const double written = lathe_trace_now();
    if (run->open.mode == LATHE_OPEN_TRAIN)
        LATHE_TRY(lathe__train_state_write(run, dir));
    lathe_trace_since("checkpoint", "write state", written);
    const double searched = lathe_trace_now();
    LATHE_TRY(refuse_not_finite(run, dir));
    lathe_trace_since("checkpoint", "search for NaN", searched);
    const double complete = lathe_trace_now();
    LATHE_TRY(write_manifest(run, figures, gate, dir));
    lathe_trace_since("checkpoint", "write manifest", complete);
    if (!gate)
        return LATHE_OK;
    const double described = lathe_trace_now();
    LATHE_TRY(lathe__checkpoint_read_back(run, dir));
    lathe_trace_since("checkpoint", "read back", described);
    return LATHE_OK;
}

/* Gives the folder its name. What has that name already is then called `beside`, and goes. */
static lathe_status give_name(lathe_arena *arena, const char *beside, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *parent = slash ? lathe_arena_strndup(arena, path, slash - path) : ".";
    const int32_t replaces = lathe_path_exists(path);
    if (!parent)
        return LATHE_E_NOMEM;
    int failed = replaces ? renameat2(AT_FDCWD, beside, AT_FDCWD, path, RENAME_EXCHANGE)
                          : rename(beside, path);
    if (failed && replaces && (errno == EINVAL || errno == ENOSYS)) {
        /* a file system that cannot exchange: between the two calls nothing has the name, and a run
         * that starts then takes the checkpoint before */
        const char *old = lathe_arena_printf(arena, "%s.old.tmp.%ld", path, (long)getpid());
        if (!old)
            return LATHE_E_NOMEM;
        LATHE_TRY(lathe_dir_remove(old));
        failed = rename(path, old) || rename(beside, path);
        beside = old;
    }
    if (failed)
        return lathe_error(LATHE_E_IO, "%s: cannot rename to %s: %s", beside, path,
                           strerror(errno));
    LATHE_TRY(lathe_dir_sync(parent[0] ? parent : "/"));
    return replaces ? lathe_dir_remove(beside) : LATHE_OK;
}

/* Takes away what was half written; the message of the failure stays. */
static void clean_up(lathe_arena *arena, lathe_status status, const char *beside)
{
    char *message = lathe_arena_strdup(arena, lathe_error_message());
    if (lathe_dir_remove(beside) != LATHE_OK)
        lathe_log(LATHE_LOG_WARN, "%s is left behind", beside);
    if (message)
        (void)lathe_error(status, "%s", message);
}

static lathe_status save(const lathe_run *run, const lathe_figures *figures, int32_t gate,
                         const char *path)
{
    lathe_run view = *run; /* what writers put into the run's arena lives in this one */
    view.arena = (lathe_arena)LATHE_ARENA_INIT;
    const char *beside = lathe_arena_printf(&view.arena, "%s.tmp.%ld", path, (long)getpid());
    if (!beside)
        return LATHE_E_NOMEM;
    lathe_status status = lathe_dir_remove(beside);
    if (status == LATHE_OK)
        status = fill_folder(&view, figures, gate, beside);
    if (status == LATHE_OK)
        status = give_name(&view.arena, beside, path);
    if (status != LATHE_OK)
        clean_up(&view.arena, status, beside);
    lathe_arena_fini(&view.arena);
    return status;
}

lathe_status lathe_save(lathe_run *run, const char *dir)
{
    if (!run->open.placed)
        return lathe_error(LATHE_E_STATE, "the run has no weights to save");
    if (lathe_path_exists(dir))
        return lathe_error(LATHE_E_IO, "%s: exists already", dir);
    LATHE_TRY(lathe__checkpoint_know_plugins(run));
    LATHE_TRY(lathe__average_fill(run));
    return save(run, NULL, 0, dir);
}

/* ---- in the run's folder ---- */

lathe_keep lathe__checkpoint_keep(const lathe_run *run)
{
    const lathe_keep keep = {.last = run->set.keep_last,
                             .best = run->set.keep_best,
                             .metric = run->set.best_metric,
                             .higher = run->set.best_is_higher,
                             .read_back = run->set.gate};
    return keep;
}

/* `best` names the best; it moves only to one that the rules count. */
static lathe_status move_best(const char *dir, const lathe_keep *keep, lathe_arena *arena)
{
    const lathe_checkpoint_entry *good = NULL;
    const char *now = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_checkpoint_best(dir, keep, arena, &good, &n));
    if (n == 0)
        return LATHE_OK;
    if (lathe_checkpoint_pointer(dir, "best", arena, &now) != LATHE_OK)
        lathe_log(LATHE_LOG_WARN, "%s: it is written anew", lathe_error_message());
    if (now && strcmp(now, good[0].name) == 0)
        return LATHE_OK;
    return lathe_checkpoint_point(dir, "best", good[0].name);
}

lathe_status lathe_checkpoint_write(const lathe_run *run, const lathe_figures *figures,
                                    int32_t gate, char *out_path, int64_t capacity)
{
    const char *dir = run->set.checkpoint_dir;
    const lathe_keep keep = lathe__checkpoint_keep(run);
    lathe_arena arena = LATHE_ARENA_INIT;
    char name[64];
    (void)snprintf(name, sizeof name, LATHE_STEP_FORMAT, (long long)run->at.step);
    if (snprintf(out_path, (size_t)capacity, "%s/%s", dir, name) >= capacity)
        return lathe_error(LATHE_E_ARG, "checkpoint.dir is too long: %s", dir);
    LATHE_TRY(save(run, figures, gate, out_path));
    LATHE_TRY(lathe_checkpoint_point(dir, "latest", name));
    const lathe_status status = move_best(dir, &keep, &arena);
    lathe_arena_fini(&arena);
    LATHE_TRY(status);
    return lathe_checkpoint_remove_old(dir, &keep);
}
