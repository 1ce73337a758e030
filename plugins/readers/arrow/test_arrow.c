/* Records of Parquet and Arrow files that pyarrow wrote (tests/golden/readers.py). */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "data/records/record_json.h"
#include "data/records/record_reader.h"
#include "data/rows/shards_internal.h"
#include "tokenizer/json/tokenizer_file.h"

#define SAMPLES LATHE_TEST_DATA "/golden/data/readers"
#define SHIM LATHE_TEST_BUILD "/lib/lathe/plugins/reader/arrow-shim.so"

static char root[64];
static lathe_arena arena;
static lathe_registry *registry;
static lathe_buffer got;

static void setup(void)
{
    strcpy(root, "/tmp/lathe_arrow_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", LATHE_TEST_BUILD "/lib/lathe/plugins", 1), 0);
    cr_assert_eq(lathe_registry_create(&registry), LATHE_OK, "%s", lathe_error_message());
}

static void teardown(void)
{
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    lathe_registry_destroy(registry);
    lathe_buffer_fini(&got);
    lathe_arena_fini(&arena);
}

TestSuite(arrow, .init = setup, .fini = teardown);

static void need_arrow(void)
{
    if (access(SHIM, F_OK) != 0)
        cr_skip_test("Lathe was built without Apache Arrow (LATHE_ARROW_ROOT)");
}

static const char *at(const char *name)
{
    return lathe_path_join(&arena, root, name);
}

static lathe_dataset dataset_of(const char *path, int32_t type)
{
    return (lathe_dataset){.path = path, .type = type, .registry = registry};
}

/* Reads all records in batches of some bytes, and a new reader for each batch; their JSON, one a
 * line, is in `got`. all: 1: all columns; 0: those of documents. */
static lathe_status read_all(const lathe_dataset *dataset, int all, int64_t bytes)
{
    lathe_sources sources;
    lathe_source_place begin = {.line = 1};
    lathe_fields fields = {.layout = 0};
    got.len = 0;
    lathe_status status = lathe_sources_list(dataset, &arena, &sources);
    while (status == LATHE_OK && begin.file < sources.n) {
        lathe_reader r;
        status = lathe_reader_init(&r, dataset, &sources,
                                   all ? LATHE_ROWS_PROMPTS : LATHE_ROWS_PACKED, &begin);
        if (status == LATHE_OK)
            status = lathe_reader_batch(&r, bytes);
        for (int64_t i = 0; status == LATHE_OK && i < r.n; i++) {
            status = lathe_record_json(&r, &r.list[i], &got);
            lathe_buffer_puts(&got, "\n");
            if (!all && status == LATHE_OK)
                status = lathe_fields_read(&fields, &r, &r.list[i]);
        }
        begin = r.at;
        lathe_reader_fini(&r);
    }
    lathe_fields_fini(&fields);
    return status;
}

static const char *const same[] = {SAMPLES "/same/snappy.parquet", SAMPLES "/same/zstd.parquet",
                                   SAMPLES "/same/file.arrow", SAMPLES "/same/stream.arrow"};

Test(arrow, records_are_those_of_the_jsonl_file)
{
    char *want = NULL;
    int64_t n = 0;
    need_arrow();
    cr_assert_eq(lathe_file_read(SAMPLES "/same/records.jsonl", 0, &want, &n), LATHE_OK);
    for (size_t k = 0; k < sizeof same / sizeof same[0]; k++) {
        const lathe_dataset dataset = dataset_of(same[k], LATHE_DATASET_AUTO);
        for (int64_t bytes = 1; bytes < 100000; bytes *= 40) { /* 1: a new reader for each record */
            cr_assert_eq(read_all(&dataset, 1, bytes), LATHE_OK, "%s", lathe_error_message());
            cr_expect_str_eq(got.data, want, "%s in batches of %lld bytes", same[k],
                             (long long)bytes);
        }
    }
    free(want);
}

static int threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    cr_assert_not_null(tasks);
    for (const struct dirent *e = readdir(tasks); e; e = readdir(tasks))
        n += e->d_name[0] != '.';
    cr_assert_eq(closedir(tasks), 0);
    return n;
}

