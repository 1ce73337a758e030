/* Checks of readers: the records of sample files that the plugin brings, reading on from any
 * record, chosen columns, and damaged files.
 *
 * The samples are in the folder <name>.golden beside the plugin: records.jsonl has the records, and
 * every other file of the folder has the same records in a format of the reader. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "check/harness/subject.h"
#include "check/kinds/checks.h"
#include "lathe/reader.h"

enum { MAX_RECORDS = 256, MAX_SAMPLES = 16, N_CUTS = 48, N_FLIPS = 96 };

typedef struct samples {
    lathe_instance x;
    const lathe_reader_v1 *table;
    json_t *want[MAX_RECORDS]; /* of records.jsonl */
    int32_t n;
    const char *paths[MAX_SAMPLES], *names[MAX_SAMPLES];
    int32_t n_paths;
} samples;

/* A sample that is being read. */
typedef struct reading {
    const samples *of;
    const char *name;
    int fd;
    void *opened;
} reading;

static void samples_fini(samples *a)
{
    for (int32_t i = 0; i < a->n; i++)
        json_decref(a->want[i]);
    lathe_instance_fini(&a->x);
}

static lathe_status read_records(const char *path, samples *a)
{
    char *text = NULL;
    int64_t bytes = 0;
    LATHE_TRY(lathe_file_read(path, 64LL << 20, &text, &bytes));
    lathe_status status = LATHE_OK;
    for (char *at = text; at < text + bytes && status == LATHE_OK && a->n < MAX_RECORDS;) {
        const int64_t n = (int64_t)strcspn(at, "\n");
        status = lathe_json_load_with_nul(path, at, n, &a->want[a->n]);
        a->n += status == LATHE_OK;
        at += n + 1;
    }
    free(text);
    return status;
}

/* Makes an instance and lists the samples. LATHE__SKIP: the plugin brings none. */
static lathe_status samples_init(lathe__subject *s, samples *a)
{
    char **names = NULL;
    int64_t n = 0;
    const size_t length = strlen(s->component->path);
    memset(a, 0, sizeof *a);
    a->table = s->table;
    const char *folder = lathe_arena_printf(&s->arena, "%.*s.golden",
                                            (int)(length > 3 ? length - 3 : 0), s->component->path);
    const char *records = folder ? lathe_path_join(&s->arena, folder, "records.jsonl") : NULL;
    if (records == NULL)
        return LATHE_E_NOMEM;
    if (!lathe_path_exists(records))
        return lathe__skip(s, "there is no %s", records);
    LATHE_TRY(lathe_dir_list(folder, &s->arena, &names, &n));
    for (int64_t i = 0; i < n && a->n_paths < MAX_SAMPLES; i++)
        if (strcmp(names[i], "records.jsonl") != 0) {
            a->names[a->n_paths] = names[i];
            a->paths[a->n_paths++] = lathe_path_join(&s->arena, folder, names[i]);
        }
    LATHE_TRY(lathe__instance(s, &a->x));
    const lathe_status status = read_records(records, a);
    if (status != LATHE_OK)
        samples_fini(a);
    return status;
}

/* Opens fd at a place; columns: NULL for all columns. */
static lathe_status open_at(const samples *a, const char *name, int fd, int64_t offset, int64_t row,
                            const char *const *columns, int32_t n_columns, reading *out)
{
    const lathe_reader_file file = {.size = (uint32_t)sizeof file,
                                    .fd = fd,
                                    .bytes = lseek(fd, 0, SEEK_END),
                                    .path = name,
                                    .offset = offset,
                                    .row = row,
                                    .columns = columns,
                                    .n_columns = n_columns,
                                    .wants_all = columns == NULL};
    (void)lseek(fd, 0, SEEK_SET);
    *out = (reading){a, name, fd, NULL};
    lathe_error_clear();
    const lathe_status status = a->table->open(a->x.self, &file, &out->opened);
    if (status != LATHE_OK && lathe_error_message()[0] == '\0')
        return lathe_error(LATHE_E_PLUGIN, "open() of %s returns %d and records no message", name,
                           status);
    return status;
}

static lathe_status next_record(reading *r, lathe_reader_row *row, json_t **out)
{
    *out = NULL;
    *row = (lathe_reader_row){0};
    lathe_error_clear();
    const lathe_status status = r->of->table->next(r->opened, row);
    if (status != LATHE_OK && lathe_error_message()[0] == '\0')
        return lathe_error(LATHE_E_PLUGIN, "next() of %s returns %d and records no message",
                           r->name, status);
    if (status != LATHE_OK || row->text == NULL)
        return status;
    if (row->offset < 1)
        return lathe_error(LATHE_E_PLUGIN, "%s: a record has the offset %lld, expected at least 1",
                           r->name, (long long)row->offset);
    return lathe_json_load_with_nul(r->name, row->text, row->bytes, out);
}

