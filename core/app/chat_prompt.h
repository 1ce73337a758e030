/* Prompts of conversations, for lathe generate. */
#ifndef LATHE_APP_CHAT_PROMPT_H
#define LATHE_APP_CHAT_PROMPT_H

#include <jansson.h>

#include "template/chat_template.h"

/** Reads the conversation of `file` (- : standard input): an object with "messages", and with
 *  "tools", "documents" and "chat_template_kwargs" if the template needs them, or the list of
 *  messages itself. *out: the object; free it with json_decref. LATHE_E_CONFIG: another key, or no
 *  message. */
lathe_status lathe_app_chat_load(const char *file, json_t **out);

/** Loads the chat template of the first of the folders (NULL: none) that has one.
 * LATHE_E_NOT_FOUND: none has. */
lathe_status lathe_app_chat_template(const char *const folders[2], lathe_chat_template **out);

/** Renders a conversation up to where the answer begins. If its last message is the assistant's,
 * the prompt ends with that message's text, which is to be continued, as continue_final_message of
 *  transformers does. *out: malloc'ed. place: file and line, for messages. */
lathe_status lathe_app_chat_prompt(const lathe_chat_template *chat, const char *place, json_t *row,
                                   char **out);

#endif
