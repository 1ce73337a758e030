/* Writes, reads and compares the files of an adapter. */
#include "checkpoint/state/adapter_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "checkpoint/state/adapter_config.h"
#include "checkpoint/state/adapter_tensors.h"
#include "exec/store/store_io.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/expert_tensors.h"
#include "files/safetensors/safetensors.h"
#include "files/safetensors/st_writer.h"
#include "graph/ir/desc_text.h"
#include "model/family/base_tensor.h"
#include "model/family/tower_names.h"

/* A tensor of the file. */
typedef struct entry {
    int32_t row;
    const char *name;   /* that of the row, or of its second tensor: the head's if they are tied */
    int32_t transposed; /* the file has the row's matrix transposed */
    lathe_desc desc;    /* in the file */
    char key[512];
} entry;

/* Whether the name is that of a frozen row of the adapter. */
static int has_prefix(const lathe_saved_state *saved, const char *name)
{
    return saved->frozen_prefix &&
           strncmp(name, saved->frozen_prefix, strlen(saved->frozen_prefix)) == 0;
}

/* The name of a row without the prefix of frozen ones. */
static const char *plain_name(const lathe_saved_state *saved, const char *name)
{
    return has_prefix(saved, name) ? name + strlen(saved->frozen_prefix) : name;
}

/* Whether a frozen row is one that the adapter declares, or one of the model that the adapter
 * replaces. The other frozen copies are the reference model's own. */
static int32_t is_of_frozen_adapter(const lathe_saved_state *saved, const lathe_param *row)
{
    const int32_t copied = lathe_params_find(saved->params, plain_name(saved, row->name));
    return row->reference && !row->other && !row->is_derived && has_prefix(saved, row->name) &&
           (row->in_adapter || copied < 0 || copied >= saved->params->n_model);
}

int32_t lathe__adapter_file_has(const lathe_saved_state *saved, int32_t i)
{
    const lathe_param *row = saved->params->rows[i];
    if (saved->frozen_prefix)
        return is_of_frozen_adapter(saved, row);
    return i < saved->params->n_model ? row->in_adapter : !row->reference && !row->is_derived;
}

int32_t lathe__adapter_file_is_needed(const lathe_saved_state *saved)
{
    for (int32_t i = 0; i < saved->params->n; i++)
        if (lathe__adapter_file_has(saved, i))
            return 1;
    return 0;
}

lathe_status lathe__adapter_file_key(const lathe_saved_state *saved, const char *name, char *out,
                                     int64_t capacity)
{
    const lathe_adapter_v1 *table = saved->parts->adapter.table;
    int64_t bytes = 0;
    name = plain_name(saved, name);
    if (LATHE_HAS(table, file_key))
        bytes = table->file_key(saved->parts->adapter.self, name, out, capacity);
    else
        bytes = snprintf(out, (size_t)capacity, "%s", name);
    if (bytes <= 0 || bytes >= capacity)
        return lathe_error(LATHE_E_PLUGIN, "adapter %s has no usable file key for '%s'",
                           saved->parts->adapter.component->plugin->name, name);
    out[bytes] = '\0';
    return LATHE_OK;
}

/* The name of a row's second tensor; NULL: it has none. PEFT keeps what the embedding and the head
 * of a tied model share under both names. */
static const char *second_name(const lathe_saved_state *saved, const lathe_param *row)
{
    return row->second ? row->second : row->in_adapter && row->is_tied ? saved->model->head : NULL;
}

/* The next tensor of the file after *e; sets *out_more to 0 after the last. Begin with row -1. */
static lathe_status next_entry(const lathe_saved_state *saved, entry *e, int *out_more)
{
    const lathe_params *params = saved->params;
    const lathe_param *row = e->row >= 0 ? params->rows[e->row] : NULL;
    *out_more = 1;
    if (row && e->name == row->name && second_name(saved, row)) {
        e->name = second_name(saved, row);
        e->transposed = row->second ? !row->transposed : row->transposed;
    } else {
        do
            e->row++;
        while (e->row < params->n && !lathe__adapter_file_has(saved, e->row));
        *out_more = e->row < params->n;
        if (!*out_more)
            return LATHE_OK;
        row = params->rows[e->row];
        e->name = row->name;
        e->transposed = row->transposed;
    }
    e->desc =
        e->transposed ? lathe_desc_2d(LATHE_F32, row->desc.dims[1], row->desc.dims[0]) : row->desc;
    return lathe__adapter_file_key(saved, e->name, e->key, (int64_t)sizeof e->key);
}

