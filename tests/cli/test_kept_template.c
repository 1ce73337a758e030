/* Folders that a run writes have the template of data.chat_template, and no other one. */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

#define SMALL                                                                                      \
    "[data]\ndatasets = [{ path = \"talk.jsonl\" }]\nseq_len = 300\n"                              \
    "chat_template = \"mine.jinja\"\n"                                                             \
    "[optimizer]\nlr = 0.01\n[stage]\nname = \"sft\"\n"                                            \
    "[train]\nprecision = \"fp32\"\nmax_steps = 2\nthreads = 1\n"                                  \
    "[log]\nprogress = \"off\"\n"

static const char base_file[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 32\n"
                                "intermediate_size = 64\nnum_hidden_layers = 1\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 512\n"
                                "[tokenizer]\ntrain = { vocab_size = 300 }\n"
                                "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                                "[train]\nprecision = \"fp32\"\nmax_steps = 1\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"first\"\n";
static const char run_file[] = "[model]\npath = \"base\"\n" SMALL "[checkpoint]\ndir = \"out\"\n";
static const char adapter_file[] = "[model]\npath = \"base\"\n[adapter]\nname = \"lora\"\n"
                                   "r = 2\n" SMALL "[checkpoint]\ndir = \"lora\"\n";
static const char mine[] = "{% for m in messages %}({{ m.role }}) {{ m.content }}{{ eos_token }}\n"
                           "{% endfor %}{% if add_generation_prompt %}(assistant) {% endif %}\n\n";

/* A base that has templates in each of the places where programs look for one. */
static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put_times("talk.jsonl",
              "{\"messages\": [{\"role\": \"user\", \"content\": \"the cat\"}, {\"role\": "
              "\"assistant\", \"content\": \"sat on\"}]}\n",
              8);
    put("mine.jinja", mine);
    put("base.toml", base_file);
    put("run.toml", run_file);
    put("lora.toml", adapter_file);
    cr_assert_eq(run("sed /chat_template/d run.toml > next.toml"), 0);
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint first/step-00000001");
    cr_assert_eq(run("mv first/step-00000001 base && mkdir base/additional_chat_templates"), 0);
    put("base/chat_template.jinja", "OLD");
    put("base/additional_chat_templates/tool_use.jinja", "OLD TOOLS");
    put("base/tokenizer_config.json",
        "{\n  \"eos_token\": \"<|endoftext|>\",\n  \"chat_template\": \"OLDEST {{ \\\"}\\\" }}\",\n"
        "  \"model_max_length\": 1000000000000000019884624838656\n}\n");
}

TestSuite(kept_template, .init = setup, .fini = remove_folder, .timeout = 240);

/* Expects that a folder has the given template and no other one. */
static void expect_template(const char *dir)
{
    char line[256];
    (void)snprintf(line, sizeof line, "cmp mine.jinja %s/chat_template.jinja 2>&1", dir);
    expect(line, 0, "");
    (void)snprintf(line, sizeof line, "ls %s/additional_chat_templates 2>&1", dir);
    expect(line, 2, "No such file");
    (void)snprintf(line, sizeof line, "cat %s/tokenizer_config.json", dir);
    expect(line, 0,
           "{\n  \"eos_token\": \"<|endoftext|>\",\n"
           "  \"model_max_length\": 1000000000000000019884624838656\n}\n");
    (void)snprintf(line, sizeof line, LATHE " chat-template %s --show talk.jsonl --n 1 2>&1", dir);
    expect(line, 0, "(user) the cat<|endoftext|>\n(assistant) -]sat on<|endoftext|>\n");
}

Test(kept_template, checkpoints_and_their_averages_have_it)
{
    expect(LATHE " data run.toml 2>&1", 0, "(user) the cat");
    expect(LATHE " train run.toml --train.weight_average ema 2>&1", 0, "step-00000002");
    expect_template("out/step-00000002");
    expect_template("out/step-00000002/average");
    expect(LATHE " data run.toml --model.path out/step-00000002 --data.chat_template '' 2>&1", 0,
           "(user) the cat");
    /* the next stage trains with it */
    expect(LATHE " data next.toml --model.path out/step-00000002 2>&1", 0, "(user) the cat");
}

