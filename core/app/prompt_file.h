/* A file of prompts, one JSON value a line, read one after the other. */
#ifndef LATHE_APP_PROMPT_FILE_H
#define LATHE_APP_PROMPT_FILE_H

#include <stdio.h>

#include "app/chat_prompt.h"
#include "lathe/lathe.h"

/** One line: {"prompt": "text"}, {"prompt": [messages]}, {"messages": [...]}, {"ids": [1, 2]} or a
 *  text alone. Other keys are allowed. */
typedef struct lathe_prompt_file {
    const char *path;
    lathe_run *run; /* has the chat template for messages; NULL: no line is read */
    FILE *file;
    int64_t line; /* of the last prompt, from 1 */
    char *text;   /* of the last line */
    size_t room;
    char *prompt;           /* the text of the prompt; NULL: ids */
    lathe_ids ids;          /* of a prompt of ids or messages */
    lathe_encoder *encoder; /* for messages; NULL: no line had any yet */
    json_t *id;             /* the value of "id" of the last line; NULL: it has none */
} lathe_prompt_file;

/** On an error nothing is open. LATHE_E_IO: the file cannot be read; LATHE_E_CONFIG: it is not a
 *  regular file, or it is a binary one. */
lathe_status lathe_prompt_file_open(const char *path, lathe_run *run, lathe_prompt_file *out);
/** Goes back to the first prompt. */
lathe_status lathe_prompt_file_rewind(lathe_prompt_file *f);
/** Skips n prompts without looking into them. */
lathe_status lathe_prompt_file_skip(lathe_prompt_file *f, int64_t n);
/** Reads the next prompt, past empty lines. *out_more 0: the file has ended. Errors begin with
 *  file:line. */
lathe_status lathe_prompt_file_next(lathe_prompt_file *f, int32_t *out_more);
void lathe_prompt_file_close(lathe_prompt_file *f);

#endif