/* ---- writing ---- */

/* lathe_piece_fn: copies a piece to its place. */
static lathe_status copy_piece(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    memcpy((char *)arg + offset, data, (size_t)bytes);
    return LATHE_OK;
}

/* Gives the values of a row as the file has them, if they are not so in memory. */
static lathe_status transposed_values(const lathe_saved_state *saved, const entry *e, float **out)
{
    const lathe_param *row = saved->params->rows[e->row];
    const int64_t n = lathe_desc_count(&row->desc);
    float *values = e->transposed ? malloc((size_t)n * sizeof *values + 1) : NULL;
    float *turned = e->transposed ? malloc((size_t)n * sizeof *turned + 1) : NULL;
    lathe_status status = LATHE_OK;
    *out = NULL;
    if (e->transposed && (values == NULL || turned == NULL))
        status = lathe_error(LATHE_E_NOMEM, "no memory to write '%s'", row->name);
    else if (e->transposed)
        status =
            lathe_store_stream(saved->store, LATHE_FAMILY_MASTERS, e->row, 0, copy_piece, values);
    if (status == LATHE_OK && e->transposed)
        status = lathe_convert_transposed(turned, LATHE_F32, values, LATHE_F32, row->desc.dims[0],
                                          row->desc.dims[1]);
    free(values);
    if (status == LATHE_OK)
        *out = turned;
    else
        free(turned);
    return status;
}

static lathe_status write_entry(const lathe_saved_state *saved, lathe_st_writer *w, int64_t index,
                                const entry *e)
{
    const int64_t bytes = lathe_desc_bytes(&e->desc);
    float *turned;
    LATHE_TRY(transposed_values(saved, e, &turned));
    const lathe_status status = turned ? lathe_st_writer_write(w, index, 0, turned, bytes)
                                       : lathe_store_write_master(saved->store, w, index, e->row);
    free(turned);
    return status;
}

/* Number of tensors of an entry: the file has a matrix for each expert. */
static int64_t n_tensors(const lathe_saved_state *saved, const entry *e)
{
    const int32_t experts = saved->params->rows[e->row]->n_experts;
    return experts > 0 ? experts : 1;
}

static lathe_status add_entry(const lathe_saved_state *saved, lathe_st_writer *w, const entry *e)
{
    const int64_t n = n_tensors(saved, e);
    lathe_desc desc = e->desc;
    char key[512];
    if (saved->params->rows[e->row]->n_experts == 0)
        return lathe_st_writer_add(w, e->key, &desc);
    desc.dims[0] /= n;
    for (int64_t i = 0; i < n; i++) {
        const int32_t bytes = lathe_expert_tensor_name(e->key, i, key, sizeof key);
        if (bytes < 0 || bytes >= (int32_t)sizeof key)
            return lathe_error(LATHE_E_PLUGIN, "the key '%s' has no place for an expert's number",
                               e->key);
        LATHE_TRY(lathe_st_writer_add(w, key, &desc));
    }
    return LATHE_OK;
}

/* The tensors of one row of experts, from `index` on, of `each` bytes. */
typedef struct expert_pieces {
    lathe_st_writer *w;
    int64_t index, each;
} expert_pieces;

/* lathe_piece_fn: cuts a piece where a tensor ends. */
static lathe_status write_expert_piece(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    const expert_pieces *p = arg;
    const char *from = data;
    while (bytes > 0) {
        const int64_t at = offset % p->each;
        const int64_t n = p->each - at < bytes ? p->each - at : bytes;
        LATHE_TRY(lathe_st_writer_write_piece(p->w, p->index + offset / p->each, at, from, n));
        offset += n;
        from += n;
        bytes -= n;
    }
    return LATHE_OK;
}

