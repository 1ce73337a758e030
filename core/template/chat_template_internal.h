/* What the files of the chat template share. */
#ifndef LATHE_TEMPLATE_CHAT_TEMPLATE_INTERNAL_H
#define LATHE_TEMPLATE_CHAT_TEMPLATE_INTERNAL_H

#include "template/chat_template.h"

struct lathe_chat_template {
    lathe_template *plain, *tools; /* tools: the one for conversations with tools; NULL: plain */
    json_t *tokens;                /* "bos_token" -> text */
    json_t *variables;             /* for all conversations; NULL: none */
    char hash[65];
};

#endif
