/* Tokens read ahead, nodes, and the names of variables, for the parser. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "chat/template/jinja_parser.h"

enum { MAX_NAMES = 2048 };

void lathe__jinja_add(jinja_nodes *list, jinja_node *node)
{
    if (list->last)
        list->last->next = node;
    else
        list->first = node;
    list->last = node;
}

lathe_status lathe__jinja_advance(jinja_parser *p)
{
    if (p->has_ahead) {
        p->at = p->ahead;
        p->has_ahead = 0;
        return LATHE_OK;
    }
    return lathe__jinja_next(&p->lexer, &p->at);
}

lathe_status lathe__jinja_look(jinja_parser *p, jinja_token *out)
{
    if (!p->has_ahead)
        LATHE_TRY(lathe__jinja_next(&p->lexer, &p->ahead));
    p->has_ahead = 1;
    *out = p->ahead;
    return LATHE_OK;
}

int lathe__jinja_is_name(const jinja_token *token, const char *name)
{
    const size_t n = strlen(name);
    return token->type == JINJA_T_NAME && token->n == (int64_t)n &&
           memcmp(token->text, name, n) == 0;
}

lathe_status lathe__jinja_fail_at(jinja_parser *p, const jinja_token *token, lathe_status code,
                                  const char *format, ...)
{
    char text[500];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lathe__jinja_error(p->tpl, code, token->line, token->column, "%s", text);
}

lathe_status lathe__jinja_expected_at(jinja_parser *p, const jinja_token *token, const char *what)
{
    const int is_close = token->type == JINJA_T_PRINT_END || token->type == JINJA_T_BLOCK_END;
    const int n = is_close ? 2 : token->n > 30 ? 30 : (int)token->n;
    if (token->type == JINJA_T_END)
        return lathe__jinja_error(p->tpl, LATHE_E_PARSE, token->line, token->column,
                                  "expected %s, found the end of the template", what);
    return lathe__jinja_error(p->tpl, LATHE_E_PARSE, token->line, token->column,
                              "expected %s, found '%.*s'", what, n, token->text);
}

lathe_status lathe__jinja_expect(jinja_parser *p, jinja_token_type type, const char *what,
                                 jinja_token *out)
{
    if (out)
        *out = p->at;
    if (p->at.type != type)
        return lathe__jinja_expected_at(p, &p->at, what);
    return lathe__jinja_advance(p);
}

jinja_node *lathe__jinja_node(jinja_parser *p, const jinja_token *token, jinja_op op)
{
    jinja_node *node = lathe_arena_alloc(&p->tpl->arena, (int64_t)sizeof *node);
    if (node == NULL)
        return NULL;
    node->op = (uint8_t)op;
    node->height = 1;
    node->place.line = token->line;
    node->place.column = token->column;
    return node;
}

lathe_status lathe__jinja_close(jinja_parser *p, jinja_node *node)
{
    const jinja_node *children[] = {node->a, node->b, node->c, node->d, node->e};
    for (size_t i = 0; i < sizeof children / sizeof children[0]; i++)
        for (const jinja_node *child = children[i]; child; child = child->next)
            if (child->height >= node->height)
                node->height = child->height + 1;
    if (node->height <= JINJA_MAX_HEIGHT)
        return LATHE_OK;
    return lathe__jinja_error(p->tpl, LATHE_E_UNSUPPORTED, node->place.line, node->place.column,
                              "an expression of more than %d operators in a row or in each other",
                              JINJA_MAX_HEIGHT);
}

lathe_status lathe__jinja_name_id(jinja_parser *p, const char *text, int64_t n, int32_t *out)
{
    lathe_template *tpl = p->tpl;
    for (int32_t i = 0; i < tpl->n_names; i++)
        if (strncmp(tpl->names[i], text, (size_t)n) == 0 && tpl->names[i][n] == 0) {
            *out = i;
            return LATHE_OK;
        }
    if (tpl->n_names == MAX_NAMES)
        return lathe__jinja_fail_at(p, &p->at, LATHE_E_UNSUPPORTED,
                                    "more than %d names of variables", MAX_NAMES);
    if (tpl->n_names == tpl->names_capacity) {
        const int32_t capacity = tpl->names_capacity ? 2 * tpl->names_capacity : 64;
        const char **names = lathe_arena_alloc(&tpl->arena, capacity * (int64_t)sizeof *names);
        if (names == NULL)
            return LATHE_E_NOMEM;
        if (tpl->n_names)
            memcpy(names, tpl->names, (size_t)tpl->n_names * sizeof *names);
        tpl->names = names;
        tpl->names_capacity = capacity;
    }
    char *copy = lathe_arena_strndup(&tpl->arena, text, n);
    if (copy == NULL)
        return LATHE_E_NOMEM;
    *out = tpl->n_names;
    tpl->names[tpl->n_names++] = copy;
    return LATHE_OK;
}
