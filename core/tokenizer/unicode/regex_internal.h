/* The state of translating an expression, shared by regex.c and regex_class.c. */
#ifndef LATHE_TOKENIZER_REGEX_INTERNAL_H
#define LATHE_TOKENIZER_REGEX_INTERNAL_H

#include <stddef.h>

#include "lathe/status.h"

enum { LATHE_REGEX_DEPTH = 64 };

typedef struct lathe_translator {
    const char *place, *pattern, *p; /* p: next character to read; the pattern has no NUL */
    char *out;
    size_t at, capacity;
    size_t atom;                     /* offset in `out` at which the last atom begins */
    size_t group[LATHE_REGEX_DEPTH]; /* offsets in `out` at which the open groups begin */
    int depth;
    int class_depth; /* nested classes that are open */
    int is_set; /* 1: the last escape in a class was translated to a class by itself, "[^...]" */
} lathe_translator;

/** LATHE_E_UNSUPPORTED: says that the n bytes at `what` are not supported. */
lathe_status lathe__regex_refuse(const lathe_translator *t, const char *what, int n);
/** Appends to the output. */
lathe_status lathe__regex_put(lathe_translator *t, const char *text, size_t n);
/** Translates the escape at p; sets is_set. */
lathe_status lathe__regex_escape(lathe_translator *t);
/** Translates the class at p, which is a "[", to an expression that matches one character. */
lathe_status lathe__regex_class(lathe_translator *t);

#endif
