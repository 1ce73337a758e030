/* Checks how a format is written into a model's folder and read again: quantization_config,
 * metadata tensors, and planes with values that a damaged or hostile file may hold. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"
#include "base/json/json_at.h"
#include "check/device/quant_weight.h"
#include "model/family/quant_source.h"
#include "plug/host_table.h"

enum { MAX_CONFIG = 16384 };

/* A folder with one weight. */
typedef struct folder {
    lathe__subject *s;
    json_t *config;              /* the quantization_config */
    json_t *root;                /* a config.json that holds it */
    const json_t *group;         /* the first of its config_groups; NULL: none */
    const lathe__weight *weight; /* NULL: the question is about no layer */
} folder;

static const char *get(void *ctx, const char *path)
{
    const folder *f = ctx;
    return lathe_json_scalar(&f->s->arena,
                             lathe_quant_config_at(f->root, f->group, f->config, path));
}

static const void *tensor(void *ctx, const char *suffix, lathe_desc *out)
{
    const folder *f = ctx;
    for (int32_t i = 0; f->weight != NULL && i < f->weight->n_planes; i++) {
        const lathe_plane *p = &f->weight->planes[i];
        if (p->file_suffix == NULL || strcmp(p->file_suffix, suffix) != 0)
            continue;
        *out = p->desc;
        return f->weight->data[i];
    }
    return NULL;
}

static void close_folder(folder *f)
{
    json_decref(f->root); /* NULL is allowed */
    f->root = f->config = NULL;
}

/* Opens a folder with the configuration that the instance writes. */
static lathe_status open_folder(lathe__subject *s, void *self, const lathe__weight *weight,
                                folder *out)
{
    const lathe_quant_v1 *q = s->table;
    char *text = lathe__memory(s, MAX_CONFIG);
    const int64_t n = q->config_json(self, text, MAX_CONFIG);
    *out = (folder){.s = s, .weight = weight};
    if (n < 0 || n > MAX_CONFIG)
        return lathe_error(LATHE_E_PLUGIN, "config_json returned %lld bytes for a capacity of %d",
                           (long long)n, MAX_CONFIG);
    LATHE_TRY(lathe_json_load("config_json", text, n, &out->config));
    out->root = json_pack("{s:o}", "quantization_config", out->config);
    if (out->root == NULL)
        return lathe_error(LATHE_E_NOMEM, "a configuration of %lld bytes", (long long)n);
    const json_t *groups = json_object_get(out->config, "config_groups");
    const void *first = json_object_iter((json_t *)(uintptr_t)groups);
    out->group = first != NULL ? json_object_iter_value((void *)(uintptr_t)first) : NULL;
    return LATHE_OK;
}

static int reads(const lathe_quant_v1 *q, const char *method)
{
    for (const char *const *m = q->methods; *m != NULL; m++)
        if (method != NULL && strcmp(*m, method) == 0)
            return 1;
    return 0;
}

/* Reads the folder's configuration, as that of a method, over the plugin's defaults. */
static lathe_status read_config(folder *f, const char *method, const lathe_value **out)
{
    const lathe_quant_v1 *q = f->s->table;
    const lathe_plugin *plugin = f->s->plugin;
    const lathe_quant_config config = {
        .size = (uint32_t)sizeof config, .method = method, .ctx = f, .get = get, .tensor = tensor};
    const lathe_value *defaults;
    LATHE_TRY(lathe__values_of(plugin, NULL, NULL, &f->s->arena, &defaults));
    const int64_t bytes = plugin->n_fields * (int64_t)sizeof(lathe_value);
    lathe_value *values = lathe__memory(f->s, bytes);
    memcpy(values, defaults, (size_t)bytes);
    *out = values;
    lathe_error_clear();
    return q->read_config(lathe_host_get(), &config, values);
}

/* ---- what is written is read ---- */

/* Copies what a file holds: the planes with a tensor, and the metadata, from which read_meta fills
 * in the others. */
