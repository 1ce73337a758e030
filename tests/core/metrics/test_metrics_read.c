/* Reads metrics.jsonl: which lines count, growth, incomplete lines, replacement, and a million
 * lines. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "metrics/metrics.h"
#include "metrics/metrics_read.h"

#define OK(call) cr_assert_eq((call), LATHE_OK, "%s: %s", #call, lathe_error_message())

static char dir[] = "/tmp/lathe_metrics_XXXXXX";
static char path[64];
static lathe_metrics_reader *reader;

/* The rows that the reader reported. */
static struct told {
    int64_t n, restarts, last, sum;
    double value;
    int32_t n_figures;
    char key[64];
} told;

static void visit(void *arg, const lathe_metrics_row *row)
{
    struct told *t = arg;
    if (!row) {
        *t = (struct told){.restarts = t->restarts + 1};
        return;
    }
    t->n++;
    t->last = row->step;
    t->sum += row->step;
    t->n_figures = row->n;
    if (row->n > 0) {
        t->value = row->values[row->n - 1];
        snprintf(t->key, sizeof t->key, "%s",
                 lathe_metrics_reader_key(reader, row->keys[row->n - 1]));
    }
}

static void prepare(void)
{
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    OK(lathe_metrics_reader_create(path, &reader));
    told = (struct told){0};
}

static void clean(void)
{
    lathe_metrics_reader_destroy(reader);
    OK(lathe_dir_remove(dir));
}

TestSuite(metrics_read, .init = prepare, .fini = clean);

static void append(const char *text)
{
    FILE *f = fopen(path, "a");
    fputs(text, f);
    fclose(f);
}

static void poll(void)
{
    OK(lathe_metrics_reader_poll(reader, visit, &told));
}

Test(metrics_read, a_missing_file_is_an_empty_one)
{
    poll();
    cr_expect_eq(told.n, 0);
    append("{\"step\": 1, \"loss\": 2.5}\n");
    poll();
    cr_expect_eq(told.n, 1);
    cr_expect_eq(told.restarts, 0);
    cr_expect_eq(told.value, 2.5);
    cr_expect_str_eq(told.key, "loss");
}

Test(metrics_read, takes_what_the_writer_writes)
{
    lathe_metrics m;
    const char *const keys[] = {"a", "b", "c"};
    const double values[] = {1e-300, (double)INFINITY, -12345.678901};
    OK(lathe_metrics_open(&m, dir, 0));
    OK(lathe_metrics_write(&m, 7, 3, keys, values));
    lathe_metrics_close(&m);
    poll();
    cr_expect_eq(told.last, 7);
    cr_expect_eq(told.n_figures, 3);
    cr_expect_float_eq(told.value, -12345.678901, 1e-4); /* written with nine digits */
    cr_expect_eq(lathe_metrics_reader_bad_lines(reader), 0);
}

Test(metrics_read, skips_and_counts_lines_that_are_none)
{
    static const char *const bad[] = {"",
                                      "x",
                                      "{}",
                                      "[1]",
                                      "{\"step\": 1",
                                      "{\"step\": 1,}",
                                      "{\"step\": -1}",
                                      "{\"step\": 1.5}",
                                      "{\"step\": 1e20}",
                                      "{\"step\": null}",
                                      "{\"step\": \"1\"}",
                                      "{\"loss\": 1}",
                                      "{\"step\": 1} x",
                                      "{\"step\": 01}",
                                      "{\"step\": 1, \"a\": nan}",
                                      "{\"step\": 1, \"a\": 0x10}",
                                      "{\"step\": 1, \"a\": +1}",
                                      "{\"step\": 1, \"a\": 1.}",
                                      "{\"step\": 1, \"a\": 1e}",
                                      "{\"step\": 1, \"a\": {}}",
                                      "{\"step\": 1, \"a\": \"",
                                      "{\"step\": 1, \"a\\",
                                      "\"step\": 1"};
    const int n = (int)(sizeof bad / sizeof bad[0]);
    for (int i = 0; i < n; i++) {
        append(bad[i]);
        append("\n");
        poll();
        cr_expect_eq(lathe_metrics_reader_bad_lines(reader), i + 1, "'%s' was taken", bad[i]);
    }
    cr_expect_eq(told.n, 0);
    append(" {\"name\":\"a \\\" , }\",\"ok\":true,\"no\":false, \"step\" : 3 ,\"x\":null} \r\n");
    poll();
    cr_expect_eq(told.n, 1);
    cr_expect_eq(told.last, 3);
    cr_expect_eq(told.n_figures, 1);
    cr_expect(isnan(told.value));
    cr_expect_eq(lathe_metrics_reader_bad_lines(reader), n);
}

