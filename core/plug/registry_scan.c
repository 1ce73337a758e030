/* The registry: lists and opens all plugins of a kind, and finds the candidates for a name. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "plug/kind.h"
#include "plug/probe.h"
#include "plug/registry_state.h"

/* *out: the name of the file "NAME.so", in arena; NULL for other files. */
static lathe_status stem(lathe_arena *arena, const char *file, const char **out)
{
    const size_t n = strlen(file);
    *out = NULL;
    if (n < 4 || strcmp(file + n - 3, ".so") != 0)
        return LATHE_OK;
    const char *name = lathe_arena_strndup(arena, file, (int64_t)n - 3);
    if (name == NULL)
        return LATHE_E_NOMEM;
    *out = lathe_name_is_valid(name) ? name : NULL;
    return LATHE_OK;
}

static int was_refused(const lathe_registry *registry, int32_t kind, const char *name)
{
    const size_t n = strlen(name);
    for (int64_t i = 0; i < registry->n_refusals; i++) {
        const lathe_refusal *refusal = &registry->refusals[i];
        const char *slash = strrchr(refusal->path, '/');
        if (refusal->kind == kind && !refusal->is_note && !refusal->hides && slash != NULL &&
            strncmp(slash + 1, name, n) == 0 && strcmp(slash + 1 + n, ".so") == 0)
            return 1;
    }
    return 0;
}

/* The files of a scan, in search order, and their folders. */
typedef struct found {
    lathe_arena arena;
    lathe_probe *files;
    int64_t n, capacity;
} found;

static lathe_status push(found *f, int32_t kind, const char *name, const char *path,
                         const char *pin)
{
    if (f->n == f->capacity) {
        const int64_t capacity = 2 * f->capacity + 64;
        lathe_probe *grown = realloc(f->files, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return lathe_error(LATHE_E_NOMEM, "out of memory: plugins");
        f->files = grown;
        f->capacity = capacity;
    }
    f->files[f->n++] = (lathe_probe){path, name, pin, kind, NULL};
    return LATHE_OK;
}

static const lathe_probe *seen(const found *f, int32_t kind, const char *name)
{
    for (int64_t i = 0; i < f->n; i++)
        if (f->files[i].kind == kind && strcmp(f->files[i].name, name) == 0)
            return &f->files[i];
    return NULL;
}

/* Adds a file of folder i, unless a file of that name was found before or it may not be opened. */
static lathe_status find_file(lathe_registry *registry, int64_t i, int32_t kind, const char *name,
                              const char *path, found *f)
{
    const lathe_component *open = lathe__registry_opened(registry, kind, name);
    const lathe_probe *before = seen(f, kind, name);
    const char *first = open != NULL ? open->path : before != NULL ? before->path : NULL;
    int hides = 0;
    if (first != NULL && strcmp(first, path) == 0)
        return LATHE_OK;
    if (first != NULL) {
        const char *why = lathe_arena_printf(&f->arena, "%s: hidden by %s", path, first);
        return why == NULL ? LATHE_E_NOMEM : lathe__registry_refuse(registry, kind, 1, path, why);
    }
    if (was_refused(registry, kind, name))
        return LATHE_OK;
    const lathe_status status = lathe__registry_may_open(registry, i, kind, name, path, &hides);
    if (status == LATHE_OK)
        return push(f, kind, name, path, lathe__registry_pin_of(registry, kind, name));
    if (lathe__registry_refuse_error(registry, kind, path, status) == LATHE_E_NOMEM)
        return LATHE_E_NOMEM;
    for (int64_t k = 0; k < registry->n_refusals; k++)
        if (strcmp(registry->refusals[k].path, path) == 0)
            registry->refusals[k].hides = hides;
    return LATHE_OK;
}

static lathe_status find_in_folder(lathe_registry *registry, int64_t i, int32_t kind, found *f)
{
    char **files = NULL;
    int64_t n = 0;
    const char *folder = lathe_path_join(&f->arena, registry->paths[i], lathe_kind_name(kind));
    if (folder == NULL)
        return LATHE_E_NOMEM;
    if (!lathe_path_is_dir(folder))
        return LATHE_OK;
    const lathe_status status = lathe_dir_list(folder, &f->arena, &files, &n);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK) {
        (void)lathe__registry_refuse_error(registry, 0, folder, status);
        return LATHE_OK;
    }
    for (int64_t k = 0; k < n; k++) {
        const char *name, *path = lathe_path_join(&f->arena, folder, files[k]);
        if (path == NULL)
            return LATHE_E_NOMEM;
        LATHE_TRY(stem(&f->arena, files[k], &name));
        if (name != NULL)
            LATHE_TRY(find_file(registry, i, kind, name, path, f));
    }
    return LATHE_OK;
}

/* Loads the files that passed the trial and records the others. */
static lathe_status open_found(lathe_registry *registry, const found *f)
{
    for (int64_t i = 0; i < f->n; i++) {
        const lathe_probe *file = &f->files[i];
        const lathe_component *component;
        if (file->fault != NULL) {
            LATHE_TRY(lathe__registry_refuse(registry, file->kind, 0, file->path, file->fault));
            continue;
        }
        const lathe_status status =
            lathe__registry_open(registry, file->kind, file->name, file->path, &component);
        if (status == LATHE_E_NOMEM)
            return status;
    }
    return LATHE_OK;
}

