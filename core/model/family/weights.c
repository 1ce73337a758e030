/* Loads a model's weights: finds tensors by name, transposes and converts them. */
#include "model/family/weights.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/model_path.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/expert_tensors.h"
#include "graph/ir/desc_text.h"
#include "model/family/tower_names.h"
#include "model/family/weight_planes.h"

/* ---- loading ---- */

static lathe_status check_tensor(const lathe_st_tensor *t, const lathe_param *row)
{
    lathe_desc want = lathe_weights_file_desc(row);
    if (t->header != NULL)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: tensor %s has {%s}; a weight must be f32, bf16, f16 or f64, with "
                           "at most %d dimensions",
                           t->file, t->name, t->header, LATHE_MAX_RANK);
    want.dtype = t->desc.dtype;
    if (memcmp(&want, &t->desc, sizeof want) != 0) {
        char seen[80], wanted[80];
        return lathe_error(LATHE_E_SHAPE, "%s: tensor %s is %s, the configuration expects %s",
                           t->file, t->name, lathe_desc_text(&t->desc, seen, sizeof seen),
                           lathe_desc_text(&want, wanted, sizeof wanted));
    }
    if (!lathe_convert_takes(t->desc.dtype))
        return lathe_error(LATHE_E_DTYPE,
                           "%s: tensor %s is %s, a weight must be f32, bf16, f16 or f64", t->file,
                           t->name, lathe_dtype_name(t->desc.dtype));
    return LATHE_OK;
}

static lathe_status missing(const lathe_safetensors *set, const lathe_param *row)
{
    lathe_desc want = lathe_weights_file_desc(row);
    char wanted[80], first[300];
    if (lathe_weights_is_by_expert(row) &&
        lathe_expert_tensor_name(row->name, 0, first, sizeof first) < (int32_t)sizeof first) {
        want.dims[0] /= row->n_experts;
        return lathe_error(LATHE_E_NOT_FOUND,
                           "%s: no tensors %s and so on, the configuration expects %s for each of "
                           "%d %s, in f32, bf16 or f16",
                           lathe_safetensors_path(set), first,
                           lathe_desc_text(&want, wanted, sizeof wanted), (int)row->n_experts,
                           row->desc.rank == 1 ? "heads" : "experts");
    }
    return lathe_error(LATHE_E_NOT_FOUND, "%s: no tensor %s, the configuration expects %s",
                       lathe_safetensors_path(set), row->name,
                       lathe_desc_text(&want, wanted, sizeof wanted));
}

