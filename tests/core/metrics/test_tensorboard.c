/* Event files compared with one by TensorBoard's writer, record by record and byte by byte. */
#include "metrics/tensorboard.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/fs.h"

static uint32_t masked(const char *p, int64_t n)
{
    const uint32_t crc = lathe_crc32c(p, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* The record at *io_at of a file, with its checksums verified. NULL at the end. */
static const char *record(const char *file, int64_t bytes, int64_t *io_at, int64_t *out_n)
{
    uint64_t n;
    uint32_t sum;
    if (*io_at == bytes)
        return NULL;
    cr_assert_leq(*io_at + 16, bytes);
    memcpy(&n, file + *io_at, 8);
    memcpy(&sum, file + *io_at + 8, 4);
    cr_assert_eq(sum, masked(file + *io_at, 8));
    const char *data = file + *io_at + 12;
    cr_assert_leq(*io_at + 16 + (int64_t)n, bytes);
    memcpy(&sum, data + n, 4);
    cr_assert_eq(sum, masked(data, (int64_t)n));
    *io_at += 16 + (int64_t)n;
    *out_n = (int64_t)n;
    return data;
}

static char dir[] = "/tmp/lathe_tensorboard_XXXXXX";
static char folder[128];

static void make(void)
{
    cr_assert(mkdtemp(dir));
    snprintf(folder, sizeof folder, "%s/tensorboard", dir);
}

static void clear(void)
{
    (void)lathe_dir_remove(dir);
}

TestSuite(tensorboard, .init = make, .fini = clear);

Test(tensorboard, writes_what_its_own_writer_writes)
{
    lathe_tensorboard b;
    const char *const keys[] = {"loss", "eval_loss", "rewards/margins"};
    const double values[] = {2.5, 2.25, -1.0};
    char *want = NULL, *got = NULL, path[512];
    int64_t want_bytes, got_bytes, want_at = 0, got_at = 0, want_n, got_n;
    cr_assert_eq(lathe_tensorboard_open(&b, dir, 2), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_tensorboard_write(&b, 300, 3, keys, values), LATHE_OK);
    snprintf(path, sizeof path, "%s", b.path);
    lathe_tensorboard_close(&b);
    cr_expect_not_null(strstr(path, "/tensorboard/events.out.tfevents."));
    cr_assert_eq(
        lathe_file_read(LATHE_TEST_DATA "/golden/data/tensorboard.tfevents", 0, &want, &want_bytes),
        LATHE_OK);
    cr_assert_eq(lathe_file_read(path, 0, &got, &got_bytes), LATHE_OK);
    for (int i = 0; i < 3; i++) {
        const char *w = record(want, want_bytes, &want_at, &want_n);
        const char *g = record(got, got_bytes, &got_at, &got_n);
        double seconds;
        cr_assert(w && g);
        cr_assert_eq(got_n, want_n, "record %d", i);
        cr_expect_eq(g[0], w[0]);
        memcpy(&seconds, g + 1, 8);
        cr_expect(seconds > 1.7e9 && seconds < 1e11, "wall time %g", seconds);
        cr_expect_eq(memcmp(g + 9, w + 9, (size_t)want_n - 9), 0, "record %d", i);
    }
    cr_expect_null(record(want, want_bytes, &want_at, &want_n));
    cr_expect_null(record(got, got_bytes, &got_at, &got_n));
    free(want);
    free(got);
}

Test(tensorboard, each_start_writes_a_file_of_its_own)
{
    lathe_tensorboard b[3];
    for (int i = 0; i < 3; i++)
        cr_assert_eq(lathe_tensorboard_open(&b[i], dir, i), LATHE_OK);
    cr_expect_str_neq(b[0].path, b[1].path);
    cr_expect_str_neq(b[1].path, b[2].path);
    for (int i = 0; i < 3; i++)
        lathe_tensorboard_close(&b[i]);
    int n = 0;
    DIR *d = opendir(folder);
    cr_assert(d);
    for (const struct dirent *e; (e = readdir(d));)
        n += strncmp(e->d_name, "events.out.tfevents.", 20) == 0;
    closedir(d);
    cr_expect_eq(n, 3);
}

Test(tensorboard, a_full_disk_names_file_step_and_cause)
{
    lathe_tensorboard b;
    const char *const keys[] = {"loss"};
    const double value = (double)NAN; /* NaN is allowed: TensorBoard shows it */
    FILE *full = fopen("/dev/full", "w");
    if (!full)
        cr_skip_test("no /dev/full here");
    cr_assert_eq(lathe_tensorboard_open(&b, dir, 0), LATHE_OK);
    cr_expect_eq(lathe_tensorboard_write(&b, 1, 1, keys, &value), LATHE_OK);
    fclose(b.file);
    b.file = full;
    cr_expect_eq(lathe_tensorboard_write(&b, 7, 1, keys, &value), LATHE_E_IO);
    cr_expect_not_null(strstr(lathe_error_message(), "figures of step 7: No space left on device"),
                       "%s", lathe_error_message());
    lathe_tensorboard_close(&b);
}

Test(tensorboard, a_folder_that_is_a_file_is_named)
{
    lathe_tensorboard b;
    FILE *f = fopen(folder, "w");
    cr_assert(f);
    fclose(f);
    cr_expect_eq(lathe_tensorboard_open(&b, dir, 0), LATHE_E_IO);
    cr_expect_not_null(strstr(lathe_error_message(), folder), "%s", lathe_error_message());
    cr_expect_null(b.file);
}

Test(tensorboard, too_many_figures_for_a_record_are_an_error)
{
    static const char *keys[2000];
    static double values[2000];
    lathe_tensorboard b;
    for (int i = 0; i < 2000; i++)
        keys[i] = "a/rather/long/name/of/a/figure";
    cr_assert_eq(lathe_tensorboard_open(&b, dir, 0), LATHE_OK);
    cr_expect_eq(lathe_tensorboard_write(&b, 1, 2000, keys, values), LATHE_E_IO);
    lathe_tensorboard_close(&b);
}
