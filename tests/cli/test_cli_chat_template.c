/* lathe chat-template: the text of conversations, what is learnt of it, and its refusals. */
#include "cli_case.h"

#define SHOW LATHE_TEST_BUILD "/bin/lathe chat-template "
#define CHATML                                                                                     \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"     \
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}\n"
#define MARKED                                                                                     \
    "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}"           \
    "{{ m.content }};{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}"
#define LAST_THINKS                                                                                \
    "{% for m in messages %}{{ m.role }}:{{ '<think></think>' if m.role == 'assistant' and "       \
    "loop.last }}{{ m.content }};{% endfor %}{{ 'assistant:' if add_generation_prompt }}"

static void setup(void)
{
    make_folder();
    cr_assert_eq(mkdir("m", 0777), 0);
    put("m/chat_template.jinja", CHATML);
    put("marked.jinja", MARKED);
    put("last.jinja", LAST_THINKS);
    put("unprompted.jinja", "{{ messages | map(attribute='content') | join('\\n') }}"
                            "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}");
    put("broken.jinja", "{% for m in messages %}\n{{ m.role | urlize }}{% endfor %}");
    put("counts.jinja", "{{ messages | length }}");
    put("date.jinja", "{{ strftime_now('%Y-%m-%d') }}");
    put("talk.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", "
        "\"content\": \"d\"}]}\n");
    put("wrong.jsonl", "{\"text\": \"x\"}\n");
    cr_assert_eq(mkdir("tokens", 0777), 0);
    put("tokens/chat_template.jinja", CHATML);
    put("tokens/tokenizer.json",
        "{\"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"fuse_unk\": true, \"vocab\": "
        "{\"?\": 0, \"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4}, \"merges\": []}, \"added_tokens\": "
        "[{\"id\": 5, \"content\": \"<|im_start|>\", \"special\": true}, {\"id\": 6, \"content\": "
        "\"<|im_end|>\", \"special\": true}]}");
    put("sharegpt.jsonl",
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": "
        "\"gpt\", \"value\": \"b\"}], \"system\": \"s\"}\n");
    put("named.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|> a\"}], "
                       "\"add_generation_prompt\": true}\n");
    put("half.jsonl",
        "{\"messages\": [{\"role\": \"user\"}]}\n{\"messages\": [{\"role\": \"user\", "
        "\"content\": \"ok\"}]}\n");
}

TestSuite(cli_chat_template, .init = setup, .fini = remove_folder);

Test(cli_chat_template, text_that_is_not_learnt_stands_in_brackets)
{
    expect(SHOW "m --show talk.jsonl", 0,
           "== line 1: 126 bytes, 24 learnt\n"
           "[-<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n-]b<|im_end|>\n"
           "[-<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n-]d<|im_end|>\n");
    expect(SHOW "marked.jinja --show talk.jsonl", 0,
           "[-user:a;assistant:-]b;[-user:c;assistant:-]d;");
}

Test(cli_chat_template, json_gives_text_and_parts_in_bytes)
{
    expect(SHOW "marked.jinja --show talk.jsonl --json", 0,
           "{\"line\": 1, \"text\": \"user:a;assistant:b;user:c;assistant:d;\", "
           "\"renderer\": \"jinja\", \"generation\": [[17, 19], [36, 38]], \"learnt\": [[17, 19], "
           "[36, 38]]}");
    expect(SHOW "date.jinja --show talk.jsonl --json --now 86400", 0, "\"1970-01-02\"");
}

/* Ids of HF's tokenizers: 0 is the text that the small tokenizer lacks. */
Test(cli_chat_template, tokens_gives_ids_and_which_are_learnt)
{
    expect(SHOW "tokens --show talk.jsonl --tokens", 0,
           "== line 1: 126 bytes, 24 learnt; 26 tokens, 6 learnt\n");
    expect(
        SHOW "tokens --show talk.jsonl --tokens --json", 0,
        "\"learnt\": [[51, 63], [114, 126]], \"ids\": [5, 0, 1, 6, 0, 5, 1, 0, 1, 0, 2, 6, 0, 5, "
        "0, 3, 6, 0, 5, 1, 0, 1, 0, 4, 6, 0], \"learnt_tokens\": [[10, 13], [23, 26]]}");
    /* a name that the user types is text, as the renderer says; the template alone cannot tell */
    expect(SHOW "tokens --show named.jsonl --tokens --json", 0,
           "\"ids\": [5, 0, 4, 0, 1, 6, 0, 5, 1, 0, 1, 0]}");
    expect(SHOW "tokens --show named.jsonl --tokens --json --renderer jinja", 0,
           "\"ids\": [5, 0, 6, 0, 1, 6, 0, 5, 1, 0, 1, 0]}");
}

