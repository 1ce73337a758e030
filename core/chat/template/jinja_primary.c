/* Parses literals, names, calls, members, filters and tests. */
#include <string.h>

#include "base/error.h"
#include "chat/template/jinja_parser.h"

static char *keep(jinja_parser *p, const jinja_token *token)
{
    return lathe_arena_strndup(&p->tpl->arena, token->text, token->n);
}

/* A node with two children. */
lathe_status lathe__jinja_pair(jinja_parser *p, const jinja_token *token, jinja_op op,
                               jinja_node *a, jinja_node *b, jinja_node **out)
{
    jinja_node *node = lathe__jinja_node(p, token, op);
    if (node == NULL)
        return LATHE_E_NOMEM;
    node->a = a;
    node->b = b;
    *out = node;
    return lathe__jinja_close(p, node);
}

/* jinja2 refuses an unknown filter when it compiles the template, unless an if stands around it. */
static void note_unknown(jinja_parser *p, const jinja_token *token, const char *kind)
{
    if (p->conditional || p->unknown.n)
        return;
    p->unknown = *token;
    p->unknown_kind = kind;
}

lathe_status lathe__jinja_check_unknown(jinja_parser *p)
{
    if (p->unknown.n == 0)
        return LATHE_OK;
    return lathe__jinja_fail_at(p, &p->unknown, LATHE_E_UNSUPPORTED,
                                "the %s '%.*s' is not supported", p->unknown_kind,
                                p->unknown.n > 40 ? 40 : (int)p->unknown.n, p->unknown.text);
}

/* ---- calls ---- */

static lathe_status parse_argument(jinja_parser *p, jinja_node **out, int *last)
{
    jinja_token next;
    jinja_node *arg = lathe__jinja_node(p, &p->at, JINJA_OP_ARG);
    if (arg == NULL)
        return LATHE_E_NOMEM;
    const jinja_token begin = p->at;
    arg->sub = JINJA_ARG_PLAIN;
    LATHE_TRY(lathe__jinja_look(p, &next));
    if (p->at.type == JINJA_T_MUL || p->at.type == JINJA_T_POW) {
        arg->sub = p->at.type == JINJA_T_MUL ? JINJA_ARG_STAR : JINJA_ARG_STAR_STAR;
        LATHE_TRY(lathe__jinja_advance(p));
    } else if (p->at.type == JINJA_T_NAME && next.type == JINJA_T_ASSIGN) {
        arg->sub = JINJA_ARG_KEYWORD;
        arg->text = keep(p, &p->at);
        if (arg->text == NULL)
            return LATHE_E_NOMEM;
        LATHE_TRY(lathe__jinja_advance(p));
        LATHE_TRY(lathe__jinja_advance(p));
    }
    static const char rank[] = {0, 1, 2, 3}; /* plain, keyword, *, ** */
    const int wrong = arg->sub == JINJA_ARG_PLAIN     ? *last > 0
                      : arg->sub == JINJA_ARG_KEYWORD ? *last > 2
                                                      : *last >= rank[arg->sub];
    if (wrong)
        return lathe__jinja_fail_at(p, &begin, LATHE_E_PARSE,
                                    "the arguments of a call are out of order; expected values, "
                                    "then name=value, then *list, then **mapping");
    *last = rank[arg->sub] > *last ? rank[arg->sub] : *last;
    LATHE_TRY(lathe__jinja_expression(p, 1, &arg->a));
    *out = arg;
    return lathe__jinja_close(p, arg);
}

/* "(a, b=c)"; *out: the first argument. */
static lathe_status parse_arguments(jinja_parser *p, jinja_node **out)
{
    jinja_nodes list = {NULL, NULL};
    int last = 0;
    LATHE_TRY(lathe__jinja_expect(p, JINJA_T_LPAREN, "(", NULL));
    while (p->at.type != JINJA_T_RPAREN) {
        jinja_node *arg = NULL;
        if (list.first) {
            LATHE_TRY(lathe__jinja_expect(p, JINJA_T_COMMA, "a comma or )", NULL));
            if (p->at.type == JINJA_T_RPAREN)
                break;
        }
        LATHE_TRY(parse_argument(p, &arg, &last));
        lathe__jinja_add(&list, arg);
    }
    *out = list.first;
    return lathe__jinja_advance(p);
}

static lathe_status parse_call(jinja_parser *p, jinja_node *callee, jinja_node **out)
{
    const jinja_token token = p->at;
    jinja_node *args = NULL;
    LATHE_TRY(parse_arguments(p, &args));
    return lathe__jinja_pair(p, &token, JINJA_OP_CALL, callee, args, out);
}

