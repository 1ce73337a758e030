/* Messages as other programs write them, in the form that chat templates read. */
#ifndef LATHE_DATA_CHAT_MESSAGES_H
#define LATHE_DATA_CHAT_MESSAGES_H

#include <jansson.h>

#include "lathe/status.h"

/** Changes the list of messages in place from sharegpt's form to {"role", "content"}: "from" is the
 *  role (human: user, gpt: assistant, observation: tool, function_call: a call of the assistant)
 * and "value" the content. Other messages stay as they are.
 *  LATHE_E_CONFIG: "from" is missing or unknown, or a function_call is no JSON of calls. */
lathe_status lathe_chat_messages_read(json_t *messages);

#endif
