/* Writes, reads and compares the files of an adapter. */
#include "checkpoint/adapter_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json.h"
#include "checkpoint/parents.h"
#include "exec/store_io.h"
#include "io/convert.h"
#include "io/safetensors.h"
#include "io/st_writer.h"
#include "ir/desc_text.h"

static lathe_status file_key(const lathe_saved_state *saved, int32_t param, char *out,
                             int64_t capacity)
{
    const lathe_adapter_v1 *table = saved->parts->adapter.table;
    const char *name = saved->params->rows[param]->name;
    int64_t bytes = 0;
    if (LATHE_HAS(table, file_key))
        bytes = table->file_key(saved->parts->adapter.self, name, out, capacity);
    else
        bytes = snprintf(out, (size_t)capacity, "%s", name);
    if (bytes <= 0 || bytes >= capacity)
        return lathe_error(LATHE_E_PLUGIN, "adapter %s has no usable file key for '%s'",
                           saved->parts->adapter.component->plugin->name, name);
    return LATHE_OK;
}

static int is_adapter_row(const lathe_saved_state *saved, int32_t i)
{
    return i >= saved->params->n_model && !saved->params->rows[i]->reference &&
           !saved->params->rows[i]->is_derived;
}

/* Adds the heads of the stage to the text of an adapter_config.json, as PEFT keeps modules that it
 * saves whole. A head "score" makes it the adapter of a sequence classifier. */
static lathe_status add_heads(const lathe_saved_state *saved, char **io_text)
{
    json_t *names = json_array(), *config = NULL;
    lathe_status status = names ? LATHE_OK : LATHE_E_NOMEM;
    int is_classifier = 0;
    for (int32_t i = saved->params->n_model; i < saved->params->n; i++) {
        const lathe_param *row = saved->params->rows[i];
        const char *dot = strrchr(row->name, '.');
        if (!row->stage_head || !dot)
            continue;
        is_classifier |= strncmp(row->name, "score.", 6) == 0;
        (void)json_array_append_new(names, json_stringn(row->name, (size_t)(dot - row->name)));
    }
    if (status == LATHE_OK && json_array_size(names) > 0)
        status =
            lathe_json_load("adapter_config.json", *io_text, (int64_t)strlen(*io_text), &config);
    if (config && is_classifier)
        (void)json_object_set_new(config, "task_type", json_string("SEQ_CLS"));
    if (config) {
        (void)json_object_set(config, "modules_to_save", names);
        free(*io_text);
        *io_text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        if (!*io_text)
            status = lathe_error(LATHE_E_NOMEM, "no memory for adapter_config.json");
    }
    json_decref(config);
    json_decref(names);
    return status;
}

/* The base is written as an absolute path: the folder may be used from anywhere. */
static lathe_status write_config(const lathe_saved_state *saved, const char *dir, const char *place)
{
    const lathe_adapter_v1 *table = saved->parts->adapter.table;
    if (!LATHE_HAS(table, config_json))
        return LATHE_OK;
    char *absolute = saved->model_path ? realpath(saved->model_path, NULL) : NULL;
    const char *base = absolute ? absolute : saved->model_path ? saved->model_path : "";
    const char *merged = saved->merges ? lathe__parents_place(place, saved->arena) : NULL;
    base = merged ? merged : base;
    const int64_t bytes = table->config_json(saved->parts->adapter.self, base, NULL, 0);
    char *text = malloc((size_t)bytes + 1);
    lathe_status status =
        text ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for adapter_config.json");
    if (status == LATHE_OK) {
        const int64_t written =
            table->config_json(saved->parts->adapter.self, base, text, bytes + 1);
        text[written < bytes ? written : bytes] = '\0';
        status = add_heads(saved, &text);
    }
    if (status == LATHE_OK) {
        const char *path = lathe_path_join(saved->arena, dir, "adapter_config.json");
        status = path ? lathe_file_write_atomic(path, text, (int64_t)strlen(text)) : LATHE_E_NOMEM;
    }
    free(text);
    free(absolute);
    return status;
}

