/* Parses formats. */
#include "data/records/format.h"

#include <string.h>

#include "base/error.h"

/* Records an error at a character of the format. what: "the {", why: "has no }; ..." */
static lathe_status wrong(const char *where, const char *text, const char *at, const char *what,
                          const char *why)
{
    int64_t n = 1;
    for (const char *p = text; p < at; p++)
        n += ((unsigned char)*p & 0xc0) != 0x80; /* characters, not bytes */
    return lathe_error(LATHE_E_CONFIG, "%s = \"%s\": %s at character %lld %s", where, text, what,
                       (long long)n, why);
}

/* Unescapes the text from *at up to a field or the end. */
static lathe_status read_text(const char *where, const char *format, const char **at, char *out,
                              int64_t *out_n)
{
    const char *p = *at;
    *out_n = 0;
    while (*p && (*p != '{' || p[1] == '{')) {
        if (*p == '}' && p[1] != '}')
            return wrong(where, format, p, "the }", "has no {; write }} for a brace");
        p += *p == '{' || *p == '}';
        out[(*out_n)++] = *p++;
    }
    *at = p;
    return LATHE_OK;
}

/* Reads "{name}". */
static lathe_status read_name(const char *where, const char *format, const char **at,
                              lathe_arena *arena, const char **out)
{
    const char *name = *at + 1;
    const size_t n = strcspn(name, "{}");
    if (name[n] != '}')
        return wrong(where, format, *at, "the {", "has no }; write {{ for a brace");
    if (n == 0)
        return wrong(where, format, *at, "the {}", "names no field; write {{}} for braces");
    *out = lathe_arena_strndup(arena, name, (int64_t)n);
    *at = name + n + 1;
    return *out ? LATHE_OK : LATHE_E_NOMEM;
}

lathe_status lathe_format_parse(const char *where, const char *text, lathe_arena *arena,
                                lathe_format *out)
{
    int64_t max = 1;
    for (const char *p = text; *p; p++)
        max += *p == '{';
    const char *at = text;
    *out = (lathe_format){.parts = lathe_arena_alloc(arena, max * (int64_t)sizeof *out->parts)};
    if (out->parts == NULL)
        return LATHE_E_NOMEM;
    while (*at) {
        lathe_format_part *part = &out->parts[out->n++];
        char *unescaped = lathe_arena_alloc(arena, (int64_t)strlen(at) + 1);
        if (unescaped == NULL)
            return LATHE_E_NOMEM;
        LATHE_TRY(read_text(where, text, &at, unescaped, &part->n));
        part->text = unescaped;
        if (*at == '{')
            LATHE_TRY(read_name(where, text, &at, arena, &part->name));
    }
    return LATHE_OK;
}

int lathe_format_is_field(const lathe_format *format)
{
    return format->n == 1 && format->parts[0].n == 0 && format->parts[0].name &&
           !format->parts[0].may_be_out;
}
