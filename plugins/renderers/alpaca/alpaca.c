/* Stanford Alpaca: headings in plain text, and eos_token after each answer. Its own prompts have
 * one turn; the form of later turns comes from the templates of others. */
#include "shared/turns.h"

#define HEADINGS                                                                                   \
    .system_begin = "", .system_end = "\n\n", .user_begin = "### Instruction:\n",                  \
    .user_end = "\n\n", .answer_begin = "### Response:\n", .answer_end = "\n\n"

static const turns_family variants[] = {
    {
        .marker = "Below is an instruction that describes a task",
        .flags = TURNS_BOS | TURNS_EOS_ANSWER | TURNS_SYSTEM_FIRST,
        .default_system = "Below is an instruction that describes a task. Write a response that "
                          "appropriately completes the request.\n\n",
        HEADINGS,
    },
    {
        .marker = "Below are some instructions that describe some tasks",
        .flags = TURNS_BOS | TURNS_EOS_ANSWER | TURNS_SYSTEM_FIRST,
        .default_system = "Below are some instructions that describe some tasks. Write responses "
                          "that appropriately complete each request.\n\n",
        HEADINGS,
    },
    {
        /* contents without spaces at their ends, user and assistant in turn */
        .marker = "'### Instruction:\\n' + message['content'] | trim",
        .flags = TURNS_BOS | TURNS_TRIM | TURNS_ALTERNATES | TURNS_EOS_ANSWER | TURNS_SYSTEM_FIRST,
        HEADINGS,
    },
    {
        /* empty lines between messages alone */
        .marker = "### Instruction:",
        .flags = TURNS_BOS | TURNS_EOS_ANSWER | TURNS_SYSTEM_FIRST,
        .between = "\n\n",
        .system_begin = "",
        .user_begin = "### Instruction:\n",
        .answer_begin = "### Response:\n",
    },
};

TURNS_TABLES(variants, NULL);

TURNS_PLUGIN("alpaca", LATHE_RENDERER_EXTENDS, "Stanford Alpaca: headings in plain text",
             "github.com/tatsu-lab/stanford_alpaca, train.py (PROMPT_DICT, without input)");
