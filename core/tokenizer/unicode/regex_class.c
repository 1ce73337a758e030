/* Translates character classes of Oniguruma to PCRE2's dialect. Oniguruma's classes can be nested
 * and intersected: "&&" binds weakest, and "^" negates the whole class. PCRE2 10.42 has neither,
 * therefore
 *
 *     [a[bc]]        becomes [abc]
 *     [a[^bc]]       becomes (?:[a]|[^bc])
 *     [a-z&&[^bc]]   becomes (?:(?=[a-z])[^bc])
 *     [^a&&b]        becomes (?:(?!(?:(?=[a])[b]))\p{Any}) */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "tokenizer/unicode/regex_internal.h"

/* A set of characters as text. */
typedef struct set {
    enum {
        LISTED,
        NOT_LISTED,
        MATCHED
    } kind; /* [text], [^text], or an expression for one character */
    lathe_buffer text;
} set;

/* One side of "&&": the union of the listed characters and of other sets. */
typedef struct operand {
    lathe_buffer listed;
    lathe_buffer others; /* expressions, with "|" between them */
    set only;            /* the last of the others */
    int n_others, n_items;
} operand;

static void operand_fini(operand *o)
{
    lathe_buffer_fini(&o->listed);
    lathe_buffer_fini(&o->others);
    lathe_buffer_fini(&o->only.text);
    memset(o, 0, sizeof *o);
}

static void put_set(lathe_buffer *out, const set *s)
{
    lathe_buffer_puts(out, s->kind == LISTED ? "[" : s->kind == NOT_LISTED ? "[^" : "");
    lathe_buffer_append(out, s->text.data, s->text.len);
    lathe_buffer_puts(out, s->kind == MATCHED ? "" : "]");
}

/* Adds a set to the operand and takes over its text. */
static lathe_status add_set(operand *o, set *s)
{
    o->n_items++;
    if (s->kind == LISTED) {
        lathe_buffer_append(&o->listed, s->text.data, s->text.len);
        lathe_buffer_fini(&s->text);
        return o->listed.status;
    }
    if (o->n_others++ > 0)
        lathe_buffer_puts(&o->others, "|");
    put_set(&o->others, s);
    lathe_buffer_fini(&o->only.text);
    o->only = *s;
    s->text = (lathe_buffer)LATHE_BUFFER_INIT;
    return o->others.status;
}

/* Makes the operand one set and takes over its text. */
static lathe_status close_operand(operand *o, set *out)
{
    *out = (set){LISTED, LATHE_BUFFER_INIT};
    if (o->n_others == 0) {
        out->text = o->listed;
        o->listed = (lathe_buffer)LATHE_BUFFER_INIT;
    } else if (o->n_others == 1 && o->listed.len == 0) {
        *out = o->only;
        o->only.text = (lathe_buffer)LATHE_BUFFER_INIT;
    } else {
        out->kind = MATCHED;
        lathe_buffer_puts(&out->text, "(?:");
        if (o->listed.len > 0) {
            const set listed = {LISTED, o->listed};
            put_set(&out->text, &listed);
            lathe_buffer_puts(&out->text, "|");
        }
        lathe_buffer_append(&out->text, o->others.data, o->others.len);
        lathe_buffer_puts(&out->text, ")");
    }
    return out->text.status;
}

/* Makes `left` the intersection of both sets. */
static lathe_status intersect(set *left, const set *right)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_buffer_puts(&text, "(?:(?=");
    put_set(&text, left);
    lathe_buffer_puts(&text, ")");
    put_set(&text, right);
    lathe_buffer_puts(&text, ")");
    lathe_buffer_fini(&left->text);
    *left = (set){MATCHED, text};
    return text.status;
}

static lathe_status negate(set *s)
{
    if (s->kind != MATCHED) {
        s->kind = s->kind == LISTED ? NOT_LISTED : LISTED;
        return LATHE_OK;
    }
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_buffer_puts(&text, "(?:(?!");
    lathe_buffer_append(&text, s->text.data, s->text.len);
    lathe_buffer_puts(&text, ")\\p{Any})");
    lathe_buffer_fini(&s->text);
    s->text = text;
    return text.status;
}

static lathe_status not_closed(const lathe_translator *t)
{
    return lathe_error(LATHE_E_PARSE, "%s: the regular expression %s: a \"[\" is not closed",
                       t->place, t->pattern);
}

