/* Files of stored log-probabilities: what is written comes back, and damage is named. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "data/rows/logprob_set.h"

#define OK(call) cr_assert_eq((call), LATHE_OK, "%s", lathe_error_message())

enum { K = 3, T = 8 };

static char folder[] = "/tmp/lathe_logprobs_XXXXXX";
static const int targets[] = {2, 0, 5, 1}; /* of each record */
enum { N = sizeof targets / sizeof *targets };

static void setup(void)
{
    cr_assert(mkdtemp(folder));
}

static void teardown(void)
{
    (void)lathe_dir_remove(folder);
}

TestSuite(logprob_file, .init = setup, .fini = teardown);

static const char *at(const char *name)
{
    static char path[4][256];
    static int next;
    char *to = path[next++ % 4];
    snprintf(to, sizeof path[0], "%s/%s", folder, name);
    return to;
}

static lathe_logprob_header header(int64_t vocab, int32_t value_bytes, int64_t first)
{
    lathe_logprob_header h = {.top_k = K,
                              .value_bytes = value_bytes,
                              .row_tokens = T,
                              .vocab_size = vocab,
                              .temperature = 1.5,
                              .first_record = first};
    memset(h.data, 'd', sizeof h.data);
    memset(h.made_by, 'm', sizeof h.made_by);
    return h;
}

/* Entry t of record r. */
static void entry(int64_t vocab, int64_t r, int64_t t, int32_t *ids, float *values)
{
    for (int j = 0; j < K; j++) {
        ids[j] = (int32_t)((vocab - 1 - 7 * r - 3 * t - j) % vocab);
        values[j] = -0.1f * (float)(1 + j) - (float)r - 0.01f * (float)t;
    }
    values[K] = -3.3f - (float)r;
}

static void write_records(const char *path, const lathe_logprob_header *h, int begin, int end)
{
    lathe_logprob_writer writer;
    int32_t ids[T * K];
    float values[T * (K + 1)];
    uint64_t checksum = 0;
    OK(lathe__logprob_writer_init(&writer, path, h));
    for (int r = begin; r < end; r++) {
        for (int t = 0; t < targets[r]; t++)
            entry(h->vocab_size, r, t, ids + t * K, values + t * (K + 1));
        OK(lathe__logprob_writer_put(&writer, targets[r], ids, values));
    }
    OK(lathe__logprob_writer_finish(&writer, &checksum));
    cr_assert_neq(checksum, 0);
    lathe__logprob_writer_fini(&writer);
}

static void comes_back(int64_t vocab, int32_t value_bytes, float unit)
{
    const lathe_logprob_header h = header(vocab, value_bytes, 0);
    lathe_logprob_file file;
    int32_t got[T * K], want[K];
    float values[T * (K + 1)], wanted[K + 1];
    write_records(at("a"), &h, 0, N);
    OK(lathe__logprob_open(at("a"), 1, &file));
    cr_assert_eq(file.header.n_records, N);
    cr_assert_eq(file.header.n_targets, 8);
    cr_assert_eq(file.header.id_bytes, vocab > 65536 ? 4 : 2);
    for (int r = 0; r < N; r++) {
        cr_assert_eq(lathe__logprob_targets(&file, r), targets[r]);
        OK(lathe__logprob_read(&file, r, targets[r], got, values));
        for (int t = 0; t < targets[r]; t++) {
            entry(vocab, r, t, want, wanted);
            for (int j = 0; j < K; j++) {
                cr_expect_eq(got[t * K + j], want[j]);
                cr_expect_float_eq(values[t * (K + 1) + j], wanted[j], unit * fabsf(wanted[j]));
            }
            cr_expect_eq(values[t * (K + 1) + K], wanted[K], "the rest is f32");
        }
    }
    lathe__logprob_close(&file);
}

Test(logprob_file, f32_comes_back_bit_for_bit)
{
    comes_back(1000, 4, 0.0f);
}

/* half a unit of f16: 2^-11 */
Test(logprob_file, f16_comes_back_rounded_once)
{
    comes_back(1000, 2, 0x1p-11f);
}

Test(logprob_file, ids_beyond_16_bits_come_back)
{
    comes_back(65537, 4, 0.0f);
}

