/* Lists a dataset's source files: a file, the files of a folder, or those that a pattern
 * matches. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "data/records/dataset.h"
#include "data/records/readers.h"
#include "lathe/reader.h"

static int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

/* Finds the types of files by their names. The reader plugins are opened for the first name that
 * the core does not know. */
typedef struct finder {
    lathe_registry *registry;
    lathe_arena *arena;
    lathe_readers readers;
    int32_t has_readers;
    lathe_status status; /* LATHE_E_NOMEM */
} finder;

static const lathe_component *reader_of(finder *f, const char *path)
{
    if (ends_with(path, ".txt") || f->status != LATHE_OK)
        return NULL;
    if (!f->has_readers)
        f->status = lathe_readers_find(f->registry, f->arena, &f->readers);
    f->has_readers = 1;
    return lathe_readers_by_name(&f->readers, path);
}

/* A name that nobody knows is text: folders of source code have any suffix. */
static int32_t type_by_name(finder *f, const char *path)
{
    static const struct {
        const char *end;
        int32_t type;
    } table[] = {{".jsonl", LATHE_DATASET_JSONL},
                 {".ndjson", LATHE_DATASET_JSONL},
                 {".json", LATHE_DATASET_JSON},
                 {".csv", LATHE_DATASET_CSV},
                 {".tsv", LATHE_DATASET_CSV}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (ends_with(path, table[i].end))
            return table[i].type;
    return reader_of(f, path) ? LATHE_DATASET_READER : LATHE_DATASET_TEXT;
}

static const char *suffixes_of(int32_t type)
{
    return type == LATHE_DATASET_JSONL    ? "*.jsonl or *.ndjson"
           : type == LATHE_DATASET_JSON   ? "*.json"
           : type == LATHE_DATASET_CSV    ? "*.csv or *.tsv"
           : type == LATHE_DATASET_READER ? "by a suffix that a reader plugin reads"
                                          : "files";
}

/* Files of a folder that are not read, for the note about them. */
typedef struct skipped_files {
    char **others; /* not regular files */
    int64_t n_others;
    const char **named; /* regular files whose names say another type */
    int64_t n_named;
    const char **hidden; /* names, or folders below the dataset's, that begin with a dot */
    int64_t n_hidden;
    const char **own; /* files of the run: checkpoints, prepared data, the run file */
    int64_t n_own;
} skipped_files;

/* Whether a part of the path after the first n bytes begins with a dot. */
static int is_hidden(const char *path, size_t n)
{
    for (const char *at = path + n; *at; at += strcspn(at, "/")) {
        at += strspn(at, "/");
        if (*at == '.')
            return 1;
    }
    return 0;
}

/* Whether the path is one of the run's own files, or below one of its folders. */
static int is_own(const lathe_dataset *dataset, const char *path)
{
    char *real = realpath(path, NULL);
    int found = 0;
    for (int32_t i = 0; real && i < dataset->n_own && !found; i++) {
        char *own = realpath(dataset->own[i], NULL);
        const size_t n = own ? strlen(own) : 0;
        found = n > 0 && strncmp(real, own, n) == 0 && (real[n] == '/' || real[n] == '\0');
        free(own);
    }
    free(real);
    return found;
}

static lathe_status find_paths(const char *path, lathe_arena *arena, char ***out, int64_t *out_n,
                               skipped_files *skipped)
{
    if (lathe_path_is_dir(path))
        return lathe_dir_walk_all(path, arena, out, out_n, &skipped->others, &skipped->n_others);
    if (lathe_path_exists(path)) {
        *out = lathe_arena_alloc(arena, (int64_t)sizeof **out);
        *out_n = 1;
        return *out && ((*out)[0] = lathe_arena_strdup(arena, path)) ? LATHE_OK : LATHE_E_NOMEM;
    }
    if (strpbrk(path, "*?[") == NULL)
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no such file or folder to take data from", path);
    LATHE_TRY(lathe_path_glob(path, arena, out, out_n));
    return *out_n ? LATHE_OK
                  : lathe_error(LATHE_E_NOT_FOUND, "%s: no file matches this pattern", path);
}

/* Whether a file describes the folder that it is in, like README.md of data sets on the Hub. Such a
 * file is no data, although its name says text or JSON. */
static int describes_folder(const char *path)
{
    static const char *const names[] = {"README",
                                        "LICENSE",
                                        "LICENCE",
                                        "NOTICE",
                                        "CITATION",
                                        "CHANGELOG",
                                        "dataset_infos.json",
                                        "dataset_info.json"};
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t n = strlen(names[i]);
        if (strncasecmp(name, names[i], n) == 0 && (name[n] == '\0' || name[n] == '.'))
            return 1;
    }
    return 0;
}

