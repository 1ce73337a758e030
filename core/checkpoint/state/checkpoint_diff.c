/* Compares two checkpoints. */
#include "checkpoint/state/checkpoint_diff.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "checkpoint/state/checkpoint_info.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/safetensors.h"
#include "graph/ir/desc_text.h"

/* Appends an empty change for the part; NULL: no memory. */
static lathe_change *add(lathe_checkpoint_changes *d, const char *part, const char *name)
{
    if (d->n == d->capacity) {
        const int64_t capacity = d->capacity ? 2 * d->capacity : 64;
        lathe_change *grown = lathe_arena_alloc(&d->arena, capacity * (int64_t)sizeof *grown);
        if (grown == NULL)
            return NULL;
        if (d->n > 0)
            memcpy(grown, d->list, (size_t)d->n * sizeof *grown);
        d->list = grown;
        d->capacity = capacity;
    }
    lathe_change *c = &d->list[d->n];
    *c = (lathe_change){.part = part, .name = lathe_arena_strdup(&d->arena, name)};
    d->n += c->name != NULL;
    return c->name ? c : NULL;
}

/* ---- JSON ---- */

/* Returns the value as JSON text; NULL: there is none. */
static const char *text_of(lathe_arena *arena, const json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    const char *copy = text ? lathe_arena_strdup(arena, text) : NULL;
    free(text);
    return copy;
}

/* Compares the keys of both objects, with dotted names. The parser limits the depth. */
static lathe_status compare_json(lathe_checkpoint_changes *d, const char *part, const char *name,
                                 const json_t *a, const json_t *b)
{
    const char *key;
    const json_t *value;
    char path[512];
    if (!json_is_object(a) || !json_is_object(b)) {
        if (json_equal(a, b) || (a == NULL && b == NULL))
            return LATHE_OK;
        lathe_change *c = add(d, part, name);
        if (c == NULL)
            return LATHE_E_NOMEM;
        c->from = text_of(&d->arena, a);
        c->to = text_of(&d->arena, b);
        return LATHE_OK;
    }
    for (int side = 0; side < 2; side++)
        json_object_foreach((json_t *)(uintptr_t)(side ? b : a), key, value)
        {
            if (side && json_object_get(a, key))
                continue; /* found when the other side is compared */
            (void)snprintf(path, sizeof path, "%s%s%s", name, name[0] ? "." : "", key);
            LATHE_TRY(
                compare_json(d, part, path, json_object_get(a, key), json_object_get(b, key)));
        }
    return LATHE_OK;
}

/* Turns [{"kind", "name", ...}] into {"kind/name": {...}}. */
static json_t *by_name(const json_t *list)
{
    json_t *out = json_object();
    for (size_t i = 0; i < json_array_size(list); i++) {
        char key[256];
        json_t *entry = json_array_get(list, i);
        const char *kind = json_string_value(json_object_get(entry, "kind"));
        const char *name = json_string_value(json_object_get(entry, "name"));
        (void)snprintf(key, sizeof key, "%s/%s", kind ? kind : "?", name ? name : "?");
        (void)json_object_set(out, key, entry);
    }
    return out;
}

static lathe_status compare_meta(lathe_checkpoint_changes *d, const char *a, const char *b)
{
    json_t *x = NULL, *y = NULL;
    lathe_status status = lathe_checkpoint_meta(a, &x);
    if (status == LATHE_OK)
        status = lathe_checkpoint_meta(b, &y);
    if (status == LATHE_OK) {
        json_t *p = by_name(json_object_get(x, "plugins"));
        json_t *q = by_name(json_object_get(y, "plugins"));
        status = compare_json(d, "lathe", "version", json_object_get(x, "lathe"),
                              json_object_get(y, "lathe"));
        if (status == LATHE_OK)
            status = compare_json(d, "plugins", "", p, q);
        if (status == LATHE_OK)
            status = compare_json(d, "config", "", json_object_get(x, "config"),
                                  json_object_get(y, "config"));
        json_decref(p);
        json_decref(q);
    }
    json_decref(x);
    json_decref(y);
    return status;
}

/* NULL when there is no such file. */
static lathe_status load_state(const char *dir, lathe_arena *arena, json_t **out)
{
    const char *path = lathe_path_join(arena, dir, "state/run.json");
    *out = NULL;
    if (path == NULL)
        return LATHE_E_NOMEM;
    return lathe_path_exists(path) ? lathe_json_load_file(path, out) : LATHE_OK;
}

