/* Holds the copy from which asynchronous checkpoints are written. */
#include "checkpoint/state/checkpoint_image.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "checkpoint/state/checkpoint.h"
#include "exec/store/store_io.h"
#include "exec/store/transfer.h"

struct lathe_image {
    lathe_saved_state
        /* the state when copied; points to the members below, and to parts that do not change */
        saved;
    lathe_store store; /* its rows and memory are the image's */
    lathe_counters at;
    lathe_accumulated sum;
    lathe_checkpoints checkpoints;
    lathe_stage_state stage_state; /* its memory is the end of the image's */
    lathe_store_row *rows;         /* [store.n_rows] */
    int64_t master_bytes, bytes;
    char *memory;
};

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Whether files are written from the row's master. */
static int is_written(const lathe_param *row)
{
    return lathe_param_changes(row) || row->is_fixed;
}

static int64_t master_bytes(const lathe_saved_state *saved)
{
    int64_t total = 0;
    for (int32_t i = 0; i < saved->store->n_rows; i++)
        if (is_written(saved->params->rows[i]))
            total += round_up(4 * lathe_desc_count(&saved->params->rows[i]->desc));
    return total;
}

int64_t lathe_image_bytes(const lathe_saved_state *saved)
{
    const lathe_checkpoint_settings *s = saved->set;
    const int repeats =
        s->every > 0 || s->every_minutes > 0.0 || s->every_epochs > 0.0 || s->keep_best > 0;
    if (!saved->plans || saved->store->division || saved->extra || saved->data_is_optional ||
        s->dir == NULL || !s->async || !repeats)
        return 0;
    return master_bytes(saved) + saved->store->slot_bytes + saved->store->average_bytes +
           saved->stage_state->bytes;
}

lathe_status lathe_image_place(const lathe_saved_state *saved)
{
    void *memory = NULL;
    const int64_t bytes = lathe_image_bytes(saved);
    if (bytes == 0)
        return LATHE_OK;
    lathe_image *image = calloc(1, sizeof *image);
    saved->checkpoints->image = image;
    if (image)
        image->rows = calloc((size_t)saved->store->n_rows + 1, sizeof *image->rows);
    if (image == NULL || image->rows == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the layout of checkpoints");
    LATHE_TRY(lathe_machine_alloc(saved->machine, LATHE_MEM_CHECKPOINT, bytes, &memory));
    image->memory = memory;
    image->bytes = bytes;
    for (int32_t i = 0; i < saved->store->n_rows; i++) {
        lathe_store_row *row = &image->rows[i];
        *row = saved->store->rows[i];
        row->shadow = row->grad = row->master = -1;
        if (!is_written(saved->params->rows[i]))
            continue;
        row->master = image->master_bytes;
        image->master_bytes += round_up(4 * lathe_desc_count(&saved->params->rows[i]->desc));
    }
    return LATHE_OK;
}

void lathe_image_destroy(const lathe_saved_state *saved)
{
    if (saved->checkpoints->image == NULL)
        return;
    lathe_machine_free(saved->machine, LATHE_MEM_CHECKPOINT, saved->checkpoints->image->bytes,
                       saved->checkpoints->image->memory);
    free(saved->checkpoints->image->rows);
    free(saved->checkpoints->image);
    saved->checkpoints->image = NULL;
}

void lathe_image_touch(lathe_image *image)
{
    memset(image->memory, 0, (size_t)image->bytes);
}

/* Rows that are adjacent in both blocks are copied together. */
static lathe_status copy_masters(lathe_image *image, const lathe_saved_state *saved)
{
    int64_t from = 0, to = 0, bytes = 0;
    for (int32_t i = 0; i < saved->store->n_rows; i++) {
        if (!is_written(saved->params->rows[i]))
            continue;
        const int64_t at = saved->store->rows[i].master, into = image->rows[i].master;
        const int64_t n = round_up(4 * lathe_desc_count(&saved->params->rows[i]->desc));
        if (at != from + bytes || into != to + bytes) {
            LATHE_TRY(lathe_fetch_pinned(saved->store->m, image->memory + to,
                                         saved->store->masters + from, bytes));
            from = at;
            to = into;
            bytes = 0;
        }
        bytes += n;
    }
    return lathe_fetch_pinned(saved->store->m, image->memory + to, saved->store->masters + from,
                              bytes);
}

lathe_status lathe_image_take(lathe_image *image, const lathe_saved_state *saved)
{
    lathe_machine *m = saved->store->m;
    image->saved = *saved;
    image->store = *saved->store;
    image->at = *saved->at;
    image->sum = *saved->sum;
    image->checkpoints = *saved->checkpoints;
    image->saved.arena = NULL; /* the writer uses its own */
    image->saved.store = &image->store;
    image->saved.at = &image->at;
    image->saved.sum = &image->sum;
    image->saved.checkpoints = &image->checkpoints;
    image->saved.stage_state = &image->stage_state;
    lathe_store *store = &image->store;
    store->rows = image->rows;
    store->is_host = 1;
    store->slots_on_host = 0;
    store->offload = NULL;
    store->master_bytes = image->master_bytes;
    store->masters = image->memory;
    store->slots = image->memory + image->master_bytes;
    store->averages = store->slots + store->slot_bytes;
    store->shadows = store->grads = store->planes = NULL;
    image->stage_state =
        (lathe_stage_state){store->averages + store->average_bytes, saved->stage_state->bytes};
    if (saved->stage_state->bytes > 0)
        memcpy(image->stage_state.memory, saved->stage_state->memory,
               (size_t)saved->stage_state->bytes);
    LATHE_TRY(copy_masters(image, saved));
    LATHE_TRY(
        saved->store->slots_on_host
            ? lathe_store_get(saved->store, store->slots, saved->store->slots,
                              saved->store->slot_bytes)
            : lathe_fetch_pinned(m, store->slots, saved->store->slots, saved->store->slot_bytes));
    LATHE_TRY(lathe_fetch_pinned(m, store->averages, saved->store->averages,
                                 saved->store->average_bytes));
    return lathe_machine_sync(m);
}

const lathe_saved_state *lathe_image_state(const lathe_image *image)
{
    return &image->saved;
}
