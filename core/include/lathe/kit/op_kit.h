/* Helpers for op plugins: elements in f32 whatever their dtype is, checks of shapes, scores, and
 * the macro that defines the plugin's entry.
 *
 * The first member of an instance is its host (lathe/kit/instance.h).
 */
#ifndef LATHE_KIT_OP_KIT_H
#define LATHE_KIT_OP_KIT_H

#include <stdio.h>

#include "instance.h"
#include "lathe/dtype.h"
#include "lathe/op_plugin.h"

/** The host of an instance, which is its first member. */
static inline const lathe_host *lathe_op_host(const void *self)
{
    return *(const lathe_host *const *)self;
}

/** Whether it is a compute dtype: f32, bf16 or f16. */
static inline int32_t lathe_op_computes(int32_t dtype)
{
    return dtype == LATHE_F32 || dtype == LATHE_BF16 || dtype == LATHE_F16;
}

static inline int32_t lathe_op_is_given(const lathe_desc *d)
{
    return d->dtype != LATHE_ABSENT;
}

/** Whether d is absent, or a vector of n elements of a dtype. */
static inline int32_t lathe_op_is_vector(const lathe_desc *d, int32_t dtype, int64_t n)
{
    return !lathe_op_is_given(d) || (d->dtype == dtype && d->rank == 1 && d->dims[0] == n);
}

/** out[j] = element i + j of a tensor of a compute dtype, for j < n. */
static inline void lathe_op_read(const void *from, int32_t dtype, int64_t i, int64_t n, float *out)
{
    if (dtype == LATHE_F32)
        memcpy(out, (const float *)from + i, (size_t)n * sizeof *out);
    else if (dtype == LATHE_BF16)
        for (int64_t j = 0; j < n; j++)
            out[j] = lathe_bf16_to_f32(((const uint16_t *)from)[i + j]);
    else
        for (int64_t j = 0; j < n; j++)
            out[j] = lathe_f16_to_f32(((const uint16_t *)from)[i + j]);
}

/** Element i + j = x[j] for j < n, or += x[j] if `adds`; the sum is rounded once. */
static inline void lathe_op_write(void *to, int32_t dtype, int64_t i, int64_t n, const float *x,
                                  int32_t adds)
{
    float *const wide = (float *)to + i;
    uint16_t *const narrow = (uint16_t *)to + i;
    if (dtype == LATHE_F32)
        for (int64_t j = 0; j < n; j++)
            wide[j] = adds ? wide[j] + x[j] : x[j];
    else if (dtype == LATHE_BF16)
        for (int64_t j = 0; j < n; j++)
            narrow[j] = lathe_f32_to_bf16(adds ? lathe_bf16_to_f32(narrow[j]) + x[j] : x[j]);
    else
        for (int64_t j = 0; j < n; j++)
            narrow[j] = lathe_f32_to_f16(adds ? lathe_f16_to_f32(narrow[j]) + x[j] : x[j]);
}

/** The end of score(). With a refusal `no`: writes it into `why`, and gives LATHE_SCORE_NO. */
static inline int32_t lathe_op_scored(const char *no, int32_t fitness, char *why, int64_t why_bytes)
{
    if (why != NULL && why_bytes > 0)
        (void)snprintf(why, (size_t)why_bytes, "%s", no != NULL ? no : "it takes this problem");
    return no != NULL ? LATHE_SCORE_NO : fitness;
}

/** score() of a kernel that takes every problem whose shapes the op accepts, on any device that
 *  the core asks it for. */
static inline int32_t lathe_op_score_portable(void *self, const lathe_op_call *call, char *why,
                                              int64_t why_bytes)
{
    (void)self;
    (void)call;
    return lathe_op_scored(NULL, LATHE_SCORE_PORTABLE, why, why_bytes);
}

#define LATHE_OP_COUNT(list) ((int32_t)(sizeof(list) / sizeof((list)[0])))

/* Members of lathe_op_v1: its head, and the lists `inputs`, `outputs` and `tests`. */
#define LATHE_OP_HEADER .size = (uint32_t)sizeof(lathe_op_v1), .revision = LATHE_OP_REVISION
#define LATHE_OP_LISTS                                                                             \
    .n_in = LATHE_OP_COUNT(inputs), .n_out = LATHE_OP_COUNT(outputs), .inputs = inputs,            \
    .outputs = outputs, .tests = tests, .n_tests = LATHE_OP_COUNT(tests)

/* Defines the plugin's entry from type##_table, type##_create and type##_destroy. ...: .version,
 * .summary, .source, .license, and LATHE_PLUGIN_FIELDS if it has attributes. */
#define LATHE_OP_ENTRY(type, ...)                                                                  \
    const lathe_plugin LATHE_PLUGIN_ENTRY = {LATHE_PLUGIN_LIFE_PLAIN(type), .kind = LATHE_KIND_OP, \
                                             .revision = LATHE_OP_REVISION, __VA_ARGS__}

#endif
