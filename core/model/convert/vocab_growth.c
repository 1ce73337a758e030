/* Adds tokens to a tokenizer and rows to a model. */
#include "model/convert/vocab_growth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/json/json_cut.h"
#include "base/model_path.h"
#include "base/new_folder.h"
#include "base/utf8.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/st_writer.h"
#include "lathe/kit/json_text.h"
#include "lathe/rng.h"
#include "model/family/weight_tensor.h"
#include "model/family/weights.h"
#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/json/tokenizer_file.h"
#include "tokenizer/json/tokenizer_json.h"

#define SHARD_BYTES ((int64_t)5 * 1000 * 1000 * 1000)
#define NOISE 1e-9 /* share of the rows' covariance, as in transformers */

enum { MAX_GROWN = 3, PART_BYTES = 1 << 22 };

/* A tensor with a row for each token. */
typedef struct grown_tensor {
    const lathe_st_tensor *tensor;
    double *mean, *deviation; /* [cols] of the old rows */
    int64_t cols;
    uint64_t stream; /* of the noise; tensors that are one matrix have the same */
} grown_tensor;

typedef struct growing {
    const char *folder;
    const lathe_vocab_growth *growth;
    const lathe_work_watch *watch;
    lathe_model_config config;
    lathe_safetensors *set;
    lathe_tokenizer *tok;
    int32_t *ids;     /* [growth->n] ids of the tokens */
    uint8_t *is_new;  /* [growth->n] 1: it was no added token */
    int64_t n_tokens; /* size of the new vocabulary */
    lathe_vocab_grown *out;
    grown_tensor tensors[MAX_GROWN];
    int32_t n_tensors;
} growing;

/* ---- the tokens ---- */

static lathe_status check_tokens(const lathe_vocab_growth *g)
{
    for (int32_t i = 0; i < g->n; i++) {
        const int64_t n = (int64_t)strlen(g->tokens[i]);
        if (n == 0 || lathe_utf8_prefix((const uint8_t *)g->tokens[i], n) != n)
            return lathe_error(LATHE_E_ARG, "token %d is empty or not UTF-8", i + 1);
        for (int32_t k = 0; k < i; k++)
            if (strcmp(g->tokens[i], g->tokens[k]) == 0)
                return lathe_error(LATHE_E_ARG, "token \"%s\" is named twice", g->tokens[i]);
    }
    if (g->n == 0 && g->multiple_of <= 1)
        return lathe_error(LATHE_E_ARG, "no tokens to add; expected a token, or a multiple of 2 or "
                                        "more for the number of rows (--pad-to-multiple-of N)");
    return LATHE_OK;
}

/* The id of a token that the tokenizer has under this text, -1: none. The vocabulary of the short
 * route is kept as bytes, and in the file " the" is written otherwise: such a text is none of its
 * tokens there. */
static int32_t known_id(const lathe_tokenizer *tok, const char *text, int64_t n)
{
    const int32_t id = lathe_tokenizer_id(tok, text, n);
    if (id < 0 || lathe_tokenizer_is_added(tok, id) || tok->kind != LATHE_TOKENIZER_BPE)
        return id;
    for (int64_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] >= 0x7f)
            return -1;
    return id;
}

/* New tokens have the ids after all that the tokenizer has. */
static lathe_status number_tokens(growing *r)
{
    const lathe_vocab_growth *g = r->growth;
    r->ids = calloc((size_t)g->n + 1, sizeof *r->ids);
    r->is_new = calloc((size_t)g->n + 1, 1);
    if (r->ids == NULL || r->is_new == NULL)
        return lathe_error(LATHE_E_NOMEM, "new tokens");
    r->n_tokens = lathe_tokenizer_vocab_size(r->tok);
    for (int32_t i = 0; i < g->n; i++) {
        const int64_t n = (int64_t)strlen(g->tokens[i]);
        const int32_t known = known_id(r->tok, g->tokens[i], n);
        r->is_new[i] = known < 0 || !lathe_tokenizer_is_added(r->tok, known);
        r->ids[i] = known >= 0 ? known : (int32_t)r->n_tokens++;
        r->out->n_added += r->is_new[i];
        r->out->n_known += !r->is_new[i];
    }
    r->out->rows_before = r->config.vocab;
    const int64_t rows = r->n_tokens > r->config.vocab ? r->n_tokens : r->config.vocab;
    const int64_t m = g->multiple_of > 1 ? g->multiple_of : 1;
    r->out->rows = (rows + m - 1) / m * m;
    return LATHE_OK;
}

