/* Reads a checkpoint; verifies all of it before it changes the run. */
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/model_path.h"
#include "checkpoint/state/adapter_file.h"
#include "checkpoint/state/checkpoint.h"
#include "checkpoint/state/checkpoint_branch.h"
#include "checkpoint/state/model_file.h"
#include "checkpoint/state/state_rows.h"
#include "checkpoint/state/state_slots.h"
#include "checkpoint/state/train_state.h"
#include "exec/store/row_norms.h"
#include "exec/store/singular_rows.h"
#include "exec/store/token_rows_fill.h"
#include "exec/store/weight_fill.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/expert_tensors.h"
#include "files/safetensors/folder_finite.h"
#include "files/safetensors/manifest.h"
#include "model/family/weights.h"

/* 1: the folder holds the model's weights, not only an adapter's. */
static int holds_model(const char *dir)
{
    return lathe_folder_holds(dir, "model.safetensors") ||
           lathe_folder_holds(dir, "model.safetensors.index.json");
}

static lathe_status skip_row(void *arg, int32_t index, const lathe_param *row, void **out_data,
                             int32_t *out_dtype)
{
    (void)arg, (void)index, (void)row, (void)out_dtype;
    *out_data = NULL;
    return LATHE_OK;
}

/* ---- the weights: the model's file, and f32 masters of the tensors that it rounds ---- */

/* Files of the model in a folder. */
typedef struct model_files {
    lathe_safetensors *set; /* the model's file; NULL: none */
    /* f32 masters, in Lathe's layout, of rows that the model's file rounds; NULL: none */
    lathe_safetensors *masters;
} model_files;

/* After the last read. */
static lathe_status check_files(const model_files *files)
{
    LATHE_TRY(files->masters ? lathe_safetensors_check(files->masters) : LATHE_OK);
    return files->set ? lathe_safetensors_check(files->set) : LATHE_OK;
}

static void close_files(model_files *files)
{
    lathe_safetensors_close(files->masters);
    lathe_safetensors_close(files->set);
}

static const lathe_st_tensor *find_master(const model_files *files, const lathe_param *row)
{
    return files->masters ? lathe_safetensors_find(files->masters, row->name) : NULL;
}

typedef struct rounded_sink {
    lathe_weight_sink inner;
    const model_files *files;
} rounded_sink;

/* Fills rows from the model's file; skips rows that have a master, which fill_masters fills. */
static lathe_status place_rounded(void *arg, int32_t index, const lathe_param *row, void **out_data,
                                  int32_t *out_dtype)
{
    const rounded_sink *s = arg;
    if (find_master(s->files, row))
        return skip_row(NULL, index, row, out_data, out_dtype);
    return s->inner.place(s->inner.arg, index, row, out_data, out_dtype);
}

static lathe_status done_rounded(void *arg, int32_t index, const lathe_param *row, void *data)
{
    const rounded_sink *s = arg;
    return s->inner.done(s->inner.arg, index, row, data);
}

static lathe_status fill_masters(const lathe_saved_state *saved, const model_files *files,
                                 const lathe_weight_sink *sink)
{
    for (int32_t i = 0; i < saved->params->n_model; i++) {
        const lathe_param *row = saved->params->rows[i];
        const lathe_st_tensor *t = find_master(files, row);
        int32_t dtype = LATHE_F32;
        void *data = NULL;
        if (t == NULL)
            continue;
        LATHE_TRY(sink->place(sink->arg, i, row, &data, &dtype));
        LATHE_TRY(lathe_convert(data, dtype, t->data, LATHE_F32, lathe_desc_count(&t->desc)));
        LATHE_TRY(sink->done(sink->arg, i, row, data));
    }
    return LATHE_OK;
}

static lathe_status fill_weights(const lathe_saved_state *saved, const model_files *files)
{
    lathe_weight_fill weights = {.store = saved->store, .params = saved->params};
    rounded_sink s = {lathe_weight_fill_sink(&weights), files};
    const lathe_weight_sink sink = {.place = place_rounded, .done = done_rounded, .arg = &s};
    lathe_status status = lathe_weights_load(files->set, saved->model, saved->params, &sink);
    if (status == LATHE_OK)
        status = fill_masters(saved, files, &s.inner);
    if (status == LATHE_OK)
        status = lathe_weight_fill_finish(&weights);
    lathe_weight_fill_fini(&weights);
    LATHE_TRY(status);
    saved->checkpoints->weights_wait = 0;
    return lathe__model_file_origin(saved, files->set);
}