/* Reads a weight that files hold transposed, and whose stored form must be decoded. */
static lathe_status load_decoded_turned(const lathe_st_tensor *t, const lathe_param *row,
                                        void *data, int32_t dtype)
{
    const int64_t n = lathe_desc_count(&t->desc);
    float *values = malloc((size_t)n * sizeof *values);
    if (values == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory to decode %s", t->file, t->name);
    lathe_status status = lathe_st_read(t, 0, n, values, LATHE_F32);
    if (status == LATHE_OK)
        status = lathe_weights_turn(row, 0, data, dtype, values, LATHE_F32);
    free(values);
    return status;
}

static lathe_status load_row(const lathe_st_tensor *t, const lathe_param *row, int32_t index,
                             const lathe_weight_sink *sink)
{
    LATHE_TRY(check_tensor(t, row));
    void *data = NULL;
    int32_t dtype = LATHE_F32;
    LATHE_TRY(sink->place(sink->arg, index, row, &data, &dtype));
    if (data == NULL)
        return LATHE_OK;
    if (lathe_weights_is_turned(row) && t->decode == NULL)
        LATHE_TRY(lathe_weights_turn(row, 0, data, dtype, t->data, t->desc.dtype));
    else if (lathe_weights_is_turned(row))
        LATHE_TRY(load_decoded_turned(t, row, data, dtype));
    else
        LATHE_TRY(lathe_st_read(t, 0, lathe_desc_count(&t->desc), data, dtype));
    return sink->done != NULL ? sink->done(sink->arg, index, row, data) : LATHE_OK;
}

static lathe_status load_planes(const lathe_safetensors *set, const lathe_model_config *config,
                                const lathe_param *row, int32_t index,
                                const lathe_weight_sink *sink)
{
    void *planes[LATHE_MAX_PLANES] = {NULL};
    if (sink->place_planes == NULL)
        return lathe_error(LATHE_E_STATE, "%s: a quantized weight where numbers are read",
                           row->name);
    LATHE_TRY(sink->place_planes(sink->arg, index, row, planes));
    LATHE_TRY(lathe_weight_planes_read(set, config, row, planes));
    return sink->planes_done(sink->arg, index, row, planes);
}

static int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Names the program that puts a prefix before every name, and says how to save a model without it.
 */
static const char *remedy_of(const char *prefix)
{
    static const struct {
        const char *prefix, *remedy;
    } known[] = {
        {"_orig_mod.", "torch.compile puts it there: save model._orig_mod"},
        {"module.", "DistributedDataParallel and DeepSpeed put it there: save model.module"},
        {"base_model.model.", "PEFT puts it there: save model.merge_and_unload(), or the adapter "
                              "with save_pretrained"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (ends_with(prefix, known[i].prefix))
            return known[i].remedy;
    return "save the language model alone, or take the prefix out of the names";
}

/* Refuses a file all of whose names have a prefix, which would be told as a missing tensor. `row`:
 * a tensor that was not found. */
static lathe_status refuse_prefix(const lathe_safetensors *set, const lathe_model_config *config,
                                  const char *row)
{
    const size_t skip = strlen(config->prefix);
    const char *const names[] = {row, strncmp(row, config->prefix, skip) == 0 ? row + skip : row};
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        const char *seen = lathe_safetensors_at(set, i)->name;
        for (int k = 0; k < 2; k++) {
            const size_t n = strlen(seen) - strlen(names[k]);
            char prefix[256];
            if (!ends_with(seen, names[k]) || n == 0 || n >= sizeof prefix || seen[n - 1] != '.')
                continue;
            (void)snprintf(prefix, sizeof prefix, "%.*s", (int)n, seen);
            return lathe_error(LATHE_E_CONFIG,
                               "%s: the names of the tensors begin with \"%s\" (%s): %s",
                               lathe_safetensors_path(set), prefix, seen, remedy_of(prefix));
        }
    }
    return LATHE_OK;
}

/* Looks at the names of a file before what it lacks is told: at the first parameter of the model
 * that has a plain tensor. */
static lathe_status check_names(const lathe_safetensors *set, const lathe_model_config *config,
                                const lathe_params *params)
{
    for (int32_t i = 0; i < params->n_model; i++) {
        const lathe_param *row = params->rows[i];
        if (!lathe_weights_is_model_row(row) || row->planes_on_file || row->stored != NULL ||
            row->stage_head == LATHE_HEAD_NEW)
            continue;
        return lathe_weights_find(set, config, row->name) != NULL
                   ? LATHE_OK
                   : refuse_prefix(set, config, row->name);
    }
    return LATHE_OK;
}

/* Reads a weight that the folder stores quantized, and that has plain numbers in memory. */
static lathe_status load_stored(const lathe_safetensors *set, const lathe_model_config *config,
                                const lathe_param *row, int32_t index,
                                const lathe_weight_sink *sink)
{
    const int64_t n = lathe_desc_count(&row->desc);
    void *data = NULL;
    int32_t dtype = LATHE_F32;
    LATHE_TRY(sink->place(sink->arg, index, row, &data, &dtype));
    if (data == NULL)
        return LATHE_OK;
    float *values = malloc((size_t)n * sizeof *values);
    if (values == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to decode '%s'", row->name);
    lathe_status status = lathe_weight_planes_decode(set, config, row->stored, values);
    if (status == LATHE_OK)
        status = lathe_convert(data, dtype, values, LATHE_F32, n);
    free(values);
    if (status == LATHE_OK && sink->done != NULL)
        status = sink->done(sink->arg, index, row, data);
    return status;
}

/* The file of a tied model has no head, or contains the embedding twice. */
static lathe_status check_tied(const lathe_safetensors *set, const lathe_model_config *config,
                               const lathe_params *params)
{
    if (config->n_labels > 0)
        return LATHE_OK; /* no head over the vocabulary is read */
    char text[LATHE_TENSOR_NAME];
    const lathe_st_tensor *head = lathe_safetensors_find(
        set, lathe_text_tower_file(config, config->head, -1, text, (int64_t)sizeof text));
    const lathe_st_tensor *embedding = lathe_weights_find(set, config, config->embedding);
    const int32_t row = lathe_params_find(params, config->head);
    const int is_quantized = row >= 0 && params->rows[row]->stored != NULL;
    if (!config->tied && !config->is_untied && head == NULL && !is_quantized)
        return lathe_error(
            LATHE_E_CONFIG,
            "%s: no tensor %s, and tie_word_embeddings is false: set it, or supply the tensor",
            lathe_safetensors_path(set), config->head);
    if ((config->tied || config->is_untied) && head != NULL && embedding != NULL &&
        head->decode == NULL &&
        (memcmp(&head->desc, &embedding->desc, sizeof head->desc) != 0 ||
         memcmp(head->data, embedding->data, (size_t)lathe_desc_bytes(&head->desc)) != 0))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: %s differs from %s, but tie_word_embeddings is true: set it to "
                           "false, or remove one of the two tensors",
                           head->file, config->head, embedding->name);
    return LATHE_OK;
}

/* ---- tensors that nothing takes ---- */

static int is_in_file_as(const lathe_model_config *config, const char *parameter, const char *name)
{
    char text[LATHE_TENSOR_NAME];
    return parameter != NULL && strcmp(name, lathe_text_tower_file(config, parameter, -1, text,
                                                                   (int64_t)sizeof text)) == 0;
}

/* Buffers that older files contain besides the weights, scales of a quantized cache (computation
 * has a cache in the compute dtype), a tied head (already compared), and the head over the
 * vocabulary, with its bias, of a model that becomes a sequence classifier. */
static int is_expected_extra(const lathe_model_config *config, const char *name)
{
    static const char *const ends[] = {".rotary_emb.inv_freq",
                                       ".attn.bias",
                                       ".attn.masked_bias",
                                       ".attention.bias",
                                       ".attention.masked_bias",
                                       ".k_scale",
                                       ".v_scale",
                                       ".q_scale",
                                       ".prob_scale",
                                       NULL};
    for (const char *const *end = ends; *end != NULL; end++)
        if (ends_with(name, *end))
            return 1;
    if (config->n_labels > 0 && is_in_file_as(config, config->head_bias, name))
        return 1;
    return (config->tied || config->n_labels > 0) && is_in_file_as(config, config->head, name);
}

/* ---- layers of multi-token prediction ---- */

/* Number of layers of multi-token prediction that the family's files may have, which nothing
 * computes; -1: the family has none. A key of the schema says it (an alias of it is read there,
 * too); Qwen3-Next and Qwen3.5 number none of these tensors among the layers. */
static int64_t n_predict_of(const lathe_model_config *config)
{
    static const char *const apart[] = {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"};
    const lathe_plugin *family =
        config->family.component != NULL ? config->family.component->plugin : NULL;
    for (int32_t i = 0; family != NULL && config->values != NULL && i < family->n_fields; i++)
        if (strcmp(family->fields[i].key, "num_nextn_predict_layers") == 0)
            return config->values[i].is_set ? config->values[i].i : 0;
    for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++)
        if (config->model_type != NULL && strcmp(config->model_type, apart[i]) == 0)
            return 0;
    return -1;
}

/* Whether a tensor belongs to a layer that predicts tokens after the next one: "mtp.*",
 * "model.mtp_*", or one of the n_predict layers after the model's. transformers skips them, too. */
static int is_of_prediction(const lathe_model_config *config, int64_t n_predict, const char *name)
{
    static const char layers[] = "layers.";
    if (n_predict < 0)
        return 0;
    if (strncmp(name, "mtp.", 4) == 0)
        return 1;
    const size_t skip = config->prefix != NULL ? strlen(config->prefix) : 0;
    if (skip > 0 && strncmp(name, config->prefix, skip) == 0)
        name += skip;
    if (strncmp(name, "mtp_", 4) == 0)
        return 1;
    if (strncmp(name, layers, sizeof layers - 1) != 0)
        return 0;
    char *end = NULL;
    const long long layer = strtoll(name + sizeof layers - 1, &end, 10);
    return *end == '.' && layer >= config->n_layers && layer < config->n_layers + n_predict;
}

/* ---- what formats store beside a weight ---- */

/* Names of a module's tensors that formats store beside the planes and decoding does not need:
 * scales of activations and settings that are in config.json, too. */
static const char *const beside_planes[] = {
    "input_scale", "input_zero_point", "input_global_scale", "output_scale", "output_zero_point",
    "activation_scale", "weight_shape", "weight_format", "g_idx",
    /* bitsandbytes, int8; hqq's layers */
    "SCB", "nbits", "group_size", "shape", "axis", "packing", "unpack_view_dtype", "view_as_float",
    "quant_scale", "quant_zero", "compute_dtype", "offload_meta", "stores_quant_config",
    "channel_wise", "optimize", "round_zero", NULL};

static int is_zero(const lathe_st_tensor *t)
{
    const int64_t n = lathe_desc_bytes(&t->desc);
    const char *data = t->data;
    int64_t i = 0;
    while (i < n && data[i] == 0)
        i++;
    return i == n;
}

/* Whether a tensor of a module whose planes are read is one of those that decoding does not need.
 * Symmetric weights may have zero points, which are 0. */
static int is_beside_planes(const lathe_params *params, const lathe_model_config *config,
                            const lathe_st_tensor *t)
{
    char text[LATHE_TENSOR_NAME];
    const char *name = t->name, *dot = strrchr(name, '.');
    const size_t n = dot != NULL ? (size_t)(dot - name) + 1 : 0, skip = strlen(config->prefix);
    int is_known = n > 0 && strcmp(dot + 1, "weight_zero_point") == 0 && is_zero(t);
    for (const char *const *known = beside_planes; n > 0 && *known != NULL && !is_known; known++)
        is_known = strcmp(dot + 1, *known) == 0;
    for (int32_t i = 0; is_known && i < params->n_model; i++) {
        const lathe_param *row = params->rows[i];
        const char *in_file =
            lathe_text_tower_file(config, row->name, -1, text, (int64_t)sizeof text);
        if ((row->planes_on_file || row->stored != NULL) &&
            (strncmp(in_file, name, n) == 0 || (strncmp(row->name, config->prefix, skip) == 0 &&
                                                strncmp(row->name + skip, name, n) == 0)))
            return 1;
    }
    return 0;
}

/* "value.weight": a head that a stage trained over the model, and saved with it. */
static int is_head(const char *name)
{
    const char *dot = strchr(name, '.');
    return dot != NULL && strcmp(dot, ".weight") == 0;
}

/* The row whose planes the set has for a row; NULL: it has plain numbers, as the checkpoints of a
 * training that decoded the folder's weights. */
static const lathe_param *coded_in(const lathe_safetensors *set, const lathe_model_config *config,
                                   const lathe_param *row)
{
    if (row->planes_on_file)
        return row;
    return row->stored != NULL && !lathe_weight_is_plain(set, config, row) ? row->stored : NULL;
}

/* Marks the tensors that a row takes. *out_complete 0: the file lacks some, which reading says. */
static lathe_status mark(const lathe_safetensors *set, const lathe_model_config *config,
                         const lathe_param *row, uint8_t *used, int *out_complete)
{
    const lathe_param *coded = coded_in(set, config, row);
    if (coded != NULL)
        return lathe_weight_planes_mark(set, config, coded, used, out_complete);
    const lathe_st_tensor *t = lathe_weights_find(set, config, row->name);
    if (t != NULL)
        used[t - lathe_safetensors_at(set, 0)] = 1;
    *out_complete &= t != NULL || row->stage_head == LATHE_HEAD_NEW;
    return LATHE_OK;
}

static void warn_of_prediction(const lathe_safetensors *set, const lathe_buffer *names, int64_t n)
{
    if (n > 0)
        lathe_log(LATHE_LOG_WARN,
                  "%s: layers of multi-token prediction (%s%s) are not computed and not saved",
                  lathe_safetensors_path(set), names->data != NULL ? names->data : "",
                  n > 2 ? ", .." : "");
}

/* Refuses tensors that no row takes: the configuration describes another model than the file holds.
 * A head of a stage that this run does not have is a warning, and so are layers of multi-token
 * prediction. */
static lathe_status check_extras(const lathe_safetensors *set, const lathe_model_config *config,
                                 const lathe_params *params, const uint8_t *used)
{
    const int64_t n_predict = n_predict_of(config);
    lathe_buffer text = LATHE_BUFFER_INIT, skipped = LATHE_BUFFER_INIT;
    int64_t n = 0, heads = 0, n_skipped = 0;
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, i);
        if (used[i] || is_expected_extra(config, t->name) ||
            lathe_text_tower_carries(config, t->name) || is_beside_planes(params, config, t))
            continue;
        if (is_of_prediction(config, n_predict, t->name)) {
            if (n_skipped++ < 2)
                lathe_buffer_printf(&skipped, "%s%s", n_skipped > 1 ? ", " : "", t->name);
            continue;
        }
        heads += is_head(t->name);
        if (n++ < 8)
            lathe_buffer_printf(&text, "%s%s", n > 1 ? ", " : "", t->name);
    }
    lathe_status status = LATHE_OK;
    const char *list = text.data != NULL ? text.data : "", *more = n > 8 ? ", ..." : "";
    if (n > heads)
        status = lathe_error(LATHE_E_CONFIG,
                             "%s: %lld %s not part of this model: %s%s; correct config.json if it "
                             "describes another model, or remove them from the file",
                             lathe_safetensors_path(set), (long long)n,
                             n == 1 ? "tensor is" : "tensors are", list, more);
    else if (n > 0)
        lathe_log(LATHE_LOG_WARN, "%s: %lld %s not part of this model: %s%s",
                  lathe_safetensors_path(set), (long long)n, n == 1 ? "tensor is" : "tensors are",
                  list, more);
    if (status == LATHE_OK)
        warn_of_prediction(set, &skipped, n_skipped);
    lathe_buffer_fini(&skipped);
    lathe_buffer_fini(&text);
    return status;
}

