/* A conversation as the tokens that an answer follows, for every command that answers one. */
#ifndef LATHE_DATA_ANSWER_PROMPT_H
#define LATHE_DATA_ANSWER_PROMPT_H

#include "chat/template/chat_template.h"
#include "tokenizer/encode/tokenizer.h"

/** Renders a conversation up to where the answer begins, and writes its tokens to `out` (what it
 *  held before is lost). If the last message is the assistant's and its content is a string, the
 *  tokens end with that text, which the model continues (continue_final_message of transformers).
 *
 *  The text is encoded as in training (lathe_chat_encode_text): where a renderer rendered it, names
 *  of special tokens in the messages are text, and no tokens are put around the text.
 *
 *  Errors  LATHE_E_CONFIG: the template changes the text to continue, or writes nothing; also those
 *          of lathe_chat_render. */
lathe_status lathe_chat_answer_prompt(const lathe_chat_template *chat, const lathe_chat *what,
                                      lathe_encoder *encoder, lathe_ids *out);

/** The length of the text of a conversation that the model continues: where the begun answer ends,
 *  its last message, or all of the text if the conversation ends with another message.
 *
 *  text    the rendering of *what without a generation prompt, if it ends with a begun answer
 *  Errors  LATHE_E_CONFIG: the template changes the begun answer. */
lathe_status lathe_chat_answer_end(const lathe_chat *what, const lathe_rendering *text,
                                   int64_t *out);
/** 1 if the last message is the assistant's and its content is a string. */
int lathe_chat_answer_begun(const json_t *messages);

#endif
