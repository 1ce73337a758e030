/* Parses the operators of expressions, in the order of jinja2's precedences. */
#include "base/error.h"
#include "chat/template/jinja_parser.h"

static lathe_status nest(jinja_parser *p)
{
    if (++p->nesting > JINJA_MAX_NESTING)
        return lathe__jinja_fail_at(p, &p->at, LATHE_E_UNSUPPORTED,
                                    "expressions and blocks are nested more than %d deep",
                                    JINJA_MAX_NESTING);
    return LATHE_OK;
}

/* ---- operators, from the strongest to the weakest ---- */

static lathe_status parse_unary(jinja_parser *p, int with_filter, jinja_node **out)
{
    const jinja_token token = p->at;
    LATHE_TRY(nest(p));
    if (token.type == JINJA_T_SUB || token.type == JINJA_T_ADD) {
        jinja_node *inner = NULL;
        LATHE_TRY(lathe__jinja_advance(p));
        LATHE_TRY(parse_unary(p, 0, &inner));
        LATHE_TRY(lathe__jinja_pair(
            p, &token, token.type == JINJA_T_SUB ? JINJA_OP_NEG : JINJA_OP_POS, inner, NULL, out));
    } else {
        LATHE_TRY(lathe__jinja_primary(p, 0, out));
    }
    LATHE_TRY(lathe__jinja_postfix(p, out));
    if (with_filter)
        LATHE_TRY(lathe__jinja_filters_and_tests(p, out));
    p->nesting--;
    return LATHE_OK;
}

static lathe_status math(jinja_parser *p, jinja_node *left, const jinja_token *token,
                         jinja_node *right, jinja_node **out)
{
    LATHE_TRY(lathe__jinja_pair(p, token, JINJA_OP_MATH, left, right, out));
    (*out)->sub = (uint8_t)(token->type - JINJA_T_ADD); /* in the order of JINJA_ADD ... */
    return LATHE_OK;
}

static lathe_status parse_power(jinja_parser *p, jinja_node **out)
{
    LATHE_TRY(parse_unary(p, 1, out));
    while (p->at.type == JINJA_T_POW) {
        jinja_node *right = NULL;
        const jinja_token token = p->at;
        LATHE_TRY(lathe__jinja_advance(p));
        LATHE_TRY(parse_unary(p, 1, &right));
        LATHE_TRY(math(p, *out, &token, right, out));
    }
    return LATHE_OK;
}

static lathe_status parse_product(jinja_parser *p, jinja_node **out)
{
    LATHE_TRY(parse_power(p, out));
    while (p->at.type == JINJA_T_MUL || p->at.type == JINJA_T_DIV ||
           p->at.type == JINJA_T_FLOORDIV || p->at.type == JINJA_T_MOD) {
        jinja_node *right = NULL;
        const jinja_token token = p->at;
        LATHE_TRY(lathe__jinja_advance(p));
        LATHE_TRY(parse_power(p, &right));
        LATHE_TRY(math(p, *out, &token, right, out));
    }
    return LATHE_OK;
}

static lathe_status parse_concat(jinja_parser *p, jinja_node **out)
{
    const jinja_token token = p->at;
    jinja_nodes list = {NULL, NULL};
    LATHE_TRY(parse_product(p, out));
    if (p->at.type != JINJA_T_TILDE)
        return LATHE_OK;
    lathe__jinja_add(&list, *out);
    while (p->at.type == JINJA_T_TILDE) {
        jinja_node *item = NULL;
        LATHE_TRY(lathe__jinja_advance(p));
        LATHE_TRY(parse_product(p, &item));
        lathe__jinja_add(&list, item);
    }
    return lathe__jinja_pair(p, &token, JINJA_OP_CONCAT, list.first, NULL, out);
}

static lathe_status parse_sum(jinja_parser *p, jinja_node **out)
{
    LATHE_TRY(parse_concat(p, out));
    while (p->at.type == JINJA_T_ADD || p->at.type == JINJA_T_SUB) {
        jinja_node *right = NULL;
        const jinja_token token = p->at;
        LATHE_TRY(lathe__jinja_advance(p));
        LATHE_TRY(parse_concat(p, &right));
        LATHE_TRY(math(p, *out, &token, right, out));
    }
    return LATHE_OK;
}

/* The comparison at the present token, passed; -1 when there is none. */
static lathe_status comparison(jinja_parser *p, int *out)
{
    static const int of[] = {
        [JINJA_T_EQ] = JINJA_CMP_EQ, [JINJA_T_NE] = JINJA_CMP_NE, [JINJA_T_LT] = JINJA_CMP_LT,
        [JINJA_T_LE] = JINJA_CMP_LE, [JINJA_T_GT] = JINJA_CMP_GT, [JINJA_T_GE] = JINJA_CMP_GE};
    *out = -1;
    if (p->at.type >= JINJA_T_EQ && p->at.type <= JINJA_T_GE) {
        *out = of[p->at.type];
    } else if (lathe__jinja_is_name(&p->at, "in")) {
        *out = JINJA_CMP_IN;
    } else if (lathe__jinja_is_name(&p->at, "not")) {
        jinja_token next;
        LATHE_TRY(lathe__jinja_look(p, &next));
        if (!lathe__jinja_is_name(&next, "in"))
            return LATHE_OK;
        LATHE_TRY(lathe__jinja_advance(p));
        *out = JINJA_CMP_NOT_IN;
    }
    return *out < 0 ? LATHE_OK : lathe__jinja_advance(p);
}

