/* A file of prompts, one JSON value a line, read one after the other. */
#ifndef LATHE_CMD_PROMPT_FILE_H
#define LATHE_CMD_PROMPT_FILE_H

#include <jansson.h>
#include <stdio.h>

#include "lathe/session.h"
#include "run/parts/named_adapters.h"
#include "tokenizer/encode/tokenizer.h"

/** One line: {"prompt": "text"}, {"prompt": [messages]}, {"messages": [...]}, {"ids": [1, 2]} or a
 *  text alone. "adapter" names one of the run's adapters; a text "system" stands before messages.
 *  Keys that nothing reads are named once. */
typedef struct lathe_prompt_file {
    const char *path;
    lathe_session *session;            /* renders messages; NULL: no line is read */
    const lathe_named_adapters *named; /* of its run; NULL: none */
    FILE *file;
    int64_t line; /* of the last prompt, from 1 */
    char *text;   /* of the last line */
    size_t room;
    char *prompt;          /* the text of the prompt; NULL: ids */
    lathe_ids ids;         /* of a prompt of ids or messages */
    json_t *id;            /* the value of "id" of the last line; NULL: it has none */
    int32_t adapter;       /* of the last line; -1: the base, or the run has no named adapters */
    int32_t usual_adapter; /* of lines that name none */
    int32_t has_warned;    /* of an adapter's name that has no effect */
    int32_t has_noted;     /* keys that nothing reads */
    int64_t start, end;    /* where the last line begins, and where it ends, in bytes */
} lathe_prompt_file;

/** On an error nothing is open. LATHE_E_IO: the file cannot be read; LATHE_E_CONFIG: it is not a
 *  regular file, or it is a binary one. */
lathe_status lathe_prompt_file_open(const char *path, lathe_session *session,
                                    lathe_prompt_file *out);
/** Goes back to the first prompt. */
lathe_status lathe_prompt_file_rewind(lathe_prompt_file *f);
/** Goes back to a line by the byte at which it begins and its number; it is read next. */
lathe_status lathe_prompt_file_seek(lathe_prompt_file *f, int64_t start, int64_t line);
/** Skips n prompts without looking into them. */
lathe_status lathe_prompt_file_skip(lathe_prompt_file *f, int64_t n);
/** Reads the next prompt, past empty lines. *out_more 0: the file has ended. Errors begin with
 *  file:line. */
lathe_status lathe_prompt_file_next(lathe_prompt_file *f, int32_t *out_more);
void lathe_prompt_file_close(lathe_prompt_file *f);

#endif
