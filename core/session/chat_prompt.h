/* Reads conversations and renders them as prompts. */
#ifndef LATHE_SESSION_CHAT_PROMPT_H
#define LATHE_SESSION_CHAT_PROMPT_H

#include <jansson.h>

#include "chat/template/chat_template.h"
#include "lathe/lathe.h"
#include "tokenizer/encode/tokenizer.h"

/** Reads the conversation text[0, n), which messages call `name`: an object with "messages", and
 * with "tools", "documents" and "chat_template_kwargs" if the template needs them, or the list of
 *  messages itself. *out: the object; free it with json_decref. LATHE_E_CONFIG: an unknown key, or
 *  "messages" is missing, is not a list or is empty; also: not JSON. */
lathe_status lathe_session_chat_parse(const char *name, const char *text, int64_t n, json_t **out);

/** Gives the run's chat template: that of data.chat_template, else that of the tokenizer's or the
 *  model's folder, with the variables of data.chat_template_kwargs. Borrowed from the run.
 *  LATHE_E_CONFIG: there is none, or that of the folder has an error. place: where the conversation
 *  is, for the message: a file, or file:line. */
lathe_status lathe_session_template(lathe_run *run, const char *place,
                                    const lathe_chat_template **out);

/** The tokens of the conversation `row` up to where the answer begins
 * (data/conversation/answer_prompt.h). place: for messages; "": the caller gives errors their
 * place. */
lathe_status lathe_session_chat_prompt(const lathe_chat_template *chat, const char *place,
                                       json_t *row, lathe_encoder *encoder, lathe_ids *out);

#endif