static json_t *describe(const growing *r, int32_t i, int with_id)
{
    const int plain = r->growth->are_plain;
    json_t *one =
        json_pack("{s:s, s:b, s:b, s:b, s:b, s:b}", "content", r->growth->tokens[i], "single_word",
                  0, "lstrip", 0, "rstrip", 0, "normalized", plain, "special", !plain);
    if (with_id && json_object_set_new(one, "id", json_integer(r->ids[i])) != 0) {
        json_decref(one);
        return NULL;
    }
    return one;
}

static int by_id(const void *a, const void *b)
{
    const json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "id"));
    const json_int_t y = json_integer_value(json_object_get(*(json_t *const *)b, "id"));
    return x < y ? -1 : x > y;
}

/* Puts the tokens that only the files beside tokenizer.json name, at all[*n] and on. They have the
 * next free ids at each load, so without their ids in tokenizer.json the new tokens would get
 * these. Returns 1 without memory. */
static int put_beside(const growing *r, json_t **all, size_t *n)
{
    const json_t *beside = lathe_tokenizer_beside(r->tok);
    int failed = 0;
    for (size_t i = 0; i < json_array_size(beside) && !failed; i++) {
        const json_t *entry = json_array_get(beside, i);
        if (!json_is_true(json_object_get(entry, "is_new")))
            continue;
        all[*n] = json_deep_copy(entry);
        failed = all[*n] == NULL;
        (void)json_object_del(all[*n], "is_new");
        *n += !failed;
    }
    return failed;
}

/* added_tokens of the tree with the new ones, by id, as JSON text. */
static lathe_status list_added(const growing *r, const json_t *tree, lathe_buffer *out)
{
    const json_t *old = json_object_get(tree, "added_tokens");
    const size_t n_old = json_array_size(old),
                 n_beside = json_array_size(lathe_tokenizer_beside(r->tok));
    json_t **all = calloc(n_old + n_beside + (size_t)r->growth->n + 1, sizeof *all);
    size_t n = 0;
    int failed = all == NULL;
    for (size_t i = 0; i < n_old && !failed; i++)
        all[n++] = json_incref(json_array_get(old, i));
    failed = failed || put_beside(r, all, &n);
    for (int32_t i = 0; i < r->growth->n && !failed; i++) {
        if (!r->is_new[i])
            continue;
        all[n] = describe(r, i, 1);
        failed = all[n] == NULL;
        n += !failed;
    }
    if (!failed && n > 1)
        qsort(all, n, sizeof *all, by_id);
    for (size_t i = 0; i < n; i++) {
        char *text = failed ? NULL : json_dumps(all[i], JSON_COMPACT);
        lathe_buffer_printf(out, "%s\n    %s", i > 0 ? "," : "", text ? text : "");
        failed = failed || text == NULL;
        free(text);
        json_decref(all[i]);
    }
    free(all);
    return failed ? lathe_error(LATHE_E_NOMEM, "new tokens") : out->status;
}

/* Puts "added_tokens" first and leaves all other bytes as they are. */
static lathe_status write_tokenizer(const growing *r, const char *to, lathe_arena *arena)
{
    const char *path = lathe_path_join(arena, to, "tokenizer.json");
    char *text = NULL;
    json_t *tree = NULL;
    lathe_buffer out = LATHE_BUFFER_INIT;
    int64_t n = 0, n_merges = 0, from = 0, end = 0;
    lathe_status status = path ? LATHE_OK : LATHE_E_NOMEM;
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_model_read(r->folder, "tokenizer.json", 0, &text, &n)) != LATHE_OK)
        goto out;
    if ((status = lathe__tokenizer_tree("tokenizer.json", text, n, &tree, &n_merges)) != LATHE_OK)
        goto out;
    const char *brace = memchr(text, '{', (size_t)n); /* it was read, so it is an object */
    if (!lathe_json_cut(text, n, "added_tokens", &from, &end))
        from = end = brace - text + 1;
    lathe_buffer_puts(&out, "{\n  \"added_tokens\": [");
    if ((status = list_added(r, tree, &out)) != LATHE_OK)
        goto out;
    lathe_buffer_puts(&out, "\n  ],");
    lathe_buffer_append(&out, brace + 1, from - (brace - text + 1));
    lathe_buffer_append(&out, text + end, n - end);
    status = out.status != LATHE_OK ? out.status : lathe_file_write_atomic(path, out.data, out.len);
out:
    json_decref(tree);
    free(text);
    lathe_buffer_fini(&out);
    return status;
}

