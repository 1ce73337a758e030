/* Writes and reads the files of state/ that hold one tensor per trained parameter. */
#include "checkpoint/state/state_rows.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/state/batch_rows.h"
#include "checkpoint/state/model_file.h"
#include "exec/store/store_io.h"
#include "files/safetensors/st_writer.h"

static const char *const names[] = {"gradients", "average", "masters"}; /* lathe_state_rows */

static int has_row(const lathe_saved_state *saved, lathe_state_rows what, int32_t i)
{
    return what == LATHE_ROWS_MASTERS ? lathe__model_file_rounds(saved, i)
                                      : saved->params->rows[i]->trainable;
}

static void *row_data(const lathe_saved_state *saved, lathe_state_rows what, int32_t i)
{
    if (what == LATHE_ROWS_GRADIENTS)
        return lathe_store_grad(saved->store, i);
    return what == LATHE_ROWS_AVERAGES ? lathe_store_average(saved->store, i)
                                       : lathe_store_master(saved->store, i);
}

static int32_t row_family(lathe_state_rows what)
{
    return what == LATHE_ROWS_GRADIENTS  ? -1
           : what == LATHE_ROWS_AVERAGES ? LATHE_FAMILY_AVERAGES
                                         : LATHE_FAMILY_MASTERS;
}

static lathe_desc row_desc(const lathe_saved_state *saved, lathe_state_rows what, int32_t i)
{
    lathe_desc desc = saved->params->rows[i]->desc;
    desc.dtype =
        what == LATHE_ROWS_GRADIENTS ? lathe_params_grad_dtype(saved->params, i) : LATHE_F32;
    return desc;
}

lathe_status lathe__state_rows_find(lathe_arena *arena, const char *dir, lathe_state_rows what,
                                    const char **out)
{
    const char *one = lathe_arena_printf(arena, "%s/state/%s.safetensors", dir, names[what]);
    const char *many = one ? lathe_arena_printf(arena, "%s.index.json", one) : NULL;
    if (many == NULL)
        return LATHE_E_NOMEM;
    *out = lathe_path_exists(one) || lathe_path_exists(many) ? one : NULL;
    return LATHE_OK;
}

/* ---- writing ---- */

static lathe_status write_rows(const lathe_saved_state *saved, lathe_st_writer *w,
                               lathe_state_rows what, lathe_store_part *parts)
{
    int64_t n = 0;
    for (int32_t i = 0; i < saved->store->n_rows; i++) {
        if (!has_row(saved, what, i))
            continue;
        const lathe_desc desc = row_desc(saved, what, i);
        LATHE_TRY(lathe_st_writer_add(w, saved->params->rows[i]->name, &desc));
        parts[n] = (lathe_store_part){.tensor = n,
                                      .from = row_data(saved, what, i),
                                      .bytes = lathe_desc_bytes(&desc),
                                      .family = row_family(what),
                                      .param = i};
        n++;
    }
    if (what == LATHE_ROWS_GRADIENTS)
        LATHE_TRY(lathe__batch_rows_declare(saved, w));
    LATHE_TRY(lathe_st_writer_begin(w));
    LATHE_TRY(lathe_store_write_all(saved->store, w, parts, n));
    if (what == LATHE_ROWS_GRADIENTS)
        LATHE_TRY(lathe__batch_rows_write(saved, w, &n));
    return lathe_st_writer_finish(w);
}

lathe_status lathe__state_rows_write(const lathe_saved_state *saved, const char *state,
                                     lathe_state_rows what)
{
    lathe_st_writer *w = NULL;
    LATHE_TRY(lathe_st_writer_create(state, names[what], LATHE_STATE_FILE_BYTES, &w));
    lathe_store_part *parts = calloc((size_t)saved->store->n_rows + 1, sizeof *parts);
    const lathe_status status =
        parts ? write_rows(saved, w, what, parts)
              : lathe_error(LATHE_E_NOMEM, "no memory for %d tensors", saved->store->n_rows);
    free(parts);
    lathe_st_writer_destroy(w);
    return status;
}

/* ---- reading ---- */

static lathe_status check_row(const lathe_saved_state *saved, const lathe_safetensors *set,
                              lathe_state_rows what, int32_t i)
{
    const lathe_desc want = row_desc(saved, what, i);
    const lathe_param *row = saved->params->rows[i];
    const lathe_st_tensor *t = lathe_safetensors_find(set, row->name);
    if (t == NULL)
        return lathe_error(LATHE_E_CORRUPT, "state/%s.safetensors lacks '%s'", names[what],
                           row->name);
    if (what == LATHE_ROWS_GRADIENTS && t->desc.dtype != want.dtype)
        return lathe_error(
            LATHE_E_CONFIG,
            "%s: the step was saved before its end, with the gradient of '%s' in %s; this run adds "
            "gradients in %s: resume with the train.grad_dtype of the saved run",
            t->file, row->name, lathe_dtype_name(t->desc.dtype), lathe_dtype_name(want.dtype));
    if (t->desc.dtype != want.dtype || lathe_desc_count(&t->desc) != lathe_desc_count(&want))
        return lathe_error(LATHE_E_SHAPE, "%s: '%s' has another shape or dtype than the run's",
                           t->file, row->name);
    return LATHE_OK;
}

lathe_status lathe__state_rows_open(const lathe_saved_state *saved, const char *dir,
                                    lathe_state_rows what, lathe_safetensors **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    if (what == LATHE_ROWS_GRADIENTS && saved->store->division)
        return lathe_error(LATHE_E_STATE,
                           "%s is in the middle of a step: go on with one rank to the end of the "
                           "step, or resume from a checkpoint before it",
                           dir);
    const char *file = lathe_arena_printf(&arena, "%s/state/%s.safetensors", dir, names[what]);
    lathe_status status = file ? lathe_safetensors_open(file, out) : LATHE_E_NOMEM;
    for (int32_t i = 0; i < saved->store->n_rows && status == LATHE_OK; i++)
        if (has_row(saved, what, i))
            status = check_row(saved, *out, what, i);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe__state_rows_read(const lathe_saved_state *saved, const lathe_safetensors *set,
                                    lathe_state_rows what)
{
    for (int32_t i = 0; set && i < saved->store->n_rows; i++) {
        const lathe_desc desc = row_desc(saved, what, i);
        if (!has_row(saved, what, i))
            continue;
        const void *data = lathe_safetensors_find(set, saved->params->rows[i]->name)->data;
        LATHE_TRY(what == LATHE_ROWS_GRADIENTS
                      ? lathe_store_put(saved->store, row_data(saved, what, i), data,
                                        lathe_desc_bytes(&desc))
                      : lathe_store_put_held(saved->store, row_family(what), i, 0, data));
    }
    return LATHE_OK;
}
