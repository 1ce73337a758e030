/* Writes a LoRA adapter as a GGUF file. */
#include "run/merge/adapter_gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "files/gguf/gguf_codec.h"
#include "files/gguf/gguf_family.h"
#include "files/gguf/gguf_writer.h"
#include "model/family/tower_names.h"
#include "run/merge/merge_linear.h"

typedef struct writer {
    const lathe_merge_part *part;
    const lathe_saved_state *saved;
    const lathe_gguf_family *family;
    lathe_gguf_writer *w;
    const lathe_gguf_type *type;
    lathe_arena arena;
    double alpha;
    const lathe_work_watch *watch;
    int64_t n_done, n_all; /* pairs */
} writer;

static lathe_status refuse(const writer *w, const char *name, const char *why)
{
    return lathe_error(LATHE_E_CONFIG,
                       "%s: '%s' %s, for which a GGUF adapter has no form: merge the adapter, and "
                       "convert the model (lathe merge, lathe convert)",
                       w->part->adapter, name, why);
}

/* Whether the weight has matrices of the adapter. */
static lathe_status has_pair(const writer *w, int32_t index, int *out)
{
    lathe_site_param list[LATHE_MAX_SITE_PARAMS];
    int32_t n = 0;
    const lathe_status status = lathe__site_params(w->saved->store, index, list, &n);
    *out = n > 0;
    lathe__site_params_free(w->saved->store, list, n);
    return status;
}

/* Refuses what a file of pairs cannot hold. */
static lathe_status check(const writer *w)
{
    const lathe_params *params = w->saved->params;
    for (int32_t i = 0; i < params->n; i++) {
        const lathe_param *row = params->rows[i];
        if (i < params->n_model && row->in_adapter)
            return refuse(w, row->name, "is trained whole");
        if (i < params->n_model || row->reference)
            continue;
        if (row->init == LATHE_INIT_TOKEN_ROWS)
            return refuse(w, row->name, "holds rows of tokens");
        if (row->stage_head)
            return refuse(w, row->name, "is a head of the adapter's stage");
        if (row->second != NULL)
            return refuse(w, row->name, "changes the embedding and the head alike");
        if (lathe_params_weight_of(params, row->name) < 0)
            return refuse(w, row->name, "changes the head of a model with one matrix for both");
    }
    return LATHE_OK;
}

/* One tensor of a pair. */
typedef struct side {
    const char *name;
    const float *data;
    int64_t rows, cols;
} side;

static lathe_status sides_of(writer *w, int32_t index, const lathe__lora_pair *p, side out[2])
{
    char text[LATHE_TENSOR_NAME];
    const char *name;
    const lathe_site_param *const of[2] = {&p->list[p->a], &p->list[p->b]};
    const char *plain = lathe_text_tower_plain(w->saved->model, w->saved->params->rows[index]->name,
                                               text, (int64_t)sizeof text);
    LATHE_TRY(lathe_gguf_name(w->family, plain, &w->arena, &name));
    for (int k = 0; k < 2; k++) {
        out[k] = (side){lathe_arena_printf(&w->arena, "%s.lora_%c", name, "ab"[k]), of[k]->data,
                        of[k]->desc.dims[0], of[k]->desc.dims[1]};
        if (out[k].name == NULL)
            return LATHE_E_NOMEM;
    }
    return LATHE_OK;
}

/* The rows of B as GGUF orders those of the weight, times the factor, in the file's type. */
static lathe_status write_side(const writer *w, const side *s, int32_t change, double factor)
{
    const lathe_model_config *m = w->saved->model;
    const int64_t n = s->rows * s->cols;
    float *values = malloc((size_t)n * sizeof *values + 1);
    uint8_t *blocks = malloc((size_t)n * 4 + 1);
    lathe_status status = values != NULL && blocks != NULL
                              ? LATHE_OK
                              : lathe_error(LATHE_E_NOMEM, "no memory to write '%s'", s->name);
    for (int64_t r = 0; r < s->rows && status == LATHE_OK; r++) {
        const int64_t from =
            lathe_gguf_folder_row(change, r, m->n_heads, m->n_kv_heads, m->head_dim);
        for (int64_t c = 0; c < s->cols; c++)
            values[r * s->cols + c] = (float)(factor * (double)s->data[from * s->cols + c]);
    }
    if (status == LATHE_OK)
        status = lathe_gguf_encode(w->type, values, n, blocks);
    if (status == LATHE_OK)
        status =
            lathe_gguf_writer_write(w->w, blocks, n / w->type->block * (int64_t)w->type->bytes);
    free(values);
    free(blocks);
    return status;
}