static lathe_status check_all_taken(const lathe_safetensors *set, const lathe_model_config *config,
                                    const lathe_params *params)
{
    uint8_t *used = calloc((size_t)lathe_safetensors_count(set) + 1, 1);
    if (used == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to check weights");
    lathe_status status = LATHE_OK;
    int complete = 1;
    for (int32_t i = 0; i < params->n && status == LATHE_OK; i++)
        if (lathe_weights_is_model_row(params->rows[i]))
            status = mark(set, config, params->rows[i], used, &complete);
    if (status == LATHE_OK && complete)
        status = check_extras(set, config, params, used);
    free(used);
    return status;
}

static lathe_status load_one(const lathe_safetensors *set, const lathe_model_config *config,
                             const lathe_params *params, int32_t index,
                             const lathe_weight_sink *sink)
{
    const lathe_param *row = params->rows[index];
    if (row->planes_on_file)
        return load_planes(set, config, row, index, sink);
    if (coded_in(set, config, row) != NULL)
        return load_stored(set, config, row, index, sink);
    const lathe_st_tensor *t = lathe_weights_find(set, config, row->name);
    if (t != NULL)
        return load_row(t, row, index, sink);
    if (row->stage_head == LATHE_HEAD_NEW && (sink->new_head != NULL || index >= params->n_model))
        return sink->new_head != NULL ? sink->new_head(sink->arg, index) : LATHE_OK;
    return missing(set, row);
}

lathe_status lathe_weights_load(const lathe_safetensors *set, const lathe_model_config *config,
                                const lathe_params *params, const lathe_weight_sink *sink)
{
    LATHE_TRY(check_names(set, config, params));
    LATHE_TRY(check_tied(set, config, params));
    LATHE_TRY(check_all_taken(set, config, params));
    for (int32_t i = 0; i < params->n; i++)
        if (lathe_weights_is_model_row(params->rows[i]))
            LATHE_TRY(load_one(set, config, params, i, sink));
    return lathe_safetensors_check(set);
}

lathe_status lathe_weights_check(const lathe_safetensors *set, const lathe_model_config *config,
                                 const lathe_params *params)
{
    LATHE_TRY(check_names(set, config, params));
    LATHE_TRY(check_tied(set, config, params));
    for (int32_t i = 0; i < params->n; i++) {
        const lathe_param *row = params->rows[i];
        if (!lathe_weights_is_model_row(row))
            continue;
        const lathe_param *coded = coded_in(set, config, row);
        if (coded != NULL) {
            LATHE_TRY(lathe_weight_planes_check(set, config, coded));
            continue;
        }
        const lathe_st_tensor *t = lathe_weights_find(set, config, row->name);
        if (t == NULL && row->stage_head == LATHE_HEAD_NEW)
            continue;
        if (t == NULL)
            return missing(set, row);
        LATHE_TRY(check_tensor(t, row));
    }
    return check_all_taken(set, config, params);
}

/* ---- the tokenizer ---- */

/* Files beside the weights that belong to a folder of a model; it may lack any of them. */
static const char *const companions[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
};
enum { N_COMPANIONS = sizeof companions / sizeof companions[0] };

/* The chat templates beside the model's own, in a folder of their own. */
static lathe_status copy_templates(const char *from, const char *to)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char **names = NULL;
    int64_t n = 0;
    lathe_status status = lathe_model_templates(from, &arena, &names, &n);
    const char *folder = lathe_path_join(&arena, to, "additional_chat_templates");
    if (status == LATHE_OK && n > 0)
        status = folder != NULL ? lathe_dir_create(folder) : LATHE_E_NOMEM;
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        const char *file = lathe_model_template_file(&arena, names[i]);
        status = file != NULL ? lathe_model_copy(from, file, to) : LATHE_E_NOMEM;
    }
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status templates_bytes(const char *from, int64_t *io_bytes)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char **names = NULL;
    int64_t n = 0, bytes = 0;
    lathe_status status = lathe_model_templates(from, &arena, &names, &n);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        const char *file = lathe_model_template_file(&arena, names[i]);
        status = file != NULL ? lathe_model_bytes(from, file, &bytes) : LATHE_E_NOMEM;
        *io_bytes += bytes;
    }
    lathe_arena_fini(&arena);
    return status;
}

