/* Trains a tokenizer from files; each file is one text. */
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/map.h"
#include "base/utf8.h"
#include "tokenizer/train/tokenizer_train.h"

typedef struct file_texts {
    const char *const *paths; /* files and folders */
    int64_t n_paths, path;    /* the next one */
    char **files;             /* of the current folder, or the file itself */
    int64_t n_files, file;
    int64_t n_skipped;
    lathe_arena arena;
    lathe_map map;
} file_texts;

static lathe_status enter(file_texts *t, const char *path)
{
    t->file = 0;
    if (lathe_path_is_dir(path))
        return lathe_dir_walk(path, &t->arena, &t->files, &t->n_files);
    t->files = lathe_arena_alloc(&t->arena, (int64_t)sizeof *t->files);
    if (t->files == NULL || (t->files[0] = lathe_arena_strdup(&t->arena, path)) == NULL)
        return LATHE_E_NOMEM;
    t->n_files = 1;
    return LATHE_OK;
}

static void leave(file_texts *t)
{
    if (t->map.data)
        lathe_map_close(&t->map);
    t->map = (lathe_map){NULL, 0};
}

static lathe_status next_file(void *arg, const char **out_text, int64_t *out_bytes)
{
    file_texts *t = arg;
    if (t->map.data)
        LATHE_TRY(lathe_map_check(&t->map));
    leave(t);
    for (;;) {
        while (t->file == t->n_files) {
            if (t->path == t->n_paths)
                return LATHE_OK;
            LATHE_TRY(enter(t, t->paths[t->path++]));
        }
        LATHE_TRY(lathe_map_open(t->files[t->file++], &t->map));
        if (t->map.bytes == 0)
            continue;
        if (memchr(t->map.data, 0, (size_t)t->map.bytes) == NULL &&
            lathe_utf8_prefix(t->map.data, t->map.bytes) == t->map.bytes)
            break;
        t->n_skipped++;
        leave(t);
    }
    *out_text = (const char *)t->map.data;
    *out_bytes = t->map.bytes;
    return LATHE_OK;
}

lathe_status lathe_tokenizer_train_files(const lathe_tokenizer_training *settings,
                                         const char *const *paths, int64_t n_paths,
                                         int64_t *out_skipped, lathe_tokenizer **out)
{
    file_texts texts;
    memset(&texts, 0, sizeof texts);
    texts.paths = paths;
    texts.n_paths = n_paths;
    const lathe_status status = lathe_tokenizer_train(settings, next_file, &texts, out);
    if (out_skipped)
        *out_skipped = texts.n_skipped;
    leave(&texts);
    lathe_arena_fini(&texts.arena);
    return status;
}