static lathe_status write_experts(const lathe_saved_state *saved, lathe_st_writer *w, int64_t index,
                                  const entry *e)
{
    expert_pieces p = {w, index, lathe_desc_bytes(&e->desc) / n_tensors(saved, e)};
    return lathe_store_stream(saved->store, LATHE_FAMILY_MASTERS, e->row, 0, write_expert_piece,
                              &p);
}

static lathe_status write_tensors(const lathe_saved_state *saved, lathe_st_writer *w)
{
    int64_t index = 0;
    int more;
    entry e = {.row = -1};
    LATHE_TRY(next_entry(saved, &e, &more));
    while (more) {
        LATHE_TRY(add_entry(saved, w, &e));
        LATHE_TRY(next_entry(saved, &e, &more));
    }
    LATHE_TRY(lathe_st_writer_begin(w));
    e.row = -1;
    LATHE_TRY(next_entry(saved, &e, &more));
    while (more) {
        LATHE_TRY(saved->params->rows[e.row]->n_experts > 0 ? write_experts(saved, w, index, &e)
                                                            : write_entry(saved, w, index, &e));
        index += n_tensors(saved, &e);
        LATHE_TRY(next_entry(saved, &e, &more));
    }
    return lathe_st_writer_finish(w);
}

lathe_status lathe__adapter_file_write(const lathe_saved_state *saved, const char *dir,
                                       const char *place)
{
    lathe_st_writer *w = NULL;
    if (!lathe__adapter_file_is_needed(saved))
        return LATHE_OK;
    LATHE_TRY(lathe_st_writer_create(dir, "adapter_model", 0, &w));
    const lathe_status status = write_tensors(saved, w);
    lathe_st_writer_destroy(w);
    LATHE_TRY(status);
    return lathe__adapter_config_write(saved, dir, place);
}

/* ---- reading and comparing ---- */

typedef struct comparison {
    const void *want;
    int differs;
} comparison;

/* lathe_piece_fn */
static lathe_status compare(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    comparison *c = arg;
    c->differs |= memcmp((const char *)c->want + offset, data, (size_t)bytes) != 0;
    return LATHE_OK;
}

/* Purposes of use_tensor. It checks the shape of a tensor of the file for all of them; the purpose
 * decides what it does with the values then. */
enum { CHECK, FILL, FILL_ALL, COMPARE, CHECK_BEGIN, BEGIN };

/* Converts a tensor of the file to f32 in the layout of its row. */
static lathe_status to_row(const lathe_param *row, int32_t transposed, const lathe_st_tensor *t,
                           float *out)
{
    return transposed ? lathe_convert_transposed(out, LATHE_F32, t->data, t->desc.dtype,
                                                 row->desc.dims[1], row->desc.dims[0])
                      : lathe_convert(out, LATHE_F32, t->data, t->desc.dtype,
                                      lathe_desc_count(&row->desc));
}

/* Sets a row from a tensor: other programs also write bf16 or fp16. */
static lathe_status fill_tensor(const lathe_saved_state *saved, int32_t i, const lathe_st_tensor *t)
{
    const int64_t n = lathe_desc_count(&t->desc);
    const lathe_param *row = saved->params->rows[i];
    if (t->desc.dtype == LATHE_F32 && !row->transposed)
        return lathe_store_set(saved->store, i, t->data);
    float *wide = malloc((size_t)n * sizeof *wide + 1);
    lathe_status status =
        wide ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory to read '%s'", t->name);
    if (status == LATHE_OK)
        status = to_row(row, row->transposed, t, wide);
    if (status == LATHE_OK)
        status = lathe_store_set(saved->store, i, wide);
    free(wide);
    return status;
}

/* Whether the values are the first ones of a run, and not those of a run that goes on. */
static int is_beginning(int32_t what)
{
    return what == CHECK_BEGIN || what == BEGIN;
}

/* Whether the dtype is allowed: a resumed training run needs the f32 values that Lathe wrote. */
static int takes(const lathe_saved_state *saved, int32_t dtype, int32_t what)
{
    return dtype == LATHE_F32 ||
           ((!saved->trains || is_beginning(what)) && lathe_convert_takes(dtype));
}