static lathe_status compare_state(lathe_checkpoint_changes *d, const char *a, const char *b,
                                  lathe_arena *arena)
{
    json_t *x = NULL, *y = NULL;
    lathe_status status = load_state(a, arena, &x);
    if (status == LATHE_OK)
        status = load_state(b, arena, &y);
    if (status == LATHE_OK)
        status = compare_json(d, "state", "", x, y);
    json_decref(x);
    json_decref(y);
    return status;
}

/* ---- tensors ---- */

enum { PIECE = 1 << 16 }; /* elements compared at a time */

typedef struct gap {
    int64_t n_differ;
    double max_change, largest; /* of |b - a|, of |a| */
    float x[PIECE], y[PIECE];
} gap;

/* Compares two tensors of equal shape. Dtypes may differ if lathe_convert supports both; the values
 * are then compared as f32. */
static lathe_status measure(const lathe_st_tensor *a, const lathe_st_tensor *b, gap *g)
{
    const int64_t n = lathe_desc_count(&a->desc), size = lathe_dtype_bytes(a->desc.dtype);
    const int64_t other = lathe_dtype_bytes(b->desc.dtype);
    const int same = a->desc.dtype == b->desc.dtype;
    g->n_differ = 0;
    g->max_change = g->largest = 0.0;
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t m = n - at < PIECE ? n - at : PIECE;
        const char *p = (const char *)a->data + at * size, *q = (const char *)b->data + at * other;
        const int floats = lathe_convert_takes(a->desc.dtype);
        if (floats) {
            LATHE_TRY(lathe_convert(g->x, LATHE_F32, p, a->desc.dtype, m));
            LATHE_TRY(lathe_convert(g->y, LATHE_F32, q, b->desc.dtype, m));
        }
        for (int64_t i = 0; i < m; i++) {
            g->n_differ += same ? memcmp(p + i * size, q + i * size, (size_t)size) != 0
                                : !(g->x[i] == g->y[i] || (isnan(g->x[i]) && isnan(g->y[i])));
            if (!floats)
                continue;
            const double x = (double)g->x[i], off = fabs((double)g->y[i] - x);
            g->largest = fmax(g->largest, fabs(x));
            g->max_change = off > g->max_change || isnan(off) ? off : g->max_change;
        }
    }
    return LATHE_OK;
}

/* 1: the values can be compared: the shapes are equal, and the dtypes are equal or both are dtypes
 * of weights. */
static int comparable(const lathe_st_tensor *a, const lathe_st_tensor *b)
{
    lathe_desc desc = b->desc;
    const int floats = lathe_convert_takes(a->desc.dtype) && lathe_convert_takes(b->desc.dtype);
    if (floats)
        desc.dtype = a->desc.dtype;
    return memcmp(&a->desc, &desc, sizeof desc) == 0;
}

static lathe_status compare_tensor(lathe_checkpoint_changes *d, const char *part,
                                   const lathe_st_tensor *a, const lathe_st_tensor *b, gap *g)
{
    char one[80], other[80];
    const int retyped = memcmp(&a->desc, &b->desc, sizeof a->desc) != 0;
    const int measured = comparable(a, b);
    if (measured)
        LATHE_TRY(measure(a, b, g));
    if (!retyped && g->n_differ == 0)
        return LATHE_OK;
    lathe_change *c = add(d, part, a->name);
    if (c == NULL)
        return LATHE_E_NOMEM;
    c->n_elements = lathe_desc_count(&a->desc);
    if (retyped) {
        c->from = lathe_arena_strdup(&d->arena, lathe_desc_text(&a->desc, one, sizeof one));
        c->to = lathe_arena_strdup(&d->arena, lathe_desc_text(&b->desc, other, sizeof other));
    }
    c->n_differ = measured ? g->n_differ : -1;
    c->max_change = measured ? g->max_change : (double)NAN;
    c->relative = !measured             ? (double)NAN
                  : g->largest > 0.0    ? g->max_change / g->largest
                  : g->max_change > 0.0 ? (double)INFINITY
                                        : g->max_change;
    return LATHE_OK;
}

