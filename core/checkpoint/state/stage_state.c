/* Writes and reads the state of a stage that makes its own batches. */
#include "checkpoint/state/stage_state.h"

#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/fs.h"
#include "files/safetensors/st_writer.h"

static const char tensor_name[] = "stage.state";

static lathe_desc words(const lathe_stage_state *state)
{
    return lathe_desc_1d(LATHE_I64, state->bytes / 8);
}

lathe_status lathe__stage_state_write(const lathe_stage_state *state, const char *dir)
{
    lathe_st_writer *w = NULL;
    const lathe_desc desc = words(state);
    if (state->bytes == 0)
        return LATHE_OK;
    LATHE_TRY(lathe_st_writer_create(dir, "stage", 0, &w));
    lathe_status status = lathe_st_writer_add(w, tensor_name, &desc);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_st_writer_begin(w)) != LATHE_OK)
        goto out;
    if ((status = lathe_st_writer_write(w, 0, 0, state->memory, state->bytes)) != LATHE_OK)
        goto out;
    status = lathe_st_writer_finish(w);
out:
    lathe_st_writer_destroy(w);
    return status;
}

static lathe_status check(const lathe_stage_state *state, const char *path,
                          const lathe_safetensors *set)
{
    const lathe_desc want = words(state);
    const lathe_st_tensor *t = lathe_safetensors_find(set, tensor_name);
    if (t == NULL || t->desc.dtype != LATHE_I64)
        return lathe_error(LATHE_E_CORRUPT, "%s has no tensor '%s' of 64-bit integers", path,
                           tensor_name);
    if (lathe_desc_count(&t->desc) != lathe_desc_count(&want))
        return lathe_error(LATHE_E_CONFIG,
                           "%s holds %lld bytes of the stage's state, this run's settings make it "
                           "%lld: resume with the settings of [stage], data.seq_len and "
                           "train.micro_batch_size that it was written with",
                           path, (long long)lathe_desc_bytes(&t->desc), (long long)state->bytes);
    return LATHE_OK;
}

lathe_status lathe__stage_state_open(const lathe_stage_state *state, const char *dir,
                                     lathe_safetensors **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    *out = NULL;
    if (state->bytes == 0)
        return LATHE_OK;
    const char *path = lathe_path_join(&arena, dir, "state/stage.safetensors");
    lathe_status status = path ? lathe_safetensors_open(path, out) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = check(state, path, *out);
    if (status != LATHE_OK) {
        lathe_safetensors_close(*out);
        *out = NULL;
    }
    lathe_arena_fini(&arena);
    return status;
}

void lathe__stage_state_read(const lathe_stage_state *state, const lathe_safetensors *set)
{
    if (set)
        memcpy(state->memory, lathe_safetensors_find(set, tensor_name)->data, (size_t)state->bytes);
}
