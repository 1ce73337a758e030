/* The reader of Parquet files and of Arrow files and streams (Feather version 2 is an Arrow file),
 * through Apache Arrow's C++ library (arrow_shim.h).
 *
 * The offset of a record is its group of rows, or its record batch, times 2^32, plus the number of
 * rows of that group up to and with the record.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow_json.h"
#include "arrow_shim.h"
#include "lathe/kit/instance.h"
#include "lathe/reader.h"

/* The longest record as JSON: LEAST_TEXT and 64 bytes for each byte of the file, at most MAX_TEXT.
 */
#define LEAST_TEXT (32LL << 20)
#define MAX_TEXT (256LL << 20)

#define SHIM_FILE_NAME "arrow-shim.so" /* beside the plugin */

typedef struct arrow {
    const lathe_host *host;
} arrow;

typedef struct opened {
    const lathe_host *host;
    const arrow_shim *shim;
    void *file;
    struct ArrowSchema all;  /* the columns of the file */
    struct ArrowSchema type; /* a struct with the chosen columns; borrows them from `all` */
    arrow_rows rows;
    int64_t at;    /* next row of the batch */
    int64_t bytes; /* length of the file */
    arrow_text text;
} opened;

/* ---- the shim ---- */

/* Opens a library once. Arrow's allocator would start a thread when it is loaded, unless the
 * environment says otherwise at that moment. */
static void *open_library(const char *path)
{
    static const char name[] = "JE_ARROW_MALLOC_CONF";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library != NULL)
        return library;
    const int is_set = getenv(name) != NULL;
    if (!is_set)
        (void)setenv(name, "background_thread:false", 1);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!is_set)
        (void)unsetenv(name);
    return library;
}

/* Opens the library that holds the shim, which stays open. NULL: `why` says why. */
static const arrow_shim *find_shim(char *why, size_t why_bytes)
{
    static const char here = 0;
    static const char advice[] =
        "install Apache Arrow (pip install pyarrow), then configure Lathe with "
        "-DLATHE_ARROW_ROOT=FOLDER, the folder of that package, build and install it again";
    Dl_info info;
    char path[4096] = "";
    if (dladdr(&here, &info) != 0 && info.dli_fname != NULL && strrchr(info.dli_fname, '/') != NULL)
        (void)snprintf(path, sizeof path, "%.*s/%s",
                       (int)(strrchr(info.dli_fname, '/') - info.dli_fname), info.dli_fname,
                       SHIM_FILE_NAME);
    if (access(path, F_OK) != 0) {
        (void)snprintf(
            why, why_bytes,
            "Parquet and Arrow files need Apache Arrow, and this Lathe was built without "
            "it; %s",
            advice);
        return NULL;
    }
    void *library = open_library(path);
    const char *error = library == NULL ? dlerror() : NULL;
    const arrow_shim *shim = library != NULL ? dlsym(library, "lathe_arrow_shim") : NULL;
    if (shim != NULL && shim->version == SHIM_VERSION)
        return shim;
    (void)snprintf(why, why_bytes,
                   "Apache Arrow, with which this Lathe was built, cannot be loaded (%s); %s",
                   error != NULL ? error : SHIM_FILE_NAME " is of another version", advice);
    return NULL;
}

/* Passes a failure of the shim on. */
static lathe_status failed(const lathe_host *host, int code, const char *why)
{
    if (code == SHIM_TOO_LARGE)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "%s", why);
    return lathe_fail(host, LATHE_E_PARSE, "it is damaged or not complete: %s", why);
}

/* ---- formats ---- */

static const lathe_reader_magic magics[] = {
    {"Parquet", "PAR1", 4, 0},           {"Parquet", "PARE", 4, 0},
    {"Arrow", "ARROW1", 6, 0},           {"Arrow", "\xff\xff\xff\xff", 4, 0},
    {"Feather version 1", "FEA1", 4, 0},
};

static int starts(const char *head, int64_t n, const char *with, int64_t length)
{
    return n >= length && memcmp(head, with, (size_t)length) == 0;
}

