/* The tree of a parsed template. Lists of nodes are linked by `next`. */
#ifndef LATHE_CHAT_JINJA_AST_H
#define LATHE_CHAT_JINJA_AST_H

#include "base/arena.h"
#include "chat/jinja/jinja_vm.h"
#include "chat/template/template.h"

typedef enum jinja_op {
    /* expressions */
    JINJA_OP_CONST,   /* value */
    JINJA_OP_NAME,    /* id */
    JINJA_OP_LIST,    /* a: items */
    JINJA_OP_TUPLE,   /* a: items; also a target of assignments */
    JINJA_OP_DICT,    /* a: list of PAIR */
    JINJA_OP_PAIR,    /* a: key, b: value */
    JINJA_OP_NEG,     /* a */
    JINJA_OP_POS,     /* a */
    JINJA_OP_NOT,     /* a */
    JINJA_OP_AND,     /* a, b */
    JINJA_OP_OR,      /* a, b */
    JINJA_OP_MATH,    /* a, b; sub: JINJA_ADD to JINJA_POW */
    JINJA_OP_CONCAT,  /* a: items */
    JINJA_OP_COMPARE, /* a: first, b: list of OPERAND */
    JINJA_OP_OPERAND, /* a; sub: JINJA_CMP_* */
    JINJA_OP_COND,    /* a: test, b: then, c: else or NULL */
    JINJA_OP_GETATTR, /* a; text */
    JINJA_OP_GETITEM, /* a, b */
    JINJA_OP_SLICE,   /* a; b, c, d: start, stop, step, or NULL */
    JINJA_OP_CALL,    /* a: callee, b: list of ARG */
    JINJA_OP_ARG,     /* a: value; sub: JINJA_ARG_*, text: keyword */
    JINJA_OP_FILTER,  /* a: input, NULL in a block; text, b: list of ARG */
    JINJA_OP_TEST,    /* a; text, b: list of ARG */
    JINJA_OP_NSREF,   /* id, text: a target of assignments */
    /* statements */
    JINJA_OP_DATA,         /* value */
    JINJA_OP_PRINT,        /* a */
    JINJA_OP_IF,           /* a: test, b: body, c: else, d: the elif that comes next */
    JINJA_OP_FOR,          /* a: target, b: items, c: test or NULL, d: body, e: else */
    JINJA_OP_SET,          /* a: target, b: value */
    JINJA_OP_SET_BLOCK,    /* a: target, b: FILTER or NULL, d: body */
    JINJA_OP_MACRO,        /* id; a: list of PARAM, d: body; sub: JINJA_CATCH_* */
    JINJA_OP_PARAM,        /* id; a: default or NULL */
    JINJA_OP_CALL_BLOCK,   /* a: CALL, b: the MACRO that `caller` calls */
    JINJA_OP_FILTER_BLOCK, /* b: FILTER, d: body */
    JINJA_OP_WITH,         /* a: list of SET, d: body */
    JINJA_OP_GENERATION,   /* d: body */
    JINJA_OP_BREAK,
    JINJA_OP_CONTINUE
} jinja_op;

enum { JINJA_ARG_PLAIN, JINJA_ARG_KEYWORD, JINJA_ARG_STAR, JINJA_ARG_STAR_STAR };
enum { JINJA_CATCH_ARGS = 1, JINJA_CATCH_KEYWORDS = 2, JINJA_CATCH_CALLER = 4 };

typedef struct jinja_node {
    uint8_t op, sub;
    int32_t height; /* 1 + that of the highest child */
    jinja_place place;
    int32_t id; /* of a variable's name */
    const char *text;
    struct jinja_node *a, *b, *c, *d, *e, *next;
    jinja_value value;
} jinja_node;

/* Names with ids that are known beforehand. */
enum { JINJA_ID_LOOP, JINJA_ID_CALLER, JINJA_ID_VARARGS, JINJA_ID_KWARGS, JINJA_N_KNOWN_IDS };

struct lathe_template {
    lathe_arena arena; /* of everything below */
    const char *name;
    const char *source; /* with LF line ends, without the last one */
    int64_t n_source;
    const char **names; /* of variables, by id */
    int32_t n_names, names_capacity;
    int32_t has_generation;
    jinja_node *body;
};

#endif
