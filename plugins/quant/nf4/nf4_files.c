/* Writes and reads the JSON that bitsandbytes and transformers store beside the planes: the
 * quantization config, and the quant_state of each weight. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nf4.h"
#include "shared/quant_source.h"

void nf4_set_source_dtype(void *self, int32_t dtype)
{
    ((nf4 *)self)->source_dtype = dtype;
}

/* The dtype into which other programs decode, as torch names it: that of the weights before.
 * Lathe decodes into train.precision. */
static const char *dtype_text(const nf4 *q)
{
    return q->source_dtype == LATHE_F32   ? "float32"
           : q->source_dtype == LATHE_F16 ? "float16"
                                          : "bfloat16";
}

int64_t nf4_config_json(void *self, char *out, int64_t capacity)
{
    const nf4 *q = self;
    return snprintf(
        out, capacity > 0 ? (size_t)capacity : 0,
        "{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, \"load_in_8bit\": false, "
        "\"_load_in_4bit\": true, \"_load_in_8bit\": false, "
        "\"bnb_4bit_quant_type\": \"nf4\", \"bnb_4bit_use_double_quant\": %s, "
        "\"bnb_4bit_compute_dtype\": \"%s\", \"bnb_4bit_quant_storage\": \"uint8\", "
        "\"llm_int8_threshold\": 6.0, \"llm_int8_skip_modules\": null, "
        "\"llm_int8_enable_fp32_cpu_offload\": false, "
        "\"llm_int8_has_fp16_weight\": false}",
        q->nested ? "true" : "false", dtype_text(q));
}

int64_t nf4_weight_meta(void *self, int64_t rows, int64_t cols, const void *const *planes,
                        char *out, int64_t capacity)
{
    const nf4 *q = self;
    char nested[128] = "";
    if (q->nested)
        (void)snprintf(nested, sizeof nested,
                       ", \"nested_blocksize\": %d, \"nested_dtype\": \"float32\", "
                       "\"nested_offset\": %-24.17g",
                       NF4_NESTED_BLOCK,
                       planes != NULL ? (double)*(const float *)planes[NF4_OFFSET] : 0.0);
    return snprintf(out, capacity > 0 ? (size_t)capacity : 0,
                    "{\"quant_type\": \"nf4\", \"blocksize\": %d, \"dtype\": \"%s\", "
                    "\"shape\": [%lld, %lld]%s}",
                    NF4_BLOCK, dtype_text(q), (long long)rows, (long long)cols, nested);
}

/* The text after `"key":`, without leading spaces; NULL if the key is absent. The object is flat
 * and its strings are plain names, so searching for the quoted key is enough. */
static const char *value_of(const char *json, const char *key)
{
    char quoted[64];
    (void)snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *s = strstr(json, quoted);
    if (s == NULL)
        return NULL;
    s += strlen(quoted);
    s += strspn(s, " \t\r\n");
    return *s == ':' ? s + 1 + strspn(s + 1, " \t\r\n") : NULL;
}

static lathe_status expect_int(const nf4 *q, const char *json, const char *key, long long want)
{
    const char *s = value_of(json, key);
    if (s == NULL || strtoll(s, NULL, 10) != want)
        return lathe_fail(q->host, LATHE_E_UNSUPPORTED,
                          "nf4: quant_state has %s %.16s; expected %lld", key, s ? s : "(none)",
                          want);
    return LATHE_OK;
}

/* For blocks larger than 64: computes the scales that the file has, and repeats each for every 64
 * elements. */
static void repeat_scales(const nf4 *q, int64_t n, float offset, void *const *planes)
{
    const void *const of_file[NF4_N_PLANES] = {NULL,
                                               planes[NF4_FILE_ABSMAX],
                                               NULL,
                                               q->file_nested ? planes[NF4_FILE_NESTED_ABSMAX]
                                                              : NULL,
                                               q->file_nested ? planes[NF4_FILE_NESTED_MAP] : NULL,
                                               &offset};
    for (int64_t i = 0; q->block != NF4_BLOCK && i < nf4_blocks(n); i++)
        ((float *)planes[NF4_ABSMAX])[i] =
            nf4_scale(of_file, q->file_nested, i * NF4_BLOCK / q->block);
}

