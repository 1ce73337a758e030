/* Adds tokens to a tokenizer and rows to a model. */
#include "model/convert/vocab_growth.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/model_path.h"
#include "base/new_folder.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/st_writer.h"
#include "model/family/config_resize.h"
#include "model/family/weights.h"
#include "tokenizer/json/token_growth.h"
#include "tokenizer/json/tokenizer_file.h"

#define SHARD_BYTES ((int64_t)5 * 1000 * 1000 * 1000)

enum { PART_BYTES = 1 << 22 };

typedef struct growing {
    const char *folder;
    const lathe_vocab_growth *growth;
    lathe_token_growth tokens; /* of it */
    const lathe_work_watch *watch;
    lathe_model_config config;
    lathe_safetensors *set; /* with the new rows */
    lathe_tokenizer *tok;
    lathe_numbered_tokens numbers;
    lathe_vocab_grown *out;
    lathe_arena arena;
} growing;

/* Decides the ids and the number of rows. */
static lathe_status number_tokens(growing *r)
{
    const lathe_vocab_growth *g = r->growth;
    if (g->n == 0 && g->multiple_of <= 1)
        return lathe_error(LATHE_E_ARG, "no tokens to add; expected a token, or a multiple of 2 or "
                                        "more for the number of rows (--pad-to-multiple-of N)");
    LATHE_TRY(lathe_tokens_number(r->tok, &r->tokens, &r->arena, &r->numbers));
    r->out->n_added = r->numbers.n_added;
    r->out->n_known = r->numbers.n_known;
    r->out->rows_before = r->config.vocab;
    r->out->rows = lathe_grown_row_count(r->config.vocab, r->numbers.n_after, g->multiple_of);
    return LATHE_OK;
}

/* ---- the rows ---- */

/* Opens the weights, with new rows. Those of tokens with new ids begin anew, too. */
static lathe_status open_weights(growing *r)
{
    lathe_safetensors *set = NULL;
    lathe_row_growth growth = {.rows_before = r->config.vocab,
                               .rows = r->out->rows,
                               .init = r->growth->init,
                               .seed = r->growth->seed};
    LATHE_TRY(
        lathe_fresh_rows(r->numbers.ids, r->growth->n, r->numbers.n_before, &r->arena, &growth));
    LATHE_TRY(lathe_safetensors_open_all(r->folder, &set));
    const lathe_status status = lathe_grown_weights(set, &r->config, &growth, r->folder, &r->set);
    lathe_safetensors_close(set); /* which the other one holds */
    return status;
}

static lathe_status write_grown(const lathe_st_tensor *t, int64_t index, lathe_st_writer *w)
{
    const int64_t size = lathe_dtype_bytes(t->desc.dtype), n = lathe_desc_count(&t->desc);
    const int64_t last = t->desc.rank > 0 ? t->desc.dims[t->desc.rank - 1] : 1;
    const int64_t cols = last > 0 ? last : 1; /* a file may hold a tensor without elements */
    const int64_t fits = size > 0 ? PART_BYTES / size / cols : 1;
    const int64_t part = (fits > 1 ? fits : 1) * cols;
    void *data = malloc((size_t)(part * size));
    lathe_status status = data ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "rows of %s", t->name);
    for (int64_t i = 0; i < n && status == LATHE_OK; i += part) {
        const int64_t m = n - i < part ? n - i : part;
        status = lathe_st_read(t, i, m, data, t->desc.dtype);
        if (status == LATHE_OK)
            status = lathe_st_writer_write(w, index, i * size, data, m * size);
    }
    free(data);
    return status;
}

static lathe_status copy_tensor(const growing *r, const lathe_st_tensor *t, int64_t index,
                                int64_t *done, lathe_st_writer *w)
{
    const int64_t bytes = lathe_desc_bytes(&t->desc);
    for (int64_t at = 0; at < bytes; at += PART_BYTES) {
        const int64_t part = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
        LATHE_TRY(lathe_work_tell(r->watch, *done + at, 0));
        LATHE_TRY(lathe_st_writer_write(w, index, at, (const char *)t->data + at, part));
    }
    *done += bytes;
    return LATHE_OK;
}

