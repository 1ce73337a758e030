/* A folder remembers the renderer of its training: generate, chat, eval and chat-template use it,
 * and so do an adapter's folder and merged folders. */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

#define SMALL                                                                                      \
    "[data]\ndatasets = [{ path = \"talk.jsonl\" }]\nseq_len = 300\n"                              \
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
static const char run_file[] = "[model]\npath = \"base\"\n[renderer]\nname = \"vicuna\"\n" SMALL
                               "[checkpoint]\ndir = \"out\"\n";
static const char adapter_file[] =
    "[model]\npath = \"base\"\n[renderer]\nname = \"vicuna\"\n"
    "[adapter]\nname = \"lora\"\nr = 2\n" SMALL "[checkpoint]\ndir = \"lora\"\n";

/* A base without a chat template. */
static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put_times("talk.jsonl",
              "{\"messages\": [{\"role\": \"user\", \"content\": \"the cat\"}, {\"role\": "
              "\"assistant\", \"content\": \"sat on\"}]}\n",
              8);
    put("ask.json", "[{\"role\": \"user\", \"content\": \"the cat\"}]");
    put("base.toml", base_file);
    put("run.toml", run_file);
    put("lora.toml", adapter_file);
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint first/step-00000001");
    cr_assert_eq(run("mv first/step-00000001 base"), 0);
}

TestSuite(kept_renderer, .init = setup, .fini = remove_folder, .timeout = 240);

#define HOW " --max-new-tokens 4 --temperature 0 --data.seq_len 400 "
#define ASK HOW "--messages ask.json 2>&1"
#define SAYS(of) "conversations are written by renderer vicuna, as " of " was trained"

/* Expects that a command's answer is the same with the renderer given. */
static void expect_same(const char *command)
{
    char line[512], kept[4096];
    (void)snprintf(line, sizeof line, "%s 2>/dev/null", command);
    cr_expect_eq(run(line), 0, "%s", line);
    cr_assert_lt(strlen(output), sizeof kept);
    strcpy(kept, output);
    (void)snprintf(line, sizeof line, "%s --renderer.name vicuna 2>/dev/null", command);
    cr_expect_eq(run(line), 0, "%s", line);
    cr_expect_str_eq(output, kept, "%s", command);
    cr_expect_gt(strlen(kept), 0, "%s", command);
}

Test(kept_renderer, a_run_s_folder_is_used_with_it)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000002");
    expect(LATHE " generate out" ASK, 0, SAYS("out/step-00000002"));
    expect(LATHE " generate out/step-00000002" ASK, 0, SAYS("out/step-00000002"));
    expect("echo the cat | " LATHE " chat out" HOW "2>&1", 0, SAYS("out/step-00000002"));
    expect(LATHE " eval out --data talk.jsonl 2>&1", 0, SAYS("out/step-00000002"));
    expect_same(LATHE " generate out --messages ask.json" HOW);
    expect_same(LATHE " eval out --data talk.jsonl --json");
    expect(LATHE " chat-template out", 0, "renderer: vicuna: the folder was trained with it");
    expect(LATHE " chat-template out --show talk.jsonl --n 1", 0, "USER: the cat ASSISTANT:");
}

Test(kept_renderer, the_command_line_has_priority)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000002");
    expect(LATHE " generate out --renderer.name chatml" ASK, 0, "");
    cr_expect_null(strstr(output, "vicuna"), "%s", output);
    expect(LATHE " generate out --renderer.name jinja" ASK, 2,
           "a conversation needs a chat template");
    expect(LATHE " generate out --renderer.name auto" ASK, 2,
           "a conversation needs a chat template");
    expect(LATHE " chat-template out --renderer chatml", 0,
           "renderer: chatml: named on the command line");
    /* the folder's template, which the run did not use */
    put("out/step-00000002/chat_template.jinja", "{{ messages[0].content }}");
    expect(LATHE " chat-template out", 0, "renderer: vicuna");
    expect(LATHE " chat-template out --renderer jinja", 0, "renderer: jinja");
}

Test(kept_renderer, an_adapter_and_what_is_merged_have_it)
{
    expect(LATHE " train lora.toml 2>&1", 0, "step-00000002");
    expect(LATHE " generate lora" ASK, 0, SAYS("lora/step-00000002"));
    expect(LATHE " generate base --adapter a=lora" ASK, 0, SAYS("lora/step-00000002"));
    expect(LATHE " chat-template lora", 0, "renderer: vicuna");
    expect(LATHE " merge base lora -o merged 2>&1", 0, "merged");
    expect(LATHE " generate merged" ASK, 0, SAYS("merged"));
    expect(LATHE " chat-template merged", 0, "renderer: vicuna");
    expect(LATHE " quantize merged --quant.name nf4 -o small 2>&1", 0, "");
    expect(LATHE " generate small" ASK, 0, SAYS("small"));
    /* adapters that were trained with another renderer do not share a base's prompts */
    expect(LATHE " train lora.toml --renderer.name alpaca --checkpoint.dir other 2>&1", 0, "step");
    expect(LATHE " generate base --adapter a=lora --adapter b=other" ASK, 2,
           "the adapter in lora/step-00000002 was trained with renderer.name = \"vicuna\", and the "
           "one in other/step-00000002 with \"alpaca\": name the renderer of all prompts with "
           "renderer.name");
    expect(LATHE " generate base --adapter a=lora --adapter b=other --renderer.name vicuna" ASK, 0,
           "");
    expect(LATHE " merge base lora other -o both 2>&1", 0,
           "the adapters were trained with different renderers");
    expect(LATHE " generate both" ASK, 2, "a conversation needs a chat template");
}

