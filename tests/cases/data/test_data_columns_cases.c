/* Keys of records that had no effect, texts that are glued, and values that nobody reads. */
#include "cases/data/data_case.h"

TestSuite(data_columns_cases, .init = write_run, .fini = remove_folder, .timeout = 120);

#define SFT "--stage.name sft"

/* Intel/orca_dpo_pairs: the question was not read, and nobody said so. */
Test(data_columns_cases, columns_that_nothing_reads_are_named_at_each_start)
{
    static const char orca[] =
        "{\"system\": \"S\", \"question\": \"2+2?\", \"id\": 1, \"chosen\": \"The answer is "
        "four.\", \"rejected\": \"The answer is five.\"}\n"
        "{\"system\": \"S\", \"question\": \"A colour\", \"id\": 2, \"chosen\": \"Blue it is\", "
        "\"rejected\": \"Cannot say\", \"tools\": null}\n";
    shows(orca, "", "nothing reads the columns id, question, system;",
          "2 pairs have no prompt, and their texts have no common beginning or part inside a word");
    expect(LATHE " data run.toml --json 2>&1", 0, "\"question\": {");
    for (int i = 0; i < 2; i++) { /* the first command has made the cache */
        expect("rm -rf out; " LATHE " train run.toml --stage.reference_free true 2>&1", 0,
               "warning: d.jsonl: nothing reads the columns id, question, system;");
        cr_expect_not_null(strstr(output, "warning: 2 pairs have no prompt"), "%s", output);
    }
    shows(orca,
          "--data.datasets '[{path = \"d.jsonl\", format = {prompt = \"{system} {question} "
          "\"}}]'",
          "[-S 2+2? -]The answer is four.", "nothing reads the column id;");
    shows("{\"prompt\": \"q \", \"chosen\": \"the sky is blue\", \"rejected\": \"the sea\"}\n", "",
          "[-q -]the sky", NULL);
    cr_expect_null(strstr(output, "nothing reads"), "%s", output);
    cr_expect_null(strstr(output, "have no prompt"), "%s", output);
}

Test(data_columns_cases, columns_of_csv_that_nothing_reads_are_named)
{
    put("d.csv", "id,\"the, note\",prompt,completion\n1,x,q,\" a\"\n2,y,r,\" b\"\n");
    expect(DATA " " SFT " --data.datasets '[{path = \"d.csv\"}]' 2>&1", 0,
           "nothing reads the columns id, the, note;");
}

/* OpenAI's weight, axolotl's train, ms-swift's loss, verl's loss_mask. */
Test(data_columns_cases, messages_that_are_not_to_be_learnt_are_not)
{
    static const char *const marks[][2] = {{"\"weight\": 0", "\"weight\": 1"},
                                           {"\"train\": false", "\"train\": true"},
                                           {"\"trainable\": false", "\"trainable\": true"},
                                           {"\"loss\": false", "\"loss\": null"},
                                           {"\"loss_mask\": 0", "\"loss_mask\": 1.0"}};
    char record[512];
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        (void)snprintf(
            record, sizeof record,
            "{\"messages\": [" U("q") ", {\"role\": \"assistant\", \"content\": "
                                      "\"bad\", %s}, " U(
                                          "r") ", {\"role\": "
                                               "\"assistant\", \"content\": \"good\", %s}]}\n",
            marks[i][0], marks[i][1]);
        shows(record, SFT, "[-[user]q[/][assistant]bad[/][user]r[/][assistant]-]good[/]", NULL);
    }
    shows(
        record, "--stage.name pretrain --data.seq_len 16",
        "record has messages that are not to be learnt (weight, train, loss), which has no effect",
        NULL);
    refuses("{\"messages\": [" U("q") ", {\"role\": \"assistant\", \"content\": \"a\", "
                                      "\"weight\": 0.5}]}\n",
            SFT, "message 2: \"weight\" says whether the message is learnt; expected 0, 1, true");
    refuses("{\"messages\": [" U("q") ", {\"role\": \"assistant\", \"content\": \"a\", "
                                      "\"train\": true, \"loss\": false}]}\n",
            SFT, "message 2: \"train\" and \"loss\" contradict each other");
    shows("{\"messages\": [" U("q") "," A("a") "]}\n{\"messages\": [" U("q") ", {\"role\": "
                                                                             "\"assistant\", "
                                                                             "\"content\": \"x\", "
                                                                             "\"train\": "
                                                                             "false}]}\n",
          SFT, "left out: 1 conversation has answers, but its messages are marked not to be learnt",
          NULL);
}

