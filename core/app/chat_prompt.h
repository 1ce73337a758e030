/* The prompt of a conversation, for lathe generate. */
#ifndef LATHE_APP_CHAT_PROMPT_H
#define LATHE_APP_CHAT_PROMPT_H

#include "lathe/status.h"

/** Reads the conversation of `file` (- : standard input), an object with "messages" or the list of
 *  messages itself, and renders it with the chat template of the first of the folders that has one,
 * up to where the answer begins. *out: malloc'ed. Errors  LATHE_E_NOT_FOUND: no folder (NULL: none
 * is given) has a template; those of lathe_chat_render. */
lathe_status lathe_app_chat_prompt(const char *file, const char *const folders[2], char **out);

#endif
