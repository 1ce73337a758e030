/* Template text to tokens, with the white space that trim_blocks and lstrip_blocks take away. */
#include "chat/template/jinja_lexer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "lathe/kit/hex.h"

lathe_status lathe__jinja_error(const lathe_template *tpl, lathe_status code, int32_t line,
                                int32_t column, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lathe_error_in(code, tpl->name, line, column, "%s", text);
}

void lathe__jinja_lexer_init(jinja_lexer *x, lathe_template *tpl)
{
    memset(x, 0, sizeof *x);
    x->tpl = tpl;
    x->p = x->place = x->line_starts_before = tpl->source;
    x->end = tpl->source + tpl->n_source;
    x->line = x->column = 1;
}

/* Moves the place that line and column belong to. */
static void move_place(jinja_lexer *x, const char *to)
{
    for (; x->place < to; x->place++) {
        if (*x->place == '\n') {
            x->line++;
            x->column = 1;
        } else {
            x->column += ((uint8_t)*x->place & 0xc0) != 0x80;
        }
    }
}

static lathe_status fail(jinja_lexer *x, const char *at, lathe_status code, const char *text)
{
    move_place(x, at);
    return lathe__jinja_error(x->tpl, code, x->line, x->column, "%s", text);
}

static int begins(const jinja_lexer *x, const char *p, const char *text)
{
    const size_t n = strlen(text);
    return x->end - p >= (ptrdiff_t)n && memcmp(p, text, n) == 0;
}

static const char *pass_space(const jinja_lexer *x, const char *p)
{
    while (p < x->end) {
        int32_t len;
        if (!lathe__jinja_is_space(lathe_utf8_at((const uint8_t *)p, x->end - p, &len)))
            break;
        p += len;
    }
    return p;
}

/* The begin of the white space that ends at `end`. */
static const char *before_space(const char *begin, const char *end)
{
    while (end > begin) {
        const char *p = end - 1;
        int32_t len;
        while (p > begin && ((uint8_t)*p & 0xc0) == 0x80)
            p--;
        if (!lathe__jinja_is_space(lathe_utf8_at((const uint8_t *)p, end - p, &len)))
            break;
        end = p;
    }
    return end;
}

/* Where the data [begin, end) ends when the tag after it has this sign. */
static const char *data_end(const jinja_lexer *x, const char *begin, const char *end, char sign,
                            int is_print)
{
    if (sign == '-')
        return before_space(begin, end);
    if (sign == '+' || is_print)
        return end;
    const char *line = end;
    while (line > begin && line[-1] != '\n')
        line--;
    if (line == begin && begin != x->line_starts_before)
        return end;
    return before_space(line, end) == line ? line : end;
}

/* After the end of a tag: p is after "%}"; what the tag's sign and trim_blocks pass. */
static void after_tag(jinja_lexer *x, const char *p, char sign, int trims)
{
    const char *from = p;
    if (sign == '-')
        p = pass_space(x, p);
    else if (sign != '+' && trims && p < x->end && *p == '\n')
        p++;
    x->p = p;
    x->line_starts_before = p > from && p[-1] == '\n' ? p : NULL;
}

static char sign_at(const jinja_lexer *x, const char *p)
{
    return p < x->end && (*p == '-' || *p == '+') ? *p : 0;
}

/* {% raw %} at p: passes it and gives the text up to {% endraw %}; 0 when it is another tag. */
static lathe_status raw_block(jinja_lexer *x, const char *p, jinja_token *out, int *is_raw)
{
    const char *at = p + 2 + (sign_at(x, p + 2) != 0);
    at = pass_space(x, at);
    *is_raw = 0;
    if (!begins(x, at, "raw"))
        return LATHE_OK;
    at = pass_space(x, at + 3);
    const char sign = begins(x, at, "-%}") ? '-' : 0;
    if (!sign && !begins(x, at, "%}"))
        return LATHE_OK;
    *is_raw = 1;
    after_tag(x, at + (sign ? 3 : 2), sign, 0);
    const char *begin = x->p;
    for (const char *q = begin; q < x->end; q++) {
        if (!begins(x, q, "{%"))
            continue;
        const char before = sign_at(x, q + 2);
        const char *w = pass_space(x, q + 2 + (before != 0));
        if (!begins(x, w, "endraw"))
            continue;
        w = pass_space(x, w + 6);
        const char after = sign_at(x, w);
        w += after != 0;
        if (!begins(x, w, "%}"))
            continue;
        move_place(x, begin);
        const char *end = data_end(x, begin, q, before, 0);
        *out = (jinja_token){.type = JINJA_T_DATA,
                             .line = x->line,
                             .column = x->column,
                             .text = begin,
                             .n = end - begin};
        after_tag(x, w + 2, after, 1);
        return LATHE_OK;
    }
    return fail(x, p, LATHE_E_PARSE, "{% raw %} has no {% endraw %}");
}