/* A template with {% generation %}, and a renderer, mark what is learnt themselves. */
Test(data_columns_cases, marked_templates_and_renderers_heed_it_too)
{
    static const char record[] =
        "{\"messages\": [" U("q") ", {\"role\": \"assistant\", \"content\": \"bad\", \"train\": "
                                  "false}, " U("r") ", " A("good") "]}\n";
    put("t.jinja", "{%- for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}"
                   "{% generation %}{{ m.content }}[/]{% endgeneration %}{% else %}"
                   "{{ m.content }}[/]{% endif %}{% endfor %}"
                   "{% if add_generation_prompt %}[assistant]{% endif %}");
    shows(record, SFT, "[-[user]q[/][assistant]bad[/][user]r[/][assistant]-]good[/]", NULL);
    shows(record, SFT " --renderer.name chatml", "bad", "good");
    cr_expect_null(strstr(output, "-]bad"), "%s", output);
    cr_expect_not_null(strstr(output, "-]good<|im_end|>"), "%s", output);
}

/* transformers refuses tools that are no schema; templates would encode the text once more. */
Test(data_columns_cases, json_in_texts_is_not_encoded_twice)
{
    put("t.jinja",
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{%- for m in messages %}"
        "[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments | "
        "tojson }}{% endfor %}[/]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
    static const char *const tools[] = {
        "[{\"type\": \"function\", \"function\": {\"name\": \"get\"}}]",
        "[\"{\\\"type\\\": \\\"function\\\", \\\"function\\\": {\\\"name\\\": \\\"get\\\"}}\"]",
        "\"[{\\\"type\\\": \\\"function\\\", \\\"function\\\": {\\\"name\\\": \\\"get\\\"}}]\""};
    char record[1024];
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(record, sizeof record,
                       "{\"messages\": [" U("q") "," A("a") "], \"tools\": %s}\n", tools[i]);
        shows(record, SFT,
              "[-{\"type\": \"function\", \"function\": {\"name\": \"get\"}}[user]q[/][assistant]-]"
              "a[/]",
              NULL);
    }
    refuses("{\"messages\": [" U("q") "," A("a") "], \"tools\": [\"get\"]}\n", SFT,
            "element 1 of \"tools\" is no object with the schema of a function");
    shows("{\"messages\": [" U("q") ", {\"role\": \"assistant\", \"content\": \"\", "
                                    "\"tool_calls\": [{\"type\": \"function\", \"function\": "
                                    "{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}}]}]}\n",
          SFT, "[assistant]-]{\"x\": 1}[/]", NULL);
    shows("{\"messages\": \"[{\\\"role\\\": \\\"user\\\", \\\"content\\\": \\\"q\\\"}, "
          "{\\\"role\\\": \\\"assistant\\\", \\\"content\\\": \\\"a\\\"}]\"}\n",
          SFT, "[-[user]q[/][assistant]-]a[/]", NULL);
}

/* Python's json.dumps writes NaN. */
Test(data_columns_cases, nan_in_a_column_that_nobody_reads_is_null)
{
    static const char *const values[] = {"NaN", "Infinity", "-Infinity"};
    char record[256];
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(
            record, sizeof record,
            "{\"score\": %s, \"messages\": [" U("NaN \\\"NaN") "," A("a") "], \"list\": [%s, 1]}\n",
            values[i], values[i]);
        shows(record, SFT, "[-[user]NaN \"NaN[/][assistant]-]a[/]",
              "nothing reads the column list;");
    }
    put("d.json", "[{\"prompt\": \"q\", \"completion\": \" a\", \"score\": NaN}]");
    expect(DATA " " SFT " --data.datasets '[{path = \"d.json\"}]' 2>&1", 0, "[-q-] a");
    refuses("{\"prompt\": \"q\", \"completion\": NaN}\n", SFT, "column \"completion\" is null");
    put("d.jsonl", "{\"prompt\": \"q\", \"completion\": NaM}\n");
    expect(DATA " " SFT " 2>&1", 2, "d.jsonl:1:31: unexpected token near 'N'");
    put("d.jsonl", "{\"prompt\": \"q\", \"score\": NaN}\n");
    expect(LATHE " data run.toml --stage.name ppo --reward.name length --reward.tokens 4 "
                 "--reward.rule target --stage.max_new_tokens 8 2>&1",
           0, "1 prompt");
}

