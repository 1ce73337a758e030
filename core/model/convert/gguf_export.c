/* Converts a Hugging Face folder to a GGUF file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "files/gguf/gguf_codec.h"
#include "files/gguf/gguf_family.h"
#include "files/gguf/model_files.h"
#include "model/convert/gguf_config_write.h"
#include "model/convert/gguf_convert.h"
#include "model/convert/gguf_tokenizer_write.h"
#include "model/family/decoded_weights.h"
#include "model/family/model_build.h"
#include "model/family/stored_formats.h"
#include "model/family/tower_names.h"
#include "model/family/weights.h"

#define CHUNK (1 << 22) /* elements that are converted at a time */

typedef struct export
{
    const char *folder;
    const lathe_gguf_family *family;
    lathe_model_config config;
    lathe_params params;
    lathe_safetensors *set;
    lathe_quant_source *formats; /* NULL: the folder is not quantized */
    lathe_gguf_writer *w;
    lathe_arena arena;
    lathe_gguf_factors factors[2];
    int32_t n_factors, type;
    const lathe_work_watch *watch;
    int64_t n_done, n_all; /* elements of tensors */
    float *values;         /* [capacity] */
    uint8_t *blocks;       /* [4 * capacity] */
    int64_t capacity;
}
export;

static int64_t file_type(int32_t type)
{
    static const int32_t types[][2] = {
        {LATHE_GGUF_F32, 0},   {LATHE_GGUF_F16, 1},   {LATHE_GGUF_Q4_0, 2}, {LATHE_GGUF_Q8_0, 7},
        {LATHE_GGUF_Q4_K, 15}, {LATHE_GGUF_Q6_K, 18}, {LATHE_GGUF_BF16, 32}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i][0] == type)
            return types[i][1];
    return 0;
}

static const lathe_gguf_type *type_of(const export *e, const char *name, const lathe_desc *desc)
{
    return lathe_gguf_mix(e->type, name, desc->rank, desc->dims[desc->rank - 1], e->config.n_layers,
                          e->config.tied);
}

/* Name in GGUF of a parameter: that of the text model alone, whatever it is wrapped in. */
static lathe_status gguf_name(export *e, const lathe_param *row, const char **out)
{
    char text[LATHE_TENSOR_NAME];
    return lathe_gguf_name(
        e->family, lathe_text_tower_plain(&e->config, row->name, text, (int64_t)sizeof text),
        &e->arena, out);
}

/* Whether GGUF has the tensor as keys: the numbers of xIELU. */
static int is_key(const export *e, const lathe_param *row)
{
    return e->family->uses_xielu && strstr(row->name, ".act_fn.") != NULL;
}

/* The numbers of xIELU, each as a key with one for each layer. */
static lathe_status put_xielu(export *e)
{
    for (int32_t k = 0; e->family->uses_xielu && k < LATHE_GGUF_N_XIELU; k++) {
        int32_t rank;
        char name[96];
        const char *number = lathe_gguf_xielu(k, &rank);
        lathe_buffer list = LATHE_BUFFER_INIT;
        lathe_status status = LATHE_OK;
        for (int32_t i = 0; i < e->config.n_layers && status == LATHE_OK; i++) {
            float value = 0.0f;
            (void)snprintf(name, sizeof name, "model.layers.%d.mlp.act_fn.%s", (int)i, number);
            status = lathe_st_read(lathe_weights_find(e->set, &e->config, name), 0, 1, &value,
                                   LATHE_F32);
            lathe_buffer_append(&list, &value, (int64_t)sizeof value);
        }
        (void)snprintf(name, sizeof name, "xielu.%s", number);
        if (status == LATHE_OK)
            lathe_gguf_put_array(e->w, name, LATHE_GGUF_FLOAT, e->config.n_layers, &list);
        lathe_buffer_fini(&list);
        LATHE_TRY(status);
    }
    return LATHE_OK;
}