/* The type of a dataset by the names of its files: the one that all share, apart from files that
 * tell about the folder. Files of plugins, which hold nothing but records, have precedence over
 * texts. Otherwise text; *out_mixed is then 1 if there are several types. */
static int32_t common_type(finder *f, char *const *paths, int64_t n, int *out_mixed)
{
    int64_t of[LATHE_DATASET_READER + 1] = {0};
    int32_t shared = LATHE_DATASET_AUTO, n_types = 0;
    *out_mixed = 0;
    for (int64_t i = 0; i < n; i++)
        if (!describes_folder(paths[i]))
            of[type_by_name(f, paths[i])]++;
    for (int32_t type = 0; type <= LATHE_DATASET_READER; type++)
        if (of[type] > 0) {
            shared = type;
            n_types++;
        }
    if (n_types == 1 && shared != LATHE_DATASET_TEXT)
        return shared;
    if (n_types == 0)
        return n == 1 ? type_by_name(f, paths[0]) : LATHE_DATASET_TEXT;
    const int32_t first = of[LATHE_DATASET_READER] > 0 && of[LATHE_DATASET_JSONL] == 0
                              ? LATHE_DATASET_READER
                              : LATHE_DATASET_TEXT;
    *out_mixed = first == LATHE_DATASET_TEXT && n_types > 1;
    return first;
}

/* How a file is compressed, by its first bytes; NULL: it is not, or in another way. */
static const char *compression_of(const char *head, int64_t n, const char **out_tool)
{
    static const struct {
        const char *bytes;
        int64_t n;
        const char *name, *tool;
    } kinds[] = {{"\x1f\x8b", 2, "gzip", "gunzip"},
                 {"\x28\xb5\x2f\xfd", 4, "zstd", "unzstd"},
                 {"BZh", 3, "bzip2", "bunzip2"},
                 {"\xfd"
                  "7zXZ",
                  5, "xz", "unxz"},
                 {"PK\x03\x04", 4, "zip", "unzip"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (n >= kinds[i].n && memcmp(head, kinds[i].bytes, (size_t)kinds[i].n) == 0) {
            *out_tool = kinds[i].tool;
            return kinds[i].name;
        }
    return NULL;
}

/* Notes size and time of a file, by which prepared data are found again. Pipes are refused: data
 * are read at least twice, for the tokenizer and for the tokens. */
static lathe_status read_identity(const char *path, lathe_source *out)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return lathe_error(LATHE_E_IO, "%s: cannot read it: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: is %s; expected a regular file: data is read more than once, so "
                           "write it to a file first",
                           path, lathe_mode_text(info.st_mode));
    out->path = path;
    out->bytes = info.st_size;
    out->seconds = info.st_mtim.tv_sec;
    out->nanoseconds = info.st_mtim.tv_nsec;
    out->reader = NULL;
    return LATHE_OK;
}

/* Reads the first bytes of a file; returns their number, 0 if it cannot be read, which the reader
 * of its records reports. */
static int64_t read_head(const char *path, char *out, int64_t bytes)
{
    int64_t size = 0, n = 0;
    int fd = -1;
    if (lathe_file_open(path, &fd, &size) != LATHE_OK) {
        lathe_error_clear();
        return 0;
    }
    n = pread(fd, out, (size_t)bytes, 0);
    (void)close(fd);
    return n > 0 ? n : 0;
}

/* Refuses a file of records in UTF-16, and a compressed one, also where it is the whole dataset. In
 * a folder of texts they are left out, as any file that is not UTF-8 text. */
static lathe_status check_plain(finder *f, const lathe_source *source, int32_t type, int64_t n)
{
    static const char *const ends[] = {".gz", ".zst", ".bz2", ".xz", ".zip"};
    char head[16], inner[4096];
    const char *tool = NULL;
    int is_record = type != LATHE_DATASET_TEXT || n == 1;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (ends_with(source->path, ends[i])) {
            (void)snprintf(inner, sizeof inner, "%.*s",
                           (int)(strlen(source->path) - strlen(ends[i])), source->path);
            is_record |= type_by_name(f, inner) != LATHE_DATASET_TEXT;
        }
    if (!is_record || type == LATHE_DATASET_READER)
        return LATHE_OK;
    const int64_t n_head = read_head(source->path, head, sizeof head);
    if (type != LATHE_DATASET_TEXT && n_head >= 2 &&
        (memcmp(head, "\xff\xfe", 2) == 0 || memcmp(head, "\xfe\xff", 2) == 0))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: it is UTF-16 text, and data are read as UTF-8; convert it first "
                           "(iconv -f UTF-16 -t UTF-8)",
                           source->path);
    const char *kind = compression_of(head, n_head, &tool);
    if (kind == NULL)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s: it is compressed (%s), and data are read from plain files; decompress "
                       "it first (%s)",
                       source->path, kind, tool);
}