Test(cli_chat_template, tokens_needs_a_tokenizer_and_conversations)
{
    expect(SHOW "m --show talk.jsonl --tokens 2>&1", 2,
           "m has no tokenizer.json; --tokens expects the folder of a model that has a tokenizer");
    expect(SHOW "marked.jinja --show talk.jsonl --tokens 2>&1", 2,
           "marked.jinja has no tokenizer.json");
    expect(SHOW "tokens --tokens 2>&1", 2, "--tokens is about conversations: give --show FILE too");
}

Test(cli_chat_template, the_sharegpt_form_is_read_as_in_training)
{
    expect(SHOW "m --show sharegpt.jsonl", 0,
           "[-<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
           "<|im_start|>assistant\n-]b<|im_end|>\n");
}

Test(cli_chat_template, describes_a_template)
{
    expect(SHOW "m", 0, "renderer: chatml: same text on 24 of 32 conversations");
    expect(SHOW "m", 0, "learnt: the assistant's answers, as the renderer tells them");
    expect(SHOW "m --renderer jinja", 0, "renderer: jinja, the template itself");
    expect(SHOW "m --renderer jinja", 0,
           "what each message of the assistant adds to the prompt before it");
    expect(SHOW "m", 0, "extend each other: yes");
    expect(SHOW "m --json", 0, "\"renderer\": \"chatml\", \"renderer_extends\": true}");
    expect(SHOW "marked.jinja --json", 0, "\"renderer\": \"jinja\", \"renderer_extends\": null}");
    expect(SHOW "marked.jinja", 0, "what stands between {% generation %} and {% endgeneration %}");
    expect(SHOW "counts.jinja", 0, "extend each other: no");
    expect(SHOW "date.jinja", 0, "the text depends on the date (strftime_now)");
}

Test(cli_chat_template, refusals_name_the_line_and_what_to_do)
{
    expect(SHOW "last.jinja --show talk.jsonl 2>&1", 2,
           "talk.jsonl:1: the template writes message 2 of the assistant otherwise when later "
           "messages follow, so the text to learn cannot be found; mark it in the template with "
           "{% generation %}");
    expect(SHOW "last.jinja --show talk.jsonl --json", 2,
           "\"learnt_error\": \"the template writes");
    expect(SHOW "unprompted.jinja --show talk.jsonl 2>&1", 2,
           "talk.jsonl:1: the text of message 2 of the assistant does not begin with the prompt "
           "that the template writes for it (add_generation_prompt), so the text to learn cannot "
           "be found; mend the prompt in the template, or mark the text with {% generation %}");
    expect(SHOW "broken.jinja 2>&1", 2, "broken.jinja:2:13: the filter 'urlize' is not supported");
    expect(SHOW ". 2>&1", 2,
           ".: no chat template; expected chat_template.jinja, or chat_template in "
           "tokenizer_config.json");
    expect(SHOW "nothing 2>&1", 2, "nothing: no such file or folder");
    expect(SHOW "m --show wrong.jsonl 2>&1", 2,
           "wrong.jsonl:1: expected an object with a list \"messages\"");
}

Test(cli_chat_template, a_refused_conversation_does_not_hide_the_next)
{
    expect(SHOW "m --show half.jsonl 2>&1", 2,
           "half.jsonl:1: message 1: it has no \"content\", and the chat template fails: "
           "m/chat_template.jinja:2:3:");
    expect(SHOW "m --show half.jsonl 2>&1", 2, "the value has no 'content'");
    expect(SHOW "m --show half.jsonl 2>&1", 2, "== line 2: ");
    expect(SHOW "m --show wrong.jsonl --json", 2,
           "{\"line\": 1, \"error\": \"wrong.jsonl:1: expected an object");
    expect(SHOW "m --show half.jsonl 2>&1", 2, "1 of 2 conversations are refused");
}

Test(cli_chat_template, a_line_that_is_no_conversation_does_not_hide_the_next)
{
    put("mixed.jsonl", "{\"text\": \"x\"}\n{\"messages\": [{\"role\": \"user\", \"content\": "
                       "\"ok\"}]}\n{\"messages\"\n");
    expect(SHOW "m --show mixed.jsonl 2>&1", 2, "mixed.jsonl:1: expected an object");
    expect(SHOW "m --show mixed.jsonl 2>&1", 2, "== line 2: ");
    expect(SHOW "m --show mixed.jsonl 2>&1", 2, "mixed.jsonl:3:11:");
    expect(SHOW "m --show mixed.jsonl 2>&1", 2, "2 of 3 conversations are refused");
}