/* Finds the format by the file's first bytes; its name may be wrong. */
static lathe_status find_format(const lathe_host *host, const lathe_reader_file *file, int32_t *out)
{
    char head[16] = "", shown[48] = "";
    int64_t n = 0;
    ssize_t got;
    while (n < (int64_t)sizeof head &&
           (got = pread(file->fd, head + n, sizeof head - (size_t)n, n)) != 0) {
        if (got < 0 && errno != EINTR)
            return lathe_fail(host, LATHE_E_IO, "cannot read it: %s", strerror(errno));
        n += got > 0 ? got : 0;
    }
    *out = starts(head, n, "PAR1", 4)               ? SHIM_PARQUET
           : starts(head, n, "ARROW1\0\0", 8)       ? SHIM_FILE
           : starts(head, n, "\xff\xff\xff\xff", 4) ? SHIM_STREAM
                                                    : 0;
    if (*out != 0)
        return LATHE_OK;
    if (n == 0)
        return lathe_fail(host, LATHE_E_PARSE, "the file is empty; expected Parquet or Arrow");
    if (starts(head, n, "PARE", 4))
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "an encrypted Parquet file; write it without encryption");
    if (starts(head, n, "FEA1", 4))
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "a Feather file of version 1; write it again with version 2");
    for (int64_t i = 0; i < n; i++)
        (void)snprintf(shown + strlen(shown), sizeof shown - strlen(shown),
                       head[i] >= ' ' && head[i] <= '~' ? "%c" : "?", head[i]);
    return lathe_fail(
        host, LATHE_E_PARSE,
        "it is not a Parquet or Arrow file: it begins with %s; if it is text, JSON or "
        "CSV, give it another name or set the dataset's type",
        shown);
}

/* ---- columns ---- */

static int is_wanted(const lathe_reader_file *file, const char *name)
{
    for (int32_t i = 0; i < file->n_columns; i++)
        if (strcmp(file->columns[i], name) == 0)
            return 1;
    return 0;
}

/* Chooses the columns to read. If the file has none of those that are used, the first one that can
 * be read, so that there are rows in which the core can miss a column. */
static lathe_status choose(opened *o, const lathe_reader_file *file, int32_t *list, int32_t *out_n)
{
    char what[64];
    int32_t spare = -1, n = 0;
    for (int32_t i = 0; i < (int32_t)o->all.n_children; i++) {
        struct ArrowSchema *column = o->all.children[i];
        const int has_form = arrow_json_has_form(column, what, sizeof what);
        const int wanted = is_wanted(file, column->name);
        spare = spare < 0 && has_form ? i : spare;
        if (wanted && !has_form)
            return lathe_fail(
                o->host, LATHE_E_UNSUPPORTED,
                "column \"%s\" has the type %s, which has no form in JSON; write it as "
                "a string or a number",
                column->name, what);
        if (has_form && (wanted || file->wants_all))
            list[n++] = i;
    }
    if (n == 0 && spare < 0)
        return lathe_fail(o->host, LATHE_E_UNSUPPORTED,
                          "no column of strings, numbers, lists or structs");
    if (n == 0)
        list[n++] = spare;
    for (int32_t i = 0; i < n; i++)
        o->type.children[i] = o->all.children[list[i]];
    o->type.n_children = n;
    *out_n = n;
    return LATHE_OK;
}

static lathe_status begin(opened *o, const lathe_reader_file *file)
{
    char why[512] = "";
    int32_t n = 0;
    const size_t room = (size_t)o->all.n_children + 1;
    int32_t *list = calloc(room, sizeof *list);
    o->type.format = "+s";
    o->type.children = calloc(room, sizeof *o->type.children);
    if (list == NULL || o->type.children == NULL) {
        free(list);
        return lathe_fail(o->host, LATHE_E_NOMEM, "%lld columns", (long long)o->all.n_children);
    }
    lathe_status status = choose(o, file, list, &n);
    const int code = status != LATHE_OK
                         ? 0
                         : o->shim->begin(o->file, list, n, file->offset >> 32,
                                          file->offset & 0xffffffff, why, sizeof why);
    if (code != 0)
        status = failed(o->host, code, why);
    free(list);
    return status;
}

/* ---- the interface ---- */

/* Says which limit a record has reached. */
static lathe_status too_long(const opened *o)
{
    const arrow_text *t = &o->text;
    if (t->failed == ARROW_NO_MEMORY)
        return lathe_fail(o->host, LATHE_E_NOMEM, "a record of more than %lld bytes",
                          (long long)t->n);
    if (t->failed == ARROW_TOO_LONG)
        return lathe_fail(
            o->host, LATHE_E_UNSUPPORTED,
            "the record has more than %lld MiB as JSON, which is the most that is read of a file "
            "of %lld bytes (32 MiB, and 64 bytes for each byte of the file, at most 256 MiB)",
            (long long)(t->most_bytes >> 20), (long long)o->bytes);
    return lathe_fail(
        o->host, LATHE_E_UNSUPPORTED,
        "the record has more than %lld million values, which is the most that is read of a file of "
        "%lld bytes (4 million, and 8 for each byte of the file, at most 33 million)",
        (long long)(t->most_bytes / ARROW_BYTES_PER_VALUE / 1000000), (long long)o->bytes);
}

