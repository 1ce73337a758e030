/* Writes and reads the state of islands. */
#include "parallel/islands/island_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/log.h"
#include "checkpoint/state/state_counters.h"
#include "checkpoint/state/state_rows.h"
#include "exec/store/store_io.h"
#include "files/safetensors/st_writer.h"

enum { VERSION = 1, MAX_ISLANDS = 4096, NAME = 600 };

/* Kinds of tensors in the files of islands; the first ones are the families of the outer state. */
enum { SLOTS = LATHE_N_OUTER, AVERAGES, MASTERS };

static const char *const prefixes[] = {"start", "momentum", "error", "slot", "average", "master"};

/* ---- the tensors of a file ---- */

typedef struct tensor {
    int32_t kind, row, slot;
    lathe_desc desc;
    char name[NAME];
} tensor;

/* Called for each tensor. */
typedef lathe_status (*tensor_fn)(void *arg, const tensor *t);

static int has_rows_of(const lathe_outer *f, int32_t kind, int32_t row)
{
    const lathe_param *p = f->saved->params->rows[row];
    return p->trainable && lathe_desc_count(&p->desc) > 0 &&
           (kind != LATHE_OUTER_ERROR || lathe_islands_has_error(f->islands));
}

static lathe_status each_of_kind(const lathe_outer *f, int32_t kind, tensor_fn fn, void *arg)
{
    const lathe_store *store = f->saved->store;
    for (int32_t i = 0; i < store->n_rows; i++) {
        const int32_t n = kind == SLOTS ? store->rows[i].n_slots : has_rows_of(f, kind, i);
        const char *row = f->saved->params->rows[i]->name;
        for (int32_t k = 0; k < n; k++) {
            tensor t = {.kind = kind, .row = i, .slot = kind == SLOTS ? k : 0};
            t.desc = kind == SLOTS ? store->rows[i].slots[k].desc : f->saved->params->rows[i]->desc;
            if (kind != SLOTS)
                t.desc.dtype = LATHE_F32;
            (void)snprintf(t.name, sizeof t.name, "%s.%s%s%s", prefixes[kind], row,
                           kind == SLOTS ? "." : "",
                           kind == SLOTS ? store->rows[i].slots[k].name : "");
            LATHE_TRY(fn(arg, &t));
        }
    }
    return LATHE_OK;
}

/* The tensors of an island's file. That of island 0 has error feedback alone: its state is the
 * run's. */
static lathe_status each_of_island(const lathe_outer *f, int32_t island, int32_t has_masters,
                                   int32_t has_errors, tensor_fn fn, void *arg)
{
    if (has_errors)
        LATHE_TRY(each_of_kind(f, LATHE_OUTER_ERROR, fn, arg));
    if (island == 0)
        return LATHE_OK;
    LATHE_TRY(each_of_kind(f, SLOTS, fn, arg));
    if (lathe_average_is_state(f->saved->store, &f->saved->parts->optimizer))
        LATHE_TRY(each_of_kind(f, AVERAGES, fn, arg));
    return has_masters ? each_of_kind(f, MASTERS, fn, arg) : LATHE_OK;
}

/* ---- writing ---- */

typedef struct writing {
    const lathe_outer *f;
    lathe_st_writer *w;
    int64_t n;
    int32_t island;
} writing;

static lathe_status declare(void *arg, const tensor *t)
{
    writing *x = arg;
    return lathe_st_writer_add(x->w, t->name, &t->desc);
}

/* lathe_piece_fn */
static lathe_status write_piece(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    const writing *x = arg;
    return lathe_st_writer_write(x->w, x->n, offset, data, bytes);
}

static lathe_status write_tensor(void *arg, const tensor *t)
{
    writing *x = arg;
    const int32_t family = t->kind == SLOTS      ? LATHE_FAMILY_SLOTS
                           : t->kind == AVERAGES ? LATHE_FAMILY_AVERAGES
                           : t->kind == MASTERS  ? LATHE_FAMILY_MASTERS
                                                 : LATHE_FAMILY_ISLANDS + t->kind;
    LATHE_TRY(
        lathe_serving_collect(&x->f->serving, x->island, family, t->row, t->slot, write_piece, x));
    x->n++;
    return LATHE_OK;
}

