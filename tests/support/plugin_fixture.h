/* Opens the plugin that the build names for a test, makes instances of it, and reads golden
 * files. */
#ifndef LATHE_TESTS_PLUGIN_FIXTURE_H
#define LATHE_TESTS_PLUGIN_FIXTURE_H

#include <criterion/criterion.h>
#include <math.h>

#include "lathe/kit/testing.h"

#ifdef LATHE_TEST_PLUGIN /* a test of several plugins opens them itself */
static inline const lathe_plugin *fixture_plugin(void)
{
    return lathe_test_open(LATHE_TEST_PLUGIN);
}
#endif

/* Reads a whole file under tests/golden/data; the caller frees it. */
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
