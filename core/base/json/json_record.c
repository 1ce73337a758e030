/* Reads a JSON record in one pass: finds the wanted members and checks that all of it is valid
 * JSON. */
#include "base/json/json_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define ARRAY UINT32_MAX /* in `first`: the level is an array, which has no keys */
#define FEW_KEYS 16      /* up to this number, each key is compared with each */
#define MANY_KEYS 256    /* from this number on, keys are also checked at each power of two */

/* ---- keys: an object has no duplicates ---- */

static int order(const lathe_json_record *r, uint32_t a, uint32_t b)
{
    return lathe_json_compare(r->begin + a, r->begin + b);
}

static void sift(const lathe_json_record *r, uint32_t *keys, int64_t at, int64_t n)
{
    const uint32_t moved = keys[at];
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && order(r, keys[child], keys[child + 1]) < 0)
            child++;
        if (order(r, moved, keys[child]) >= 0)
            break;
        keys[at] = keys[child];
        at = child;
    }
    keys[at] = moved;
}

/* Heapsort: in place, with the same complexity for any keys. */
static void sort(const lathe_json_record *r, uint32_t *keys, int64_t n)
{
    for (int64_t i = n / 2; i-- > 0;)
        sift(r, keys, i, n);
    for (int64_t end = n - 1; end > 0; end--) {
        const uint32_t largest = keys[0];
        keys[0] = keys[end];
        keys[end] = largest;
        sift(r, keys, 0, end);
    }
}

/* Refuses two equal keys: the error stands at the later one, and quotes its first 24 bytes. */
static int refuse_duplicate(lathe_json_record *r, uint32_t a, uint32_t b)
{
    const char *const key = r->begin + (a > b ? a : b);
    lathe_json_string text;
    r->walk.at = key - 1;
    if (lathe_json_pass_string(&r->walk, &text))
        r->walk.at = key - 1;
    return lathe_json_wrong(&r->walk, "duplicate key \"%.*s%s",
                            (int)(text.n_raw < 24 ? text.n_raw : 24), key,
                            text.n_raw <= 24 ? "\"" : "...\"");
}

/* Checks that all keys of the innermost object differ. 1: they do. */
static int check_keys(lathe_json_record *r)
{
    const int64_t first = r->first[r->depth - 1], n = r->n_keys - first;
    if (n < 2)
        return 1;
    uint32_t *const keys = r->keys + first;
    if (n > FEW_KEYS)
        sort(r, keys, n);
    for (int64_t i = 1; i < n; i++)
        for (int64_t k = n > FEW_KEYS ? i - 1 : 0; k < i; k++)
            if (order(r, keys[k], keys[i]) == 0)
                return refuse_duplicate(r, keys[k], keys[i]);
    return 1;
}

static int add_key(lathe_json_record *r, const char *key)
{
    /* Growth by an eighth, because doubling could waste as much memory as a record of many short
     * keys has. */
    if (r->n_keys == r->capacity) {
        const int64_t capacity = r->capacity + r->capacity / 8 + 64;
        uint32_t *keys = realloc(r->keys, (size_t)capacity * sizeof *keys);
        if (keys == NULL)
            return -1;
        r->keys = keys;
        r->capacity = capacity;
    }
    r->keys[r->n_keys++] = (uint32_t)(key - r->begin);
    const int64_t n = r->n_keys - r->first[r->depth - 1];
    return n >= MANY_KEYS && (n & (n - 1)) == 0 ? check_keys(r) : 1;
}

/* ---- members ---- */

static int expect(lathe_json_record *r, char c, const char *what)
{
    lathe_json_pass_blank(&r->walk);
    if (r->walk.at < r->walk.end && *r->walk.at == c) {
        r->walk.at++;
        return 1;
    }
    return lathe_json_wrong(&r->walk, "%s expected", what);
}

