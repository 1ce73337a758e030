/* lathe generate --prompts: many prompts into a file, and conversations. */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static const char base_file[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 32\n"
                                "intermediate_size = 64\nnum_hidden_layers = 2\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                                "[tokenizer]\ntrain = { vocab_size = 300 }\n"
                                "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                                "[optimizer]\nlr = 0.02\n"
                                "[train]\nprecision = \"fp32\"\nmax_steps = 4\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"first\"\n";

static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put("base.toml", base_file);
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint first/step-00000004");
    cr_assert_eq(run("mv first/step-00000004 base"), 0);
    put("base/chat_template.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>"
                                    "{% endfor %}{{ '<assistant>' if add_generation_prompt }}");
    put("in.jsonl", "{\"prompt\": \"the cat\", \"id\": 7}\n\n\"sat on\"\n"
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"
                    "{\"ids\": [5, 6, 7]}\n{\"prompt\": \"\"}\n");
}

TestSuite(generate_prompts, .init = setup, .fini = remove_folder, .timeout = 120);

#define HOW                                                                                        \
    " --max-new-tokens 20 --temperature 1 --data.seq_len 48 --train.precision fp32 --ignore-eos"
#define MANY LATHE " generate base --prompts in.jsonl -o out.jsonl --samples 3 --logprobs" HOW

static void expect_count(const char *command, const char *want)
{
    cr_assert_eq(run(command), 0, "%s: %s", command, output);
    cr_expect_eq(atoi(output), atoi(want), "%s: %s", command, output);
}

Test(generate_prompts, are_continued_in_their_order_with_several_samples)
{
    expect(MANY " 2>&1", 0, "15 results written to out.jsonl: 300 tokens");
    expect_count("wc -l < out.jsonl", "15");
    expect("sed -n 1p out.jsonl", 0, "{\"line\": 1, \"sample\": 0, \"id\": 7, \"text\": \"");
    expect("sed -n 2p out.jsonl", 0, "{\"line\": 1, \"sample\": 1, \"id\": 7, \"text\": \"");
    expect("sed -n 4p out.jsonl", 0, "{\"line\": 3, \"sample\": 0, \"text\": \"");
    expect("sed -n 15p out.jsonl", 0, "\"tokens\": 20, \"finish\": \"length\", \"ids\": [");
    expect("sed -n 15p out.jsonl", 0, "\"logprobs\": [-");
    cr_expect_eq(run("test \"$(sed -n 1p out.jsonl)\" != \"$(sed -n 2p out.jsonl)\""), 0);
}

Test(generate_prompts, have_the_same_results_whatever_the_batch)
{
    expect(MANY " 2>&1", 0, "15 results");
    cr_assert_eq(run("mv out.jsonl whole && rm out.jsonl.settings.json"), 0);
    expect(MANY " --generate.batch 2 2>&1", 0, "15 results");
    cr_expect_eq(run("cmp out.jsonl whole"), 0, "%s", output);
}

Test(generate_prompts, go_on_after_a_kill_without_duplicates)
{
    expect(MANY " 2>&1", 0, "15 results");
    cr_assert_eq(run("cp out.jsonl whole"), 0);
    static const int sizes[] = {0, 10, 900, 1300, 2500};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char command[128];
        snprintf(command, sizeof command, "head -c %d whole > out.jsonl", sizes[i]);
        cr_assert_eq(run(command), 0);
        expect(MANY " 2>&1", 0, "written to out.jsonl");
        cr_expect_eq(run("cmp out.jsonl whole"), 0, "%d bytes: %s", sizes[i], output);
    }
    expect(MANY " 2>&1", 0, "0 results written");
    cr_assert_eq(run("rm out.jsonl*; for i in $(seq 400); do cat in.jsonl; done > more && "
                     "mv more in.jsonl"),
                 0);
    (void)run("(" MANY " >/dev/null 2>&1 & p=$!; while [ ! -s out.jsonl ] && kill -0 $p; do "
              "sleep 0.02; done; kill -9 $p; wait $p) 2>/dev/null");
    expect(MANY " 2>&1", 0, "written to out.jsonl");
    expect_count("wc -l < out.jsonl", "6000");
    expect_count("sort -u out.jsonl | wc -l", "6000");
}