/* Declares (data 0) or writes (1) the pair of a weight. */
static lathe_status put_pair(writer *w, int32_t index, int32_t data)
{
    const lathe_param *row = w->saved->params->rows[index];
    lathe__lora_pair p;
    side sides[2];
    double scale = 0.0;
    if (row->transposed)
        return refuse(w, row->name, "is [in, out] in the model's file");
    if (row->n_experts > 0)
        return refuse(w, row->name, "has a matrix for each expert");
    lathe_status status = lathe__lora_pair_read(
        w->part, index,
        "a GGUF adapter has only A and B of plain LoRA (merge others, and convert the model)", &p);
    if (status == LATHE_OK)
        status = sides_of(w, index, &p, sides);
    for (int k = 0; k < 2 && status == LATHE_OK && !data; k++)
        status = lathe_gguf_writer_add(w->w, sides[k].name, w->type, sides[k].rows, sides[k].cols);
    if (status == LATHE_OK && data)
        status = lathe__lora_pair_factor(w->part, &p, index, &scale);
    if (status == LATHE_OK && data) {
        const double by = scale * (double)sides[1].cols / w->alpha;
        const int32_t change = lathe_gguf_change(w->family, row->name);
        status = write_side(w, &sides[0], LATHE_GGUF_SAME, 1.0);
        if (status == LATHE_OK)
            status = write_side(w, &sides[1], change, fabs(by - 1.0) < 1e-6 ? 1.0 : by);
    }
    lathe__site_params_free(p.store, p.list, p.n);
    return status;
}

static lathe_status each_pair(writer *w, int32_t data)
{
    int32_t n = 0;
    for (int32_t i = 0; i < w->saved->params->n_model; i++) {
        int has;
        LATHE_TRY(has_pair(w, i, &has));
        if (has && data)
            LATHE_TRY(lathe_work_tell(w->watch, w->n_done++, w->n_all));
        if (has)
            LATHE_TRY(put_pair(w, i, data));
        n += has;
    }
    w->n_all = n;
    return n > 0
               ? LATHE_OK
               : lathe_error(LATHE_E_CONFIG, "%s: the adapter changes no weight", w->part->adapter);
}

static void put_keys(const writer *w)
{
    const char *slash = strrchr(w->part->adapter, '/');
    const char *name = slash != NULL && slash[1] != '\0' ? slash + 1 : w->part->adapter;
    const int32_t type = w->type->type;
    lathe_gguf_put_text(w->w, "general.architecture", w->family->arch,
                        (int64_t)strlen(w->family->arch));
    lathe_gguf_put_text(w->w, "general.type", "adapter", 7);
    lathe_gguf_put_text(w->w, "adapter.type", "lora", 4);
    lathe_gguf_put_text(w->w, "general.name", name, (int64_t)strlen(name));
    lathe_gguf_put_u32(w->w, "general.file_type",
                       type == LATHE_GGUF_F32   ? 0
                       : type == LATHE_GGUF_F16 ? 1
                                                : 32);
    lathe_gguf_put_float(w->w, "adapter.lora.alpha", w->alpha);
    lathe_gguf_put_u32(w->w, "general.quantization_version", 2);
}

static lathe_status begin(writer *w)
{
    const lathe_value *alpha = lathe_config_get(w->saved->config, "adapter", "alpha");
    const char *type = w->saved->model->model_type;
    w->family = lathe_gguf_family_of_type(type);
    w->alpha = alpha != NULL ? alpha->f : 0.0;
    if (w->family == NULL)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: an adapter of a model of type %s cannot be written as GGUF; Lathe "
                           "converts %s",
                           w->part->adapter, type, lathe_gguf_families());
    if (alpha == NULL)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: a GGUF adapter is LoRA, and this one is \"%s\": merge it, and "
                           "convert the model",
                           w->part->adapter, w->saved->parts->adapter.component->plugin->name);
    if (!(w->alpha > 0.0))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: alpha is 0, which llama.cpp takes for a factor of 1",
                           w->part->adapter);
    return check(w);
}

lathe_status lathe__adapter_gguf_write(const lathe_merge_part *part, const char *path, int32_t type,
                                       const lathe_work_watch *watch)
{
    writer w = {
        .part = part, .saved = part->saved, .type = lathe_gguf_type_of(type), .watch = watch};
    if (lathe_path_exists(path))
        return lathe_error(LATHE_E_CONFIG, "%s exists; remove it, or choose another name", path);
    lathe_status status = begin(&w);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_gguf_writer_create(path, &w.w)) != LATHE_OK)
        goto out;
    put_keys(&w);
    status = each_pair(&w, 0);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_gguf_writer_begin(w.w)) != LATHE_OK)
        goto out;
    if ((status = each_pair(&w, 1)) != LATHE_OK)
        goto out;
    status = lathe_gguf_writer_finish(w.w);
out:
    lathe_gguf_writer_destroy(w.w);
    lathe_arena_fini(&w.arena);
    return status;
}