/* Compares a tensor of the file with the run's memory. */
static lathe_status compare_tensor(const lathe_saved_state *saved, const entry *e,
                                   const lathe_st_tensor *t)
{
    comparison c = {t->data, 0};
    float *turned;
    LATHE_TRY(transposed_values(saved, e, &turned));
    const lathe_status status =
        turned ? compare(&c, 0, turned, lathe_desc_bytes(&e->desc))
               : lathe_store_stream(saved->store, LATHE_FAMILY_MASTERS, e->row, 0, compare, &c);
    free(turned);
    LATHE_TRY(status);
    if (c.differs)
        return lathe_error(
            LATHE_E_CORRUPT,
            "%s: '%s', read back, differs from what was written: the disk or the memory is faulty",
            t->file, t->name);
    return LATHE_OK;
}

/* Whether two tensors of the file are the same matrix of a row. */
static lathe_status is_same(const lathe_param *row, const lathe_st_tensor *first,
                            const lathe_st_tensor *second, int32_t second_transposed, int *out)
{
    const int64_t n = lathe_desc_count(&row->desc);
    float *a = malloc((size_t)n * sizeof *a + 1), *b = malloc((size_t)n * sizeof *b + 1);
    lathe_status status =
        a && b ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory to read '%s'", first->name);
    if (status == LATHE_OK)
        status = to_row(row, row->transposed, first, a);
    if (status == LATHE_OK)
        status = to_row(row, second_transposed, second, b);
    *out = status == LATHE_OK && memcmp(a, b, (size_t)n * sizeof *a) == 0;
    free(a);
    free(b);
    return status;
}

/* The tensor of an entry. Over a model of several towers, older programs named the modules of the
 * text model as older files do. */
static const lathe_st_tensor *take(const lathe_saved_state *saved, lathe_adapter_tensors *set,
                                   const char *key)
{
    static const char start[] = "base_model.model.";
    const lathe_model_wrapper *wrapper = saved->model->wrapper;
    const size_t n = sizeof start - 1;
    const lathe_st_tensor *t = lathe_adapter_tensors_take(set, key);
    char text[512], other[512 + sizeof start];
    if (wrapper == NULL || strncmp(key, start, n) != 0)
        return t;
    for (int32_t k = 1; k < wrapper->n_names && t == NULL; k++) {
        (void)snprintf(other, sizeof other, "%s%s", start,
                       lathe_text_tower_file(saved->model, key + n, k, text, (int64_t)sizeof text));
        t = lathe_adapter_tensors_take(set, other);
    }
    return t;
}

/* The second tensor of what embedding and head share must be the first. */
static lathe_status check_tied(lathe_adapter_tensors *set, const lathe_saved_state *saved,
                               const entry *e, const lathe_st_tensor *t)
{
    char key[512];
    const lathe_param *row = saved->params->rows[e->row];
    int same = 0;
    LATHE_TRY(lathe__adapter_file_key(saved, row->name, key, (int64_t)sizeof key));
    const lathe_st_tensor *first = take(saved, set, key);
    if (first && first->desc.dtype == t->desc.dtype &&
        lathe_desc_bytes(&first->desc) == lathe_desc_bytes(&t->desc))
        LATHE_TRY(is_same(row, first, t, e->transposed, &same));
    if (same)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s: '%s' differs from '%s', but the model ties its head to its embedding: "
                       "such an adapter belongs to a model without tie_word_embeddings",
                       t->file, t->name, key);
}

static lathe_status use_tensor(const lathe_saved_state *saved, lathe_adapter_tensors *set,
                               const entry *e, const lathe_st_tensor *t, int32_t what)
{
    if (e->name != saved->params->rows[e->row]->name)
        return check_tied(set, saved, e, t);
    if (what == FILL || what == FILL_ALL || what == BEGIN)
        return fill_tensor(saved, e->row, t);
    return what == COMPARE ? compare_tensor(saved, e, t) : LATHE_OK;
}

/* The dims must agree. A vector may have further dims of 1, with which some versions of PEFT save
 * DoRA's magnitudes. */
