/* Translates a regular expression of tokenizer.json to PCRE2's dialect. The source dialect is
 * Oniguruma's Ruby syntax (doc/RE); each rule below says how the two differ. */
#include "tokenizer/unicode/regex.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode/char_class.h"
#include "tokenizer/unicode/regex_internal.h"

/* Unicode's White_Space, which is Oniguruma's \s; PCRE2's \s also contains U+180E. */
#define SPACES "\\t-\\r\\x{85}\\p{Z}"
/* Oniguruma's \w: Alphabetic, marks, decimal digits, connectors. Alphabetic contains L, M, Nl and
 * the circled and squared letters. PCRE2's \w is letters, marks, all numbers and "_". */
#define WORDS                                                                                      \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"                    \
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

/* Outside of a class, Oniguruma's \w also contains the superscripts and fractions of Latin-1. */
#define WORD_SET "[" WORDS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]"
#define NOT_WORD_SET "[^" WORDS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]"

enum { MAX_DEPTH = LATHE_REGEX_DEPTH, LONGEST_REWRITE = 1024 };

typedef lathe_translator translator;

lathe_status lathe__regex_refuse(const lathe_translator *t, const char *what, int n)
{
    return lathe_error(LATHE_E_UNSUPPORTED, "%s: \"%.*s\" in the regular expression %s", t->place,
                       n, what, t->pattern);
}

lathe_status lathe__regex_put(lathe_translator *t, const char *text, size_t n)
{
    if (t->at + n + LONGEST_REWRITE > t->capacity) {
        const size_t capacity = (t->at + n + LONGEST_REWRITE) * 2;
        char *out = realloc(t->out, capacity);
        if (out == NULL)
            return lathe_error(LATHE_E_NOMEM, "regular expression");
        t->out = out;
        t->capacity = capacity;
    }
    memcpy(t->out + t->at, text, n);
    t->at += n;
    t->out[t->at] = 0;
    return LATHE_OK;
}

static lathe_status puts_(translator *t, const char *text)
{
    return lathe__regex_put(t, text, strlen(text));
}

/* ---- escapes ---- */

/* \p{NAME}, \P{NAME}, \p{^NAME}; p is at the backslash. The name of a script means Script in
 * Oniguruma, and by default Script_Extensions in PCRE2. L and N are those of Oniguruma's newer
 * Unicode. */
static lathe_status property(translator *t)
{
    static const char *const plain[] = {"Alphabetic",
                                        "Uppercase",
                                        "Lowercase",
                                        "White_Space",
                                        "Any",
                                        "Emoji",
                                        "Ideographic",
                                        "Extended_Pictographic",
                                        "Emoji_Presentation"};
    static const char *const longer[][2] = {
        {"Letter", "L"}, {"Mark", "M"},      {"Number", "N"}, {"Punctuation", "P"},
        {"Symbol", "S"}, {"Separator", "Z"}, {"Other", "C"}};
    const char *begin = t->p, *name = begin + 3;
    const char *end = begin[2] == '{' ? strchr(name, '}') : NULL;
    if (end == NULL || end - name > 40)
        return lathe__regex_refuse(t, begin, 3);
    int negated = begin[1] == 'P';
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    char text[48];
    const size_t n = (size_t)(end - name);
    memcpy(text, name, n);
    text[n] = 0;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !lathe_is_one_of(text[i], "_- "))
            return lathe__regex_refuse(t, begin, (int)(end + 1 - begin));
    const char *kind = n > 2 ? "sc:" : "";
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcasecmp(text, plain[i]))
            kind = "";
    for (size_t i = 0; i < sizeof longer / sizeof *longer; i++)
        if (!strcasecmp(text, longer[i][0])) {
            (void)snprintf(text, sizeof text, "%s", longer[i][1]);
            kind = "";
        }
    t->p = end + 1;
    const char *newer = !strcasecmp(text, "L")   ? lathe__newer_letters()
                        : !strcasecmp(text, "N") ? lathe__newer_numbers()
                                                 : NULL;
    if (newer) {
        const int listed = t->class_depth && !negated;
        t->is_set = t->class_depth && negated;
        LATHE_TRY(puts_(t, listed ? "" : negated ? "[^" : "["));
        LATHE_TRY(puts_(t, toupper((unsigned char)text[0]) == 'L' ? "\\p{L}" : "\\p{N}"));
        LATHE_TRY(puts_(t, newer));
        return puts_(t, listed ? "" : "]");
    }
    LATHE_TRY(puts_(t, negated ? "\\P{" : "\\p{"));
    LATHE_TRY(puts_(t, kind));
    LATHE_TRY(puts_(t, text));
    return puts_(t, "}");
}

