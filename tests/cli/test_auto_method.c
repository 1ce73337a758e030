/* Commands that read the checkpoint of a run file with adapter.name = "auto". */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static const char base_file[] = "[model]\nmodel_type = \"llama\"\nvocab_size = 260\n"
                                "hidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = 3\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                                "[tokenizer]\npath = \"bytes\"\n"
                                "[data]\ndatasets = [{ path = \"text.jsonl\" }]\nseq_len = 32\n"
                                "[train]\nmax_steps = 1\nprecision = \"fp32\"\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"base\"\n";

static const char auto_file[] = "[model]\npath = \"base/step-00000001\"\n"
                                "[adapter]\nname = \"auto\"\n"
                                "[tokenizer]\npath = \"bytes\"\n"
                                "[data]\ndatasets = [{ path = \"text.jsonl\" }]\nseq_len = 32\n"
                                "validation_count = 1\n[optimizer]\nlr = 0.05\n"
                                "[train]\nmax_steps = 8\nprecision = \"fp32\"\nthreads = 1\n"
                                "[generate]\nprompt = \"the\"\nmax_new_tokens = 8\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"out\"\n";

static void setup(void)
{
    make_folder();
    put_times("text.jsonl", "{\"text\": \"the wheel turns and the tool holds\"}\n", 40);
    put("base.toml", base_file);
    put("auto.toml", auto_file);
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint");
}

TestSuite(auto_method, .init = setup, .fini = remove_folder, .timeout = 120);

/* The methods that "auto" would have chosen with less and less memory. */
static const struct {
    const char *name, *settings;
} methods[] = {
    {"full", "--adapter.name full"},
    {"freeze", "--adapter.name freeze --adapter.layers 2"},
    {"lora", "--adapter.name lora --adapter.r 8 --adapter.alpha 8"},
    {"qlora", "--adapter.name qlora --adapter.r 8 --adapter.alpha 8 --quant.name nf4"},
};

Test(auto_method, is_read_from_the_checkpoint)
{
    static const char *const commands[] = {"eval auto.toml", "generate auto.toml",
                                           "chat auto.toml --renderer.name chatml </dev/null"};
    char command[400], want[100], text[sizeof output];
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        snprintf(command, sizeof command, "rm -rf out; " LATHE " train auto.toml %s 2>&1",
                 methods[i].settings);
        expect(command, 0, "checkpoint");
        snprintf(want, sizeof want, "adapter.name = \"auto\": \"%s\", as in out/step-00000008",
                 methods[i].name);
        for (size_t k = 0; k < sizeof commands / sizeof commands[0]; k++) {
            snprintf(command, sizeof command, LATHE " %s 2>&1", commands[k]);
            expect(command, 0, want);
        }
        expect(LATHE " generate auto.toml 2>/dev/null", 0, "the");
        snprintf(text, sizeof text, "%s", output);
        expect(LATHE " generate out --prompt the --max-new-tokens 8 --train.precision fp32 "
                     "2>/dev/null",
               0, "the");
        cr_expect_str_eq(output, text, "%s", methods[i].name);
    }
}

/* checkpoint.resume = "never" is about training. */
Test(auto_method, is_read_also_where_training_never_resumes)
{
    expect(LATHE " train auto.toml --adapter.name lora --adapter.r 8 --adapter.alpha 8 2>&1", 0,
           "checkpoint");
    expect(LATHE " generate auto.toml --checkpoint.resume never 2>&1", 0, "\"lora\", as in out/");
}
