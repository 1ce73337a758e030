/* The training state in files. Doubles travel as the hexadecimal of their bits: exact, infinities too. */
#include "run/train_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json.h"
#include "io/safetensors.h"
#include "io/st_writer.h"

#define STATE_VERSION 1

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void put_part(lathe_buffer *b, const char *kind, const lathe_instance *instance)
{
    if (!instance->component)
        return;
    lathe_buffer_printf(b, "    \"%s\": ", kind);
    lathe_buffer_json_string(b, instance->component->plugin->name);
    lathe_buffer_puts(b, ",\n");
}

static void put_counters(lathe_buffer *b, const lathe_run *run)
{
    const lathe_counters *at = &run->at;
    lathe_buffer_printf(
        b,
        "  \"step\": %lld,\n  \"micro\": %lld,\n  \"tokens\": %lld,\n  \"seed\": \"%" PRIx64
        "\",\n",
        (long long)at->step, (long long)at->micro, (long long)at->tokens, run->set.seed);
    lathe_buffer_printf(b,
                        "  \"cursor\": {\"seed\": %lld, \"epoch\": %lld, \"index\": %lld, "
                        "\"rows_per_epoch\": %lld, \"identity\": %lld},\n",
                        (long long)at->cursor.seed, (long long)at->cursor.epoch,
                        (long long)at->cursor.index, (long long)at->cursor.rows_per_epoch,
                        (long long)at->cursor.identity);
    lathe_buffer_puts(b, "  \"scheduler_state\": [");
    for (int i = 0; i < LATHE_MAX_SCHEDULER_STATE; i++)
        lathe_buffer_printf(b, "%s\"%016" PRIx64 "\"", i ? ", " : "",
                            bits_of(at->scheduler_state[i]));
    lathe_buffer_puts(b, "]\n");
}

static lathe_status write_run_json(const lathe_run *run, const char *path)
{
    lathe_buffer b = LATHE_BUFFER_INIT;
    lathe_buffer_printf(&b,
                        "{\n  \"format\": \"lathe-state\",\n  \"version\": %d,\n  \"parts\": {\n",
                        STATE_VERSION);
    put_part(&b, "optimizer", &run->optimizer);
    put_part(&b, "scheduler", &run->scheduler);
    put_part(&b, "adapter", &run->adapter);
    put_part(&b, "quant", &run->quant);
    put_part(&b, "device", &run->device);
    lathe_buffer_puts(&b, "    \"stage\": ");
    lathe_buffer_json_string(&b, run->stage.component->plugin->name);
    lathe_buffer_puts(&b, "\n  },\n");
    put_counters(&b, run);
    lathe_buffer_puts(&b, "}\n");
    lathe_status status = b.status;
    if (status == LATHE_OK)
        status = lathe_file_write_atomic(path, b.data, b.len);
    lathe_buffer_fini(&b);
    return status;
}

/* Calls visit for every slot of every trainable parameter, in table order. */
typedef lathe_status (*slot_fn)(const lathe_run *run, void *arg, int32_t param, int32_t slot,
                                const char *name);

static lathe_status each_slot(const lathe_run *run, slot_fn visit, void *arg)
{
    char name[512];
    for (int32_t i = 0; i < run->store.n_rows; i++)
        for (int32_t k = 0; k < run->store.rows[i].n_slots; k++) {
            (void)snprintf(name, sizeof name, "%s.%s", run->params.rows[i]->name,
                           run->store.rows[i].slots[k].name);
            LATHE_TRY(visit(run, arg, i, k, name));
        }
    return LATHE_OK;
}

static lathe_status declare_slot(const lathe_run *run, void *arg, int32_t param, int32_t slot,
                                 const char *name)
{
    return lathe_st_writer_add(arg, name, &run->store.rows[param].slots[slot].desc);
}

typedef struct slot_writer {
    lathe_st_writer *w;
    int64_t index;
} slot_writer;

static lathe_status write_slot(const lathe_run *run, void *arg, int32_t param, int32_t slot,
                               const char *name)
{
    slot_writer *s = arg;
    (void)name;
    return lathe_st_writer_write(s->w, s->index++, 0, lathe_store_slot(&run->store, param, slot),
                                 lathe_desc_bytes(&run->store.rows[param].slots[slot].desc));
}

static lathe_status write_slots(const lathe_run *run, const char *dir)
{
    slot_writer s = {NULL, 0};
    LATHE_TRY(lathe_st_writer_create(dir, "optimizer", 0, &s.w));
    lathe_status status = each_slot(run, declare_slot, s.w);
    if (status == LATHE_OK)
        status = lathe_st_writer_begin(s.w);
    if (status == LATHE_OK)
        status = each_slot(run, write_slot, &s);
    if (status == LATHE_OK)
        status = lathe_st_writer_finish(s.w);
    lathe_st_writer_destroy(s.w);
    return status;
}