Test(kept_template, adapters_and_what_is_merged_have_it)
{
    expect(LATHE " train lora.toml 2>&1", 0, "step-00000002");
    expect_template("lora/step-00000002");
    expect(LATHE " merge base lora -o merged 2>&1", 0, "merged");
    expect_template("merged");
    expect(LATHE " quantize merged --quant.name nf4 -o small 2>&1", 0, "");
    expect_template("small");
    expect(LATHE " convert merged -o m.gguf 2>&1", 0, "");
    expect(LATHE " chat-template m.gguf --show talk.jsonl --n 1 2>&1", 0, "(user) the cat");
}

Test(kept_template, adapters_with_different_ones_give_a_warning)
{
    expect(LATHE " train lora.toml 2>&1", 0, "step-00000002");
    expect(LATHE " merge base lora lora -o same 2>&1", 0, "same");
    cr_expect_null(strstr(output, "different chat templates"), "%s", output);
    put("yours.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                       "{% if add_generation_prompt %}assistant: {% endif %}");
    expect(LATHE " train lora.toml --data.chat_template yours.jinja --checkpoint.dir other 2>&1", 0,
           "step-00000002");
    expect(LATHE " merge base lora other -o merged 2>&1", 0,
           "lora/step-00000002 and other/step-00000002 have different chat templates "
           "(chat_template.jinja); the new folder has that of the first");
    expect_template("merged");
}

Test(kept_template, of_raw_bytes_is_beside_the_adapter)
{
    expect(LATHE " train lora.toml --tokenizer.path bytes 2>&1", 0, "step-00000002");
    expect("ls lora/step-00000002", 0, "chat_template.jinja");
    put("ask.json", "[{\"role\": \"user\", \"content\": \"the cat\"}]");
    expect("rm base/chat_template.jinja && mv base/tokenizer_config.json . && " LATHE
           " generate lora --messages ask.json --max-new-tokens 2 --temperature 0 2>&1",
           0, "");
    expect(LATHE " merge base lora -o merged 2>&1", 0, "merged");
    expect("cmp mine.jinja merged/chat_template.jinja", 0, "");
}

Test(kept_template, a_folder_gives_both_its_templates)
{
    cr_assert_eq(run("mkdir -p both/additional_chat_templates && cp mine.jinja "
                     "both/chat_template.jinja"),
                 0);
    put("both/additional_chat_templates/tool_use.jinja", "TOOLS\n");
    expect(LATHE " train run.toml --data.chat_template both 2>&1", 0, "step-00000002");
    expect("cat out/step-00000002/additional_chat_templates/tool_use.jinja", 0, "TOOLS\n");
    /* a run that is given none passes on what it read */
    expect(LATHE " train next.toml --model.path out/step-00000002 --checkpoint.dir next 2>&1", 0,
           "step-00000002");
    expect("cmp next/step-00000002/additional_chat_templates/tool_use.jinja "
           "out/step-00000002/additional_chat_templates/tool_use.jinja",
           0, "");
}

/* An adapter's tokenizer without a template replaces tokenizer_config.json of the model, whose
 * templates become files. */
Test(kept_template, of_a_model_is_not_lost_with_its_tokenizer)
{
    expect(LATHE " train lora.toml 2>&1", 0, "step-00000002");
    cr_assert_eq(run("mkdir peft && cd lora/step-00000002 && cp adapter_* tokenizer.json ../../peft"
                     " && rm -r ../../base/chat_template.jinja "
                     "../../base/additional_chat_templates"),
                 0);
    put("peft/tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}");
    expect(LATHE " merge base peft -o one 2>&1", 0, "merged");
    expect("cat one/chat_template.jinja", 0, "OLDEST {{ \"}\" }}");
    expect("cat one/tokenizer_config.json", 0, "{\"eos_token\": \"<|endoftext|>\"}");
    put("base/tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"D\"}, {\"name\": "
        "\"tool_use\", \"template\": \"T\"}]}");
    expect(LATHE " merge base peft -o two 2>&1", 0, "merged");
    expect("cat two/chat_template.jinja two/additional_chat_templates/tool_use.jinja", 0, "DT");
}