/* Checks that each master has the shape of its row. If the run trains, each rounded row must
 * have a master; but a bias of a router, which moves without an optimizer, goes on from the file's
 * value if the run that wrote the checkpoint did not move it. */
static lathe_status check_masters(const lathe_saved_state *saved, const char *dir,
                                  const model_files *files)
{
    for (int32_t i = 0; i < saved->params->n_model; i++) {
        const lathe_param *row = saved->params->rows[i];
        const lathe_st_tensor *t = find_master(files, row);
        const lathe_st_tensor *file = lathe_weights_find(files->set, saved->model, row->name);
        if (t && (t->desc.dtype != LATHE_F32 ||
                  lathe_desc_count(&t->desc) != lathe_desc_count(&row->desc)))
            return lathe_error(LATHE_E_SHAPE, "%s: '%s' has another shape or dtype than the run's",
                               t->file, row->name);
        if (!saved->checkpoints->reads_rounded && t == NULL && (row->trainable || row->is_merged) &&
            !row->in_adapter && lathe_dtype_bytes(file->desc.dtype) < 4)
            return lathe_error(LATHE_E_CORRUPT,
                               "%s: '%s' was saved in %s, and its fp32 master is not in "
                               "state/masters.safetensors",
                               dir, row->name, lathe_dtype_name(file->desc.dtype));
    }
    return LATHE_OK;
}

/* Opens the files of the model in `dir` and checks every tensor; `masters` is the path of the
 * f32 masters, or NULL. */
static lathe_status open_files(const lathe_saved_state *saved, const char *dir, const char *masters,
                               model_files *out)
{
    const lathe_weight_sink none = {.place = skip_row};
    LATHE_TRY(lathe_safetensors_open_joined(dir, &out->set));
    LATHE_TRY(lathe_weights_load(out->set, saved->model, saved->params, &none));
    if (masters)
        LATHE_TRY(lathe_safetensors_open(masters, &out->masters));
    return check_masters(saved, dir, out);
}

/* Reads the state, then the weights. */
static lathe_status fill(const lathe_saved_state *saved, const char *dir, const model_files *files,
                         int32_t has_slots)
{
    lathe_accumulated_clear(saved->sum, saved->opt->update);
    if (saved->trains)
        LATHE_TRY(lathe__train_state_read(saved, dir, has_slots));
    if (files->set)
        LATHE_TRY(fill_weights(saved, files));
    if (files->set) {
        LATHE_TRY(lathe_row_norms_fill_derived(saved->store));
        LATHE_TRY(lathe_token_rows_fill_derived(saved->store));
        LATHE_TRY(lathe_singular_rows_fill(saved->store, LATHE_SINGULAR_DERIVED));
    }
    LATHE_TRY(lathe__adapter_file_read(saved, dir));
    if (saved->trains && saved->extra)
        LATHE_TRY(saved->extra->read(saved->extra->arg, dir));
    if (saved->at->averaged != 0)
        return LATHE_OK;
    return lathe_average_copy(saved->store, saved->machine);
}

/* Loads a verified folder. Opens the model's file and checks each of its tensors first. */
static lathe_status load(const lathe_saved_state *saved, const char *dir, const char *masters,
                         int32_t has_slots)
{
    model_files files = {NULL, NULL};
    lathe_status status = LATHE_OK;
    if (lathe__checkpoint_has_model(saved) || holds_model(dir))
        status = open_files(saved, dir, masters, &files);
    if (status == LATHE_OK)
        status = fill(saved, dir, &files, has_slots);
    if (status == LATHE_OK)
        status = check_files(&files);
    close_files(&files);
    return status;
}

/* Loads a verified checkpoint. */
static lathe_status load_checkpoint(const lathe_saved_state *saved, const char *dir,
                                    int32_t has_slots)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *masters = NULL;
    lathe_status status = saved->checkpoints->reads_rounded
                              ? LATHE_OK
                              : lathe__state_rows_find(&arena, dir, LATHE_ROWS_MASTERS, &masters);
    if (status == LATHE_OK)
        status = load(saved, dir, masters, has_slots);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_checkpoint_load(const lathe_saved_state *saved, const char *dir)
{
    LATHE_TRY(lathe_manifest_verify(dir));
    return load_checkpoint(saved, dir, 0);
}

/* Verifies a checkpoint. If the run still waits for its weights, nothing can be lost, so the
 * optimizer's slots are read while they are hashed. */
