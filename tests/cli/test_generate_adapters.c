/* lathe generate and lathe chat with several adapters over one base: each gives the bits that its
 * folder gives alone. */
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

#define ADAPTER(keys, dir)                                                                         \
    "[model]\npath = \"base\"\n[adapter]\n" keys "\n"                                              \
    "[data]\ndatasets = [{ path = \"other.txt\" }]\nseq_len = 16\n[optimizer]\nlr = 0.05\n"        \
    "[train]\nprecision = \"fp32\"\nmax_steps = 3\nthreads = 1\n"                                  \
    "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"" dir "\"\n"

/* Methods, ranks, targets and replaced modules that differ. */
static const char one_file[] =
    ADAPTER("name = \"lora\"\nr = 4\nalpha = 16.0\ntarget_modules = [\"q_proj\", \"down_proj\"]\n"
            "rank_pattern = { down_proj = 2 }",
            "one");
static const char two_file[] =
    ADAPTER("name = \"dora\"\nr = 2\nalpha = 8.0\ntarget_modules = [\"embed_tokens\", \"v_proj\"]\n"
            "modules_to_save = [\"norm\"]",
            "two");
static const char three_file[] =
    ADAPTER("name = \"lora\"\nr = 2\nalpha = 8.0\ntarget_modules = [\"v_proj\", \"lm_head\"]\n"
            "modules_to_save = [\"o_proj\"]",
            "three");

static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put_times("other.txt", "a dog ran by and never came back to the old barn again.\n", 40);
    put("base.toml", base_file);
    put("one.toml", one_file);
    put("two.toml", two_file);
    put("three.toml", three_file);
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint first/step-00000004");
    cr_assert_eq(run("mv first/step-00000004 base"), 0);
    put("base/chat_template.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>"
                                    "{% endfor %}{{ '<assistant>' if add_generation_prompt }}");
    put("in.jsonl", "{\"prompt\": \"the cat\", \"id\": 7, \"adapter\": \"one\"}\n\n\"sat on\"\n"
                    "{\"prompt\": \"a dog\", \"adapter\": \"two\"}\n"
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
                    "\"adapter\": \"base\"}\n"
                    "{\"ids\": [5, 6, 7], \"adapter\": \"one\"}\n"
                    "{\"prompt\": \"\", \"adapter\": null}\n");
}

static void train(const char *settings)
{
    static const char *const names[] = {"one", "two", "three"};
    for (int i = 0; i < 3; i++) {
        char command[512];
        (void)snprintf(command, sizeof command, LATHE " train %s.toml %s 2>&1", names[i], settings);
        expect(command, 0, "step-00000003");
        (void)snprintf(command, sizeof command, "cp base/chat_template.jinja %s/step-00000003/",
                       names[i]);
        cr_assert_eq(run(command), 0);
    }
}

TestSuite(generate_adapters, .init = setup, .fini = remove_folder, .timeout = 240);

#define ALL " --adapter one=one --adapter two=two/step-00000003 --adapter three=three"
#define HOW " --max-new-tokens 20 --temperature 1 --data.seq_len 48 --ignore-eos "

/* Expects each line of out.jsonl to be that of the adapter's folder alone. */
static void expect_alone(const char *how)
{
    static const char *const names[] = {"one", "two", "three", "base"};
    for (int i = 0; i < 4; i++) {
        char command[1024];
        (void)snprintf(command, sizeof command,
                       LATHE " generate %s --prompts in.jsonl -o %s.jsonl --samples 3 "
                             "--logprobs %s 2>&1",
                       names[i], names[i], how);
        expect(command, 0, "written to");
        (void)snprintf(command, sizeof command,
                       "grep '\"adapter\": \"%s\"' out.jsonl | sed 's/ \"adapter\": \"%s\",//' > "
                       "got && test -s got && cut -c1-30 got > keys && "
                       "cut -d, -f1-2 got | while read k; do grep -F \"$k\" %s.jsonl; done > want; "
                       "cmp got want",
                       names[i], names[i], names[i]);
        cr_expect_eq(run(command), 0, "%s: %s", names[i], output);
    }
}

Test(generate_adapters, have_the_bits_of_their_folders_alone)
{
    train("");
    expect(LATHE " generate base" ALL " --prompts in.jsonl -o out.jsonl --samples 3 --logprobs" HOW
                 " 2>&1",
           0, "18 results written");
    expect("cut -d, -f1,2 out.jsonl | uniq | wc -l", 0, "18");
    expect_alone(HOW);
    /* the bits do not depend on how many are continued at a time, nor on the windows */
    cr_assert_eq(run("mv out.jsonl whole; rm out.jsonl.settings.json"), 0);
    expect(LATHE " generate base" ALL " --prompts in.jsonl -o out.jsonl --samples 3 --logprobs"
                 " --generate.batch 2" HOW " 2>&1",
           0, "18 results");
    cr_expect_eq(run("cmp out.jsonl whole"), 0, "%s", output);
}