static lathe_status parse_compare(jinja_parser *p, jinja_node **out)
{
    const jinja_token token = p->at;
    jinja_nodes list = {NULL, NULL};
    int cmp;
    LATHE_TRY(parse_sum(p, out));
    for (;;) {
        jinja_node *operand = NULL;
        const jinja_token at = p->at;
        LATHE_TRY(comparison(p, &cmp));
        if (cmp < 0)
            break;
        LATHE_TRY(parse_sum(p, &operand));
        LATHE_TRY(lathe__jinja_pair(p, &at, JINJA_OP_OPERAND, operand, NULL, &operand));
        operand->sub = (uint8_t)cmp;
        lathe__jinja_add(&list, operand);
    }
    return list.first ? lathe__jinja_pair(p, &token, JINJA_OP_COMPARE, *out, list.first, out)
                      : LATHE_OK;
}

static lathe_status parse_not(jinja_parser *p, jinja_node **out)
{
    if (!lathe__jinja_is_name(&p->at, "not"))
        return parse_compare(p, out);
    const jinja_token token = p->at;
    jinja_node *inner = NULL;
    LATHE_TRY(nest(p));
    LATHE_TRY(lathe__jinja_advance(p));
    LATHE_TRY(parse_not(p, &inner));
    p->nesting--;
    return lathe__jinja_pair(p, &token, JINJA_OP_NOT, inner, NULL, out);
}

static lathe_status parse_and(jinja_parser *p, jinja_node **out)
{
    LATHE_TRY(parse_not(p, out));
    while (lathe__jinja_is_name(&p->at, "and")) {
        jinja_node *right = NULL;
        const jinja_token token = p->at;
        LATHE_TRY(lathe__jinja_advance(p));
        LATHE_TRY(parse_not(p, &right));
        LATHE_TRY(lathe__jinja_pair(p, &token, JINJA_OP_AND, *out, right, out));
    }
    return LATHE_OK;
}

static lathe_status parse_or(jinja_parser *p, jinja_node **out)
{
    LATHE_TRY(parse_and(p, out));
    while (lathe__jinja_is_name(&p->at, "or")) {
        jinja_node *right = NULL;
        const jinja_token token = p->at;
        LATHE_TRY(lathe__jinja_advance(p));
        LATHE_TRY(parse_and(p, &right));
        LATHE_TRY(lathe__jinja_pair(p, &token, JINJA_OP_OR, *out, right, out));
    }
    return LATHE_OK;
}

lathe_status lathe__jinja_expression(jinja_parser *p, int with_if, jinja_node **out)
{
    LATHE_TRY(nest(p));
    const int64_t unknown_before = p->unknown.n;
    LATHE_TRY(parse_or(p, out));
    if (with_if && lathe__jinja_is_name(&p->at, "if"))
        p->unknown.n = unknown_before;
    while (with_if && lathe__jinja_is_name(&p->at, "if")) {
        jinja_node *node = lathe__jinja_node(p, &p->at, JINJA_OP_COND);
        if (node == NULL)
            return LATHE_E_NOMEM;
        node->b = *out;
        LATHE_TRY(lathe__jinja_advance(p));
        p->conditional++;
        LATHE_TRY(parse_or(p, &node->a));
        if (lathe__jinja_is_name(&p->at, "else")) {
            LATHE_TRY(lathe__jinja_advance(p));
            LATHE_TRY(lathe__jinja_expression(p, 1, &node->c));
        }
        p->conditional--;
        LATHE_TRY(lathe__jinja_close(p, node));
        *out = node;
    }
    p->nesting--;
    return LATHE_OK;
}

/* A tuple ends here. */
static int tuple_ends(const jinja_parser *p, const char *end)
{
    return p->at.type == JINJA_T_PRINT_END || p->at.type == JINJA_T_BLOCK_END ||
           p->at.type == JINJA_T_RPAREN || (end && lathe__jinja_is_name(&p->at, end));
}

static lathe_status items_with_commas(jinja_parser *p, int with_if, int is_target, const char *end,
                                      jinja_node **out)
{
    const jinja_token token = p->at;
    jinja_nodes list = {NULL, NULL};
    int is_tuple = 0;
    for (;;) {
        jinja_node *item = NULL;
        if (tuple_ends(p, end) && list.first)
            break;
        LATHE_TRY(is_target ? lathe__jinja_primary(p, 1, &item)
                            : lathe__jinja_expression(p, with_if, &item));
        lathe__jinja_add(&list, item);
        if (p->at.type != JINJA_T_COMMA)
            break;
        is_tuple = 1;
        LATHE_TRY(lathe__jinja_advance(p));
    }
    *out = list.first;
    return is_tuple ? lathe__jinja_pair(p, &token, JINJA_OP_TUPLE, list.first, NULL, out)
                    : LATHE_OK;
}

lathe_status lathe__jinja_tuple(jinja_parser *p, int with_if, const char *end, jinja_node **out)
{
    return items_with_commas(p, with_if, 0, end, out);
}

static lathe_status check_target(jinja_parser *p, const jinja_token *token, const jinja_node *node)
{
    if (node->op == JINJA_OP_NAME || node->op == JINJA_OP_NSREF)
        return LATHE_OK;
    if (node->op == JINJA_OP_TUPLE) {
        for (const jinja_node *item = node->a; item; item = item->next)
            LATHE_TRY(check_target(p, token, item));
        return LATHE_OK;
    }
    return lathe__jinja_expected_at(p, token,
                                    "a name, namespace.name or names with commas to assign to");
}

lathe_status lathe__jinja_target(jinja_parser *p, const char *end, jinja_node **out)
{
    const jinja_token token = p->at;
    LATHE_TRY(items_with_commas(p, 1, 1, end, out));
    return check_target(p, &token, *out);
}
