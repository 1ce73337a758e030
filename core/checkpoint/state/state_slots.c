/* Writes, checks and reads the slots of the optimizer. */
#include "checkpoint/state/state_slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/state/state_rows.h"
#include "exec/store/store_io.h"
#include "files/safetensors/manifest.h"
#include "graph/ir/desc_text.h"

/* Calls visit for every slot of every trainable parameter, in table order. */
typedef lathe_status (*slot_fn)(const lathe_saved_state *saved, void *arg, int32_t param,
                                int32_t slot, const char *name);

static lathe_status each_slot(const lathe_saved_state *saved, slot_fn visit, void *arg)
{
    char name[512];
    for (int32_t i = 0; i < saved->store->n_rows; i++)
        for (int32_t k = 0; k < saved->store->rows[i].n_slots; k++) {
            (void)snprintf(name, sizeof name, "%s.%s", saved->params->rows[i]->name,
                           saved->store->rows[i].slots[k].name);
            LATHE_TRY(visit(saved, arg, i, k, name));
        }
    return LATHE_OK;
}

typedef struct slot_writer {
    lathe_st_writer *w;
    lathe_store_part *parts; /* [n] */
    int64_t n;
} slot_writer;

static lathe_status declare_slot(const lathe_saved_state *saved, void *arg, int32_t param,
                                 int32_t slot, const char *name)
{
    slot_writer *s = arg;
    const lathe_desc *desc = &saved->store->rows[param].slots[slot].desc;
    if (s->parts)
        s->parts[s->n] = (lathe_store_part){.tensor = s->n,
                                            .from = lathe_store_slot(saved->store, param, slot),
                                            .bytes = lathe_desc_bytes(desc),
                                            .family = LATHE_FAMILY_SLOTS,
                                            .param = param,
                                            .slot = slot};
    s->n++;
    return s->parts ? lathe_st_writer_add(s->w, name, desc) : LATHE_OK;
}

lathe_status lathe__state_slots_write(const lathe_saved_state *saved, const char *dir)
{
    slot_writer s = {NULL, NULL, 0};
    LATHE_TRY(each_slot(saved, declare_slot, &s)); /* counts them */
    LATHE_TRY(lathe_st_writer_create(dir, "optimizer", LATHE_STATE_FILE_BYTES, &s.w));
    s.parts = calloc((size_t)s.n + 1, sizeof *s.parts);
    s.n = 0;
    lathe_status status = s.parts ? each_slot(saved, declare_slot, &s)
                                  : lathe_error(LATHE_E_NOMEM, "no memory for optimizer states");
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_st_writer_begin(s.w)) != LATHE_OK)
        goto out;
    if ((status = lathe_store_write_all(saved->store, s.w, s.parts, s.n)) != LATHE_OK)
        goto out;
    status = lathe_st_writer_finish(s.w);
out:
    lathe_st_writer_destroy(s.w);
    free(s.parts);
    return status;
}

/* End of the messages: the files are undamaged, so a state that does not match was written with
 * other settings. */
#define OTHER_SETTINGS                                                                             \
    "optimizer \"%s\" had other settings: resume with the settings of the checkpoint, "            \
    "or start a new run from its weights with model.path"

static lathe_status check_slot(const lathe_saved_state *saved, void *arg, int32_t param,
                               int32_t slot, const char *name)
{
    const lathe_safetensors *set = arg;
    const lathe_st_tensor *t = lathe_safetensors_find(set, name);
    const lathe_desc *want = &saved->store->rows[param].slots[slot].desc;
    const char *optimizer = saved->parts->optimizer.component->plugin->name;
    char was[96], is[96];
    if (t == NULL)
        return lathe_error(
            LATHE_E_CONFIG, "%s has no '%s', which the run needs as %s; " OTHER_SETTINGS,
            lathe_safetensors_path(set), name, lathe_desc_text(want, is, sizeof is), optimizer);
    if (t->desc.dtype != want->dtype || lathe_desc_count(&t->desc) != lathe_desc_count(want))
        return lathe_error(LATHE_E_CONFIG, "%s: '%s' is %s, but the run needs %s; " OTHER_SETTINGS,
                           t->file, name, lathe_desc_text(&t->desc, was, sizeof was),
                           lathe_desc_text(want, is, sizeof is), optimizer);
    return LATHE_OK;
}

