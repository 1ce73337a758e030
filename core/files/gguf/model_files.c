/* Reads the files of a folder, or those that the folder of a GGUF file would have. A folder whose
 * vocabulary has another form than tokenizer.json is read as if it had that file. */
#include "files/gguf/model_files.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/map.h"
#include "base/model_path.h"
#include "files/gguf/gguf_folder.h"
#include "files/safetensors/expert_tensors.h"
#include "files/vocab/vocab_source.h"

/* 1: the text is made from the vocabulary, whether or not the folder has a file of this name. */
static int is_of_vocab(const char *model, const char *name)
{
    return (strcmp(name, "tokenizer.json") == 0 || strcmp(name, "tokenizer_config.json") == 0) &&
           !lathe_path_is_gguf(model) && lathe_vocab_is_other(model);
}

/* 1: the text is made, there is no file to be copied. */
static int is_made(const char *model, const char *name)
{
    return lathe_path_is_gguf(model) || is_of_vocab(model, name);
}

int32_t lathe_model_has(const char *model, const char *name)
{
    lathe_gguf *file = NULL;
    int32_t has = 0;
    if (!lathe_path_is_gguf(model)) {
        has = lathe_folder_holds(model, name) || is_of_vocab(model, name);
    } else if (lathe_gguf_open(model, &file) == LATHE_OK) {
        has = lathe_gguf_folder_has(file, name);
    } else {
        lathe_error_clear();
        for (int i = 0; lathe_gguf_folder_files[i] != NULL; i++)
            has |= strcmp(lathe_gguf_folder_files[i], name) == 0;
    }
    lathe_gguf_close(file);
    return has;
}

const char *lathe_model_place(lathe_arena *arena, const char *model, const char *name)
{
    return is_made(model, name) ? lathe_arena_printf(arena, "%s (%s)", model, name)
                                : lathe_path_join(arena, model, name);
}

static lathe_status make_of_gguf(const char *model, const char *name, lathe_buffer *out)
{
    lathe_gguf *file = NULL;
    LATHE_TRY(lathe_gguf_open(model, &file));
    lathe_status status = lathe_gguf_folder_text(file, name, out);
    if (status == LATHE_OK)
        status = lathe_gguf_check(file);
    lathe_gguf_close(file);
    return status;
}

static lathe_status append_file(const char *model, const char *name, lathe_buffer *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char *text = NULL;
    int64_t n = 0;
    const char *path = lathe_path_join(&arena, model, name);
    lathe_status status = path != NULL ? lathe_file_read(path, 0, &text, &n) : LATHE_E_NOMEM;
    if (status == LATHE_OK) {
        lathe_buffer_append(out, text, n);
        status = out->status;
    }
    free(text);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status make_of_vocab(const char *model, const char *name, lathe_buffer *out)
{
    lathe_vocab_source source;
    lathe_status status = lathe_vocab_open(model, &source);
    if (status == LATHE_OK)
        status = strcmp(name, "tokenizer.json") == 0 ? lathe_vocab_json(&source, out)
                                                     : lathe_vocab_config(&source, out);
    lathe_vocab_close(&source);
    /* a vocabulary that cannot be converted hides no chat template, nor the names of tokens */
    if (status == LATHE_E_UNSUPPORTED && strcmp(name, "tokenizer_config.json") == 0 &&
        lathe_folder_holds(model, name)) {
        lathe_error_clear();
        status = append_file(model, name, out);
    }
    return status;
}

static lathe_status read_made(const char *model, const char *name, int64_t limit, char **out,
                              int64_t *out_bytes)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_status status = lathe_path_is_gguf(model) ? make_of_gguf(model, name, &text)
                                                    : make_of_vocab(model, name, &text);
    if (status != LATHE_OK)
        goto out;
    if (limit > 0 && text.len > limit) {
        status = lathe_error(LATHE_E_CONFIG, "%s (%s): %lld bytes; expected at most %lld", model,
                             name, (long long)text.len, (long long)limit);
        goto out;
    }
    *out = malloc((size_t)text.len + 1);
    *out_bytes = text.len;
    if (*out == NULL)
        status = lathe_error(LATHE_E_NOMEM, "%s: no memory for %s", model, name);
    else if (text.len > 0)
        memcpy(*out, text.data, (size_t)text.len);
    if (*out != NULL)
        (*out)[text.len] = '\0';
out:
    lathe_buffer_fini(&text);
    return status;
}

lathe_status lathe_model_read(const char *model, const char *name, int64_t limit, char **out,
                              int64_t *out_bytes)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    *out = NULL;
    *out_bytes = 0;
    if (is_made(model, name))
        return read_made(model, name, limit, out, out_bytes);
    const char *path = lathe_path_join(&arena, model, name);
    const lathe_status status =
        path != NULL ? lathe_file_read(path, limit, out, out_bytes) : LATHE_E_NOMEM;
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_model_json(const char *model, const char *name, json_t **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char *text = NULL;
    int64_t n = 0;
    *out = NULL;
    const char *place = lathe_model_place(&arena, model, name);
    lathe_status status = LATHE_E_NOMEM;
    if (place != NULL && !is_made(model, name))
        status = lathe_json_load_file(place, out);
    else if (place != NULL && (status = read_made(model, name, 0, &text, &n)) == LATHE_OK)
        status = lathe_json_load(place, text, n, out);
    free(text);
    lathe_arena_fini(&arena);
    return status;
}