/* The name of a filter or test, which may have dots. */
static lathe_status function_name(jinja_parser *p, const char *what, const char **out,
                                  jinja_token *token)
{
    LATHE_TRY(lathe__jinja_expect(p, JINJA_T_NAME, what, token));
    if (p->at.type == JINJA_T_DOT)
        return lathe__jinja_fail_at(p, token, LATHE_E_UNSUPPORTED,
                                    "a name with a dot is not supported for %s", what);
    *out = keep(p, token);
    return *out ? LATHE_OK : LATHE_E_NOMEM;
}

lathe_status lathe__jinja_filters(jinja_parser *p, jinja_node *input, int is_inline,
                                  jinja_node **out)
{
    while (p->at.type == JINJA_T_PIPE || is_inline) {
        jinja_token token;
        const char *name = NULL;
        if (!is_inline)
            LATHE_TRY(lathe__jinja_advance(p));
        is_inline = 0;
        LATHE_TRY(function_name(p, "a filter's name", &name, &token));
        if (!lathe__jinja_has_filter(name))
            note_unknown(p, &token, "filter");
        jinja_node *node = lathe__jinja_node(p, &token, JINJA_OP_FILTER);
        if (node == NULL)
            return LATHE_E_NOMEM;
        node->a = input;
        node->text = name;
        if (p->at.type == JINJA_T_LPAREN)
            LATHE_TRY(parse_arguments(p, &node->b));
        LATHE_TRY(lathe__jinja_close(p, node));
        input = node;
    }
    *out = input;
    return LATHE_OK;
}

/* ---- postfixes ---- */

static lathe_status parse_slice_part(jinja_parser *p, jinja_node **out)
{
    *out = NULL;
    if (p->at.type == JINJA_T_COLON || p->at.type == JINJA_T_RBRACKET)
        return LATHE_OK;
    return lathe__jinja_expression(p, 1, out);
}

/* "[...]" after `node`. */
static lathe_status parse_brackets(jinja_parser *p, jinja_node *node, jinja_node **out)
{
    const jinja_token token = p->at;
    LATHE_TRY(lathe__jinja_advance(p));
    jinja_node *result = lathe__jinja_node(p, &token, JINJA_OP_GETITEM);
    if (result == NULL)
        return LATHE_E_NOMEM;
    result->a = node;
    LATHE_TRY(parse_slice_part(p, &result->b));
    if (p->at.type == JINJA_T_COLON) {
        result->op = JINJA_OP_SLICE;
        LATHE_TRY(lathe__jinja_advance(p));
        LATHE_TRY(parse_slice_part(p, &result->c));
        if (p->at.type == JINJA_T_COLON) {
            LATHE_TRY(lathe__jinja_advance(p));
            LATHE_TRY(parse_slice_part(p, &result->d));
        }
    } else if (result->b == NULL) {
        return lathe__jinja_expected_at(p, &p->at, "an expression inside [ ]");
    }
    if (p->at.type == JINJA_T_COMMA)
        return lathe__jinja_fail_at(p, &p->at, LATHE_E_UNSUPPORTED,
                                    "a tuple inside [ ] is not supported");
    LATHE_TRY(lathe__jinja_expect(p, JINJA_T_RBRACKET, "]", NULL));
    *out = result;
    return lathe__jinja_close(p, result);
}

static lathe_status parse_dot(jinja_parser *p, jinja_node *node, jinja_node **out)
{
    const jinja_token token = p->at;
    LATHE_TRY(lathe__jinja_advance(p));
    jinja_node *result = lathe__jinja_node(p, &token, JINJA_OP_GETATTR);
    if (result == NULL)
        return LATHE_E_NOMEM;
    result->a = node;
    if (p->at.type == JINJA_T_NAME) {
        result->text = keep(p, &p->at);
        if (result->text == NULL)
            return LATHE_E_NOMEM;
    } else if (p->at.type == JINJA_T_INT) {
        result->op = JINJA_OP_GETITEM;
        result->b = lathe__jinja_node(p, &p->at, JINJA_OP_CONST);
        if (result->b == NULL)
            return LATHE_E_NOMEM;
        result->b->value = jinja_int(p->at.whole);
    } else {
        return lathe__jinja_expected_at(p, &p->at, "a name or number after .");
    }
    *out = result;
    LATHE_TRY(lathe__jinja_advance(p));
    return lathe__jinja_close(p, result);
}

