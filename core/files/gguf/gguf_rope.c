/* Reads rotary frequencies: rope_theta and rope_scaling from keys and tensors of GGUF. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/gguf/gguf_codec.h"
#include "files/gguf/gguf_config.h"

#define MAX_ROPE_DIMS 1024 /* as in model/family/rope_config.h */
#define PI 3.14159265358979323846

double lathe__gguf_short_float(double x)
{
    char text[32];
    for (int digits = 6; digits < 10; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtof(text, NULL) == (float)x)
            return strtod(text, NULL);
    }
    return x;
}

void lathe__gguf_llama3_factors(double theta, int64_t dims, double factor, double low, double high,
                                double original, float *out)
{
    for (int64_t i = 0; i < dims / 2; i++) {
        const double wave = 2.0 * PI * pow(theta, (double)(2 * i) / (double)dims);
        if (wave < original / high) {
            out[i] = 1.0f;
        } else if (wave > original / low) {
            out[i] = (float)factor;
        } else {
            const double smooth = (original / wave - low) / (high - low);
            out[i] = (float)(1.0 / ((1.0 - smooth) / factor + smooth));
        }
    }
}

static float *read_factors(const lathe_gguf_tensor *t)
{
    float *out = malloc((size_t)(t->rows * t->cols) * sizeof *out);
    if (out != NULL)
        lathe_gguf_decode(t->type, t->data, t->rows * t->cols, out);
    return out;
}

static json_t *factor_list(const lathe_gguf_tensor *t)
{
    json_t *list = json_array();
    float *values = read_factors(t);
    for (int64_t i = 0; values != NULL && i < t->cols; i++)
        json_array_append_new(list, json_real(lathe__gguf_short_float((double)values[i])));
    free(values);
    return list;
}

static int is_close(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5f * fabsf(b[i])))
            return 0;
    return 1;
}

/* Finds the settings of rope_type llama3 that give the factors: the file has only these. */
static json_t *find_llama3(const float *seen, int64_t n, double theta)
{
    static const double lows[] = {1, 2, 4, 0.5}, highs[] = {4, 8, 2, 16, 32};
    float made[MAX_ROPE_DIMS];
    double factor = 0.0;
    for (int64_t i = 0; i < n; i++)
        factor = (double)seen[i] > factor ? (double)seen[i] : factor;
    for (int original = 16; original <= 1 << 20; original *= 2)
        for (size_t l = 0; l < sizeof lows / sizeof lows[0]; l++)
            for (size_t h = 0; h < sizeof highs / sizeof highs[0]; h++) {
                if (highs[h] <= lows[l])
                    continue;
                lathe__gguf_llama3_factors(theta, 2 * n, factor, lows[l], highs[h], original, made);
                if (is_close(made, seen, n))
                    return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor",
                                     lathe__gguf_short_float(factor), "low_freq_factor", lows[l],
                                     "high_freq_factor", highs[h],
                                     "original_max_position_embeddings", original);
            }
    return NULL;
}

static lathe_status add_llama3(const lathe_gguf *file, const lathe_gguf_tensor *t, double theta,
                               json_t *config)
{
    float *seen = t->cols <= MAX_ROPE_DIMS / 2 && t->rows == 1 ? read_factors(t) : NULL;
    json_t *scaling = seen != NULL ? find_llama3(seen, t->cols, theta) : NULL;
    free(seen);
    if (scaling == NULL)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: the factors in rope_freqs.weight are not those of rope_type llama3 "
                           "with usual settings, so no config.json has them",
                           lathe_gguf_path(file));
    json_object_set_new(config, "rope_scaling", scaling);
    return LATHE_OK;
}

static lathe_status add_yarn(const lathe_gguf_family *family, const lathe_gguf *file,
                             json_t *scaling)
{
    static const struct {
        const char *gguf, *folder;
    } names[] = {{"rope.scaling.yarn_beta_fast", "beta_fast"},
                 {"rope.scaling.yarn_beta_slow", "beta_slow"},
                 {"rope.scaling.yarn_attn_factor", "attention_factor"}};
    char key[96];
    int64_t original;
    LATHE_TRY(lathe_gguf_int(
        file, lathe__gguf_key(family, "rope.scaling.original_context_length", key, sizeof key), 1,
        INT32_MAX, 0, &original));
    if (original > 0)
        json_object_set_new(scaling, "original_max_position_embeddings", json_integer(original));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        double x;
        LATHE_TRY(lathe_gguf_float(file, lathe__gguf_key(family, names[i].gguf, key, sizeof key),
                                   0.0, &x));
        if (x > 0.0)
            json_object_set_new(scaling, names[i].folder, json_real(lathe__gguf_short_float(x)));
    }
    return LATHE_OK;
}

