/* Loads conversations and renders them as prompts, for lathe generate and lathe chat. */
#ifndef LATHE_APP_CHAT_PROMPT_H
#define LATHE_APP_CHAT_PROMPT_H

#include <jansson.h>

#include "lathe/lathe.h"
#include "template/chat_template.h"
#include "text/tokenizer.h"

/** Reads the conversation of `file` (- : standard input): an object with "messages", and with
 *  "tools", "documents" and "chat_template_kwargs" if the template needs them, or the list of
 *  messages itself. *out: the object; free it with json_decref. LATHE_E_CONFIG: an unknown key, or
 *  "messages" is missing, is not a list or is empty; also the errors of reading the file. */
lathe_status lathe_app_chat_load(const char *file, json_t **out);

/** Gives the run's chat template: that of data.chat_template, else that of the tokenizer's or the
 *  model's folder, with the variables of data.chat_template_kwargs. Borrowed from the run.
 *  LATHE_E_CONFIG: there is none, or that of the folder has an error. place: where the conversation
 *  is, for the message: a file, or file:line. */
lathe_status lathe_app_chat_template(lathe_run *run, const char *place,
                                     const lathe_chat_template **out);

/** The tokens of the conversation `row` up to where the answer begins (dialog/answer_prompt.h).
 *  place: file and line, for messages. */
lathe_status lathe_app_chat_prompt(const lathe_chat_template *chat, const char *place, json_t *row,
                                   lathe_encoder *encoder, lathe_ids *out);

#endif