Test(logprob_file, what_is_below_f16_becomes_its_lowest_number)
{
    const lathe_logprob_header h = header(100, 2, 0);
    lathe_logprob_writer writer;
    lathe_logprob_file file;
    const int32_t ids[K] = {1, 2, 3};
    const float values[K + 1] = {0.0f, -1e5f, -3e38f, -87.0f};
    int32_t got[K];
    float read[K + 1];
    uint64_t checksum;
    OK(lathe__logprob_writer_init(&writer, at("low"), &h));
    OK(lathe__logprob_writer_put(&writer, 1, ids, values));
    OK(lathe__logprob_writer_finish(&writer, &checksum));
    lathe__logprob_writer_fini(&writer);
    OK(lathe__logprob_open(at("low"), 1, &file));
    OK(lathe__logprob_read(&file, 0, 1, got, read));
    cr_expect_eq(read[0], 0.0f);
    cr_expect_eq(read[1], -65504.0f);
    cr_expect_eq(read[2], -65504.0f);
    cr_expect_eq(read[3], -87.0f);
    lathe__logprob_close(&file);
}

Test(logprob_file, numbers_that_are_no_log_probabilities_are_not_written)
{
    const float bad[] = {(float)NAN, -INFINITY, INFINITY, 1e-30f};
    const lathe_logprob_header h = header(100, 4, 0);
    const int32_t ids[K] = {1, 2, 3};
    for (int place = 0; place <= K; place++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            lathe_logprob_writer writer;
            float values[K + 1] = {-1.0f, -2.0f, -3.0f, -4.0f};
            values[place] = bad[i];
            OK(lathe__logprob_writer_init(&writer, at("nan"), &h));
            cr_expect_eq(lathe__logprob_writer_put(&writer, 1, ids, values), LATHE_E_NUMERIC);
            cr_expect(strstr(lathe_error_message(), "record 0, target 0"), "%s",
                      lathe_error_message());
            lathe__logprob_writer_fini(&writer);
            cr_expect(!lathe_path_exists(at("nan")));
        }
}

Test(logprob_file, nothing_is_left_of_a_file_that_is_not_finished)
{
    const lathe_logprob_header h = header(100, 4, 0);
    lathe_logprob_writer writer;
    lathe_arena arena = LATHE_ARENA_INIT;
    char **names;
    int64_t n;
    OK(lathe__logprob_writer_init(&writer, at("half"), &h));
    OK(lathe__logprob_writer_put(&writer, 0, NULL, NULL));
    lathe__logprob_writer_fini(&writer);
    OK(lathe_dir_list(folder, &arena, &names, &n));
    cr_expect_eq(n, 0);
    lathe_arena_fini(&arena);
}

static char *read_whole(const char *path, int64_t *out_bytes)
{
    char *data = NULL;
    OK(lathe_file_read(path, 0, &data, out_bytes));
    return data;
}

static void expect_damage(const char *data, int64_t bytes, const char *what)
{
    lathe_logprob_file file;
    OK(lathe_file_write_atomic(at("damaged"), data, bytes));
    const lathe_status status = lathe__logprob_open(at("damaged"), 1, &file);
    cr_expect_eq(status, LATHE_E_CORRUPT, "%s: %d", what, status);
    cr_expect(strstr(lathe_error_message(), "damaged"), "%s: %s", what, lathe_error_message());
    if (status == LATHE_OK)
        lathe__logprob_close(&file);
}

Test(logprob_file, every_flipped_bit_is_found)
{
    const lathe_logprob_header h = header(100, 2, 0);
    int64_t bytes;
    char what[64];
    write_records(at("a"), &h, 0, N);
    char *data = read_whole(at("a"), &bytes);
    /* the padding after the entries is not read */
    const int64_t entries = 8 * (K * 4 + 4), gap = (8 - entries % 8) % 8;
    const int64_t checksums = N * 4, end_gap = (8 - checksums % 8) % 8;
    for (int64_t i = 0; i < bytes; i++) {
        if (i >= 256 + entries && i < 256 + entries + gap)
            continue;
        data[i] ^= 0x10;
        snprintf(what, sizeof what, "byte %lld of %lld", (long long)i, (long long)bytes);
        expect_damage(data, bytes, what);
        data[i] ^= 0x10;
    }
    cr_expect_eq(end_gap, 0);
    free(data);
}

Test(logprob_file, every_shorter_file_is_refused)
{
    const lathe_logprob_header h = header(100, 4, 0);
    int64_t bytes;
    write_records(at("a"), &h, 0, N);
    char *data = read_whole(at("a"), &bytes);
    for (int64_t n = 1; n < bytes; n++)
        expect_damage(data, n, "cut");
    free(data);
}

