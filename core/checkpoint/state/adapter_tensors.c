/* Opens the file of an adapter and finds its tensors, whoever wrote it. */
#include "checkpoint/state/adapter_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "checkpoint/state/fused_lora.h"
#include "files/safetensors/expert_tensors.h"

#define PREFIX "base_model.model."

enum { MAX_MADE = 8 }; /* tensors that are added */

typedef struct entry {
    const lathe_st_tensor *tensor;
    const char *key; /* PEFT's name */
    int32_t taken;
    lathe_st_tensor made; /* of lathe_adapter_tensors_add; data NULL: of the file */
} entry;

struct lathe_adapter_tensors {
    lathe_safetensors *set;
    lathe_arena arena;
    entry *list;
    int64_t n;
    int32_t n_made;
};

/* ---- names ---- */

/* Takes a part "name." out of a path wherever it stands as a whole part. */
static void drop_part(char *key, const char *part)
{
    const size_t n = strlen(part);
    for (char *at = key; (at = strstr(at, part)) != NULL;) {
        if (at == key || at[-1] == '.')
            memmove(at, at + n, strlen(at + n) + 1);
        else
            at += n;
    }
}

/* Takes the adapter's name out of "MATRIX.default" and "MATRIX.default.weight". `has_weight`:
 * PEFT's name ends in ".weight", which old versions leave out or write. */
static void drop_adapter_name(char *key, const char *matrix, int has_weight)
{
    static const char weight[] = ".weight", bias[] = ".bias";
    char *at = strstr(key, matrix);
    if (at == NULL)
        return;
    char *rest = at + strlen(matrix); /* "", ".weight", ".default", ".default.weight" */
    const char *dot = rest[0] == '.' ? strchr(rest + 1, '.') : NULL;
    const int is_end = strcmp(rest, weight) == 0 || strcmp(rest, bias) == 0;
    if (dot != NULL && (strcmp(dot, weight) == 0 || strcmp(dot, bias) == 0))
        memmove(rest, dot, strlen(dot) + 1);
    else if (rest[0] == '.' && dot == NULL && !is_end)
        rest[0] = '\0';
    if (!has_weight && strcmp(rest, weight) == 0)
        rest[0] = '\0';
}

/* "X.modules_to_save.default.weight" is "X.weight". */
static void drop_copy(char *key)
{
    static const char part[] = ".modules_to_save.";
    char *at = strstr(key, part);
    const char *dot = at != NULL ? strchr(at + sizeof part - 1, '.') : NULL;
    if (dot != NULL)
        memmove(at, dot, strlen(dot) + 1);
}

static const char *peft_name(const char *name, lathe_arena *arena)
{
    static const struct {
        const char *name;
        int has_weight;
    } matrices[] = {{".lora_A", 1},
                    {".lora_B", 1},
                    {".lora_embedding_A", 0},
                    {".lora_embedding_B", 0},
                    {".lora_magnitude_vector", 0},
                    {".oft_R", 1}};
    char *key = lathe_arena_printf(arena, PREFIX "%s", name);
    if (key == NULL)
        return NULL;
    drop_part(key, "_orig_mod.");
    drop_part(key, "_fsdp_wrapped_module.");
    drop_part(key, "module.");
    while (strncmp(key + strlen(PREFIX), PREFIX, strlen(PREFIX)) == 0)
        memmove(key, key + strlen(PREFIX), strlen(key + strlen(PREFIX)) + 1);
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        drop_adapter_name(key, matrices[i].name, matrices[i].has_weight);
    drop_copy(key);
    return key;
}

/* ---- the file ---- */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->key, ((const entry *)b)->key);
}

/* Replaces a matrix of fused experts by those of its projections. config: of the adapter; NULL: it
 * has none. */
static lathe_status take_apart(lathe_adapter_tensors *t, const json_t *config, int64_t i)
{
    const lathe_st_tensor *whole = t->list[i].tensor;
    const char *key = t->list[i].key, *projections[2];
    const int stem = (int)(strstr(key, ".experts.") - key);
    const char *matrix = strstr(key, ".lora_");
    int32_t n = 0;
    LATHE_TRY(lathe_fused_lora_projections(config, key, whole, projections, &n));
    for (int32_t k = 0; k < n; k++) {
        entry *e = k == 0 ? &t->list[i] : &t->list[t->n];
        lathe_desc desc;
        float *data;
        LATHE_TRY(lathe_fused_lora_read(config, key, whole, k, n, &desc, &data));
        const char *name =
            lathe_arena_printf(&t->arena, "%.*s.experts.%s%s", stem, key, projections[k], matrix);
        *e = (entry){.tensor = whole,
                     .key = name,
                     .made = {.name = name, .file = whole->file, .data = data, .desc = desc}};
        t->n += k;
        if (name == NULL)
            return LATHE_E_NOMEM;
    }
    return LATHE_OK;
}

