/* Writes the manifest of a model that a command made from others. */
#include "checkpoint/state/made_folder.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/state/folder_renderer.h"
#include "checkpoint/state/folder_tokenizer.h"
#include "checkpoint/state/parents.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/manifest.h"
#include "lathe/lathe.h"

static lathe_status put_parents(const lathe_made_from *from, int32_t n, lathe_arena *arena,
                                lathe_buffer *out)
{
    lathe_buffer_puts(out, ", \"parents\": [");
    for (int32_t i = 0; i < n; i++) {
        const char *role = lathe_arena_printf(arena, "\"%s\"", from[i].role);
        if (role == NULL)
            return LATHE_E_NOMEM;
        lathe_buffer_puts(out, i ? ", " : "");
        LATHE_TRY(lathe__parent_put(from[i].path, role, arena, out));
    }
    lathe_buffer_puts(out, "]");
    return out->status;
}

static lathe_status put_calibration(const lathe_made_on *on, lathe_arena *arena, lathe_buffer *out)
{
    const char *rows = lathe_arena_printf(arena, ", \"rows\": %lld, \"row_tokens\": %lld",
                                          (long long)on->rows, (long long)on->row_tokens);
    return rows ? lathe__parents_put_data("calibration", on->shards, rows, arena, out)
                : LATHE_E_NOMEM;
}

/* ---- the renderer ---- */

/* Finds the renderer that the adapters remember, or else the model's. *out NULL: none, or adapters
 * that disagree. The caller releases it. */
static lathe_status find_renderer(const lathe_made_from *from, int32_t n, lathe_arena *arena,
                                  json_t **out)
{
    json_t *of_model = NULL, *one;
    lathe_status status = LATHE_OK;
    int differ = 0;
    *out = NULL;
    for (int32_t i = 0; i < n && status == LATHE_OK; i++) {
        status = lathe_folder_renderer(from[i].path, arena, &one);
        json_t **place = strcmp(from[i].role, "adapter") == 0 ? out : &of_model;
        if (*place == NULL)
            *place = json_incref(one);
        differ |= one && !json_equal(one, *place);
        json_decref(one);
    }
    if (differ)
        lathe_log(LATHE_LOG_WARN,
                  "the adapters were trained with different renderers (renderer.name in their "
                  "manifest.json), so the new folder remembers none: name one with --renderer.name "
                  "when you use it");
    if (*out == NULL && !differ)
        *out = json_incref(of_model);
    if (differ || status != LATHE_OK) {
        json_decref(*out);
        *out = NULL;
    }
    json_decref(of_model);
    return status;
}

static lathe_status put_renderer(const lathe_made_from *from, int32_t n, lathe_arena *arena,
                                 lathe_buffer *out)
{
    json_t *renderer;
    lathe_status status = find_renderer(from, n, arena, &renderer);
    if (status == LATHE_OK && lathe_renderer_is_named(renderer)) {
        char *text = json_dumps(renderer, JSON_REAL_PRECISION(17));
        lathe_buffer_printf(out, ", \"renderer\": %s", text ? text : "null");
        status = text ? out->status : LATHE_E_NOMEM;
        free(text);
    }
    json_decref(renderer);
    return status;
}

/* Says that the new folder reads raw bytes, if what it was made from does: it has no tokenizer.json
 * that could say so. */
static lathe_status put_tokenizer(const char *dir, const lathe_made_from *from, int32_t n,
                                  lathe_arena *arena, lathe_buffer *out)
{
    int reads_bytes = 0;
    if (lathe_model_has(dir, "tokenizer.json"))
        return LATHE_OK;
    for (int32_t i = 0; i < n && !reads_bytes; i++)
        if (!lathe_model_has(from[i].path, "tokenizer.json"))
            LATHE_TRY(lathe_folder_reads_bytes(from[i].path, arena, &reads_bytes));
    if (reads_bytes)
        lathe_buffer_puts(out, ", \"tokenizer\": \"bytes\"");
    return out->status;
}

lathe_status lathe__made_folder_describe(const char *dir, const char *path, const char *by,
                                         const lathe_made_from *from, int32_t n,
                                         const lathe_made_on *on)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_buffer meta = LATHE_BUFFER_INIT;
    lathe_buffer_printf(&meta, "{\"lathe\": \"%s\", \"time\": %lld, \"made_by\": ", lathe_version(),
                        (long long)time(NULL));
    lathe_buffer_json_string(&meta, by);
    lathe__parents_put_place(path, &arena, &meta);
    lathe_status status = put_parents(from, n, &arena, &meta);
    if (status != LATHE_OK)
        goto out;
    if ((status = put_renderer(from, n, &arena, &meta)) != LATHE_OK)
        goto out;
    if ((status = put_tokenizer(dir, from, n, &arena, &meta)) != LATHE_OK)
        goto out;
    if (on)
        status = put_calibration(on, &arena, &meta);
out:
    lathe_buffer_puts(&meta, "}");
    if (status == LATHE_OK)
        status = meta.status;
    if (status == LATHE_OK)
        status = lathe_manifest_write(dir, meta.data);
    lathe_buffer_fini(&meta);
    lathe_arena_fini(&arena);
    return status;
}
