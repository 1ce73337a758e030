/* A conversation in a terminal: the lines of a user, their answers, and commands that change it. */
#ifndef LATHE_CMD_CONVERSATION_H
#define LATHE_CMD_CONVERSATION_H

#include "cmd/chat/input.h"
#include "lathe/session.h"

typedef struct lathe_talk {
    lathe_session *session;
    lathe_dialogue *conversation;
    lathe_sampling sampling;
    lathe_chat_input input;
    int32_t has_adapters;  /* 1: the session has several */
    int32_t on_terminal;   /* a user types: prompts and hints are shown */
    int32_t shows_control; /* control characters are written as \xNN */
    int32_t was_stopped;   /* Ctrl-C ended the last answer */
    int32_t has_ended;     /* by /quit */
} lathe_talk;

/** Takes a line of the user, which is a command or a message. A message is answered on standard
 * output; where that fails, the conversation is as it was. */
lathe_status lathe_talk_line(lathe_talk *talk, const char *line, int64_t n);

#endif