/* A key and its colon. */
static int read_key(lathe_json_record *r)
{
    lathe_json_string key;
    lathe_json_pass_blank(&r->walk);
    const char *const at = r->walk.at;
    if (at >= r->walk.end || *at != '"')
        return lathe_json_wrong(&r->walk, "a key in quotes expected");
    if (!lathe_json_pass_string(&r->walk, &key))
        return 0;
    if (key.has_nul) {
        r->walk.at = at;
        r->nul_in_key = 1;
        return lathe_json_wrong(&r->walk, "a NUL in a key");
    }
    r->wanted = 0;
    for (int32_t k = 0; k < r->n_names && r->depth == 1; k++)
        if (r->names[k] && lathe_json_is(&key, r->names[k], (int64_t)strlen(r->names[k])))
            r->wanted |= 1u << k;
    const int code = add_key(r, key.text);
    return code == 1 ? expect(r, ':', "':'") : code;
}

/* Writes a value to the members whose name its key has; only members of the record itself count. */
static void write_member(const lathe_json_record *r, int32_t is_string,
                         const lathe_json_string *string)
{
    for (int32_t k = 0; k < r->n_names && r->depth == 1; k++)
        if (r->wanted >> k & 1u)
            r->members[k] = (lathe_json_member){1, is_string, *string};
}

/* ---- values ---- */

static int open_value(lathe_json_record *r, int is_object)
{
    static const lathe_json_string none = {NULL, 0, 0, 0, 0};
    if (r->depth == LATHE_JSON_DEPTH)
        return lathe_json_wrong(&r->walk, "nested deeper than %d", LATHE_JSON_DEPTH);
    write_member(r, 0, &none);
    r->first[r->depth++] = is_object ? (uint32_t)r->n_keys : ARRAY;
    r->walk.at++;
    return 1;
}

/* Moves past closing brackets; then, in the object or array still open, past a comma and a key. */
static int after_value(lathe_json_record *r)
{
    while (r->depth > 0) {
        const int is_object = r->first[r->depth - 1] != ARRAY;
        lathe_json_pass_blank(&r->walk);
        const char c = r->walk.at < r->walk.end ? *r->walk.at : '\0';
        if (c == ',') {
            r->walk.at++;
            return is_object ? read_key(r) : 1;
        }
        if (c != (is_object ? '}' : ']'))
            return lathe_json_wrong(&r->walk,
                                    is_object ? "'}' or ',' expected" : "']' or ',' expected");
        if (is_object) {
            const int64_t first = r->first[r->depth - 1];
            if (!check_keys(r))
                return 0;
            if (r->depth == 1)
                r->n_own_keys = r->n_keys;
            r->n_keys = first;
        }
        r->walk.at++;
        r->depth--;
    }
    return 1;
}

/* Reads one value: a whole scalar, or the opening bracket of an object or array. */
static int read_value(lathe_json_record *r)
{
    lathe_json_string string = {NULL, 0, 0, 0, 0};
    lathe_json_pass_blank(&r->walk);
    const char c = r->walk.at < r->walk.end ? *r->walk.at : '\0';
    if (c == '{' || c == '[') {
        if (!open_value(r, c == '{'))
            return 0;
        lathe_json_pass_blank(&r->walk);
        if (r->walk.at < r->walk.end && *r->walk.at == (c == '{' ? '}' : ']'))
            return after_value(r);
        return c == '{' ? read_key(r) : 1;
    }
    const char *const begin = r->walk.at;
    const int good =
        c == '"' ? lathe_json_pass_string(&r->walk, &string) : lathe_json_pass_scalar(&r->walk);
    if (!good)
        return 0;
    if (c != '"')
        string = (lathe_json_string){begin, r->walk.at - begin, r->walk.at - begin, 0, 0};
    write_member(r, c == '"', &string);
    return after_value(r);
}