static lathe_status pass_comment(jinja_lexer *x, const char *begin)
{
    for (const char *p = begin + 2 + (sign_at(x, begin + 2) != 0); p < x->end; p++) {
        const char sign = sign_at(x, p);
        const char *at = p + (sign != 0);
        if (begins(x, at, "#}")) {
            after_tag(x, at + 2, sign, 1);
            return LATHE_OK;
        }
    }
    return fail(x, begin, LATHE_E_PARSE, "the comment that begins here has no end; expected #}");
}

/* The next begin of a tag from p on, or the end. */
static const char *find_tag(const jinja_lexer *x, const char *p)
{
    for (; p + 1 < x->end; p++) {
        p = memchr(p, '{', (size_t)(x->end - 1 - p));
        if (p == NULL)
            return x->end;
        if (p[1] == '{' || p[1] == '%' || p[1] == '#')
            return p;
    }
    return x->end;
}

/* Data up to the next tag, and the begin of that tag. Gives data when there is any. */
static lathe_status next_data(jinja_lexer *x, jinja_token *out)
{
    while (x->p < x->end) {
        const char *begin = x->p, *tag = find_tag(x, begin);
        const int is_print = tag < x->end && tag[1] == '{';
        const char *end = tag;
        if (tag < x->end)
            end = data_end(x, begin, tag, sign_at(x, tag + 2), is_print);
        if (end > begin) { /* the tag comes with the next call, with nothing before it */
            move_place(x, begin);
            *out = (jinja_token){.type = JINJA_T_DATA,
                                 .line = x->line,
                                 .column = x->column,
                                 .text = begin,
                                 .n = end - begin};
            x->p = tag;
            x->line_starts_before = NULL;
            return LATHE_OK;
        }
        x->p = tag;
        if (tag == x->end)
            break;
        if (tag[1] == '#') {
            LATHE_TRY(pass_comment(x, tag));
            continue;
        }
        int is_raw = 0;
        if (!is_print) {
            LATHE_TRY(raw_block(x, tag, out, &is_raw));
            if (is_raw && out->n > 0)
                return LATHE_OK;
            if (is_raw)
                continue;
        }
        move_place(x, tag);
        x->in_tag = is_print ? JINJA_T_PRINT_BEGIN : JINJA_T_BLOCK_BEGIN;
        *out = (jinja_token){
            .type = (uint8_t)x->in_tag, .line = x->line, .column = x->column, .text = tag, .n = 2};
        x->p = tag + 2 + (sign_at(x, tag + 2) != 0);
        x->n_balance = 0;
        return LATHE_OK;
    }
    move_place(x, x->end);
    *out = (jinja_token){.type = JINJA_T_END, .line = x->line, .column = x->column, .text = x->end};
    return LATHE_OK;
}

/* ---- inside a tag ---- */

static const struct {
    char text[3];
    uint8_t type;
} operators[] = {
    {"//", JINJA_T_FLOORDIV}, {"**", JINJA_T_POW},     {"==", JINJA_T_EQ},    {"!=", JINJA_T_NE},
    {">=", JINJA_T_GE},       {"<=", JINJA_T_LE},      {"+", JINJA_T_ADD},    {"-", JINJA_T_SUB},
    {"/", JINJA_T_DIV},       {"*", JINJA_T_MUL},      {"%", JINJA_T_MOD},    {"~", JINJA_T_TILDE},
    {"[", JINJA_T_LBRACKET},  {"]", JINJA_T_RBRACKET}, {"(", JINJA_T_LPAREN}, {")", JINJA_T_RPAREN},
    {"{", JINJA_T_LBRACE},    {"}", JINJA_T_RBRACE},   {">", JINJA_T_GT},     {"<", JINJA_T_LT},
    {"=", JINJA_T_ASSIGN},    {".", JINJA_T_DOT},      {":", JINJA_T_COLON},  {"|", JINJA_T_PIPE},
    {",", JINJA_T_COMMA},     {";", JINJA_T_SEMICOLON}};

