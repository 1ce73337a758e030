/* Parses the statements of a template. */
#include "chat/template/jinja_parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

enum { MAX_SOURCE = 1 << 20 };

/* ---- statements ---- */

static lathe_status parse_body(jinja_parser *p, const char *const *ends, jinja_node **out);

/* The rest of a begin tag, then its body up to one of the end tags, whose name is the present token
 * afterwards. */
static lathe_status tag_body(jinja_parser *p, const char *const *ends, jinja_node **out)
{
    if (p->at.type == JINJA_T_COLON)
        LATHE_TRY(lathe__jinja_advance(p));
    LATHE_TRY(lathe__jinja_expect(p, JINJA_T_BLOCK_END, "%}", NULL));
    if (++p->nesting > JINJA_MAX_NESTING)
        return lathe__jinja_fail_at(p, &p->at, LATHE_E_UNSUPPORTED,
                                    "expressions and blocks are nested more than %d deep",
                                    JINJA_MAX_NESTING);
    LATHE_TRY(parse_body(p, ends, out));
    p->nesting--;
    return LATHE_OK;
}

/* A body that has one end tag, which is passed. */
static lathe_status whole_body(jinja_parser *p, const char *end, jinja_node **out)
{
    const char *const ends[] = {end, NULL};
    LATHE_TRY(tag_body(p, ends, out));
    return lathe__jinja_advance(p);
}

static lathe_status parse_if(jinja_parser *p, jinja_node *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    jinja_node *all = node;
    int32_t height = 0;
    p->conditional++;
    for (;;) {
        LATHE_TRY(lathe__jinja_tuple(p, 0, NULL, &node->a));
        LATHE_TRY(tag_body(p, ends, &node->b));
        const jinja_token token = p->at;
        LATHE_TRY(lathe__jinja_advance(p));
        if (lathe__jinja_is_name(&token, "else"))
            LATHE_TRY(whole_body(p, "endif", &node->c));
        LATHE_TRY(lathe__jinja_close(p, node));
        height = node->height > height ? node->height : height;
        if (!lathe__jinja_is_name(&token, "elif"))
            break;
        node->d = lathe__jinja_node(p, &token, JINJA_OP_IF);
        if (node->d == NULL)
            return LATHE_E_NOMEM;
        node = node->d; /* run in turn, not nested: not in the height */
    }
    all->height = height;
    p->conditional--;
    return LATHE_OK;
}

static lathe_status parse_for(jinja_parser *p, jinja_node *node)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    LATHE_TRY(lathe__jinja_target(p, "in", &node->a));
    if (!lathe__jinja_is_name(&p->at, "in"))
        return lathe__jinja_expected_at(p, &p->at, "'in'");
    LATHE_TRY(lathe__jinja_advance(p));
    LATHE_TRY(lathe__jinja_tuple(p, 0, "recursive", &node->b));
    if (lathe__jinja_is_name(&p->at, "if")) {
        LATHE_TRY(lathe__jinja_advance(p));
        LATHE_TRY(lathe__jinja_expression(p, 1, &node->c));
    }
    if (lathe__jinja_is_name(&p->at, "recursive"))
        return lathe__jinja_fail_at(p, &p->at, LATHE_E_UNSUPPORTED,
                                    "a recursive loop is not supported");
    p->n_loops++;
    LATHE_TRY(tag_body(p, ends, &node->d));
    p->n_loops--;
    const int has_else = lathe__jinja_is_name(&p->at, "else");
    LATHE_TRY(lathe__jinja_advance(p));
    return has_else ? whole_body(p, "endfor", &node->e) : LATHE_OK;
}

/* A body that is a function in jinja2: break and continue cannot leave it. */
static lathe_status closed_body(jinja_parser *p, const char *end, jinja_node **out)
{
    const int32_t loops = p->n_loops;
    p->n_loops = 0;
    LATHE_TRY(whole_body(p, end, out));
    p->n_loops = loops;
    return LATHE_OK;
}

static lathe_status parse_set(jinja_parser *p, jinja_node *node)
{
    LATHE_TRY(lathe__jinja_target(p, NULL, &node->a));
    if (p->at.type == JINJA_T_ASSIGN) {
        LATHE_TRY(lathe__jinja_advance(p));
        return lathe__jinja_tuple(p, 1, NULL, &node->b);
    }
    node->op = JINJA_OP_SET_BLOCK;
    LATHE_TRY(lathe__jinja_filters(p, NULL, 0, &node->b));
    return whole_body(p, "endset", &node->d);
}

