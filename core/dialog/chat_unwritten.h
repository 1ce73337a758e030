/* Parts of a conversation that its chat template does not write: calls of tools, tools, and
 * documents. */
#ifndef LATHE_DIALOG_CHAT_UNWRITTEN_H
#define LATHE_DIALOG_CHAT_UNWRITTEN_H

#include "template/chat_template.h"

typedef struct lathe_chat_unwritten {
    int32_t calls;        /* 1: the text is the same without the calls of tools */
    int32_t tools;        /* 1: the text is the same without the list of tools */
    int32_t documents;    /* 1: the text is the same without the documents */
    int32_t empty_answer; /* 1: calls, and a learnt answer has such calls and no content */
} lathe_chat_unwritten;

/** Renders a conversation without its calls (tool_calls, function_call), without its tools and
 *  without its documents, if it has them, and compares with the text that was rendered. Sets the
 * members of *out that are found; the others stay as they were.
 *
 *  text           the rendered conversation
 *  first_learnt   the first message that may be learnt
 *  Errors         LATHE_E_NOMEM. A conversation that cannot be rendered without them needs them. */
lathe_status lathe_chat_find_unwritten(const lathe_chat_template *chat, const lathe_chat *what,
                                       const lathe_rendering *text, size_t first_learnt,
                                       lathe_chat_unwritten *out);

#endif
