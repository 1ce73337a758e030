/* What two checkpoints differ in. */
#include "run/checkpoint_diff.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json.h"
#include "io/convert.h"
#include "io/safetensors.h"
#include "ir/desc_text.h"
#include "run/checkpoint_info.h"

typedef struct difference {
    lathe_buffer *out;
    int64_t n;
} difference;

/* ---- JSON ---- */

static void put_value(lathe_buffer *out, const json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    lathe_buffer_puts(out, text ? text : "(none)");
    free(text);
}

/* Keys of both, dotted. Depth is bounded by the parser. */
static void compare_json(difference *d, const char *what, const char *name, const json_t *a,
                         const json_t *b)
{
    const char *key;
    const json_t *value;
    char path[512];
    if (!json_is_object(a) || !json_is_object(b)) {
        if (json_equal(a, b) || (!a && !b))
            return;
        d->n++;
        lathe_buffer_printf(d->out, "%-8s  %s  ", what, name);
        put_value(d->out, a);
        lathe_buffer_puts(d->out, " -> ");
        put_value(d->out, b);
        lathe_buffer_puts(d->out, "\n");
        return;
    }
    for (int side = 0; side < 2; side++)
        json_object_foreach((json_t *)(uintptr_t)(side ? b : a), key, value)
        {
            if (side && json_object_get(a, key))
                continue; /* seen from the other side */
            (void)snprintf(path, sizeof path, "%s%s%s", name, name[0] ? "." : "", key);
            compare_json(d, what, path, json_object_get(a, key), json_object_get(b, key));
        }
}

/* [{"kind", "name", ...}] as {"kind/name": {...}}. */
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

static lathe_status compare_meta(difference *d, const char *a, const char *b)
{
    json_t *x = NULL, *y = NULL;
    lathe_status status = lathe_checkpoint_meta(a, &x);
    if (status == LATHE_OK)
        status = lathe_checkpoint_meta(b, &y);
    if (status == LATHE_OK) {
        json_t *p = by_name(json_object_get(x, "plugins"));
        json_t *q = by_name(json_object_get(y, "plugins"));
        compare_json(d, "lathe", "version", json_object_get(x, "lathe"),
                     json_object_get(y, "lathe"));
        compare_json(d, "plugin", "", p, q);
        compare_json(d, "config", "", json_object_get(x, "config"), json_object_get(y, "config"));
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
    if (!path)
        return LATHE_E_NOMEM;
    return lathe_path_exists(path) ? lathe_json_load_file(path, out) : LATHE_OK;
}

static lathe_status compare_state(difference *d, const char *a, const char *b, lathe_arena *arena)
{
    json_t *x = NULL, *y = NULL;
    lathe_status status = load_state(a, arena, &x);
    if (status == LATHE_OK)
        status = load_state(b, arena, &y);
    if (status == LATHE_OK)
        compare_json(d, "state", "", x, y);
    json_decref(x);
    json_decref(y);
    return status;
}

/* ---- tensors ---- */

enum { PIECE = 1 << 16 }; /* elements compared at a time */

typedef struct gap {
    int64_t n_differ;
    double most, largest; /* |b - a|, |a| */
    float x[PIECE], y[PIECE];
} gap;

/* Of equal shapes; of different dtypes only those that lathe_convert takes, whose values are compared as f32. */
static lathe_status measure(const lathe_st_tensor *a, const lathe_st_tensor *b, gap *g)
{
    const int64_t n = lathe_desc_count(&a->desc), size = lathe_dtype_bytes(a->desc.dtype);
    const int64_t other = lathe_dtype_bytes(b->desc.dtype);
    const int same = a->desc.dtype == b->desc.dtype;
    g->n_differ = 0;
    g->most = g->largest = 0.0;
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
                                : memcmp(&g->x[i], &g->y[i], sizeof g->x[i]) != 0;
            if (!floats)
                continue;
            const double x = (double)g->x[i], off = fabs((double)g->y[i] - x);
            g->largest = fmax(g->largest, fabs(x));
            g->most = off > g->most || isnan(off) ? off : g->most;
        }
    }
    return LATHE_OK;
}

static void put_tensor(difference *d, const char *what, const lathe_st_tensor *t, const char *text)
{
    d->n++;
    lathe_buffer_printf(d->out, "%-8s  %s  %s\n", what, t->name, text);
}

/* 1: the values can be compared: the same shape, and the same dtype or two that hold weights. */
static int comparable(const lathe_st_tensor *a, const lathe_st_tensor *b)
{
    lathe_desc desc = b->desc;
    const int floats = lathe_convert_takes(a->desc.dtype) && lathe_convert_takes(b->desc.dtype);
    if (floats)
        desc.dtype = a->desc.dtype;
    return memcmp(&a->desc, &desc, sizeof desc) == 0;
}