/* Declares every tensor, and finds the largest row. */
static lathe_status declare(export *e)
{
    e->capacity = CHUNK;
    for (int32_t i = 0; i < e->n_factors; i++)
        LATHE_TRY(lathe_gguf_writer_add(e->w, e->factors[i].name,
                                        lathe_gguf_type_of(LATHE_GGUF_F32), 0, e->factors[i].n));
    for (int32_t i = 0; i < e->params.n; i++) {
        const lathe_param *row = e->params.rows[i];
        const lathe_desc *desc = &row->desc;
        const char *name;
        if (is_key(e, row))
            continue;
        if (row->transposed)
            return lathe_error(LATHE_E_UNSUPPORTED, "the layout of %s has no form in GGUF",
                               row->name);
        LATHE_TRY(gguf_name(e, row, &name));
        const int64_t last = desc->dims[desc->rank - 1];
        const int of_heads = desc->rank == 1 && row->n_experts > 0; /* a row for each */
        const int64_t rows = desc->rank > 1 ? desc->dims[0] : of_heads ? row->n_experts : 0;
        e->capacity = last > e->capacity ? last : e->capacity;
        e->n_all += lathe_desc_count(desc);
        if (desc->rank > 1 && row->n_experts > 0) {
            LATHE_TRY(lathe_gguf_writer_add_experts(e->w, name, type_of(e, name, desc),
                                                    row->n_experts, rows / row->n_experts, last));
            continue;
        }
        LATHE_TRY(lathe_gguf_writer_add(e->w, name, type_of(e, name, desc), rows,
                                        of_heads ? last / row->n_experts : last));
    }
    return LATHE_OK;
}

static lathe_status put_keys(export *e)
{
    const char *slash = strrchr(e->folder, '/');
    const char *name = slash != NULL && slash[1] != '\0' ? slash + 1 : e->folder;
    lathe_gguf_put_text(e->w, "general.architecture", e->family->arch,
                        (int64_t)strlen(e->family->arch));
    lathe_gguf_put_text(e->w, "general.type", "model", 5);
    lathe_gguf_put_text(e->w, "general.name", name, (int64_t)strlen(name));
    lathe_gguf_put_u32(e->w, "general.file_type", file_type(e->type));
    lathe_gguf_put_u32(e->w, "general.quantization_version", 2);
    LATHE_TRY(lathe_gguf_config_write(e->family, &e->config, e->w));
    LATHE_TRY(put_xielu(e));
    return lathe_gguf_tokenizer_write(e->folder, &e->config, e->w);
}

/* Reads rows [begin, begin + n) as GGUF orders them into e->values. */
static lathe_status read_rows(export *e, const lathe_st_tensor *t, int32_t change, int64_t cols,
                              int64_t begin, int64_t n)
{
    const int moves = change == LATHE_GGUF_ROTATED || change == LATHE_GGUF_BY_HEAD;
    if (!moves)
        LATHE_TRY(lathe_st_read(t, begin * cols, n * cols, e->values, LATHE_F32));
    for (int64_t i = 0; i < n && moves; i++)
        LATHE_TRY(lathe_st_read(t,
                                lathe_gguf_folder_row(change, begin + i, e->config.n_heads,
                                                      e->config.n_kv_heads, e->config.head_dim) *
                                    cols,
                                cols, e->values + i * cols, LATHE_F32));
    for (int64_t i = 0; i < n * cols && change == LATHE_GGUF_PLUS_ONE; i++)
        e->values[i] += 1.0f;
    return LATHE_OK;
}

static lathe_status write_tensor(export *e, const lathe_param *row)
{
    const lathe_st_tensor *t = lathe_weights_find(e->set, &e->config, row->name);
    const int32_t change = lathe_gguf_change(e->family, row->name);
    const char *name;
    LATHE_TRY(gguf_name(e, row, &name));
    const lathe_gguf_type *type = type_of(e, name, &row->desc);
    const int flat = (change == LATHE_GGUF_ROTATED || change == LATHE_GGUF_BY_HEAD) &&
                     row->desc.rank == 1; /* a bias */
    const int64_t cols = flat ? 1 : row->desc.dims[row->desc.rank - 1];
    const int64_t rows = lathe_desc_count(&row->desc) / cols, each = e->capacity / cols;
    for (int64_t at = 0; at < rows; at += each) {
        const int64_t n = rows - at < each ? rows - at : each;
        LATHE_TRY(lathe_work_tell(e->watch, e->n_done, e->n_all));
        LATHE_TRY(read_rows(e, t, change, cols, at, n));
        const lathe_status status = lathe_gguf_encode(type, e->values, n * cols, e->blocks);
        if (status != LATHE_OK)
            return lathe_error_context(status, "%s: tensor %s", t->file, t->name);
        LATHE_TRY(lathe_gguf_writer_write(e->w, e->blocks,
                                          n * cols / type->block * (int64_t)type->bytes));
        e->n_done += n * cols;
    }
    return LATHE_OK;
}