static lathe_status parse_parameters(jinja_parser *p, jinja_node **out)
{
    jinja_nodes list = {NULL, NULL};
    int has_default = 0;
    LATHE_TRY(lathe__jinja_expect(p, JINJA_T_LPAREN, "(", NULL));
    while (p->at.type != JINJA_T_RPAREN) {
        jinja_token token = {0};
        if (list.first)
            LATHE_TRY(lathe__jinja_expect(p, JINJA_T_COMMA, "a comma or )", NULL));
        LATHE_TRY(lathe__jinja_expect(p, JINJA_T_NAME, "a parameter's name", &token));
        jinja_node *param = lathe__jinja_node(p, &token, JINJA_OP_PARAM);
        if (param == NULL)
            return LATHE_E_NOMEM;
        LATHE_TRY(lathe__jinja_name_id(p, token.text, token.n, &param->id));
        if (p->at.type == JINJA_T_ASSIGN) {
            LATHE_TRY(lathe__jinja_advance(p));
            LATHE_TRY(lathe__jinja_expression(p, 1, &param->a));
            has_default = 1;
        } else if (has_default) {
            return lathe__jinja_fail_at(p, &token, LATHE_E_PARSE,
                                        "a parameter without a default after one with a default");
        }
        LATHE_TRY(lathe__jinja_close(p, param));
        lathe__jinja_add(&list, param);
    }
    *out = list.first;
    return lathe__jinja_advance(p);
}

/* The body of a macro or of a call block, and which of varargs, kwargs and caller it uses. */
static lathe_status macro_body(jinja_parser *p, const char *end, jinja_node *macro)
{
    const int32_t outer = p->catches;
    p->catches = 0;
    LATHE_TRY(closed_body(p, end, &macro->d));
    macro->sub = (uint8_t)p->catches;
    p->catches = outer;
    return lathe__jinja_close(p, macro);
}

static lathe_status parse_macro(jinja_parser *p, jinja_node *node)
{
    jinja_token token = {0};
    LATHE_TRY(lathe__jinja_expect(p, JINJA_T_NAME, "a macro's name", &token));
    LATHE_TRY(lathe__jinja_name_id(p, token.text, token.n, &node->id));
    LATHE_TRY(parse_parameters(p, &node->a));
    return macro_body(p, "endmacro", node);
}

static lathe_status parse_call_block(jinja_parser *p, jinja_node *node)
{
    jinja_node *macro = lathe__jinja_node(p, &p->at, JINJA_OP_MACRO);
    if (macro == NULL)
        return LATHE_E_NOMEM;
    macro->id = JINJA_ID_CALLER;
    node->b = macro;
    if (p->at.type == JINJA_T_LPAREN)
        LATHE_TRY(parse_parameters(p, &macro->a));
    const jinja_token token = p->at;
    LATHE_TRY(lathe__jinja_expression(p, 1, &node->a));
    if (node->a->op != JINJA_OP_CALL)
        return lathe__jinja_expected_at(p, &token, "a call of a macro");
    return macro_body(p, "endcall", macro);
}

static lathe_status parse_with(jinja_parser *p, jinja_node *node)
{
    jinja_nodes list = {NULL, NULL};
    while (p->at.type != JINJA_T_BLOCK_END) {
        if (list.first)
            LATHE_TRY(lathe__jinja_expect(p, JINJA_T_COMMA, "a comma", NULL));
        jinja_node *set = lathe__jinja_node(p, &p->at, JINJA_OP_SET);
        jinja_token token = {0};
        if (set == NULL)
            return LATHE_E_NOMEM;
        set->a = lathe__jinja_node(p, &p->at, JINJA_OP_NAME);
        if (set->a == NULL)
            return LATHE_E_NOMEM;
        LATHE_TRY(lathe__jinja_expect(p, JINJA_T_NAME, "a name", &token));
        LATHE_TRY(lathe__jinja_name_id(p, token.text, token.n, &set->a->id));
        LATHE_TRY(lathe__jinja_expect(p, JINJA_T_ASSIGN, "=", NULL));
        LATHE_TRY(lathe__jinja_expression(p, 1, &set->b));
        LATHE_TRY(lathe__jinja_close(p, set));
        lathe__jinja_add(&list, set);
    }
    node->a = list.first;
    return whole_body(p, "endwith", &node->d);
}

static lathe_status parse_filter_block(jinja_parser *p, jinja_node *node)
{
    LATHE_TRY(lathe__jinja_filters(p, NULL, 1, &node->b));
    return whole_body(p, "endfilter", &node->d);
}