/* Finds the plugin that reads a file: by its name, or else, if the dataset's type is set, by its
 * first bytes. */
static lathe_status find_reader(finder *f, lathe_source *source)
{
    lathe_buffer b = LATHE_BUFFER_INIT;
    const char *format;
    char head[16];
    source->reader = reader_of(f, source->path);
    if (source->reader == NULL)
        source->reader = lathe_readers_by_bytes(
            &f->readers, head, read_head(source->path, head, sizeof head), &format);
    if (source->reader || f->status != LATHE_OK)
        return f->status;
    for (int64_t i = 0; i < f->readers.n; i++) {
        const lathe_plugin *plugin = f->readers.list[i]->plugin;
        lathe_buffer_printf(&b, "%s%s reads %s", i ? ", " : "", plugin->name,
                            ((const lathe_reader_v1 *)plugin->table)->suffixes);
    }
    const lathe_status status =
        lathe_error(LATHE_E_CONFIG,
                    "%s: no reader plugin reads it, neither by its name nor by its first bytes; "
                    "the readers are: %s",
                    source->path, b.data ? b.data : "none");
    lathe_buffer_fini(&b);
    return status;
}

/* Hashes the names, sizes and times of all files: prepared data with another stamp are made anew.
 */
static lathe_status stamp(lathe_sources *sources)
{
    lathe_sha256 *hash;
    LATHE_TRY(lathe_sha256_create(&hash));
    for (int64_t i = 0; i < sources->n; i++) {
        const lathe_source *s = &sources->list[i];
        const int64_t numbers[3] = {s->bytes, s->seconds, s->nanoseconds};
        lathe_sha256_update(hash, s->path, (int64_t)strlen(s->path) + 1);
        lathe_sha256_update(hash, numbers, sizeof numbers);
        sources->bytes += s->bytes;
    }
    lathe_sha256_finish(hash, sources->stamp);
    return LATHE_OK;
}

/* Appends up to three names, in parentheses. */
static void put_names(lathe_buffer *b, const char *const *names, int64_t n)
{
    lathe_buffer_puts(b, " (");
    for (int64_t i = 0; i < n && i < 3; i++)
        lathe_buffer_printf(b, "%s%s", i ? ", " : "", names[i]);
    lathe_buffer_puts(b, n > 3 ? ", ...)" : ")");
}

/* Notes that JSONL files, or files of reader plugins, are read as plain text, because the dataset's
 * files have names of several types. JSON and CSV files among texts are usual in folders of source
 * code. */
static lathe_status describe_mixed(const lathe_dataset *dataset, finder *f, char *const *paths,
                                   int64_t n, lathe_sources *out)
{
    const char *named[3];
    int64_t n_named = 0;
    lathe_buffer b = LATHE_BUFFER_INIT;
    for (int64_t i = 0; i < n; i++) {
        const int32_t type = type_by_name(f, paths[i]);
        if ((type == LATHE_DATASET_JSONL || type == LATHE_DATASET_READER) && n_named++ < 3)
            named[n_named - 1] = paths[i];
    }
    if (n_named == 0)
        return f->status;
    lathe_buffer_printf(
        &b,
        "%s: read as plain text, because its files have names of several types; %lld "
        "with records",
        dataset->path, (long long)n_named);
    put_names(&b, named, n_named);
    lathe_buffer_puts(&b, ": set the dataset's type to read the records of one type");
    if (out->left_out)
        lathe_buffer_printf(&b, "; %s", out->left_out);
    out->left_out = b.data ? lathe_arena_strdup(f->arena, b.data) : NULL;
    const lathe_status status = b.status;
    lathe_buffer_fini(&b);
    return status != LATHE_OK || out->left_out ? status : LATHE_E_NOMEM;
}

/* Writes the sentence about files that are not read: "corpus: 12 files are read; left out: 2 not
 * named *.jsonl or *.ndjson (corpus/a.txt, corpus/b.md)". */
