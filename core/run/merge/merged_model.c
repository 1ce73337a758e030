/* Merges adapters into the weights of their base, one tensor at a time. */
#include "run/merge/merged_model.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/new_folder.h"
#include "checkpoint/state/adapter_file.h"
#include "checkpoint/state/made_folder.h"
#include "exec/store/weight_read.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/folder_finite.h"
#include "model/family/decoded_weights.h"
#include "model/family/folder_template.h"
#include "model/family/grown_rows.h"
#include "model/family/quant_source.h"
#include "model/family/weight_file.h"
#include "model/family/weights.h"
#include "plug/answers.h"
#include "run/merge/merge_linear.h"
#include "run/merge/merge_site.h"

typedef struct merger {
    const lathe_saved_state *saved; /* of the first adapter: the model, the folder */
    const lathe_merge_part *parts;  /* [n_parts] the adapters */
    int32_t n_parts, combine;
    const lathe_weight_origin *origin; /* the base's files */
    float *w;                          /* the weight under way */
    float *sum, *base;                 /* of several adapters: the result, the base's weight */
    void *read;                        /* its bytes in the file */
    int64_t capacity;                  /* elements of each */
    int32_t n;                         /* weights that an adapter changes */
    int32_t score;                     /* row of a classifier's score; -1: none */
    int32_t *has;                      /* [n_model] bit k: adapter k changes this weight */
    int32_t *adds;                     /* [n_model] bit k: adapter k adds to this bias */
    const lathe_work_watch *watch;
    int64_t n_made; /* weights that were merged */
} merger;

static const lathe_adapter_v1 *table_of(const lathe_saved_state *saved)
{
    return saved->parts->adapter.component ? saved->parts->adapter.table : NULL;
}

static int is_score(const lathe_saved_state *saved, const lathe_param *row)
{
    return saved->model->n_labels > 0 && strcmp(row->name, "score.weight") == 0;
}

/* Notes that adapter k adds to the bias at a weight. */
static lathe_status find_bias(merger *m, int32_t k, int32_t weight)
{
    const lathe_saved_state *saved = m->parts[k].saved;
    const int32_t bias = lathe_params_bias_of(saved->params, weight);
    if (bias < 0)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: the adapter adds a bias at '%s' (lora_bias), and the model's layer "
                           "has none, so it cannot be merged, nor can PEFT merge it: use the "
                           "adapter without merging (lathe generate, chat, eval and "
                           "model.adapter take it), or train one without lora_bias",
                           m->parts[k].adapter, saved->params->rows[weight]->name);
    m->n += !m->has[bias];
    m->has[bias] |= 1 << k;
    m->adds[bias] |= 1 << k;
    return LATHE_OK;
}

/* Whether it is of rows of tokens that train. */
static int is_of_tokens(const lathe_param *row)
{
    return row->init == LATHE_INIT_TOKEN_ROWS || row->init == LATHE_INIT_TOKEN_MARKS;
}

static int has_token_rows(const lathe_merge_part *part)
{
    const lathe_params *params = part->saved->params;
    int32_t i = params->n_model;
    while (i < params->n && !is_of_tokens(params->rows[i]))
        i++;
    return i < params->n;
}

/* The SHA-256 of a folder's tokenizer.json; "": it has none. */
static lathe_status hash_tokenizer(const char *folder, char out[65])
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, folder, "tokenizer.json");
    lathe_status status = path != NULL ? LATHE_OK : LATHE_E_NOMEM;
    out[0] = '\0';
    if (status == LATHE_OK && lathe_path_exists(path))
        status = lathe_sha256_file(path, out);
    lathe_arena_fini(&arena);
    return status;
}

/* Adapters of which one has rows of tokens must mean the same tokens by their ids. */
static lathe_status check_tokens(const merger *m, int32_t k)
{
    const lathe_merge_part *a = &m->parts[0], *b = &m->parts[k];
    char first[65], other[65];
    if (a->saved->model->vocab != b->saved->model->vocab)
        return lathe_error(LATHE_E_CONFIG,
                           "%s and %s do not belong together: the model of one has %lld rows for "
                           "tokens, that of the other %lld; merge one, and train the other over "
                           "the result",
                           a->adapter, b->adapter, (long long)a->saved->model->vocab,
                           (long long)b->saved->model->vocab);
    if (!has_token_rows(a) && !has_token_rows(b))
        return LATHE_OK;
    LATHE_TRY(hash_tokenizer(a->adapter, first));
    LATHE_TRY(hash_tokenizer(b->adapter, other));
    return strcmp(first, other) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_CONFIG,
                             "%s and %s do not belong together: they hold rows of tokens, and "
                             "their tokenizer.json differ, so a row may be of another token; merge "
                             "one, and train the other over the result",
                             a->adapter, b->adapter);
}