Test(generate_prompts, begun_with_other_settings_are_refused)
{
    expect(MANY " 2>&1", 0, "15 results");
    expect(MANY " --seed 9 2>&1", 2, "out.jsonl was begun with seed 42, and now it is 9");
    cr_assert_eq(run("echo '\"more\"' >> in.jsonl"), 0);
    expect(MANY " 2>&1", 2,
           "out.jsonl was begun with other prompts than those that in.jsonl holds now: restore "
           "the file of prompts to go on, or choose another --output");
    cr_assert_eq(run("echo mine > other.jsonl"), 0);
    expect(LATHE " generate base --prompts in.jsonl -o other.jsonl 2>&1", 2,
           "other.jsonl exists and is no file that lathe generate --prompts has begun");
    expect("cat other.jsonl", 0, "mine");
}

Test(generate_prompts, may_begin_with_a_byte_order_mark)
{
    put("in.jsonl", "\xef\xbb\xbf\"a text\"\n");
    expect(LATHE " generate base --prompts in.jsonl -o out.jsonl --max-new-tokens 2 2>&1", 0,
           "1 result");
}

Test(generate_prompts, that_are_wrong_are_named_by_file_and_line)
{
    static const struct {
        const char *line, *want;
    } bad[] = {
        {"{\"text\": 1}", "in.jsonl:2: expected {\"prompt\": \"text\"}"},
        {"{\"prompt\": ", "in.jsonl:2"},
        {"{\"ids\": []}", "in.jsonl:2: \"ids\" is empty"},
        {"{\"ids\": [1, \"a\"]}", "in.jsonl:2: \"ids\" holds a value that is no token id"},
        {"{\"ids\": [1, 99999]}", "in.jsonl:2: token 1 of the prompt is 99999; expected 0 to"},
        {"{\"messages\": []}", "in.jsonl:2: the list of messages is empty"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "\"fine\"\n%s\n", bad[i].line);
        put("in.jsonl", text);
        (void)run("rm -f out.jsonl*");
        cr_expect_neq(run(LATHE " generate base --prompts in.jsonl -o out.jsonl" HOW " 2>&1"), 0);
        cr_expect(strstr(output, bad[i].want), "%s: %s", bad[i].line, output);
        cr_expect_neq(access("out.jsonl", F_OK), 0, "a line was answered before all were read");
    }
    /* the repaired file is answered as if nothing had happened */
    put("in.jsonl", "\"fine\"\n\"too\"\n");
    expect(LATHE " generate base --prompts in.jsonl -o out.jsonl" HOW " 2>&1", 0, "2 results");
    expect(LATHE " generate base --prompts gone.jsonl -o out.jsonl 2>&1", 1,
           "gone.jsonl: cannot read");
    expect(LATHE " generate base --prompts in.jsonl 2>&1", 2, "--prompts needs --output");
    expect(LATHE " generate base --prompts in.jsonl -o - 2>&1", 2, "--output is \"-\"");
    expect(LATHE " generate base --prompt x --samples 2 2>&1", 2, "--samples needs --prompts");
    expect("mkfifo pipe && " LATHE " generate base --prompts pipe -o out.jsonl 2>&1", 2,
           "pipe: expected a regular file");
    expect("printf 'PAR1\\025\\004\\025' >in.parquet; " LATHE
           " generate base --prompts in.parquet -o none.jsonl 2>&1",
           2, "in.parquet: expected JSON lines, and this is a binary file (byte 4 is 0x15)");
    cr_expect_neq(access("none.jsonl", F_OK), 0);
}

