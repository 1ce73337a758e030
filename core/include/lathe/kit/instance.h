/* Creation and destruction of a plugin's instance: checks the values against the schema, reads
 * them, and frees the instance.
 *
 *     typedef struct lion {
 *         const lathe_host *host;   -- first, or the first member of the first member
 *         double lr;
 *     } lion;
 *     static const lathe_field fields[] = {...};
 *     static lathe_status lion_read(const lathe_host *host, lion *out, const lathe_value *values);
 *     LATHE_INSTANCE(lion, lion_read)      -- defines lion_create and lion_destroy
 *     const lathe_plugin LATHE_PLUGIN_ENTRY = {LATHE_PLUGIN_LIFE(lion), .kind = ..., ...};
 *
 * * The core has already checked the values against the same schema. Other callers of the C
 * interface may not have done so, so values out of range are refused here too. Checks across fields
 * belong in read().
 */
#ifndef LATHE_KIT_INSTANCE_H
#define LATHE_KIT_INSTANCE_H

#include <string.h>

#include "lathe/plugin.h"

/** Index of `text` among the words of "a|b|c"; -1 when it is none of them. */
static inline int32_t lathe_choice(const char *words, const char *text)
{
    const size_t n = text != NULL ? strlen(text) : 0;
    for (int32_t i = 0; n > 0; i++) {
        const char *const end = strchr(words, '|');
        const size_t length = end != NULL ? (size_t)(end - words) : strlen(words);
        if (length == n && strncmp(words, text, n) == 0)
            return i;
        if (end == NULL)
            break;
        words = end + 1;
    }
    return -1;
}

/** Checks one number against its field's range; NaN fails. */
static inline lathe_status lathe_value_check_number(const lathe_host *host, const lathe_field *f,
                                                    double x)
{
    const int low = f->flags & LATHE_FIELD_MIN_EXCLUSIVE ? x > f->min : x >= f->min;
    const int high = f->flags & LATHE_FIELD_MAX_EXCLUSIVE ? x < f->max : x <= f->max;
    if (f->min > f->max ? x == x : low && high)
        return LATHE_OK;
    return lathe_fail(host, LATHE_E_CONFIG, "%s is %g, expected %s%g to %g%s", f->key, x,
                      f->flags & LATHE_FIELD_MIN_EXCLUSIVE ? "more than " : "", f->min, f->max,
                      f->flags & LATHE_FIELD_MAX_EXCLUSIVE ? " (exclusive)" : "");
}

/** Checks all values against the schema: count, presence, ranges, choices. LATHE_E_CONFIG names
 *  the key. */
static inline lathe_status lathe_values_check(const lathe_host *host, const char *name,
                                              const lathe_field *fields, int32_t n_fields,
                                              const lathe_value *values, int32_t n_values)
{
    if (n_values != n_fields)
        return lathe_fail(host, LATHE_E_ARG, "%s takes %d values, got %d", name, n_fields,
                          n_values);
    for (int32_t k = 0; k < n_fields; k++) {
        const lathe_field *const f = &fields[k];
        const lathe_value *const v = &values[k];
        if (!v->is_set) {
            if (f->flags & LATHE_FIELD_REQUIRED)
                return lathe_fail(host, LATHE_E_CONFIG, "%s must be set", f->key);
            continue;
        }
        if (f->type == LATHE_T_INT || f->type == LATHE_T_FLOAT)
            LATHE_TRY(
                lathe_value_check_number(host, f, f->type == LATHE_T_INT ? (double)v->i : v->f));
        if (f->type == LATHE_T_STRING && f->choices != NULL && lathe_choice(f->choices, v->s) < 0)
            return lathe_fail(host, LATHE_E_CONFIG, "%s is \"%s\", expected one of %s", f->key,
                              v->s != NULL ? v->s : "", f->choices);
    }
    return LATHE_OK;
}

#define LATHE_N_FIELDS(list) ((int32_t)(sizeof(list) / sizeof((list)[0])))

/* Defines type##_destroy for an instance that begins with its host. */
#define LATHE_INSTANCE_FREED(type)                                                                 \
    static void type##_destroy(void *self)                                                         \
    {                                                                                              \
        if (self != NULL)                                                                          \
            (*(const lathe_host **)self)->free(self);                                              \
    }

/* Defines type##_create. read: lathe_status (const lathe_host *, type *, const lathe_value *);
 * it gets an instance that is zero except for `host`. */
#define LATHE_INSTANCE_MADE(type, read)                                                            \
    static lathe_status type##_create(const lathe_host *host, const lathe_value *values,           \
                                      int32_t n_values, void **out_self)                           \
    {                                                                                              \
        LATHE_TRY(                                                                                 \
            lathe_values_check(host, #type, fields, LATHE_N_FIELDS(fields), values, n_values));    \
        type *const self = host->alloc((int64_t)sizeof *self);                                     \
        if (self == NULL)                                                                          \
            return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of " #type);         \
        *(const lathe_host **)(void *)self = host;                                                 \
        const lathe_status status = read(host, self, values);                                      \
        if (status != LATHE_OK) {                                                                  \
            host->free(self);                                                                      \
            return status;                                                                         \
        }                                                                                          \
        *out_self = self;                                                                          \
        return LATHE_OK;                                                                           \
    }

/* Defines type##_create and type##_destroy. */
#define LATHE_INSTANCE(type, read)                                                                 \
    LATHE_INSTANCE_MADE(type, read)                                                                \
    LATHE_INSTANCE_FREED(type)

/* The same for an instance without keys: zero except for `host`. */
#define LATHE_INSTANCE_PLAIN(type)                                                                 \
    static lathe_status type##_create(const lathe_host *host, const lathe_value *values,           \
                                      int32_t n_values, void **out_self)                           \
    {                                                                                              \
        LATHE_TRY(lathe_values_check(host, #type, NULL, 0, values, n_values));                     \
        type *const self = host->alloc((int64_t)sizeof *self);                                     \
        if (self == NULL)                                                                          \
            return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of " #type);         \
        *(const lathe_host **)(void *)self = host;                                                 \
        *out_self = self;                                                                          \
        return LATHE_OK;                                                                           \
    }                                                                                              \
    LATHE_INSTANCE_FREED(type)

/* Initializers of lathe_plugin for type##_create, type##_destroy and type##_table, and for a
 * schema named `fields`. */
#define LATHE_PLUGIN_LIFE_PLAIN(type)                                                              \
    LATHE_PLUGIN_HEADER, .name = #type, .table = &type##_table, .create = type##_create,           \
                         .destroy = type##_destroy
#define LATHE_PLUGIN_FIELDS .n_fields = LATHE_N_FIELDS(fields), .fields = fields
#define LATHE_PLUGIN_LIFE(type) LATHE_PLUGIN_LIFE_PLAIN(type), LATHE_PLUGIN_FIELDS

#endif
