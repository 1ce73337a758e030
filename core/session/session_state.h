/* A session behind lathe/session.h. */
#ifndef LATHE_SESSION_SESSION_STATE_H
#define LATHE_SESSION_SESSION_STATE_H

#include <stdatomic.h>

#include "data/conversation/chat_record.h"
#include "lathe/session.h"
#include "run/state/run_state.h"
#include "session/model_request.h"
#include "tokenizer/encode/tokenizer.h"

struct lathe_session {
    lathe_run *run;
    lathe_encoder *encoder;   /* made when it is first needed */
    lathe_chat_tokens tokens; /* what the last call gave */
    char *text;               /* decoded by the last call; NULL: none */
    int32_t is_streaming;     /* 1: a generation is under way */
    int32_t is_answering;     /* 1: in lathe_dialogue_say, which forgets late cancels itself */
    atomic_int cancels;       /* 1: the text under way is to end */
};

/** lathe_dialogue_create; messages about a missing template call the session `place`. */
lathe_status lathe__dialogue_create_named(lathe_session *session, const char *place,
                                          lathe_dialogue **out);

/** lathe_session_open with settings that are parsed; those of the config are not read. */
lathe_status lathe__session_open_with(const lathe_session_config *config, const lathe_edits *edits,
                                      lathe_session **out);

/** Opens a session on what is asked; mode: LATHE_OPEN_*. After an error *out is NULL. */
lathe_status lathe__session_open(const lathe_model_request *ask, int32_t mode, lathe_session **out);

/** lathe_session_render for a conversation that messages call `place`: a file, or file:line. */
lathe_status lathe__session_render_named(lathe_session *session, const char *place,
                                         const char *json, int64_t n, lathe_session_ids *out);

/** lathe_session_render for the conversation of `row`. */
lathe_status lathe__session_render_row(lathe_session *session, const char *place, json_t *row,
                                       lathe_session_ids *out);

/** The tokens of `row` up to where the answer begins, in session->tokens.ids. place: for messages.
 */
lathe_status lathe__session_render(lathe_session *session, const char *place, json_t *row);

#endif