static int has_shape(const lathe_saved_state *saved, const entry *e, const lathe_desc *seen)
{
    const lathe_param *row = saved->params->rows[e->row];
    int same = lathe_desc_count(seen) == lathe_desc_count(&e->desc);
    if (e->row >= saved->params->n_model && !row->transposed && row->second == NULL &&
        (seen->rank < 2 || e->desc.rank < 2))
        return same;
    same &= seen->rank == e->desc.rank;
    for (int32_t k = 0; same && k < seen->rank; k++)
        same = seen->dims[k] == e->desc.dims[k];
    return same;
}

/* Whether the tensor has rows of a head that is a matrix of its own. */
static int is_head_of_rows(const lathe_saved_state *saved, const entry *e)
{
    const lathe_param *row = saved->params->rows[e->row];
    return row->init == LATHE_INIT_TOKEN_ROWS &&
           strcmp(saved->params->rows[row->init_from]->name, saved->model->embedding) != 0;
}

static lathe_status read_entry(const lathe_saved_state *saved, lathe_adapter_tensors *set,
                               const entry *e, int32_t what)
{
    char seen[96], expected[96];
    const lathe_st_tensor *t = take(saved, set, e->key);
    if (t == NULL && saved->params->rows[e->row]->stage_head && is_beginning(what))
        return LATHE_OK; /* begins with random values */
    if (t == NULL && is_head_of_rows(saved, e))
        return LATHE_OK; /* PEFT trained the embedding's rows alone: the head's are the model's */
    if (t == NULL && e->name != saved->params->rows[e->row]->name)
        return LATHE_OK; /* the row's first tensor has the same values */
    if (t == NULL)
        return lathe_error(LATHE_E_NOT_FOUND, "the adapter's file lacks '%s'", e->key);
    if (!takes(saved, t->desc.dtype, what) || !has_shape(saved, e, &t->desc))
        return lathe_error(LATHE_E_SHAPE, "%s: '%s' is %s, expected %s", t->file, e->key,
                           lathe_desc_text(&t->desc, seen, sizeof seen),
                           lathe_desc_text(&e->desc, expected, sizeof expected));
    return use_tensor(saved, set, e, t, what);
}

static lathe_status read_tensors(const lathe_saved_state *saved, lathe_adapter_tensors *set,
                                 int32_t what)
{
    int more;
    entry e = {.row = -1};
    LATHE_TRY(next_entry(saved, &e, &more));
    while (more) {
        LATHE_TRY(read_entry(saved, set, &e, what));
        LATHE_TRY(next_entry(saved, &e, &more));
    }
    return LATHE_OK;
}

/* Checks the tensors that no parameter took. The base's own embedding or head, which PEFT saves
 * beside an adapter of these, must be that of the model. `all` 1: another tensor is refused, since
 * the adapter would compute something else without it. */
static lathe_status check_left(const lathe_saved_state *saved, const lathe_adapter_tensors *set,
                               int32_t all)
{
    int64_t from = 0;
    for (const lathe_st_tensor *t; (t = lathe_adapter_tensors_left(set, &from)) != NULL;) {
        int is_base;
        LATHE_TRY(
            lathe_base_tensor_check(saved->model, saved->params, saved->model_path, t, &is_base));
        if (all && !is_base)
            return lathe_error(LATHE_E_CONFIG,
                               "%s: '%s' belongs to no parameter of adapter \"%s\" with its "
                               "settings",
                               t->file, t->name, saved->parts->adapter.component->plugin->name);
    }
    return LATHE_OK;
}

static lathe_status use_file(const lathe_saved_state *saved, const char *dir, int32_t what)
{
    lathe_adapter_tensors *set = NULL;
    const int32_t any = lathe__adapter_file_is_needed(saved);
    if (!any && (is_beginning(what) || what == FILL_ALL))
        return lathe_error(
            LATHE_E_CONFIG, "%s holds an adapter, but adapter \"%s\" has no parameters of its own",
            dir,
            saved->parts->adapter.component ? saved->parts->adapter.component->plugin->name
                                            : "none");
    if (!any)
        return LATHE_OK;
    lathe_status status = lathe_adapter_tensors_open(dir, &set);
    if (status != LATHE_OK)
        goto out;
    if ((status = read_tensors(saved, set, is_beginning(what) ? CHECK_BEGIN : CHECK)) != LATHE_OK)
        goto out;
    if (what != COMPARE)
        status = check_left(saved, set, what != CHECK && what != FILL);
    if (status != LATHE_OK)
        goto out;
    if ((status = read_tensors(saved, set, what)) != LATHE_OK)
        goto out;
    status = lathe_adapter_tensors_check(set);
out:
    lathe_adapter_tensors_close(set);
    return status;
}

