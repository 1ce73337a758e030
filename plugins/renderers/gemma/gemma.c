/* Gemma, Gemma 2 and Gemma 3. */
#include "shared/turns.h"

static const char *const specials[] = {"<start_of_turn>", "<end_of_turn>", NULL};

static const turns_family variants[] = {
    {
        /* Gemma 3: the system message is put before the first question, in the same turn */
        .marker = "first_user_prefix",
        .flags =
            TURNS_BOS | TURNS_TRIM | TURNS_ALTERNATES | TURNS_SYSTEM_FIRST | TURNS_SYSTEM_IN_USER,
        .system_begin = "",
        .system_end = "\n\n",
        .user_begin = "<start_of_turn>user\n",
        .user_end = "<end_of_turn>\n",
        .answer_begin = "<start_of_turn>model\n",
        .answer_end = "<end_of_turn>\n",
        .specials = specials,
    },
    {
        /* Gemma and Gemma 2, whose template has no system message */
        .marker = "<start_of_turn>",
        .flags = TURNS_BOS | TURNS_TRIM | TURNS_ALTERNATES,
        .user_begin = "<start_of_turn>user\n",
        .user_end = "<end_of_turn>\n",
        .answer_begin = "<start_of_turn>model\n",
        .answer_end = "<end_of_turn>\n",
        .specials = specials,
    },
};

TURNS_TABLES(variants, NULL);

TURNS_PLUGIN("gemma", LATHE_RENDERER_EXTENDS, "Gemma, Gemma 2 and Gemma 3",
             "chat templates of google/gemma-2-2b-it and google/gemma-3-1b-it");