Test(logprob_file, a_flipped_entry_is_found_when_it_is_read)
{
    const lathe_logprob_header h = header(100, 4, 0);
    lathe_logprob_file file;
    int64_t bytes;
    int32_t ids[T * K];
    float values[T * (K + 1)];
    write_records(at("a"), &h, 0, N);
    char *data = read_whole(at("a"), &bytes);
    data[256 + 3 * (K * 6 + 4)] ^= 1; /* the fourth entry: of record 2 */
    OK(lathe_file_write_atomic(at("b"), data, bytes));
    OK(lathe__logprob_open(at("b"), 0, &file));
    OK(lathe__logprob_read(&file, 0, 2, ids, values));
    cr_expect_eq(lathe__logprob_read(&file, 2, 1, ids, values), LATHE_E_CORRUPT);
    cr_expect(strstr(lathe_error_message(), "checksum of record 2"), "%s", lathe_error_message());
    OK(lathe__logprob_read(&file, 3, 1, ids, values));
    lathe__logprob_close(&file);
    free(data);
}

Test(logprob_file, more_targets_than_are_stored_are_refused)
{
    const lathe_logprob_header h = header(100, 4, 0);
    lathe_logprob_file file;
    int32_t ids[T * K];
    float values[T * (K + 1)];
    write_records(at("a"), &h, 0, N);
    OK(lathe__logprob_open(at("a"), 1, &file));
    cr_expect_eq(lathe__logprob_read(&file, 0, 3, ids, values), LATHE_E_CORRUPT);
    cr_expect(strstr(lathe_error_message(), "2 stored targets, and the row 3"), "%s",
              lathe_error_message());
    lathe__logprob_close(&file);
}

/* ---- files that follow each other ---- */

Test(logprob_file, a_record_is_found_in_the_file_that_has_it)
{
    const lathe_logprob_header a = header(100, 4, 0), b = header(100, 4, 1), c = header(100, 4, 3);
    const char *const paths[] = {at("a"), at("b"), at("c")};
    lathe_logprob_set *set;
    int32_t ids[T * K], want[K];
    float values[T * (K + 1)], wanted[K + 1];
    write_records(paths[0], &a, 0, 1);
    write_records(paths[1], &b, 1, 3);
    write_records(paths[2], &c, 3, 4);
    OK(lathe_logprob_set_open(paths, 3, 1, &set));
    cr_expect_eq(lathe_logprob_set_records(set), N);
    cr_expect_eq(lathe_logprob_set_targets(set), 8);
    for (int r = 0; r < N; r++) {
        OK(lathe_logprob_set_read(set, r, targets[r], ids, values));
        for (int t = 0; t < targets[r]; t++) {
            entry(100, r, t, want, wanted);
            cr_expect_eq(memcmp(ids + t * K, want, sizeof want), 0, "record %d", r);
            cr_expect_eq(memcmp(values + t * (K + 1), wanted, sizeof wanted), 0, "record %d", r);
        }
    }
    cr_expect_eq(lathe_logprob_set_read(set, N, 0, ids, values), LATHE_E_ARG);
    cr_expect_eq(lathe_logprob_set_read(set, -1, 0, ids, values), LATHE_E_ARG);
    lathe_logprob_set_close(set);
}

Test(logprob_file, files_of_another_order_or_set_are_refused)
{
    lathe_logprob_header a = header(100, 4, 0), b = header(100, 4, 1);
    const char *const paths[] = {at("a"), at("b")}, *const swapped[] = {at("b"), at("a")};
    lathe_logprob_set *set;
    write_records(paths[0], &a, 0, 1);
    write_records(paths[1], &b, 1, 3);
    cr_expect_eq(lathe_logprob_set_open(swapped, 2, 0, &set), LATHE_E_CORRUPT);
    cr_expect(strstr(lathe_error_message(), "begins with record 1; expected 0"), "%s",
              lathe_error_message());
    b.made_by[0] = 'x';
    write_records(paths[1], &b, 1, 3);
    cr_expect_eq(lathe_logprob_set_open(paths, 2, 0, &set), LATHE_E_CORRUPT);
    cr_expect(strstr(lathe_error_message(), "other settings"), "%s", lathe_error_message());
}