/* A run file that begins with the model or the adapter of another run, without a renderer. */
#define NEXT SMALL "[checkpoint]\ndir = \"second\"\n"

Test(kept_renderer, the_next_run_trains_with_it)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000002");
    put("next.toml", "[model]\npath = \"out/step-00000002\"\n" NEXT);
    expect(LATHE " validate next.toml 2>&1", 0,
           SAYS("out/step-00000002") " (renderer.name chooses another)");
    expect(LATHE " data next.toml", 0, "USER: the cat ASSISTANT:");
    expect(LATHE " train next.toml 2>&1", 0, SAYS("out/step-00000002"));
    expect(LATHE " chat-template second", 0, "renderer: vicuna: the folder was trained with it");
    expect(LATHE " train next.toml --train.max_steps 3 2>&1", 0, "step-00000003");
    expect(LATHE " generate next.toml" ASK, 0, SAYS("out/step-00000002"));
}

Test(kept_renderer, the_next_run_may_say_otherwise)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000002");
    put("next.toml", "[model]\npath = \"out/step-00000002\"\n" NEXT);
    expect(LATHE " data next.toml --renderer.name alpaca 2>&1", 0, "### Response:");
    cr_expect_null(strstr(output, "vicuna"), "%s", output);
    expect(LATHE " validate next.toml --renderer.name auto 2>&1", 2, "has none; expected chat_t");
    put("mine.jinja", "{% for m in messages %}({{ m.role }}) {{ m.content }} {% endfor %}");
    expect(LATHE " data next.toml --data.chat_template mine.jinja 2>&1", 0, "(user) the cat");
    cr_expect_null(strstr(output, "vicuna"), "%s", output);
    expect(LATHE " generate out --data.chat_template mine.jinja" ASK, 0, "");
    cr_expect_null(strstr(output, "vicuna"), "%s", output);
}

/* The user named no renderer, so there is none to take out where the data have no use for it. */
Test(kept_renderer, the_next_run_on_plain_text_keeps_it)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000002");
    put("next.toml",
        "[model]\npath = \"out/step-00000002\"\n[data]\ndatasets = [{ path = \"text.txt\" }]\n"
        "seq_len = 16\n[train]\nmax_steps = 1\n[checkpoint]\ndir = \"second\"\n");
    expect(LATHE " train next.toml 2>&1", 0, "checkpoint second/step-00000001");
    cr_expect_null(strstr(output, "has no effect"), "%s", output);
    expect(LATHE " chat-template second", 0, "renderer: vicuna: the folder was trained with it");
}

Test(kept_renderer, the_next_run_takes_that_of_its_adapter)
{
    expect(LATHE " train lora.toml 2>&1", 0, "step-00000002");
    put("next.toml", "[model]\npath = \"lora/step-00000002\"\n" NEXT);
    expect(LATHE " train next.toml 2>&1", 0, SAYS("lora/step-00000002"));
    expect(LATHE " chat-template second", 0, "renderer: vicuna");
}

Test(kept_renderer, a_plugin_that_is_gone_is_named)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000002");
    cr_assert_eq(
        run("cp -r out/step-00000002 gone && cd gone && sed s/vicuna/vicunb/ manifest.json | "
            "head -n -2 > m && H=$(sha256sum < m | cut -c1-64) && "
            "printf '  \"self\": \"%s\"\n}\n' $H >> m && mv m manifest.json"),
        0, "%s", output);
    expect(LATHE " generate gone" ASK, 2,
           "gone was trained with renderer \"vicunb\", which is not installed: name the folder of "
           "its plugin in plugins.paths, or another renderer in renderer.name");
    expect(LATHE " chat-template gone 2>&1", 2, "gone was trained with renderer vicunb");
    expect(LATHE " chat-template gone --renderer vicuna", 0, "renderer: vicuna");
    put("next.toml", "[model]\npath = \"gone\"\n" SMALL "[checkpoint]\ndir = \"second\"\n");
    expect(LATHE " validate next.toml 2>&1", 2,
           "next.toml:2:8: error: gone was trained with renderer \"vicunb\", which is not "
           "installed: name the folder of its plugin in plugins.paths");
    expect(LATHE " validate next.toml --renderer.name vicuna 2>&1", 0, "valid");
    expect(LATHE " generate gone --renderer.name vicuna" ASK, 0, "");
}

Test(kept_renderer, a_manifest_of_another_program_is_passed_over)
{
    cr_assert_eq(run("rm base/manifest.json"), 0);
    put("base/manifest.json", "{\"name\": \"other\"}\n");
    expect(LATHE " generate base" ASK, 2, "no renderer is read from it");
    cr_expect_not_null(strstr(output, "a conversation needs a chat template"), "%s", output);
    expect(LATHE " generate base --renderer.name vicuna" ASK, 0, "");
    cr_expect_null(strstr(output, "is read from it"), "%s", output);
}
