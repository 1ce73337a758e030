/* Patterns: a small reader of flat JSON objects, and matching by regular expression. */
#include "shared/lora_pattern.h"

#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATTERNS 64
#define MAX_TEXT 256

typedef struct entry {
    regex_t regex;
    double value;
    char text[MAX_TEXT];
} entry;

struct lora_patterns {
    const lathe_host *host;
    const char *method;
    int n;
    entry entries[MAX_PATTERNS];
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

static lathe_status add(lora_patterns *p, const char *key, const char *pattern, double value,
                        int whole)
{
    char text[MAX_TEXT + 16];
    if (p->n == MAX_PATTERNS)
        return lathe_fail(p->host, LATHE_E_CONFIG, "%s: %s has more than %d patterns", p->method,
                          key, MAX_PATTERNS);
    if (!(value > 0) || isinf(value) ||
        (whole && (value != floor(value) || value > LORA_PATTERN_MAX_WHOLE)))
        return lathe_fail(p->host, LATHE_E_CONFIG, "%s: %s of \"%s\" is %g; expected a %s",
                          p->method, key, pattern, value,
                          whole ? "whole number from 1 to 256" : "number above 0");
    (void)snprintf(text, sizeof text, "^(.*\\.)?(%s)$", pattern);
    entry *e = &p->entries[p->n];
    const int code = regcomp(&e->regex, text, REG_EXTENDED | REG_NOSUB);
    if (code != 0) {
        char why[128];
        (void)regerror(code, &e->regex, why, sizeof why);
        return lathe_fail(p->host, LATHE_E_CONFIG, "%s: %s: \"%s\" is no regular expression: %s",
                          p->method, key, pattern, why);
    }
    e->value = value;
    (void)snprintf(e->text, sizeof e->text, "%s", pattern);
    p->n++;
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
    return lathe_fail(
        p->host, LATHE_E_CONFIG,
        "%s: %s must be a table of pattern = number, e.g. { \"down_proj\" = 32 }; got %.200s",
        p->method, key, json);
}

lathe_status lora_patterns_create(const lathe_host *host, const char *method, const char *key,
                                  const char *json, int whole, lora_patterns **out)
{
    lora_patterns *p = host->alloc((int64_t)sizeof *p);
    if (p == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "%s: no memory for %s", method, key);
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
    for (int i = 0; i < p->n; i++)
        regfree(&p->entries[i].regex);
    p->host->free(p);
}

double lora_patterns_find(const lora_patterns *p, const char *module, double otherwise)
{
    for (int i = 0; i < p->n; i++)
        if (regexec(&p->entries[i].regex, module, 0, NULL, 0) == 0)
            return p->entries[i].value;
    return otherwise;
}

const char *lora_patterns_unmatched(const lora_patterns *p, const char *const *modules, int n)
{
    for (int i = 0; i < p->n; i++) {
        int hits = 0;
        for (int m = 0; m < n && !hits; m++)
            hits = regexec(&p->entries[i].regex, modules[m], 0, NULL, 0) == 0;
        if (!hits)
            return p->entries[i].text;
    }
    return NULL;
}