static lathe_status write_file(const lathe_outer *f, const char *state, const char *name,
                               int32_t island, lathe_status (*each)(const writing *x, tensor_fn fn))
{
    writing x = {.f = f, .island = island};
    LATHE_TRY(lathe_st_writer_create(state, name, LATHE_STATE_FILE_BYTES, &x.w));
    lathe_status status = each(&x, declare);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_st_writer_begin(x.w)) != LATHE_OK)
        goto out;
    if ((status = each(&x, write_tensor)) != LATHE_OK)
        goto out;
    status = lathe_st_writer_finish(x.w);
out:
    lathe_st_writer_destroy(x.w);
    return status;
}

static lathe_status outer_tensors(const writing *x, tensor_fn fn)
{
    void *arg = (void *)(uintptr_t)x;
    LATHE_TRY(each_of_kind(x->f, LATHE_OUTER_START, fn, arg));
    return each_of_kind(x->f, LATHE_OUTER_MOMENTUM, fn, arg);
}

static lathe_status island_tensors(const writing *x, tensor_fn fn)
{
    return each_of_island(x->f, x->island, lathe_islands_is_within(x->f->islands), 1, fn,
                          (void *)(uintptr_t)x);
}

static lathe_status write_json(const lathe_outer *f, const char *path)
{
    lathe_buffer b = LATHE_BUFFER_INIT;
    const int32_t n = lathe_islands_count(f->islands);
    const lathe_island_settings *set = lathe_islands_settings(f->islands);
    lathe_buffer_printf(&b,
                        "{\"format\": \"lathe-islands\", \"version\": %d, \"inner_steps\": %lld, "
                        "\"is_within_round\": %s, \"islands\": [\n",
                        VERSION, (long long)set->inner_steps,
                        lathe_islands_is_within(f->islands) ? "true" : "false");
    lathe_status status = b.status;
    for (int32_t i = 0; status == LATHE_OK && i < n; i++) {
        lathe_buffer_puts(&b, i ? ",\n" : "");
        status = lathe_serving_describe(&f->serving, i, &b);
    }
    lathe_buffer_puts(&b, "]}\n");
    if (status == LATHE_OK)
        status = b.status;
    if (status == LATHE_OK)
        status = lathe_file_write_atomic(path, b.data, b.len);
    lathe_buffer_fini(&b);
    return status;
}

/* lathe_extra_state.write */
static lathe_status write_state(void *arg, const char *state)
{
    const lathe_outer *f = arg;
    lathe_arena arena = LATHE_ARENA_INIT;
    char name[32];
    const char *json = lathe_path_join(&arena, state, "outer.json");
    lathe_status status = json ? write_json(f, json) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = write_file(f, state, "outer", 0, outer_tensors);
    for (int32_t i = 0; status == LATHE_OK && i < lathe_islands_count(f->islands); i++) {
        if (i == 0 && !lathe_islands_has_error(f->islands))
            continue;
        (void)snprintf(name, sizeof name, "island-%d", i);
        status = write_file(f, state, name, i, island_tensors);
    }
    lathe_arena_fini(&arena);
    return status;
}

/* lathe_served_islands.describe: this island's counters, as in run.json. */
static lathe_status describe(void *arg, lathe_buffer *out)
{
    const lathe_outer *f = arg;
    lathe_buffer_printf(out, "{\n  \"round_tokens\": %lld,\n",
                        (long long)lathe_islands_tokens(f->islands));
    lathe__state_counters_put(f->saved, out);
    lathe__state_sums_put(f->saved->sum, out);
    lathe_buffer_puts(out, "}");
    return out->status;
}

/* ---- reading ---- */

typedef struct reading {
    const lathe_outer *f;
    const lathe_safetensors *set;
    int32_t only_checks;
} reading;

static int same_shape(const lathe_desc *a, const lathe_desc *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

static lathe_status read_tensor(void *arg, const tensor *t)
{
    const reading *x = arg;
    const lathe_store *store = x->f->saved->store;
    const lathe_st_tensor *found = lathe_safetensors_find(x->set, t->name);
    if (found == NULL)
        return lathe_error(LATHE_E_CORRUPT, "%s lacks '%s'", lathe_safetensors_path(x->set),
                           t->name);
    if (found->desc.dtype != t->desc.dtype || !same_shape(&found->desc, &t->desc))
        return lathe_error(LATHE_E_SHAPE, "%s: '%s' has another shape or dtype than the run's",
                           found->file, t->name);
    if (x->only_checks)
        return LATHE_OK;
    switch (t->kind) {
    case SLOTS:
        return lathe_store_put_held(store, LATHE_FAMILY_SLOTS, t->row, t->slot, found->data);
    case AVERAGES:
        return lathe_store_put_held(store, LATHE_FAMILY_AVERAGES, t->row, 0, found->data);
    case MASTERS:
        return lathe_store_set(store, t->row, found->data);
    default:
        lathe_islands_put(x->f->islands, t->kind, t->row, found->data);
        return LATHE_OK;
    }
}

/* Steps that the saved islands other than island `from` have left out. */
static lathe_status skipped_elsewhere(const json_t *list, int32_t from, const char *path,
                                      int64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t n = 0;
        LATHE_TRY(lathe__state_count(json_array_get(list, i), path, "skipped", INT32_MAX, &n));
        *out += i != (size_t)from ? n : 0;
    }
    return LATHE_OK;
}

