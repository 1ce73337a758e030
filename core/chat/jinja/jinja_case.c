/* Converts text to upper and lower case and finds the kind of a character, as Python's str
 * methods do. */
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "chat/jinja/jinja_vm.h"

int lathe__jinja_is_printable(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return 0;
    case UTF8PROC_CATEGORY_ZS:
        return c == ' ';
    default:
        return 1;
    }
}

static int is_upper(int32_t c)
{
    return c < 0x80 ? c >= 'A' && c <= 'Z' : utf8proc_category(c) == UTF8PROC_CATEGORY_LU;
}

static int is_lower(int32_t c)
{
    return c < 0x80 ? c >= 'a' && c <= 'z'
                    : utf8proc_category(c) == UTF8PROC_CATEGORY_LL || c == 0xaa || c == 0xba;
}

static int is_cased(int32_t c)
{
    return is_upper(c) || is_lower(c) || utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

static int is_letter(int32_t c)
{
    const utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

static int32_t next_char(const jinja_string *s, int64_t *at)
{
    int32_t len;
    const int32_t c = lathe_utf8_at((const uint8_t *)s->data + *at, s->n - *at, &len);
    *at += len;
    return c;
}

/* Characters whose upper case is more than one (the common ones of SpecialCasing.txt). */
static const struct {
    int32_t c;
    const char *upper, *title;
} specials[] = {{0xdf, "SS", "Ss"},     {0x149, "\xca\xbcN", "\xca\xbcN"},
                {0xfb00, "FF", "Ff"},   {0xfb01, "FI", "Fi"},
                {0xfb02, "FL", "Fl"},   {0xfb03, "FFI", "Ffi"},
                {0xfb04, "FFL", "Ffl"}, {0xfb05, "ST", "St"},
                {0xfb06, "ST", "St"}};

static lathe_status put_upper(jinja_vm *vm, jinja_text *text, int32_t c, int is_title)
{
    uint8_t bytes[4];
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++)
        if (c == specials[i].c)
            return lathe__jinja_puts(vm, text, is_title ? specials[i].title : specials[i].upper);
    const int32_t upper = is_title ? utf8proc_totitle(c) : utf8proc_toupper(c);
    return lathe__jinja_put(vm, text, (const char *)bytes, lathe_utf8_put(bytes, upper));
}

/* before: a cased letter stands before it; at: after the character. */
static lathe_status put_lower(jinja_vm *vm, jinja_text *text, const jinja_string *s, int64_t at,
                              int32_t c, int before)
{
    uint8_t bytes[4];
    int32_t lower = utf8proc_tolower(c);
    if (c == 0x130)
        return lathe__jinja_puts(vm, text, "i\xcc\x87");
    if (c == 0x3a3 && before && (at == s->n || !is_cased(next_char(s, &at))))
        lower = 0x3c2; /* sigma at a word's end */
    return lathe__jinja_put(vm, text, (const char *)bytes, lathe_utf8_put(bytes, lower));
}

/* 1 when the character begins a word: what comes before decides. */
static int begins_word(int how, int64_t index, int32_t previous)
{
    switch (how) {
    case JINJA_CAPITALIZE:
        return index == 0;
    case JINJA_TITLE:
        return index == 0 || !is_cased(previous);
    default: /* the filter: after blanks and opening brackets */
        return index == 0 || previous == '-' || previous == '(' || previous == '{' ||
               previous == '[' || previous == '<' || lathe__jinja_is_space(previous);
    }
}

lathe_status lathe__jinja_case(jinja_vm *vm, jinja_value self, int how, jinja_value *out)
{
    const jinja_string *s = self.u.s;
    jinja_text text = {NULL, 0, 0};
    int32_t previous = 0;
    for (int64_t at = 0, i = 0; at < s->n; i++) {
        const int32_t c = next_char(s, &at);
        int upper = how == JINJA_UPPER || (how == JINJA_SWAP && is_lower(c)), title = 0;
        if (how >= JINJA_CAPITALIZE && how <= JINJA_TITLE_FILTER)
            upper = title = begins_word(how, i, previous);
        if (how == JINJA_TITLE_FILTER)
            title = 0; /* item[0].upper() */
        if (upper)
            LATHE_TRY(put_upper(vm, &text, c, title));
        else
            LATHE_TRY(put_lower(vm, &text, s, at, c, i > 0 && is_cased(previous)));
        previous = c;
    }
    LATHE_TRY(lathe__jinja_take(vm, &text, out));
    out->kind = self.kind;
    return LATHE_OK;
}

static int is_of_kind(int32_t c, char kind)
{
    const utf8proc_category_t k = utf8proc_category(c);
    const int decimal = k == UTF8PROC_CATEGORY_ND;
    const int digit = decimal || (c >= 0x2070 && c <= 0x2089) || c == 0xb2 || c == 0xb3 ||
                      c == 0xb9 || (c >= 0x2460 && c <= 0x2468);
    const int numeric = digit || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
    switch (kind) {
    case 'a':
        return is_letter(c);
    case 'c':
        return decimal;
    case 'd':
        return digit;
    case 'n':
        return numeric;
    case 'w':
        return is_letter(c) || numeric;
    case 's':
        return lathe__jinja_is_space(c);
    case 'A':
        return c < 0x80;
    default:
        return lathe__jinja_is_printable(c);
    }
}

static int is_case(const jinja_string *s, int wants_upper)
{
    int n_cased = 0;
    for (int64_t at = 0; at < s->n;) {
        const int32_t c = next_char(s, &at);
        if (is_cased(c) && !(wants_upper ? is_upper(c) : is_lower(c)))
            return 0;
        n_cased += is_cased(c);
    }
    return n_cased > 0;
}

int lathe__jinja_is_kind(const jinja_string *s, const char *name)
{
    static const struct {
        const char *name;
        char kind, of_empty;
    } kinds[] = {{"isalpha", 'a', 0},   {"isdecimal", 'c', 0},  {"isdigit", 'd', 0},
                 {"isnumeric", 'n', 0}, {"isalnum", 'w', 0},    {"isspace", 's', 0},
                 {"isascii", 'A', 1},   {"isprintable", 'p', 1}};
    if (strcmp(name, "isupper") == 0 || strcmp(name, "islower") == 0)
        return is_case(s, name[2] == 'u');
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(name, kinds[i].name) != 0)
            continue;
        if (s->n == 0)
            return kinds[i].of_empty;
        for (int64_t at = 0; at < s->n;)
            if (!is_of_kind(next_char(s, &at), kinds[i].kind))
                return 0;
        return 1;
    }
    return -1;
}