lathe_status lathe__jinja_postfix(jinja_parser *p, jinja_node **node)
{
    for (;;) {
        if (p->at.type == JINJA_T_DOT)
            LATHE_TRY(parse_dot(p, *node, node));
        else if (p->at.type == JINJA_T_LBRACKET)
            LATHE_TRY(parse_brackets(p, *node, node));
        else if (p->at.type == JINJA_T_LPAREN)
            LATHE_TRY(parse_call(p, *node, node));
        else
            return LATHE_OK;
    }
}

/* An argument of a test without parentheses begins here. */
static int begins_argument(const jinja_token *token)
{
    switch (token->type) {
    case JINJA_T_NAME:
        return !lathe__jinja_is_name(token, "else") && !lathe__jinja_is_name(token, "or") &&
               !lathe__jinja_is_name(token, "and");
    case JINJA_T_STRING:
    case JINJA_T_INT:
    case JINJA_T_FLOAT:
    case JINJA_T_LBRACKET:
    case JINJA_T_LBRACE:
        return 1;
    default:
        return 0;
    }
}

static lathe_status parse_test(jinja_parser *p, jinja_node *input, jinja_node **out)
{
    jinja_token token;
    const char *name = NULL;
    LATHE_TRY(lathe__jinja_advance(p));
    const int negated = lathe__jinja_is_name(&p->at, "not");
    if (negated)
        LATHE_TRY(lathe__jinja_advance(p));
    LATHE_TRY(function_name(p, "a test's name", &name, &token));
    if (!lathe__jinja_has_test(name))
        note_unknown(p, &token, "test");
    jinja_node *node = lathe__jinja_node(p, &token, JINJA_OP_TEST);
    if (node == NULL)
        return LATHE_E_NOMEM;
    node->a = input;
    node->text = name;
    if (p->at.type == JINJA_T_LPAREN) {
        LATHE_TRY(parse_arguments(p, &node->b));
    } else if (begins_argument(&p->at)) {
        if (lathe__jinja_is_name(&p->at, "is"))
            return lathe__jinja_fail_at(p, &p->at, LATHE_E_PARSE,
                                        "two tests in a row; put the first in parentheses");
        node->b = lathe__jinja_node(p, &p->at, JINJA_OP_ARG);
        if (node->b == NULL)
            return LATHE_E_NOMEM;
        LATHE_TRY(lathe__jinja_primary(p, 0, &node->b->a));
        LATHE_TRY(lathe__jinja_postfix(p, &node->b->a));
        LATHE_TRY(lathe__jinja_close(p, node->b));
    }
    *out = node;
    LATHE_TRY(lathe__jinja_close(p, node));
    return negated ? lathe__jinja_pair(p, &token, JINJA_OP_NOT, node, NULL, out) : LATHE_OK;
}

lathe_status lathe__jinja_filters_and_tests(jinja_parser *p, jinja_node **node)
{
    for (;;) {
        if (p->at.type == JINJA_T_PIPE)
            LATHE_TRY(lathe__jinja_filters(p, *node, 0, node));
        else if (lathe__jinja_is_name(&p->at, "is"))
            LATHE_TRY(parse_test(p, *node, node));
        else if (p->at.type == JINJA_T_LPAREN)
            LATHE_TRY(parse_call(p, *node, node));
        else
            return LATHE_OK;
    }
}

/* ---- primaries ---- */

static lathe_status parse_items(jinja_parser *p, jinja_token_type end, jinja_op op,
                                jinja_node **out)
{
    jinja_nodes list = {NULL, NULL};
    jinja_node *node = lathe__jinja_node(p, &p->at, op);
    if (node == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe__jinja_advance(p));
    while (p->at.type != end) {
        jinja_node *item = NULL;
        if (list.first) {
            LATHE_TRY(lathe__jinja_expect(p, JINJA_T_COMMA, "a comma", NULL));
            if (p->at.type == end)
                break;
        }
        const jinja_token token = p->at;
        LATHE_TRY(lathe__jinja_expression(p, 1, &item));
        if (op == JINJA_OP_DICT) {
            jinja_node *value = NULL;
            LATHE_TRY(lathe__jinja_expect(p, JINJA_T_COLON, ":", NULL));
            LATHE_TRY(lathe__jinja_expression(p, 1, &value));
            LATHE_TRY(lathe__jinja_pair(p, &token, JINJA_OP_PAIR, item, value, &item));
        }
        lathe__jinja_add(&list, item);
    }
    node->a = list.first;
    *out = node;
    LATHE_TRY(lathe__jinja_advance(p));
    return lathe__jinja_close(p, node);
}