static const lathe_model_text *find_text(const lathe_model_texts *texts, const char *model,
                                         const char *name)
{
    for (const lathe_model_text *t = texts->list; t != NULL; t = t->next)
        if (strcmp(t->model, model) == 0 && strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

/* Keeps a text, which the list then frees (NULL: there is no file). */
static lathe_status keep_text(lathe_model_texts *texts, const char *model, const char *name,
                              char *text, int64_t bytes, const lathe_model_text **out)
{
    lathe_arena *arena = &texts->arena;
    lathe_model_text *t = lathe_arena_alloc(arena, (int64_t)sizeof *t);
    *out = NULL;
    if (t != NULL)
        *t = (lathe_model_text){.model = lathe_arena_strdup(arena, model),
                                .name = lathe_arena_strdup(arena, name),
                                .text = text,
                                .bytes = bytes,
                                .next = texts->list};
    if (t == NULL || t->model == NULL || t->name == NULL) {
        free(text);
        return LATHE_E_NOMEM;
    }
    *out = texts->list = t;
    return LATHE_OK;
}

lathe_status lathe_model_texts_read(lathe_model_texts *texts, const char *model, const char *name,
                                    int64_t limit, const lathe_model_text **out)
{
    const int has_made = is_made(model, name);
    char *text = NULL;
    int64_t bytes = 0;
    *out = find_text(texts, model, name);
    if (*out != NULL && (limit == 0 || (*out)->bytes <= limit)) /* else reading it says the limit */
        return LATHE_OK;
    const char *path = lathe_path_join(&texts->arena, model, name);
    if (path == NULL)
        return LATHE_E_NOMEM;
    if (has_made ? lathe_model_has(model, name) : lathe_path_exists(path))
        LATHE_TRY(lathe_model_read(model, name, limit, &text, &bytes));
    return keep_text(texts, model, name, text, bytes, out);
}

void lathe_model_texts_fini(lathe_model_texts *texts)
{
    for (const lathe_model_text *t = texts->list; t != NULL; t = t->next)
        free(t->text);
    lathe_arena_fini(&texts->arena);
    texts->list = NULL;
}

static lathe_status copy_file(const char *from, const char *to)
{
    lathe_map map;
    LATHE_TRY(lathe_map_open(from, &map));
    lathe_status status = lathe_file_write_atomic(to, map.data, map.bytes);
    if (status == LATHE_OK)
        status = lathe_map_check(&map);
    lathe_map_close(&map);
    return status;
}

static lathe_status copy_made(const char *model, const char *name, const char *to)
{
    char *text = NULL;
    int64_t n = 0;
    LATHE_TRY(read_made(model, name, 0, &text, &n));
    const lathe_status status = lathe_file_write_atomic(to, text, n);
    free(text);
    return status;
}

lathe_status lathe_model_copy(const char *model, const char *name, const char *to)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = LATHE_OK;
    const char *source = lathe_path_join(&arena, model, name);
    const char *target = lathe_path_join(&arena, to, name);
    if (source == NULL || target == NULL)
        status = LATHE_E_NOMEM;
    else if (lathe_model_has(model, name))
        status = is_made(model, name) ? copy_made(model, name, target) : copy_file(source, target);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_model_bytes(const char *model, const char *name, int64_t *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = LATHE_OK;
    struct stat st;
    char *text = NULL;
    *out = 0;
    const char *path = lathe_path_join(&arena, model, name);
    if (path == NULL)
        status = LATHE_E_NOMEM;
    else if (lathe_model_has(model, name) && is_made(model, name))
        status = read_made(model, name, 0, &text, out);
    else if (stat(path, &st) == 0)
        *out = (int64_t)st.st_size;
    free(text);
    lathe_arena_fini(&arena);
    return status;
}

const char *lathe_model_template_file(lathe_arena *arena, const char *name)
{
    return lathe_arena_printf(arena, LATHE_TEMPLATES_FOLDER "/%s" LATHE_TEMPLATES_END, name);
}

/* Lists the files of a folder whose names end like a template's. */
static lathe_status list_templates(const char *folder, lathe_arena *arena, char ***out,
                                   int64_t *out_n)
{
    static const char end[] = LATHE_TEMPLATES_END;
    const char *path = lathe_path_join(arena, folder, LATHE_TEMPLATES_FOLDER);
    char **names = NULL;
    int64_t n = 0;
    if (path == NULL)
        return LATHE_E_NOMEM;
    if (!lathe_path_exists(path))
        return LATHE_OK;
    LATHE_TRY(lathe_dir_list(path, arena, &names, &n));
    for (int64_t i = 0; i < n; i++) {
        const size_t bytes = strlen(names[i]), m = sizeof end - 1;
        if (bytes <= m || strcmp(names[i] + bytes - m, end) != 0)
            continue;
        names[i][bytes - m] = '\0';
        names[(*out_n)++] = names[i];
    }
    *out = names;
    return LATHE_OK;
}

lathe_status lathe_model_templates(const char *model, lathe_arena *arena, char ***out,
                                   int64_t *out_n)
{
    lathe_gguf *file = NULL;
    *out = NULL;
    *out_n = 0;
    if (!lathe_path_is_gguf(model))
        return list_templates(model, arena, out, out_n);
    LATHE_TRY(lathe_gguf_open(model, &file));
    const lathe_status status = lathe_gguf_templates(file, arena, out, out_n);
    lathe_gguf_close(file);
    return status;
}

lathe_status lathe_model_weights(const char *model, lathe_safetensors **out)
{
    lathe_gguf *file = NULL;
    *out = NULL;
    if (!lathe_path_is_gguf(model))
        return lathe_safetensors_open_joined(model, out);
    LATHE_TRY(lathe_gguf_open(model, &file));
    return lathe_gguf_tensors(file, out);
}
