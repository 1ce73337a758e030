/* Where an answer ends: the token that a chat template, or the renderer that serves it, writes
 * after the text of an answer. What trains, generates or saves a model asks here. */
#ifndef LATHE_DATA_ANSWER_END_H
#define LATHE_DATA_ANSWER_END_H

#include "tokenizer/encode/tokenizer.h"

struct lathe_chat_template;

typedef struct lathe_answer_end {
    int32_t is_known;  /* 0: the template was not asked, or cannot write a plain answer */
    int32_t id;        /* the first added token after the text of an answer; -1: none */
    int32_t is_learnt; /* 1: training learns it; 0: the template's marks leave it out */
    char text[96];     /* what is written after the text of the answer, its beginning; with
                        * control characters as spaces */
} lathe_answer_end;

/** Renders a question with an answer, and looks at what follows the answer's text. A template that
 *  refuses a plain conversation is not known (is_known 0). Errors: LATHE_E_NOMEM. */
lathe_status lathe_answer_end_find(const struct lathe_chat_template *chat,
                                   const lathe_tokenizer *tok, lathe_answer_end *out);

#endif
