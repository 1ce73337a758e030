/* Follows paths to checkpoints. */
#include "base/checkpoint_path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/model_path.h"

enum { NAME_BYTES = 64 }; /* of a name as LATHE_STEP_FORMAT makes it */

/* A name counts only if it is written as Lathe writes it: "step-3" or "step-00000003.tmp" are not
 * checkpoints, and two names of one step would make "the newest" ambiguous. */
int32_t lathe_checkpoint_step(const char *name, int64_t *out_step)
{
    char canonical[64];
    long long step = -1;
    if (sscanf(name, "step-%lld", &step) != 1 || step < 0)
        return 0;
    (void)snprintf(canonical, sizeof canonical, LATHE_STEP_FORMAT, step);
    *out_step = step;
    return strcmp(canonical, name) == 0;
}

/* Reads the name in a pointer file. It takes no memory: see lathe_path_is_pointer. */
static lathe_status read_name(const char *path, char out[NAME_BYTES])
{
    char text[4096];
    int fd = -1;
    int64_t bytes = 0, step;
    LATHE_TRY(lathe_file_open(path, &fd, &bytes));
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    const int cause = errno;
    (void)close(fd);
    if (n < 0)
        return lathe_error(LATHE_E_IO, "%s: cannot read: %s", path, strerror(cause));
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    text[n] = '\0';
    (void)snprintf(out, NAME_BYTES, "%.*s", NAME_BYTES - 1, text);
    return n < NAME_BYTES && bytes < (int64_t)sizeof text && lathe_checkpoint_step(out, &step)
               ? LATHE_OK
               : lathe_error(LATHE_E_CORRUPT, "%s does not name a checkpoint", path);
}

static lathe_status read_pointer(const char *path, lathe_arena *arena, const char **out_name)
{
    char name[NAME_BYTES];
    LATHE_TRY(read_name(path, name));
    *out_name = lathe_arena_strdup(arena, name);
    return *out_name ? LATHE_OK : LATHE_E_NOMEM;
}

lathe_status lathe_checkpoint_pointer(const char *dir, const char *pointer, lathe_arena *arena,
                                      const char **out_name)
{
    *out_name = NULL;
    const char *path = lathe_path_join(arena, dir, pointer);
    if (path == NULL)
        return LATHE_E_NOMEM;
    return lathe_path_exists(path) ? read_pointer(path, arena, out_name) : LATHE_OK;
}

int32_t lathe_path_is_pointer(const char *path)
{
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
    char name[NAME_BYTES];
    struct stat st;
    if ((strcmp(last, "latest") != 0 && strcmp(last, "best") != 0) || stat(path, &st) != 0 ||
        !S_ISREG(st.st_mode)) /* a pipe must not be opened */
        return 0;
    const int32_t is_pointer = read_name(path, name) == LATHE_OK;
    if (!is_pointer)
        lathe_error_clear();
    return is_pointer;
}

/* The folder `name` in `dir`, which `pointer` names. */
static lathe_status find_named(lathe_arena *arena, const char *pointer, const char *dir,
                               const char *name, const char **out_path)
{
    *out_path = dir ? lathe_path_join(arena, dir, name) : NULL;
    if (*out_path == NULL)
        return LATHE_E_NOMEM;
    if (lathe_path_is_dir(*out_path))
        return LATHE_OK;
    return lathe_error(LATHE_E_NOT_FOUND, "%s names the checkpoint %s, which does not exist",
                       pointer, *out_path);
}

lathe_status lathe_pointer_follow(lathe_arena *arena, const char *path, const char **out_path)
{
    const char *slash = strrchr(path, '/'), *name = NULL;
    *out_path = path;
    if (!lathe_path_is_pointer(path))
        return LATHE_OK;
    const char *dir = slash ? lathe_arena_strndup(arena, path, slash - path + 1) : ".";
    LATHE_TRY(read_pointer(path, arena, &name));
    return find_named(arena, path, dir, name, out_path);
}

/* A folder with a model's or an adapter's files means itself. Any other folder may be that of a
 * run, which means its latest checkpoint; without `latest` it stays as it is, and whoever reads it
 * says what is missing. */
lathe_status lathe_checkpoint_resolve(lathe_arena *arena, const char *path, const char **out_path)
{
    const char *name = NULL;
    *out_path = path;
    if (!lathe_path_is_dir(path))
        return lathe_pointer_follow(arena, path, out_path);
    if (lathe_folder_holds(path, "config.json") ||
        lathe_folder_holds(path, "adapter_config.json") ||
        lathe_folder_holds(path, "adapter_model.safetensors"))
        return LATHE_OK;
    LATHE_TRY(lathe_checkpoint_pointer(path, "latest", arena, &name));
    if (name == NULL)
        return LATHE_OK;
    const char *pointer = lathe_path_join(arena, path, "latest");
    return pointer ? find_named(arena, pointer, path, name, out_path) : LATHE_E_NOMEM;
}