/* Finds the weights that adapter k changes or replaces. */
static lathe_status find_weights(merger *m, int32_t k)
{
    const lathe_saved_state *saved = m->parts[k].saved;
    const int32_t bit = 1 << k;
    LATHE_TRY(check_tokens(m, k));
    if (saved->model->tied != m->saved->model->tied)
        return lathe_error(LATHE_E_CONFIG,
                           "%s and %s do not belong together: one trains the embedding or the head "
                           "of the tied model apart, and the other does not; merge one, and then "
                           "the other into the result",
                           m->parts[0].adapter, m->parts[k].adapter);
    const char *adapter = saved->parts->adapter.component->plugin->name;
    if (!LATHE_HAS(table_of(saved), merge))
        return lathe_error(LATHE_E_CONFIG,
                           "adapter \"%s\" has nothing to merge: it adds no weights of its own",
                           adapter);
    for (int32_t i = saved->params->n_model; i < saved->params->n; i++) {
        const lathe_param *row = saved->params->rows[i];
        if (row->reference)
            continue;
        const int32_t weight =
            row->stage_head ? -1 : lathe_params_weight_of(saved->params, row->name);
        if (row->stage_head && !is_score(saved, row))
            return lathe_error(LATHE_E_CONFIG,
                               "the adapter holds '%s', a head of its stage, which the model has "
                               "no place for: adapters of language models and of sequence "
                               "classifiers are merged",
                               row->name);
        if (row->stage_head) {
            m->score = i;
            continue;
        }
        if (weight < 0 && saved->model->tied)
            return lathe_error(LATHE_E_CONFIG,
                               "adapter \"%s\": '%s' changes the head alone, which is the "
                               "embedding's matrix in this model (tie_word_embeddings): it cannot "
                               "be merged; use the adapter without merging",
                               adapter, row->name);
        if (weight < 0)
            return lathe_error(LATHE_E_CONFIG,
                               "adapter \"%s\": '%s' belongs to no weight of the model", adapter,
                               row->name);
        m->n += !m->has[weight];
        m->has[weight] |= bit;
        if (lathe_answer_adds_bias(&saved->parts->adapter) && !is_of_tokens(row))
            LATHE_TRY(find_bias(m, k, weight));
    }
    for (int32_t i = 0; i < saved->params->n_model; i++) {
        m->n += saved->params->rows[i]->in_adapter && !m->has[i];
        m->has[i] |= saved->params->rows[i]->in_adapter ? bit : 0;
    }
    return LATHE_OK;
}

static lathe_status make_room(merger *m, int64_t n)
{
    if (n <= m->capacity)
        return LATHE_OK;
    free(m->w);
    free(m->sum);
    free(m->base);
    free(m->read);
    m->w = malloc((size_t)n * sizeof *m->w);
    m->sum = malloc((size_t)n * sizeof *m->sum);
    m->base = malloc((size_t)n * sizeof *m->base);
    m->read = malloc((size_t)n * 8); /* the widest dtype of a file */
    m->capacity = m->w && m->sum && m->base && m->read ? n : 0;
    return m->capacity ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory to merge a weight");
}

/* Reads the base's weight from its file, as f32 [out, in]. */
static lathe_status read_weight(merger *m, int32_t index)
{
    const lathe_param *row = m->saved->params->rows[index];
    const int64_t n = lathe_desc_count(&row->desc);
    const int32_t dtype = lathe_weight_origin_dtype(m->origin, index);
    LATHE_TRY(make_room(m, n));
    LATHE_TRY(lathe_weight_origin_read(m->origin, index, 0, m->read, n * lathe_dtype_bytes(dtype)));
    if (lathe_weights_is_turned(row))
        return lathe_weights_turn(row, 0, m->w, LATHE_F32, m->read, dtype);
    return lathe_convert(m->w, LATHE_F32, m->read, dtype, n);
}

/* Merges one adapter into m->w, which is the base's weight. */
static lathe_status merge_one(merger *m, int32_t k, int32_t index)
{
    const lathe_saved_state *saved = m->parts[k].saved;
    const lathe_param *row = saved->params->rows[index];
    if (row->in_adapter) /* it replaces the model's */
        LATHE_TRY(lathe__adapter_file_values(saved, index, m->w));
    if (row->in_adapter && !(m->adds[index] >> k & 1))
        return LATHE_OK;
    if (row->loftq_steps > 0) /* the adapter belongs to the quantized weight */
        LATHE_TRY(lathe_weight_decode(saved->store, index, m->w));
    return lathe__merge_site(saved->store, &saved->parts->adapter, saved->model, index, m->w);
}

