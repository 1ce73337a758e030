/* metrics.jsonl: the content of a line, the lines that a resumed run drops, and a full disk. */
#include "metrics/metrics.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "metrics/metrics_read.h"

static char dir[] = "/tmp/lathe_metrics_XXXXXX";
static char path[128];

static void make(void)
{
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
}

static void clear(void)
{
    unlink(path);
    rmdir(dir);
}

TestSuite(metrics, .init = make, .fini = clear);

static void put(const char *text)
{
    FILE *f = fopen(path, "w");
    cr_assert(f);
    fputs(text, f);
    fclose(f);
}

static const char *get(void)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    cr_assert(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

Test(metrics, writes_one_object_per_step)
{
    lathe_metrics m;
    const char *const keys[] = {"loss", "lr", "bad"};
    const double values[] = {0.1, 3e-4, INFINITY};
    cr_assert_eq(lathe_metrics_open(&m, dir, 0), LATHE_OK);
    cr_expect_eq(lathe_metrics_write(&m, 7, 3, keys, values), LATHE_OK);
    lathe_metrics_close(&m);
    cr_expect_str_eq(get(), "{\"step\": 7, \"loss\": 0.1, \"lr\": 0.0003, \"bad\": null}\n");
}

static void ignore(void *arg, const lathe_metrics_row *row)
{
    (void)arg, (void)row;
}

/* Checks the key that the reader of the file finds. */
static void first_key_is(const char *want)
{
    lathe_metrics_reader *reader = NULL;
    cr_assert_eq(lathe_metrics_reader_create(path, &reader), LATHE_OK);
    cr_assert_eq(lathe_metrics_reader_poll(reader, ignore, NULL), LATHE_OK);
    cr_expect_eq(lathe_metrics_reader_bad_lines(reader), 0);
    cr_expect_str_eq(lathe_metrics_reader_key(reader, 0), want);
    lathe_metrics_reader_destroy(reader);
}

/* A group of parameters may have any name, which becomes part of its metric's name. */
Test(metrics, any_name_of_a_figure_is_json_and_is_read_back)
{
    static const char *const names[] = {"grad_norm/a\"b",     "grad_norm/\\",
                                        "grad_norm/\n\x01\t", "grad_norm/\xc3\xa4",
                                        "grad_norm/plain",    "\"}, {\"step\": 9"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        lathe_metrics m;
        const double value = 0.5;
        json_error_t error;
        put("");
        cr_assert_eq(lathe_metrics_open(&m, dir, 0), LATHE_OK);
        cr_expect_eq(lathe_metrics_write(&m, 7, 1, &names[i], &value), LATHE_OK);
        lathe_metrics_close(&m);
        json_t *line = json_loads(get(), JSON_REJECT_DUPLICATES, &error);
        cr_assert_not_null(line, "%s: %s", names[i], error.text);
        cr_expect_float_eq(json_real_value(json_object_get(line, names[i])), 0.5, 0.0);
        cr_expect_eq(json_object_size(line), 2);
        json_decref(line);
        first_key_is(names[i]);
    }
}

Test(metrics, a_resumed_run_drops_the_steps_it_will_take_again)
{
    lathe_metrics m;
    const char *const keys[] = {"loss"};
    const double value = 2.0;
    put("{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"loss\": 1}\n{\"step\": 10, \"loss\": 1}\n"
        "{\"step\": 11, \"lo"); /* incomplete */
    cr_assert_eq(lathe_metrics_open(&m, dir, 2), LATHE_OK);
    cr_expect_eq(lathe_metrics_write(&m, 3, 1, keys, &value), LATHE_OK);
    lathe_metrics_close(&m);
    cr_expect_str_eq(get(), "{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"loss\": 1}\n"
                            "{\"step\": 3, \"loss\": 2}\n");
}

Test(metrics, a_torn_line_alone_is_dropped_too)
{
    put("{\"step\": 1, \"loss\": 1}\n{\"st");
    cr_assert_eq(lathe_lines_cut(path, 100), LATHE_OK);
    cr_expect_str_eq(get(), "{\"step\": 1, \"loss\": 1}\n");
    put("{\"step\": 5}\n");
    cr_assert_eq(lathe_lines_cut(path, 0), LATHE_OK);
    cr_expect_str_eq(get(), "");
    cr_assert_eq(lathe_lines_cut(path, 0), LATHE_OK); /* an empty file stays empty */
    unlink(path);
    cr_expect_eq(lathe_lines_cut(path, 0), LATHE_OK); /* and a missing one stays missing */
}

Test(metrics, a_full_disk_names_file_step_and_cause)
{
    lathe_metrics m;
    const char *const keys[] = {"loss"};
    const double value = 2.0;
    FILE *full = fopen("/dev/full", "w");
    if (!full)
        cr_skip_test("no /dev/full here");
    cr_assert_eq(lathe_metrics_open(&m, dir, 0), LATHE_OK);
    fclose(m.file);
    m.file = full;
    cr_expect_eq(lathe_metrics_write(&m, 41, 1, keys, &value), LATHE_E_IO);
    cr_expect_not_null(strstr(lathe_error_message(), path), "%s", lathe_error_message());
    cr_expect_not_null(strstr(lathe_error_message(), "figures of step 41"));
    cr_expect_not_null(strstr(lathe_error_message(), "No space left on device"));
    lathe_metrics_close(&m);
}

Test(metrics, a_folder_that_cannot_be_written_is_named)
{
    lathe_metrics m;
    cr_expect_eq(lathe_metrics_open(&m, "/proc/1", 0), LATHE_E_IO);
    cr_expect_not_null(strstr(lathe_error_message(), "/proc/1/metrics.jsonl"), "%s",
                       lathe_error_message());
}
