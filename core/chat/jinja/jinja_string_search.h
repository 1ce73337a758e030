/* Searches for text in strings; shared by the files that implement string methods. */
#ifndef LATHE_CHAT_JINJA_STRING_SEARCH_H
#define LATHE_CHAT_JINJA_STRING_SEARCH_H

#include "chat/jinja/jinja_vm.h"

/** The character at byte `at`; its length in *len. */
int32_t lathe__jinja_char_at(const jinja_string *s, int64_t at, int32_t *len);
/** The one argument of a method, which must be a string. */
lathe_status lathe__jinja_bind_string(jinja_vm *vm, const char *name, const jinja_args *args,
                                      jinja_value *out);
/** Counts the work of lathe__jinja_search_back in the worst case. */
lathe_status lathe__jinja_charge_back(jinja_vm *vm, const jinja_string *s,
                                      const jinja_string *what);
/** Byte of the last occurrence that ends at or before `end`; -1: none. */
int64_t lathe__jinja_search_back(const jinja_string *s, const jinja_string *what, int64_t end);

/* Methods; name is the one that is called. */
lathe_status lathe__jinja_str_begins_or_ends(jinja_vm *vm, const char *name, jinja_value self,
                                             const jinja_args *args, jinja_value *out);
lathe_status lathe__jinja_str_find(jinja_vm *vm, const char *name, jinja_value self,
                                   const jinja_args *args, jinja_value *out);
lathe_status lathe__jinja_str_count(jinja_vm *vm, const char *name, jinja_value self,
                                    const jinja_args *args, jinja_value *out);
lathe_status lathe__jinja_str_replace(jinja_vm *vm, const char *name, jinja_value self,
                                      const jinja_args *args, jinja_value *out);

#endif