static lathe_status parse_generation(jinja_parser *p, jinja_node *node)
{
    p->tpl->has_generation = 1;
    return closed_body(p, "endgeneration", &node->d);
}

static lathe_status parse_jump(jinja_parser *p, jinja_node *node)
{
    if (p->n_loops > 0)
        return LATHE_OK;
    return lathe__jinja_error(p->tpl, LATHE_E_PARSE, node->place.line, node->place.column,
                              "'%s' outside a loop",
                              node->op == JINJA_OP_BREAK ? "break" : "continue");
}

static lathe_status parse_print(jinja_parser *p, jinja_node *node)
{
    LATHE_TRY(lathe__jinja_expression(p, 1, &node->a));
    if (p->at.type == JINJA_T_COMMA)
        return lathe__jinja_fail_at(p, &p->at, LATHE_E_UNSUPPORTED,
                                    "{%% print %%} of more than one value is not supported");
    return LATHE_OK;
}

static const struct {
    const char *tag;
    jinja_op op;
    lathe_status (*parse)(jinja_parser *p, jinja_node *node);
} statements[] = {{"if", JINJA_OP_IF, parse_if},
                  {"for", JINJA_OP_FOR, parse_for},
                  {"set", JINJA_OP_SET, parse_set},
                  {"macro", JINJA_OP_MACRO, parse_macro},
                  {"call", JINJA_OP_CALL_BLOCK, parse_call_block},
                  {"filter", JINJA_OP_FILTER_BLOCK, parse_filter_block},
                  {"with", JINJA_OP_WITH, parse_with},
                  {"generation", JINJA_OP_GENERATION, parse_generation},
                  {"break", JINJA_OP_BREAK, parse_jump},
                  {"continue", JINJA_OP_CONTINUE, parse_jump},
                  {"print", JINJA_OP_PRINT, parse_print}};

static lathe_status unknown_tag(jinja_parser *p, const jinja_token *token)
{
    static const char *const lacking[] = {"block",      "extends", "include", "import",   "from",
                                          "autoescape", "do",      "trans",   "pluralize"};
    const int n = token->n > 30 ? 30 : (int)token->n;
    for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; i++)
        if (lathe__jinja_is_name(token, lacking[i]))
            return lathe__jinja_fail_at(p, token, LATHE_E_UNSUPPORTED,
                                        "the tag {%% %s %%} is not supported", lacking[i]);
    if (token->n > 3 && memcmp(token->text, "end", 3) == 0)
        return lathe__jinja_fail_at(p, token, LATHE_E_PARSE, "{%% %.*s %%} closes no open block", n,
                                    token->text);
    return lathe__jinja_fail_at(p, token, LATHE_E_UNSUPPORTED, "unknown tag '%.*s'", n,
                                token->text);
}

static lathe_status parse_statement(jinja_parser *p, jinja_node **out)
{
    jinja_token token = {0};
    LATHE_TRY(lathe__jinja_expect(p, JINJA_T_NAME, "a tag's name after {%", &token));
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (!lathe__jinja_is_name(&token, statements[i].tag))
            continue;
        jinja_node *node = lathe__jinja_node(p, &token, statements[i].op);
        if (node == NULL)
            return LATHE_E_NOMEM;
        LATHE_TRY(statements[i].parse(p, node));
        if (node->op != JINJA_OP_IF)
            LATHE_TRY(lathe__jinja_close(p, node));
        *out = node;
        LATHE_TRY(lathe__jinja_check_unknown(p));
        return lathe__jinja_expect(p, JINJA_T_BLOCK_END, "%}", NULL);
    }
    return unknown_tag(p, &token);
}

static lathe_status add_data(jinja_parser *p, jinja_nodes *list)
{
    jinja_node *node = lathe__jinja_node(p, &p->at, JINJA_OP_DATA);
    if (node == NULL)
        return LATHE_E_NOMEM;
    node->value.type = JINJA_STRING;
    node->value.u.s = lathe__jinja_constant(&p->tpl->arena, p->at.text, p->at.n);
    if (node->value.u.s == NULL)
        return LATHE_E_NOMEM;
    lathe__jinja_add(list, node);
    return lathe__jinja_advance(p);
}

static lathe_status add_print(jinja_parser *p, jinja_nodes *list)
{
    jinja_node *node = lathe__jinja_node(p, &p->at, JINJA_OP_PRINT);
    if (node == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe__jinja_advance(p));
    LATHE_TRY(lathe__jinja_tuple(p, 1, NULL, &node->a));
    LATHE_TRY(lathe__jinja_close(p, node));
    lathe__jinja_add(list, node);
    LATHE_TRY(lathe__jinja_check_unknown(p));
    return lathe__jinja_expect(p, JINJA_T_PRINT_END, "}}", NULL);
}