static lathe_status verify(const lathe_saved_state *saved, const char *dir, int32_t *out_has_slots)
{
    *out_has_slots = 0;
    return saved->checkpoints->weights_wait && saved->store->is_host
               ? lathe__state_slots_verify(saved, dir, out_has_slots)
               : lathe_manifest_verify(dir);
}

lathe_status lathe_checkpoint_take_average(const lathe_saved_state *saved, const char *dir,
                                           int32_t *out_taken)
{
    const char *path = lathe_path_join(saved->arena, dir, "average"), *average = NULL;
    if (path == NULL)
        return LATHE_E_NOMEM;
    *out_taken = lathe_path_is_dir(path);
    LATHE_TRY(lathe__state_rows_find(saved->arena, dir, LATHE_ROWS_AVERAGES, &average));
    return *out_taken ? load(saved, path, average, 0) : LATHE_OK;
}

lathe_status lathe_checkpoint_refuse_mixing(const lathe_saved_state *saved)
{
    const char *dir = saved->set->dir, *resume = saved->set->resume;
    lathe_checkpoint_entry *list = NULL;
    int64_t n = 0;
    if (dir == NULL || resume == NULL || strcmp(resume, "never") != 0 || !lathe_path_is_dir(dir))
        return LATHE_OK;
    LATHE_TRY(lathe_checkpoint_list(dir, saved->arena, &list, &n));
    if (n == 0)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s holds the checkpoints of a run already: choose another checkpoint.dir, "
                       "move it aside with checkpoint.resume = \"restart\", or continue with "
                       "checkpoint.resume = \"auto\"",
                       dir);
}

/* Finds the checkpoint that `latest` names, or a newer one; NULL, with a warning, if the pointer
 * cannot be used. */
static lathe_status latest_of(const lathe_saved_state *saved, const char *dir, const char **out)
{
    const char *name = NULL;
    *out = NULL;
    const lathe_status status = lathe_checkpoint_pointer(dir, "latest", saved->arena, &name);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK)
        lathe_log(LATHE_LOG_WARN, "%s", lathe_error_message());
    const char *path = name ? lathe_path_join(saved->arena, dir, name) : NULL;
    if (path == NULL)
        return name ? LATHE_E_NOMEM : LATHE_OK;
    if (!lathe_path_exists(path)) {
        lathe_log(LATHE_LOG_WARN, "%s/latest names %s, which does not exist", dir, name);
        return LATHE_OK;
    }
    LATHE_TRY(lathe_checkpoint_ahead(dir, path, saved->arena, out));
    if (*out != path)
        lathe_log(LATHE_LOG_WARN,
                  "%s/latest names %s, and %s is newer: the run ended before it wrote the pointer",
                  dir, name, *out);
    return LATHE_OK;
}

/* The function to call before a checkpoint is loaded, and its argument. */
typedef struct judgement {
    lathe_accept_fn accept;
    void *arg;
} judgement;

/* Returns 1 if the checkpoint was loaded. Returns 0 if it is damaged or holds NaN or infinity: logs
 * a warning and adds it to `damage`, the list of earlier failures. */
static lathe_status try_path(const lathe_saved_state *saved, const judgement *judge,
                             const char *path, lathe_buffer *damage, int32_t *out_loaded)
{
    int32_t has_slots;
    lathe_status status = verify(saved, path, &has_slots);
    *out_loaded = 0;
    if (status == LATHE_OK)
        status = lathe_folder_finite(path, NULL, NULL);
    if (status == LATHE_E_CORRUPT || status == LATHE_E_NOT_FOUND || status == LATHE_E_NUMERIC) {
        lathe_log(LATHE_LOG_WARN, "%s is not used: %s", path, lathe_error_message());
        lathe_buffer_printf(damage, "%s%s", damage->len > 0 ? "; " : "", lathe_error_message());
        return damage->status;
    }
    LATHE_TRY(status);
    LATHE_TRY(judge->accept(judge->arg, path));
    *out_loaded = 1;
    return load_checkpoint(saved, path, has_slots);
}

/* Resumes from outside the folder: a branch may have begun from a checkpoint elsewhere and have no
 * checkpoint of its own yet. */