static lathe_status write_tensors(export *e)
{
    e->values = malloc((size_t)e->capacity * sizeof *e->values);
    e->blocks = malloc((size_t)e->capacity * 4);
    if (e->values == NULL || e->blocks == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to convert tensors");
    LATHE_TRY(lathe_gguf_writer_begin(e->w));
    for (int32_t i = 0; i < e->n_factors; i++)
        LATHE_TRY(lathe_gguf_writer_write(e->w, e->factors[i].values, 4 * e->factors[i].n));
    for (int32_t i = 0; i < e->params.n; i++)
        if (!is_key(e, e->params.rows[i]))
            LATHE_TRY(write_tensor(e, e->params.rows[i]));
    LATHE_TRY(lathe_safetensors_check(e->set));
    return lathe_gguf_writer_finish(e->w);
}

/* Replaces the folder's tensors by decoded ones. */
static lathe_status open_decoded(export *e)
{
    lathe_safetensors *decoded = NULL;
    LATHE_TRY(lathe_decoded_weights_open(e->set, &e->config, &e->params, &decoded));
    lathe_safetensors_close(e->set); /* the other one holds it */
    e->set = decoded;
    return LATHE_OK;
}

static lathe_status open_folder(export *e, const lathe_model_source *source)
{
    LATHE_TRY(lathe_model_config_load(source, e->folder, &e->config));
    LATHE_TRY(lathe_model_config_refuse_two_way(&e->config, e->folder, "a GGUF file"));
    e->family = lathe_gguf_family_of_type(e->config.model_type);
    if (e->family == NULL)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: a model of type %s cannot be written as GGUF; Lathe converts %s",
                           e->folder, e->config.model_type, lathe_gguf_families());
    if (e->config.wrapper != NULL)
        lathe_log(LATHE_LOG_WARN,
                  "%s: model_type %s has more towers than the text model, and GGUF gets the text "
                  "model alone, as %s",
                  e->folder, e->config.wrapper->model_type, e->family->arch);
    if (e->config.n_labels > 0)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s: a sequence classifier has no form in GGUF",
                           e->folder);
    LATHE_TRY(lathe_model_params(&e->config, &e->params));
    LATHE_TRY(lathe_model_weights(e->folder, &e->set));
    LATHE_TRY(lathe_stored_formats_take(source->registry, e->folder, &e->config, &e->params,
                                        &e->formats));
    LATHE_TRY(lathe_weights_check(e->set, &e->config, &e->params));
    if (e->formats != NULL)
        LATHE_TRY(open_decoded(e));
    return lathe_gguf_factors_make(e->family, &e->config, &e->arena, e->factors, &e->n_factors);
}

lathe_status lathe_gguf_export(const lathe_model_source *source, const char *folder,
                               const char *path, int32_t type, const lathe_work_watch *watch)
{
    export e = {.folder = folder, .type = type, .watch = watch};
    if (lathe_path_exists(path))
        return lathe_error(LATHE_E_CONFIG, "%s exists; remove it, or choose another name", path);
    lathe_params_init(&e.params, LATHE_F32);
    lathe_status status = open_folder(&e, source);
    if (status == LATHE_OK)
        status = lathe_gguf_writer_create(path, &e.w);
    if (status == LATHE_OK)
        status = put_keys(&e);
    if (status == LATHE_OK)
        status = declare(&e);
    if (status == LATHE_OK)
        status = write_tensors(&e);
    free(e.values);
    free(e.blocks);
    lathe_gguf_writer_destroy(e.w);
    lathe_safetensors_close(e.set);
    lathe_quant_source_destroy(e.formats);
    lathe_params_fini(&e.params);
    lathe_model_config_fini(&e.config);
    lathe_arena_fini(&e.arena);
    return status;
}
