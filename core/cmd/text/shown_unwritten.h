/* Tells what the chat template does not write of the conversations that are shown, and counts it as
 * training does. */
#ifndef LATHE_CMD_SHOWN_UNWRITTEN_H
#define LATHE_CMD_SHOWN_UNWRITTEN_H

#include "base/buffer.h"
#include "data/conversation/chat_unwritten.h"
#include "data/rows/shards.h"

/** Counts of conversations; `first` of a count is a line of the file. All zeros at first. */
typedef struct lathe_shown_unwritten {
    lathe_record_count left; /* training leaves them out: an answer is only calls */
    lathe_record_count unwritten[LATHE_N_UNWRITTEN];
} lathe_shown_unwritten;

/** Finds what is not written of a conversation, and counts it.
 *
 *  text      the rendered conversation
 *  n_learnt  bytes of it that are learnt; 0: training leaves it out anyway, unless it is for calls
 *  Errors    LATHE_E_NOMEM */
lathe_status lathe_shown_unwritten_add(lathe_shown_unwritten *counts,
                                       const lathe_chat_template *chat, const lathe_chat *what,
                                       const lathe_rendering *text, int64_t n_learnt, int64_t line,
                                       lathe_chat_unwritten *out);

/** Appends what was found of one conversation: "; not written: calls, tools", with ", so training
 *  leaves it out" where it does; as_json 1: the members "unwritten" and "left_out". Nothing, if all
 *  is written. */
void lathe_shown_unwritten_put(const lathe_chat_unwritten *found, int as_json, lathe_buffer *out);

/** Appends a line for each count that is not 0, in the words of training. name: of the file. */
void lathe_shown_unwritten_sum(const lathe_shown_unwritten *counts, const char *name,
                               lathe_buffer *out);

#endif