Test(generate_adapters, have_the_bits_of_their_folders_alone_over_a_quantized_base_in_bf16)
{
    static const char how[] = HOW "--train.precision bf16";
    char command[1024];
    train("--quant.name nf4 --train.precision bf16");
    (void)snprintf(command, sizeof command,
                   LATHE " generate base" ALL " --prompts in.jsonl -o out.jsonl --samples 3 "
                         "--logprobs %s 2>&1",
                   how);
    expect(command, 0, "18 results written");
    /* the base alone is not quantized, and is here */
    cr_assert_eq(run("rm -r first; mv base full; ln -s full base"), 0);
    static const char *const names[] = {"one", "two", "three"};
    for (int i = 0; i < 3; i++) {
        (void)snprintf(command, sizeof command,
                       LATHE " generate %s --prompts in.jsonl -o %s.jsonl --samples 3 "
                             "--logprobs %s 2>&1",
                       names[i], names[i], how);
        expect(command, 0, "written to");
        (void)snprintf(command, sizeof command,
                       "grep '\"adapter\": \"%s\"' out.jsonl | sed 's/ \"adapter\": \"%s\",//' > "
                       "got && test -s got && cut -d, -f1-2 got | "
                       "while read k; do grep -F \"$k\" %s.jsonl; done > want; cmp got want",
                       names[i], names[i], names[i]);
        cr_expect_eq(run(command), 0, "%s: %s", names[i], output);
    }
}

/* More samples than a window of results holds. */
Test(generate_adapters, go_on_after_a_kill_without_duplicates)
{
    static const char many[] = LATHE " generate base" ALL " --prompts in.jsonl -o out.jsonl "
                                     "--samples 3 --logprobs --data.seq_len 48 --max-new-tokens 2"
                                     " --temperature 1 2>&1";
    static const int sizes[] = {0, 10, 900, 30000, 180000};
    train("");
    cr_assert_eq(run("for i in $(seq 80); do cat in.jsonl; done > more && mv more in.jsonl"), 0);
    expect(many, 0, "1440 results written");
    expect("sort -u out.jsonl | wc -l", 0, "1440");
    cr_assert_eq(run("cp out.jsonl whole"), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char command[128];
        (void)snprintf(command, sizeof command, "head -c %d whole > out.jsonl", sizes[i]);
        cr_assert_eq(run(command), 0);
        expect(many, 0, "written to out.jsonl");
        cr_expect_eq(run("cmp out.jsonl whole"), 0, "%d bytes: %s", sizes[i], output);
    }
}

Test(generate_adapters, continue_one_prompt_and_answer_conversations)
{
    static const char *const names[] = {"one", "two", "three", "base"};
    static char want[4096], command[1024];
    train("");
    put("talk.json", "[{\"role\": \"user\", \"content\": \"a\"}]");
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            const char *prompt = k ? "--messages talk.json" : "--prompt 'a dog'";
            (void)snprintf(command, sizeof command, LATHE " generate %s %s" HOW " 2>/dev/null",
                           names[i], prompt);
            cr_assert_eq(run(command), 0, "%s", output);
            strcpy(want, output);
            (void)snprintf(command, sizeof command,
                           LATHE " generate base" ALL " --use %s %s" HOW " 2>/dev/null", names[i],
                           prompt);
            cr_assert_eq(run(command), 0, "%s", output);
            cr_expect_str_eq(output, want, "%s: %s", names[i], prompt);
        }
    /* the last one, if none is named */
    cr_assert_eq(run(LATHE " generate three --prompt a" HOW " 2>/dev/null"), 0);
    strcpy(want, output);
    cr_assert_eq(run(LATHE " generate base" ALL " --prompt a" HOW " 2>/dev/null"), 0);
    cr_expect_str_eq(output, want);
    cr_assert_eq(run("(echo a; echo /clear; echo /adapter base; echo a) | " LATHE " chat base" ALL
                     " --use one --temperature 0 --max-new-tokens 8 2>/dev/null"),
                 0);
    strcpy(want, output);
    cr_assert_eq(run("for d in one base; do echo a | " LATHE
                     " chat $d --temperature 0 --max-new-tokens 8 --train.precision fp32 "
                     "2>/dev/null; done"),
                 0);
    cr_expect_str_eq(output, want);
    expect("echo /adapter x | " LATHE " chat base" ALL " 2>&1", 2,
           "no adapter is named \"x\"; expected one, two, three, or base");
    expect("echo /adapter x | " LATHE " chat base 2>&1", 2, "/adapter: there are none");
}

