/* Records with a list of answers, for a stage of groups (examples/ranking). */
#include "cases/data/data_case.h"

#define RANKING "--stage.name ranking"

static void begin(void)
{
    write_run();
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", LATHE_TEST_BUILD "/tests/ranking", 1), 0);
}

TestSuite(groups, .init = begin, .fini = remove_folder, .timeout = 240);

Test(groups, of_texts_are_the_prompt_with_each_answer)
{
    shows("{\"prompt\": \"Q:\", \"completions\": [\" one\", \" two\", \" three\"]}\n", RANKING,
          "[-Q:-] one<|", "[-Q:-] three<|");
    shows("{\"q\": \"Q:\", \"all\": [\" one\", \" two\", \" three\"]}\n",
          RANKING " --data.datasets "
                  "'[{path = \"d.jsonl\", columns = {prompt = \"q\", completions = \"all\"}}]'",
          "[-Q:-] two<|", "epoch, answer 2");
}

/* Without a prompt, it is the common beginning of all answers. */
Test(groups, without_a_prompt_have_their_common_beginning)
{
    shows("{\"completions\": [\"same one\", \"same two\", \"same three\"]}\n", RANKING,
          "[-same-] three<|", "epoch, answer 3");
}

Test(groups, of_messages_are_written_by_the_template)
{
    shows("{\"prompt\": [" U("q") "], \"completions\": [[" A("a") "], [" A("b") "], \"c\"]}\n",
          RANKING, "[-[user]q[/][assistant]-]a[/]", "[-[user]q[/][assistant]-]c[/]");
    shows("{\"prompt\": \"q\", \"completions\": [\"a\", \"b\", \"c\"], \"system\": \"s\"}\n",
          RANKING " --data.datasets '[{path = \"d.jsonl\", chat = true}]'",
          "[-[system]s[/][user]q[/][assistant]-]b[/]", NULL);
    shows("{\"messages\": [" U("q") "], \"completions\": [\"a\", \"b\", \"c\"]}\n", RANKING,
          "[-[user]q[/][assistant]-]b[/]", NULL);
}

Test(groups, that_are_wrong_are_refused)
{
    refuses("{\"prompt\": \"q\", \"completions\": [\"a\", \"b\"]}\n", RANKING,
            "column \"completions\" has 2 answers, and the stage compares 3 of each record");
    refuses("{\"prompt\": \"q\", \"completions\": \"a\"}\n", RANKING,
            "column \"completions\" is no list; expected a list of 3 answers");
    refuses("{\"prompt\": \"q\", \"completions\": [\"a\", 7, \"c\"]}\n", RANKING,
            "answer 2 of column \"completions\" is no text and no list of messages");
    refuses("{\"prompt\": \"q\", \"completion\": \"a\"}\n", RANKING, "no column \"completions\"");
    refuses(
        "{\"prompt\": [" S("s") "], \"completions\": [[" A("a") "], [" A("b") "], [" A("c") "]]}"
                                                                                            "\n",
        RANKING, "no message of the user is before the answers");
}

/* A record whose answers are all equal is told; two of three are a ranking with a tie. */
Test(groups, that_are_all_alike_are_told)
{
    shows("{\"prompt\": \"q\", \"completions\": [\" a\", \" a\", \" a\"]}\n", RANKING " --json",
          "\"equal_groups\": 1", NULL);
    shows("{\"prompt\": \"q\", \"completions\": [\" a\", \" a\", \" b\"]}\n", RANKING " --json",
          "\"equal_groups\": 0", "\"groups_equal_after_cut\": 0");
}
