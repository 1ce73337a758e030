/* lathe generate writes a text while it is generated. */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define GENERATE LATHE " generate base --prompt 'the cat' --temperature 0 --ignore-eos "

static const char base_file[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 32\n"
                                "intermediate_size = 64\nnum_hidden_layers = 2\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 100000\n"
                                "[tokenizer]\npath = \"bytes\"\n"
                                "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                                "[optimizer]\nlr = 0.02\n"
                                "[train]\nprecision = \"fp32\"\nmax_steps = 12\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"first\"\n";

static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put("base.toml", base_file);
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint first/step-00000012");
    cr_assert_eq(run("mv first/step-00000012 base"), 0);
}

TestSuite(generate_stream, .init = setup, .fini = remove_folder, .timeout = 120);

/* All 90,000 tokens would take minutes; the text is stopped as soon as some of it is in the file.
 */
Test(generate_stream, what_is_written_stays_when_it_is_stopped)
{
    cr_assert_eq(run(GENERATE "--max-new-tokens 20 2>/dev/null > whole.txt"), 0);
    expect("sh -c ': >part.txt; " LATHE
           " generate base --prompt \"the cat\" --temperature 0 --ignore-eos "
           "--max-new-tokens 90000 --data.seq_len 100000 2>log >part.txt & p=$!; "
           "while [ $(wc -c <part.txt) -le 40 ] && kill -0 $p; do sleep 0.05; done; "
           "kill -TERM $p; wait $p'",
           143, "");
    cr_expect_eq(run("cut -c1-12 whole.txt | head -n 1 > a; cut -c1-12 part.txt | head -n 1 > b; "
                     "test -s a && cmp a b"),
                 0, "%s", output);
    cr_expect_eq(run("test $(wc -c < part.txt) -gt 12"), 0);
}

/* An answer that ends at once printed an empty line, and looked like a failure. */
Test(generate_stream, an_answer_without_text_is_told)
{
    put("base/chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
    put("talk.json", "[{\"role\": \"user\", \"content\": \"the cat\"}]");
    expect(LATHE " generate base --messages talk.json --temperature 0 --max-new-tokens 4 "
                 "--generate.stop '[\" \", \"s\", \"t\", \"a\", \"e\", \"i\", \"o\", \"w\", \"f\", "
                 "\"c\", \"h\", \"n\", \"m\", \".\"]' 2>&1",
           0, "lathe: the answer has no text: it begins with a stop string");
}

Test(generate_stream, settings_of_a_training_are_a_warning)
{
    expect(GENERATE "--max-new-tokens 2 --optimizer.lr 3 2>&1", 0,
           "lathe: warning: optimizer.lr has no effect: nothing is trained");
    expect(LATHE " eval base --data text.txt --train.max_steps 3 2>&1", 0,
           "train.max_steps has no effect: nothing is trained");
    expect(GENERATE "--max-new-tokens 2 --train.precision fp32 2>&1 | grep -c 'no effect'", 1, "0");
}

/* A stop string is held back until it is known not to come. */
Test(generate_stream, the_text_is_that_of_a_file_of_prompts)
{
    static const char *const more[] = {"", "--generate.stop '[\"mat\"]'",
                                       "--generate.stop '[\"at o\", \"zzz\"]'"};
    put("prompts.jsonl", "{\"prompt\": \"the cat\"}\n");
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        char command[1024];
        (void)snprintf(command, sizeof command,
                       LATHE " generate base --prompts prompts.jsonl -o %zu.jsonl --ignore-eos "
                             "--max-new-tokens 24 --temperature 0 %s 2>&1 && " GENERATE
                             "--max-new-tokens 24 %s 2>/dev/null > %zu.txt",
                       i, more[i], more[i], i);
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
        (void)snprintf(command, sizeof command,
                       "sed 's/.*\"text\": \"\\(.*\\)\", \"tokens\".*/the cat\\1/' %zu.jsonl | "
                       "sed 's/\\\\n/\\n/g' | cmp - %zu.txt",
                       i, i);
        cr_expect_eq(run(command), 0, "%s: %s", more[i], output);
    }
}

/* Standard output and the notes may share a pipe: a note begins a line of its own. */
Test(generate_stream, notes_begin_after_the_end_of_the_text)
{
    expect(GENERATE "--max-new-tokens 40 --data.seq_len 24 2>&1 | cat", 0,
           "\nlathe: the text ends because the context of 24 tokens is full");
    cr_expect_eq(strncmp(output, "the cat", 7), 0, "%s", output);
}