static lathe_status differs(const char *name, int32_t i, const json_t *got, const json_t *want)
{
    char *a = json_dumps(got, JSON_COMPACT), *b = json_dumps(want, JSON_COMPACT);
    const lathe_status status =
        lathe_error(LATHE_E_PLUGIN, "%s: record %d is %.200s, expected %.200s", name, i + 1,
                    a ? a : "", b ? b : "");
    free(a);
    free(b);
    return status;
}

/* Compares the records from `from` on with the expected ones; only the member `key` if it is not
 * NULL. offsets: [n + 1], the offset after each record, or NULL. */
static lathe_status compare(reading *r, int32_t from, const char *key, int64_t *offsets)
{
    const samples *a = r->of;
    for (int32_t i = from; i <= a->n; i++) {
        lathe_reader_row row;
        json_t *got = NULL;
        LATHE_TRY(next_record(r, &row, &got));
        if ((i == a->n) != (got == NULL)) {
            json_decref(got);
            return lathe_error(LATHE_E_PLUGIN, "%s: it has %s than the %d records of records.jsonl",
                               r->name, got ? "more" : "fewer", a->n);
        }
        if (got == NULL)
            return LATHE_OK;
        const json_t *x = key ? json_object_get(got, key) : got;
        const json_t *y = key ? json_object_get(a->want[i], key) : a->want[i];
        const lathe_status status =
            (x == NULL && y == NULL) || json_equal(x, y) ? LATHE_OK : differs(r->name, i, x, y);
        json_decref(got);
        LATHE_TRY(status);
        if (offsets)
            offsets[i + 1] = row.offset;
    }
    return LATHE_OK;
}

/* Calls `one` with an open descriptor of each sample. */
static lathe_status each_sample(lathe__subject *s,
                                lathe_status (*one)(const samples *a, const char *name, int fd))
{
    samples a;
    LATHE_TRY(samples_init(s, &a));
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i < a.n_paths && status == LATHE_OK; i++) {
        const int fd = open(a.paths[i], O_RDONLY | O_CLOEXEC);
        status = fd >= 0 ? one(&a, a.names[i], fd)
                         : lathe_error(LATHE_E_IO, "%s: %s", a.paths[i], strerror(errno));
        if (fd >= 0)
            (void)close(fd);
    }
    lathe__note(s, "%d files of %d records", a.n_paths, a.n);
    samples_fini(&a);
    return status;
}

static lathe_status read_sample(const samples *a, const char *name, int fd)
{
    reading r;
    LATHE_TRY(open_at(a, name, fd, 0, 1, NULL, 0, &r));
    lathe_status status = compare(&r, 0, NULL, NULL);
    for (int i = 0; i < 2 && status == LATHE_OK; i++) { /* the end stays the end */
        lathe_reader_row row;
        json_t *more = NULL;
        status = next_record(&r, &row, &more);
        if (more)
            status = lathe_error(LATHE_E_PLUGIN, "%s: a record after the end", name);
        json_decref(more);
    }
    a->table->close(r.opened);
    a->table->close(NULL);
    if (status == LATHE_OK && (fcntl(fd, F_GETFD) < 0 || lseek(fd, 0, SEEK_CUR) != 0))
        status = lathe_error(LATHE_E_PLUGIN,
                             "%s: it closed the file, or moved its file offset; read with pread()",
                             name);
    return status;
}

static lathe_status samples_are_read(lathe__subject *s)
{
    return each_sample(s, read_sample);
}

static lathe_status continue_in_sample(const samples *a, const char *name, int fd)
{
    int64_t offsets[MAX_RECORDS + 1] = {0};
    reading r;
    LATHE_TRY(open_at(a, name, fd, 0, 1, NULL, 0, &r));
    lathe_status status = compare(&r, 0, NULL, offsets);
    a->table->close(r.opened);
    for (int32_t i = 0; i <= a->n && status == LATHE_OK; i++) {
        status = open_at(a, name, fd, offsets[i], i + 1, NULL, 0, &r);
        if (status != LATHE_OK)
            break;
        status = compare(&r, i, NULL, NULL);
        a->table->close(r.opened);
        if (status != LATHE_OK)
            status = lathe_error_context(status, "opened at record %d", i + 1);
    }
    return status;
}

static lathe_status continues_after_any_record(lathe__subject *s)
{
    return each_sample(s, continue_in_sample);
}

/* The columns of the file, and the records with one of them. A name that the file does not have is
 * no error. */
