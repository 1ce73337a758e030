/* Parts of a conversation that its chat template does not write: calls of tools, tools, documents,
 * and keys of messages. */
#ifndef LATHE_DATA_CHAT_UNWRITTEN_H
#define LATHE_DATA_CHAT_UNWRITTEN_H

#include "chat/template/chat_template.h"

enum { LATHE_UNWRITTEN_KEYS = 8, LATHE_UNWRITTEN_KEY_BYTES = 37 };

typedef struct lathe_chat_unwritten {
    int32_t calls;        /* 1: the text is the same without the calls of tools */
    int32_t tools;        /* 1: the text is the same without the list of tools */
    int32_t documents;    /* 1: the text is the same without the documents */
    int32_t empty_answer; /* 1: calls, and a learnt answer has such calls and no content */
    int32_t n_keys;
    /* Keys of messages that neither Lathe nor the template reads; cut if they are longer. */
    char keys[LATHE_UNWRITTEN_KEYS][LATHE_UNWRITTEN_KEY_BYTES];
} lathe_chat_unwritten;

/** Finds the keys of messages that nothing reads, such as "metadata": they hold something, are
 * neither of the layout (role, content, calls) nor marks of what is learnt, the template's text
 * does not name them, and the conversation gives the same text without them. text NULL: renders it
 * first. Errors: LATHE_E_NOMEM. */
lathe_status lathe_chat_find_unread_keys(const lathe_chat_template *chat, const lathe_chat *what,
                                         const lathe_rendering *text, lathe_chat_unwritten *out);

/** Renders a conversation without its calls (tool_calls, function_call), without its tools and
 *  without its documents, if it has them, and compares with the text that was rendered; finds
 *  the keys of messages that nothing reads, too. Sets the members of *out that are found; the
 * others stay as they were.
 *
 *  text           the rendered conversation
 *  first_learnt   the first message that may be learnt
 *  Errors         LATHE_E_NOMEM. A conversation that cannot be rendered without them needs them. */
lathe_status lathe_chat_find_unwritten(const lathe_chat_template *chat, const lathe_chat *what,
                                       const lathe_rendering *text, size_t first_learnt,
                                       lathe_chat_unwritten *out);

#endif
