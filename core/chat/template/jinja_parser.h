/* The parser: what its two files share. */
#ifndef LATHE_CHAT_JINJA_PARSER_H
#define LATHE_CHAT_JINJA_PARSER_H

#include "chat/template/jinja_lexer.h"

enum { JINJA_MAX_NESTING = 200, JINJA_MAX_HEIGHT = 400 };

typedef struct jinja_parser {
    lathe_template *tpl;
    jinja_lexer lexer;
    jinja_token at, ahead; /* the token to be read, and the one after it if has_ahead */
    int32_t has_ahead;
    int32_t nesting;
    int32_t conditional; /* inside an if: unknown filters and tests are errors of the render */
    jinja_token unknown; /* the first one outside an if so far; n = 0: none */
    const char *unknown_kind;
    int32_t n_loops; /* open loops that break and continue can leave */
    int32_t catches; /* JINJA_CATCH_* that the open macro's body uses */
} jinja_parser;

/** A list under construction. */
typedef struct jinja_nodes {
    jinja_node *first, *last;
} jinja_nodes;

void lathe__jinja_add(jinja_nodes *list, jinja_node *node);

lathe_status lathe__jinja_advance(jinja_parser *p);
/** The token after the present one. */
lathe_status lathe__jinja_look(jinja_parser *p, jinja_token *out);
/** 1 when the present token is this name. */
int lathe__jinja_is_name(const jinja_token *token, const char *name);
/** Passes a token of this type; *out (may be NULL) is that token. */
lathe_status lathe__jinja_expect(jinja_parser *p, jinja_token_type type, const char *what,
                                 jinja_token *out);
/** An error at the token: "expected WHAT, found 'x'". */
lathe_status lathe__jinja_expected_at(jinja_parser *p, const jinja_token *token, const char *what);
/** An error at the token. */
__attribute__((format(printf, 4, 5))) lathe_status lathe__jinja_fail_at(jinja_parser *p,
                                                                        const jinja_token *token,
                                                                        lathe_status code,
                                                                        const char *format, ...);
/** A node at the token; NULL: out of memory. */
jinja_node *lathe__jinja_node(jinja_parser *p, const jinja_token *token, jinja_op op);
/** Sets the node's height from its children; refuses trees that are too high. */
lathe_status lathe__jinja_close(jinja_parser *p, jinja_node *node);
/** The id of a variable's name. */
lathe_status lathe__jinja_name_id(jinja_parser *p, const char *text, int64_t n, int32_t *out);

/** An expression; with_if = 0 leaves an `if` after it alone. */
lathe_status lathe__jinja_expression(jinja_parser *p, int with_if, jinja_node **out);
/** Expressions with commas between them: a tuple, or the one expression. `end`: a name that ends
 * it, or NULL. */
lathe_status lathe__jinja_tuple(jinja_parser *p, int with_if, const char *end, jinja_node **out);
/** Parses the target of an assignment: a name, a tuple of them, or namespace.attribute. */
lathe_status lathe__jinja_target(jinja_parser *p, const char *end, jinja_node **out);
/** Filters: "| a | b(c)" on input (NULL in a block); inline: the first without its bar. */
lathe_status lathe__jinja_filters(jinja_parser *p, jinja_node *input, int is_inline,
                                  jinja_node **out);

/** A name, literal, list, mapping or parentheses; as_target: a name may be namespace.attribute. */
lathe_status lathe__jinja_primary(jinja_parser *p, int as_target, jinja_node **out);
/** Members and calls after *node. */
lathe_status lathe__jinja_postfix(jinja_parser *p, jinja_node **node);
/** Filters, tests and calls after *node. */
lathe_status lathe__jinja_filters_and_tests(jinja_parser *p, jinja_node **node);
/** A closed node with two children. */
lathe_status lathe__jinja_pair(jinja_parser *p, const jinja_token *token, jinja_op op,
                               jinja_node *a, jinja_node *b, jinja_node **out);

/** Refuses the unknown filter or test that was found outside an if. */
lathe_status lathe__jinja_check_unknown(jinja_parser *p);

#endif
