/* Records whose prompt and completions are lists of messages: their tokens through the chat
 * template. */
#ifndef LATHE_DATA_CHAT_LISTS_H
#define LATHE_DATA_CHAT_LISTS_H

#include "data/conversation/chat_unwritten.h"
#include "data/records/record_reader.h"
#include "tokenizer/encode/tokenizer.h"

/** Facts of a record beside its tokens. */
typedef struct lathe_chat_lists_facts {
    lathe_chat_unwritten unwritten;
    int32_t prompts_differ; /* 1: a pair of two different prompts; there are no tokens */
    /* 1: the prompt ends with a message of the assistant: begun where the prompt is alone, else a
     * turn of its own before the completion */
    int32_t is_begun;
    int32_t has_marks; /* 1: a message is marked not to be learnt, which has no effect in lists */
} lathe_chat_lists_facts;

/** Tokenises the prompt of a record, and the prompt with each of n_full completions: 0 (prompts
 *  alone), 1 (completion), 2 (chosen and rejected), or the answers of a group. The prompt is
 * rendered with the generation prompt, as TRL's trainers do, and no special tokens are added to
 * what the template writes.
 *
 *  The prompt of completions is the column prompt, or else a conversation ("messages",
 *  "conversations") that no column is read from. Completions that begin with it are whole
 *  conversations, from which it is taken off. A text beside a list is the assistant's message.
 *  Without either, or with a prompt that is a text, chosen and rejected are whole conversations:
 *  their prompt is their common beginning, at most up to the last message of the shorter list
 *  (TRL's extract_prompt). A text "system" stands before the messages, unless they have one.
 *
 *  A prompt alone may be a list of token ids, a list of messages, whose last message is continued
 *  if it is the assistant's (TRL's continue_final_message), or a conversation, whose last answers
 *  are left out.
 *
 *  fields  the record's fields; is_chat is LISTS, or CHAT for a prompt alone. `uses` gets the
 *          columns that are read
 *  bytes   [1 + n_full] of the rendered prompt, and of what each completion adds
 *  facts   what the template does not write, and whether chosen and rejected have different
 *          prompts: the first message in which they differ is of the user or the system in
 *          one of them
 *  Errors  LATHE_E_CONFIG with file:line: no template, a column that is no list, a pair without a
 *          message of the user, a message that the template cannot use. */
lathe_status lathe_chat_encode_lists(const lathe_reader *reader, lathe_fields *fields,
                                     int32_t n_full, lathe_encoder *encoder, int64_t vocab_size,
                                     lathe_ids *prompt, lathe_ids *full, int64_t *bytes,
                                     lathe_chat_lists_facts *facts);

#endif
