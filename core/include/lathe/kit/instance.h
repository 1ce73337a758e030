/* Creation and destruction of a plugin's instance: reads the values, and frees the instance.
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
 * The values are checked once, by the core, against the same schema: create() trusts them. A
 * program that calls create() by itself checks them first (lathe/kit/values_check.h). Checks across
 * fields belong in read().
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
        (void)n_values;                                                                            \
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

/* Like LATHE_INSTANCE, for an instance without keys: zero except for `host`. */
#define LATHE_INSTANCE_PLAIN(type)                                                                 \
    static lathe_status type##_create(const lathe_host *host, const lathe_value *values,           \
                                      int32_t n_values, void **out_self)                           \
    {                                                                                              \
        (void)values;                                                                              \
        (void)n_values;                                                                            \
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