/* sum = W + the sum of weight_k (W_k - W), where W_k is W with adapter k. */
static lathe_status merge_several(merger *m, int32_t index)
{
    const int64_t n = lathe_desc_count(&m->saved->params->rows[index]->desc);
    memcpy(m->base, m->w, (size_t)n * sizeof *m->w);
    memcpy(m->sum, m->w, (size_t)n * sizeof *m->w);
    for (int32_t k = 0; k < m->n_parts; k++) {
        const double by = m->parts[k].weight;
        if (!(m->has[index] >> k & 1))
            continue;
        memcpy(m->w, m->base, (size_t)n * sizeof *m->w);
        LATHE_TRY(merge_one(m, k, index));
        for (int64_t i = 0; i < n; i++)
            m->sum[i] = (float)((double)m->sum[i] + by * ((double)m->w[i] - (double)m->base[i]));
    }
    return LATHE_OK;
}

/* lathe_weight_job.make */
static lathe_status make_merged(void *arg, int32_t index, const float **out)
{
    merger *m = arg;
    /* a weight whose range is looked at before the writing is made twice */
    LATHE_TRY(lathe_work_tell(m->watch, m->n_made < m->n ? m->n_made++ : m->n, m->n));
    const int is_plain = m->n_parts == 1 && m->parts[0].weight == 1.0;
    if (index == m->score) { /* not in the base */
        LATHE_TRY(make_room(m, lathe_desc_count(&m->saved->params->rows[index]->desc)));
        *out = m->w;
        return lathe__adapter_file_values(m->saved, index, m->w);
    }
    LATHE_TRY(read_weight(m, index));
    *out = is_plain || m->combine == LATHE_COMBINE_LINEAR ? m->w : m->sum;
    if (m->combine == LATHE_COMBINE_LINEAR)
        return lathe__merge_linear(m->parts, m->n_parts, m->has[index], index, m->w);
    return is_plain ? merge_one(m, 0, index) : merge_several(m, index);
}

static void say_wide(void *arg, const char *name)
{
    (void)arg;
    lathe_log(LATHE_LOG_WARN,
              "'%s' holds numbers above 65504, which fp16 does not have: it is saved in fp32",
              name);
}

/* checkpoint.save_dtype, or that of the base's tensor; of planes, the dtype that config.json names.
 */
static int32_t dtype_of(const merger *m, int32_t index)
{
    const lathe_saved_state *saved = m->saved;
    if (saved->set->save_dtype != LATHE_SAVE_AUTO)
        return saved->set->save_dtype;
    const lathe_param *row = saved->params->rows[index];
    return row->planes_on_file || row->stored ? saved->model->file_dtype
                                              : lathe_weight_origin_dtype(m->origin, index);
}

static lathe_status write_weights(merger *m, const char *dir)
{
    const lathe_saved_state *saved = m->saved;
    const int32_t n_model = saved->params->n_model;
    lathe_model_config config = *saved->model; /* its texts are borrowed */
    lathe_weight_job job = {.params = saved->params,
                            .config = saved->model,
                            .carried = m->origin,
                            .make = make_merged,
                            .arg = m};
    job.tensors = calloc((size_t)n_model + 2, sizeof *job.tensors);
    if (!job.tensors)
        return lathe_error(LATHE_E_NOMEM, "no memory for %d tensors", n_model);
    for (int32_t i = 0; i < n_model; i++)
        if (lathe_weight_origin_dtype(m->origin, i) >= 0)
            job.tensors[job.n++] = (lathe_weight_tensor){
                .param = i, .dtype = dtype_of(m, i), .origin = m->has[i] ? NULL : m->origin};
    if (m->score >= 0)
        job.tensors[job.n++] = (lathe_weight_tensor){
            .param = m->score,
            .dtype = saved->set->save_dtype != LATHE_SAVE_AUTO ? saved->set->save_dtype
                                                               : config.file_dtype};
    lathe_status status = lathe_weight_file_widen(&job, say_wide, NULL);
    config.file_dtype = lathe_weight_file_dtype(&job, saved->set->save_dtype != LATHE_SAVE_AUTO
                                                          ? saved->set->save_dtype
                                                          : config.file_dtype);
    char *plain = NULL;
    if (status == LATHE_OK && config.is_quantized)
        status = lathe_weight_origin_check_plain(m->origin);
    if (status == LATHE_OK && config.is_quantized)
        status = lathe_quant_source_forget(config.json, &plain);
    config.json = plain != NULL ? plain : config.json;
    if (status == LATHE_OK)
        status = lathe_model_config_save(&config, dir);
    if (status == LATHE_OK)
        status = lathe_weight_file_write(&job, dir, saved->set->shard_bytes);
    free(plain);
    free(job.tensors);
    return status;
}

/* Whether the adapter reads raw bytes over a model with a tokenizer, which is not that of the
 * result.
 */
