/* The copy that asynchronous checkpoints are written from. */
#include "run/checkpoint_image.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/transfer.h"
#include "run/checkpoint.h"

struct lathe_image {
    lathe_run run;         /* as it was; its store's rows and memory are the image's */
    lathe_store_row *rows; /* [run.store.n_rows] */
    int64_t master_bytes, bytes;
    char *memory;
};

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static int64_t master_bytes(const lathe_run *run)
{
    int64_t total = 0;
    for (int32_t i = 0; i < run->store.n_rows; i++)
        if (run->params.rows[i]->trainable)
            total += round_up(4 * lathe_desc_count(&run->params.rows[i]->desc));
    return total;
}

int64_t lathe_image_bytes(const lathe_run *run)
{
    const lathe_settings *s = &run->set;
    const int repeats = s->checkpoint_every > 0 || s->every_minutes > 0.0 || s->every_epochs > 0 ||
                        s->keep_best > 0;
    if (run->open.mode > LATHE_OPEN_TRAIN || run->open.data_is_optional || !s->checkpoint_dir ||
        !s->checkpoint_async || !repeats)
        return 0;
    return master_bytes(run) + run->store.slot_bytes + run->store.average_bytes;
}

lathe_status lathe_image_place(lathe_run *run)
{
    void *memory = NULL;
    const int64_t bytes = lathe_image_bytes(run);
    if (bytes == 0)
        return LATHE_OK;
    lathe_image *image = calloc(1, sizeof *image);
    run->checkpoints.image = image;
    if (image)
        image->rows = calloc((size_t)run->store.n_rows + 1, sizeof *image->rows);
    if (!image || !image->rows)
        return lathe_error(LATHE_E_NOMEM, "no memory for the layout of checkpoints");
    LATHE_TRY(lathe_machine_alloc(&run->machine, LATHE_MEM_CHECKPOINT, bytes, &memory));
    image->memory = memory;
    image->bytes = bytes;
    for (int32_t i = 0; i < run->store.n_rows; i++) {
        lathe_store_row *row = &image->rows[i];
        *row = run->store.rows[i];
        row->shadow = row->grad = row->master = -1;
        if (!run->params.rows[i]->trainable)
            continue;
        row->master = image->master_bytes;
        image->master_bytes += round_up(4 * lathe_desc_count(&run->params.rows[i]->desc));
    }
    return LATHE_OK;
}

void lathe_image_destroy(lathe_run *run)
{
    if (!run->checkpoints.image)
        return;
    lathe_machine_free(&run->machine, LATHE_MEM_CHECKPOINT, run->checkpoints.image->bytes,
                       run->checkpoints.image->memory);
    free(run->checkpoints.image->rows);
    free(run->checkpoints.image);
    run->checkpoints.image = NULL;
}

void lathe_image_touch(lathe_image *image)
{
    memset(image->memory, 0, (size_t)image->bytes);
}

/* Rows that lie behind each other in both go in one piece. */
static lathe_status copy_masters(lathe_image *image, const lathe_run *run)
{
    int64_t from = 0, to = 0, bytes = 0;
    for (int32_t i = 0; i < run->store.n_rows; i++) {
        if (!run->params.rows[i]->trainable)
            continue;
        const int64_t at = run->store.rows[i].master, into = image->rows[i].master;
        const int64_t n = round_up(4 * lathe_desc_count(&run->params.rows[i]->desc));
        if (at != from + bytes || into != to + bytes) {
            LATHE_TRY(lathe_fetch_pinned(run->store.m, image->memory + to,
                                         run->store.masters + from, bytes));
            from = at;
            to = into;
            bytes = 0;
        }
        bytes += n;
    }
    return lathe_fetch_pinned(run->store.m, image->memory + to, run->store.masters + from, bytes);
}

lathe_status lathe_image_take(lathe_image *image, const lathe_run *run)
{
    lathe_machine *m = run->store.m;
    image->run = *run;
    image->run.arena = (lathe_arena)LATHE_ARENA_INIT;
    lathe_store *store = &image->run.store;
    store->rows = image->rows;
    store->is_host = 1;
    store->slots_on_host = 0;
    store->offload = NULL;
    store->master_bytes = image->master_bytes;
    store->masters = image->memory;
    store->slots = image->memory + image->master_bytes;
    store->averages = store->slots + store->slot_bytes;
    store->shadows = store->grads = store->planes = NULL;
    LATHE_TRY(copy_masters(image, run));
    LATHE_TRY(
        run->store.slots_on_host
            ? lathe_store_get(&run->store, store->slots, run->store.slots, run->store.slot_bytes)
            : lathe_fetch_pinned(m, store->slots, run->store.slots, run->store.slot_bytes));
    LATHE_TRY(
        lathe_fetch_pinned(m, store->averages, run->store.averages, run->store.average_bytes));
    return lathe_machine_sync(m);
}

const lathe_run *lathe_image_run(const lathe_image *image)
{
    return &image->run;
}