static lathe_status copy_planes(lathe__subject *s, void *from, void *to, const lathe__weight *w,
                                lathe__weight *out)
{
    const lathe_quant_v1 *q = s->table;
    lathe_plane planes[LATHE_MAX_PLANES] = {{0}};
    *out = *w;
    if (q->planes(to, w->rows, w->cols, planes) != w->n_planes)
        return lathe_error(LATHE_E_PLUGIN, "what read_config understood has other planes");
    for (int32_t i = 0; i < w->n_planes; i++) {
        const lathe_plane *a = &w->planes[i], *b = &planes[i];
        const int64_t bytes = lathe_desc_bytes(&a->desc);
        if (a->desc.dtype != b->desc.dtype || lathe_desc_bytes(&b->desc) != bytes ||
            (a->file_suffix == NULL) != (b->file_suffix == NULL) ||
            (a->file_suffix != NULL && strcmp(a->file_suffix, b->file_suffix) != 0))
            return lathe_error(LATHE_E_PLUGIN,
                               "plane %s is another in the format that read_config understood",
                               a->name);
        out->data[i] = lathe__memory(s, bytes);
        if (a->file_suffix != NULL)
            memcpy(out->data[i], w->data[i], (size_t)bytes);
    }
    if (LATHE_HAS(q, decode_scratch) && q->decode_scratch(to, w->rows, w->cols) > 0)
        out->scratch = lathe__memory(s, q->decode_scratch(to, w->rows, w->cols));
    if (!LATHE_HAS(q, weight_meta))
        return LATHE_OK;
    const void *const *data = (const void *const *)w->data;
    const int64_t n = q->weight_meta(from, w->rows, w->cols, NULL, NULL, 0);
    if (n < 0 || n > MAX_CONFIG)
        return lathe_error(LATHE_E_PLUGIN, "weight_meta says %lld bytes", (long long)n);
    char *meta = lathe__memory(s, n);
    if (q->weight_meta(from, w->rows, w->cols, data, meta, n) != n)
        return lathe_error(LATHE_E_PLUGIN, "weight_meta says another length with planes");
    const lathe_status status = q->read_meta(to, w->rows, w->cols, meta, n, out->data);
    return status == LATHE_OK
               ? LATHE_OK
               : lathe_error_context(status, "read_meta refuses what weight_meta wrote");
}

static lathe_status own_planes_pass(lathe__subject *s, void *self, const lathe__weight *w)
{
    const lathe_quant_v1 *q = s->table;
    if (!LATHE_HAS(q, check_planes))
        return LATHE_OK;
    const lathe_status status =
        q->check_planes(self, w->rows, w->cols, (const void *const *)w->data);
    return status == LATHE_OK
               ? LATHE_OK
               : lathe_error_context(status, "check_planes refuses what encode made");
}

/* The instance that read_config understands gives the same weight from the same files. */
static lathe_status same_weight(lathe__subject *s, void *self, void *other, const lathe__weight *w)
{
    lathe__weight copy;
    void *a, *b;
    LATHE_TRY(copy_planes(s, self, other, w, &copy));
    for (int32_t i = 0; i < w->n_planes; i++)
        if (!lathe__same(w->data[i], copy.data[i], lathe_desc_bytes(&w->planes[i].desc)))
            return lathe_error(LATHE_E_PLUGIN, "read_meta gives another plane %s",
                               w->planes[i].name);
    LATHE_TRY(own_planes_pass(s, other, &copy));
    LATHE_TRY(lathe__decode_on_host(s, self, w, LATHE_F32, &a));
    LATHE_TRY(lathe__decode_on_host(s, other, &copy, LATHE_F32, &b));
    if (!lathe__same(a, b, w->rows * w->cols * 4))
        return lathe_error(LATHE_E_NUMERIC, "a weight that was read again decodes to other values");
    return LATHE_OK;
}

