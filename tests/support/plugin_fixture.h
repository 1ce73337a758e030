/* A plugin under test without the core: a host that runs chunks backwards and counts allocations, and
 * instances from key=value text. Ranges are left to the plugin's create. */
#ifndef LATHE_TESTS_PLUGIN_FIXTURE_H
#define LATHE_TESTS_PLUGIN_FIXTURE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/plugin.h"
#include "mock_plugin.h"

#define FIXTURE_INSTANCES 16

static char fixture_error[512];
static int64_t fixture_allocs;

static void fixture_log(int32_t level, const char *message)
{
    (void)level, (void)message;
}

static lathe_status fixture_fail(lathe_status code, const char *message)
{
    snprintf(fixture_error, sizeof fixture_error, "%s", message);
    return code;
}

static void fixture_parallel_for(int64_t n, int64_t grain, lathe_range_fn fn, void *arg)
{
    if (grain < 1)
        grain = 1;
    /* last chunk first: a result that leans on the order of chunks shows */
    for (int64_t chunk = (n + grain - 1) / grain - 1; chunk >= 0; chunk--)
        fn(arg, chunk * grain, (chunk + 1) * grain < n ? (chunk + 1) * grain : n, 0);
}

static int32_t fixture_threads(void)
{
    return 1;
}

static void *fixture_alloc(int64_t bytes)
{
    const size_t rounded = ((size_t)bytes + 63) / 64 * 64;
    void *const p = aligned_alloc(64, rounded);
    if (p != NULL)
        memset(p, 0, rounded);
    fixture_allocs++;
    return p;
}

static const lathe_host fixture_host = {
    .size = (uint32_t)sizeof(lathe_host),
    .log = fixture_log,
    .fail = fixture_fail,
    .parallel_for = fixture_parallel_for,
    .n_threads = fixture_threads,
    .alloc = fixture_alloc,
    .free = free,
};

static inline const lathe_plugin *fixture_plugin(void)
{
    return mock_plugin_open(LATHE_TEST_PLUGIN);
}

/* create() with "key=value key=value"; what is not named gets its default. */
static inline lathe_status fixture_create(const lathe_plugin *plugin, const char *settings,
                                          void **out)
{
    /* borrowed by the instance */
    static lathe_value values[FIXTURE_INSTANCES][MOCK_MAX_FIELDS];
    static char texts[FIXTURE_INSTANCES][512];
    static int n_instances;
    const int which = n_instances++ % FIXTURE_INSTANCES;
    mock_defaults(plugin, values[which]);
    snprintf(texts[which], sizeof texts[0], "%s", settings);
    char *rest = NULL;
    for (char *word = strtok_r(texts[which], " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        char *const text = strchr(word, '=');
        cr_assert(text != NULL, "'%s' is not key=value", word);
        *text = 0;
        lathe_value *const v = mock_value(plugin, values[which], word);
        cr_assert(v != NULL, "%s has no field '%s'", plugin->name, word);
        v->s = text + 1;
        v->f = strtod(text + 1, NULL);
        v->i = v->type == LATHE_T_BOOL ? strcmp(text + 1, "true") == 0 : (int64_t)v->f;
    }
    *out = NULL;
    fixture_error[0] = 0;
    return plugin->create(&fixture_host, values[which], plugin->n_fields, out);
}

/* A file under tests/golden/data, whole; the caller frees it. */
static inline void *fixture_golden(const char *name, int64_t *out_bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/golden/data/%s", LATHE_TEST_DATA, name);
    FILE *const f = fopen(path, "rb");
    cr_assert(f != NULL, "cannot open %s", path);
    fseek(f, 0, SEEK_END);
    const long bytes = ftell(f);
    rewind(f);
    void *const data = malloc((size_t)bytes + 1);
    cr_assert(data != NULL && fread(data, 1, (size_t)bytes, f) == (size_t)bytes);
    fclose(f);
    *out_bytes = bytes;
    return data;
}

#endif