/* Arrow's allocator and its reads of Arrow files would start threads. */
Test(arrow, reading_starts_no_thread_and_changes_no_variable)
{
    const int before = threads();
    need_arrow();
    for (size_t k = 0; k < sizeof same / sizeof same[0]; k++) {
        const lathe_dataset dataset = dataset_of(same[k], LATHE_DATASET_AUTO);
        cr_assert_eq(read_all(&dataset, 1, 1 << 20), LATHE_OK, "%s", lathe_error_message());
        cr_expect_eq(threads(), before, "%s: %d threads, there were %d", same[k], threads(),
                     before);
    }
    cr_expect_null(getenv("JE_ARROW_MALLOC_CONF"));
}

/* The hash of the tokens that a dataset of documents gives. */
static void hash_tokens(const char *path, char out[65])
{
    const lathe_dataset dataset = dataset_of(path, LATHE_DATASET_AUTO);
    lathe_tokenizer *raw;
    lathe_shards *shards = NULL;
    cr_assert_eq(lathe_tokenizer_bytes(&raw), LATHE_OK);
    cr_assert_eq(
        lathe_shards_prepare(&dataset, 1, LATHE_ROWS_PACKED, raw, at("cache"), NULL, NULL, &shards),
        LATHE_OK, "%s", lathe_error_message());
    const int64_t n = lathe_shards_tokens(shards);
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    lathe_sha256 *hash;
    cr_assert_eq(lathe_shards_read(shards, 0, n, ids), LATHE_OK);
    cr_assert_eq(lathe_sha256_create(&hash), LATHE_OK);
    lathe_sha256_update(hash, ids, n * (int64_t)sizeof *ids);
    lathe_sha256_finish(hash, out);
    free(ids);
    lathe_shards_destroy(shards);
    lathe_tokenizer_destroy(raw);
}

Test(arrow, shards_are_those_of_the_jsonl_file)
{
    char want[65], have[65];
    need_arrow();
    hash_tokens(SAMPLES "/same/records.jsonl", want);
    for (size_t k = 0; k < sizeof same / sizeof same[0]; k++) {
        hash_tokens(same[k], have);
        cr_expect_str_eq(have, want, "%s", same[k]);
    }
}

/* The shards belong to the records, not to the bytes of the file. */
Test(arrow, a_file_that_is_compressed_again_keeps_its_shards)
{
    lathe_tokenizer *raw;
    need_arrow();
    cr_assert_eq(lathe_tokenizer_bytes(&raw), LATHE_OK);
    for (int k = 0; k < 3; k++) {
        char *data = NULL;
        int64_t n = 0;
        lathe_shards *shards = NULL;
        const char *from = k < 2 ? same[k] : SAMPLES "/odd/odd.parquet";
        lathe_dataset dataset = dataset_of(at("x.parquet"), LATHE_DATASET_AUTO);
        dataset.formats[LATHE_COLUMN_TEXT] = "{small}";
        cr_assert_eq(lathe_file_read(from, 0, &data, &n), LATHE_OK);
        cr_assert_eq(lathe_file_write_atomic(at("x.parquet"), data, n), LATHE_OK);
        free(data);
        const lathe_status status = lathe_shards_prepare(&dataset, 1, LATHE_ROWS_PACKED, raw,
                                                         at("cache"), NULL, NULL, &shards);
        cr_expect_eq(status, k < 2 ? LATHE_OK : LATHE_E_CONFIG, "%s", lathe_error_message());
        if (status == LATHE_OK)
            cr_expect_eq(lathe_shards_built(shards), k == 0, "%s", from);
        lathe_shards_destroy(shards);
    }
    lathe_tokenizer_destroy(raw);
}

static void refuse(const char *path, int32_t type, lathe_status code, const char *says)
{
    const lathe_dataset dataset = dataset_of(path, type);
    const lathe_status status = read_all(&dataset, 0, 1 << 20);
    cr_expect_eq(status, code, "%s: %d: %s", path, status, lathe_error_message());
    cr_expect_not_null(strstr(lathe_error_message(), says), "%s: no '%s' in %s", path, says,
                       lathe_error_message());
}