Test(generate_prompts, of_a_conversation_are_checked_before_the_model_is_opened)
{
    static const struct {
        const char *text, *want;
    } bad[] = {{"[]", "talk.json: the list of messages is empty"},
               {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tool\": []}",
                "talk.json: unknown key \"tool\"; expected messages, tools"},
               {"{\"text\": 1}", "talk.json: unknown key \"text\""}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("talk.json", bad[i].text);
        expect(LATHE " generate base --messages talk.json 2>&1", 2, bad[i].want);
        cr_expect_null(strstr(output, "computes in"), "%s", output);
    }
}

/* Expects that the conversation talk.json is answered as if `text` were the prompt. */
static void expect_rendered(const char *settings, const char *text)
{
    static char want[4096], command[1024];
    (void)snprintf(command, sizeof command, LATHE " generate base --prompt '%s'" HOW " 2>/dev/null",
                   text);
    cr_assert_eq(run(command), 0, "%s", output);
    strcpy(want, output + strlen(text));
    (void)snprintf(command, sizeof command,
                   LATHE " generate base --messages talk.json %s" HOW " 2>/dev/null", settings);
    cr_assert_eq(run(command), 0, "%s", output);
    cr_expect_str_eq(output, want, "%s", settings);
}

Test(generate_prompts, of_a_conversation_are_rendered_with_data_chat_template)
{
    put("talk.json", "[{\"role\": \"user\", \"content\": \"a\"}]");
    put("mine.jinja", "{% for m in messages %}[{{ m.content }}]{% endfor %}"
                      "{{ ' thinks' if think }}{{ ' says' if add_generation_prompt }}");
    expect_rendered("", "<user>a</><assistant>");
    expect_rendered("--data.chat_template mine.jinja", "[a] says");
    expect_rendered("--data.chat_template mine.jinja "
                    "--data.chat_template_kwargs '{think = true}'",
                    "[a] thinks says");
    expect(LATHE " generate base --messages talk.json --data.chat_template no.jinja 2>&1", 2,
           "data.chat_template: no such file or folder: no.jinja");
}

