/* Quantizes a folder, one weight at a time. */
#include "run/calibrate/quantized_model.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/model_path.h"
#include "base/new_folder.h"
#include "checkpoint/state/folder_tokenizer.h"
#include "checkpoint/state/made_folder.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/st_writer.h"
#include "model/family/quant_source.h"
#include "model/family/stored_formats.h"
#include "model/family/tower_names.h"
#include "model/family/weight_planes.h"
#include "model/family/weights.h"
#include "run/calibrate/calibration_pass.h"
#include "run/calibrate/input_scales.h"
#include "run/calibrate/scaled_weights.h"
#include "tokenizer/json/tokenizer_file.h"

typedef struct quantizer {
    lathe_run *run;
    const lathe_calibration_data *data; /* NULL: the format needs none */
    const lathe_made_from *parents;     /* [n_parents]; NULL: the folder of model.path */
    int32_t n_parents;
    const lathe_safetensors *set; /* of the source */
    lathe_scaled_weights weights; /* of the source, with what was folded into them */
    lathe_st_writer *writer;
    int64_t *first;        /* [n_model] number of a row's first tensor in the file; -1: none */
    int64_t first_carried; /* number of the first tensor of another tower */
    float *w, *decoded;    /* one weight */
    int64_t capacity;      /* elements of both */
    char *planes;          /* of one weight, each at a multiple of 64 bytes */
    int64_t planes_bytes;
    double error, norm; /* sums of squares */
    const lathe_work_watch *watch;
    lathe_quantized_report_fn report;
    void *arg;
    int32_t n_wanted; /* weights to quantize */
    lathe_quantized_model *out;
} quantizer;

static const lathe_quant_v1 *table_of(const lathe_param *row)
{
    return row->format->table;
}

/* Bytes of the metadata tensor; 0: there is none. */
static int64_t meta_bytes(const lathe_param *row)
{
    const lathe_quant_v1 *table = table_of(row);
    return LATHE_HAS(table, weight_meta) ? table->weight_meta(row->format->self, row->desc.dims[0],
                                                              row->desc.dims[1], NULL, NULL, 0)
                                         : 0;
}

/* ---- declaring the file ---- */

static lathe_status add(quantizer *q, const lathe_param *row, const char *suffix,
                        const lathe_desc *desc)
{
    char name[LATHE_TENSOR_NAME], text[LATHE_TENSOR_NAME];
    LATHE_TRY(lathe_plane_name(row->name, suffix, name, sizeof name));
    return lathe_st_writer_add(
        q->writer, lathe_text_tower_file(&q->run->model, name, -1, text, (int64_t)sizeof text),
        desc);
}

static lathe_status add_planes(quantizer *q, const lathe_param *row, int64_t *n)
{
    const int64_t bytes = meta_bytes(row);
    const lathe_desc meta = lathe_desc_1d(LATHE_U8, bytes);
    for (int32_t k = 0; k < row->n_planes; k++) {
        if (row->planes[k].file_suffix == NULL)
            continue;
        LATHE_TRY(add(q, row, row->planes[k].file_suffix, &row->planes[k].desc));
        ++*n;
    }
    if (bytes == 0)
        return LATHE_OK;
    ++*n;
    return add(q, row, table_of(row)->meta_suffix, &meta);
}

/* Whether tensor i of the source belongs to another tower, and to no row. */
static int is_carried(const quantizer *q, int64_t i)
{
    const lathe_st_tensor *t = lathe_safetensors_at(q->set, i);
    return lathe_text_tower_carries(&q->run->model, t->name) &&
           lathe_params_find(&q->run->params, t->name) < 0;
}