/* Makes the instance that read_config understands from the folder. */
static lathe_status understand(folder *f, lathe_instance *out)
{
    const lathe_value *values;
    const char *method = json_string_value(json_object_get(f->config, "quant_method"));
    if (!reads(f->s->table, method))
        return lathe_error(LATHE_E_PLUGIN,
                           "config_json writes quant_method \"%s\", which is not among methods",
                           method != NULL ? method : "(none)");
    const lathe_status status = read_config(f, method, &values);
    if (status != LATHE_OK)
        return lathe_error_context(status, "read_config refuses what config_json wrote");
    return lathe_instance_init(out, f->s->component, values);
}

static lathe_status read_back(lathe__subject *s, void *self, const lathe__weight *w)
{
    folder f = {0};
    lathe_instance other = {0};
    lathe_status status = open_folder(s, self, w, &f);
    if (status == LATHE_OK && (status = understand(&f, &other)) == LATHE_OK)
        status = same_weight(s, self, other.self, w);
    lathe_instance_fini(&other);
    close_folder(&f);
    return status;
}

static lathe_status read_back_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    static const int32_t sources[] = {LATHE_F32, LATHE_F16, LATHE_BF16};
    const lathe_quant_v1 *q = s->table;
    lathe__weight w;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, lathe__random(s, rows * cols, 3, 0.05), &w));
    for (size_t i = 0; i < (LATHE_HAS(q, set_source_dtype) ? 3 : 1); i++) {
        if (LATHE_HAS(q, set_source_dtype))
            q->set_source_dtype(self, sources[i]);
        LATHE_TRY(read_back(s, self, &w));
    }
    return LATHE_OK;
}

lathe_status lathe__codec_reads_what_it_writes(lathe__subject *s)
{
    const lathe_quant_v1 *q = s->table;
    if (!LATHE_HAS(q, methods) || !LATHE_HAS(q, config_json))
        return lathe__skip(s, "folders of this format are not read and written");
    return lathe__each_shape(s, read_back_of);
}

/* ---- metadata ---- */

static lathe_status refuses_meta(lathe__subject *s, void *self, const lathe__weight *w,
                                 const char *meta, int64_t n, const char *what)
{
    const lathe_quant_v1 *q = s->table;
    void *planes[LATHE_MAX_PLANES];
    char *copy = lathe__memory(s, n);
    memcpy(copy, meta, (size_t)n);
    for (int32_t i = 0; i < w->n_planes; i++) {
        const int64_t bytes = lathe_desc_bytes(&w->planes[i].desc);
        planes[i] = lathe__memory(s, bytes);
        memcpy(planes[i], w->data[i], (size_t)bytes);
    }
    lathe_error_clear();
    if (q->read_meta(self, w->rows, w->cols, copy, n, planes) == LATHE_OK)
        return lathe_error(LATHE_E_PLUGIN, "read_meta takes %s", what);
    return lathe_error_message()[0] != '\0'
               ? LATHE_OK
               : lathe_error(LATHE_E_PLUGIN, "read_meta refuses %s without a message", what);
}

static lathe_status meta_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const lathe_quant_v1 *q = s->table;
    lathe__weight w;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, lathe__random(s, rows * cols, 3, 0.05), &w));
    const int64_t n = q->weight_meta(self, rows, cols, NULL, NULL, 0);
    if (n < 1 || n > MAX_CONFIG)
        return lathe_error(LATHE_E_PLUGIN, "weight_meta says %lld bytes", (long long)n);
    char *meta = lathe__memory(s, n), *few = lathe__memory(s, n);
    const void *const *planes = (const void *const *)w.data;
    if (q->weight_meta(self, rows, cols, planes, meta, n) != n ||
        q->weight_meta(self, rows, cols, planes, few, n / 2) != n)
        return lathe_error(LATHE_E_PLUGIN, "weight_meta's length depends on planes or capacity");
    for (int64_t i = n / 2 + 1; i < n; i++) /* it may end what it wrote with a NUL */
        if (few[i] != 0)
            return lathe_error(LATHE_E_CORRUPT, "weight_meta wrote more than its capacity");
    LATHE_TRY(refuses_meta(s, self, &w, meta, 0, "empty metadata"));
    LATHE_TRY(refuses_meta(s, self, &w, meta, n / 2, "half of the metadata"));
    memset(few, 0xff, (size_t)n);
    return refuses_meta(s, self, &w, few, n, "metadata of bytes 0xff");
}