static lathe_status compare_tensor(difference *d, const char *what, const lathe_st_tensor *a,
                                   const lathe_st_tensor *b, gap *g)
{
    char text[384], change[192] = "", one[80], other[80];
    if (memcmp(&a->desc, &b->desc, sizeof a->desc) != 0)
        (void)snprintf(change, sizeof change, "%s -> %s",
                       lathe_desc_text(&a->desc, one, sizeof one),
                       lathe_desc_text(&b->desc, other, sizeof other));
    if (!comparable(a, b)) {
        put_tensor(d, what, a, change);
        return LATHE_OK;
    }
    LATHE_TRY(measure(a, b, g));
    if (g->n_differ == 0 && !change[0])
        return LATHE_OK;
    if (g->n_differ == 0)
        (void)snprintf(text, sizeof text, "%s, the same values", change);
    else
        (void)snprintf(text, sizeof text,
                       "%s%s%lld of %lld differ, at most by %.3g (%.3g of the largest)", change,
                       change[0] ? ", " : "", (long long)g->n_differ,
                       (long long)lathe_desc_count(&a->desc), g->most,
                       g->largest > 0.0 ? g->most / g->largest : (double)INFINITY);
    put_tensor(d, what, a, text);
    return LATHE_OK;
}

/* Both are sorted by name. */
static lathe_status compare_sets(difference *d, const char *what, const lathe_safetensors *a,
                                 const lathe_safetensors *b, gap *g)
{
    const int64_t n = a ? lathe_safetensors_count(a) : 0, m = b ? lathe_safetensors_count(b) : 0;
    const int64_t before = d->n;
    int64_t n_both = 0;
    for (int64_t i = 0, j = 0; i < n || j < m;) {
        const lathe_st_tensor *x = i < n ? lathe_safetensors_at(a, i) : NULL;
        const lathe_st_tensor *y = j < m ? lathe_safetensors_at(b, j) : NULL;
        const int order = !x ? 1 : !y ? -1 : strcmp(x->name, y->name);
        if (order < 0)
            put_tensor(d, what, x, "only in the first");
        else if (order > 0)
            put_tensor(d, what, y, "only in the second");
        else
            LATHE_TRY(compare_tensor(d, what, x, y, g));
        n_both += order == 0;
        i += order <= 0;
        j += order >= 0;
    }
    if (n + m > 0)
        lathe_buffer_printf(d->out, "%-8s  %lld of %lld tensors differ\n", what,
                            (long long)(d->n - before), (long long)(n + m - n_both));
    return LATHE_OK;
}

/* NULL when there is no such file. */
static lathe_status open_set(const char *dir, const char *name, lathe_arena *arena,
                             lathe_safetensors **out)
{
    *out = NULL;
    const char *path = name[0] ? lathe_path_join(arena, dir, name) : dir;
    if (!path)
        return LATHE_E_NOMEM;
    const char *index = lathe_arena_printf(arena, "%s.index.json", path);
    if (!index)
        return LATHE_E_NOMEM;
    if (name[0] && !lathe_path_exists(path) && !lathe_path_exists(index))
        return LATHE_OK;
    const lathe_status status = lathe_safetensors_open(path, out);
    return status == LATHE_E_NOT_FOUND && !name[0] ? LATHE_OK : status; /* an adapter's folder */
}

static lathe_status compare_file(difference *d, const char *what, const char *name, const char *a,
                                 const char *b, lathe_arena *arena)
{
    lathe_safetensors *x = NULL, *y = NULL;
    gap *g = malloc(sizeof *g);
    lathe_status status =
        g ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory to compare checkpoints");
    if (status == LATHE_OK)
        status = open_set(a, name, arena, &x);
    if (status == LATHE_OK)
        status = open_set(b, name, arena, &y);
    if (status == LATHE_OK)
        status = compare_sets(d, what, x, y, g);
    lathe_safetensors_close(x);
    lathe_safetensors_close(y);
    free(g);
    return status;
}

lathe_status lathe_checkpoint_diff(const char *a, const char *b, lathe_buffer *out, int64_t *out_n)
{
    static const char *const files[][2] = {{"weights", ""},
                                           {"adapter", "adapter_model.safetensors"},
                                           {"masters", "state/masters.safetensors"},
                                           {"optimizer", "state/optimizer.safetensors"},
                                           {"average", "state/average.safetensors"},
                                           {"gradient", "state/gradients.safetensors"}};
    lathe_arena arena = LATHE_ARENA_INIT;
    difference d = {.out = out};
    lathe_status status = compare_meta(&d, a, b);
    if (status == LATHE_OK)
        status = compare_state(&d, a, b, &arena);
    for (size_t k = 0; k < sizeof files / sizeof files[0] && status == LATHE_OK; k++)
        status = compare_file(&d, files[k][0], files[k][1], a, b, &arena);
    lathe_arena_fini(&arena);
    *out_n = d.n;
    return status == LATHE_OK ? out->status : status;
}