static lathe_status declare(quantizer *q)
{
    int64_t n = 0;
    for (int32_t i = 0; i < q->run->params.n_model; i++) {
        const lathe_param *row = q->run->params.rows[i];
        const lathe_st_tensor *t = lathe__scaled_weights_find(&q->weights, i);
        q->first[i] = -1;
        if (row->stage_head && t == NULL)
            continue;
        if (t == NULL)
            return lathe_error(LATHE_E_NOT_FOUND, "%s: no tensor %s",
                               lathe_safetensors_path(q->set), row->name);
        q->first[i] = n;
        q->out->n_plain += row->format == NULL && row->role == LATHE_ROLE_MATRIX;
        q->n_wanted += row->format != NULL;
        if (row->format != NULL) {
            LATHE_TRY(add_planes(q, row, &n));
            continue;
        }
        LATHE_TRY(lathe_st_writer_add(q->writer, t->name, &t->desc));
        n++;
    }
    q->first_carried = n;
    for (int64_t i = 0; i < lathe_safetensors_count(q->set); i++)
        if (is_carried(q, i))
            LATHE_TRY(lathe_st_writer_add_copy(q->writer, lathe_safetensors_at(q->set, i)));
    return lathe_st_writer_begin(q->writer);
}

/* Copies the tensors of other towers from the mapped file. */
static lathe_status write_carried(const quantizer *q)
{
    int64_t index = q->first_carried;
    for (int64_t i = 0; i < lathe_safetensors_count(q->set); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(q->set, i);
        if (is_carried(q, i))
            LATHE_TRY(
                lathe_st_writer_write(q->writer, index++, 0, t->data, lathe_desc_bytes(&t->desc)));
    }
    return LATHE_OK;
}

/* ---- one weight ---- */

static lathe_status make_room(quantizer *q, const lathe_param *row)
{
    const int64_t n = lathe_desc_count(&row->desc);
    int64_t bytes = 64;
    for (int32_t k = 0; k < row->n_planes; k++)
        bytes += (lathe_desc_bytes(&row->planes[k].desc) + 63) / 64 * 64;
    if (n > q->capacity) {
        free(q->w);
        free(q->decoded);
        q->w = malloc((size_t)n * sizeof *q->w);
        q->decoded = malloc((size_t)n * sizeof *q->decoded);
        q->capacity = q->w != NULL && q->decoded != NULL ? n : 0;
    }
    if (bytes > q->planes_bytes) {
        free(q->planes);
        q->planes = aligned_alloc(64, (size_t)bytes);
        q->planes_bytes = q->planes != NULL ? bytes : 0;
    }
    return q->capacity >= n && q->planes_bytes >= bytes
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "no memory to quantize '%s'", row->name);
}

/* Decodes the planes, and compares with the weight. */
static lathe_status measure(quantizer *q, const lathe_param *row, const void *const *planes,
                            double *out_relative)
{
    const lathe_quant_v1 *table = table_of(row);
    const int64_t rows = row->desc.dims[0], cols = row->desc.dims[1], n = rows * cols;
    const int64_t bytes =
        LATHE_HAS(table, decode_scratch) ? table->decode_scratch(row->format->self, rows, cols) : 0;
    void *scratch = bytes > 0 ? aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64) : NULL;
    double error = 0.0, norm = 0.0;
    if (bytes > 0 && scratch == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to decode '%s'", row->name);
    const lathe_status status =
        table->decode(row->format->self, rows, cols, planes, q->decoded, LATHE_F32, scratch, NULL);
    free(scratch);
    LATHE_TRY(status);
    for (int64_t i = 0; i < n; i++) {
        const double w = (double)q->w[i], d = (double)q->decoded[i] - w;
        error += d * d;
        norm += w * w;
    }
    q->error += error;
    q->norm += norm;
    *out_relative = norm > 0.0 ? sqrt(error / norm) : 0.0;
    return LATHE_OK;
}