/* \xHH (only below 0x80, since Oniguruma reads a higher one as a byte), \x{H...}, \uHHHH; p is at
 * the backslash. */
static lathe_status code_point(translator *t)
{
    const char *begin = t->p;
    const int braces = begin[1] == 'x' && begin[2] == '{';
    const char *digits = begin + (braces ? 3 : 2);
    const size_t n = strspn(digits, "0123456789abcdefABCDEF");
    const size_t used = braces ? n : begin[1] == 'u' ? 4 : n < 2 ? n : 2;
    if (n < used || n == 0 || used > 6 || (braces && digits[n] != '}'))
        return lathe__regex_refuse(t, begin, 2);
    if (begin[1] == 'x' && !braces && used == 2 && digits[0] > '7')
        return lathe__regex_refuse(t, begin, 4);
    t->p = digits + used + braces;
    LATHE_TRY(puts_(t, "\\x{"));
    LATHE_TRY(lathe__regex_put(t, digits, used));
    return puts_(t, "}");
}

typedef struct rewrite {
    char letter;
    const char *outside, *inside; /* translations outside and inside a class; NULL: refused in a
                                   * class; "[^...]": a set by itself */
} rewrite;

/* In a class, [\S\x{180e}] is exact, because U+180E is the only character that PCRE2's \S lacks. */
static const rewrite rewrites[] = {
    {'s', "[" SPACES "]", SPACES},
    {'S', "[^" SPACES "]", "\\S\\x{180e}"},
    {'w', WORD_SET, WORDS},
    {'W', NOT_WORD_SET, "[^" WORDS "]"},
    {'d', "\\p{Nd}", "\\p{Nd}"},
    {'D', "\\P{Nd}", "\\P{Nd}"},
    {'h', "[0-9a-fA-F]", "0-9a-fA-F"},
    {'H', "[^0-9a-fA-F]", "[^0-9a-fA-F]"},
    {'b', "(?:(?<=" WORD_SET ")(?!" WORD_SET ")|(?<!" WORD_SET ")(?=" WORD_SET "))", "\\x08"},
    {'B', "(?:(?<=" WORD_SET ")(?=" WORD_SET ")|(?<!" WORD_SET ")(?!" WORD_SET "))", NULL},
    {'A', "\\A", NULL},
    {'z', "\\z", NULL},
    {'Z', "\\Z", NULL},
    {'r', "\\r", "\\r"},
    {'n', "\\n", "\\n"},
    {'t', "\\t", "\\t"},
    {'f', "\\f", "\\f"},
    {'v', "\\x0b", "\\x0b"},
    {'a', "\\a", "\\a"},
    {'e', "\\e", "\\e"},
};

lathe_status lathe__regex_escape(lathe_translator *t)
{
    const char c = t->p[1];
    if (c == 'p' || c == 'P')
        return property(t);
    if (c == 'x' || c == 'u')
        return code_point(t);
    for (size_t i = 0; i < sizeof rewrites / sizeof *rewrites; i++)
        if (rewrites[i].letter == c) {
            const char *text = t->class_depth ? rewrites[i].inside : rewrites[i].outside;
            if (text == NULL)
                return lathe__regex_refuse(t, t->p, 2);
            t->p += 2;
            t->is_set = t->class_depth && text[0] == '[';
            return puts_(t, text);
        }
    if (!c || isalnum((unsigned char)c))
        return lathe__regex_refuse(t, t->p, c ? 2 : 1);
    t->p += 2;
    return lathe__regex_put(t, t->p - 2, 2);
}

/* ---- groups and repeats ---- */

/* The text after "(?": groups that both engines have, and options. Ruby's m is PCRE2's s. */
static lathe_status group_kind(translator *t)
{
    const char *p = t->p + 2;
    if (lathe_is_one_of(*p, ":=!>")) {
        t->p = p + 1;
        return lathe__regex_put(t, p - 2, 3);
    }
    if (*p == '<') {
        t->p = p + 2;
        return p[1] == '=' || p[1] == '!' ? lathe__regex_put(t, p - 2, 4)
                                          : lathe__regex_refuse(t, p - 2, 4);
    }
    LATHE_TRY(puts_(t, "(?"));
    const char *begin = p;
    for (; *p == 'i' || *p == 'm' || *p == '-'; p++)
        LATHE_TRY(puts_(t, *p == 'm' ? "s" : *p == 'i' ? "i" : "-"));
    /* In Oniguruma "(?i)" also applies to the alternatives after it, so both engines agree only if
     * it is at the start. */
    if (p == begin || (*p != ':' && (*p != ')' || begin != t->pattern + 2)))
        return lathe__regex_refuse(t, begin - 2, (int)(p - begin) + 3);
    t->p = p + 1;
    if (*p == ')')
        t->depth--;
    return lathe__regex_put(t, p, 1);
}

