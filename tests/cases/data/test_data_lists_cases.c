/* Pairs, examples and prompts as lists of messages: which list is the prompt, what stands beside
 * it, and what is refused. */
#include "cases/data/data_case.h"

TestSuite(data_lists_cases, .init = write_run, .fini = remove_folder, .timeout = 120);

#define YES "[-[user]Say[/][assistant]-]yes[/]"
#define NO "[-[user]Say[/][assistant]-]no[/]"
#define SET(columns) "--data.datasets '[{path = \"d.jsonl\", columns = {" columns "}}]'"

/* axolotl#3824, ms-swift's form: the list was freed while it was read. */
Test(data_lists_cases, a_column_may_have_the_name_messages)
{
    shows("{\"messages\": [" U("Say") "], \"chosen\": " A("yes") ", \"rejected\": " A("no") "}\n",
          SET("prompt = \"messages\""), YES, NO);
    shows("{\"messages\": [" U("Say") "," A("no") "], \"chosen_messages\": [" U("Say") "," A(
              "yes") "]}\n",
          SET("chosen = \"chosen_messages\", rejected = \"messages\""), YES, NO);
    shows("{\"messages\": [" U("Say") "," A("yes") "], \"rejected_messages\": [" U("Say") "," A(
              "no") "]}\n",
          SET("chosen = \"messages\", rejected = \"rejected_messages\""), YES, NO);
    shows("{\"prompt\": [" U("Say") "], \"messages\": [" A("yes") "], \"label\": true}\n",
          "--stage.name kto --data.datasets '[{path = \"d.jsonl\", columns = {completion = "
          "\"messages\"}}]'",
          YES, NULL);
    shows("{\"prompt\": [" U("Say") "], \"messages\": [" A("yes") "]}\n",
          "--stage.name sft --data.datasets '[{path = \"d.jsonl\", columns = {completion = "
          "\"messages\"}}]'",
          YES, NULL);
}

Test(data_lists_cases, a_conversation_beside_answers_is_their_prompt)
{
    shows("{\"messages\": [" U("Say") "], \"chosen\": " A("yes") ", \"rejected\": " A("no") "}\n",
          "", YES, NO);
    shows("{\"conversations\": [" U("Say") "], \"chosen\": " A("yes") ", \"rejected\": " A(
              "no") "}\n",
          "", YES, NO);
    shows("{\"conversations\": [{\"from\": \"human\", \"value\": \"Say\"}], \"chosen\": \"yes\", "
          "\"rejected\": \"no\"}\n",
          "", YES, NO);
    shows("{\"messages\": [" U("Say") "], \"prompt\": null, \"chosen\": \"yes\", \"rejected\": "
                                      "\"no\"}\n",
          "--stage.name rm", YES, NO);
    shows("{\"talk\": [" U("Say") "], \"chosen\": \"yes\", \"rejected\": \"no\"}\n",
          SET("messages = \"talk\""), YES, NO);
    shows("{\"messages\": [" U("Say") "], \"completion\": [" A("yes") "], \"label\": true}\n",
          "--stage.name kto", YES, NULL);
    /* the conversation already has one of the answers */
    shows("{\"messages\": [" U("Say") "," A("yes") "], \"chosen\": " A("yes") ", \"rejected\": " A(
              "no") "}\n",
          "", YES, NO);
}

/* HuggingFaceH4/ultrafeedback_binarized; trl#1752. */
Test(data_lists_cases, whole_conversations_have_their_prompt_in_themselves)
{
    const char *whole =
        "\"chosen\": [" U("Say") "," A("yes") "], \"rejected\": [" U("Say") "," A("no") "]}\n";
    char record[512];
    (void)snprintf(record, sizeof record, "{\"prompt\": \"Say\", %s", whole);
    shows(record, "", YES, NO);
    (void)snprintf(record, sizeof record, "{\"prompt\": [" U("Say") "], %s", whole);
    shows(record, "", YES, NO);
    (void)snprintf(record, sizeof record, "{\"messages\": [" U("Say") "," A("yes") "], %s", whole);
    shows(record, "", YES, NO);
    (void)snprintf(record, sizeof record, "{\"prompt\": [" U("Other") "], %s", whole);
    refuses(record, "", "begins with a message of role \"user\", but \"prompt\" is the prompt");
}