Test(generate_prompts, of_a_file_are_rendered_with_data_chat_template)
{
    put("mine.jinja", "{% for m in messages %}[{{ m.content }}]{% endfor %} says");
    put("in.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    put("text.jsonl", "{\"prompt\": \"[a] says\"}\n");
    expect(LATHE " generate base --prompts text.jsonl -o want.jsonl" HOW " 2>&1", 0, "1 result");
    expect(LATHE
           " generate base --prompts in.jsonl -o out.jsonl --data.chat_template mine.jinja" HOW
           " 2>&1",
           0, "1 result");
    cr_expect_eq(run("cmp out.jsonl want.jsonl"), 0, "%s", output);
    expect(LATHE " generate base --prompts in.jsonl -o out.jsonl" HOW " 2>&1", 2,
           "out.jsonl was begun with chat_template");
}

Test(generate_prompts, that_end_with_the_assistant_are_continued)
{
    static char want[4096];
    put("talk.json", "[{\"role\": \"user\", \"content\": \"a\"}, "
                     "{\"role\": \"assistant\", \"content\": \"the cat\"}]");
    cr_assert_eq(
        run(LATHE " generate base --prompt '<user>a</><assistant>the cat'" HOW " 2>/dev/null"), 0);
    strcpy(want, output + strlen("<user>a</><assistant>the cat"));
    cr_assert_eq(run(LATHE " generate base --messages talk.json" HOW " 2>/dev/null"), 0);
    cr_expect_str_eq(output, want);
}

/* Makes the folder "base" one of ChatML: <|im_start|> is token 1, <|im_end|> token 2. */
static void make_chatml(void)
{
    char text[2048];
    const char *at = strstr(base_file, "vocab_size = 300");
    (void)snprintf(text, sizeof text,
                   "%.*s, special_tokens = [\"<|endoftext|>\", \"<|im_start|>\", "
                   "\"<|im_end|>\"]%s",
                   (int)(at - base_file) + 16, base_file, at + 16);
    put("base.toml", text);
    cr_assert_eq(run("rm -r base first"), 0, "%s", output);
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint first/step-00000004");
    cr_assert_eq(run("mv first/step-00000004 base"), 0, "%s", output);
    put("base/chat_template.jinja",
        "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + "
        "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant\\n' }}{% endif %}");
}

Test(generate_prompts, with_the_name_of_a_special_token_in_a_message_keep_it_as_text)
{
    make_chatml();
    put("in.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a<|im_end|>b\"}]}\n");
    put("talk.json", "[{\"role\": \"user\", \"content\": \"a<|im_end|>b\"}]");
    cr_assert_eq(run("ids() { printf \"$1\" | " LATHE " tokenizer encode base --no-added | "
                     "tr ' ' ','; }; "
                     "echo \"{\\\"ids\\\": [1,$(ids 'user\\na<|im_end|>b'),2,$(ids '\\n'),1,"
                     "$(ids 'assistant\\n')]}\" > ids.jsonl"),
                 0, "%s", output);
    expect(LATHE " generate base --prompts in.jsonl -o out.jsonl --logprobs" HOW " 2>&1", 0,
           "1 result");
    expect(LATHE " generate base --prompts ids.jsonl -o want.jsonl --logprobs" HOW " 2>&1", 0,
           "1 result");
    cr_expect_eq(run("cat ids.jsonl; cmp out.jsonl want.jsonl"), 0, "%s", output);
    /* --messages and chat give the same text; the seed of a line is another, so without drawing */
    cr_assert_eq(run(LATHE " generate base --messages talk.json --temperature 0 --max-new-tokens 8 "
                           "--data.seq_len 64 --train.precision fp32 >one.txt 2>/dev/null && "
                           "echo 'a<|im_end|>b' | " LATHE
                           " chat base --temperature 0 --max-new-tokens 8 --data.seq_len 64 "
                           "--train.precision fp32 >two.txt 2>/dev/null && cmp one.txt two.txt"),
                 0, "%s", output);
}

Test(generate_prompts, of_a_conversation_that_the_template_leaves_empty_are_refused)
{
    put("base/chat_template.jinja", "{% for m in messages %}{% endfor %}");
    put("in.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    expect(LATHE " generate base --prompts in.jsonl -o out.jsonl" HOW " 2>&1", 2,
           "in.jsonl:1: the chat template writes no text for this conversation, so there is "
           "nothing to answer");
}

Test(generate_prompts, samples_that_can_only_be_equal_are_a_warning)
{
    put("in.jsonl", "\"the cat\"\n");
#define SOME LATHE " generate base --prompts in.jsonl --max-new-tokens 3 --ignore-eos "
    expect(SOME "-o a.jsonl --temperature 0 --samples 4 2>&1", 0,
           "lathe: warning: --samples 4: all samples of a prompt will be the same, because the "
           "likeliest token is taken each time (temperature 0); to draw different ones, set "
           "--temperature 1\n");
    expect(SOME "-o b.jsonl --temperature 1 --top-k 1 --samples 2 2>&1", 0,
           "because top_k is 1; to draw different ones, set --top-k 0\n");
    expect(SOME "-o c.jsonl --temperature 1 --samples 2 2>&1", 0, "2 results");
    cr_expect_null(strstr(output, "warning"), "%s", output);
    expect(SOME "-o d.jsonl --temperature 0 2>&1", 0, "1 result");
    cr_expect_null(strstr(output, "warning"), "%s", output);
    /* the model's own file asks for the likeliest token */
    put("base/generation_config.json", "{\"do_sample\": false}");
    expect(SOME "-o e.jsonl --samples 2 2>&1", 0, "all samples of a prompt will be the same");
#undef SOME
}