static void close_file(void *self)
{
    opened *o = self;
    if (o == NULL)
        return;
    if (o->rows.batch.release != NULL)
        o->rows.batch.release(&o->rows.batch);
    if (o->all.release != NULL)
        o->all.release(&o->all);
    if (o->file != NULL)
        o->shim->close(o->file);
    free(o->type.children);
    free(o->text.data);
    free(o);
}

static lathe_status open_file(void *self, const lathe_reader_file *file, void **out)
{
    const lathe_host *host = ((const arrow *)self)->host;
    char why[512] = "";
    int32_t format = 0;
    LATHE_TRY(find_format(host, file, &format));
    const arrow_shim *shim = find_shim(why, sizeof why);
    if (shim == NULL)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "%s", why);
    opened *o = calloc(1, sizeof *o);
    if (o == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "an open file");
    o->host = host;
    o->shim = shim;
    o->bytes = file->bytes;
    o->text.most_bytes = MAX_TEXT;
    if (file->bytes < (MAX_TEXT - LEAST_TEXT) / 64)
        o->text.most_bytes = LEAST_TEXT + 64 * file->bytes;
    lathe_status status = LATHE_OK;
    const int code = shim->open(file->fd, file->bytes, format, &o->file, &o->all, why, sizeof why);
    if (code != 0)
        status = failed(host, code, why);
    else if (o->all.n_children > LATHE_MOST_COLUMNS)
        status = lathe_fail(host, LATHE_E_UNSUPPORTED,
                            "it has %lld columns; expected at most %d: write the columns that are "
                            "used to a file of their own",
                            (long long)o->all.n_children, LATHE_MOST_COLUMNS);
    if (status == LATHE_OK)
        status = begin(o, file);
    if (status != LATHE_OK) {
        close_file(o);
        return status;
    }
    *out = o;
    return LATHE_OK;
}

static const char *column(const void *self, int32_t i)
{
    const opened *o = self;
    return i >= 0 && i < o->all.n_children ? o->all.children[i]->name : NULL;
}

static lathe_status next(void *self, lathe_reader_row *out)
{
    opened *o = self;
    char why[512] = "";
    const char *name = "";
    *out = (lathe_reader_row){0};
    if (o->rows.batch.release == NULL || o->at == o->rows.batch.length) {
        if (o->rows.batch.release != NULL)
            o->rows.batch.release(&o->rows.batch);
        memset(&o->rows, 0, sizeof o->rows);
        o->at = 0;
        const int got = o->shim->next(o->file, &o->rows, why, sizeof why);
        if (got < 0)
            return failed(o->host, got, why);
        if (got == 0)
            return LATHE_OK;
    }
    o->text.n = o->text.n_values = 0;
    if (!arrow_json_row(&o->text, &o->type, &o->rows.batch, o->at, &name))
        return lathe_fail(o->host, LATHE_E_UNSUPPORTED,
                          "column \"%s\" holds infinity, which JSON does not have", name);
    if (o->text.failed)
        return too_long(o);
    o->at++;
    *out =
        (lathe_reader_row){o->text.data, o->text.n, o->rows.group << 32 | (o->rows.first + o->at)};
    return LATHE_OK;
}

LATHE_INSTANCE_PLAIN(arrow)

static const lathe_reader_v1 arrow_table = {
    .size = (uint32_t)sizeof arrow_table,
    .revision = LATHE_READER_REVISION,
    .suffixes = ".parquet .pq .arrow .feather .ipc .arrows",
    .magics = magics,
    .n_magics = LATHE_N_FIELDS(magics),
    .open = open_file,
    .column = column,
    .next = next,
    .close = close_file,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE_PLAIN(arrow),
    .kind = LATHE_KIND_READER,
    .revision = LATHE_READER_REVISION,
    .version = "0.1.0",
    .summary = "Parquet, and Arrow files and streams (Feather)",
    .source = "Apache Arrow's C++ library",
    .license = "Apache-2.0",
};
