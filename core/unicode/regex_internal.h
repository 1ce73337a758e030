/* The translation of an expression, shared by regex.c and regex_class.c. */
#ifndef LATHE_UNICODE_REGEX_INTERNAL_H
#define LATHE_UNICODE_REGEX_INTERNAL_H

#include <stddef.h>

#include "lathe/status.h"

enum { LATHE_REGEX_DEPTH = 64 };

typedef struct lathe_translator {
    const char *place, *pattern, *p; /* p: what is read next; the pattern holds no NUL */
    char *out;
    size_t at, capacity;
    size_t atom;                     /* where in out the last atom begins */
    size_t group[LATHE_REGEX_DEPTH]; /* where in out the open groups begin */
    int depth;
    int class_depth; /* nested classes that are open */
    int is_set;      /* the last escape in a class gave a class of its own, "[^...]" */
} lathe_translator;

/** LATHE_E_UNSUPPORTED: the first n bytes at `what` are not read. */
lathe_status lathe__regex_refuse(const lathe_translator *t, const char *what, int n);
/** Appends to the output. */
lathe_status lathe__regex_put(lathe_translator *t, const char *text, size_t n);
/** Translates the escape at p; sets is_set. */
lathe_status lathe__regex_escape(lathe_translator *t);
/** Translates the class at p, which is a "[", as an expression that matches one character. */
lathe_status lathe__regex_class(lathe_translator *t);

#endif