static lathe_status check_balance(jinja_lexer *x, char c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (x->n_balance == (int32_t)sizeof x->balance)
            return fail(x, x->p, LATHE_E_UNSUPPORTED, "more than 256 open brackets");
        x->balance[x->n_balance++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        char text[64] = "a closing bracket without an opening one";
        const char open = x->n_balance ? x->balance[x->n_balance - 1] : 0;
        if (open)
            (void)snprintf(text, sizeof text, "expected '%c', found '%c'", open, c);
        if (open != c)
            return fail(x, x->p, LATHE_E_PARSE, text);
        x->n_balance--;
    }
    return LATHE_OK;
}

static lathe_status next_operator(jinja_lexer *x, jinja_token *out)
{
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        if (!begins(x, x->p, operators[i].text))
            continue;
        out->n = (int64_t)strlen(operators[i].text);
        out->type = operators[i].type;
        LATHE_TRY(check_balance(x, *x->p));
        x->p += out->n;
        return LATHE_OK;
    }
    char text[96];
    int32_t len;
    const int32_t c = lathe_utf8_at((const uint8_t *)x->p, x->end - x->p, &len);
    if (*x->p == '\'' || *x->p == '"')
        (void)snprintf(text, sizeof text, "the string that begins here has no end");
    else if (c < 0x20)
        (void)snprintf(text, sizeof text, "unexpected character U+%04X", (unsigned)c);
    else
        (void)snprintf(text, sizeof text, "unexpected character '%.*s'", (int)len, x->p);
    return fail(x, x->p, LATHE_E_PARSE, text);
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_name(char c)
{
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Digits with single underscores between them. */
static const char *pass_digits(const jinja_lexer *x, const char *p)
{
    while (p < x->end && (is_digit(*p) || (*p == '_' && p + 1 < x->end && is_digit(p[1]))))
        p++;
    return p;
}

static lathe_status next_number(jinja_lexer *x, jinja_token *out)
{
    const char *p = x->p, *end = pass_digits(x, p);
    char text[64];
    int is_real = 0, base = 10;
    if (*p == '0' && p + 2 < x->end && lathe_is_one_of(p[1], "xXoObB")) {
        base = p[1] == 'x' || p[1] == 'X' ? 16 : p[1] == 'o' || p[1] == 'O' ? 8 : 2;
        for (p += 2, end = p; end < x->end && is_name(*end);)
            end++;
    } else if (x->p == x->tpl->source || x->p[-1] != '.') {
        if (end + 1 < x->end && *end == '.' && is_digit(end[1])) {
            is_real = 1;
            end = pass_digits(x, end + 1);
        }
        if (end + 1 < x->end && (*end == 'e' || *end == 'E')) {
            const char *power = end + 1 + (end[1] == '+' || end[1] == '-');
            if (power < x->end && is_digit(*power)) {
                is_real = 1;
                end = pass_digits(x, power);
            }
        }
    }
    size_t n = 0;
    for (const char *q = p; q < end && n < sizeof text; q++)
        if (*q != '_')
            text[n++] = *q;
    if (n == 0 || n >= sizeof text)
        return fail(x, x->p, LATHE_E_UNSUPPORTED, "a number that is no integer of 64 bits");
    text[n] = 0;
    char *stop;
    errno = 0;
    out->type = is_real ? JINJA_T_FLOAT : JINJA_T_INT;
    if (is_real)
        out->real = strtod(text, &stop);
    else
        out->whole = strtoll(text, &stop, base);
    if (*stop || (!is_real && errno == ERANGE))
        return fail(x, x->p, *stop ? LATHE_E_PARSE : LATHE_E_UNSUPPORTED,
                    "a number that is no integer of 64 bits");
    out->n = end - x->p;
    x->p = end;
    return LATHE_OK;
}

/* The character of an escape of `digits` hexadecimal digits at p; -1 when it is none. */
static int32_t hex_escape(const jinja_lexer *x, const char *p, int digits)
{
    int64_t c = 0;
    for (int i = 0; i < digits; i++) {
        const int32_t digit = p + i < x->end ? lathe_hex_digit(p[i]) : -1;
        if (digit < 0)
            return -1;
        c = c * 16 + digit;
    }
    return c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? -1 : (int32_t)c;
}

/* One escape of Python's at p, after the backslash: its text in out; returns the bytes passed. */
static lathe_status unescape(jinja_lexer *x, const char **p, char **out)
{
    static const char plain[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    const char c = **p;
    if (c == '\n') { /* the line goes on */
        ++*p;
        return LATHE_OK;
    }
    for (size_t i = 0; plain[i]; i += 2)
        if (c == plain[i]) {
            *(*out)++ = plain[i + 1];
            ++*p;
            return LATHE_OK;
        }
    int32_t code = -1;
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits) {
        code = hex_escape(x, *p + 1, digits);
        *p += 1 + digits;
    } else if (c >= '0' && c <= '7') {
        code = 0;
        for (int i = 0; i < 3 && **p >= '0' && **p <= '7'; i++)
            code = code * 8 + *(*p)++ - '0';
    } else if (c == 'N') {
        return fail(x, *p - 1, LATHE_E_UNSUPPORTED, "the escape \\N{...} is not supported");
    } else { /* no escape: the backslash stays */
        *(*out)++ = '\\';
        return LATHE_OK;
    }
    if (code < 0)
        return fail(x, x->p, LATHE_E_PARSE,
                    "a string with an escape that is no character; expected \\xhh, \\uhhhh or "
                    "\\Uhhhhhhhh");
    *out += lathe_utf8_put((uint8_t *)*out, code);
    return LATHE_OK;
}

static lathe_status next_string(jinja_lexer *x, jinja_token *out)
{
    const char quote = *x->p, *p = x->p + 1;
    int has_escape = 0;
    for (; p < x->end && *p != quote; p++)
        if (*p == '\\') {
            has_escape = 1;
            p++;
        }
    if (p >= x->end)
        return next_operator(x, out);
    const char *begin = x->p + 1, *end = p;
    out->type = JINJA_T_STRING;
    out->text = begin;
    out->n = end - begin;
    if (has_escape) { /* no escape is shorter than its character */
        char *to = lathe_arena_alloc(&x->tpl->arena, end - begin + 1);
        if (to == NULL)
            return LATHE_E_NOMEM;
        out->text = to;
        for (p = begin; p < end;) {
            if (*p != '\\') {
                *to++ = *p++;
                continue;
            }
            p++;
            LATHE_TRY(unescape(x, &p, &to));
        }
        out->n = to - out->text;
    }
    x->p = end + 1;
    return LATHE_OK;
}

/* The end of the tag at p, with its sign; 0 when p is at none. */
static int at_tag_end(const jinja_lexer *x, char *out_sign)
{
    const int is_print = x->in_tag == JINJA_T_PRINT_BEGIN;
    char sign = sign_at(x, x->p);
    if (sign == '+' && is_print)
        sign = 0; /* an operator */
    *out_sign = sign;
    return begins(x, x->p + (sign != 0), is_print ? "}}" : "%}");
}

lathe_status lathe__jinja_next(jinja_lexer *x, jinja_token *out)
{
    char sign;
    if (!x->in_tag)
        return next_data(x, out);
    x->p = pass_space(x, x->p);
    move_place(x, x->p);
    *out = (jinja_token){.type = JINJA_T_END, .line = x->line, .column = x->column, .text = x->p};
    if (x->p >= x->end)
        return fail(x, x->p, LATHE_E_PARSE,
                    x->in_tag == JINJA_T_PRINT_BEGIN ? "the template ends inside {{ ... }}"
                                                     : "the template ends inside {% ... %}");
    if (x->n_balance == 0 && at_tag_end(x, &sign)) {
        const int is_print = x->in_tag == JINJA_T_PRINT_BEGIN;
        out->type = is_print ? JINJA_T_PRINT_END : JINJA_T_BLOCK_END;
        x->in_tag = 0;
        after_tag(x, x->p + (sign != 0) + 2, sign, !is_print);
        return LATHE_OK;
    }
    const char c = *x->p;
    if (is_digit(c))
        return next_number(x, out);
    if (is_name(c)) {
        const char *p = x->p;
        while (p < x->end && is_name(*p))
            p++;
        out->type = JINJA_T_NAME;
        out->n = p - x->p;
        x->p = p;
        return LATHE_OK;
    }
    if (c == '\'' || c == '"')
        return next_string(x, out);
    return next_operator(x, out);
}
