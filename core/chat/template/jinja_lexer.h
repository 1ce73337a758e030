/* The tokens of a template. */
#ifndef LATHE_CHAT_JINJA_LEXER_H
#define LATHE_CHAT_JINJA_LEXER_H

#include "chat/template/jinja_ast.h"

typedef enum jinja_token_type {
    JINJA_T_END,
    JINJA_T_DATA,
    JINJA_T_PRINT_BEGIN, /* {{ */
    JINJA_T_PRINT_END,
    JINJA_T_BLOCK_BEGIN, /* {% */
    JINJA_T_BLOCK_END,
    JINJA_T_NAME,
    JINJA_T_STRING,
    JINJA_T_INT,
    JINJA_T_FLOAT,
    JINJA_T_ADD,
    JINJA_T_SUB,
    JINJA_T_MUL,
    JINJA_T_DIV,
    JINJA_T_FLOORDIV,
    JINJA_T_MOD,
    JINJA_T_POW,
    JINJA_T_TILDE,
    JINJA_T_LBRACKET,
    JINJA_T_RBRACKET,
    JINJA_T_LPAREN,
    JINJA_T_RPAREN,
    JINJA_T_LBRACE,
    JINJA_T_RBRACE,
    JINJA_T_EQ,
    JINJA_T_NE,
    JINJA_T_LT,
    JINJA_T_LE,
    JINJA_T_GT,
    JINJA_T_GE,
    JINJA_T_ASSIGN,
    JINJA_T_DOT,
    JINJA_T_COLON,
    JINJA_T_PIPE,
    JINJA_T_COMMA,
    JINJA_T_SEMICOLON
} jinja_token_type;

typedef struct jinja_token {
    uint8_t type;
    int32_t line, column; /* from 1; columns in characters */
    const char *text;     /* in the source, or in the arena for a string without its escapes */
    int64_t n;
    int64_t whole;
    double real;
} jinja_token;

typedef struct jinja_lexer {
    lathe_template *tpl; /* borrowed: source, arena, name */
    const char *p, *end;
    const char *place; /* that line and column belong to */
    int32_t line, column;
    int32_t trim;                   /* the last tag ended with "-": blanks are passed */
    const char *line_starts_before; /* data that begins here begins a line */
    char balance[256];              /* open brackets of the tag */
    int32_t n_balance;
    int32_t in_tag; /* 0, JINJA_T_PRINT_BEGIN or JINJA_T_BLOCK_BEGIN */
} jinja_lexer;

void lathe__jinja_lexer_init(jinja_lexer *lexer, lathe_template *tpl);
/** The next token; JINJA_T_END at the end, again and again. */
lathe_status lathe__jinja_next(jinja_lexer *lexer, jinja_token *out);

/** An error at a place of the template; returns `code`. */
__attribute__((format(printf, 5, 6))) lathe_status lathe__jinja_error(const lathe_template *tpl,
                                                                      lathe_status code,
                                                                      int32_t line, int32_t column,
                                                                      const char *format, ...);

#endif
