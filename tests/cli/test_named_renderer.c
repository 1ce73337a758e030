/* A renderer that is named is compared with the tokenizer: validate and train warn once if no token
 * ends an answer. */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define MISSING                                                                                    \
    "renderer.name = \"llama3\" writes <|start_header_id|>, <|end_header_id|> and <|eot_id|>, "    \
    "which are no special tokens of the tokenizer: they become ordinary text, so no token ends "   \
    "an answer; name the renderer of the tokenizer's family (lathe ls renderer)"

static const char base_file[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 32\n"
                                "intermediate_size = 64\nnum_hidden_layers = 1\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 512\n"
                                "[tokenizer]\ntrain = { vocab_size = 300 }\n"
                                "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                                "[train]\nprecision = \"fp32\"\nmax_steps = 1\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"first\"\n";
static const char run_file[] = "[model]\npath = \"base\"\n[renderer]\nname = \"llama3\"\n"
                               "[data]\ndatasets = [{ path = \"talk.jsonl\" }]\nseq_len = 500\n"
                               "[stage]\nname = \"sft\"\n"
                               "[train]\nprecision = \"fp32\"\nmax_steps = 1\nthreads = 1\n"
                               "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"out\"\n";

static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put_times("talk.jsonl",
              "{\"messages\": [{\"role\": \"user\", \"content\": \"the cat\"}, {\"role\": "
              "\"assistant\", \"content\": \"sat on\"}]}\n",
              8);
    put("base.toml", base_file);
    put("run.toml", run_file);
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint first/step-00000001");
    cr_assert_eq(run("mv first/step-00000001 base"), 0);
}

TestSuite(named_renderer, .init = setup, .fini = remove_folder, .timeout = 120);

/* How often `text` is in the output. */
static int count(const char *text)
{
    int n = 0;
    for (const char *at = output; (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

Test(named_renderer, without_a_token_for_the_end_of_an_answer_is_warned_of_once)
{
    expect(LATHE " validate run.toml 2>&1", 0, "run.toml:4");
    cr_expect_eq(count(MISSING), 1, "%s", output);
    expect(LATHE " train run.toml 2>&1", 0, "step-00000001");
    cr_expect_eq(count(MISSING), 1, "%s", output);
}

/* Zephyr's roles are plain text in most tokenizers of the family; its eos_token ends an answer. */
Test(named_renderer, whose_roles_alone_are_text_is_fine)
{
    static const char *const names[] = {"zephyr", "vicuna"};
    char command[256];
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(command, sizeof command, LATHE " validate run.toml --renderer.name %s 2>&1",
                       names[i]);
        expect(command, 0, "");
        cr_expect_eq(count("special token"), 0, "%s", output);
        cr_expect_eq(count("eos_token"), 0, "%s", output);
    }
    expect("sed -i '/eos_token/d' base/tokenizer_config.json; "
           "rm -f base/special_tokens_map.json; cat base/tokenizer_config.json",
           0, "");
    expect(LATHE " validate run.toml --renderer.name vicuna 2>&1", 0,
           "renderer.name = \"vicuna\" ends an answer with the eos_token, and the tokenizer's "
           "folder names none, so nothing ends an answer");
}
