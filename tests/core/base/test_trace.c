/* The trace: complete JSON whatever happens to the process, the disk or the names in it. */
#include "base/trace.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

static char path[] = "/tmp/lathe_trace_XXXXXX";

static void make(void)
{
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
}

static void clear(void)
{
    unlink(path);
}

TestSuite(trace, .init = make, .fini = clear);

/* The events of the file, which must be complete. */
static json_t *events(void)
{
    json_error_t e;
    json_t *root = json_load_file(path, 0, &e);
    cr_assert(root, "%s at byte %d", e.text, e.position);
    json_t *list = json_incref(json_object_get(root, "traceEvents"));
    cr_assert(json_is_array(list));
    json_decref(root);
    return list;
}

static const char *text_of(const json_t *event, const char *key)
{
    return json_string_value(json_object_get(event, key));
}

Test(trace, without_one_nothing_happens)
{
    cr_expect_eq(lathe_trace_on(), 0);
    lathe_trace_span("a", "b", 0.0, 1.0, NULL);
    lathe_trace_since("a", "b", 0.0);
    lathe_trace_end();
}

Test(trace, holds_spans_in_microseconds)
{
    cr_assert_eq(lathe_trace_begin(path), LATHE_OK);
    json_t *none = events();
    cr_expect_eq(json_array_size(none), 0);
    json_decref(none);
    const double now = lathe_trace_now();
    lathe_trace_thread("a \"thread\"");
    lathe_trace_span("op", "quote \" and \\ and \n end", now, now + 0.25, "{\"flops\": 12}");
    lathe_trace_span("op", "ends before it begins", now, now - 1.0, NULL);
    lathe_trace_end();
    cr_expect_eq(lathe_trace_on(), 0);
    json_t *list = events();
    cr_assert_eq(json_array_size(list), 3);
    cr_expect_str_eq(text_of(json_object_get(json_array_get(list, 0), "args"), "name"),
                     "a \"thread\"");
    const json_t *span = json_array_get(list, 1);
    cr_expect_str_eq(text_of(span, "ph"), "X");
    cr_expect_str_eq(text_of(span, "name"), "quote \" and \\ and \n end");
    cr_expect_float_eq(json_number_value(json_object_get(span, "dur")), 250000.0, 0.01);
    cr_expect_eq(json_integer_value(json_object_get(json_object_get(span, "args"), "flops")), 12);
    cr_expect_eq(json_number_value(json_object_get(json_array_get(list, 2), "dur")), 0.0);
    json_decref(list);
}

static void *many(void *arg)
{
    lathe_trace_thread(arg);
    for (int i = 0; i < 5000; i++)
        lathe_trace_since("op", "a name of some length for a node", lathe_trace_now());
    return NULL;
}

Test(trace, threads_have_lines_of_their_own)
{
    pthread_t threads[3];
    static const char *const names[] = {"one", "two", "three"};
    int64_t of[5] = {0};
    json_t *event;
    size_t i;
    cr_assert_eq(lathe_trace_begin(path), LATHE_OK);
    for (int k = 0; k < 3; k++)
        cr_assert_eq(pthread_create(&threads[k], NULL, many, (void *)(uintptr_t)names[k]), 0);
    for (int k = 0; k < 3; k++)
        pthread_join(threads[k], NULL);
    lathe_trace_end();
    json_t *list = events(); /* far more than the buffer holds */
    cr_expect_eq(json_array_size(list), 15003);
    json_array_foreach(list, i, event)
    {
        const int64_t tid = json_integer_value(json_object_get(event, "tid"));
        cr_assert(tid >= 1 && tid <= 3);
        of[tid]++;
    }
    for (int k = 1; k <= 3; k++)
        cr_expect_eq(of[k], 5001);
    json_decref(list);
}

Test(trace, is_whole_when_the_process_is_killed)
{
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        if (lathe_trace_begin(path) == LATHE_OK)
            for (int i = 0; i < 20000; i++)
                lathe_trace_since("op", "a name of some length for a node", lathe_trace_now());
        raise(SIGKILL);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFSIGNALED(status));
    json_t *list = events();
    cr_expect_gt(json_array_size(list), 10000);
    json_decref(list);
}

static int n_warnings;
static char warning[256]; /* the last one */

static void catch_log(void *arg, int32_t level, const char *message)
{
    (void)arg;
    if (level != LATHE_LOG_WARN)
        return;
    n_warnings++;
    snprintf(warning, sizeof warning, "%s", message);
}

Test(trace, a_full_disk_ends_it_with_one_warning_and_what_was_written_is_whole)
{
    const struct rlimit limit = {700 * 1024, 700 * 1024};
    signal(SIGXFSZ, SIG_IGN); /* then write() fails */
    cr_assert_eq(lathe_trace_begin(path), LATHE_OK);
    lathe_log_set_sink(catch_log, NULL);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 20000; i++)
        lathe_trace_since("op", "a name of some length for a node", lathe_trace_now());
    cr_expect_eq(lathe_trace_on(), 0);
    lathe_trace_end();
    lathe_log_set_sink(NULL, NULL);
    cr_expect_eq(n_warnings, 1);
    cr_expect_not_null(strstr(warning, "the trace ends here"), "%s", warning);
    json_t *list = events();
    cr_expect_gt(json_array_size(list), 1000);
    json_decref(list);
}

Test(trace, that_cannot_be_written_is_named)
{
    cr_expect_eq(lathe_trace_begin("/nowhere/t.json"), LATHE_E_IO);
    cr_expect_not_null(strstr(lathe_error_message(), "/nowhere/t.json"));
    cr_expect_eq(lathe_trace_on(), 0);
    cr_assert_eq(lathe_trace_begin(path), LATHE_OK);
    cr_expect_eq(lathe_trace_begin(path), LATHE_E_STATE);
    lathe_trace_end();
    cr_assert_eq(lathe_trace_begin(path), LATHE_OK); /* and again */
    lathe_trace_end();
}

Test(trace, an_event_that_is_too_long_is_left_out)
{
    static char args[8192];
    memset(args, 'x', sizeof args - 1);
    cr_assert_eq(lathe_trace_begin(path), LATHE_OK);
    lathe_trace_span("op", args, 0.0, 1.0, NULL); /* a long name is cut */
    lathe_trace_span("op", "n", 0.0, 1.0, args);
    lathe_trace_end();
    json_t *list = events();
    cr_expect_eq(json_array_size(list), 1);
    json_decref(list);
}
