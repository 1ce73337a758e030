/* Runs the conformance suite and records what failed. Include it in one file of a program. */
#ifndef LATHE_TEST_CONFORMANCE_LOG_H
#define LATHE_TEST_CONFORMANCE_LOG_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "check/harness/subject.h"
#include "check/kinds/conformance.h"
#include "lathe/device.h"
#include "plug/kind.h"
#include "plug/so.h"

/* oneDNN allocates while it multiplies, which test_step_allocations reports. Under a sanitizer the
 * core's counter is used instead. */
#ifndef __SANITIZE_ADDRESS__
#include "support/heap_counter.h"

static inline int64_t count_blocks(void)
{
    return atomic_load(&heap_counts[FROM_LATHE]);
}
#endif

typedef struct log {
    char check[64];
    char failed[4096]; /* names of failed checks, each followed by its reason */
} log;

static inline void begin(void *arg, const char *check)
{
    (void)snprintf(((log *)arg)->check, sizeof((log *)arg)->check, "%s", check);
}

static inline void end(void *arg, int32_t result, const char *text)
{
    log *l = arg;
    const size_t n = strlen(l->failed);
    if (result == LATHE_CHECK_FAILED)
        (void)snprintf(l->failed + n, sizeof l->failed - n, "%s: %s\n", l->check, text);
}

static inline lathe_conformance_totals run(const lathe_component *component,
                                           const lathe_component *device, log *l)
{
    const lathe_report report = {begin, end, l};
    const lathe_conformance_setup setup = {.device = device};
    lathe_conformance_totals totals;
    *l = (log){0};
#ifndef __SANITIZE_ADDRESS__
    lathe_conformance_heap = count_blocks;
    atomic_store(&heap_counting, 1);
#endif
    cr_assert_eq(lathe_conformance_run(component, &setup, &report, &totals), LATHE_OK, "%s",
                 lathe_error_message());
    return totals;
}

/* Checks that a fixture fails exactly the checks in `expected`, separated by blanks. */
static inline void fails_exactly(const char *folder, int32_t kind, const char *name,
                                 const lathe_component *device, const char *expected)
{
    char path[512];
    lathe_component component = {.path = path};
    log l;
    (void)snprintf(path, sizeof path, "%s/tests/%s/%s/%s.so", LATHE_TEST_BUILD, folder,
                   lathe_kind_name(kind), name);
    cr_assert_eq(lathe_so_open(path, kind, name, NULL, &component.plugin), LATHE_OK, "%s",
                 lathe_error_message());
    const lathe_conformance_totals totals = run(&component, device, &l);
    int32_t n = 0;
    char words[512];
    (void)snprintf(words, sizeof words, "%s", expected);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "), n++)
        cr_expect_not_null(strstr(l.failed, word), "%s: %s passed; failed:\n%s", name, word,
                           l.failed);
    cr_expect_eq(totals.failed, n, "%s: %d checks failed:\n%s", name, totals.failed, l.failed);
}

#endif
