/* Reads the run file once for all configurations that are made of it. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "config/config_file_state.h"

lathe_status lathe_run_file_create(const char *path, const lathe_edits *options,
                                   lathe_run_file **out)
{
    *out = NULL;
    lathe_run_file *file = calloc(1, sizeof *file);
    if (file == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: run file");
    if (path != NULL && (file->path = lathe_arena_strdup(&file->arena, path)) == NULL)
        file->options.status = LATHE_E_NOMEM;
    if (options != NULL)
        lathe_edits_take(&file->options, options, 0);
    if (file->options.status != LATHE_OK) {
        lathe_run_file_destroy(file);
        return lathe_error(LATHE_E_NOMEM, "out of memory: run file");
    }
    *out = file;
    return LATHE_OK;
}

const char *lathe_run_file_path(const lathe_run_file *file)
{
    return file->path;
}

void lathe_run_file_destroy(lathe_run_file *file)
{
    if (file == NULL)
        return;
    lathe_edits_fini(&file->options);
    lathe_arena_fini(&file->arena);
    free(file);
}

lathe_status lathe_run_file_tree(lathe_run_file *file, const lathe_toml_node **out)
{
    lathe_status status = LATHE_OK;
    if (file->root == NULL)
        status = file->path != NULL ? lathe_toml_load_file(file->path, &file->arena, &file->root)
                                    : lathe_toml_load("", "", 0, &file->arena, &file->root);
    if (status != LATHE_OK)
        file->root = NULL;
    *out = file->root;
    return status;
}

/* Returns 0 without memory. */
static int copy_text(const char **io_text, lathe_arena *arena)
{
    return *io_text == NULL || (*io_text = lathe_arena_strdup(arena, *io_text)) != NULL;
}

/* Recursive: no deeper than the parser lets tables nest (toml.h). */
lathe_toml_node *lathe__toml_copy(const lathe_toml_node *node, lathe_arena *arena)
{
    lathe_toml_node *copy = lathe_arena_alloc(arena, (int64_t)sizeof *copy);
    if (copy == NULL)
        return NULL;
    *copy = *node;
    if (!copy_text(&copy->key, arena) || !copy_text(&copy->origin, arena) ||
        !copy_text(&copy->s, arena))
        return NULL;
    if (node->n_children == 0)
        return copy;
    copy->children = lathe_arena_alloc(arena, node->n_children * (int64_t)sizeof(void *));
    if (copy->children == NULL)
        return NULL;
    for (int64_t i = 0; i < node->n_children; i++) {
        copy->children[i] = lathe__toml_copy(node->children[i], arena);
        if (copy->children[i] == NULL)
            return NULL;
    }
    return copy;
}
