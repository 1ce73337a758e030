/* Test support for plugins, without the core: a single-threaded host table on plain libc, and
 * instances made from the schema's defaults. Header only; include it in one file of a test program.
 *
 *     int main(int argc, char **argv)                     argv[1]: the .so
 *     {
 *         const lathe_plugin *plugin = lathe_test_open(argv[1]);
 *         void *self;
 *         LATHE_CHECK(lathe_test_create(plugin, "lr=0.1 momentum=0", &self) == LATHE_OK);
 *         ...
 *         return lathe_test_failures != 0;
 *     }
 */
#ifndef LATHE_KIT_TESTING_H
#define LATHE_KIT_TESTING_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/kit/values_check.h"
#include "lathe/plugin.h"

#define LATHE_TEST_MAX_FIELDS 64

__attribute__((unused)) static int lathe_test_failures;
static int64_t lathe_test_allocs;    /* calls of host->alloc: a step must not change it */
static char lathe_test_message[512]; /* of the last host->fail or fail_at */
__attribute__((unused)) static char lathe_test_key[64]; /* of the last host->fail_at */

/* If `condition` is false: prints file, line and condition, and counts a failure. */
#define LATHE_CHECK(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,                    \
                    lathe_test_message);                                                           \
            lathe_test_failures++;                                                                 \
        }                                                                                          \
    } while (0)

static inline void lathe_test_log(int32_t level, const char *message)
{
    (void)level;
    fprintf(stderr, "%s\n", message);
}

static inline void lathe_test_warn_at(const char *key, const char *message)
{
    (void)key;
    lathe_test_log(LATHE_LOG_WARN, message);
}

static inline lathe_status lathe_test_fail(lathe_status code, const char *message)
{
    snprintf(lathe_test_message, sizeof lathe_test_message, "%s", message);
    lathe_test_key[0] = '\0';
    return code;
}

static inline lathe_status lathe_test_fail_at(lathe_status code, const char *key,
                                              const char *message)
{
    (void)lathe_test_fail(code, message);
    snprintf(lathe_test_key, sizeof lathe_test_key, "%s", key);
    return code;
}

/* Runs the last chunk first, so that a test notices a result that depends on the order of
 * chunks. */
static inline void lathe_test_parallel_for(int64_t n, int64_t grain, lathe_range_fn fn, void *arg)
{
    const int64_t step = grain < 1 ? 1 : grain;
    for (int64_t chunk = (n + step - 1) / step - 1; chunk >= 0; chunk--)
        fn(arg, chunk * step, (chunk + 1) * step < n ? (chunk + 1) * step : n, 0);
}

static inline int32_t lathe_test_threads(void)
{
    return 1;
}

static inline void *lathe_test_alloc(int64_t bytes)
{
    const size_t rounded = ((size_t)bytes + 63) / 64 * 64;
    void *const memory = aligned_alloc(64, rounded);
    lathe_test_allocs++;
    return memory != NULL ? memset(memory, 0, rounded) : NULL;
}

/* The table may be changed before an instance is made: it has no patterns and no eigenvectors, and
 * a test of a plugin that needs them sets them. */
static inline lathe_host *lathe_test_host(void)
{
    static lathe_host host = {.size = (uint32_t)sizeof(lathe_host),
                              .abi_minor = LATHE_ABI_MINOR,
                              .log = lathe_test_log,
                              .warn_at = lathe_test_warn_at,
                              .fail = lathe_test_fail,
                              .fail_at = lathe_test_fail_at,
                              .alloc = lathe_test_alloc,
                              .free = free,
                              .parallel_for = lathe_test_parallel_for,
                              .n_threads = lathe_test_threads};
    return &host;
}

/** Loads a plugin and returns its entry; ends the program if this fails. */
static inline const lathe_plugin *lathe_test_open(const char *path)
{
    void *const handle = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const lathe_plugin *const plugin =
        handle != NULL ? (const lathe_plugin *)dlsym(handle, LATHE_PLUGIN_ENTRY_NAME) : NULL;
    if (plugin == NULL || plugin->abi_major != LATHE_ABI_MAJOR) {
        fprintf(stderr, "%s: %s\n", path != NULL ? path : "no plugin named",
                plugin != NULL ? "built for another ABI" : dlerror());
        exit(2);
    }
    return plugin;
}

/* Reads `text` as a value of field f: a TOML literal, strings with or without quotes. Lists stay
 * empty. */
static inline void lathe_test_value(lathe_value *v, const lathe_field *f, const char *text)
{
    v->type = f->type;
    v->is_set = 1;
    v->f = strtod(text, NULL);
    v->i = f->type == LATHE_T_BOOL ? strncmp(text, "true", 4) == 0 : (int64_t)v->f;
    if (f->type == LATHE_T_STRING || f->type == LATHE_T_TABLE) {
        const char *const from = text + (*text == '"');
        const size_t length = strcspn(from, "\"");
        char *const copy = (char *)calloc(1, length + 1);
        memcpy(copy, from, length);
        v->s = copy; /* never freed, because instances borrow it */
    }
}

/* The values of the last instance; instances borrow them, so they are never freed. */
static lathe_value *lathe_test_values;

/** Calls create() with the defaults, changed by `settings` ("key=value key=value"). Returns its
 *  status; its message is in lathe_test_message. LATHE_OK with *out_self NULL if the plugin has
 *  no create. */
static inline lathe_status lathe_test_create(const lathe_plugin *plugin, const char *settings,
                                             void **out_self)
{
    lathe_value *const values = (lathe_value *)calloc(LATHE_TEST_MAX_FIELDS, sizeof *values);
    char text[512];
    *out_self = NULL;
    lathe_test_values = values;
    for (int32_t k = 0; k < plugin->n_fields; k++) {
        values[k].type = plugin->fields[k].type;
        if (plugin->fields[k].default_value != NULL)
            lathe_test_value(&values[k], &plugin->fields[k], plugin->fields[k].default_value);
    }
    snprintf(text, sizeof text, "%s", settings);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
        const size_t length = strcspn(word, "=");
        int32_t k = 0;
        while (k < plugin->n_fields && (strncmp(plugin->fields[k].key, word, length) != 0 ||
                                        plugin->fields[k].key[length] != '\0'))
            k++;
        if (k == plugin->n_fields || word[length] != '=') {
            fprintf(stderr, "%s: no field for '%s'\n", plugin->name, word);
            exit(2);
        }
        lathe_test_value(&values[k], &plugin->fields[k], word + length + 1);
        values[k].is_explicit = 1;
    }
    lathe_test_message[0] = '\0';
    if (plugin->create == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_values_check(lathe_test_host(), plugin->name, plugin->fields, plugin->n_fields,
                                 values, plugin->n_fields));
    return plugin->create(lathe_test_host(), values, plugin->n_fields, out_self);
}

#endif