/* rope_scaling for linear and yarn. */
static lathe_status add_scaling(const lathe_gguf_family *family, const lathe_gguf *file,
                                const char *type, json_t *config)
{
    char key[96];
    double factor;
    LATHE_TRY(lathe_gguf_float(
        file, lathe__gguf_key(family, "rope.scaling.factor", key, sizeof key), 0.0, &factor));
    if (factor <= 0.0)
        return lathe_error(LATHE_E_CONFIG, "%s: the key %s.rope.scaling.factor is missing",
                           lathe_gguf_path(file), family->arch);
    json_t *scaling =
        json_pack("{s:s, s:f}", "rope_type", type, "factor", lathe__gguf_short_float(factor));
    if (scaling == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a configuration");
    json_object_set_new(config, "rope_scaling", scaling);
    return strcmp(type, "yarn") == 0 ? add_yarn(family, file, scaling) : LATHE_OK;
}

static lathe_status add_longrope(const lathe_gguf_family *family, const lathe_gguf *file,
                                 const lathe_gguf_tensor *long_factors, json_t *config)
{
    char key[96];
    int64_t original;
    const lathe_gguf_tensor *short_factors = lathe_gguf_find(file, "rope_factors_short.weight");
    LATHE_TRY(lathe_gguf_int(
        file, lathe__gguf_key(family, "rope.scaling.original_context_length", key, sizeof key), 1,
        INT32_MAX, 0, &original));
    /* it follows from the two lengths, from which it is computed here */
    (void)lathe_gguf_value(file,
                           lathe__gguf_key(family, "rope.scaling.attn_factor", key, sizeof key));
    if (short_factors == NULL || original == 0)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: rope_factors_long.weight without rope_factors_short.weight or "
                           "%s.rope.scaling.original_context_length",
                           lathe_gguf_path(file), family->arch);
    json_object_set_new(config, "original_max_position_embeddings", json_integer(original));
    json_object_set_new(config, "rope_scaling",
                        json_pack("{s:s, s:o, s:o}", "type", "longrope", "long_factor",
                                  factor_list(long_factors), "short_factor",
                                  factor_list(short_factors)));
    return LATHE_OK;
}

/* The channels of a head that are rotated. */
static lathe_status add_dims(const lathe_gguf_family *family, const lathe_gguf *file,
                             int64_t head_dim, json_t *config)
{
    char key[96];
    int64_t dims;
    LATHE_TRY(lathe_gguf_int(file, lathe__gguf_key(family, "rope.dimension_count", key, sizeof key),
                             2, head_dim, head_dim, &dims));
    if (dims == head_dim && !family->partial_rope)
        return LATHE_OK;
    if (!family->partial_rope)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: the key %s is %lld, but heads have %lld channels: no model of this "
                           "architecture rotates a part of them",
                           lathe_gguf_path(file), key, (long long)dims, (long long)head_dim);
    json_object_set_new(config, "partial_rotary_factor",
                        json_real((double)dims / (double)head_dim));
    return LATHE_OK;
}

lathe_status lathe__gguf_rope_read(const lathe_gguf_family *family, const lathe_gguf *file,
                                   int64_t head_dim, json_t *config)
{
    char key[96];
    const char *type;
    int64_t n;
    double theta, local;
    const lathe_gguf_tensor *freqs = lathe_gguf_find(file, "rope_freqs.weight");
    const lathe_gguf_tensor *factors = lathe_gguf_find(file, "rope_factors_long.weight");
    LATHE_TRY(add_dims(family, file, head_dim, config));
    LATHE_TRY(lathe_gguf_float(file, lathe__gguf_key(family, "rope.freq_base", key, sizeof key),
                               10000.0, &theta));
    json_object_set_new(config, "rope_theta", json_real(lathe__gguf_short_float(theta)));
    LATHE_TRY(lathe_gguf_float(file, lathe__gguf_key(family, "rope.freq_base_swa", key, sizeof key),
                               strcmp(family->arch, "gemma3") == 0 ? 10000.0 : theta, &local));
    if (strcmp(family->model_type, "gemma3_text") == 0)
        json_object_set_new(config, "rope_local_base_freq",
                            json_real(lathe__gguf_short_float(local)));
    if (strcmp(family->model_type, "olmo3") == 0)
        json_object_set_new(config, "rope_parameters",
                            json_pack("{s:{s:s, s:f}, s:{s:s, s:f}}", "sliding_attention",
                                      "rope_type", "default", "rope_theta",
                                      lathe__gguf_short_float(local), "full_attention", "rope_type",
                                      "default", "rope_theta", lathe__gguf_short_float(theta)));
    LATHE_TRY(lathe_gguf_text(file, lathe__gguf_key(family, "rope.scaling.type", key, sizeof key),
                              &type, &n));
    const int is_none = type == NULL || (n == 4 && memcmp(type, "none", 4) == 0);
    const int is_longrope = !is_none && n == 8 && memcmp(type, "longrope", 8) == 0;
    if ((factors != NULL || freqs != NULL) && !is_none && !is_longrope)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: the key %s is \"%.*s\" beside a tensor of factors of the "
                           "frequencies; Lathe applies one of them",
                           lathe_gguf_path(file), key, (int)(n < 40 ? n : 40), type);
    if (factors != NULL)
        return add_longrope(family, file, factors, config);
    if (freqs != NULL)
        return add_llama3(file, freqs, theta, config);
    if (is_none)
        return LATHE_OK;
    if (n == 6 && memcmp(type, "linear", 6) == 0)
        return add_scaling(family, file, "linear", config);
    if (n == 4 && memcmp(type, "yarn", 4) == 0)
        return add_scaling(family, file, "yarn", config);
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "%s: the key %s is \"%.*s\"; expected none, linear or yarn",
                       lathe_gguf_path(file), key, (int)(n < 40 ? n : 40), type);
}
