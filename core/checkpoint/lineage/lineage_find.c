/* Finds the folder of a recorded parent. */
#include "checkpoint/lineage/lineage_find.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/model_path.h"
#include "checkpoint/state/parents.h"
#include "files/safetensors/manifest.h"

enum { MAX_LOOKED_AT = 256 };

void lathe__lineage_damage(void *array, const char *message)
{
    (void)json_array_append_new(array, lathe__json_text(message));
}

/* Whether the folder has the recorded files, and the recorded manifest if it has one. */
static int is_same(const json_t *parent, const char *dir, int32_t verify, lathe_arena *arena,
                   json_t *damage)
{
    const json_t *files = json_object_get(parent, "files");
    const char *want = json_string_value(json_object_get(parent, "manifest"));
    char *real = realpath(dir, NULL);
    const char *whole = real ? lathe_arena_strdup(arena, real) : NULL;
    free(real);
    dir = whole ? whole : dir;
    const char *covered = NULL;
    char hex[65];
    if (lathe__manifest_folder(dir, arena, &covered) != LATHE_OK)
        return 0; /* not found, which the search says */
    int same = lathe_files_compare(dir, files, verify, damage ? lathe__lineage_damage : NULL,
                                   damage) == LATHE_OK;
    /* a damaged manifest is reported with its own folder */
    if (want && covered && lathe_manifest_self(covered, hex) == LATHE_OK &&
        strcmp(hex, want) != 0) {
        const char *message = lathe_arena_printf(
            arena, "%s/%s: another one than recorded (SHA-256 %.12s..., recorded: %.12s...)",
            covered, LATHE_MANIFEST_NAME, hex, want);
        if (damage && message)
            lathe__lineage_damage(damage, message);
        same = 0;
    }
    lathe_error_clear();
    return same;
}

/* The place of the parent if it moved together with the child: the part in which the child's two
 * paths differ is replaced. NULL: it cannot be told. */
static const char *moved(const char *path, const char *recorded, const char *child,
                         lathe_arena *arena)
{
    size_t a = strlen(recorded), b = strlen(child);
    while (a > 0 && b > 0 && recorded[a - 1] == child[b - 1])
        a--, b--;
    /* whole names only */
    while (recorded[a] && recorded[a] != '/')
        a++, b++;
    if (strncmp(path, recorded, a) != 0 || path[a] != '/' || strcmp(recorded, child) == 0)
        return NULL;
    return lathe_arena_printf(arena, "%.*s%s", (int)b, child, path + a);
}

static const char *above(const char *path, lathe_arena *arena)
{
    const char *slash = strrchr(path, '/');
    return slash && slash > path ? lathe_arena_strndup(arena, path, slash - path) : NULL;
}

/* Looks through the folders in `dir`, and through those in them down to `deep` levels. */
static const char *look_in(const json_t *parent, const char *dir, int deep, int32_t verify,
                           lathe_arena *arena, int *n_left)
{
    char **names = NULL;
    int64_t n = 0;
    const char *found = NULL;
    if (dir == NULL || lathe_dir_list(dir, arena, &names, &n) != LATHE_OK)
        n = 0;
    for (int64_t i = 0; i < n && found == NULL && (*n_left)-- > 0; i++) {
        const char *path = lathe_path_join(arena, dir, names[i]);
        if (path == NULL || !lathe_path_is_model(path))
            continue;
        /* sizes first: hashing takes time */
        if (is_same(parent, path, 0, arena, NULL) &&
            (!verify || is_same(parent, path, 1, arena, NULL)))
            found = path;
        else if (deep > 0 && lathe_path_is_dir(path))
            found = look_in(parent, path, deep - 1, verify, arena, n_left);
    }
    return found;
}

lathe_status lathe__lineage_find(const json_t *parent, const char *recorded, const char *child,
                                 int32_t verify, lathe_arena *arena, json_t *damage,
                                 const char **out_found, int32_t *out_same)
{
    const char *path = json_string_value(json_object_get(parent, "path"));
    const char *with_child = recorded && recorded[0] == '/' && child[0] == '/'
                                 ? moved(path, recorded, child, arena)
                                 : NULL;
    const char *const hints[] = {path, with_child};
    const char *other = NULL, *const near = above(child, arena);
    int n_left = MAX_LOOKED_AT;
    *out_same = 1;
    for (size_t i = 0; i < 2; i++) {
        if (hints[i] == NULL || !lathe_path_is_model(hints[i]))
            continue;
        *out_found = hints[i];
        if (is_same(parent, hints[i], verify, arena, NULL))
            return LATHE_OK;
        other = other ? other : hints[i];
    }
    *out_found = look_in(parent, near, 0, verify, arena, &n_left);
    if (*out_found == NULL && near)
        *out_found = look_in(parent, above(near, arena), 2, verify, arena, &n_left);
    lathe_error_clear();
    if (*out_found)
        return LATHE_OK;
    *out_same = 0;
    *out_found = other;
    if (other)
        (void)is_same(parent, other, verify, arena, damage);
    return LATHE_OK;
}
