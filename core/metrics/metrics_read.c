/* Reads metrics.jsonl. */
#include "metrics/metrics_read.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json/json_walk.h"

enum { CHUNK = 1 << 17, MAX_KEY = 160 };

struct lathe_metrics_reader {
    char *path;
    int fd;         /* -1: not open */
    int64_t offset; /* bytes read */
    int64_t n_bad;
    char names[LATHE_METRICS_MAX_KEYS][MAX_KEY];
    int32_t n_keys;
    int32_t skipping; /* 1: inside a line that is too long */
    int32_t keys[LATHE_METRICS_MAX_KEYS];
    double values[LATHE_METRICS_MAX_KEYS];
    int64_t held; /* bytes of an incomplete line at the front of text */
    char text[LATHE_METRICS_MAX_LINE + CHUNK + 1];
};

lathe_status lathe_metrics_reader_create(const char *path, lathe_metrics_reader **out)
{
    lathe_metrics_reader *r = calloc(1, sizeof *r);
    *out = NULL;
    if (r == NULL || (r->path = strdup(path)) == NULL) {
        free(r);
        return lathe_error(LATHE_E_NOMEM, "%s: no memory for reading", path);
    }
    r->fd = -1;
    *out = r;
    return LATHE_OK;
}

void lathe_metrics_reader_destroy(lathe_metrics_reader *r)
{
    if (r == NULL)
        return;
    if (r->fd >= 0)
        (void)close(r->fd);
    free(r->path);
    free(r);
}

const char *lathe_metrics_reader_key(const lathe_metrics_reader *r, int32_t index)
{
    return index >= 0 && index < r->n_keys ? r->names[index] : "";
}

int32_t lathe_metrics_reader_n_keys(const lathe_metrics_reader *r)
{
    return r->n_keys;
}

int64_t lathe_metrics_reader_bad_lines(const lathe_metrics_reader *r)
{
    return r->n_bad;
}

/* ---- one line ---- */

static const char *skip_space(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\r')
        at++;
    return at;
}

/* Returns the end of the JSON string at `at`; NULL if it has none. */
static const char *skip_string(const char *at)
{
    for (at++; *at != '"'; at++) {
        if (*at == '\\')
            at++;
        if (*at == '\0')
            return NULL;
    }
    return at + 1;
}

static const char *skip_digits(const char *at)
{
    while (*at >= '0' && *at <= '9')
        at++;
    return at;
}

/* Reads a JSON number (RFC 8259 section 6: no hexadecimal, no "inf"); NULL if there is none. */
static const char *read_number(const char *at, double *out)
{
    const char *begin = at, *digits;
    at += *at == '-';
    digits = at;
    at = skip_digits(at);
    if (at == digits || (*digits == '0' && at > digits + 1))
        return NULL;
    if (*at == '.') {
        digits = ++at;
        if ((at = skip_digits(at)) == digits)
            return NULL;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '+' || *at == '-';
        digits = at;
        if ((at = skip_digits(at)) == digits)
            return NULL;
    }
    *out = strtod(begin, NULL); /* the program never sets LC_NUMERIC: a point is a point */
    if (!isfinite(*out))
        *out = NAN;
    return at;
}

/* Reads a value; *out_is_number says whether it is a figure. NULL: not an allowed value. */
static const char *read_value(const char *at, double *out, int *out_is_number)
{
    *out_is_number = 1;
    if (*at == '-' || (*at >= '0' && *at <= '9'))
        return read_number(at, out);
    *out = NAN;
    if (strncmp(at, "null", 4) == 0)
        return at + 4;
    *out_is_number = 0;
    if (*at == '"')
        return skip_string(at);
    if (strncmp(at, "true", 4) == 0)
        return at + 4;
    return strncmp(at, "false", 5) == 0 ? at + 5 : NULL;
}

/* Returns the index of a key, and adds new keys; -1: too many keys, or too long a name. Lines
 * repeat their order, so the key after the last one is tried first. */
static int32_t key_index(lathe_metrics_reader *r, const char *name, int64_t n, int32_t guess)
{
    if (n >= MAX_KEY)
        return -1;
    if (guess < r->n_keys && strncmp(r->names[guess], name, (size_t)n) == 0 &&
        r->names[guess][n] == '\0')
        return guess;
    for (int32_t i = 0; i < r->n_keys; i++)
        if (strncmp(r->names[i], name, (size_t)n) == 0 && r->names[i][n] == '\0')
            return i;
    if (r->n_keys == LATHE_METRICS_MAX_KEYS)
        return -1;
    memcpy(r->names[r->n_keys], name, (size_t)n);
    return r->n_keys++;
}