/* The example of plugins/stages/sft went past the template of a chat model without a word. */
Test(data_columns_cases, chat_true_writes_texts_with_the_template)
{
#define CHAT(is) "--data.datasets '[{path = \"d.jsonl\", chat = " is "}]'"
    static const char record[] = "{\"prompt\": \"Say\", \"completion\": \"yes\"}\n";
    shows(record, SFT, "1 record is plain text, which the chat template does not write",
          "1 record has no white space between prompt and completion");
    cr_expect_not_null(strstr(output, "[-Say-]yes<|endoftext|>"), "%s", output);
    shows(record, SFT " " CHAT("true"), "[-[user]Say[/][assistant]-]yes[/]", NULL);
    cr_expect_null(strstr(output, "plain text"), "%s", output);
    shows(record, SFT " " CHAT("false"), "[-Say-]yes<|endoftext|>", NULL);
    cr_expect_null(strstr(output, "plain text"), "%s", output);
    shows("{\"prompt\": \"Say\", \"chosen\": \"yes\", \"rejected\": \"no\", \"system\": \"S\"}\n",
          CHAT("true"), "[-[system]S[/][user]Say[/][assistant]-]yes[/]",
          "[-[system]S[/][user]Say[/][assistant]-]no[/]");
    shows("{\"prompt\": \"Say\", \"completion\": \"yes\", \"label\": 1}\n",
          "--stage.name kto " CHAT("true"), "[-[user]Say[/][assistant]-]yes[/]", NULL);
    put("d.csv", "question,answer\nSay,yes\n");
    expect(DATA " " SFT " --data.datasets '[{path = \"d.csv\", chat = true, format = {prompt = \""
                "{question}!\", completion = \"{answer}\"}}]' 2>&1",
           0, "[-[user]Say![/][assistant]-]yes[/]");
    put("d.jsonl",
        "{\"text\": \"a b c d e f g h i j k l m n o p q r s t u v w x y z, and so on, to "
        "fill a row of one hundred and twenty-eight tokens of the raw bytes of a text "
        "that is long enough\"}\n");
    expect(DATA " --stage.name pretrain " CHAT("true") " 2>&1", 2,
           "chat has no effect on documents");
}

Test(data_columns_cases, pairs_that_the_cut_makes_equal_are_told)
{
    static const char record[] = "{\"prompt\": \"0123\", \"chosen\": \" abcdefghijklmnX\", "
                                 "\"rejected\": \" abcdefghijklmnY\"}\n"
                                 "{\"prompt\": \"0123\", \"chosen\": \" abX\", \"rejected\": \" "
                                 "abcdefghijklmnY\"}\n";
    shows(record, "--data.seq_len 16", "1 pair equal after the cut: d.jsonl:1\n", NULL);
    expect(LATHE " train run.toml --data.seq_len 16 --stage.reference_free true 2>&1", 0,
           "warning: 1 pair prefers nothing once it is cut, because its rows differ only after "
           "data.seq_len tokens: d.jsonl:1");
    shows(record, "", "2 pairs", NULL);
    cr_expect_null(strstr(output, "equal after"), "%s", output);
}

Test(data_columns_cases, max_samples_takes_the_first_records)
{
    static const char records[] = "{\"prompt\": \"a\", \"completion\": \" 1\"}\n"
                                  "{\"prompt\": \"b\", \"completion\": \" 2\"}\n"
                                  "{\"prompt\": \"c\", \"completion\": \" 3\"}\n";
    shows(records, SFT " --data.datasets '[{path = \"d.jsonl\", max_samples = 2}]'",
          "  2 examples, 8 tokens", NULL);
    shows(records, SFT " --data.datasets '[{path = \"d.jsonl\", max_samples = 9}]'", "  3 examples",
          NULL);
    put("v.jsonl", records);
    shows(records,
          SFT " --data.datasets '[{path = \"d.jsonl\", max_samples = 1}]' "
              "--data.validation '[{path = \"v.jsonl\", max_samples = 2}]'",
          "training\n  1 example", "validation\n  v.jsonl");
    cr_expect_not_null(strstr(output, "  2 examples, 8 tokens"), "%s", output);
    for (int i = 0; i < 2; i++) { /* by number and by share */
        shows(records, i ? SFT " --data.validation_count 1" : SFT " --data.validation_split 0.34",
              "training\n  2 examples", "validation\n  1 example");
    }
}

Test(data_columns_cases, files_say_what_to_do_with_them)
{
    cr_assert_eq(run("printf '{\"prompt\": \"q\", \"completion\": \" a\"}\\n' | gzip > a.jsonl.gz; "
                     "mkdir -p hub/data; printf '{\"text\": \"the king\"}\\n' > hub/data/a.jsonl; "
                     "printf 'about this data set\\n' > hub/README.md; mkdir one; cp hub/README.md "
                     "one; printf '[{\"text\": \"the king\"}]' > one/a.json"),
                 0);
    expect(DATA " " SFT " --data.datasets '[{path = \"a.jsonl.gz\"}]' 2>&1", 2,
           "a.jsonl.gz: it is compressed (gzip), and data are read from plain files; decompress it "
           "first (gunzip)");
    refuses("[{\"prompt\": \"a\"},\n{\"prompt\": \"b\"}]\n", SFT,
            "for a file that is one array, set type = \"json\"");
    put("d.jsonl", "{\n \"prompt\": \"a\"\n}\n");
    expect(DATA " " SFT " 2>&1", 2,
           "d.jsonl:1:2: a key in quotes expected; for objects over several lines, set type = "
           "\"json\" in the dataset");
    expect(DATA " --data.seq_len 8 --stage.name pretrain --data.datasets '[{path = \"hub\"}]' 2>&1",
           0, "left out: 1 not named *.jsonl or *.ndjson (hub/README.md)");
    expect(DATA " --data.seq_len 8 --stage.name pretrain --data.datasets '[{path = \"one\"}]' 2>&1",
           0, "left out: 1 not named *.json (one/README.md)");
}
