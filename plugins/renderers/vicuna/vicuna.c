/* Vicuna: USER: and ASSISTANT: in plain text. */
#include "shared/turns.h"

static const char *const specials[] = {"</s>", NULL};

/* Each message is a line. */
#define LINES                                                                                      \
    .user_begin = "USER: ", .user_end = "\n", .answer_begin = "ASSISTANT:", .answer_space = " "

static const turns_family variants[] = {
    {
        /* v1.1 and v1.5 */
        .marker = "A chat between a curious user and an artificial intelligence assistant",
        .flags = TURNS_BOS | TURNS_EOS_ANSWER | TURNS_SYSTEM_FIRST | TURNS_ASKED,
        .default_system = "A chat between a curious user and an artificial intelligence assistant. "
                          "The assistant gives helpful, detailed, and polite answers to the user's "
                          "questions. ",
        .system_begin = "",
        .system_end = " ",
        .user_begin = "USER: ",
        .user_end = " ",
        .answer_begin = "ASSISTANT:",
        .answer_space = " ",
        .answer_end = "",
    },
    {
        /* v0 */
        .marker = "### Human: ",
        .flags = TURNS_BOS | TURNS_EOS_ANSWER | TURNS_SYSTEM_FIRST | TURNS_ASKED,
        .default_system = "A chat between a curious human and an artificial intelligence "
                          "assistant. The assistant gives helpful, detailed, and polite answers to "
                          "the human's questions.\n",
        .system_begin = "",
        .system_end = "\n",
        .user_begin = "### Human: ",
        .user_end = "\n",
        .answer_begin = "### Assistant:",
        .answer_space = " ",
        .answer_end = "\n",
    },
    {
        /* Orca */
        .marker = "SYSTEM: ",
        .system_begin = "SYSTEM: ",
        .system_end = "\n",
        LINES,
        .answer_end = "</s>\n",
        .specials = specials,
    },
    {
        /* lines, contents without spaces at their ends, user and assistant in turn */
        .marker = "'USER: ' + message['content'] | trim",
        .flags = TURNS_BOS | TURNS_TRIM | TURNS_ALTERNATES | TURNS_EOS_ANSWER | TURNS_SYSTEM_FIRST,
        .system_begin = "",
        .system_end = "\n\n",
        LINES,
        .answer_end = "\n",
    },
    {
        /* lines */
        .marker = "USER: ",
        .system_begin = "",
        .system_end = "\n\n",
        LINES,
        .answer_end = "</s>\n",
        .specials = specials,
    },
};

TURNS_TABLES(variants, NULL);

TURNS_PLUGIN("vicuna", LATHE_RENDERER_EXTENDS, "Vicuna: USER: and ASSISTANT: in plain text",
             "github.com/lm-sys/FastChat, conversation.py (vicuna_v1.1)");