Test(cli_chat_template, what_is_not_shown_is_said)
{
    put("three.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"1\"}]}\n\n{\"messages\": "
        "[{\"role\": \"user\", \"content\": \"2\"}]}\n \n");
    put("empty.jsonl", "");
    put("blank.jsonl", " \n\n");
    expect(SHOW "m --show three.jsonl --n 1 2>&1", 0, "more follow: --n 0 shows all");
    expect(SHOW "m --show three.jsonl --n 2 2>&1", 0, "== line 3: ");
    cr_expect_null(strstr(output, "more follow"), "%s", output);
    expect(SHOW "m --show empty.jsonl 2>&1", 0, "empty.jsonl has no conversations");
    expect(SHOW "m --show blank.jsonl 2>&1", 0, "blank.jsonl has no conversations");
    cr_expect_null(strstr(output, "not learnt"), "%s", output);
}

Test(cli_chat_template, rows_of_a_parquet_file_are_shown_as_lines_are)
{
    static const char shows[] = SHOW "marked.jinja --json --show " LATHE_TEST_DATA
                                     "/golden/data/readers/same/%s --n 6 2>&1";
    char command[1024], *lines;
    if (access(LATHE_TEST_BUILD "/lib/lathe/plugins/reader/arrow-shim.so", F_OK) != 0)
        cr_skip_test("Lathe was built without Apache Arrow (LATHE_ARROW_ROOT)");
    (void)snprintf(command, sizeof command, shows, "records.jsonl");
    expect(command, 0, "\"text\": \"user:question 5;assistant:answer 5;\"");
    lines = strdup(output);
    (void)snprintf(command, sizeof command, shows, "zstd.parquet");
    expect(command, 0, "\"text\": \"user:question 5;assistant:answer 5;\"");
    cr_expect_str_eq(output, lines);
    free(lines);
}

#define CALL                                                                                       \
    "\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "    \
    "{}}}]"
#define USER "{\"role\": \"user\", \"content\": \"a\"}"
#define LIST "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"

/* The counts are those of lathe data. */
Test(cli_chat_template, what_the_template_does_not_write_is_counted_as_in_training)
{
    put("calls.jsonl",
        "{\"messages\": [" USER ", {\"role\": \"assistant\", \"content\": \"\", " CALL "}]}\n"
        "{\"messages\": [" USER ", {\"role\": \"assistant\", \"content\": \"b\", " CALL "}], " LIST
        "}\n"
        "{\"messages\": [" USER ", {\"role\": \"assistant\", \"content\": \"b\"}]}\n"
        "{\"messages\": [" USER ", {\"role\": \"assistant\", \"content\": \"c\", " CALL "}]}\n"
        "{\"messages\": [" USER "], \"add_generation_prompt\": true, " LIST "}\n");
    expect(SHOW "m --show calls.jsonl 2>/dev/null", 0, "learnt; not written: calls, so training");
    cr_expect_not_null(strstr(output, "learnt; not written: calls, tools\n"), "%s", output);
    cr_expect_not_null(strstr(output, "== line 3: 63 bytes, 12 learnt\n"), "%s", output);
    expect(SHOW "m --show calls.jsonl 2>&1 >/dev/null", 0,
           "lathe chat-template: training leaves out: 1 record has an answer that is only calls of "
           "tools, and the chat template does not write calls: calls.jsonl:1\n"
           "lathe chat-template: 2 records are used without their calls of tools, which the chat "
           "template does not write: calls.jsonl:2, ...\n"
           "lathe chat-template: 1 record is used without its list of tools, which the chat "
           "template does not write: calls.jsonl:2\n");
    expect(SHOW "m --show calls.jsonl --json 2>&1", 0,
           "\"unwritten\": [\"calls\"], \"left_out\": \"calls_not_written\"}\n");
    cr_expect_not_null(strstr(output, "\"unwritten\": [\"calls\", \"tools\"]}\n"), "%s", output);
    put("run.toml", "[model]\nmodel_type = \"llama\"\nhidden_size = 16\nintermediate_size = 32\n"
                    "num_hidden_layers = 1\nnum_attention_heads = 2\n[tokenizer]\npath = "
                    "\"bytes\"\n[data]\ndatasets = [{ path = \"calls.jsonl\" }]\nseq_len = 80\n"
                    "chat_template = \"m/chat_template.jinja\"\n[stage]\nname = \"sft\"\n");
    expect(LATHE_TEST_BUILD "/bin/lathe data run.toml 2>&1", 0,
           "    2 records are used without their calls of tools, which the chat template does not "
           "write: calls.jsonl:2, ...\n"
           "    1 record is used without its list of tools");
}

Test(cli_chat_template, calls_that_are_written_are_not_told_of)
{
    put("calls.jsonl", "{\"messages\": [" USER
                       ", {\"role\": \"assistant\", \"content\": \"\", " CALL "}], " LIST "}\n");
    put("writes.jinja", "{{ tools | tojson }}{% for m in messages %}{{ m.role }}{{ m.tool_calls | "
                        "tojson if m.tool_calls }};{% endfor %}");
    expect(SHOW "writes.jinja --show calls.jsonl 2>&1", 0, "== line 1");
    cr_expect_null(strstr(output, "written"), "%s", output);
}