static lathe_status describe(const lathe_dataset *dataset, const skipped_files *skipped,
                             lathe_arena *arena, lathe_sources *out)
{
    lathe_buffer b = LATHE_BUFFER_INIT;
    const struct {
        const char *const *paths;
        int64_t n;
        const char *text; /* after the number */
    } kinds[] = {
        {skipped->named, skipped->n_named, NULL},
        {(const char *const *)skipped->others, skipped->n_others,
         skipped->n_others == 1 ? " that is not a regular file" : " that are not regular files"},
        {skipped->hidden, skipped->n_hidden, " hidden"},
        {skipped->own, skipped->n_own, " of the run itself"}};
    const int n_kinds = (int)(sizeof kinds / sizeof kinds[0]);
    int n_said = 0;
    if (skipped->n_named + skipped->n_others + skipped->n_hidden + skipped->n_own == 0)
        return LATHE_OK;
    lathe_buffer_printf(&b, "%s: %lld file%s read; left out: ", dataset->path, (long long)out->n,
                        out->n == 1 ? " is" : "s are");
    for (int i = 0; i < n_kinds; i++) {
        if (kinds[i].n == 0)
            continue;
        lathe_buffer_printf(&b, "%s%lld", n_said++ ? ", " : "", (long long)kinds[i].n);
        if (kinds[i].text)
            lathe_buffer_puts(&b, kinds[i].text);
        else
            lathe_buffer_printf(&b, " not named %s", suffixes_of(out->type));
        put_names(&b, kinds[i].paths, kinds[i].n);
    }
    lathe_status status = b.status;
    if (status == LATHE_OK) {
        out->left_out = lathe_arena_strdup(arena, b.data);
        status = out->left_out ? LATHE_OK : LATHE_E_NOMEM;
    }
    lathe_buffer_fini(&b);
    return status;
}

/* Takes hidden files and the run's own files out of the paths of a folder. */
static lathe_status leave_out(const lathe_dataset *dataset, lathe_arena *arena, char **paths,
                              int64_t *n, skipped_files *skipped)
{
    int64_t n_kept = 0;
    skipped->hidden = lathe_arena_alloc(arena, (*n + 1) * (int64_t)sizeof *skipped->hidden);
    skipped->own = lathe_arena_alloc(arena, (*n + 1) * (int64_t)sizeof *skipped->own);
    if (skipped->hidden == NULL || skipped->own == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < *n; i++)
        if (is_own(dataset, paths[i]))
            skipped->own[skipped->n_own++] = paths[i];
        else if (is_hidden(paths[i], strlen(dataset->path)))
            skipped->hidden[skipped->n_hidden++] = paths[i];
        else
            paths[n_kept++] = paths[i];
    *n = n_kept;
    return LATHE_OK;
}

lathe_status lathe_sources_list(const lathe_dataset *dataset, lathe_arena *arena,
                                lathe_sources *out)
{
    char **paths = NULL;
    int64_t n = 0;
    memset(out, 0, sizeof *out);
    skipped_files skipped = {0};
    finder f = {.registry = dataset->registry, .arena = arena};
    LATHE_TRY(find_paths(dataset->path, arena, &paths, &n, &skipped));
    const int is_folder = lathe_path_is_dir(dataset->path),
              is_auto = dataset->type == LATHE_DATASET_AUTO;
    int is_mixed = 0;
    if (is_folder)
        LATHE_TRY(leave_out(dataset, arena, paths, &n, &skipped));
    out->type = is_auto ? common_type(&f, paths, n, &is_mixed) : dataset->type;
    lathe_source *list = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof *list);
    skipped.named = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof *skipped.named);
    if (list == NULL || skipped.named == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < n; i++)
        if ((!is_folder && !is_auto) || out->type == LATHE_DATASET_TEXT ||
            (type_by_name(&f, paths[i]) == out->type && (n == 1 || !describes_folder(paths[i]))))
            LATHE_TRY(read_identity(paths[i], &list[out->n++]));
        else
            skipped.named[skipped.n_named++] = paths[i];
    for (int64_t i = 0; i < out->n; i++)
        list[i].is_array = out->type == LATHE_DATASET_JSON;
    for (int64_t i = 0; i < out->n && out->type == LATHE_DATASET_READER; i++)
        LATHE_TRY(find_reader(&f, &list[i]));
    LATHE_TRY(f.status);
    for (int64_t i = 0; i < out->n; i++)
        LATHE_TRY(check_plain(&f, &list[i], out->type, out->n));
    out->list = list;
    if (!out->n)
        return lathe_error(LATHE_E_CONFIG, "%s: the folder holds no %s", dataset->path,
                           suffixes_of(out->type));
    LATHE_TRY(describe(dataset, &skipped, arena, out));
    if (is_mixed)
        LATHE_TRY(describe_mixed(dataset, &f, paths, n, out));
    return stamp(out);
}
