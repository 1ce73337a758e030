/* Formats: texts that are made of several fields of a record, such as "Question: {question}". */
#ifndef LATHE_DATA_FORMAT_H
#define LATHE_DATA_FORMAT_H

#include "base/arena.h"
#include "lathe/status.h"

/** A part of a format: a text, then the value of a field. */
typedef struct lathe_format_part {
    const char *text;
    int64_t n;          /* bytes of the text */
    const char *name;   /* of the field; NULL: the text alone */
    int32_t field;      /* set by the user of the format: number of the field */
    int32_t may_be_out; /* 1: if the record has no such field, or it is null or empty, the part is
                         * left out; at the beginning of what is made, only its text is */
} lathe_format_part;

typedef struct lathe_format {
    lathe_format_part *parts;
    int32_t n, reserved; /* number of parts; 0: there is no format */
} lathe_format;

/** Parses a format: {NAME} is the field NAME, {{ and }} are braces. The parts are in the arena.
 *  LATHE_E_CONFIG: `where` and the character (from 1) of a brace that is wrong. */
lathe_status lathe_format_parse(const char *where, const char *text, lathe_arena *arena,
                                lathe_format *out);

/** 1 if the format is one field and nothing else. */
int lathe_format_is_field(const lathe_format *format);

#endif