/* A text "system" is the system message wherever there is none. */
Test(data_lists_cases, a_system_text_stands_before_the_messages)
{
    static const char *const first[] = {
        "{\"messages\": [" U("q") "," A("a") "], \"system\": \"SYS\"}\n",
        "{\"conversations\": [" U("q") "," A("a") "], \"system\": \"SYS\"}\n",
        "{\"messages\": null, \"conversations\": [" U("q") "," A("a") "], \"system\": \"SYS\"}\n",
        "{\"messages\": [" U("q") "," A("a") "], \"conversations\": null, \"system\": \"SYS\"}\n",
        "{\"messages\": [" S("SYS") "," U("q") "," A("a") "], \"system\": \"SYS\"}\n",
        "{\"prompt\": [" U("q") "], \"completion\": [" A("a") "], \"system\": \"SYS\"}\n",
    };
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
        shows(first[i], "--stage.name sft", "[-[system]SYS[/][user]q[/][assistant]-]a[/]", NULL);
    shows("{\"chosen\": [" U("q") "," A("a") "], \"rejected\": [" U("q") "," A(
              "b") "], "
                   "\"system\": \"SYS\"}\n",
          "", "[-[system]SYS[/][user]q[/][assistant]-]a[/]",
          "[-[system]SYS[/][user]q[/][assistant]-]b[/]");
}

Test(data_lists_cases, pairs_without_a_question_are_refused)
{
    refuses("{\"chosen\": [" A("yes") "], \"rejected\": [" A("no") "]}\n", "",
            "no message of the user is before the answers in \"chosen\" and \"rejected\"");
    refuses(
        "{\"prompt\": [" S("SYS") "], \"chosen\": [" A("yes") "], \"rejected\": [" A("no") "]}\n",
        "", "so the pair has no question");
}

Test(data_lists_cases, what_columns_names_must_be_there)
{
    refuses("{\"question\": [" U("Say") "], \"chosen\": [" U("Say") "," A(
                "yes") "], \"rejected\": [" U("Say") "," A("no") "]}\n",
            SET("prompt = \"qestion\""), "no column \"qestion\"; the columns are question, chosen");
    refuses("{\"prompt\": null, \"chosen\": [" U("Say") "," A("yes") "], \"rejected\": [" U(
                "Say") "," A("no") "]}\n",
            SET("prompt = \"prompt\""), "column \"prompt\" is null");
    refuses("{\"messages\": [" U("q") "," A("a") "]}\n",
            "--stage.name sft " SET("messages = \"talk\""),
            "no column \"talk\", which columns.messages names; the columns are messages");
    refuses("{\"messages\": [" U("q") "," A("a") "]}\n",
            "--stage.name sft " SET("prompt = \"question\""), "no column \"question\"");
    refuses("{\"prompt\": \"q\", \"chosen\": [" U("q") "," A("a") "], \"rejected\": [" U("q") "," A(
                "b") "]}\n",
            "--data.datasets '[{path = \"d.jsonl\", format = {prompt = \"Q: {prompt}\"}}]'",
            "format.prompt makes a text, but another column is a list of messages");
}

/* TRL 1.16, data_utils.apply_chat_template: continue_final_message if the last role is assistant.
 */
Test(data_lists_cases, a_begun_answer_is_continued)
{
    static const char ppo[] = "--stage.name ppo --reward.name length --reward.tokens 4 "
                              "--reward.rule target --stage.max_new_tokens 8";
    shows("{\"prompt\": [" U("1+1?") "," A("<think>") "]}\n", ppo,
          "[-[user]1+1?[/][assistant]<think>-]", NULL);
    shows("{\"messages\": [" U("1+1?") "," A("2") "]}\n", ppo, "[-[user]1+1?[/][assistant]-]",
          NULL);
}