static lathe_status write_planes(quantizer *q, const lathe_param *row, int64_t tensor,
                                 const void *const *planes, int64_t *out_bytes)
{
    const lathe_quant_v1 *table = table_of(row);
    const int64_t bytes = meta_bytes(row);
    *out_bytes = bytes;
    for (int32_t k = 0; k < row->n_planes; k++) {
        const int64_t size = lathe_desc_bytes(&row->planes[k].desc);
        if (row->planes[k].file_suffix == NULL)
            continue;
        LATHE_TRY(lathe_st_writer_write(q->writer, tensor++, 0, planes[k], size));
        *out_bytes += size;
    }
    if (bytes == 0)
        return LATHE_OK;
    char *text = malloc((size_t)bytes + 1);
    if (text == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the metadata of '%s'", row->name);
    lathe_status status = LATHE_OK;
    if (table->weight_meta(row->format->self, row->desc.dims[0], row->desc.dims[1], planes, text,
                           bytes + 1) != bytes)
        status =
            lathe_error(LATHE_E_PLUGIN, "quant %s: weight_meta() gives another length than before",
                        row->format->component->plugin->name);
    if (status == LATHE_OK)
        status = lathe_st_writer_write(q->writer, tensor, 0, text, bytes);
    free(text);
    return status;
}

static lathe_status quantize(quantizer *q, int32_t index, const lathe_quant_inputs *inputs)
{
    const lathe_param *row = q->run->params.rows[index];
    const lathe_st_tensor *t = lathe__scaled_weights_find(&q->weights, index);
    const int64_t rows = row->desc.dims[0], cols = row->desc.dims[1];
    lathe_quantized_weight made = {.name = row->name,
                                   .format = row->format->component->plugin->name,
                                   .rows = rows,
                                   .cols = cols};
    void *planes[LATHE_MAX_PLANES] = {NULL};
    if (inputs == NULL) /* else the calibration tells */
        LATHE_TRY(lathe_work_tell(q->watch, q->out->n, q->n_wanted));
    LATHE_TRY(make_room(q, row));
    char *at = q->planes;
    memset(q->planes, 0, (size_t)q->planes_bytes);
    for (int32_t k = 0; k < row->n_planes; k++) {
        planes[k] = at;
        at += (lathe_desc_bytes(&row->planes[k].desc) + 63) / 64 * 64;
    }
    LATHE_TRY(lathe__scaled_weights_load(&q->weights, index, q->w));
    const lathe_status status =
        inputs != NULL
            ? table_of(row)->encode_calibrated(row->format->self, rows, cols, q->w, inputs, planes)
            : table_of(row)->encode(row->format->self, rows, cols, q->w, planes);
    if (status != LATHE_OK)
        return lathe_error_context(status, "%s: %s", t->file, t->name);
    LATHE_TRY(measure(q, row, (const void *const *)planes, &made.relative_error));
    LATHE_TRY(write_planes(q, row, q->first[index], (const void *const *)planes, &made.bytes));
    q->out->n++;
    q->out->n_numbers += rows * cols;
    q->out->bytes += made.bytes;
    q->out->bytes_before += lathe_desc_bytes(&t->desc);
    if (q->report != NULL)
        q->report(q->arg, &made);
    return LATHE_OK;
}

/* ---- calibration ---- */

/* The row of a weight that is to be quantized; -1: none. */
static int32_t wanted_row(const quantizer *q, const char *weight)
{
    const int32_t i = lathe_params_find(&q->run->params, weight);
    return i >= 0 && i < q->run->params.n_model && q->run->params.rows[i]->format != NULL ? i : -1;
}

/* lathe_calibration_pass.wants */
static int32_t wants(void *arg, const char *weight)
{
    return wanted_row(arg, weight) >= 0;
}

/* lathe_calibration_pass.replace */
static lathe_status replace(void *arg, const char *weight, const lathe_quant_inputs *inputs,
                            const float **out_values)
{
    quantizer *q = arg;
    LATHE_TRY(quantize(q, wanted_row(q, weight), inputs));
    *out_values = q->decoded;
    return LATHE_OK;
}

/* lathe_calibration_pass.scale */
static lathe_status scale(void *arg, const lathe_calibrated_layers *layers, float *scales)
{
    quantizer *q = arg;
    int32_t changed = 0;
    LATHE_TRY(lathe__input_scales_fold(&q->weights, layers, scales, &changed));
    q->out->n_scaled += changed;
    return LATHE_OK;
}

/* lathe_calibration_pass.vector */
static const float *vector(void *arg, const char *name)
{
    const quantizer *q = arg;
    const int32_t i = lathe_params_find(&q->run->params, name);
    return i >= 0 ? q->weights.vectors[i] : NULL;
}

static lathe_status calibrate(quantizer *q)
{
    lathe_calibration_pass pass = {.run = q->data->run,
                                   .n_batches = q->data->n_batches,
                                   .watch = q->watch,
                                   .wants = wants,
                                   .replace = replace,
                                   .arg = q};
    if (LATHE_HAS((const lathe_quant_v1 *)q->run->parts.quant.table, scale_inputs)) {
        pass.scale = scale;
        pass.vector = vector;
    }
    LATHE_TRY(lathe__calibration_pass(&pass));
    if (q->out->n != q->n_wanted)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%d of %d weights are no linear layers of the model's forward, so they "
                           "cannot be calibrated: leave them out with quant.exclude_modules",
                           q->n_wanted - q->out->n, q->n_wanted);
    return LATHE_OK;
}