static lathe_status open_group(translator *t)
{
    if (t->depth == MAX_DEPTH)
        return lathe__regex_refuse(t, t->p, 1);
    t->group[t->depth++] = t->at;
    if (t->p[1] == '?')
        return group_kind(t);
    t->p++;
    return puts_(t, "(?:"); /* captures are not used */
}

/* "{": a repeat, or a plain character. {n,m}+ is possessive in PCRE2 and a repeat of a repeat in
 * Ruby. */
static lathe_status repeat(translator *t)
{
    const char *begin = t->p, *p = begin + 1;
    p += strspn(p, "0123456789");
    const int from = p > begin + 1, comma = *p == ',';
    const char *to = p += comma;
    p += strspn(p, "0123456789");
    if (*p != '}' || (!from && p == to)) {
        t->p++;
        t->atom = t->at;
        return puts_(t, "\\{");
    }
    if (p[1] == '?' && !comma) /* {n}? is lazy in one and optional in the other */
        return lathe__regex_refuse(t, begin, (int)(p + 2 - begin));
    LATHE_TRY(puts_(t, from ? "{" : "{0"));
    LATHE_TRY(lathe__regex_put(t, begin + 1, (size_t)(p - begin)));
    t->p = p + 1;
    if (*t->p != '+')
        return LATHE_OK;
    LATHE_TRY(puts_(t, "???")); /* room for the "(?:" */
    memmove(t->out + t->atom + 3, t->out + t->atom, t->at - 3 - t->atom);
    memcpy(t->out + t->atom, "(?:", 3);
    return puts_(t, ")");
}

static lathe_status step(translator *t)
{
    switch (*t->p) {
    case '\\':
        t->atom = t->at;
        return lathe__regex_escape(t);
    case '[':
        return lathe__regex_class(t);
    case '(':
        return open_group(t);
    case ')':
        if (t->depth == 0)
            return lathe__regex_refuse(t, t->p, 1);
        t->atom = t->group[--t->depth];
        break;
    case '{':
        return repeat(t);
    case '^': /* the begin of a line, except of the empty line at the end */
        t->p++;
        return puts_(t, "(?:\\A|(?<=\\n)(?!\\z))");
    case '$':
        t->p++;
        return puts_(t, "(?:(?=\\n)|\\z)");
    case '*':
    case '+':
    case '?':
    case '|':
        break;
    default:
        t->atom = t->at;
        if ((unsigned char)*t->p >= 0x80) { /* an atom is a whole character */
            size_t n = 1;
            while (((unsigned char)t->p[n] & 0xc0) == 0x80)
                n++;
            t->p += n;
            return lathe__regex_put(t, t->p - n, n);
        }
    }
    t->p++;
    return lathe__regex_put(t, t->p - 1, 1);
}

lathe_status lathe__regex_translate(const char *place, const char *pattern, char **out)
{
    translator t;
    memset(&t, 0, sizeof t);
    t.place = place;
    t.pattern = t.p = pattern;
    lathe_status status = lathe__regex_put(&t, "", 0);
    while (status == LATHE_OK && *t.p)
        status = step(&t);
    if (status == LATHE_OK && t.depth)
        status = lathe_error(LATHE_E_PARSE, "%s: the regular expression %s: a \"(\" is not closed",
                             place, pattern);
    if (status != LATHE_OK) {
        free(t.out);
        return status;
    }
    *out = t.out;
    return LATHE_OK;
}

lathe_status lathe__regex_compile(const char *place, const char *pattern, pcre2_code **out,
                                  int *out_jit)
{
    char *text;
    LATHE_TRY(lathe__regex_translate(place, pattern, &text));
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL) {
        free(text);
        return lathe_error(LATHE_E_NOMEM, "regular expression");
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int code = 0;
    PCRE2_SIZE where = 0;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C |
                                       PCRE2_USE_OFFSET_LIMIT, /* lathe__matcher_find sets limits */
                                   &code, &where, context);
    pcre2_compile_context_free(context);
    free(text);
    if (re == NULL) {
        PCRE2_UCHAR why[160];
        pcre2_get_error_message(code, why, sizeof why);
        return lathe_error(code == PCRE2_ERROR_HEAP_FAILED ? LATHE_E_NOMEM : LATHE_E_UNSUPPORTED,
                           "%s: regular expression %s: %s", place, pattern, (const char *)why);
    }
    *out_jit = pcre2_jit_compile(re, PCRE2_JIT_COMPLETE) == 0; /* 0: it is interpreted */
    *out = re;
    return LATHE_OK;
}

int lathe__regex_may_be_empty(const pcre2_code *code)
{
    uint32_t may = 0;
    return pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &may) != 0 || may;
}