lathe_status nf4_read_meta(void *self, int64_t rows, int64_t cols, const char *meta, int64_t bytes,
                           void *const *planes)
{
    const nf4 *q = self;
    char json[1024];
    if (bytes < 2 || bytes >= (int64_t)sizeof json)
        return lathe_fail(q->host, LATHE_E_PARSE, "nf4: quant_state has %lld bytes",
                          (long long)bytes);
    memcpy(json, meta, (size_t)bytes);
    json[bytes] = '\0';
    const char *type = value_of(json, "quant_type"), *shape = value_of(json, "shape");
    const char *offset = value_of(json, "nested_offset");
    if (type == NULL || strncmp(type, "\"nf4\"", 5) != 0)
        return lathe_fail(q->host, LATHE_E_UNSUPPORTED, "nf4: quant_state has quant_type %.8s",
                          type ? type : "(none)");
    LATHE_TRY(expect_int(q, json, "blocksize", (long long)q->block));
    long long r = -1, c = -1;
    if (shape == NULL || sscanf(shape, "[ %lld , %lld ]", &r, &c) != 2 || r != rows || c != cols)
        return lathe_fail(q->host, LATHE_E_SHAPE,
                          "nf4: quant_state has shape %.32s; expected [%lld, %lld]",
                          shape ? shape : "(none)", (long long)rows, (long long)cols);
    if ((offset != NULL) != (q->file_nested != 0))
        return lathe_fail(
            q->host, LATHE_E_UNSUPPORTED,
            "nf4: the weight was stored %s double quantization; set double_quant = %s",
            offset ? "with" : "without", offset ? "true" : "false");
    if (!q->file_nested) {
        repeat_scales(q, rows * cols, 0.0f, planes);
        return LATHE_OK;
    }
    LATHE_TRY(expect_int(q, json, "nested_blocksize", NF4_NESTED_BLOCK));
    char *end;
    const float value = strtof(offset, &end);
    if (end == offset || !isfinite(value))
        return lathe_fail(q->host, LATHE_E_PARSE, "nf4: nested_offset is %.24s", offset);
    if (q->block == NF4_BLOCK)
        *(float *)planes[NF4_OFFSET] = value;
    repeat_scales(q, rows * cols, value, planes);
    return LATHE_OK;
}

/* ---- the configuration of a folder ---- */

const char *const nf4_methods[] = {"bitsandbytes", NULL};

/* The size of a layer's blocks, which only its quant_state says; 64: nothing says it. */
static int64_t block_size_of(const lathe_quant_config *config)
{
    lathe_desc desc;
    char json[1024];
    const char *meta = config->tensor(config->ctx, ".quant_state.bitsandbytes__nf4", &desc);
    const int64_t n = meta != NULL ? lathe_desc_bytes(&desc) : 0;
    if (n < 2 || n >= (int64_t)sizeof json)
        return NF4_BLOCK;
    memcpy(json, meta, (size_t)n);
    json[n] = '\0';
    const char *said = value_of(json, "blocksize");
    return said != NULL ? strtoll(said, NULL, 10) : NF4_BLOCK;
}

lathe_status nf4_read_config(const lathe_host *host, const lathe_quant_config *config,
                             lathe_value *values)
{
    if (!source_is(config, "load_in_4bit", "true"))
        return lathe_fail(host, LATHE_E_NOT_FOUND, "nf4 reads weights with load_in_4bit = true");
    LATHE_TRY(source_expect(host, config, "nf4", "bnb_4bit_quant_type", "nf4"));
    if (config->get(config->ctx, "bnb_4bit_quant_type") == NULL)
        return lathe_fail(
            host, LATHE_E_UNSUPPORTED,
            "nf4 reads weights with bnb_4bit_quant_type = nf4, and here it is absent, "
            "which means fp4");
    values[NF4_FIELD_DOUBLE_QUANT].i = source_is(config, "bnb_4bit_use_double_quant", "true");
    values[NF4_FIELD_BLOCK_SIZE].i = block_size_of(config);
    return LATHE_OK;
}
