/* The prompt and the list of answers of a record, for rows of groups. */
#ifndef LATHE_DATA_ANSWER_LIST_H
#define LATHE_DATA_ANSWER_LIST_H

#include <jansson.h>

#include "data/records/record_reader.h"

typedef struct lathe_answer_list {
    json_t *row;         /* the record; owned */
    const char *prompt;  /* NULL: it is missing, or no text */
    int64_t n_prompt;    /* bytes */
    const json_t *items; /* the answers; borrowed from row */
    int32_t are_texts;   /* 1: all of them are texts, and so is the prompt, if there is one */
} lathe_answer_list;

/** Reads them, and notes the fields as read. Call fini also after an error.
 *  LATHE_E_CONFIG with file:line: the column is no list, or has another number of answers than
 *  `n`, or an answer is neither a text nor messages. */
lathe_status lathe_answer_list_read(const lathe_reader *reader, lathe_fields *fields, int32_t n,
                                    lathe_answer_list *out);
void lathe_answer_list_fini(lathe_answer_list *list);

#endif