lathe_status lathe__codec_refuses_damaged_metadata(lathe__subject *s)
{
    const lathe_quant_v1 *q = s->table;
    if (!LATHE_HAS(q, weight_meta))
        return lathe__skip(s, "no metadata");
    return lathe__each_shape(s, meta_of);
}

/* ---- planes of a damaged file ---- */

static int is_integer(int32_t dtype)
{
    return dtype == LATHE_I8 || dtype == LATHE_U8 || dtype == LATHE_I32 || dtype == LATHE_I64;
}

/* Fills the planes of integers with a byte, plane `only` alone or all (-1). What check_planes lets
 * pass must be safe to decode. */
static lathe_status damage(lathe__subject *s, void *self, const lathe__weight *w, int32_t only,
                           int byte)
{
    const lathe_quant_v1 *q = s->table;
    lathe__weight bad = *w;
    void *out;
    for (int32_t i = 0; i < w->n_planes; i++) {
        const int64_t bytes = lathe_desc_bytes(&w->planes[i].desc);
        bad.data[i] = lathe__memory(s, bytes);
        memcpy(bad.data[i], w->data[i], (size_t)bytes);
        if (is_integer(w->planes[i].desc.dtype) && (only < 0 || only == i))
            memset(bad.data[i], byte, (size_t)bytes);
    }
    lathe_error_clear();
    const lathe_status status =
        LATHE_HAS(q, check_planes)
            ? q->check_planes(self, w->rows, w->cols, (const void *const *)bad.data)
            : LATHE_OK;
    if (status == LATHE_OK)
        return lathe__decode_on_host(s, self, &bad, LATHE_BF16, &out);
    if (status != LATHE_E_CORRUPT || lathe_error_message()[0] == '\0')
        return lathe_error(LATHE_E_PLUGIN,
                           "check_planes refuses bytes 0x%02x %s, expected LATHE_E_CORRUPT with a "
                           "message",
                           byte, lathe_status_text(status));
    return LATHE_OK;
}

static lathe_status damage_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    static const int bytes[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    lathe__weight w;
    if (rows * cols > 4096)
        return LATHE_OK;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, lathe__random(s, rows * cols, 3, 0.05), &w));
    LATHE_TRY(own_planes_pass(s, self, &w));
    for (size_t k = 0; k < sizeof bytes / sizeof *bytes; k++)
        for (int32_t only = -1; only < w.n_planes; only++)
            LATHE_TRY(damage(s, self, &w, only, bytes[k]));
    return LATHE_OK;
}

lathe_status lathe__codec_survives_damaged_planes(lathe__subject *s)
{
    return lathe__each_shape(s, damage_of);
}

/* ---- configurations of others ---- */

/* An instance that was made from a foreign configuration must be a usable one. */
static lathe_status try_values(lathe__subject *s, const lathe_value *values)
{
    const lathe_quant_v1 *q = s->table;
    lathe_plane planes[LATHE_MAX_PLANES] = {{0}};
    lathe_instance other = {0};
    lathe_error_clear();
    if (lathe_instance_init(&other, s->component, values) != LATHE_OK)
        return lathe_error_message()[0] != '\0'
                   ? LATHE_OK
                   : lathe_error(LATHE_E_PLUGIN, "create refuses without a message");
    lathe_status status = LATHE_OK;
    if (q->accepts(other.self, 64, 128) == LATHE_OK) {
        const int32_t n = q->planes(other.self, 64, 128, planes);
        if (n < 1 || n > LATHE_MAX_PLANES)
            status =
                lathe_error(LATHE_E_PLUGIN, "%d planes, expected 1 to %d", n, LATHE_MAX_PLANES);
        for (int32_t i = 0; status == LATHE_OK && i < n; i++)
            status = lathe__check_plane(&planes[i], i, 64, 128);
    }
    lathe_instance_fini(&other);
    return status;
}