static lathe_status resume_origin(const lathe_saved_state *saved, const judgement *judge,
                                  const char *dir, lathe_buffer *damage, const char **out_path)
{
    const char *origin = NULL;
    int32_t loaded = 0;
    LATHE_TRY(lathe_branch_origin(dir, saved->arena, &origin));
    if (origin == NULL)
        return LATHE_OK;
    LATHE_TRY(try_path(saved, judge, origin, damage, &loaded));
    if (!loaded)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: its newest branch began at %s, which cannot be used: %s; restore "
                           "the file from a copy, name another checkpoint with checkpoint.resume, "
                           "or choose another checkpoint.dir to begin a new run",
                           dir, origin, damage->data);
    *out_path = origin;
    return LATHE_OK;
}

static lathe_status try_newest(const lathe_saved_state *saved, const judgement *judge,
                               const char *dir, lathe_buffer *damage, const char **out_path)
{
    lathe_checkpoint_entry *list = NULL;
    int64_t n = 0;
    int32_t loaded = 0;
    const char *latest = NULL;
    LATHE_TRY(latest_of(saved, dir, &latest));
    if (latest)
        LATHE_TRY(try_path(saved, judge, latest, damage, &loaded));
    if (!loaded)
        LATHE_TRY(lathe_checkpoint_list(dir, saved->arena, &list, &n));
    *out_path = loaded ? latest : NULL;
    for (int64_t i = n - 1; i >= 0 && !loaded; i--) {
        if (latest && strcmp(latest, list[i].path) == 0)
            continue;
        LATHE_TRY(try_path(saved, judge, list[i].path, damage, &loaded));
        *out_path = loaded ? list[i].path : NULL;
    }
    if (!loaded && n == 0 && latest == NULL)
        return resume_origin(saved, judge, dir, damage, out_path);
    if (!loaded) /* do not suggest removing them: they are the only copy of the trained weights */
        return lathe_error(
            LATHE_E_CORRUPT,
            "%s: all of its checkpoints are damaged: %s; nothing was changed: restore one of these "
            "files from a copy, or choose another checkpoint.dir to begin a new run (lathe "
            "checkpoint verify %s lists every damaged file)",
            dir, damage->data ? damage->data : "latest names no checkpoint that exists", dir);
    return LATHE_OK;
}

static lathe_status resume_newest(const lathe_saved_state *saved, const judgement *judge,
                                  const char *dir, const char **out_path)
{
    lathe_buffer damage = LATHE_BUFFER_INIT;
    const lathe_status status = try_newest(saved, judge, dir, &damage, out_path);
    lathe_buffer_fini(&damage);
    return status;
}

/* Whether the untrained weights can be read again from their original source. */
static int has_source(const lathe_saved_state *saved)
{
    return saved->model_path == NULL || holds_model(saved->model_path);
}

int32_t lathe__checkpoint_brings_all(const lathe_saved_state *saved)
{
    const char *resume = saved->set->resume, *path = NULL;
    if (!saved->trains || saved->data_is_optional || lathe_resume_begins_anew(resume) ||
        lathe__adapter_file_is_needed(saved))
        return 0;
    for (int32_t i = 0; i < saved->params->n; i++)
        if (!saved->params->rows[i]->trainable && has_source(saved))
            return 0;
    if (strcmp(resume, "auto") == 0)
        resume = saved->set->dir;
    return resume && lathe_path_is_dir(resume) &&
           lathe_checkpoint_resolve(saved->arena, resume, &path) == LATHE_OK && holds_model(path);
}

static lathe_status resume_what(const lathe_saved_state *saved, const judgement *judge,
                                const char **out_path)
{
    const char *resume = saved->set->resume;
    if (lathe_resume_begins_anew(resume))
        return LATHE_OK;
    if (strcmp(resume, "auto") != 0) {
        int32_t has_slots;
        LATHE_TRY(lathe_checkpoint_resolve(saved->arena, resume, out_path));
        LATHE_TRY(verify(saved, *out_path, &has_slots));
        const lathe_status status = lathe_folder_finite(*out_path, NULL, NULL);
        if (status != LATHE_OK)
            return lathe_error_context(status, "checkpoint.resume = \"%s\"", resume);
        return load_checkpoint(saved, *out_path, has_slots);
    }
    if (saved->set->dir == NULL || !lathe_path_is_dir(saved->set->dir))
        return LATHE_OK;
    return resume_newest(saved, judge, saved->set->dir, out_path);
}

lathe_status lathe_checkpoint_resume(const lathe_saved_state *saved, lathe_accept_fn accept,
                                     void *arg, const char **out_path)
{
    const judgement judge = {accept, arg};
    *out_path = NULL;
    return resume_what(saved, &judge, out_path);
}
