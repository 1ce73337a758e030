/* Declarations that the files of the chat template share. */
#ifndef LATHE_CHAT_CHAT_TEMPLATE_INTERNAL_H
#define LATHE_CHAT_CHAT_TEMPLATE_INTERNAL_H

#include "chat/template/chat_template.h"

struct lathe_chat_template {
    lathe_template *plain, *tools; /* tools: the one for conversations with tools; NULL: plain */
    json_t *tokens;                /* "bos_token" -> text */
    json_t *variables;             /* for all conversations; NULL: none */
    char hash[65];
    char text_hash[65];           /* SHA-256 of the text of `plain` without newlines at its end */
    char *text;                   /* of `plain`; NULL: the folder has none */
    int64_t text_bytes;           /* without newlines at its end */
    lathe_chars whole, of_tools;  /* texts as they were read; `whole` is `text` with its newlines */
    lathe_chat_renderer renderer; /* table NULL: none */
    int takes_objects;            /* 1: arguments of calls that are texts would be encoded twice */
    lathe_template *tojson;       /* writes a value as the filter does, for renderers */
};

/** Renders the first n messages with the renderer. *out_served = 0: it has no text for them, and
 * the template is to render them; with is_strict that is an error. */
lathe_status lathe__chat_render_pieces(const lathe_chat_template *chat, const lathe_chat *what,
                                       size_t n, int add_generation_prompt, lathe_rendering *out,
                                       int *out_served);

/** Passes the pieces of a conversation, with this eos_token, to a sink; none if it has what the
 * tables cannot hold. Errors: those of the renderer, and of the sink. */
lathe_status lathe__chat_pass_pieces(const lathe_chat_template *chat, const lathe_chat *what,
                                     lathe_chars eos, const lathe_piece_sink *sink);

/** A copy of a call whose arguments are a text with the JSON of an object, with the object instead;
 *  NULL: they are none. */
json_t *lathe__chat_parsed_call(json_t *function);

/** Finds out how the template writes arguments of calls that are texts. */
lathe_status lathe__chat_try_arguments(lathe_chat_template *chat);

/** The reasoning of a message under the names that templates read; NULL: none. */
json_t *lathe__chat_reasoning(json_t *message);

#endif