lathe_status lathe_registry_scan(lathe_registry *registry, int32_t kind)
{
    found f = {.arena = LATHE_ARENA_INIT};
    lathe_status status = LATHE_OK;
    for (int32_t k = 1; k < LATHE_N_KINDS && status == LATHE_OK; k++)
        for (int64_t i = 0; i < registry->n_paths && status == LATHE_OK; i++)
            if (kind == 0 || kind == k)
                status = find_in_folder(registry, i, k, &f);
    if (status == LATHE_OK)
        status = lathe_probe_run(f.files, f.n, &f.arena);
    if (status == LATHE_OK)
        status = open_found(registry, &f);
    free(f.files);
    lathe_arena_fini(&f.arena);
    return status;
}

static int by_kind_and_name(const void *a, const void *b)
{
    const lathe_plugin *x = (*(const lathe_component *const *)a)->plugin;
    const lathe_plugin *y = (*(const lathe_component *const *)b)->plugin;
    return x->kind != y->kind ? (x->kind < y->kind ? -1 : 1) : strcmp(x->name, y->name);
}

lathe_status lathe_registry_list(const lathe_registry *registry, int32_t kind, lathe_arena *arena,
                                 const lathe_component ***out, int64_t *out_n)
{
    const lathe_component **list =
        lathe_arena_alloc(arena, registry->n_items * (int64_t)sizeof *list);
    *out = list;
    *out_n = 0;
    if (list == NULL)
        return LATHE_E_NOMEM;
    int64_t n = 0;
    for (int64_t i = 0; i < registry->n_items; i++)
        if (kind == 0 || registry->items[i]->plugin->kind == kind)
            list[n++] = registry->items[i];
    if (n > 1)
        qsort(list, (size_t)n, sizeof *list, by_kind_and_name);
    *out_n = n;
    return LATHE_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

lathe_status lathe_registry_names(const lathe_registry *registry, int32_t kind, lathe_arena *arena,
                                  const char ***out, int64_t *out_n)
{
    const char **names = NULL;
    int64_t n = 0, n_kept = 0;
    *out = NULL;
    *out_n = 0;
    for (int64_t i = 0; i < registry->n_paths; i++) {
        char **files = NULL;
        int64_t n_files = 0;
        const char *folder = lathe_path_join(arena, registry->paths[i], lathe_kind_name(kind));
        if (folder == NULL)
            return LATHE_E_NOMEM;
        if (!lathe_path_is_dir(folder))
            continue;
        const lathe_status status = lathe_dir_list(folder, arena, &files, &n_files);
        if (status == LATHE_E_NOMEM)
            return status;
        if (status != LATHE_OK)
            continue; /* a folder that cannot be read: lathe_registry_scan says so */
        const char **const more =
            lathe_arena_alloc(arena, (n + n_files + 1) * (int64_t)sizeof *more);
        if (more == NULL)
            return LATHE_E_NOMEM;
        if (n > 0)
            memcpy(more, names, (size_t)n * sizeof *more);
        names = more;
        for (int64_t j = 0; j < n_files; j++) {
            LATHE_TRY(stem(arena, files[j], &names[n]));
            n += names[n] != NULL;
        }
    }
    *out = names;
    if (n > 1)
        qsort(names, (size_t)n, sizeof *names, by_text);
    for (int64_t i = 0; i < n; i++)
        if (n_kept == 0 || strcmp(names[n_kept - 1], names[i]) != 0)
            names[n_kept++] = names[i];
    *out_n = n_kept;
    return LATHE_OK;
}

lathe_status lathe_registry_candidates(lathe_registry *registry, int32_t kind, const char *name,
                                       lathe_arena *arena, const lathe_component ***out,
                                       int64_t *out_n)
{
    const int is_auto = strcmp(name, "auto") == 0;
    *out = NULL;
    *out_n = 0;
    if (!is_auto) {
        const lathe_component *one = NULL;
        const lathe_status status = lathe_registry_find(registry, kind, name, &one);
        if (status == LATHE_OK) {
            *out = lathe_arena_alloc(arena, (int64_t)sizeof **out);
            if (*out == NULL)
                return LATHE_E_NOMEM;
            (*out)[0] = one;
            *out_n = 1;
            return LATHE_OK;
        }
        if (status != LATHE_E_NOT_FOUND)
            return status;
    }
    const int64_t n_refusals = registry->n_refusals;
    LATHE_TRY(lathe_registry_scan(registry, kind));
    for (int64_t i = n_refusals; i < registry->n_refusals; i++)
        if (!registry->refusals[i].is_note)
            lathe_log(LATHE_LOG_WARN, "%s", registry->refusals[i].reason);
    LATHE_TRY(lathe_registry_list(registry, kind, arena, out, out_n));
    int64_t n = 0;
    for (int64_t i = 0; i < *out_n; i++) {
        const char *family = (*out)[i]->plugin->family;
        if (is_auto || (family != NULL && strcmp(family, name) == 0))
            (*out)[n++] = (*out)[i];
    }
    *out_n = n;
    return n > 0 ? LATHE_OK : lathe__registry_not_found(registry, kind, name);
}