static lathe_status parse_string(jinja_parser *p, jinja_node *node)
{
    enum { IN_A_ROW = 100 };
    lathe_arena *arena = &p->tpl->arena;
    jinja_string *s = NULL;
    for (int i = 0; p->at.type == JINJA_T_STRING; i++) { /* strings in a row are one */
        if (i == IN_A_ROW)
            return lathe__jinja_fail_at(p, &p->at, LATHE_E_UNSUPPORTED,
                                        "more than %d strings in a row", IN_A_ROW);
        const int64_t before = s ? s->n : 0;
        char *text = lathe_arena_alloc(arena, before + p->at.n + 1);
        if (text == NULL)
            return LATHE_E_NOMEM;
        if (before)
            memcpy(text, s->data, (size_t)before);
        if (p->at.n)
            memcpy(text + before, p->at.text, (size_t)p->at.n);
        s = lathe__jinja_constant(arena, text, before + p->at.n);
        if (s == NULL)
            return LATHE_E_NOMEM;
        LATHE_TRY(lathe__jinja_advance(p));
    }
    node->value = (jinja_value){.type = JINJA_STRING, .u.s = s};
    return LATHE_OK;
}

static lathe_status parse_name(jinja_parser *p, int as_target, jinja_node *node)
{
    static const struct {
        const char *name;
        uint8_t type, value;
    } constants[] = {{"true", JINJA_BOOL, 1},  {"True", JINJA_BOOL, 1}, {"false", JINJA_BOOL, 0},
                     {"False", JINJA_BOOL, 0}, {"none", JINJA_NONE, 0}, {"None", JINJA_NONE, 0}};
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        if (lathe__jinja_is_name(&p->at, constants[i].name)) {
            node->value = (jinja_value){.type = constants[i].type, .u.i = constants[i].value};
            return lathe__jinja_advance(p);
        }
    LATHE_TRY(lathe__jinja_name_id(p, p->at.text, p->at.n, &node->id));
    node->op = JINJA_OP_NAME;
    if (!as_target)
        p->catches |= node->id == JINJA_ID_VARARGS  ? JINJA_CATCH_ARGS
                      : node->id == JINJA_ID_KWARGS ? JINJA_CATCH_KEYWORDS
                      : node->id == JINJA_ID_CALLER ? JINJA_CATCH_CALLER
                                                    : 0;
    LATHE_TRY(lathe__jinja_advance(p));
    if (!as_target || p->at.type != JINJA_T_DOT)
        return LATHE_OK;
    jinja_token token;
    LATHE_TRY(lathe__jinja_advance(p));
    LATHE_TRY(lathe__jinja_expect(p, JINJA_T_NAME, "a name", &token));
    node->op = JINJA_OP_NSREF;
    node->text = keep(p, &token);
    return node->text ? LATHE_OK : LATHE_E_NOMEM;
}

static lathe_status parse_parentheses(jinja_parser *p, jinja_node **out)
{
    const jinja_token token = p->at;
    LATHE_TRY(lathe__jinja_advance(p));
    if (p->at.type == JINJA_T_RPAREN)
        LATHE_TRY(lathe__jinja_pair(p, &token, JINJA_OP_TUPLE, NULL, NULL, out));
    else
        LATHE_TRY(lathe__jinja_tuple(p, 1, NULL, out));
    return lathe__jinja_expect(p, JINJA_T_RPAREN, ")", NULL);
}

lathe_status lathe__jinja_primary(jinja_parser *p, int as_target, jinja_node **out)
{
    const jinja_token token = p->at;
    if (token.type == JINJA_T_LPAREN)
        return parse_parentheses(p, out);
    if (token.type == JINJA_T_LBRACKET)
        return parse_items(p, JINJA_T_RBRACKET, JINJA_OP_LIST, out);
    if (token.type == JINJA_T_LBRACE)
        return parse_items(p, JINJA_T_RBRACE, JINJA_OP_DICT, out);
    jinja_node *node = lathe__jinja_node(p, &token, JINJA_OP_CONST);
    if (node == NULL)
        return LATHE_E_NOMEM;
    *out = node;
    switch (token.type) {
    case JINJA_T_NAME:
        return parse_name(p, as_target, node);
    case JINJA_T_STRING:
        return parse_string(p, node);
    case JINJA_T_INT:
        node->value = jinja_int(token.whole);
        return lathe__jinja_advance(p);
    case JINJA_T_FLOAT:
        node->value = jinja_float(token.real);
        return lathe__jinja_advance(p);
    default:
        return lathe__jinja_expected_at(p, &token, "an expression");
    }
}