/* Translates an escape and takes the translation out of the output again. */
static lathe_status read_escape(lathe_translator *t, operand *o)
{
    const size_t before = t->at;
    t->is_set = 0;
    LATHE_TRY(lathe__regex_escape(t));
    const char *text = t->out + before;
    const size_t n = t->at - before;
    set s = {t->is_set ? NOT_LISTED : LISTED, LATHE_BUFFER_INIT};
    lathe_buffer_append(&s.text, text + (t->is_set ? 2 : 0), (int64_t)(n - (t->is_set ? 3 : 0)));
    t->at = before;
    t->out[before] = 0;
    const lathe_status status = s.text.status == LATHE_OK ? add_set(o, &s) : s.text.status;
    lathe_buffer_fini(&s.text);
    return status;
}

/* A character that means itself. A "-" at either end of an operand is escaped, because the
 * translation may put it between two characters. */
static lathe_status read_character(lathe_translator *t, operand *o)
{
    const char *p = t->p++;
    const int at_end = p[1] == ']' || (p[1] == '&' && p[2] == '&');
    if (*p == '-' && (o->n_items == 0 || at_end))
        lathe_buffer_puts(&o->listed, "\\-");
    else if (*p == ']' || *p == '^')
        lathe_buffer_printf(&o->listed, "\\%c", *p);
    else
        lathe_buffer_append(&o->listed, p, 1);
    o->n_items++;
    return o->listed.status;
}

static lathe_status read_set(lathe_translator *t, set *out);

/* A class inside a class. A range that begins or ends with it is refused. */
static lathe_status read_nested(lathe_translator *t, operand *o)
{
    set nested = {LISTED, LATHE_BUFFER_INIT};
    if (t->p[1] == ':' || (o->n_items > 0 && t->p[-1] == '-'))
        return lathe__regex_refuse(t, t->p, 2);
    lathe_status status = read_set(t, &nested);
    if (status == LATHE_OK && *t->p == '-' && t->p[1] != ']' && t->p[1] != '&')
        status = lathe__regex_refuse(t, t->p - 1, 3);
    if (status == LATHE_OK)
        status = add_set(o, &nested);
    lathe_buffer_fini(&nested.text);
    return status;
}

/* Reads up to the "]" that closes the class, or to "&&". */
static lathe_status read_operand(lathe_translator *t, int may_be_bracket, operand *o)
{
    if (may_be_bracket && *t->p == ']') /* at the start it is a plain character */
        LATHE_TRY(read_character(t, o));
    while (*t->p && *t->p != ']' && !(*t->p == '&' && t->p[1] == '&')) {
        if (*t->p == '\\')
            LATHE_TRY(read_escape(t, o));
        else if (*t->p == '[')
            LATHE_TRY(read_nested(t, o));
        else
            LATHE_TRY(read_character(t, o));
    }
    if (!*t->p)
        return not_closed(t);
    return o->n_items ? LATHE_OK : lathe__regex_refuse(t, t->p, *t->p == '&' ? 2 : 1);
}

/* Reads the operands of a class, from the end of its "[" or "[^" to the end of its "]". */
static lathe_status read_operands(lathe_translator *t, set *out)
{
    for (int32_t k = 0;; k++) {
        operand o = {.n_items = 0};
        set right = {LISTED, LATHE_BUFFER_INIT};
        lathe_status status = read_operand(t, k == 0, &o);
        if (status == LATHE_OK)
            status = close_operand(&o, k == 0 ? out : &right);
        if (status == LATHE_OK && k > 0)
            status = intersect(out, &right);
        operand_fini(&o);
        lathe_buffer_fini(&right.text);
        LATHE_TRY(status);
        if (*t->p == ']') {
            t->p++;
            return LATHE_OK;
        }
        t->p += 2;
    }
}

static lathe_status read_set(lathe_translator *t, set *out)
{
    const int negated = t->p[1] == '^';
    if (t->class_depth == LATHE_REGEX_DEPTH)
        return lathe__regex_refuse(t, t->p, 1);
    if (t->p[1 + negated] == '[' && t->p[2 + negated] == ':')
        return lathe__regex_refuse(t, t->p + 1 + negated, 2);
    t->class_depth++;
    t->p += 1 + negated;
    LATHE_TRY(read_operands(t, out));
    t->class_depth--;
    return negated ? negate(out) : LATHE_OK;
}

lathe_status lathe__regex_class(lathe_translator *t)
{
    set s = {LISTED, LATHE_BUFFER_INIT};
    lathe_buffer text = LATHE_BUFFER_INIT;
    t->atom = t->at;
    lathe_status status = read_set(t, &s);
    if (status == LATHE_OK) {
        put_set(&text, &s);
        status = text.status;
    }
    if (status == LATHE_OK)
        status = lathe__regex_put(t, text.data, (size_t)text.len);
    lathe_buffer_fini(&text);
    lathe_buffer_fini(&s.text);
    return status;
}