static int reads_bytes(const lathe_saved_state *saved)
{
    return !saved->data->tokenizer_dir && lathe_model_has(saved->model_path, "tokenizer.json");
}

/* Warns if a later adapter has another chat template than the first one, whose files are copied. */
static lathe_status warn_of_templates(const merger *m)
{
    static const char name[] = "chat_template.jinja";
    char first[65], other[65];
    const char *path = lathe_path_join(m->saved->arena, m->parts[0].adapter, name);
    if (!path)
        return LATHE_E_NOMEM;
    if (!lathe_path_exists(path))
        return LATHE_OK;
    LATHE_TRY(lathe_sha256_file(path, first));
    for (int32_t k = 1; k < m->n_parts; k++) {
        path = lathe_path_join(m->saved->arena, m->parts[k].adapter, name);
        if (!path)
            return LATHE_E_NOMEM;
        if (!lathe_path_exists(path))
            continue;
        LATHE_TRY(lathe_sha256_file(path, other));
        if (strcmp(first, other) != 0)
            lathe_log(LATHE_LOG_WARN,
                      "%s and %s have different chat templates (%s); the new folder has that of "
                      "the first",
                      m->parts[0].adapter, m->parts[k].adapter, name);
    }
    return LATHE_OK;
}

/* `path`: the folder's name when it is complete. */
static lathe_status fill_folder(merger *m, const char *dir, const char *path)
{
    const lathe_saved_state *saved = m->saved;
    lathe_made_from from[1 + LATHE_MOST_MERGED] = {{"model", saved->model_path}};
    for (int32_t k = 0; k < m->n_parts; k++)
        from[1 + k] = (lathe_made_from){"adapter", m->parts[k].adapter};
    LATHE_TRY(write_weights(m, dir));
    if (!reads_bytes(saved))
        LATHE_TRY(lathe_tokenizer_files_copy(saved->model_path, dir));
    if (saved->data->tokenizer_dir) {
        LATHE_TRY(lathe_folder_template_yield(dir, saved->data->tokenizer_dir));
        LATHE_TRY(lathe_tokenizer_files_copy(saved->data->tokenizer_dir, dir));
    } else {
        LATHE_TRY(lathe_model_copy(m->parts[0].adapter, "chat_template.jinja", dir));
    }
    if (saved->model->wrapper != NULL)
        LATHE_TRY(lathe_tower_files_copy(saved->model_path, dir));
    LATHE_TRY(warn_of_templates(m));
    LATHE_TRY(lathe_folder_finite(dir, NULL, NULL));
    return lathe__made_folder_describe(dir, path, "merge", from, 1 + m->n_parts, NULL);
}

/* Writes the folder beside its place, and gives it its name when it is complete. */
static lathe_status write_folder(merger *m, const char *path)
{
    const char *beside = NULL;
    LATHE_TRY(lathe_new_folder_begin(m->saved->arena, path, &beside));
    return lathe_new_folder_end(fill_folder(m, beside, path), beside, path);
}

lathe_status lathe__merged_model_write(const lathe_merge_part *parts, int32_t n_parts,
                                       int32_t combine, const char *path,
                                       const lathe_work_watch *watch, int32_t *out_n)
{
    const lathe_saved_state *saved = parts[0].saved;
    lathe_safetensors *set = NULL, *decoded = NULL;
    lathe_weight_origin *origin = NULL;
    merger m = {.saved = saved,
                .parts = parts,
                .n_parts = n_parts,
                .combine = combine,
                .score = -1,
                .watch = watch};
    LATHE_TRY(lathe_new_folder_check(path));
    m.has = calloc((size_t)saved->params->n_model + 1, sizeof *m.has);
    m.adds = calloc((size_t)saved->params->n_model + 1, sizeof *m.adds);
    lathe_status status = m.has && m.adds ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory");
    for (int32_t k = 0; k < n_parts && status == LATHE_OK; k++)
        status = find_weights(&m, k);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_model_config_weights(saved->model, saved->model_path, &set)) != LATHE_OK)
        goto out;
    if (saved->model->is_quantized && (status = lathe_decoded_weights_open(
                                           set, saved->model, saved->params, &decoded)) != LATHE_OK)
        goto out;
    status = lathe_weight_origin_create(decoded != NULL ? decoded : set, saved->model,
                                        saved->params, NULL, &origin);
out:
    m.origin = origin;
    if (status == LATHE_OK)
        status = write_folder(&m, path);
    *out_n = m.n;
    lathe_weight_origin_destroy(origin);
    lathe_safetensors_close(decoded);
    lathe_safetensors_close(set);
    free(m.w);
    free(m.sum);
    free(m.base);
    free(m.read);
    free(m.has);
    free(m.adds);
    return status;
}