/* A tensor that is not quantized: the numbers of the folder, or those that a scale changed. */
static lathe_status write_plain(quantizer *q, int32_t index)
{
    const lathe_st_tensor *t = lathe__scaled_weights_find(&q->weights, index);
    const int64_t bytes = lathe_desc_bytes(&t->desc), n = lathe_desc_count(&t->desc);
    const float *values = q->weights.vectors[index];
    if (values == NULL && t->decode == NULL)
        return lathe_st_writer_write(q->writer, q->first[index], 0, t->data, bytes);
    if (values == NULL) {
        LATHE_TRY(make_room(q, q->run->params.rows[index]));
        LATHE_TRY(lathe_st_read(t, 0, n, q->w, t->desc.dtype)); /* f32 or narrower */
        return lathe_st_writer_write(q->writer, q->first[index], 0, q->w, bytes);
    }
    void *stored = malloc((size_t)bytes + 1);
    if (stored == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to write '%s'", t->name);
    lathe_status status = lathe_convert(stored, t->desc.dtype, values, LATHE_F32, n);
    if (status == LATHE_OK)
        status = lathe_st_writer_write(q->writer, q->first[index], 0, stored, bytes);
    free(stored);
    return status;
}

static lathe_status write_rows(quantizer *q)
{
    if (q->data != NULL)
        LATHE_TRY(calibrate(q));
    for (int32_t i = 0; i < q->run->params.n_model; i++) {
        if (q->first[i] < 0)
            continue;
        if (q->run->params.rows[i]->format == NULL)
            LATHE_TRY(write_plain(q, i));
        else if (q->data == NULL)
            LATHE_TRY(quantize(q, i, NULL));
    }
    LATHE_TRY(write_carried(q));
    q->out->relative_error = q->norm > 0.0 ? sqrt(q->error / q->norm) : 0.0;
    return lathe_safetensors_check(q->set);
}

/* ---- config.json ---- */

static void add_name(json_t *list, const char *name)
{
    size_t i = 0;
    while (i < json_array_size(list) &&
           strcmp(json_string_value(json_array_get(list, i)), name) != 0)
        i++;
    if (i == json_array_size(list))
        json_array_append_new(list, json_string(name));
}

/* Adds the tower of a tensor, each once, as the programs of a method name all layers of a module:
 * compressed-tensors with an expression, ModelOpt with a wildcard, the others with its path from
 * the first part on. Module paths in transformers begin with "model.", those of older files do not,
 * and they differ within a tower. */
static void add_tower(json_t *list, const char *tensor, const char *method)
{
    static const char model[] = "model.";
    char name[LATHE_TENSOR_NAME + 16];
    const char *tower =
        strncmp(tensor, model, sizeof model - 1) == 0 ? tensor + sizeof model - 1 : tensor;
    const int n = (int)strcspn(tower, ".");
    const int is_expression = method != NULL && strcmp(method, "compressed-tensors") == 0;
    const int is_wildcard = method != NULL && strcmp(method, "modelopt") == 0;
    if (n > LATHE_TENSOR_NAME)
        return;
    if (is_expression) {
        (void)snprintf(name, sizeof name, "re:(model[.])?%.*s[.].*", n, tower);
        add_name(list, name);
        return;
    }
    for (int k = 0; k < 2; k++) {
        (void)snprintf(name, sizeof name, "%s%.*s%s", k == 0 ? model : "", n, tower,
                       is_wildcard ? "*" : "");
        add_name(list, name);
    }
}

/* The layers that other programs must not expect to be quantized: the head, and those that the
 * settings leave out. */
static json_t *plain_modules(const quantizer *q, const char *method)
{
    const lathe_run *run = q->run;
    json_t *list = json_array();
    json_array_append_new(list, json_string("lm_head"));
    for (int32_t i = 0; i < run->params.n_model; i++) {
        const lathe_param *row = run->params.rows[i];
        const char *dot = strrchr(row->name, '.');
        if (row->role == LATHE_ROLE_MATRIX && row->format == NULL && dot != NULL &&
            strncmp(row->name, "lm_head.", 8) != 0)
            json_array_append_new(list, json_stringn(row->name, (size_t)(dot - row->name)));
    }
    for (int64_t i = 0; i < lathe_safetensors_count(q->set); i++)
        if (is_carried(q, i))
            add_tower(list, lathe_safetensors_at(q->set, i)->name, method);
    return list;
}

/* The format's description of itself, with the layers that were left out. */
static lathe_status describe(const quantizer *q, json_t **out)
{
    const lathe_run *run = q->run;
    const lathe_instance *format = &run->parts.quant;
    const lathe_quant_v1 *table = format->table;
    char text[4096];
    *out = NULL;
    const int64_t n =
        LATHE_HAS(table, config_json) ? table->config_json(format->self, text, sizeof text) : 0;
    if (n <= 0)
        return lathe_error(LATHE_E_CONFIG, "quant.name = \"%s\": the format has no layout in files",
                           format->component->plugin->name);
    if (n >= (int64_t)sizeof text)
        return lathe_error(LATHE_E_PLUGIN,
                           "quant %s: config_json() has %lld bytes; expected less "
                           "than %zu",
                           format->component->plugin->name, (long long)n, sizeof text);
    LATHE_TRY(lathe_json_load("quantization_config", text, n, out));
    const char *key = lathe_quant_skip_key(*out);
    const char *method = json_string_value(json_object_get(*out, "quant_method"));
    if (key != NULL)
        json_object_set_new(*out, key, plain_modules(q, method));
    return LATHE_OK;
}

static lathe_status write_config(const quantizer *q, const char *dir)
{
    const lathe_run *run = q->run;
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *root = NULL, *format = NULL;
    char *text = NULL;
    const char *path = lathe_path_join(&arena, dir, "config.json");
    lathe_status status = path != NULL ? describe(q, &format) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = lathe_json_load(path, run->model.json, (int64_t)strlen(run->model.json), &root);
    if (status == LATHE_OK) {
        json_object_set(root, "quantization_config", format);
        text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        status = text != NULL ? lathe_file_write_atomic(path, text, (int64_t)strlen(text))
                              : lathe_error(LATHE_E_NOMEM, "no memory for %s", path);
    }
    free(text);
    json_decref(format);
    json_decref(root);
    lathe_arena_fini(&arena);
    return status;
}

/* ---- the folder ---- */

/* `path`: the folder's name when it is complete. */
static lathe_status fill_folder(quantizer *q, const char *dir, const char *path)
{
    const lathe_run *run = q->run;
    const lathe_made_from from = {"model", run->set.model_path};
    lathe_made_on on = {.shards = NULL};
    if (q->data != NULL)
        on = (lathe_made_on){q->data->run->data.validation_shards,
                             q->data->n_batches * q->data->run->set.micro_batch_size,
                             q->data->run->set.seq_len};
    LATHE_TRY(write_config(q, dir));
    LATHE_TRY(lathe_st_writer_create(dir, "model", run->set.checkpoint.shard_bytes, &q->writer));
    LATHE_TRY(declare(q));
    LATHE_TRY(write_rows(q));
    LATHE_TRY(lathe_st_writer_finish(q->writer));
    LATHE_TRY(lathe_tokenizer_files_copy(run->set.model_path, dir));
    if (run->model.wrapper != NULL)
        LATHE_TRY(lathe_tower_files_copy(run->set.model_path, dir));
    const lathe_made_on *texts = q->data != NULL ? &on : NULL;
    return q->parents != NULL
               ? lathe__made_folder_describe(dir, path, "merge", q->parents, q->n_parents, texts)
               : lathe__made_folder_describe(dir, path, "quantize", &from, 1, texts);
}

static lathe_status write_folder(quantizer *q, const char *path)
{
    const char *beside = NULL;
    LATHE_TRY(lathe_new_folder_begin(&q->run->arena, path, &beside));
    const lathe_status status = fill_folder(q, beside, path);
    lathe_st_writer_destroy(q->writer);
    return lathe_new_folder_end(status, beside, path);
}

/* Conv1D weights are written in the formats whose libraries read them; experts in none. */
static lathe_status refuse_layouts(const lathe_run *run)
{
    for (int32_t i = 0; i < run->params.n_model; i++) {
        const lathe_param *row = run->params.rows[i];
        if (row->n_experts > 0)
            return lathe_error(LATHE_E_UNSUPPORTED,
                               "%s: %s holds a matrix for each of %d experts, and no folder with "
                               "quantized experts is written: set quant.name in the run",
                               run->set.model_path, row->name, (int)row->n_experts);
        if (row->format != NULL && row->transposed && !lathe_format_stores_conv1d(row->format))
            return lathe_error(LATHE_E_CONFIG,
                               "%s: %s is a Conv1D weight, and no library reads Conv1D weights in "
                               "format %s: use nf4, int8 or gptq, or set quant.name in the run",
                               run->set.model_path, row->name,
                               row->format->component->plugin->name);
    }
    return LATHE_OK;
}

/* The files of the tokenizer are copied as they are, so one that cannot be read is refused here,
 * and one that is missing is told. */
static lathe_status check_tokenizer(const char *model, lathe_arena *arena)
{
    lathe_tokenizer *tokenizer = NULL;
    int reads_bytes = 0;
    if (lathe_model_has(model, "tokenizer.json")) {
        LATHE_TRY(lathe_tokenizer_load(model, &tokenizer));
        lathe_tokenizer_destroy(tokenizer);
        return LATHE_OK;
    }
    LATHE_TRY(lathe_folder_reads_bytes(model, arena, &reads_bytes));
    if (!reads_bytes && !lathe_path_is_gguf(model)) {
        (void)lathe_tokenizer_missing(model); /* its text becomes part of the warning */
        lathe_log(LATHE_LOG_WARN, "the new folder has no tokenizer: %s", lathe_error_message());
        lathe_error_clear();
    }
    return LATHE_OK;
}

/* Quantizes the weights of an open source into a new folder. */
static lathe_status quantize_into(quantizer *q, const char *path)
{
    lathe_run *run = q->run;
    q->first = calloc((size_t)run->params.n_model + 1, sizeof *q->first);
    if (q->first == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory");
    LATHE_TRY(lathe_weights_check(q->set, &run->model, &run->params));
    LATHE_TRY(check_tokenizer(run->set.model_path, &run->arena));
    LATHE_TRY(lathe__scaled_weights_init(&q->weights, run, q->set));
    return write_folder(q, path);
}

lathe_status lathe__quantized_model_write(lathe_run *run, const lathe_calibration_data *data,
                                          const lathe_made_from *parents, int32_t n_parents,
                                          const char *path, const lathe_work_watch *watch,
                                          lathe_quantized_report_fn report, void *arg,
                                          lathe_quantized_model *out)
{
    lathe_safetensors *set = NULL;
    quantizer q = {.run = run,
                   .data = data,
                   .parents = parents,
                   .n_parents = n_parents,
                   .watch = watch,
                   .report = report,
                   .arg = arg,
                   .out = out};
    *out = (lathe_quantized_model){0};
    LATHE_TRY(lathe_new_folder_check(path));
    if (lathe_params_have_planes(&run->params))
        LATHE_TRY(
            lathe_model_config_refuse_quantized(&run->model, run->set.model_path, "quantizing"));
    LATHE_TRY(refuse_layouts(run));
    const lathe_quant_v1 *table = run->parts.quant.table;
    if (LATHE_HAS(table, set_source_dtype))
        table->set_source_dtype(run->parts.quant.self, run->model.file_dtype);
    lathe_status status = lathe_model_weights(run->set.model_path, &set);
    q.set = set;
    if (status == LATHE_OK)
        status = quantize_into(&q, path);
    lathe__scaled_weights_fini(&q.weights);
    lathe_safetensors_close(set);
    free(q.first);
    free(q.w);
    free(q.decoded);
    free(q.planes);
    return status;
}