Test(arrow, columns_that_cannot_be_used_are_named)
{
    lathe_dataset dataset = dataset_of(SAMPLES "/odd/odd.parquet", LATHE_DATASET_AUTO);
    need_arrow();
    refuse(dataset.path, LATHE_DATASET_AUTO, LATHE_E_CONFIG,
           "odd.parquet: row 2: column \"text\" is null");
    dataset.columns[LATHE_COLUMN_TEXT] = "body";
    cr_expect_eq(read_all(&dataset, 0, 1), LATHE_E_CONFIG);
    cr_expect_not_null(
        strstr(lathe_error_message(),
               "odd.parquet: row 1: no column \"body\"; the columns are text, image, "
               "day, score, price;"),
        "%s", lathe_error_message());
    dataset.columns[LATHE_COLUMN_TEXT] = "image";
    cr_expect_eq(read_all(&dataset, 0, 1), LATHE_E_UNSUPPORTED);
    cr_expect_not_null(
        strstr(lathe_error_message(),
               "odd.parquet: column \"image\" has the type binary, which has no form "
               "in JSON; write it as a string or a number"),
        "%s", lathe_error_message());
    dataset.columns[LATHE_COLUMN_TEXT] = "day";
    cr_expect_eq(read_all(&dataset, 0, 1), LATHE_E_UNSUPPORTED);
    cr_expect_not_null(strstr(lathe_error_message(), "\"day\" has the type date"), "%s",
                       lathe_error_message());
    dataset.columns[LATHE_COLUMN_TEXT] = NULL;
    dataset.formats[LATHE_COLUMN_TEXT] = "{score}";
    cr_expect_eq(read_all(&dataset, 0, 1 << 20), LATHE_E_UNSUPPORTED);
    cr_expect_not_null(
        strstr(lathe_error_message(),
               "odd.parquet: row 3: column \"score\" holds infinity, which JSON does not have"),
        "%s", lathe_error_message());
    refuse(SAMPLES "/odd/empty.parquet", LATHE_DATASET_AUTO, LATHE_OK, "");
}

/* ---- small files that stand for very much (tests/golden/readers_hostile.py) ---- */

#define HOSTILE SAMPLES "/hostile/"

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 24 texts of 1 MiB in 609 bytes: a batch of all of them would need more than may be taken. */
Test(arrow, equal_texts_are_read_a_few_at_a_time)
{
    const lathe_dataset dataset = dataset_of(HOSTILE "equal_24.parquet", LATHE_DATASET_AUTO);
    need_arrow();
    cr_assert_eq(read_all(&dataset, 0, 1 << 20), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(got.len, 24 * ((1 << 20) + (int64_t)strlen("{\"text\": \"\"}\n")));
}

/* Rows that need more than rows before them are read again in smaller batches. None is lost. */
Test(arrow, large_rows_after_small_ones)
{
    static const char number[] = "\"number\": ";
    lathe_dataset dataset = dataset_of(HOSTILE "mixed.parquet", LATHE_DATASET_AUTO);
    int64_t row = 0;
    need_arrow();
    dataset.formats[LATHE_COLUMN_TEXT] = "{number}{text}";
    cr_assert_eq(read_all(&dataset, 0, 16 << 20), LATHE_OK, "%s", lathe_error_message());
    /* strstr of the address sanitizer reads to the end of the text each time */
    const char *at = got.data, *const end = got.data + got.len;
    for (; (at = memchr(at, '"', (size_t)(end - at))) != NULL; at++)
        if (strncmp(at, number, sizeof number - 1) == 0)
            cr_assert_eq(atoll(at + sizeof number - 1), row++);
    cr_expect_eq(row, 8400);
}

Test(arrow, what_stands_for_too_much_is_refused)
{
    static const struct {
        const char *file, *says;
    } cases[] = {
        {"long_list.parquet", "row 1: it needs more than 64 MiB of memory, which is the most that "
                              "is read of a file of 874 bytes"},
        {"long_text.arrow", "row 1: it needs more than 64 MiB of memory"},
        {"long_record.arrow", "row 1: the record has more than 32 MiB as JSON, which is the most"},
        {"nulls.arrow", "row 1: the record has more than 4 million values, which is the most"},
        {"views.arrow", "row 1: the record has more than 4 million values"},
        {"maps.arrow", "row 1: the record has more than 4 million values"},
    };
    need_arrow();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, HOSTILE "%s", cases[i].file);
        lathe_dataset dataset = dataset_of(path, LATHE_DATASET_AUTO);
        dataset.formats[LATHE_COLUMN_TEXT] = strstr(path, "text") ? "{text}" : "{ids}";
        const double begun = seconds();
        cr_expect_eq(read_all(&dataset, 0, 1 << 20), LATHE_E_UNSUPPORTED);
        cr_expect_lt(seconds() - begun, 10.0, "%s takes %.1f s", path, seconds() - begun);
        cr_expect_not_null(strstr(lathe_error_message(), cases[i].says), "%s: no '%s' in %s",
                           cases[i].file, cases[i].says, lathe_error_message());
    }
}