static lathe_status write_tensors(const lathe_saved_state *saved, lathe_st_writer *w)
{
    char key[512];
    int64_t index = 0;
    for (int32_t i = 0; i < saved->params->n; i++) {
        if (!is_adapter_row(saved, i))
            continue;
        LATHE_TRY(file_key(saved, i, key, (int64_t)sizeof key));
        LATHE_TRY(lathe_st_writer_add(w, key, &saved->params->rows[i]->desc));
    }
    LATHE_TRY(lathe_st_writer_begin(w));
    for (int32_t i = 0; i < saved->params->n; i++)
        if (is_adapter_row(saved, i))
            LATHE_TRY(lathe_store_write(saved->store, w, index++,
                                        lathe_store_master(saved->store, i),
                                        lathe_desc_bytes(&saved->params->rows[i]->desc)));
    return lathe_st_writer_finish(w);
}

lathe_status lathe__adapter_file_write(const lathe_saved_state *saved, const char *dir,
                                       const char *place)
{
    lathe_st_writer *w = NULL;
    int any = 0;
    for (int32_t i = 0; i < saved->params->n; i++)
        any |= is_adapter_row(saved, i);
    if (!any)
        return LATHE_OK;
    LATHE_TRY(lathe_st_writer_create(dir, "adapter_model", 0, &w));
    const lathe_status status = write_tensors(saved, w);
    lathe_st_writer_destroy(w);
    LATHE_TRY(status);
    return write_config(saved, dir, place);
}

typedef struct comparison {
    const void *want;
    int differs;
} comparison;

/* lathe_piece_fn */
static lathe_status compare(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    comparison *c = arg;
    c->differs |= memcmp((const char *)c->want + offset, data, (size_t)bytes) != 0;
    return LATHE_OK;
}

/* What use_tensor does with a tensor of the file after it checked the tensor's shape. */
enum { CHECK, FILL, COMPARE, CHECK_BEGIN, BEGIN };

/* Converts the tensor to f32: other programs also write bf16 or fp16. */
static lathe_status fill_tensor(const lathe_saved_state *saved, int32_t i, const lathe_st_tensor *t)
{
    const int64_t n = lathe_desc_count(&t->desc);
    if (t->desc.dtype == LATHE_F32)
        return lathe_store_set(saved->store, i, t->data);
    float *wide = malloc((size_t)n * sizeof *wide + 1);
    lathe_status status =
        wide ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory to read '%s'", t->name);
    if (status == LATHE_OK)
        status = lathe_convert(wide, LATHE_F32, t->data, t->desc.dtype, n);
    if (status == LATHE_OK)
        status = lathe_store_set(saved->store, i, wide);
    free(wide);
    return status;
}

/* Whether the values are the first ones of a run, and not those of a run that goes on. */
static int is_beginning(int32_t what)
{
    return what == CHECK_BEGIN || what == BEGIN;
}

/* Whether the dtype is allowed: a resumed training run needs the f32 values that Lathe wrote. */
static int takes(const lathe_saved_state *saved, int32_t dtype, int32_t what)
{
    return dtype == LATHE_F32 ||
           ((!saved->trains || is_beginning(what)) && lathe_convert_takes(dtype));
}

static lathe_status use_tensor(const lathe_saved_state *saved, int32_t i, const lathe_st_tensor *t,
                               int32_t what)
{
    const int64_t bytes = lathe_desc_bytes(&saved->params->rows[i]->desc);
    comparison c = {t->data, 0};
    if (what == FILL || what == BEGIN)
        return fill_tensor(saved, i, t);
    if (what == COMPARE)
        LATHE_TRY(lathe_store_read(saved->store, lathe_store_master(saved->store, i), bytes,
                                   compare, &c));
    if (c.differs)
        return lathe_error(
            LATHE_E_CORRUPT,
            "%s: '%s', read back, differs from what was written: the disk or the memory is faulty",
            t->file, t->name);
    return LATHE_OK;
}

