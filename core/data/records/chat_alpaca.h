/* Reads records of LLaMA-Factory's alpaca form as conversations, for chat templates. */
#ifndef LATHE_DATA_CHAT_ALPACA_H
#define LATHE_DATA_CHAT_ALPACA_H

#include <jansson.h>

#include "data/records/record_reader.h"
#include "lathe/status.h"

/** Changes a row with "instruction" in place. The conversation begins with the text "system" and
 *  the list "history" of [question, answer], if the row has them. Its question is the instruction,
 *  a line end and the text "input"; one that is empty, null or missing is left out.
 *
 *   as_messages 1: the conversation, with "output" as the answer, becomes the list "messages".
 *   0: "instruction" becomes the conversation up to the question, and "output", "chosen" and
 *      "rejected", as far as the row has them, lists of one answer.
 *
 *  uses: gets the fields that are read; NULL: not wanted.
 *  LATHE_E_CONFIG: one of these has another type. The caller gives errors their place. */
lathe_status lathe_chat_alpaca_read(int as_messages, json_t *row, lathe_record_uses *uses);

#endif