/* Reads the configuration as each method of the format. */
static lathe_status try_config(folder *f)
{
    const lathe_quant_v1 *q = f->s->table;
    const lathe_plugin *plugin = f->s->plugin;
    for (const char *const *m = q->methods; *m != NULL; m++) {
        const lathe_value *values = NULL;
        const lathe_status status = read_config(f, *m, &values);
        if (status == LATHE_E_NOT_FOUND)
            continue;
        if (status != LATHE_OK && lathe_error_message()[0] == '\0')
            return lathe_error(LATHE_E_PLUGIN, "read_config refuses without a message");
        if (status != LATHE_OK)
            continue;
        int valid = 1; /* a value out of its range is refused by the core, which names the key */
        for (int32_t i = 0; i < plugin->n_fields; i++)
            valid = valid && lathe_quant_value_fits(&plugin->fields[i], &values[i]);
        if (valid)
            LATHE_TRY(try_values(f->s, values));
    }
    return LATHE_OK;
}

static int set_member(json_t *node, const char *key, size_t i, json_t *value)
{
    return json_is_array(node) ? json_array_set_new(node, i, value)
                               : json_object_set_new(node, key, value);
}

/* Reads the configuration with each of several values in place of a scalar: member `key` of an
 * object, or element i of a list. */
static lathe_status try_values_of(folder *f, json_t *node, const char *key, size_t i, json_t *value)
{
    static const char *const edits[] = {"null",       "\"nonsense\"", "\"\"", "-1",    "0",
                                        "1000000000", "1e300",        "true", "false", "{}"};
    char where[128];
    lathe_status status = LATHE_OK;
    if (key != NULL)
        (void)snprintf(where, sizeof where, "\"%s\"", key);
    else
        (void)snprintf(where, sizeof where, "element %zu of a list", i);
    json_incref(value);
    for (size_t k = 0; k < sizeof edits / sizeof *edits && status == LATHE_OK; k++) {
        json_t *edit = json_loads(edits[k], JSON_DECODE_ANY, NULL);
        if (edit == NULL || set_member(node, key, i, edit) != 0)
            status = lathe_error(LATHE_E_NOMEM, "a configuration");
        else
            status = try_config(f);
        if (status != LATHE_OK)
            status = lathe_error_context(status, "with %s as %s", edits[k], where);
    }
    if (set_member(node, key, i, value) != 0 && status == LATHE_OK)
        status = lathe_error(LATHE_E_NOMEM, "a configuration");
    return status;
}

/* Does so for each scalar below a node. */
static lathe_status try_edits(folder *f, json_t *node)
{
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_array(node)) {
        json_array_foreach(node, i, value) LATHE_TRY(json_is_object(value) || json_is_array(value)
                                                         ? try_edits(f, value)
                                                         : try_values_of(f, node, NULL, i, value));
        return LATHE_OK;
    }
    json_object_foreach(node, key, value) /* setting a key that is there keeps the order */
        LATHE_TRY(json_is_object(value) || json_is_array(value)
                      ? try_edits(f, value)
                      : try_values_of(f, node, key, 0, value));
    return LATHE_OK;
}

lathe_status lathe__codec_survives_configurations(lathe__subject *s)
{
    const lathe_quant_v1 *q = s->table;
    lathe_instance instance;
    folder f = {0};
    if (!LATHE_HAS(q, methods))
        return lathe__skip(s, "configurations of this format are not read");
    LATHE_TRY(lathe__instance(s, &instance));
    lathe_status status = LATHE_OK;
    if (LATHE_HAS(q, config_json))
        status = open_folder(s, instance.self, NULL, &f);
    if (status == LATHE_OK && LATHE_HAS(q, config_json))
        status = try_edits(&f, f.config);
    close_folder(&f);
    if (status == LATHE_OK) { /* a configuration that says nothing */
        f = (folder){.s = s, .root = json_object(), .config = NULL};
        status = try_config(&f);
        close_folder(&f);
    }
    lathe_instance_fini(&instance);
    return status;
}