/* Reads the counters of the saved island that this one continues. Its sums of a step that was not
 * finished are checked and left: several ranks do not resume within a step (run_ranks.c). */
static lathe_status read_counters(const lathe_outer *f, const json_t *list, int32_t from,
                                  int32_t is_within, const char *path)
{
    const json_t *island = json_array_get(list, (size_t)from);
    const lathe_saved_state *saved = f->saved;
    lathe_counters at = {0};
    lathe_accumulated sum;
    int64_t tokens = 0, skipped = 0;
    memset(&sum, 0, sizeof sum);
    const int64_t averaged = saved->at->averaged; /* all islands average at the same steps */
    LATHE_TRY(lathe__state_count(island, path, "round_tokens", INT64_MAX, &tokens));
    LATHE_TRY(lathe__state_counters_read(island, path, &at));
    LATHE_TRY(lathe__state_sums_read(island, path, &at, &sum));
    LATHE_TRY(skipped_elsewhere(list, from, path, &skipped));
    if (at.step != saved->at->step)
        return lathe_error(LATHE_E_CORRUPT, "%s: an island is at step %lld, and the run at %lld",
                           path, (long long)at.step, (long long)saved->at->step);
    if (saved->compute_dtype != LATHE_F16)
        at.scaler = saved->at->scaler;
    at.averaged = averaged;
    *saved->at = at;
    lathe_islands_resume(f->islands, tokens, skipped, is_within);
    return LATHE_OK;
}

static lathe_status open_set(lathe_arena *arena, const char *dir, const char *name,
                             lathe_safetensors **out)
{
    const char *path = lathe_arena_printf(arena, "%s/state/%s.safetensors", dir, name);
    return path ? lathe_safetensors_open(path, out) : LATHE_E_NOMEM;
}

/* Whether an island's file has error feedback; an island without it starts with zeros. */
static int32_t has_errors(const lathe_outer *f, const lathe_safetensors *set)
{
    char name[NAME];
    for (int32_t i = 0; i < f->saved->store->n_rows; i++)
        if (has_rows_of(f, LATHE_OUTER_ERROR, i)) {
            (void)snprintf(name, sizeof name, "%s.%s", prefixes[LATHE_OUTER_ERROR],
                           f->saved->params->rows[i]->name);
            return lathe_safetensors_find(set, name) != NULL;
        }
    return 0;
}

/* Checks names, shapes and dtypes of all tensors, copies them, and then checks that the file could
 * be read throughout. island -1: the outer state. */
static lathe_status read_set(const lathe_outer *f, const lathe_safetensors *set, int32_t island,
                             int32_t has_masters)
{
    reading x = {f, set, 1};
    const int32_t errors = island >= 0 && has_errors(f, set);
    for (; x.only_checks >= 0; x.only_checks--) {
        if (island < 0) {
            LATHE_TRY(each_of_kind(f, LATHE_OUTER_START, read_tensor, &x));
            LATHE_TRY(each_of_kind(f, LATHE_OUTER_MOMENTUM, read_tensor, &x));
        } else {
            LATHE_TRY(each_of_island(f, island, has_masters, errors, read_tensor, &x));
        }
    }
    return lathe_safetensors_check(set);
}

static lathe_status read_island(const lathe_outer *f, lathe_arena *arena, const char *dir,
                                int32_t island, int32_t has_masters)
{
    char name[32];
    lathe_safetensors *set = NULL;
    (void)snprintf(name, sizeof name, "island-%d", island);
    const char *one = lathe_arena_printf(arena, "%s/state/%s.safetensors", dir, name);
    const char *many = one ? lathe_arena_printf(arena, "%s.index.json", one) : NULL;
    if (many == NULL)
        return LATHE_E_NOMEM;
    if (island == 0 && !lathe_path_exists(one) && !lathe_path_exists(many))
        return LATHE_OK; /* it has a file for its error feedback only */
    lathe_status status = open_set(arena, dir, name, &set);
    if (status == LATHE_OK)
        status = read_set(f, set, island, has_masters);
    lathe_safetensors_close(set);
    return status;
}