static lathe_status choose_in_sample(const samples *a, const char *name, int fd)
{
    json_t *value;
    const char *key;
    reading r;
    json_object_foreach(a->n > 0 ? a->want[0] : NULL, key, value)
    {
        const char *const columns[2] = {"a column that no file has", key};
        int is_named = 0;
        LATHE_TRY(open_at(a, name, fd, 0, 1, columns, 2, &r));
        const char *column;
        int32_t n = 0;
        for (; n <= LATHE_MOST_COLUMNS && (column = a->table->column(r.opened, n)) != NULL; n++)
            is_named |= strcmp(column, key) == 0;
        lathe_status status = compare(&r, 0, key, NULL);
        if (status == LATHE_OK && n > LATHE_MOST_COLUMNS)
            status = lathe_error(LATHE_E_PLUGIN, "%s: column() gives %d names and no end", name, n);
        if (status == LATHE_OK && !is_named)
            status = lathe_error(LATHE_E_PLUGIN, "%s: column() does not name \"%s\"", name, key);
        a->table->close(r.opened);
        LATHE_TRY(status);
    }
    return LATHE_OK;
}

static lathe_status columns_are_chosen(lathe__subject *s)
{
    return each_sample(s, choose_in_sample);
}

/* Reads a changed file to its end: records and errors are both right. */
static lathe_status survive(const samples *a, const char *what, int fd)
{
    reading r;
    const lathe_status opened = open_at(a, what, fd, 0, 1, NULL, 0, &r);
    if (opened != LATHE_OK)
        return opened == LATHE_E_PLUGIN ? opened : LATHE_OK;
    lathe_status status = LATHE_OK;
    json_t *got = NULL;
    for (int32_t i = 0; status == LATHE_OK; i++) {
        lathe_reader_row row;
        status = next_record(&r, &row, &got);
        json_decref(got);
        if (status == LATHE_OK && got == NULL)
            break;
        if (i == 100000)
            status = lathe_error(LATHE_E_PLUGIN, "%s: 100,000 records from a small file", what);
    }
    a->table->close(r.opened);
    return status == LATHE_E_PLUGIN ? status : LATHE_OK;
}

static lathe_status damage_sample(const samples *a, const char *name, int fd)
{
    const int64_t bytes = lseek(fd, 0, SEEK_END);
    char *text = malloc((size_t)bytes + 1);
    char what[128];
    lathe_status status = LATHE_OK;
    if (text == NULL || pread(fd, text, (size_t)bytes, 0) != bytes)
        status = lathe_error(LATHE_E_IO, "%s: cannot read it", name);
    for (int64_t i = 0; i < N_CUTS + N_FLIPS && status == LATHE_OK; i++) {
        const int is_cut = i < N_CUTS;
        const int64_t at = is_cut ? bytes * i / N_CUTS : (bytes - 1) * (i - N_CUTS) / N_FLIPS;
        const int damaged = memfd_create("damaged", MFD_CLOEXEC);
        (void)snprintf(what, sizeof what,
                       is_cut ? "%s cut after %lld bytes" : "%s with byte %lld changed", name,
                       (long long)at);
        if (!is_cut)
            text[at] = (char)~text[at];
        const int64_t n = is_cut ? at : bytes;
        if (damaged < 0 || (n > 0 && write(damaged, text, (size_t)n) != n))
            status = lathe_error(LATHE_E_IO, "a file in memory: %s", strerror(errno));
        if (!is_cut)
            text[at] = (char)~text[at];
        if (status == LATHE_OK)
            status = survive(a, what, damaged);
        if (damaged >= 0)
            (void)close(damaged);
    }
    free(text);
    return status;
}

static lathe_status damaged_files_are_survived(lathe__subject *s)
{
    return each_sample(s, damage_sample);
}

/* Two readings of a file in turn. */
static lathe_status read_apart(const samples *a, const char *name, int fd)
{
    reading r, other;
    lathe_reader_row row;
    json_t *got = NULL;
    LATHE_TRY(open_at(a, name, fd, 0, 1, NULL, 0, &other));
    lathe_status status = open_at(a, name, fd, 0, 1, NULL, 0, &r);
    if (status == LATHE_OK) {
        status = next_record(&other, &row, &got);
        json_decref(got);
        if (status == LATHE_OK)
            status = compare(&r, 0, NULL, NULL);
        a->table->close(r.opened);
    }
    if (status == LATHE_OK)
        status = compare(&other, 1, NULL, NULL);
    a->table->close(other.opened);
    return status;
}

static lathe_status open_files_are_apart(lathe__subject *s)
{
    return each_sample(s, read_apart);
}

const lathe__check *lathe__checks_reader(void)
{
    static const lathe__check checks[] = {
        {"samples_are_read", samples_are_read, 0},
        {"continues_after_any_record", continues_after_any_record, 0},
        {"columns_are_chosen", columns_are_chosen, 0},
        {"damaged_files_are_survived", damaged_files_are_survived, 0},
        {"open_files_are_apart", open_files_are_apart, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
