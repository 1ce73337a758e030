/* Mistral Instruct v0.1 and v0.2: [INST] in plain text. */
#include "shared/turns.h"

/* [INST] is text here, not a special token, so nothing but BOS and EOS is looked up. */
static const char *const specials[] = {NULL};

static const turns_family variants[] = {
    {
        /* v0.1: a space between the EOS of an answer and the next [INST] */
        .marker = "eos_token + ' '",
        .flags = TURNS_BOS | TURNS_ALTERNATES | TURNS_EOS_ANSWER,
        .user_begin = "[INST] ",
        .user_end = " [/INST]",
        .answer_begin = "",
        .answer_end = " ",
        .specials = specials,
    },
    {
        /* v0.2; Llama 2 has this marker, too, but with <<SYS>> */
        .marker = "'[INST] '",
        .absent = "<<SYS>>",
        .flags = TURNS_BOS | TURNS_ALTERNATES | TURNS_EOS_ANSWER,
        .user_begin = "[INST] ",
        .user_end = " [/INST]",
        .answer_begin = "",
        .answer_end = "",
        .specials = specials,
    },
};

TURNS_TABLES(variants, NULL);

TURNS_PLUGIN("mistral", LATHE_RENDERER_EXTENDS, "Mistral Instruct v0.1 and v0.2",
             "chat templates of mistralai/Mistral-7B-Instruct-v0.1 and v0.2");
