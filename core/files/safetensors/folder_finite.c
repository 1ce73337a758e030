/* Searches safetensors files for NaN and infinity. */
#include "files/safetensors/folder_finite.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "files/safetensors/safetensors.h"
#include "lathe/dtype.h"
#include "lathe/tensor.h"

/* Elements per block. The count is checked only after a block, so the inner loop has no branch and
 * can be vectorized. */
enum { BLOCK = 1 << 14 };

/* An element is not finite when all bits of its exponent are set (E4M3: all bits but the sign). */
#define DEFINE_COUNT(name, type, mask)                                                             \
    static int64_t name(const void *data, int64_t n)                                               \
    {                                                                                              \
        const uint8_t *bytes = data;                                                               \
        int64_t bad = 0;                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                          \
            type x;                                                                                \
            memcpy(&x, bytes + i * (int64_t)sizeof x, sizeof x);                                   \
            bad += (x & (type)(mask)) == (type)(mask);                                             \
        }                                                                                          \
        return bad;                                                                                \
    }

DEFINE_COUNT(count_f64, uint64_t, 0x7ff0000000000000u)
DEFINE_COUNT(count_f32, uint32_t, 0x7f800000u)
DEFINE_COUNT(count_bf16, uint16_t, 0x7f80u)
DEFINE_COUNT(count_f16, uint16_t, 0x7c00u)
DEFINE_COUNT(count_e5m2, uint8_t, 0x7cu)
DEFINE_COUNT(count_e4m3, uint8_t, 0x7fu)

typedef int64_t (*count_fn)(const void *data, int64_t n);

/* NULL: the dtype is an integer type. */
static count_fn count_of(int32_t dtype)
{
    switch (dtype) {
    case LATHE_F64:
        return count_f64;
    case LATHE_F32:
        return count_f32;
    case LATHE_BF16:
        return count_bf16;
    case LATHE_F16:
        return count_f16;
    case LATHE_F8_E5M2:
        return count_e5m2;
    case LATHE_F8_E4M3:
        return count_e4m3;
    default:
        return NULL;
    }
}

/* Value of an element that is not finite: NaN, or infinity with its sign. */
static double value_of(const uint8_t *at, int32_t dtype)
{
    float f;
    double d;
    uint16_t half;
    switch (dtype) {
    case LATHE_F64:
        memcpy(&d, at, sizeof d);
        return isnan(d) ? (double)NAN : d;
    case LATHE_F32:
        memcpy(&f, at, sizeof f);
        return isnan(f) ? (double)NAN : (double)f;
    case LATHE_BF16:
    case LATHE_F16:
        memcpy(&half, at, sizeof half);
        f = dtype == LATHE_F16 ? lathe_f16_to_f32(half) : lathe_bf16_to_f32(half);
        return isnan(f) ? (double)NAN : (double)f;
    default:
        return (double)NAN;
    }
}

static void look(const lathe_st_tensor *t, lathe_not_finite *out)
{
    const count_fn count = count_of(t->desc.dtype);
    const int64_t size = lathe_dtype_bytes(t->desc.dtype);
    const uint8_t *data = t->data;
    *out = (lathe_not_finite){t->file, t->name, 0, lathe_desc_count(&t->desc), -1, 0.0};
    for (int64_t at = 0; count && at < out->n; at += BLOCK) {
        const int64_t n = out->n - at < BLOCK ? out->n - at : BLOCK;
        const int64_t bad = count(data + at * size, n);
        out->n_bad += bad;
        if (bad == 0 || out->first >= 0)
            continue;
        out->first = at;
        while (count(data + out->first * size, 1) == 0)
            out->first++;
        out->value = value_of(data + out->first * size, t->desc.dtype);
    }
}

typedef struct search {
    const char *dir;
    lathe_not_finite_fn report;
    void *arg;
    lathe_status status; /* LATHE_E_NUMERIC once something was found */
} search;

static void found(search *s, const lathe_not_finite *f)
{
    const size_t n = strlen(s->dir);
    const char *file =
        strncmp(f->file, s->dir, n) == 0 && f->file[n] == '/' ? f->file + n + 1 : f->file;
    if (s->status == LATHE_OK)
        s->status = lathe_error(
            LATHE_E_NUMERIC,
            "'%s' in %s holds %lld of %lld values that are not finite, the first %g at "
            "%lld",
            f->tensor, file, (long long)f->n_bad, (long long)f->n, f->value, (long long)f->first);
    if (s->report)
        s->report(s->arg, f);
}

static lathe_status search_file(search *s, const char *path)
{
    lathe_safetensors *set = NULL;
    LATHE_TRY(lathe_safetensors_open_all(path, &set));
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        lathe_not_finite f;
        look(lathe_safetensors_at(set, i), &f);
        if (f.n_bad > 0)
            found(s, &f);
    }
    const lathe_status status = lathe_safetensors_check(set);
    lathe_safetensors_close(set);
    return status;
}

/* 1: a safetensors file that must contain only finite numbers. */
static int counts(const char *path)
{
    static const char end[] = ".safetensors", gradients[] = "/state/gradients";
    const size_t n = strlen(path), n_end = sizeof end - 1;
    return n > n_end && strcmp(path + n - n_end, end) == 0 && strstr(path, gradients) == NULL;
}

lathe_status lathe_folder_finite(const char *dir, lathe_not_finite_fn report, void *arg)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char **paths = NULL;
    int64_t n = 0;
    search s = {.dir = dir, .report = report, .arg = arg, .status = LATHE_OK};
    lathe_status status = lathe_dir_walk(dir, &arena, &paths, &n);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++)
        if (counts(paths[i]))
            status = search_file(&s, paths[i]);
    lathe_arena_fini(&arena);
    return status == LATHE_OK ? s.status : status;
}