/* A tokenizer.json that is named itself, whatever its name, with the files beside it that belong to
 * a tokenizer. */
static lathe_status copy_named(const char *file, const char *to)
{
    static const char *const beside[] = {"tokenizer_config.json", "special_tokens_map.json",
                                         "added_tokens.json"};
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *slash = strrchr(file, '/');
    const char *folder = slash != NULL ? lathe_arena_strndup(&arena, file, slash - file + 1) : ".";
    const char *path = lathe_path_join(&arena, to, companions[0]);
    lathe_status status = folder != NULL && path != NULL ? LATHE_OK : LATHE_E_NOMEM;
    char *text = NULL;
    int64_t n = 0;
    if (status == LATHE_OK)
        status = lathe_file_read(file, 0, &text, &n);
    if (status == LATHE_OK)
        status = lathe_file_write_atomic(path, text, n);
    for (size_t i = 0; i < sizeof beside / sizeof beside[0] && status == LATHE_OK; i++)
        status = lathe_model_copy(folder, beside[i], to);
    free(text);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_tokenizer_files_copy(const char *from, const char *to)
{
    if (!lathe_path_is_model(from) && lathe_path_exists(from))
        return copy_named(from, to);
    for (int i = 0; i < N_COMPANIONS; i++)
        LATHE_TRY(lathe_model_copy(from, companions[i], to));
    return copy_templates(from, to);
}

lathe_status lathe_tower_files_copy(const char *from, const char *to)
{
    static const char *const names[] = {"processor_config.json", "preprocessor_config.json",
                                        "video_preprocessor_config.json",
                                        "audio_preprocessor_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        LATHE_TRY(lathe_model_copy(from, names[i], to));
    return LATHE_OK;
}

lathe_status lathe_tokenizer_files_bytes(const char *from, int64_t *out)
{
    *out = 0;
    struct stat st;
    if (!lathe_path_is_model(from) && stat(from, &st) == 0) {
        *out = (int64_t)st.st_size; /* what is beside it is small */
        return LATHE_OK;
    }
    for (int i = 0; i < N_COMPANIONS; i++) {
        int64_t n = 0;
        LATHE_TRY(lathe_model_bytes(from, companions[i], &n));
        *out += n;
    }
    return templates_bytes(from, out);
}
