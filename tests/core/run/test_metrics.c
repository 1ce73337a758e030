/* metrics.jsonl: what a line holds, what a resumed run drops, and a disk that is full. */
#include "run/metrics.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

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

Test(metrics, a_resumed_run_drops_the_steps_it_will_take_again)
{
    lathe_metrics m;
    const char *const keys[] = {"loss"};
    const double value = 2.0;
    put("{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"loss\": 1}\n{\"step\": 10, \"loss\": 1}\n"
        "{\"step\": 11, \"lo"); /* torn */
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
    cr_assert_eq(lathe_lines_cut(path, 0), LATHE_OK); /* of an empty file nothing */
    unlink(path);
    cr_expect_eq(lathe_lines_cut(path, 0), LATHE_OK); /* nor of a missing one */
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