Test(generate_adapters, that_are_wrong_are_refused_with_one_error)
{
    static const struct {
        const char *options, *want;
    } bad[] = {
        {"--adapter one", "--adapter \"one\": expected NAME=FOLDER"},
        {"--adapter one=one --adapter one=two", "two adapters are named \"one\": one/"},
        {"--adapter base=one", "\"base\" names the model without an adapter"},
        {"--adapter 'a b=one'", "\"a b\" is no name of an adapter"},
        {"--adapter one=one --use two", "no adapter is named \"two\"; expected one, or base"},
        {"--use one", "--use names one of several adapters; add --adapter"},
        {"--adapter a=nowhere",
         "adapter a=nowhere: no such folder: nowhere; expected that of an adapter (--adapter)"},
        {"--adapter a=base", "adapter a=base: base has neither adapter_config.json"},
        {"--adapter a=empty", "adapter a=empty: empty has neither adapter_config.json"},
        {"--adapter o=other", "second, which has other weights than base"},
        {"--adapter one=", "--adapter \"one=\": the folder is missing; expected NAME=FOLDER"},
        {"--adapter one=one --model.adapter two",
         "model.adapter has no effect beside several adapters"},
        {"--adapter one=one --adapter.name lora",
         "adapter.name has no effect beside several adapters"},
        {"--adapter one=one --adapter q=quantized",
         "belongs to a base with quant.name = \"nf4\", and the one in one/step-00000003 to one "
         "with its default"},
        {"--adapter one=one --adapter p=pissa", "its init is \"pissa\", which changes the base"},
        {"--adapter w=wide --train.precision fp32", "the adapter in wide does not fit"},
        {"--adapter one=one --adapter t=text",
         "one/step-00000003 and text/step-00000003 have different tokenizer.json"},
    };
    train("");
    cr_assert_eq(run("mkdir empty; sed -e 's/\"base\"/\"second\"/' -e 's/\"one\"/\"other\"/' "
                     "one.toml > other.toml; cp -r two/step-00000003 wide; rm wide/manifest.json; "
                     "cp one/step-00000003/adapter_config.json wide/"),
                 0);
    expect(LATHE " train base.toml --model.seed 5 --checkpoint.dir b 2>&1 && "
                 "mv b/step-00000004 second",
           0, "checkpoint");
    expect(LATHE " train other.toml 2>&1", 0, "step-00000003");
    expect(LATHE " train one.toml --checkpoint.dir quantized --quant.name nf4 2>&1", 0, "step");
    expect(LATHE " train one.toml --checkpoint.dir pissa --adapter.init pissa 2>&1", 0, "step");
    cr_assert_eq(run("cp -r one text; sed 's/\"the\"/\"thf\"/' base/tokenizer.json > "
                     "text/step-00000003/tokenizer.json"),
                 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char command[512];
        (void)snprintf(command, sizeof command, LATHE " generate base %s --prompt a 2>&1",
                       bad[i].options);
        cr_expect_eq(run(command), 2, "%s: %s", bad[i].options, output);
        cr_expect(strstr(output, bad[i].want), "%s: %s", bad[i].options, output);
    }
    expect(LATHE " generate one --adapter a=two --prompt a 2>&1", 2, "one holds an adapter itself");
    expect(LATHE " generate one.toml --adapter a=two --prompt a 2>&1", 2, "one.toml: a run file");
    put("in.jsonl", "{\"prompt\": \"a\", \"adapter\": \"one\"}\n{\"prompt\": \"a\", "
                    "\"adapter\": \"six\"}\n");
    expect(LATHE " generate base" ALL " --prompts in.jsonl -o out.jsonl 2>&1", 2,
           "in.jsonl:2: \"adapter\": no adapter is named \"six\"; expected one, two, three, or "
           "base");
    put("in.jsonl", "{\"prompt\": \"a\", \"adapter\": 3}\n");
    expect(LATHE " generate base" ALL " --prompts in.jsonl -o out.jsonl 2>&1", 2,
           "in.jsonl:1: \"adapter\" is no text; expected a name");
    /* without --adapter it has no effect, which is said */
    expect(LATHE " generate base --prompts in.jsonl -o out.jsonl --max-new-tokens 2 2>&1", 0,
           "in.jsonl:1: \"adapter\" has no effect: the command has no --adapter NAME=FOLDER");
    put("in.jsonl", "\"a\"\n");
    cr_assert_eq(run("rm out.jsonl*"), 0);
    expect(LATHE " generate base --prompts in.jsonl -o out.jsonl --max-new-tokens 2 2>&1", 0,
           "1 result");
    expect(LATHE " generate base" ALL " --max-new-tokens 2 --prompts in.jsonl -o out.jsonl 2>&1", 2,
           "out.jsonl was begun with adapter one unset");
    cr_assert_eq(run("printf x >> one/step-00000003/adapter_model.safetensors"), 0);
    expect(LATHE " generate base" ALL " --prompt a 2>&1", 1, "adapter_model.safetensors");
}
