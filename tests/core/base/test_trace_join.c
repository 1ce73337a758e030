/* Traces of several processes in one file. */
#include "base/trace.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

static char folder[] = "/tmp/lathe_trace_join_XXXXXX";
static char whole[64], part[64];

static void make(void)
{
    cr_assert_not_null(mkdtemp(folder));
    (void)snprintf(whole, sizeof whole, "%s/t.json", folder);
    (void)snprintf(part, sizeof part, "%s/part", folder);
}

static void clear(void)
{
    unlink(whole);
    unlink(part);
    rmdir(folder);
}

TestSuite(trace_join, .init = make, .fini = clear);

static const double origin = 100.0;

/* A trace of a process with n spans of 1 s, the first of them 10 s after the origin. */
static void write_trace(const char *path, int32_t number, int n)
{
    const lathe_trace_process process = {number, number == 1 ? "rank 0 \"of\" 2" : "rank 1",
                                         origin};
    cr_assert_eq(lathe_trace_begin_as(path, &process), LATHE_OK, "%s", lathe_error_message());
    for (int i = 0; i < n; i++)
        lathe_trace_span("step", "a span", origin + 10.0 + i, origin + 11.0 + i, NULL);
    lathe_trace_end();
}

static json_t *events(void)
{
    json_error_t e;
    json_t *root = json_load_file(whole, 0, &e);
    cr_assert_not_null(root, "%s at byte %d", e.text, e.position);
    json_t *list = json_incref(json_object_get(root, "traceEvents"));
    json_decref(root);
    cr_assert(json_is_array(list));
    return list;
}

/* Spans of a process. */
static int spans(const json_t *list, int64_t pid)
{
    size_t i;
    const json_t *event;
    int n = 0;
    for (i = 0; i < json_array_size(list); i++) {
        event = json_array_get(list, i);
        if (json_integer_value(json_object_get(event, "pid")) != pid ||
            strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0)
            continue;
        const double ts = json_number_value(json_object_get(event, "ts"));
        cr_expect_float_eq(ts, 1e6 * (10.0 + n), 1.0, "span %d at %g", n, ts);
        n++;
    }
    return n;
}

Test(trace_join, the_events_of_all_are_in_one_file)
{
    write_trace(whole, 1, 3);
    write_trace(part, 2, 20000); /* more than a buffer */
    cr_assert_eq(lathe_trace_join(whole, part), LATHE_OK, "%s", lathe_error_message());
    cr_expect_neq(access(part, F_OK), 0, "the part is removed");
    json_t *list = events();
    cr_expect_eq(spans(list, 1), 3);
    cr_expect_eq(spans(list, 2), 20000);
    const json_t *name = json_array_get(list, 0);
    cr_expect_str_eq(json_string_value(json_object_get(name, "name")), "process_name");
    cr_expect_str_eq(json_string_value(json_object_get(json_object_get(name, "args"), "name")),
                     "rank 0 \"of\" 2");
    json_decref(list);
    write_trace(part, 3, 0);
    cr_assert_eq(lathe_trace_join(whole, part), LATHE_OK);
    list = events();
    cr_expect_eq(spans(list, 2), 20000);
    json_decref(list);
}

Test(trace_join, traces_without_events_join)
{
    cr_assert_eq(lathe_trace_begin(whole), LATHE_OK);
    lathe_trace_end();
    write_trace(part, 2, 2);
    cr_assert_eq(lathe_trace_join(whole, part), LATHE_OK);
    cr_assert_eq(lathe_trace_begin(part), LATHE_OK);
    lathe_trace_end();
    cr_assert_eq(lathe_trace_join(whole, part), LATHE_OK);
    json_t *list = events();
    cr_expect_eq(spans(list, 2), 2);
    json_decref(list);
}

Test(trace_join, what_is_not_a_whole_trace_changes_nothing)
{
    static const char *const texts[] = {
        "", "{}", "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n",
        "junk that is longer than the beginning of a trace file\n]}\n"};
    write_trace(whole, 1, 3);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        FILE *f = fopen(part, "w");
        cr_assert_not_null(f);
        cr_assert_geq(fputs(texts[i], f), 0);
        cr_assert_eq(fclose(f), 0);
        cr_expect_eq(lathe_trace_join(whole, part), LATHE_E_CORRUPT, "text %zu", i);
        cr_expect_eq(lathe_trace_join(part, whole), LATHE_E_CORRUPT, "text %zu", i);
        cr_expect_eq(access(part, F_OK), 0);
    }
    cr_assert_eq(unlink(part), 0);
    cr_expect_eq(lathe_trace_join(whole, part), LATHE_E_IO);
    cr_expect_not_null(strstr(lathe_error_message(), part), "%s", lathe_error_message());
    json_t *list = events();
    cr_expect_eq(spans(list, 1), 3);
    json_decref(list);
}