/* transformers takes the added tokens of tokenizer_config.json where it lists them by id. */
static lathe_status write_decoder(const growing *r, const char *to, lathe_arena *arena)
{
    const char *path = lathe_path_join(arena, to, "tokenizer_config.json");
    json_t *config = NULL;
    if (path == NULL)
        return LATHE_E_NOMEM;
    if (!lathe_path_exists(path))
        return LATHE_OK;
    LATHE_TRY(lathe_json_load_file(path, &config));
    json_t *decoder = json_object_get(config, "added_tokens_decoder");
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; json_is_object(decoder) && i < r->growth->n && status == LATHE_OK; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "%d", r->ids[i]);
        if (r->is_new[i] && json_object_set_new(decoder, id, describe(r, i, 0)) != 0)
            status = lathe_error(LATHE_E_NOMEM, "new tokens");
    }
    char *text = status == LATHE_OK ? json_dumps(config, JSON_INDENT(2)) : NULL;
    if (text != NULL)
        status = lathe_file_write_atomic(path, text, (int64_t)strlen(text));
    else if (status == LATHE_OK)
        status = lathe_error(LATHE_E_NOMEM, "tokenizer_config.json");
    free(text);
    json_decref(config);
    return status;
}

/* ---- the rows ---- */

static lathe_status add_tensor(growing *r, const char *name, uint64_t stream)
{
    const lathe_st_tensor *t = name ? lathe_weights_find(r->set, &r->config, name) : NULL;
    if (name == NULL)
        return LATHE_OK;
    for (int32_t i = 0; i < r->n_tensors; i++)
        if (r->tensors[i].tensor == t)
            return LATHE_OK;
    const int is_float =
        t != NULL && t->header == NULL && t->decode == NULL &&
        (t->desc.dtype == LATHE_F32 || t->desc.dtype == LATHE_BF16 || t->desc.dtype == LATHE_F16);
    if (!is_float || t->desc.rank < 1 || t->desc.dims[0] != r->config.vocab)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: %s is not stored as %lld rows of plain numbers, so no row can be "
                           "added; add the tokens to the model before it is quantized",
                           r->folder, name, (long long)r->config.vocab);
    r->tensors[r->n_tensors++] = (grown_tensor){
        .tensor = t, .cols = lathe_desc_count(&t->desc) / t->desc.dims[0], .stream = stream};
    return LATHE_OK;
}

/* Mean and deviation of each column, over all rows. */
static lathe_status measure(growing *r, grown_tensor *g)
{
    const int64_t rows = r->config.vocab, cols = g->cols;
    float *row = malloc((size_t)cols * sizeof *row);
    g->mean = calloc((size_t)cols, sizeof *g->mean);
    g->deviation = calloc((size_t)cols, sizeof *g->deviation);
    lathe_status status = row && g->mean && g->deviation
                              ? LATHE_OK
                              : lathe_error(LATHE_E_NOMEM, "the mean of %s", g->tensor->name);
    for (int pass = 0; pass < 2; pass++) {
        double *sum = pass ? g->deviation : g->mean;
        for (int64_t i = 0; i < rows && status == LATHE_OK; i++) {
            status = lathe_st_read(g->tensor, i * cols, cols, row, LATHE_F32);
            for (int64_t j = 0; j < cols && status == LATHE_OK; j++) {
                const double x = pass ? (double)row[j] - g->mean[j] : (double)row[j];
                sum[j] += pass ? x * x : x;
            }
        }
        for (int64_t j = 0; j < cols && status == LATHE_OK; j++)
            sum[j] = pass ? sqrt(sum[j] / (double)rows) : sum[j] / (double)rows;
    }
    free(row);
    return status;
}

/* Row i as `init` says; the noise depends on the seed, the tensor's stream and the element. */
static void new_row(const growing *r, const grown_tensor *g, int64_t i, float *out)
{
    for (int64_t j = 0; j < g->cols; j++) {
        double x = g->mean[j];
        if (r->growth->init == LATHE_GROWTH_NOISE) {
            const lathe_u32x4 w =
                lathe_rng_block(r->growth->seed, 0, g->stream, (uint64_t)(i * g->cols + j));
            const double u = lathe_uniform_f64(w.v[0], w.v[1]),
                         v = lathe_uniform_f64(w.v[2], w.v[3]);
            x += sqrt(NOISE) * g->deviation[j] * sqrt(-2.0 * log(1.0 - u)) *
                 cos(6.283185307179586 * v);
        }
        out[j] = (float)x;
    }
}

