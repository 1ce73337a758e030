/* Patterns: a small reader of flat JSON objects, and matching by regular expression. */
#include "shared/lora_pattern.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Longest expression. EVA writes whole names of modules, which take about 80. */
#define MAX_TEXT 1024

typedef struct entry {
    void *compiled;
    double value;
    char *text;
} entry;

struct lora_patterns {
    const lathe_host *host;
    const char *method;
    int n, room;
    entry *entries;
};

static const char *skip_space(const char *s)
{
    return s + strspn(s, " \t\r\n");
}

/* Reads a JSON string at s without \u escapes; returns NULL if it is malformed or too long. */
static const char *read_string(const char *s, char *out, size_t capacity)
{
    size_t n = 0;
    if (*s++ != '"')
        return NULL;
    for (; *s != '"'; s++) {
        char c = *s;
        if (c == '\\') {
            c = *++s;
            if (c == '\0' || strchr("\"\\/", c) == NULL)
                return NULL;
        }
        if (c == '\0' || n + 1 >= capacity)
            return NULL;
        out[n++] = c;
    }
    out[n] = '\0';
    return s + 1;
}

/* Makes room for one more entry. */
static lathe_status grow(lora_patterns *p, const char *key)
{
    const int room = p->room ? 2 * p->room : 16;
    if (p->n < p->room)
        return LATHE_OK;
    entry *entries = p->host->alloc(room * (int64_t)sizeof *entries);
    if (entries == NULL)
        return lathe_fail(p->host, LATHE_E_NOMEM, "no memory for %s", key);
    if (p->n > 0)
        memcpy(entries, p->entries, (size_t)p->n * sizeof *entries);
    p->host->free(p->entries);
    p->entries = entries;
    p->room = room;
    return LATHE_OK;
}

/* The groups are those of PEFT's re.match(rf"(.*\.)?({key})$", name), whose expression may count
 * them. */
static lathe_status add(lora_patterns *p, const char *key, const char *pattern, double value,
                        int whole)
{
    char text[MAX_TEXT + 16];
    const double least = whole ? 1.0 : 0.0;
    if (!(value >= least) || isinf(value) ||
        (whole && (value > floor(value) || value > LORA_MAX_RANK)))
        return lathe_fail_at(p->host, LATHE_E_CONFIG, key, "%s of \"%s\" is %g; expected a %s", key,
                             pattern, value,
                             whole ? "whole number from 1 to 65536" : "number from 0 on");
    LATHE_TRY(grow(p, key));
    entry *e = &p->entries[p->n];
    const size_t bytes = strlen(pattern) + 1;
    (void)snprintf(text, sizeof text, "^(.*\\.)?(%s)$", pattern);
    if (p->host->pattern_create(key, text, &e->compiled) != LATHE_OK)
        return lathe_fail_at(p->host, LATHE_E_CONFIG, key, "%s: \"%s\" is no regular expression",
                             key, pattern);
    p->n++;
    e->value = value;
    e->text = p->host->alloc((int64_t)bytes);
    if (e->text == NULL)
        return lathe_fail(p->host, LATHE_E_NOMEM, "no memory for %s", key);
    memcpy(e->text, pattern, bytes);
    return LATHE_OK;
}

static lathe_status read_object(lora_patterns *p, const char *key, const char *json, int whole)
{
    const char *s = skip_space(json);
    char pattern[MAX_TEXT];
    if (*s != '{')
        goto malformed;
    s = skip_space(s + 1);
    while (*s != '}') {
        s = read_string(s, pattern, sizeof pattern);
        if (s == NULL)
            goto malformed;
        s = skip_space(s);
        if (*s != ':')
            goto malformed;
        char *end;
        s = skip_space(s + 1);
        const double value = strtod(s, &end);
        if (end == s)
            goto malformed;
        LATHE_TRY(add(p, key, pattern, value, whole));
        s = skip_space(end);
        if (*s == ',')
            s = skip_space(s + 1);
        else if (*s != '}')
            goto malformed;
    }
    return LATHE_OK;
malformed:
    return lathe_fail_at(
        p->host, LATHE_E_CONFIG, key,
        "%s must be a table of pattern = number, e.g. { \"down_proj\" = 32 }; got %.200s", key,
        json);
}

lathe_status lora_patterns_create(const lathe_host *host, const char *method, const char *key,
                                  const char *json, int whole, lora_patterns **out)
{
    lora_patterns *p = host->alloc((int64_t)sizeof *p);
    if (p == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for %s", key);
    p->host = host;
    p->method = method;
    const lathe_status status = json == NULL ? LATHE_OK : read_object(p, key, json, whole);
    if (status != LATHE_OK) {
        lora_patterns_destroy(p);
        return status;
    }
    *out = p;
    return LATHE_OK;
}

void lora_patterns_destroy(lora_patterns *p)
{
    if (p == NULL)
        return;
    for (int i = 0; i < p->n; i++) {
        p->host->pattern_free(p->entries[i].compiled);
        p->host->free(p->entries[i].text);
    }
    p->host->free(p->entries);
    p->host->free(p);
}

/* > 0: the entry matches; 0: it does not; else an error code. */
static int32_t matches(const lora_patterns *p, int i, const char *module)
{
    int64_t span[2];
    return p->host->pattern_find(p->entries[i].compiled, module, (int64_t)strlen(module), 0, span,
                                 2);
}

double lora_patterns_find(const lora_patterns *p, const char *module, double otherwise)
{
    for (int i = 0; i < p->n; i++)
        if (matches(p, i, module) > 0)
            return p->entries[i].value;
    return otherwise;
}

lathe_status lora_patterns_check(const lora_patterns *p, const char *key,
                                 const char *const *modules, int n, int strict)
{
    for (int i = 0; i < p->n; i++) {
        int hits = 0;
        for (int m = 0; m < n && hits == 0; m++)
            hits = matches(p, i, modules[m]);
        if (hits < 0)
            return hits; /* the search takes too long: recorded */
        if (hits == 0 && strict)
            return lathe_fail_at(p->host, LATHE_E_NOT_FOUND, key, "%s: %s \"%s\" matches no module",
                                 p->method, key, p->entries[i].text);
        if (hits == 0)
            lathe_warn(p->host, "%s: %s \"%s\" matches no module", p->method, key,
                       p->entries[i].text);
    }
    return LATHE_OK;
}