static lathe_status write_weights(growing *r, const char *to)
{
    const int64_t n = lathe_safetensors_count(r->set);
    lathe_st_writer *w = NULL;
    int64_t done = 0;
    LATHE_TRY(lathe_st_writer_create(to, "model", SHARD_BYTES, &w));
    lathe_status status = LATHE_OK;
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(r->set, i);
        status = t->decode == NULL ? lathe_st_writer_add_copy(w, t)
                                   : lathe_st_writer_add(w, t->name, &t->desc);
    }
    if (status == LATHE_OK)
        status = lathe_st_writer_begin(w);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(r->set, i);
        status = t->decode ? write_grown(t, i, w) : copy_tensor(r, t, i, &done, w);
    }
    if (status == LATHE_OK)
        status = lathe_safetensors_check(r->set);
    if (status == LATHE_OK)
        status = lathe_st_writer_finish(w);
    lathe_st_writer_destroy(w);
    return status;
}

static lathe_status write_config(const growing *r, const char *to, lathe_arena *arena)
{
    const char *path = lathe_path_join(arena, to, "config.json");
    lathe_buffer out = LATHE_BUFFER_INIT;
    char *text = NULL;
    int64_t n = 0;
    if (path == NULL)
        return LATHE_E_NOMEM;
    lathe_status status = lathe_model_read(r->folder, "config.json", 0, &text, &n);
    if (status != LATHE_OK)
        goto out;
    lathe_config_text_resize(text, n, r->out->rows, &out);
    status = out.status != LATHE_OK ? out.status : lathe_file_write_atomic(path, out.data, out.len);
out:
    free(text);
    lathe_buffer_fini(&out);
    return status;
}

static lathe_status fill_folder(growing *r, const char *to, lathe_arena *arena)
{
    LATHE_TRY(lathe_tokenizer_files_copy(r->folder, to));
    LATHE_TRY(lathe_tower_files_copy(r->folder, to));
    LATHE_TRY(lathe_tokens_write(r->tok, &r->tokens, &r->numbers, to));
    LATHE_TRY(write_weights(r, to));
    return write_config(r, to, arena);
}

static lathe_status open_all(growing *r, const lathe_model_source *source)
{
    if (lathe_path_is_gguf(r->folder))
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s is a GGUF file; expected a folder: lathe convert makes one of it",
                           r->folder);
    LATHE_TRY(lathe_model_config_load(source, r->folder, &r->config));
    LATHE_TRY(lathe_tokenizer_load(r->folder, &r->tok));
    LATHE_TRY(number_tokens(r));
    return open_weights(r);
}

lathe_status lathe_vocab_grow(const lathe_model_source *source, const char *folder,
                              const char *path, const lathe_vocab_growth *growth,
                              const lathe_work_watch *watch, lathe_vocab_grown *out)
{
    growing r = {.folder = folder,
                 .growth = growth,
                 .tokens = {growth->tokens, growth->n, growth->are_plain},
                 .watch = watch,
                 .out = out,
                 .arena = LATHE_ARENA_INIT};
    const char *beside = NULL;
    *out = (lathe_vocab_grown){0, 0, 0, 0};
    lathe_status status = lathe_new_folder_check(path);
    if (status != LATHE_OK)
        goto out;
    if ((status = open_all(&r, source)) != LATHE_OK)
        goto out;
    if ((status = lathe_new_folder_begin(&r.arena, path, &beside)) != LATHE_OK)
        goto out;
    status = lathe_new_folder_end(fill_folder(&r, beside, &r.arena), beside, path);
out:
    lathe_safetensors_close(r.set);
    lathe_tokenizer_destroy(r.tok);
    lathe_model_config_fini(&r.config);
    lathe_arena_fini(&r.arena);
    return status;
}