lathe_status lathe__adapter_file_list(const lathe_saved_state *saved, lathe_buffer *out)
{
    int more = 0;
    char shape[96];
    entry e = {.row = -1};
    if (!lathe__adapter_file_is_needed(saved))
        return LATHE_OK;
    LATHE_TRY(next_entry(saved, &e, &more));
    while (more) {
        const lathe_param *row = saved->params->rows[e.row];
        const int is_again = row->second && e.name != row->name;
        if (!row->stage_head && !is_again)
            lathe_buffer_printf(out, "%s %s\n", e.key,
                                lathe_desc_text(&e.desc, shape, sizeof shape));
        LATHE_TRY(next_entry(saved, &e, &more));
    }
    return out->status;
}

lathe_status lathe__adapter_file_check(const lathe_saved_state *saved, const char *dir)
{
    return use_file(saved, dir, CHECK);
}

/* A tensor that is missing or has another shape: the folder is not of this model. */
static lathe_status as_misfit(const char *dir, lathe_status status)
{
    return status == LATHE_E_NOT_FOUND || status == LATHE_E_SHAPE
               ? lathe_error_context(LATHE_E_CONFIG, "the adapter in %s does not fit", dir)
               : status;
}

static lathe_status fill(const lathe_saved_state *saved, const char *dir, int32_t what)
{
    const lathe_status status = use_file(saved, dir, what);
    LATHE_TRY(what == FILL_ALL ? as_misfit(dir, status) : status);
    saved->checkpoints->adapter_dir = lathe_arena_strdup(saved->arena, dir);
    return saved->checkpoints->adapter_dir ? LATHE_OK : LATHE_E_NOMEM;
}

lathe_status lathe__adapter_file_read(const lathe_saved_state *saved, const char *dir)
{
    return fill(saved, dir, FILL);
}

lathe_status lathe__adapter_file_take(const lathe_saved_state *saved, const char *dir)
{
    return fill(saved, dir, FILL_ALL);
}

lathe_status lathe__adapter_file_values(const lathe_saved_state *saved, int32_t param, float *out)
{
    const char *dir = saved->checkpoints->adapter_dir;
    const lathe_param *row = saved->params->rows[param];
    lathe_adapter_tensors *set = NULL;
    char key[512];
    if (dir == NULL)
        return lathe_error(LATHE_E_STATE, "no adapter was read, so '%s' has no values", row->name);
    LATHE_TRY(lathe__adapter_file_key(saved, row->name, key, (int64_t)sizeof key));
    LATHE_TRY(lathe_adapter_tensors_open(dir, &set));
    const lathe_st_tensor *t = take(saved, set, key);
    const lathe_status status =
        t ? to_row(row, row->transposed, t, out)
          : lathe_error(LATHE_E_NOT_FOUND, "the adapter's file lacks '%s'", key);
    lathe_adapter_tensors_close(set);
    return status;
}

lathe_status lathe__adapter_file_compare(const lathe_saved_state *saved, const char *dir)
{
    return use_file(saved, dir, COMPARE);
}

lathe_status lathe__adapter_file_frozen(const lathe_saved_state *saved,
                                        const lathe_instance *adapter, const char *prefix,
                                        const char *dir, int32_t fill)
{
    lathe_components parts = *saved->parts;
    lathe_saved_state frozen = *saved;
    parts.adapter = *adapter;
    frozen.parts = &parts;
    frozen.frozen_prefix = prefix;
    return lathe__adapter_file_begin(&frozen, dir, fill);
}

lathe_status lathe__adapter_file_begin(const lathe_saved_state *saved, const char *dir,
                                       int32_t fill)
{
    return as_misfit(dir, use_file(saved, dir, fill ? BEGIN : CHECK_BEGIN));
}
