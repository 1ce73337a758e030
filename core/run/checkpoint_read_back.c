/* Reading a checkpoint back: what is in the files is what is in memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "io/convert.h"
#include "io/manifest.h"
#include "io/safetensors.h"
#include "model/weights.h"
#include "run/adapter_file.h"
#include "run/checkpoint.h"
#include "run/weight_average.h"

/* Lets go of the kernel's copy, which is clean after the fsync: the next read comes from the disk. */
static lathe_status forget_cache(const char *dir, lathe_arena *arena)
{
    char **paths = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_dir_walk(dir, arena, &paths, &n));
    for (int64_t i = 0; i < n; i++) {
        const int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return lathe_error(LATHE_E_IO, "%s: cannot open: %s", paths[i], strerror(errno));
        (void)posix_fadvise(fd, 0, 0,
                            POSIX_FADV_DONTNEED); /* a hint; without it memory is compared */
        (void)close(fd);
    }
    return LATHE_OK;
}

/* The sink gets what the file holds; each row is compared and forgotten. */
typedef struct comparison {
    const lathe_run *run;
    const char *dir;
    float *row, *want; /* as f32 */
    int64_t bytes;
} comparison;

static lathe_status place_row(void *arg, int32_t index, const lathe_param *row, void **out_data,
                              int32_t *out_dtype)
{
    comparison *c = arg;
    (void)index;
    const int64_t bytes = 4 * lathe_desc_count(&row->desc);
    if (bytes > c->bytes) {
        free(c->row);
        free(c->want);
        c->row = malloc((size_t)bytes);
        c->want = malloc((size_t)bytes);
        c->bytes = c->row && c->want ? bytes : 0;
        if (!c->bytes)
            return lathe_error(LATHE_E_NOMEM, "no memory to compare '%s'", row->name);
    }
    *out_data = c->row;
    *out_dtype = LATHE_F32;
    return LATHE_OK;
}

static lathe_status compare_row(void *arg, int32_t index, const lathe_param *row, void *data)
{
    comparison *c = arg;
    const int64_t n = lathe_desc_count(&row->desc);
    const void *values = NULL;
    int32_t dtype = LATHE_F32;
    lathe_run *run = (lathe_run *)(uintptr_t)c->run; /* a source only reads */
    LATHE_TRY(lathe__checkpoint_values(run, index, row, &values, &dtype));
    if (dtype != LATHE_F32) {
        LATHE_TRY(lathe_convert(c->want, LATHE_F32, values, dtype, n));
        values = c->want;
    }
    if (memcmp(values, data, (size_t)(4 * n)) != 0)
        return lathe_error(
            LATHE_E_CORRUPT,
            "%s: '%s' as read back is not what was written: the disk or memory is at "
            "fault",
            c->dir, row->name);
    return LATHE_OK;
}

static lathe_status compare_model(const lathe_run *run, const char *dir)
{
    lathe_safetensors *set = NULL;
    comparison c = {.run = run, .dir = dir};
    LATHE_TRY(lathe_safetensors_open(dir, &set));
    const lathe_weight_sink sink = {.place = place_row, .done = compare_row, .arg = &c};
    const lathe_status status = lathe_weights_load(set, &run->model, &run->params, &sink);
    free(c.row);
    free(c.want);
    lathe_safetensors_close(set);
    return status;
}

static lathe_status compare_weights(const lathe_run *run, const char *dir)
{
    if (lathe__checkpoint_has_model(run))
        LATHE_TRY(compare_model(run, dir));
    return run->params.n > run->n_model_params ? lathe__adapter_file_compare(run, dir) : LATHE_OK;
}

static lathe_status compare_average(const lathe_run *run, const char *dir)
{
    lathe_run view;
    if (run->store.average_bytes == 0)
        return LATHE_OK;
    LATHE_TRY(lathe__average_view(run, &view));
    const char *path = lathe_path_join(&view.arena, dir, "average");
    const lathe_status status = path ? compare_weights(&view, path) : LATHE_E_NOMEM;
    lathe__average_view_fini(&view);
    return status;
}

lathe_status lathe__checkpoint_read_back(const lathe_run *run, const char *dir)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = forget_cache(dir, &arena);
    lathe_arena_fini(&arena);
    LATHE_TRY(status);
    LATHE_TRY(lathe_manifest_verify(dir));
    LATHE_TRY(compare_weights(run, dir));
    return compare_average(run, dir);
}