/* Whether a row begins anew: one beyond those that were there, whichever token it belongs to, or
 * that of a token with a new id. */
static int is_fresh(const growing *r, int64_t row)
{
    if (row >= r->config.vocab)
        return 1;
    for (int32_t i = 0; i < r->growth->n; i++)
        if (r->ids[i] == row)
            return row >= lathe_tokenizer_vocab_size(r->tok);
    return 0;
}

static lathe_status write_grown(growing *r, const grown_tensor *g, int64_t index,
                                lathe_st_writer *w)
{
    const int64_t bytes = g->cols * lathe_dtype_bytes(g->tensor->desc.dtype);
    float *row = malloc((size_t)g->cols * sizeof *row);
    void *narrow = malloc((size_t)bytes);
    lathe_status status =
        row && narrow ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "rows of %s", g->tensor->name);
    for (int64_t i = 0; i < r->out->rows && status == LATHE_OK; i++) {
        const char *data = (const char *)g->tensor->data + i * bytes;
        if (is_fresh(r, i)) {
            new_row(r, g, i, row);
            status = lathe_convert(narrow, g->tensor->desc.dtype, row, LATHE_F32, g->cols);
            data = narrow;
        }
        if (status == LATHE_OK)
            status = lathe_st_writer_write(w, index, i * bytes, data, bytes);
    }
    free(row);
    free(narrow);
    return status;
}

static const grown_tensor *grown_of(const growing *r, const lathe_st_tensor *t)
{
    for (int32_t k = 0; k < r->n_tensors; k++)
        if (strcmp(r->tensors[k].tensor->name, t->name) == 0)
            return &r->tensors[k];
    return NULL;
}

static lathe_status copy_tensor(const growing *r, const lathe_st_tensor *t, int64_t index,
                                int64_t *done, lathe_st_writer *w)
{
    const int64_t bytes = lathe_desc_bytes(&t->desc);
    for (int64_t at = 0; at < bytes; at += PART_BYTES) {
        const int64_t part = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
        LATHE_TRY(lathe_work_tell(r->watch, *done + at, 0));
        LATHE_TRY(lathe_st_writer_write(w, index, at, (const char *)t->data + at, part));
    }
    *done += bytes;
    return LATHE_OK;
}

static lathe_status write_weights(growing *r, const char *to)
{
    const int64_t n = lathe_safetensors_count(r->set);
    lathe_st_writer *w = NULL;
    int64_t done = 0;
    LATHE_TRY(lathe_st_writer_create(to, "model", SHARD_BYTES, &w));
    lathe_status status = LATHE_OK;
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(r->set, i);
        lathe_desc desc = t->desc;
        if (grown_of(r, t) == NULL) {
            status = lathe_st_writer_add_copy(w, t);
            continue;
        }
        desc.dims[0] = r->out->rows;
        status = lathe_st_writer_add(w, t->name, &desc);
    }
    if (status == LATHE_OK)
        status = lathe_st_writer_begin(w);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(r->set, i);
        const grown_tensor *g = grown_of(r, t);
        status = g ? write_grown(r, g, i, w) : copy_tensor(r, t, i, &done, w);
    }
    if (status == LATHE_OK)
        status = lathe_safetensors_check(r->set);
    if (status == LATHE_OK)
        status = lathe_st_writer_finish(w);
    lathe_st_writer_destroy(w);
    return status;
}

/* Puts vocab_size first into an object that lacks it; *at moves after its brace. */
static void put_size(lathe_chars object, int64_t rows, const char **at, lathe_buffer *out)
{
    const char *brace = object.data;
    lathe_json_members members = lathe_json_open(object);
    const int is_empty = !lathe_json_next(&members);
    lathe_buffer_append(out, *at, brace + 1 - *at);
    lathe_buffer_printf(out, "\n  \"vocab_size\": %lld%s", (long long)rows, is_empty ? "\n" : ",");
    *at = brace + 1;
}

/* Appends text[0, n), a config.json, with the new vocab_size, which the text model of several has
 * in text_config. All other bytes stay as they are: other numbers keep their digits. */