Test(metrics_read, a_nul_byte_does_not_hide_the_rest)
{
    FILE *f = fopen(path, "w");
    fwrite("{\"step\": 1}\0{\"step\": 2}\n{\"step\": 3}\n", 1, 37, f);
    fclose(f);
    poll();
    cr_expect_eq(told.n, 1);
    cr_expect_eq(told.last, 3);
    cr_expect_eq(lathe_metrics_reader_bad_lines(reader), 1);
}

Test(metrics_read, waits_for_the_end_of_a_torn_line)
{
    static const char line[] = "{\"step\": 12, \"loss\": 3.25}\n";
    for (size_t i = 0; i + 1 < sizeof line; i++) {
        const char one[2] = {line[i], '\0'};
        cr_expect_eq(told.n, 0);
        append(one);
        poll();
    }
    cr_expect_eq(told.n, 1);
    cr_expect_eq(told.last, 12);
    cr_expect_eq(told.value, 3.25);
    cr_expect_eq(lathe_metrics_reader_bad_lines(reader), 0);
}

Test(metrics_read, begins_again_when_the_file_is_replaced_or_cut)
{
    append("{\"step\": 1}\n{\"step\": 2}\n{\"step\": 3}\n{\"st");
    poll();
    cr_expect_eq(told.sum, 6);
    lathe_metrics m; /* as a resumed run does */
    OK(lathe_metrics_open(&m, dir, 2));
    OK(lathe_metrics_write(&m, 3, 0, NULL, NULL));
    OK(lathe_metrics_write(&m, 4, 0, NULL, NULL));
    poll();
    cr_expect_eq(told.restarts, 1);
    cr_expect_eq(told.n, 4);
    cr_expect_eq(told.sum, 10);
    lathe_metrics_close(&m);
    cr_assert_eq(truncate(path, 12), 0);
    poll();
    cr_expect_eq(told.restarts, 2);
    cr_expect_eq(told.n, 1);
    cr_assert_eq(unlink(path), 0);
    poll();
    cr_expect_eq(told.restarts, 3);
    cr_expect_eq(told.n, 0);
}

Test(metrics_read, passes_over_a_line_without_an_end)
{
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 3 * LATHE_METRICS_MAX_LINE; i++)
        fputc('x', f);
    fputs("\n{\"step\": 5}\n", f);
    fclose(f);
    poll();
    cr_expect_eq(told.n, 1);
    cr_expect_eq(told.last, 5);
    cr_expect_eq(lathe_metrics_reader_bad_lines(reader), 1);
}

Test(metrics_read, keeps_to_its_number_of_keys)
{
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 1000; i++)
        fprintf(f, "{\"step\": %d, \"k%d\": 1, \"%0*d\": 2}\n", i, i, 100 + i, 7);
    fclose(f);
    poll();
    cr_expect_eq(told.n, 1000);
    cr_expect_eq(lathe_metrics_reader_n_keys(reader), LATHE_METRICS_MAX_KEYS);
    cr_expect_eq(told.n_figures, 0); /* of the last line: too many, and too long a name */
}

Test(metrics_read, crosses_chunks)
{
    FILE *f = fopen(path, "w");
    int64_t sum = 0;
    for (int i = 0; i < 50000; i++, sum += i)
        fprintf(f, "{\"step\": %d, \"loss\": %d.5, \"lr\": 1e-3}\n", i + 1, i + 1);
    fclose(f);
    poll();
    cr_expect_eq(told.n, 50000);
    cr_expect_eq(told.sum, sum);
    cr_expect_eq(lathe_metrics_reader_bad_lines(reader), 0);
}
