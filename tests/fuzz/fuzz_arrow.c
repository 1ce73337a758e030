/* libFuzzer target: any bytes as a Parquet file, or as an Arrow file or stream, through the reader
 * plugin. Records must be objects in UTF-8, and a reader that begins at any of them must give it
 * again.
 *
 * Bit 0 of the first byte asks for all columns; the others choose the record to begin at.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/records/record_reader.h"
#include "fuzz/fuzz_file.h"

/* Arrow takes memory for a batch of an Arrow file by the length that the file names, and fills what
 * the file has. Beyond this size malloc says that there is none, as it does without a sanitizer.
 */
const char *__asan_default_options(void); // NOLINT(bugprone-reserved-identifier): the runtime's
const char *__asan_default_options(void)  // NOLINT(bugprone-reserved-identifier): the runtime's
{
    return "allocator_may_return_null=1:max_allocation_size_mb=1024";
}

enum { MAX_RECORDS = 64, MAX_BYTES = 4 << 20 };

static lathe_registry *registry;

/* Arrow's arrays come from malloc, so that the sanitizer sees their ends. */
static const lathe_component *find_reader(void)
{
    static const lathe_component *reader;
    if (reader == NULL &&
        (setenv("ARROW_DEFAULT_MEMORY_POOL", "system", 1) != 0 ||
         setenv("LATHE_PLUGIN_PATH", LATHE_TEST_PLUGINS, 1) != 0 ||
         lathe_registry_create(&registry) != LATHE_OK ||
         lathe_registry_find(registry, LATHE_KIND_READER, "arrow", &reader) != LATHE_OK)) {
        (void)fprintf(stderr, "%s\n", lathe_error_message());
        abort();
    }
    return reader;
}

/* Reads records one at a time until some are read. *at, text: the place before record `number`,
 * and its text; NULL: the file ends before. */
static void read_records(const lathe_dataset *dataset, const lathe_sources *sources, int all,
                         int64_t number, lathe_source_place *at, char **text, int64_t *n_text)
{
    lathe_reader r;
    const lathe_source_place begin = {.line = 1};
    if (lathe_reader_init(&r, dataset, sources, all ? LATHE_ROWS_PROMPTS : LATHE_ROWS_PACKED,
                          &begin) != LATHE_OK)
        abort();
    for (int64_t k = 0; k < MAX_RECORDS && r.n_bytes < MAX_BYTES; k++) {
        const lathe_source_place before = r.at;
        if (lathe_reader_batch(&r, 1) != LATHE_OK || r.n == 0)
            break;
        const char *record = r.data + r.list[0].begin;
        const int64_t n = r.list[0].n;
        if (r.n != 1 || n < 2 || record[0] != '{' || record[n - 1] != '}' ||
            r.at.line != before.line + 1)
            abort();
        if (k == number) {
            *at = before;
            *text = malloc((size_t)n);
            if (*text == NULL)
                abort();
            memcpy(*text, record, (size_t)n);
            *n_text = n;
        }
    }
    lathe_reader_fini(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stat info;
    const lathe_component *reader = find_reader();
    if (size == 0)
        return 0;
    const fuzz_file file = fuzz_file_open(data + 1, size - 1);
    if (fstat(file.fd, &info) != 0)
        abort();
    const lathe_dataset dataset = {
        .path = file.path, .type = LATHE_DATASET_READER, .registry = registry};
    const lathe_source source = {.path = file.path,
                                 .bytes = info.st_size,
                                 .seconds = info.st_mtim.tv_sec,
                                 .nanoseconds = info.st_mtim.tv_nsec,
                                 .reader = reader};
    const lathe_sources sources = {
        .list = &source, .n = 1, .bytes = info.st_size, .type = LATHE_DATASET_READER};
    const int all = data[0] & 1;
    lathe_source_place at = {.line = 1};
    char *text = NULL;
    int64_t n_text = 0;
    read_records(&dataset, &sources, all, (data[0] >> 1) % MAX_RECORDS, &at, &text, &n_text);
    if (text != NULL) {
        lathe_reader r;
        if (lathe_reader_init(&r, &dataset, &sources, all ? LATHE_ROWS_PROMPTS : LATHE_ROWS_PACKED,
                              &at) != LATHE_OK ||
            lathe_reader_batch(&r, 1) != LATHE_OK || r.n != 1 || r.list[0].n != n_text ||
            memcmp(r.data + r.list[0].begin, text, (size_t)n_text) != 0) {
            (void)fprintf(stderr, "row %lld is not given again: %s\n", (long long)at.line,
                          lathe_error_message());
            abort();
        }
        lathe_fields fields = {.layout = 0};
        (void)lathe_fields_read(&fields, &r, &r.list[0]);
        lathe_fields_fini(&fields);
        lathe_reader_fini(&r);
    }
    free(text);
    fuzz_file_close(&file);
    return 0;
}