lathe_status lathe__state_slots_check(const lathe_saved_state *saved, lathe_safetensors *set)
{
    int64_t n = 0;
    LATHE_TRY(each_slot(saved, check_slot, set));
    for (int32_t i = 0; i < saved->store->n_rows; i++)
        n += saved->store->rows[i].n_slots;
    if (lathe_safetensors_count(set) == n)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s has %lld states, but the run needs %lld; " OTHER_SETTINGS,
                       lathe_safetensors_path(set), (long long)lathe_safetensors_count(set),
                       (long long)n, saved->parts->optimizer.component->plugin->name);
}

static lathe_status read_slot(const lathe_saved_state *saved, void *arg, int32_t param,
                              int32_t slot, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(arg, name);
    return lathe_store_put_held(saved->store, LATHE_FAMILY_SLOTS, param, slot, t->data);
}

lathe_status lathe__state_slots_read(const lathe_saved_state *saved, lathe_safetensors *set)
{
    return each_slot(saved, read_slot, set);
}

/* ---- slots in one pass with the hash of their files ---- */

typedef struct slot_parts {
    const lathe_safetensors *set;
    lathe_manifest_part *list;
    int64_t n;
} slot_parts;

static lathe_status count_slot(const lathe_saved_state *saved, void *arg, int32_t param,
                               int32_t slot, const char *name)
{
    slot_parts *p = arg;
    p->n++;
    return check_slot(saved, (void *)(uintptr_t)p->set, param, slot, name);
}

static lathe_status add_slot(const lathe_saved_state *saved, void *arg, int32_t param, int32_t slot,
                             const char *name)
{
    slot_parts *p = arg;
    const lathe_st_tensor *t = lathe_safetensors_find(p->set, name);
    const int64_t bytes = lathe_store_slot_held(saved->store, param, slot);
    if (bytes > 0)
        p->list[p->n++] =
            (lathe_manifest_part){t->file,
                                  {t->offset + lathe_store_slot_skipped(saved->store, param, slot),
                                   bytes, lathe_store_slot(saved->store, param, slot)}};
    return LATHE_OK;
}

static int by_place(const void *a, const void *b)
{
    const lathe_manifest_part *x = a, *y = b;
    const int order = strcmp(x->path, y->path);
    return order ? order : x->part.offset < y->part.offset ? -1 : x->part.offset > y->part.offset;
}

lathe_status lathe__state_slots_verify(const lathe_saved_state *saved, const char *dir,
                                       int32_t *out_read)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_safetensors *set = NULL;
    slot_parts parts = {.n = 0};
    const char *file = lathe_path_join(&arena, dir, "state/optimizer.safetensors");
    *out_read = 0;
    lathe_status status = file ? lathe_safetensors_open(file, &set) : LATHE_E_NOMEM;
    parts.set = set;
    if (status != LATHE_OK)
        goto damaged;
    if (each_slot(saved, count_slot, &parts) != LATHE_OK)
        goto damaged;
    parts.list = lathe_arena_alloc(&arena, (parts.n + 1) * (int64_t)sizeof *parts.list);
    if (parts.list == NULL)
        goto damaged;
    parts.n = 0;
    (void)each_slot(saved, add_slot, &parts);
    qsort(parts.list, (size_t)parts.n, sizeof *parts.list, by_place);
    status = lathe_manifest_verify_read(dir, parts.list, parts.n);
    *out_read = status == LATHE_OK;
    if (status != LATHE_OK && saved->store->slot_bytes > 0) /* zero, as in a new run */
        memset(saved->store->slots, 0, (size_t)saved->store->slot_bytes);
    goto out;
damaged: /* or of another run: the manifest's error is reported first */
    status = lathe_manifest_verify(dir);
out:
    lathe_safetensors_close(set);
    lathe_arena_fini(&arena);
    return status;
}
