/* A conversation of a dataset as token ids: which of them are learnt. */
#ifndef LATHE_DATA_CHAT_RECORD_H
#define LATHE_DATA_CHAT_RECORD_H

#include <jansson.h>

#include "chat/template/template.h"
#include "data/conversation/chat_unwritten.h"
#include "data/records/dataset.h"
#include "data/records/record_reader.h"
#include "tokenizer/encode/tokenizer.h"

/** A conversation's tokens; all zeros is empty. Reused from one record to the next. */
typedef struct lathe_chat_tokens {
    lathe_ids ids;
    uint8_t *learnt; /* [ids.n] 1: the token is a target */
    int64_t capacity;
    int64_t text_bytes, n_learnt;
    int64_t n_answers;     /* messages of the assistant */
    int64_t n_muted;       /* those of them that are marked not to be learnt */
    int64_t n_others;      /* messages of other roles that are marked to be learnt */
    char unusual_role[32]; /* the first role that is not usual; "": all are */
    lathe_chat_unwritten unwritten;
    /* scratch */
    lathe_ids prefix;
    int64_t *ends;
    int64_t ends_capacity;
} lathe_chat_tokens;

void lathe_chat_tokens_fini(lathe_chat_tokens *tokens);

/** Encodes a rendered conversation. Where a renderer rendered it, only its special tokens become
 *  special tokens, and their names in the messages are text. */
lathe_status lathe_chat_encode_text(lathe_encoder *enc, const lathe_rendering *text, int64_t bytes,
                                    lathe_ids *out);

/** Encodes a rendered conversation, and finds the tokens of its spans: they are learnt. Sets ids,
 *  learnt and n_learnt of *out. Errors: those of the encoder, LATHE_E_NOMEM. */
lathe_status lathe_chat_encode_rendering(const lathe_tokenizer *tok, lathe_encoder *enc,
                                         const lathe_rendering *text, lathe_chat_tokens *out);

/** The field of a record's conversation: the dataset's, or else "messages" or "conversations",
 *  whichever holds a list (or its JSON as a text). NULL: the record has none. */
const char *lathe_chat_conversation_field(const lathe_dataset *dataset, const json_t *row);

/** Takes the record's conversation as messages of `role` and `content`; a text "system" stands
 *  before them, unless they have one. *out: a new reference; NULL: the record has none.
 *  LATHE_E_CONFIG: a text that is no JSON of a list, or a message of an unknown form. */
lathe_status lathe_chat_take_conversation(const lathe_dataset *dataset, json_t *row,
                                          lathe_record_uses *uses, json_t **out);

/** Puts a row's text "system" before the messages, unless they begin with a system message. */
lathe_status lathe_chat_add_system(json_t *row, json_t *messages, lathe_record_uses *uses);

/** Notes the fields of the row that a chat template reads besides the messages. */
void lathe_chat_use_row(const json_t *row, lathe_record_uses *uses);

/** Gives a record the list "messages" that chat templates read: that of the dataset's field, or of
 *  the sharegpt or the alpaca form. uses: gets the fields that are read; NULL: not wanted.
 *  LATHE_E_CONFIG: a message that is neither. The caller gives errors their place. */
lathe_status lathe_chat_row_read(const lathe_dataset *dataset, json_t *row,
                                 lathe_record_uses *uses);

/** Renders the record fields->row with the dataset's template, and encodes the
 * text without the special tokens that a tokenizer puts around plain text, as transformers'
 *  apply_chat_template does. A token is learnt if transformers' assistant mask (5.24) has it: the
 *  tokens with bytes of a part.
 *  Errors  LATHE_E_CONFIG: the dataset has no template; those of lathe_chat_from_row and
 *          lathe_chat_render_training. The caller gives them their place. */
lathe_status lathe_chat_encode(const lathe_dataset *dataset, lathe_fields *fields,
                               const lathe_tokenizer *tok, lathe_encoder *enc,
                               lathe_chat_tokens *out);

#endif