/* Removes the escapes from a name. A name that is too long or invalid JSON stays as it is. */
static const char *unescape(const char *name, int64_t *n, char out[MAX_KEY])
{
    lathe_json_walk walk = {.at = name - 1, .end = name + *n + 1};
    lathe_json_string text;
    if (*n >= MAX_KEY || memchr(name, '\\', (size_t)*n) == NULL ||
        !lathe_json_pass_string(&walk, &text) || text.has_nul)
        return name;
    *n = lathe_json_unescape(text.text, text.n_raw, out);
    return out;
}

static void add_figure(lathe_metrics_reader *r, lathe_metrics_row *row, const char *name, int64_t n,
                       double value)
{
    const int32_t guess = row->n > 0 ? r->keys[row->n - 1] + 1 : 0;
    const int32_t key = key_index(r, name, n, guess);
    if (key < 0 || row->n == LATHE_METRICS_MAX_KEYS)
        return;
    r->keys[row->n] = key;
    r->values[row->n++] = value;
}

/* Parses a line that ends in a NUL; returns 0 if it is not a line of figures. */
static int parse_line(lathe_metrics_reader *r, const char *at, const char *end,
                      lathe_metrics_row *row)
{
    double value;
    int is_number;
    *row = (lathe_metrics_row){-1, 0, r->keys, r->values};
    at = skip_space(at);
    if (*at != '{')
        return 0;
    do {
        at = skip_space(at + 1);
        const char *name = at + 1;
        if (*at != '"' || (at = skip_string(at)) == NULL)
            return 0;
        char plain[MAX_KEY];
        int64_t n = at - 1 - name;
        name = unescape(name, &n, plain);
        at = skip_space(at);
        if (*at != ':')
            return 0;
        at = read_value(skip_space(at + 1), &value, &is_number);
        if (at == NULL)
            return 0;
        if (n == 4 && memcmp(name, "step", 4) == 0)
            row->step =
                value >= 0.0 && value < 0x1p53 && value == floor(value) ? (int64_t)value : -1;
        else if (is_number)
            add_figure(r, row, name, n, value);
        at = skip_space(at);
    } while (*at == ',');
    return *at == '}' && skip_space(at + 1) == end && row->step >= 0;
}

/* ---- the file ---- */

/* Reports the complete lines of text[0, n) and moves the rest to the front. */
static void tell_lines(lathe_metrics_reader *r, int64_t n, lathe_metrics_visit visit, void *arg)
{
    char *line = r->text, *end = r->text + n;
    for (char *stop; (stop = memchr(line, '\n', (size_t)(end - line))) != NULL; line = stop + 1) {
        lathe_metrics_row row;
        *stop = '\0';
        if (r->skipping)
            r->skipping = 0;
        else if (stop - line > LATHE_METRICS_MAX_LINE || !parse_line(r, line, stop, &row))
            r->n_bad++;
        else
            visit(arg, &row);
    }
    r->held = end - line;
    if (r->skipping) {
        r->held = 0;
    } else if (r->held > LATHE_METRICS_MAX_LINE) { /* counted now, and skipped up to its end */
        r->n_bad++;
        r->skipping = 1;
        r->held = 0;
    }
    memmove(r->text, line, (size_t)r->held);
}

static void forget(lathe_metrics_reader *r)
{
    if (r->fd >= 0)
        (void)close(r->fd);
    r->fd = -1;
    r->offset = r->held = r->n_bad = 0;
    r->skipping = 0;
}

/* Opens the file, or detects that it was replaced or cut. While the old file is open, a new file
 * cannot have its inode number. */
static lathe_status settle(lathe_metrics_reader *r, lathe_metrics_visit visit, void *arg)
{
    struct stat now, mine;
    if (stat(r->path, &now) != 0) {
        if (r->fd >= 0) {
            forget(r);
            visit(arg, NULL);
        }
        return LATHE_OK;
    }
    if (r->fd >= 0 && fstat(r->fd, &mine) == 0 && mine.st_ino == now.st_ino &&
        mine.st_dev == now.st_dev && now.st_size >= r->offset)
        return LATHE_OK;
    if (r->fd >= 0) {
        forget(r);
        visit(arg, NULL);
    }
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r->fd < 0 && errno != ENOENT)
        return lathe_error(LATHE_E_IO, "%s: cannot open: %s", r->path, strerror(errno));
    return LATHE_OK;
}

lathe_status lathe_metrics_reader_poll(lathe_metrics_reader *r, lathe_metrics_visit visit,
                                       void *arg)
{
    LATHE_TRY(settle(r, visit, arg));
    while (r->fd >= 0) {
        const ssize_t n = read(r->fd, r->text + r->held, CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return lathe_error(LATHE_E_IO, "%s: cannot read: %s", r->path, strerror(errno));
        if (n == 0)
            break;
        r->offset += n;
        tell_lines(r, r->held + n, visit, arg);
    }
    return LATHE_OK;
}