static lathe_status take_all_apart(lathe_adapter_tensors *t, const char *dir)
{
    const char *path = lathe_path_join(&t->arena, dir, "adapter_config.json");
    const int64_t n = t->n;
    json_t *config = NULL;
    int64_t i = 0;
    if (path == NULL)
        return LATHE_E_NOMEM;
    while (i < n && !lathe_fused_lora_is(t->list[i].key))
        i++;
    if (i == n)
        return LATHE_OK;
    lathe_status status = lathe_path_exists(path) ? lathe_json_load_file(path, &config) : LATHE_OK;
    for (; i < n && status == LATHE_OK; i++)
        if (lathe_fused_lora_is(t->list[i].key))
            status = take_apart(t, config, i);
    json_decref(config);
    return status;
}

static lathe_status fill(lathe_adapter_tensors *t, const char *dir)
{
    const char *path = lathe_path_join(&t->arena, dir, "adapter_model.safetensors");
    if (path == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_safetensors_open(path, &t->set));
    LATHE_TRY(lathe_expert_tensors_join(&t->set, 1));
    const int64_t n = lathe_safetensors_count(t->set);
    /* a fused matrix becomes two */
    t->list = lathe_arena_alloc(&t->arena, (2 * n + MAX_MADE) * (int64_t)sizeof *t->list);
    if (t->list == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        const lathe_st_tensor *tensor = lathe_safetensors_at(t->set, i);
        t->list[i] = (entry){.tensor = tensor, .key = peft_name(tensor->name, &t->arena)};
        if (t->list[i].key == NULL)
            return LATHE_E_NOMEM;
        t->n++;
    }
    LATHE_TRY(take_all_apart(t, dir));
    qsort(t->list, (size_t)t->n, sizeof *t->list, by_key);
    for (int64_t i = 1; i < t->n; i++)
        if (strcmp(t->list[i - 1].key, t->list[i].key) == 0)
            return lathe_error(LATHE_E_CONFIG,
                               "%s: '%s' and '%s' are one tensor in PEFT's names, so the file has "
                               "several adapters; expected one",
                               t->list[i].tensor->file, t->list[i - 1].tensor->name,
                               t->list[i].tensor->name);
    return LATHE_OK;
}

lathe_status lathe_adapter_tensors_open(const char *dir, lathe_adapter_tensors **out)
{
    lathe_adapter_tensors *t = calloc(1, sizeof *t);
    *out = NULL;
    if (t == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to read the adapter in %s", dir);
    const lathe_status status = fill(t, dir);
    if (status == LATHE_OK)
        *out = t;
    else
        lathe_adapter_tensors_close(t);
    return status;
}

void lathe_adapter_tensors_close(lathe_adapter_tensors *t)
{
    if (t == NULL)
        return;
    for (int64_t i = 0; i < t->n; i++)
        free((void *)(uintptr_t)t->list[i].made.data);
    lathe_safetensors_close(t->set);
    lathe_arena_fini(&t->arena);
    free(t);
}

const char *lathe_adapter_tensors_key(const lathe_adapter_tensors *t, int64_t i)
{
    return i < t->n ? t->list[i].key : NULL;
}

lathe_status lathe_adapter_tensors_add(lathe_adapter_tensors *t, const char *key, const char *file,
                                       const lathe_desc *desc, float *data)
{
    const char *name = lathe_arena_strdup(&t->arena, key);
    if (name == NULL || t->n_made == MAX_MADE) {
        free(data);
        return name == NULL ? LATHE_E_NOMEM
                            : lathe_error(LATHE_E_UNSUPPORTED, "%s: more than %d tensors of rows",
                                          file, MAX_MADE);
    }
    t->list[t->n++] =
        (entry){.key = name, .made = {.name = name, .file = file, .data = data, .desc = *desc}};
    t->n_made++;
    qsort(t->list, (size_t)t->n, sizeof *t->list, by_key);
    return LATHE_OK;
}

/* The list is sorted after each addition, so a made tensor is pointed to where it lies. */
static const lathe_st_tensor *tensor_of(const entry *e)
{
    return e->made.data != NULL ? &e->made : e->tensor;
}

const lathe_st_tensor *lathe_adapter_tensors_take(lathe_adapter_tensors *t, const char *key)
{
    const entry wanted = {.key = key};
    entry *found = bsearch(&wanted, t->list, (size_t)t->n, sizeof *t->list, by_key);
    /* a method without names of PEFT has its own */
    for (int64_t i = 0; found == NULL && i < t->n; i++)
        if (strcmp(tensor_of(&t->list[i])->name, key) == 0)
            found = &t->list[i];
    if (found == NULL)
        return NULL;
    found->taken = 1;
    return tensor_of(found);
}

const lathe_st_tensor *lathe_adapter_tensors_left(const lathe_adapter_tensors *t, int64_t *io_from)
{
    while (*io_from < t->n)
        if (!t->list[(*io_from)++].taken)
            return tensor_of(&t->list[*io_from - 1]);
    return NULL;
}

lathe_status lathe_adapter_tensors_check(const lathe_adapter_tensors *t)
{
    return lathe_safetensors_check(t->set);
}