static lathe_status read_all(const lathe_outer *f, const char *dir, const char *path,
                             const json_t *root)
{
    const json_t *list = json_object_get(root, "islands");
    const int64_t n = (int64_t)json_array_size(list);
    const int32_t within = json_is_true(json_object_get(root, "is_within_round"));
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_safetensors *outer = NULL;
    int64_t version = 0;
    LATHE_TRY(lathe__state_count(root, path, "version", INT64_MAX, &version));
    if (version < 1 || version > VERSION)
        return lathe_error(
            LATHE_E_UNSUPPORTED,
            "%s has version %lld, and this Lathe reads version %d: use the Lathe that wrote it",
            path, (long long)version, VERSION);
    if (n < 1 || n > MAX_ISLANDS)
        return lathe_error(LATHE_E_CORRUPT, "%s: 'islands' must be a list of 1 to %d entries", path,
                           MAX_ISLANDS);
    const int32_t from = lathe_islands_layout(f->islands)->island_no % (int32_t)n;
    lathe_islands_restart(f->islands);
    lathe_status status = open_set(&arena, dir, "outer", &outer);
    if (status != LATHE_OK)
        goto out;
    if ((status = read_set(f, outer, -1, 0)) != LATHE_OK)
        goto out;
    if ((status = read_island(f, &arena, dir, from, within)) != LATHE_OK)
        goto out;
    if ((status = read_counters(f, list, from, within, path)) != LATHE_OK)
        goto out;
    if (n != lathe_islands_count(f->islands) &&
        lathe_ranks_rank(lathe_islands_layout(f->islands)->all) == 0)
        lathe_log(LATHE_LOG_INFO, "%s was written by %lld island%s; the run continues with %d", dir,
                  (long long)n, n == 1 ? "" : "s", lathe_islands_count(f->islands));
out:
    lathe_safetensors_close(outer);
    lathe_arena_fini(&arena);
    return status;
}

/* lathe_extra_state.read */
static lathe_status read_state(void *arg, const char *dir)
{
    const lathe_outer *f = arg;
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *root = NULL;
    const char *path = lathe_path_join(&arena, dir, "state/outer.json");
    lathe_status status = path ? LATHE_OK : LATHE_E_NOMEM;
    if (status == LATHE_OK && !lathe_path_exists(path))
        lathe_islands_restart(f->islands);
    else if (status == LATHE_OK)
        status = lathe_json_load_file(path, &root);
    if (root)
        status = read_all(f, dir, path, root);
    json_decref(root);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_extent part(const void *arg, int32_t family, int32_t row, int32_t copy, int32_t place)
{
    return lathe_islands_part(((const lathe_outer *)arg)->islands, family, row, copy, place);
}

static const void *own(const void *arg, int32_t family, int32_t row)
{
    lathe_islands *islands = ((const lathe_outer *)arg)->islands;
    lathe_islands_begin(islands); /* saved before the first step */
    return lathe_islands_own(islands, family, row);
}

lathe_status lathe_outer_create(const lathe_rank_layout *layout, lathe_store *store,
                                const lathe_island_settings *settings, const lathe_serving *serving,
                                const lathe_saved_state *saved, lathe_outer **out)
{
    lathe_outer *f = calloc(1, sizeof *f);
    if (f == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for islands");
    f->saved = saved;
    f->extra = (lathe_extra_state){.arg = f, .write = write_state, .read = read_state};
    f->served = (lathe_served_islands){.arg = f, .part = part, .own = own, .describe = describe};
    f->serving = serving ? *serving : (lathe_serving){.layout = layout, .store = store};
    f->serving.islands = &f->served;
    const lathe_status status = lathe_islands_create(layout, store, settings, &f->islands);
    if (status != LATHE_OK) {
        free(f);
        return status;
    }
    *out = f;
    return LATHE_OK;
}

void lathe_outer_close(lathe_outer *f, lathe_machine *m, int32_t is_abandoned)
{
    if (f == NULL || is_abandoned) /* exchanges may be under way in its memory */
        return;
    lathe_islands_unplace(f->islands, m);
    lathe_islands_destroy(f->islands);
    free(f);
}