static lathe_status read_tensors(const lathe_saved_state *saved, const lathe_safetensors *set,
                                 int32_t what)
{
    char key[512], seen[96], expected[96];
    for (int32_t i = 0; i < saved->params->n; i++) {
        if (!is_adapter_row(saved, i))
            continue;
        LATHE_TRY(file_key(saved, i, key, (int64_t)sizeof key));
        const lathe_desc *want = &saved->params->rows[i]->desc;
        const lathe_st_tensor *t = lathe_safetensors_find(set, key);
        if (!t && saved->params->rows[i]->stage_head && is_beginning(what))
            continue; /* begins with random values */
        if (!t)
            return lathe_error(LATHE_E_NOT_FOUND, "the adapter's file lacks '%s'", key);
        if (!takes(saved, t->desc.dtype, what) ||
            lathe_desc_count(&t->desc) != lathe_desc_count(want))
            return lathe_error(LATHE_E_SHAPE, "%s: '%s' is %s, expected %s", t->file, key,
                               lathe_desc_text(&t->desc, seen, sizeof seen),
                               lathe_desc_text(want, expected, sizeof expected));
        LATHE_TRY(use_tensor(saved, i, t, what));
    }
    return LATHE_OK;
}

/* Refuses a file with a tensor that no parameter takes. */
static lathe_status check_all_taken(const lathe_saved_state *saved, const lathe_safetensors *set)
{
    char key[512];
    for (int64_t k = 0; k < lathe_safetensors_count(set); k++) {
        const char *name = lathe_safetensors_at(set, k)->name;
        int taken = 0;
        for (int32_t i = 0; i < saved->params->n && !taken; i++) {
            if (!is_adapter_row(saved, i))
                continue;
            LATHE_TRY(file_key(saved, i, key, (int64_t)sizeof key));
            taken = strcmp(key, name) == 0;
        }
        if (!taken)
            return lathe_error(LATHE_E_CONFIG,
                               "%s: '%s' belongs to no parameter of adapter \"%s\" with its "
                               "settings",
                               lathe_safetensors_at(set, k)->file, name,
                               saved->parts->adapter.component->plugin->name);
    }
    return LATHE_OK;
}

static lathe_status use_file(const lathe_saved_state *saved, const char *dir, int32_t what)
{
    lathe_safetensors *set = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    int any = 0;
    for (int32_t i = 0; i < saved->params->n; i++)
        any |= is_adapter_row(saved, i);
    if (!any && is_beginning(what))
        return lathe_error(
            LATHE_E_CONFIG, "%s holds an adapter, but adapter \"%s\" has no parameters of its own",
            dir,
            saved->parts->adapter.component ? saved->parts->adapter.component->plugin->name
                                            : "none");
    if (!any)
        return LATHE_OK;
    const char *path = lathe_path_join(&arena, dir, "adapter_model.safetensors");
    lathe_status status = path ? lathe_safetensors_open(path, &set) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = read_tensors(saved, set, is_beginning(what) ? CHECK_BEGIN : CHECK);
    if (status == LATHE_OK && is_beginning(what))
        status = check_all_taken(saved, set);
    if (status == LATHE_OK)
        status = read_tensors(saved, set, what);
    if (status == LATHE_OK)
        status = lathe_safetensors_check(set);
    lathe_safetensors_close(set);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe__adapter_file_check(const lathe_saved_state *saved, const char *dir)
{
    return use_file(saved, dir, CHECK);
}

lathe_status lathe__adapter_file_read(const lathe_saved_state *saved, const char *dir)
{
    return use_file(saved, dir, FILL);
}

lathe_status lathe__adapter_file_compare(const lathe_saved_state *saved, const char *dir)
{
    return use_file(saved, dir, COMPARE);
}

lathe_status lathe__adapter_file_begin(const lathe_saved_state *saved, const char *dir,
                                       int32_t fill)
{
    const lathe_status status = use_file(saved, dir, fill ? BEGIN : CHECK_BEGIN);
    return status == LATHE_E_NOT_FOUND || status == LATHE_E_SHAPE
               ? lathe_error_context(LATHE_E_CONFIG, "the adapter in %s does not fit", dir)
               : status;
}
