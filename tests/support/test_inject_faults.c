/* Failure injection itself: each kind of Lathe's calls fails when told to, others never do. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "support/inject.h"

static char folder[64], file[96];

static void setup(void)
{
    if (inject_unsupported() != NULL)
        cr_skip("%s", inject_unsupported());
    strcpy(folder, "/tmp/lathe-inject-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/file", folder);
    cr_assert_eq(lathe_file_write_atomic(file, "before", 6), LATHE_OK);
}

static void teardown(void)
{
    inject_disarm();
    if (folder[0] != '\0')
        cr_assert_eq(lathe_dir_remove(folder), LATHE_OK);
}

TestSuite(inject, .init = setup, .fini = teardown);

static void expect_file(const char *want)
{
    char *text = NULL;
    int64_t n = 0;
    cr_assert_eq(lathe_file_read(file, 0, &text, &n), LATHE_OK);
    cr_assert_str_eq(text, want);
    free(text);
}

/* Makes the nth of `calls` of an atomic write fail; the message must name the cause, and the file
 * must not change. */
static void fail_write(uint32_t calls, int64_t nth, int error, const char *what)
{
    inject_arm(calls, nth, 1, error);
    const lathe_status status = lathe_file_write_atomic(file, "after!", 6);
    inject_disarm();
    cr_assert_eq(inject_failed(), 1, "%s", what);
    cr_assert_eq(strncmp(inject_last(), what, strlen(what)), 0, "%s", inject_last());
    cr_assert_not_null(strstr(inject_last(), "liblathe"), "%s", inject_last());
    cr_assert_eq(inject_last_library(), INJECT_IN_LATHE, "%s", inject_last());
    cr_assert_eq(inject_last_set(), calls, "%s", inject_last());
    cr_assert_eq(status, LATHE_E_IO, "%s", what);
    cr_assert_not_null(strstr(lathe_error_message(), strerror(error)), "%s", lathe_error_message());
}

Test(inject, each_call_of_an_atomic_write_fails_in_turn)
{
    fail_write(INJECT_OPEN, 1, EACCES, "open");
    fail_write(INJECT_WRITE, 1, ENOSPC, "write");
    fail_write(INJECT_SYNC, 1, EIO, "fsync");
    fail_write(INJECT_CLOSE, 1, EIO, "close");
    fail_write(INJECT_RENAME, 1, EIO, "rename");
    expect_file("before");
    fail_write(INJECT_SYNC, 2, EIO, "fsync"); /* of the folder, after the rename */
    expect_file("after!");
    inject_arm(INJECT_MKDIR, 1, 1, ENOSPC);
    char path[128];
    snprintf(path, sizeof path, "%s/new", folder);
    cr_assert_eq(lathe_dir_create(path), LATHE_E_IO);
    cr_assert(inject_disarm() >= 1 && !lathe_path_exists(path));
}

Test(inject, counting_alone_fails_nothing_and_only_our_calls_count)
{
    inject_arm(INJECT_DISK, 0, 0, EIO);
    cr_assert_eq(lathe_file_write_atomic(file, "after!", 6), LATHE_OK);
    const int64_t n = inject_disarm();
    cr_assert_eq(n, 8, "%lld", (long long)n); /* open write fsync close rename; open fsync close */
    cr_assert_eq(inject_failed(), 0);
    inject_arm(INJECT_MALLOC | INJECT_DISK, 1, INT64_MAX, ENOMEM);
    void *ours = malloc(10); /* a call by the test */
    cr_assert_eq(mkdir("/tmp", 0777), -1);
    cr_assert_eq(errno, EEXIST);
    cr_assert_eq(inject_disarm(), 0);
    cr_assert_not_null(ours);
    free(ours);
}

Test(inject, a_failing_write_is_torn)
{
    inject_arm(INJECT_WRITE | INJECT_REMOVE, 1, INT64_MAX,
               ENOSPC); /* unlink fails: the temporary file remains */
    cr_assert_eq(lathe_file_write_atomic(file, "after!", 6), LATHE_E_IO);
    cr_assert_eq(inject_disarm(), 2);
    char beside[128];
    char *text = NULL;
    int64_t n = 0;
    snprintf(beside, sizeof beside, "%s.tmp.%ld", file, (long)getpid());
    cr_assert_eq(lathe_file_read(beside, 0, &text, &n), LATHE_OK);
    cr_assert_str_eq(text, "aft");
    free(text);
    expect_file("before");
}

Test(inject, every_allocation_of_a_json_parse_can_fail_and_none_leaks)
{
    static const char text[] = "{\"a\": [1, 2.5, \"a string\"], \"b\": {\"c\": null}}";
    json_t *root = NULL;
    inject_arm(INJECT_MALLOC, 0, 0, ENOMEM);
    cr_assert_eq(lathe_json_load("a.json", text, (int64_t)sizeof text - 1, &root), LATHE_OK);
    const int64_t n = inject_disarm();
    json_decref(root);
    cr_assert(n > 10, "%lld", (long long)n);
    const int64_t before = inject_live_blocks();
    for (int64_t i = 1; i <= n; i++) {
        inject_arm(INJECT_MALLOC, i, 1, ENOMEM);
        const lathe_status status =
            lathe_json_load("a.json", text, (int64_t)sizeof text - 1, &root);
        inject_disarm();
        cr_assert_eq(inject_failed(), 1);
        cr_assert_neq(status, LATHE_OK, "%s", inject_last());
        cr_assert_null(root);
    }
    cr_assert_eq(inject_live_blocks(), before);
}

static void *write_it(void *user)
{
    *(lathe_status *)user = lathe_file_write_atomic(file, "thread", 6);
    return NULL;
}

Test(inject, another_threads_calls_fail_too)
{
    pthread_t thread;
    lathe_status status = LATHE_OK;
    inject_arm(INJECT_SYNC, 1, 1, EIO);
    cr_assert_eq(pthread_create(&thread, NULL, write_it, &status), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(inject_disarm(), 1);
    cr_assert_eq(status, LATHE_E_IO);
    expect_file("before");
}

Test(inject, the_largest_heap_use_is_reported)
{
    const int64_t before = inject_peak_begin();
    void *volatile block = malloc(1 << 20);
    free(block);
    cr_assert_geq(inject_peak_bytes() - before, 1 << 20);
    cr_assert_lt(inject_peak_bytes() - before, 2 << 20);
}

/* Ten equal elements of an array are allocated at one place, and eight of them are left out. */
Test(inject, calls_from_one_place_are_given_by_the_first_and_the_last)
{
    json_t *root = NULL;
    static const char text[] = "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]";
    int64_t numbers[64];
    inject_arm_places(INJECT_MALLOC);
    const lathe_status status = lathe_json_load("numbers", text, (int64_t)strlen(text), &root);
    const int64_t n_calls = inject_disarm();
    const int64_t n = inject_places(numbers);
    cr_assert_eq(status, LATHE_OK);
    cr_assert(n_calls <= 64 && n_calls - n >= 6, "%lld of %lld", (long long)n, (long long)n_calls);
    for (int64_t i = 0; i < n; i++)
        cr_assert(numbers[i] <= n_calls && (i == 0 || numbers[i] > numbers[i - 1]));
    json_decref(root);
}