/* 1 when the present token is one of the names. */
static int is_one_of(const jinja_parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (lathe__jinja_is_name(&p->at, *ends))
            return 1;
    return 0;
}

/* Statements up to a tag with a name of `ends` (the present token then), or to the end. */
static lathe_status parse_body(jinja_parser *p, const char *const *ends, jinja_node **out)
{
    jinja_nodes list = {NULL, NULL};
    while (p->at.type != JINJA_T_END) {
        jinja_node *node = NULL;
        if (p->at.type == JINJA_T_DATA) {
            LATHE_TRY(add_data(p, &list));
            continue;
        }
        if (p->at.type == JINJA_T_PRINT_BEGIN) {
            LATHE_TRY(add_print(p, &list));
            continue;
        }
        LATHE_TRY(lathe__jinja_advance(p));
        if (is_one_of(p, ends)) {
            *out = list.first;
            return LATHE_OK;
        }
        LATHE_TRY(parse_statement(p, &node));
        lathe__jinja_add(&list, node);
    }
    *out = list.first;
    if (ends == NULL)
        return LATHE_OK;
    const char *last = ends[0];
    for (int i = 0; ends[i]; i++)
        last = ends[i];
    char what[64];
    (void)snprintf(what, sizeof what, "{%% %s %%}",
                   strncmp(ends[0], "end", 3) == 0 ? ends[0] : last);
    return lathe__jinja_expected_at(p, &p->at, what);
}

/* ---- the whole template ---- */

/* A copy with LF for every line end, without the last one. */
static lathe_status copy_source(lathe_template *tpl, const char *text, int64_t n)
{
    char *to = lathe_arena_alloc(&tpl->arena, n + 1);
    if (to == NULL)
        return LATHE_E_NOMEM;
    tpl->source = to;
    for (int64_t i = 0; i < n; i++) {
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n')
            continue;
        *to++ = text[i] == '\r' ? '\n' : text[i];
    }
    tpl->n_source = to - tpl->source;
    if (tpl->n_source > 0 && to[-1] == '\n')
        tpl->n_source--;
    return LATHE_OK;
}

static lathe_status parse(lathe_template *tpl, const char *name, const char *text, int64_t n)
{
    jinja_parser p = {.tpl = tpl};
    int32_t id;
    static const char *const known[JINJA_N_KNOWN_IDS] = {"loop", "caller", "varargs", "kwargs"};
    tpl->name = lathe_arena_strdup(&tpl->arena, name);
    if (tpl->name == NULL)
        return LATHE_E_NOMEM;
    if (n > MAX_SOURCE)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: the template has %lld bytes; at most %d are supported", name,
                           (long long)n, MAX_SOURCE);
    const int64_t valid = lathe_utf8_prefix((const uint8_t *)text, n);
    if (valid < n)
        return lathe_error(LATHE_E_PARSE, "%s: byte %lld of the template is not UTF-8", name,
                           (long long)valid + 1);
    for (int i = 0; i < JINJA_N_KNOWN_IDS; i++)
        LATHE_TRY(lathe__jinja_name_id(&p, known[i], (int64_t)strlen(known[i]), &id));
    LATHE_TRY(copy_source(tpl, text, n));
    lathe__jinja_lexer_init(&p.lexer, tpl);
    LATHE_TRY(lathe__jinja_advance(&p));
    return parse_body(&p, NULL, &tpl->body);
}

lathe_status lathe_template_parse(const char *name, const char *text, int64_t bytes,
                                  lathe_template **out)
{
    lathe_template *tpl = calloc(1, sizeof *tpl);
    *out = NULL;
    if (tpl == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: a template", name);
    const lathe_status status = parse(tpl, name, text, bytes);
    if (status != LATHE_OK) {
        lathe_template_destroy(tpl);
        return status;
    }
    *out = tpl;
    return LATHE_OK;
}

void lathe_template_destroy(lathe_template *tpl)
{
    if (tpl == NULL)
        return;
    lathe_arena_fini(&tpl->arena);
    free(tpl);
}

int lathe_template_has_generation(const lathe_template *tpl)
{
    return tpl->has_generation;
}

int lathe_template_mentions(const lathe_template *tpl, const char *variable)
{
    for (int32_t i = JINJA_N_KNOWN_IDS; i < tpl->n_names; i++)
        if (strcmp(tpl->names[i], variable) == 0)
            return 1;
    return 0;
}