int lathe_json_record_read(lathe_json_record *record, const char *text, int64_t n,
                           const char *const *names, int32_t n_names, lathe_json_member *members)
{
    record->nul_in_key = 0;
    record->walk = (lathe_json_walk){.at = text, .end = text + n, .takes_nan = record->takes_nan};
    record->begin = text;
    record->names = names;
    record->members = members;
    record->n_names = n_names;
    record->depth = 0;
    record->n_keys = record->n_own_keys = 0;
    record->wanted = 0;
    if (n_names > 0)
        memset(members, 0, (size_t)n_names * sizeof *members);
    if (n > UINT32_MAX)
        return lathe_json_wrong(&record->walk, "a record of 4 GiB or more");
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        return lathe_json_wrong(&record->walk, "a byte order mark; JSON begins without one");
    int code;
    do
        code = read_value(record);
    while (code == 1 && record->depth > 0);
    if (code != 1)
        return code;
    lathe_json_pass_blank(&record->walk);
    return record->walk.at == record->walk.end
               ? 1
               : lathe_json_wrong(&record->walk, "the end of the record expected");
}

void lathe_json_record_place(const lathe_json_record *record, int64_t *out_line,
                             int64_t *out_column)
{
    const char *begin = record->begin;
    *out_line = 1;
    for (const char *p = begin; p < record->walk.at; p++)
        if (*p == '\n') {
            ++*out_line;
            begin = p + 1;
        }
    *out_column = record->walk.at - begin + 1;
}

/* Moves past a checked value. */
static void pass_value(lathe_json_walk *walk)
{
    lathe_json_string ignored;
    int64_t depth = 0;
    do {
        const char c = *walk->at;
        if (c == '"') {
            (void)lathe_json_pass_string(walk, &ignored);
            continue;
        }
        const int closes = c == '}' || c == ']';
        depth += (c == '{' || c == '[') - closes;
        if (depth == 0 && !closes)
            (void)lathe_json_pass_scalar(walk);
        else
            walk->at++;
    } while (depth > 0);
}

int lathe_json_record_next(const char **at, const char *end, lathe_json_string *out_key,
                           const char **out_value, int64_t *out_n)
{
    lathe_json_walk walk = {.at = *at, .end = end, .takes_nan = 1};
    lathe_json_pass_blank(&walk);
    walk.at++; /* `{` or `,` before a member, or `}` at the end */
    lathe_json_pass_blank(&walk);
    if (walk.at >= end || *walk.at != '"')
        return 0;
    (void)lathe_json_pass_string(&walk, out_key);
    lathe_json_pass_blank(&walk);
    walk.at++; /* the colon */
    lathe_json_pass_blank(&walk);
    *out_value = walk.at;
    pass_value(&walk);
    *out_n = walk.at - *out_value;
    *at = walk.at;
    return 1;
}

int lathe_json_record_key(const lathe_json_record *record, const char *text, int64_t n, int64_t i,
                          lathe_json_string *out_key)
{
    lathe_json_walk walk = {.at = text + record->keys[i] - 1, .end = text + n};
    (void)lathe_json_pass_string(&walk, out_key);
    lathe_json_pass_blank(&walk);
    walk.at++; /* the colon */
    lathe_json_pass_blank(&walk);
    const char open = *walk.at;
    /* null, NaN, Infinity, -Infinity */
    if (lathe_is_one_of(open, "nNI") || (open == '-' && walk.at[1] == 'I'))
        return 0;
    walk.at++;
    if (open == '"')
        return *walk.at != '"';
    lathe_json_pass_blank(&walk);
    return !(open == '[' && *walk.at == ']') && !(open == '{' && *walk.at == '}');
}

void lathe_json_record_keys(const char *text, int64_t n, char *out, int64_t room)
{
    lathe_json_string key;
    const char *value;
    int64_t used = 0, n_value;
    out[0] = '\0';
    for (const char *at = text; lathe_json_record_next(&at, text + n, &key, &value, &n_value);) {
        const int more = used + key.n_raw + 8 >= room;
        const int put = snprintf(out + used, (size_t)(room - used), "%s%.*s", used ? ", " : "",
                                 more ? 3 : (int)key.n_raw, more ? "..." : key.text);
        used += put > 0 ? put : 0;
        if (more)
            return;
    }
}

void lathe_json_record_fini(lathe_json_record *record)
{
    free(record->keys);
    record->keys = NULL;
    record->n_keys = record->capacity = 0;
}