/* Adds a tensor that only one of the two has. */
static lathe_status one_sided(lathe_checkpoint_changes *d, const char *part,
                              const lathe_st_tensor *t, int is_first)
{
    char text[80];
    lathe_change *c = add(d, part, t->name);
    if (c == NULL)
        return LATHE_E_NOMEM;
    const char *desc = lathe_arena_strdup(&d->arena, lathe_desc_text(&t->desc, text, sizeof text));
    c->n_elements = lathe_desc_count(&t->desc);
    c->n_differ = -1;
    c->max_change = c->relative = (double)NAN;
    c->from = is_first ? desc : NULL;
    c->to = is_first ? NULL : desc;
    return LATHE_OK;
}

/* Compares two sets of tensors; both are sorted by name. */
static lathe_status compare_sets(lathe_checkpoint_changes *d, const char *part,
                                 const lathe_safetensors *a, const lathe_safetensors *b, gap *g)
{
    const int64_t n = a ? lathe_safetensors_count(a) : 0, m = b ? lathe_safetensors_count(b) : 0;
    const int64_t before = d->n;
    int64_t n_both = 0;
    for (int64_t i = 0, j = 0; i < n || j < m;) {
        const lathe_st_tensor *x = i < n ? lathe_safetensors_at(a, i) : NULL;
        const lathe_st_tensor *y = j < m ? lathe_safetensors_at(b, j) : NULL;
        const int order = x == NULL ? 1 : y == NULL ? -1 : strcmp(x->name, y->name);
        LATHE_TRY(order < 0   ? one_sided(d, part, x, 1)
                  : order > 0 ? one_sided(d, part, y, 0)
                              : compare_tensor(d, part, x, y, g));
        n_both += order == 0;
        i += order <= 0;
        j += order >= 0;
    }
    if (n + m > 0)
        d->files[d->n_files++] =
            (lathe_changed_file){.part = part, .n_differ = d->n - before, .n = n + m - n_both};
    return LATHE_OK;
}

/* NULL when there is no such file. */
static lathe_status open_set(const char *dir, const char *name, lathe_arena *arena,
                             lathe_safetensors **out)
{
    *out = NULL;
    const char *path = name[0] ? lathe_path_join(arena, dir, name) : dir;
    if (path == NULL)
        return LATHE_E_NOMEM;
    const char *index = lathe_arena_printf(arena, "%s.index.json", path);
    if (index == NULL)
        return LATHE_E_NOMEM;
    if (name[0] && !lathe_path_exists(path) && !lathe_path_exists(index))
        return LATHE_OK;
    const lathe_status status = lathe_safetensors_open_all(path, out);
    return status == LATHE_E_NOT_FOUND && !name[0] ? LATHE_OK : status; /* an adapter's folder */
}

static lathe_status compare_file(lathe_checkpoint_changes *d, const char *part, const char *name,
                                 const char *a, const char *b, lathe_arena *arena)
{
    lathe_safetensors *x = NULL, *y = NULL;
    gap *g = malloc(sizeof *g);
    lathe_status status =
        g ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory to compare checkpoints");
    if (status != LATHE_OK)
        goto out;
    if ((status = open_set(a, name, arena, &x)) != LATHE_OK)
        goto out;
    if ((status = open_set(b, name, arena, &y)) != LATHE_OK)
        goto out;
    status = compare_sets(d, part, x, y, g);
out:
    lathe_safetensors_close(x);
    lathe_safetensors_close(y);
    free(g);
    return status;
}

lathe_status lathe_checkpoint_diff(const char *a, const char *b, lathe_checkpoint_changes *out)
{
    static const char *const files[LATHE_CHANGED_FILES][2] = {
        {"weights", ""},
        {"adapter", "adapter_model.safetensors"},
        {"masters", "state/masters.safetensors"},
        {"optimizer", "state/optimizer.safetensors"},
        {"average", "state/average.safetensors"},
        {"gradients", "state/gradients.safetensors"}};
    *out = (lathe_checkpoint_changes){.arena = LATHE_ARENA_INIT};
    lathe_status status = compare_meta(out, a, b);
    if (status == LATHE_OK)
        status = compare_state(out, a, b, &out->arena);
    for (int k = 0; k < LATHE_CHANGED_FILES && status == LATHE_OK; k++)
        status = compare_file(out, files[k][0], files[k][1], a, b, &out->arena);
    return status;
}

void lathe_checkpoint_changes_fini(lathe_checkpoint_changes *changes)
{
    lathe_arena_fini(&changes->arena);
    *changes = (lathe_checkpoint_changes){.arena = LATHE_ARENA_INIT};
}
