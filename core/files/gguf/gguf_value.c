/* Values of keys in GGUF files as C types. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "files/gguf/gguf_file.h"

static const char *type_name(const lathe_gguf_entry *v)
{
    static const char *const names[] = {"u8",   "i8",   "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "text", "array", "u64", "i64", "f64"};
    return v->is_array ? "array" : names[v->type];
}

static lathe_status refuse(const lathe_gguf *file, const lathe_gguf_entry *v, const char *expected)
{
    return lathe_error(LATHE_E_CONFIG, "%s: the key %s is of type %s; expected %s",
                       lathe_gguf_path(file), v->key, type_name(v), expected);
}

/* Reads an integer; returns 0 if it is of another type, or beyond 63 bits. */
static int as_int(const lathe_gguf_entry *v, int64_t *out)
{
    uint64_t wide = 0;
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 0, 0, 0, 0, 8, 8, 0};
    const int n = bytes[v->type];
    if (v->is_array || n == 0)
        return 0;
    memcpy(&wide, v->data, (size_t)n);
    const int is_signed = v->type == LATHE_GGUF_I8 || v->type == LATHE_GGUF_I16 ||
                          v->type == LATHE_GGUF_I32 || v->type == LATHE_GGUF_I64;
    if (is_signed && n < 8 && (wide >> (8 * n - 1)) != 0)
        wide |= ~(uint64_t)0 << (8 * n);
    if (!is_signed && wide > INT64_MAX)
        return 0;
    memcpy(out, &wide, 8);
    return 1;
}

lathe_status lathe_gguf_int(const lathe_gguf *file, const char *key, int64_t lo, int64_t hi,
                            int64_t missing, int64_t *out)
{
    const lathe_gguf_entry *v = lathe_gguf_value(file, key);
    *out = missing;
    if (v == NULL)
        return LATHE_OK;
    int64_t seen;
    if (!as_int(v, &seen))
        return refuse(file, v, "a whole number");
    if (seen < lo || seen > hi)
        return lathe_error(LATHE_E_CONFIG, "%s: the key %s is %lld; expected %lld to %lld",
                           lathe_gguf_path(file), key, (long long)seen, (long long)lo,
                           (long long)hi);
    *out = seen;
    return LATHE_OK;
}

lathe_status lathe_gguf_float(const lathe_gguf *file, const char *key, double missing, double *out)
{
    const lathe_gguf_entry *v = lathe_gguf_value(file, key);
    *out = missing;
    if (v == NULL)
        return LATHE_OK;
    if (v->is_array || (v->type != LATHE_GGUF_FLOAT && v->type != LATHE_GGUF_DOUBLE))
        return refuse(file, v, "f32");
    if (v->type == LATHE_GGUF_FLOAT)
        *out = (double)lathe_gguf_float_at(v, 0);
    else
        memcpy(out, v->data, 8);
    if (!isfinite(*out))
        return lathe_error(LATHE_E_CONFIG, "%s: the key %s is not finite", lathe_gguf_path(file),
                           key);
    return LATHE_OK;
}

lathe_status lathe_gguf_bool(const lathe_gguf *file, const char *key, int32_t missing, int32_t *out)
{
    const lathe_gguf_entry *v = lathe_gguf_value(file, key);
    *out = missing;
    if (v == NULL)
        return LATHE_OK;
    if (v->is_array || v->type != LATHE_GGUF_BOOL)
        return refuse(file, v, "bool");
    *out = v->data[0];
    return LATHE_OK;
}

lathe_status lathe_gguf_text(const lathe_gguf *file, const char *key, const char **out,
                             int64_t *out_bytes)
{
    const lathe_gguf_entry *v = lathe_gguf_value(file, key);
    *out = NULL;
    *out_bytes = 0;
    if (v == NULL)
        return LATHE_OK;
    if (v->is_array || v->type != LATHE_GGUF_TEXT)
        return refuse(file, v, "text");
    const uint8_t *at = v->data;
    *out = lathe_gguf_next_text(&at, out_bytes);
    return LATHE_OK;
}

lathe_status lathe_gguf_array(const lathe_gguf *file, const char *key, int32_t type,
                              const lathe_gguf_entry **out)
{
    const lathe_gguf_entry *v = lathe_gguf_value(file, key);
    *out = v;
    if (v == NULL || (v->is_array && v->type == type))
        return LATHE_OK;
    *out = NULL;
    if (v->is_array)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: the key %s is an array of another type than llama.cpp writes",
                           lathe_gguf_path(file), key);
    return refuse(file, v, "array");
}

const char *lathe_gguf_next_text(const uint8_t **at, int64_t *out_bytes)
{
    memcpy(out_bytes, *at, 8);
    const char *text = (const char *)*at + 8;
    *at += 8 + *out_bytes;
    return text;
}

float lathe_gguf_float_at(const lathe_gguf_entry *array, int64_t i)
{
    float out;
    memcpy(&out, array->data + 4 * i, 4);
    return out;
}

int32_t lathe_gguf_int_at(const lathe_gguf_entry *array, int64_t i)
{
    int32_t out;
    memcpy(&out, array->data + 4 * i, 4);
    return out;
}