lathe_status lathe__train_state_write(const lathe_run *run, const char *dir)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *state = lathe_path_join(&arena, dir, "state");
    const char *json = state ? lathe_path_join(&arena, state, "run.json") : NULL;
    lathe_status status = json ? lathe_dir_create(state) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = write_slots(run, state);
    if (status == LATHE_OK)
        status = write_run_json(run, json);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status check_part(const json_t *parts, const char *path, const char *kind,
                               const lathe_instance *instance)
{
    const char *was = json_string_value(json_object_get(parts, kind));
    const char *is = instance->component ? instance->component->plugin->name : NULL;
    if ((was == NULL) == (is == NULL) && (!was || strcmp(was, is) == 0))
        return LATHE_OK;
    return lathe_error(
        LATHE_E_CONFIG,
        "%s was written with %s %s, the run has %s: resume with the same, or start a new "
        "run from its weights with model.path",
        path, kind, was ? was : "none", is ? is : "none");
}

static lathe_status check_slot(const lathe_run *run, void *arg, int32_t param, int32_t slot,
                               const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(arg, name);
    const lathe_desc *want = &run->store.rows[param].slots[slot].desc;
    if (!t)
        return lathe_error(LATHE_E_CORRUPT, "the optimizer state lacks '%s'", name);
    if (t->desc.dtype != want->dtype || lathe_desc_count(&t->desc) != lathe_desc_count(want))
        return lathe_error(LATHE_E_SHAPE, "%s: '%s' has another shape or dtype than the run's",
                           t->file, name);
    return LATHE_OK;
}

static lathe_status read_slot(const lathe_run *run, void *arg, int32_t param, int32_t slot,
                              const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(arg, name);
    memcpy(lathe_store_slot(&run->store, param, slot), t->data, (size_t)lathe_desc_bytes(&t->desc));
    return LATHE_OK;
}

static lathe_status integer(const json_t *object, const char *path, const char *key, int64_t *out)
{
    const json_t *v = json_object_get(object, key);
    if (!json_is_integer(v))
        return lathe_error(LATHE_E_CORRUPT, "%s: '%s' is no integer", path, key);
    *out = (int64_t)json_integer_value(v);
    return LATHE_OK;
}

static lathe_status read_counters(const json_t *root, const char *path, lathe_counters *out)
{
    const json_t *cursor = json_object_get(root, "cursor"),
                 *state = json_object_get(root, "scheduler_state");
    memset(out, 0, sizeof *out);
    LATHE_TRY(integer(root, path, "step", &out->step));
    LATHE_TRY(integer(root, path, "micro", &out->micro));
    LATHE_TRY(integer(root, path, "tokens", &out->tokens));
    LATHE_TRY(integer(cursor, path, "seed", &out->cursor.seed));
    LATHE_TRY(integer(cursor, path, "epoch", &out->cursor.epoch));
    LATHE_TRY(integer(cursor, path, "index", &out->cursor.index));
    LATHE_TRY(integer(cursor, path, "rows_per_epoch", &out->cursor.rows_per_epoch));
    LATHE_TRY(integer(cursor, path, "identity", &out->cursor.identity));
    if (json_array_size(state) != LATHE_MAX_SCHEDULER_STATE)
        return lathe_error(LATHE_E_CORRUPT, "%s: 'scheduler_state' wants %d entries", path,
                           LATHE_MAX_SCHEDULER_STATE);
    for (size_t i = 0; i < LATHE_MAX_SCHEDULER_STATE; i++) {
        const char *text = json_string_value(json_array_get(state, i));
        uint64_t bits;
        if (!text || sscanf(text, "%" SCNx64, &bits) != 1)
            return lathe_error(LATHE_E_CORRUPT, "%s: 'scheduler_state' holds a bad number", path);
        out->scheduler_state[i] = double_of(bits);
    }
    return LATHE_OK;
}

static lathe_status check_json(const lathe_run *run, const json_t *root, const char *path,
                               lathe_counters *out)
{
    int64_t version = 0;
    const json_t *parts = json_object_get(root, "parts");
    LATHE_TRY(integer(root, path, "version", &version));
    if (version != STATE_VERSION)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s is of version %lld, this Lathe reads %d", path,
                           (long long)version, STATE_VERSION);
    LATHE_TRY(check_part(parts, path, "optimizer", &run->optimizer));
    LATHE_TRY(check_part(parts, path, "scheduler", &run->scheduler));
    LATHE_TRY(check_part(parts, path, "adapter", &run->adapter));
    LATHE_TRY(check_part(parts, path, "quant", &run->quant));
    LATHE_TRY(check_part(parts, path, "stage", &run->stage));
    return read_counters(root, path, out);
}

lathe_status lathe__train_state_read(lathe_run *run, const char *dir)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_safetensors *slots = NULL;
    json_t *root = NULL;
    lathe_counters at;
    const char *path = lathe_path_join(&arena, dir, "state/run.json");
    const char *file = lathe_path_join(&arena, dir, "state/optimizer.safetensors");
    lathe_status status = path && file ? lathe_json_load_file(path, &root) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = check_json(run, root, path, &at);
    if (status == LATHE_OK)
        status = lathe_safetensors_open(file, &slots);
    if (status == LATHE_OK)
        status = each_slot(run, check_slot, slots);
    if (status == LATHE_OK && run->loader)
        status = lathe_loader_seek(run->loader, &at.cursor);
    if (status == LATHE_OK)
        status = each_slot(run, read_slot, slots);
    if (status == LATHE_OK)
        run->at = at;
    lathe_safetensors_close(slots);
    json_decref(root);
    lathe_arena_fini(&arena);
    return status;
}