/* 4,000 texts of 1 MiB in 617 bytes, however the cache is cut into parts. */
Test(arrow, rows_without_end_are_refused)
{
    static const int64_t parts[] = {LATHE_PART_BYTES, 4 << 20};
    const lathe_dataset dataset = dataset_of(HOSTILE "equal_4000.parquet", LATHE_DATASET_AUTO);
    lathe_tokenizer *raw;
    need_arrow();
    cr_assert_eq(lathe_tokenizer_bytes(&raw), LATHE_OK);
    for (size_t i = 0; i < 2; i++) {
        lathe_shards *shards = NULL;
        cr_expect_eq(lathe__shards_prepare_parts(&dataset, 1, LATHE_ROWS_PACKED, raw, at("cache"),
                                                 parts[i], NULL, NULL, &shards),
                     LATHE_E_UNSUPPORTED);
        cr_expect_not_null(
            strstr(lathe_error_message(),
                   "equal_4000.parquet: row 35: up to here the rows have 35 MiB as JSON; expected "
                   "at most 32 MiB and 4096 bytes for each of the 617 bytes of the file"),
            "%s", lathe_error_message());
        lathe_shards_destroy(shards);
    }
    lathe_tokenizer_destroy(raw);
}

static void put(const char *name, const char *data, int64_t n)
{
    cr_assert_eq(lathe_file_write_atomic(at(name), data, n), LATHE_OK);
}

Test(arrow, damaged_and_misnamed_files_are_refused)
{
    static const char text[] = "{\"text\": \"a line of JSON\"}\n";
    char *data = NULL;
    int64_t n = 0;
    need_arrow();
    cr_assert_eq(lathe_file_read(same[0], 0, &data, &n), LATHE_OK);
    put("cut.parquet", data, n / 2);
    refuse(at("cut.parquet"), LATHE_DATASET_AUTO, LATHE_E_PARSE,
           "cut.parquet: it is damaged or not complete: ");
    put("lines.parquet", text, (int64_t)strlen(text));
    refuse(
        at("lines.parquet"), LATHE_DATASET_AUTO, LATHE_E_PARSE,
        "lines.parquet: it is not a Parquet or Arrow file: it begins with {\"text\": \"a line; if "
        "it is text, JSON or CSV, give it another name or set the dataset's type");
    put("table.jsonl", data, n);
    refuse(at("table.jsonl"), LATHE_DATASET_AUTO, LATHE_E_PARSE,
           "table.jsonl: it begins like a Parquet file; give it the suffix .parquet, or set "
           "type = \"reader\"");
    put("table.bin", data, n);
    const lathe_dataset dataset = dataset_of(at("table.bin"), LATHE_DATASET_READER);
    cr_expect_eq(read_all(&dataset, 0, 1 << 20), LATHE_OK, "%s", lathe_error_message());
    put("lines.bin", text, (int64_t)strlen(text));
    refuse(at("lines.bin"), LATHE_DATASET_READER, LATHE_E_CONFIG,
           "lines.bin: no reader plugin reads it, neither by its name nor by its first bytes; the "
           "readers are: arrow reads .parquet ");
    put("empty.parquet", "", 0);
    refuse(at("empty.parquet"), LATHE_DATASET_AUTO, LATHE_E_PARSE,
           "empty.parquet: the file is empty; expected Parquet or Arrow");
    put("old.feather", "FEA1 and more", 13);
    refuse(at("old.feather"), LATHE_DATASET_AUTO, LATHE_E_UNSUPPORTED,
           "a Feather file of version 1; write it again with version 2");
    cr_assert_eq(mkfifo(at("pipe.parquet"), 0600), 0);
    refuse(at("pipe.parquet"), LATHE_DATASET_AUTO, LATHE_E_CONFIG,
           "pipe.parquet: is a named pipe (FIFO); expected a regular file");
    free(data);
}

Test(arrow, a_build_without_arrow_says_what_to_install)
{
    static const char head[] = "PAR1 and more of it";
    if (access(SHIM, F_OK) == 0)
        cr_skip_test("Lathe was built with Apache Arrow");
    put("a.parquet", head, (int64_t)sizeof head);
    refuse(at("a.parquet"), LATHE_DATASET_AUTO, LATHE_E_UNSUPPORTED,
           "a.parquet: Parquet and Arrow files need Apache Arrow, and this Lathe was built without "
           "it; install Apache Arrow (pip install pyarrow), then configure Lathe with "
           "-DLATHE_ARROW_ROOT=FOLDER");
}