static void put_config(const char *text, int64_t n, int64_t rows, lathe_buffer *out)
{
    lathe_chars all = {text, n};
    const char *at = text;
    lathe_json__skip(&all, 0);
    const lathe_chars part = lathe_json_get(all, "text_config");
    const int has_part = lathe_json_kind(part) == LATHE_JSON_OBJECT;
    const lathe_chars own = lathe_json_get(all, "vocab_size"),
                      inner = lathe_json_get(part, "vocab_size");
    const int is_first = inner.data == NULL || (own.data != NULL && own.data < inner.data);
    const lathe_chars sizes[2] = {is_first ? own : inner, is_first ? inner : own};
    for (int i = 0; i < 2; i++) {
        if (sizes[i].data == NULL)
            continue;
        lathe_buffer_append(out, at, sizes[i].data - at);
        lathe_buffer_printf(out, "%lld", (long long)rows);
        at = sizes[i].data + sizes[i].bytes;
    }
    if (at == text)
        put_size(has_part ? part : all, rows, &at, out);
    lathe_buffer_append(out, at, text + n - at);
}

static lathe_status write_config(const growing *r, const char *to, lathe_arena *arena)
{
    const char *path = lathe_path_join(arena, to, "config.json");
    lathe_buffer out = LATHE_BUFFER_INIT;
    char *text = NULL;
    int64_t n = 0;
    if (path == NULL)
        return LATHE_E_NOMEM;
    lathe_status status = lathe_model_read(r->folder, "config.json", 0, &text, &n);
    if (status != LATHE_OK)
        goto out;
    put_config(text, n, r->out->rows, &out);
    status = out.status != LATHE_OK ? out.status : lathe_file_write_atomic(path, out.data, out.len);
out:
    free(text);
    lathe_buffer_fini(&out);
    return status;
}

static lathe_status fill_folder(growing *r, const char *to, lathe_arena *arena)
{
    LATHE_TRY(lathe_tokenizer_files_copy(r->folder, to));
    LATHE_TRY(lathe_tower_files_copy(r->folder, to));
    LATHE_TRY(write_decoder(r, to, arena));
    LATHE_TRY(write_tokenizer(r, to, arena));
    LATHE_TRY(write_weights(r, to));
    return write_config(r, to, arena);
}

static int is_stored(const growing *r, const char *name)
{
    return name != NULL && lathe_weights_find(r->set, &r->config, name) != NULL;
}

/* A file may hold the head of a tied model, too: it must stay equal to the embedding, so it grows
 * with it, with the embedding's noise. */
static lathe_status add_heads(growing *r)
{
    const int tied = r->config.tied;
    if (!tied || is_stored(r, r->config.head))
        LATHE_TRY(add_tensor(r, r->config.head, tied ? 0 : 1));
    if (!tied || is_stored(r, r->config.head_bias))
        LATHE_TRY(add_tensor(r, r->config.head_bias, 2));
    return LATHE_OK;
}

static lathe_status open_all(growing *r, const lathe_model_source *source)
{
    LATHE_TRY(check_tokens(r->growth));
    if (lathe_path_is_gguf(r->folder))
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s is a GGUF file; expected a folder: lathe convert makes one of it",
                           r->folder);
    LATHE_TRY(lathe_model_config_load(source, r->folder, &r->config));
    LATHE_TRY(lathe_tokenizer_load(r->folder, &r->tok));
    LATHE_TRY(number_tokens(r));
    LATHE_TRY(lathe_safetensors_open_all(r->folder, &r->set));
    LATHE_TRY(add_tensor(r, r->config.embedding, 0));
    if (r->config.n_labels == 0)
        LATHE_TRY(add_heads(r));
    for (int32_t i = 0; i < r->n_tensors; i++)
        LATHE_TRY(measure(r, &r->tensors[i]));
    return LATHE_OK;
}

lathe_status lathe_vocab_grow(const lathe_model_source *source, const char *folder,
                              const char *path, const lathe_vocab_growth *growth,
                              const lathe_work_watch *watch, lathe_vocab_grown *out)
{
    growing r = {.folder = folder, .growth = growth, .watch = watch, .out = out};
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *beside = NULL;
    *out = (lathe_vocab_grown){0, 0, 0, 0};
    lathe_status status = lathe_new_folder_check(path);
    if (status != LATHE_OK)
        goto out;
    if ((status = open_all(&r, source)) != LATHE_OK)
        goto out;
    if ((status = lathe_new_folder_begin(&arena, path, &beside)) != LATHE_OK)
        goto out;
    status = lathe_new_folder_end(fill_folder(&r, beside, &arena), beside, path);
out:
    for (int32_t i = 0; i < r.n_tensors; i++) {
        free(r.tensors[i].mean);
        free(r.tensors[i].deviation);
    }
    free(r.ids);
    free(r.is_new);
    lathe_safetensors_close(r.set);
    lathe_tokenizer_destroy(r.tok);
    lathe_model_config_fini(&r.config);
    lathe_arena_fini(&arena);
    return status;
}
