/* A conversation with a model: the lines of a user, their answers, and commands that change it. */
#ifndef LATHE_CHAT_CONVERSATION_H
#define LATHE_CHAT_CONVERSATION_H

#include <jansson.h>

#include "chat/input.h"
#include "chat/stream.h"
#include "lathe/lathe.h"

typedef struct lathe_talk {
    lathe_run *run; /* borrowed; its chat template is loaded */
    lathe_sampling sampling;
    json_t *messages; /* an array */
    lathe_encoder *encoder;
    lathe_chat_input input;
    lathe_chat_stream stream;
    int32_t on_terminal; /* a user types: prompts and hints are shown */
    int32_t was_stopped; /* Ctrl-C ended the last answer */
    int32_t has_ended;   /* by /quit */
    uint64_t n_answers;
} lathe_talk;

/** Begins a conversation with talk->run. talk->input, sampling and on_terminal are set. */
lathe_status lathe_talk_begin(lathe_talk *talk);
/** Sets the system message; an empty text removes it. */
lathe_status lathe_talk_system(lathe_talk *talk, const char *text);
/** Takes a line of the user, which is a command or a message. A message is answered on standard
 * output; where that fails, the conversation is as it was. */
lathe_status lathe_talk_line(lathe_talk *talk, const char *line, int64_t n);
/** Frees what lathe_talk_begin made. talk->input remains. */
void lathe_talk_fini(lathe_talk *talk);

#endif
