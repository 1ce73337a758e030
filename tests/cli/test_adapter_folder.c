/* lathe generate DIR and lathe eval DIR, where DIR is the checkpoint of a run with an adapter. */
#include "cli_case.h"

#include <sys/stat.h>

#include "cli/pending_signal.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static const char base_file[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 32\n"
                                "intermediate_size = 64\nnum_hidden_layers = 2\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                                "[tokenizer]\ntrain = { vocab_size = 300 }\n"
                                "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                                "[optimizer]\nlr = 0.02\n"
                                "[train]\nprecision = \"fp32\"\nmax_steps = 12\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"first\"\n";

static const char lora_file[] = "[model]\npath = \"../base\"\n"
                                "[adapter]\nname = \"lora\"\nr = 4\nalpha = 16.0\ntarget_modules = "
                                "[\"q_proj\", \"down_proj\"]\n"
                                "rank_pattern = { down_proj = 2 }\n"
                                "[data]\ndatasets = [{ path = \"../other.txt\" }]\nseq_len = 16\n"
                                "[optimizer]\nlr = 0.05\n"
                                "[train]\nprecision = \"fp32\"\nmax_steps = 8\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"../out\"\n";

/* A base model, and a run in another folder, so that its paths differ from those of the current
 * folder. */
static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put_times("other.txt", "a dog ran by and never came back to the old barn again.\n", 40);
    put("base.toml", base_file);
    cr_assert_eq(mkdir("runs", 0777), 0);
    put("runs/lora.toml", lora_file);
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint first/step-00000012");
    cr_assert_eq(run("mv first/step-00000012 base"), 0);
}

TestSuite(adapter_folder, .init = setup, .fini = remove_folder, .timeout = 120);

static void train_adapter(const char *settings)
{
    char command[512];
    snprintf(command, sizeof command, LATHE " train runs/lora.toml %s 2>&1", settings);
    expect(command, 0, "step-00000008");
}

#define TEXT "--prompt 'a dog' --temperature 0 --max-new-tokens 24 --data.seq_len 48"

/* Stores what a command prints in `out`. */
static void take(const char *command, char out[4096])
{
    cr_assert_eq(run(command), 0, "%s: %s", command, output);
    cr_assert_lt(strlen(output), 4096);
    strcpy(out, output);
}

static void expect_text(const char *command, const char *want)
{
    cr_assert_eq(run(command), 0, "%s: %s", command, output);
    cr_expect_str_eq(output, want, "%s", command);
}

Test(adapter_folder, continues_a_prompt_as_its_run_file_does)
{
    char of_run[4096], of_base[4096], command[512];
    train_adapter("");
    take(LATHE " generate runs/lora.toml " TEXT " 2>/dev/null", of_run);
    take(LATHE " generate base " TEXT " --train.precision fp32 2>/dev/null", of_base);
    cr_assert_str_neq(of_run, of_base);
    expect_text(LATHE " generate out " TEXT " 2>/dev/null", of_run);
    expect_text(LATHE " generate out/step-00000008 " TEXT " 2>/dev/null", of_run);
    snprintf(command, sizeof command,
             "cd / && " LATHE " generate %s/out/step-00000008 " TEXT " 2>/dev/null", folder);
    expect_text(command, of_run); /* adapter_config.json has the absolute path of the base */
}

Test(adapter_folder, is_evaluated_as_its_run_file_is)
{
    static const char data[] = "--data text.txt --data.seq_len 16 --json 2>/dev/null";
    char of_run[4096], command[512];
    train_adapter("");
    snprintf(command, sizeof command, LATHE " eval runs/lora.toml %s", data);
    take(command, of_run);
    snprintf(command, sizeof command, LATHE " eval out %s", data);
    expect_text(command, of_run);
}

Test(adapter_folder, over_a_quantized_base_is_quantized_as_in_its_run)
{
    char of_run[4096];
    train_adapter("--quant.name nf4 --quant.double_quant true");
    take(LATHE " generate runs/lora.toml --quant.name nf4 --quant.double_quant true " TEXT
               " 2>/dev/null",
         of_run);
    expect_text(LATHE " generate out " TEXT " 2>/dev/null", of_run);
}

Test(adapter_folder, with_averaged_weights_gives_those_or_the_others)
{
    char average[4096], training[4096];
    train_adapter("--train.weight_average swa");
    take(LATHE " generate runs/lora.toml " TEXT " 2>/dev/null", average);
    take(LATHE " generate runs/lora.toml --weights training " TEXT " 2>/dev/null", training);
    expect_text(LATHE " generate out " TEXT " 2>/dev/null", average);
    expect_text(LATHE " generate out --weights training " TEXT " 2>/dev/null", training);
    expect_text(LATHE " generate out/step-00000008/average " TEXT " 2>/dev/null", average);
}

/* A folder as PEFT writes it, without manifest and state. */
Test(adapter_folder, of_peft_is_read_by_its_adapter_config)
{
    char of_run[4096];
    train_adapter("");
    take(LATHE " generate runs/lora.toml " TEXT " 2>/dev/null", of_run);
    cr_assert_eq(run("mkdir peft && cp out/step-00000008/adapter_* peft"), 0);
    expect_text(LATHE " generate peft " TEXT " --train.precision fp32 2>/dev/null", of_run);
    cr_assert_eq(run("sed -i 's/\"use_dora\": false/\"use_dora\": true/' "
                     "peft/adapter_config.json"),
                 0);
    expect(LATHE " generate peft " TEXT " 2>&1", 2, "lora_magnitude_vector'");
    cr_assert_eq(run("sed -i 's/\"use_dora\": true/\"layer_replication\": [[0, 1]]/' "
                     "peft/adapter_config.json"),
                 0);
    expect(LATHE " generate peft " TEXT " 2>&1", 2,
           "peft/adapter_config.json: layer_replication is [[0,1]]");
    cr_assert_eq(run("sed -i 's/LORA/IA3/' peft/adapter_config.json"), 0);
    expect(LATHE " generate peft " TEXT " 2>&1", 2,
           "peft_type is \"IA3\"; expected \"LORA\" or \"OFT\"");
}

Test(adapter_folder, of_peft_may_choose_modules_by_a_pattern_but_not_change_its_base)
{
    char of_run[4096];
    cr_assert_eq(run("sed -i 's/^target_modules.*/target_pattern = "
                     "\".*[01].(?:mlp|self_attn).(down|q)_proj\"\\n"
                     "exclude_modules = [\"layers.0.mlp.down_proj\"]\\ninit = \"gaussian\"/' "
                     "runs/lora.toml"),
                 0);
    train_adapter("");
    take(LATHE " generate runs/lora.toml " TEXT " 2>/dev/null", of_run);
    cr_assert_eq(run("mkdir peft && cp out/step-00000008/adapter_* peft"), 0);
    cr_assert_eq(run("grep -q 'self_attn).(down|q)_proj\"' peft/adapter_config.json"), 0);
    expect_text(LATHE " generate peft " TEXT " --train.precision fp32 2>/dev/null", of_run);
    cr_assert_eq(run("sed -i 's/\"gaussian\"/\"olora\"/' peft/adapter_config.json"), 0);
    expect(LATHE " generate peft " TEXT " 2>&1", 2,
           "init_lora_weights is \"olora\", with which the adapter belongs to another base");
}

/* The residual of the base is computed at each load, and is in no file. */
Test(adapter_folder, of_pissa_keeps_its_base_and_is_merged)
{
    char of_run[4096], of_base[4096], first[4096];
    cr_assert_eq(run("sed -i 's/^r = 4/r = 4\\ninit = \"pissa\"/' runs/lora.toml"), 0);
    take(LATHE " eval base --data other.txt --data.seq_len 16 --train.precision fp32 2>/dev/null "
               "| grep -m1 loss",
         of_base);
    train_adapter("--optimizer.lr 0");
    take(LATHE " eval out --data other.txt --data.seq_len 16 2>/dev/null | grep -m1 loss", first);
    cr_expect_str_eq(first, of_base, "it begins as the base model");
    cr_assert_eq(run("rm -r out"), 0);
    train_adapter("");
    take(LATHE " generate runs/lora.toml " TEXT " 2>/dev/null", of_run);
    expect_text(LATHE " generate out " TEXT " 2>/dev/null", of_run);
    cr_assert_eq(run("mkdir peft && cp out/step-00000008/adapter_* peft"), 0);
    cr_expect_neq(run("grep -q start peft/adapter_model.safetensors"), 0);
    cr_expect_eq(run("grep -q '\"init_lora_weights\": \"pissa\"' peft/adapter_config.json"), 0);
    expect_text(LATHE " generate peft " TEXT " --train.precision fp32 2>/dev/null", of_run);
    cr_assert_eq(run(LATHE " merge base peft -o merged 2>&1"), 0, "%s", output);
    expect_text(LATHE " generate merged " TEXT " --train.precision fp32 2>/dev/null", of_run);
}

static const char oft_file[] = "[model]\npath = \"../base\"\n"
                               "[adapter]\nname = \"oft\"\nblock_size = 8\n"
                               "target_modules = [\"q_proj\", \"down_proj\"]\n"
                               "[data]\ndatasets = [{ path = \"../other.txt\" }]\nseq_len = 16\n"
                               "[optimizer]\nlr = 0.05\n"
                               "[train]\nprecision = \"fp32\"\nmax_steps = 8\nthreads = 1\n"
                               "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"../out\"\n";

Test(adapter_folder, of_oft_is_read_by_its_adapter_config_and_merged)
{
    char of_run[4096], of_base[4096];
    put("runs/oft.toml", oft_file);
    expect(LATHE " train runs/oft.toml 2>&1", 0, "step-00000008");
    take(LATHE " generate runs/oft.toml " TEXT " 2>/dev/null", of_run);
    take(LATHE " generate base " TEXT " --train.precision fp32 2>/dev/null", of_base);
    cr_assert_str_neq(of_run, of_base);
    cr_assert_eq(run("mkdir peft && cp out/step-00000008/adapter_* peft"), 0);
    expect_text(LATHE " generate peft " TEXT " --train.precision fp32 2>/dev/null", of_run);
    cr_assert_eq(run(LATHE " merge base peft -o merged 2>&1"), 0, "%s", output);
    expect_text(LATHE " generate merged " TEXT " --train.precision fp32 2>/dev/null", of_run);
    cr_assert_eq(run("sed -i 's/\"coft\": false/\"coft\": true/' peft/adapter_config.json"), 0);
    expect(LATHE " generate peft " TEXT " 2>&1", 2, "adapter_config.json: coft is true");
    cr_assert_eq(
        run("sed -i 's/\"coft\": true/\"coft\": false/; s/neumann\": true/neumann\": false/' "
            "peft/adapter_config.json"),
        0);
    expect(LATHE " generate peft " TEXT " 2>&1", 2, "use_cayley_neumann is false");
    cr_assert_eq(run("sed -i 's/neumann\": false/neumann\": true/; s/.*peft_version.*//' "
                     "peft/adapter_config.json"),
                 0);
    expect(LATHE " generate peft " TEXT " 2>&1", 2, "no peft_version");
}

/* How the other base is stored explains its other weights. */
Test(adapter_folder, over_another_form_of_its_base_says_which)
{
    train_adapter("");
    expect(LATHE " quantize base --quant.name nf4 -o q4 2>&1 && " LATHE
                 " convert base -o base.gguf 2>&1",
           0, "");
    expect(LATHE " merge q4 out -o m 2>&1", 0,
           "and q4 has other weights (its weights are quantized, as bitsandbytes: "
           "q4/model.safetensors: ");
    expect(LATHE " merge base.gguf out -o n 2>&1", 0,
           "and base.gguf has other weights (it is a GGUF file, which may have rounded the "
           "weights: the adapter was trained over a folder)");
    expect(LATHE " merge base out -o m.gguf 2>&1", 2,
           "m.gguf: a folder is written here, and this is the name of a GGUF file");
    cr_expect_neq(access("m.gguf", F_OK), 0);
    expect(LATHE " validate runs/lora.toml --checkpoint.dir b --adapter.lora_bias true "
                 "--adapter.target_modules '[\"q_proj\", \"lm_head\"]' 2>&1",
           2, "lora_bias is not offered for lm_head: take it out of target_modules");
}

/* Commands that read a run's folder find it by the run file, as train and chat do. */
Test(adapter_folder, of_a_run_is_found_by_its_run_file)
{
    train_adapter("");
    expect(LATHE " checkpoint ls runs/lora.toml 2>&1", 0, "latest");
    expect(LATHE " checkpoint verify runs/lora.toml 2>&1", 0, "whole");
    expect(LATHE " watch --once runs/lora.toml 2>&1", 0, "finished");
    expect(LATHE " lineage runs/lora.toml 2>&1", 0, "out/step-00000008");
    expect(LATHE " report runs/lora.toml 2>&1", 0, "out/report.html");
    expect(LATHE " checkpoint ls runs/none.toml 2>&1", 2, "runs/none.toml");
    put("broken.toml", "[train]\nmax_stps = 3\n");
    expect(LATHE " watch --once broken.toml 2>&1", 2, "unknown key 'max_stps'");
}

/* The paths of a run file are other texts where the run is started in another folder. */
Test(adapter_folder, a_run_resumes_in_another_folder_without_a_warning)
{
    expect(LATHE " train runs/lora.toml --train.stop_after 2 2>&1", 0, "step-00000002");
    expect("cd runs && " LATHE " train lora.toml 2>&1", 0, "step-00000008");
    cr_expect_not_null(strstr(output, "resumed from"), "%s", output);
    cr_expect_null(strstr(output, "other settings"), "%s", output);
    expect("cp -r base another && " LATHE " train runs/lora.toml --train.max_steps 9 --model.path "
           "another 2>&1",
           0, "model.path \"../base\" -> \"another\"");
}

Test(adapter_folder, without_its_base_asks_for_it)
{
    char of_run[4096];
    train_adapter("");
    take(LATHE " generate runs/lora.toml " TEXT " 2>/dev/null", of_run);
    cr_assert_eq(run("mv base moved"), 0);
    expect(LATHE " generate out " TEXT " 2>&1", 2,
           "base, which does not exist: name the model's folder in model.path");
    expect_text(LATHE " generate out --model.path moved " TEXT " 2>/dev/null", of_run);
}

Test(adapter_folder, that_is_damaged_is_refused_by_its_file)
{
    train_adapter("");
    cr_assert_eq(truncate("out/step-00000008/adapter_model.safetensors", 900), 0);
    expect(LATHE " generate out " TEXT " 2>&1", 1,
           "out/step-00000008/adapter_model.safetensors: 900 bytes");
}

/* An adapter over a new model: the checkpoint contains that model too. */
Test(adapter_folder, of_a_new_model_is_its_own_base)
{
    char of_run[4096];
    put("new.toml", base_file);
    cr_assert_eq(run("sed -i 's/^\\[optimizer\\]/[adapter]\\nname = \"lora\"\\n&/; "
                     "s/first/new/' new.toml"),
                 0);
    expect(LATHE " train new.toml 2>&1", 0, "checkpoint new/step-00000012");
    take(LATHE " generate new.toml " TEXT " 2>/dev/null", of_run);
    expect_text(LATHE " generate new " TEXT " 2>/dev/null", of_run);
}

Test(adapter_folder, a_conversation_is_answered_through_the_chat_template)
{
    static char whole[4096], answer[4096];
    put("base/chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}"
                                    "{{ ' dog' if add_generation_prompt }}");
    put("talk.json", "[{\"role\": \"user\", \"content\": \"a\"}]");
    take(LATHE " generate base " TEXT " 2>/dev/null", whole);
    take(LATHE " generate base --messages talk.json --temperature 0 --max-new-tokens 24 "
               "--data.seq_len 48 2>/dev/null",
         answer);
    cr_expect_str_eq(answer, whole + strlen("a dog"));
    expect(LATHE " generate base --messages talk.json --prompt x 2>&1", 2,
           "--prompt, --messages and --prompts: one of them is the prompt");
    put("wrong.json", "{\"text\": 1}");
    expect(LATHE " generate base --messages wrong.json 2>&1", 2,
           "wrong.json: unknown key \"text\"; expected messages, tools");
    cr_assert_eq(run("rm base/chat_template.jinja"), 0);
    expect(LATHE " generate base --messages talk.json 2>&1", 2,
           "talk.json: a conversation needs a chat template: base has none; expected");
}

/* A run file that does not compute as its checkpoint's run did is refused, at the key. */
Test(adapter_folder, a_run_file_that_differs_from_it_is_refused)
{
    train_adapter("");
    expect(LATHE " eval runs/lora.toml --data text.txt --quant.name none --adapter.r 2 2>&1", 2,
           "--adapter.r: error: adapter.r is 2, but ");
    expect(LATHE " generate runs/lora.toml --prompt a --adapter.alpha 64 2>&1", 2,
           "--adapter.alpha: error: adapter.alpha is 64.0, but ");
    expect(LATHE " generate runs/lora.toml --prompt a --quant.name int8 2>&1", 2,
           "--quant.name: error: quant.name is \"int8\", but ");
}

/* ---- lathe merge ---- */

/* The weights in fp32: the merged model computes the same numbers but for rounding, and greedy text
 * shows it. */
Test(adapter_folder, merged_into_its_base_gives_the_same_text_and_loss)
{
    static const char data[] = "--data other.txt --data.seq_len 16 --train.precision fp32 "
                               "2>/dev/null | grep -m1 loss";
    char of_adapter[4096], loss[4096], command[512];
    train_adapter("");
    take(LATHE " generate out " TEXT " 2>/dev/null", of_adapter);
    expect(LATHE " merge base out -o merged 2>&1", 0, "into 4 weights of base: merged");
    cr_expect_null(strstr(output, "computes in"), "it computes nothing: %s", output);
    expect_text(LATHE " generate merged " TEXT " --train.precision fp32 2>/dev/null", of_adapter);
    snprintf(command, sizeof command, LATHE " eval out %s", data);
    take(command, loss);
    snprintf(command, sizeof command, LATHE " eval merged %s", data);
    expect_text(command, loss);
    cr_expect_eq(run("cmp base/tokenizer.json merged/tokenizer.json"), 0);
    /* its chain: the base, and the adapter with the run that trained it */
    expect(LATHE " lineage merged", 0, "made      by lathe merge, Lathe ");
    expect(LATHE " lineage merged", 0, "<- adapter: ");
    expect(LATHE " lineage merged", 0, "adapter   lora: r 4");
    expect(LATHE " lineage merged", 0, "<- model: ");
    expect(LATHE " checkpoint verify merged", 0, "merged");
    expect("echo >> merged/config.json; " LATHE " lineage merged", 1, "merged/config.json: ");
    expect(LATHE " merge base out -o merged 2>&1", 2,
           "merged exists already: give another folder, or remove it");
}

Test(adapter_folder, ctrl_c_leaves_no_part_of_a_merged_model)
{
    train_adapter("");
    run_with_pending(SIGTERM, LATHE " merge base out -o merged 2>&1");
    cr_expect_not_null(strstr(output, "lathe merge: stopped; nothing was written"), "%s", output);
    run_with_pending(SIGINT, LATHE " merge base out -o merged --quant.name nf4 2>&1");
    cr_expect_not_null(strstr(output, "lathe merge: stopped; nothing was written"), "%s", output);
    expect_text("ls -d merged* 2>/dev/null | wc -l", "0\n");
    expect(LATHE " merge base out -o merged/ 2>&1", 0, "into 4 weights of base: merged/");
    expect_text("ls -d merged*", "merged\n");
}

/* An adapter that was trained on raw bytes reads raw bytes, whatever tokenizer its base has. */
Test(adapter_folder, keeps_the_tokenizer_of_raw_bytes)
{
    char of_run[4096];
    train_adapter("--tokenizer.path bytes");
    cr_expect_not_null(strstr(output,
                              "--tokenizer.path: warning: tokenizer.path = \"bytes\" is not "
                              "the tokenizer of the model runs/../base: 286 of the model's "
                              "286 tokens have another text in it or none"),
                       "%s", output);
    take(LATHE
         " eval runs/lora.toml --tokenizer.path bytes --data other.txt --train.precision fp32 "
         "2>/dev/null",
         of_run);
    expect_text(LATHE " eval out --data other.txt --train.precision fp32 2>/dev/null", of_run);
    take(LATHE " generate out " TEXT " 2>/dev/null", of_run);
    expect_text(LATHE " generate runs/lora.toml --tokenizer.path bytes " TEXT " 2>/dev/null",
                of_run);
    /* the merged folder has no tokenizer either */
    expect(LATHE " merge base out -o merged 2>&1", 0, "into 4 weights of base: merged");
    cr_expect_eq(run("ls merged | grep -c tokenizer"), 1, "%s", output);
    expect_text(LATHE " generate merged " TEXT " --train.precision fp32 2>/dev/null", of_run);
    /* a run that begins with it */
    expect(LATHE " train runs/lora.toml --model.path out --checkpoint.dir next 2>&1", 0,
           "step-00000008");
    cr_expect_neq(run("test -e next/step-00000008/tokenizer.json"), 0);
}

Test(adapter_folder, gives_no_warning_of_a_tokenizer_that_only_adds_tokens)
{
    cr_assert_eq(run("mkdir more && cp base/tokenizer.json more && "
                     "sed -i 's/\"added_tokens\": \\[/&{\"id\": 286, \"content\": \"<x>\", "
                     "\"special\": true, \"single_word\": false, \"lstrip\": false, "
                     "\"rstrip\": false, \"normalized\": false}, /' more/tokenizer.json && "
                     "grep -c '<x>' more/tokenizer.json"),
                 0, "%s", output);
    expect(LATHE " validate runs/lora.toml --tokenizer.path more 2>&1", 0, "valid");
    cr_expect_null(strstr(output, "is not the tokenizer of"), "%s", output);
    expect(LATHE " validate runs/lora.toml --tokenizer.path base 2>&1", 0, "valid");
    cr_expect_null(strstr(output, "warning"), "%s", output);
}

Test(adapter_folder, of_another_model_is_not_merged)
{
    train_adapter("");
    put("small.toml", base_file);
    cr_assert_eq(
        run("sed -i 's/^hidden_size = 32/hidden_size = 16/; s/first/small/' small.toml && " LATHE
            " train small.toml --train.max_steps 1 2>&1"),
        0);
    expect(LATHE " merge small out -o merged 2>&1", 2, "lora_A.weight");
    cr_expect_not_null(strstr(output, "the adapter does not fit the model small/step-00000001: "));
    expect(LATHE " merge out base -o merged 2>&1", 2, "the model comes first, then the adapter");
    expect(LATHE " merge base base -o merged 2>&1", 2,
           "base: has no adapter_model.safetensors, so it is not an adapter folder");
    expect(LATHE " merge base nowhere -o merged 2>&1", 2,
           "nowhere: no such folder; expected the folder of an adapter");
    expect(LATHE " merge base out 2>&1", 2, "--output DIR is missing");
    cr_expect_neq(run("test -e merged"), 0);
}

/* The merged folder is a reward model: it has the score, and the figures of the adapter's. */
Test(adapter_folder, of_a_reward_model_is_merged_with_its_score)
{
    cr_assert_eq(
        run("mkdir -p pairs && cd pairs && for i in 1 2 3 4; do echo '{\"prompt\": \"the\", "
            "\"chosen\": \" cat\", \"rejected\": \" mat\"}'; done > p.jsonl"),
        0);
    expect(LATHE " train runs/lora.toml --stage.name rm --generate.every 0 --train.max_steps 1 "
                 "--data.datasets '[{path = \"pairs/p.jsonl\"}]' --checkpoint.dir rm 2>&1",
           0, "checkpoint rm/step-00000001");
    char own[4096];
    cr_assert_eq(run(LATHE " eval rm --data pairs/p.jsonl --train.precision fp32 2>/dev/null"), 0);
    strcpy(own, output);
    expect(LATHE " merge base rm -o merged --checkpoint.save_dtype fp32 2>&1", 0, "merged rm");
    cr_expect_eq(run("grep -q ForSequenceClassification merged/config.json && grep -aq "
                     "'\"score.weight\"' merged/model.safetensors"),
                 0);
    cr_assert_eq(run(LATHE " eval merged --data pairs/p.jsonl --train.precision fp32 2>/dev/null"),
                 0);
    cr_expect_str_eq(output, own);
    expect(LATHE " merge base rm rm -o both 2>&1", 2,
           "lathe merge: rm/step-00000001: the adapter of a sequence classifier, such as a reward "
           "model (task_type SEQ_CLS), has a score of its own");
    cr_expect_neq(run("test -e both"), 0);
    /* the base that lies beside an adapter is another reward model than both together */
    cr_assert_eq(run("cp -r rm/step-00000001 beside && cp base/*.json base/*.safetensors beside"),
                 0);
    put("ppo.toml", "[model]\npath = \"base\"\n[data]\ndatasets = [{path = \"pairs/p.jsonl\"}]\n"
                    "seq_len = 16\n[stage]\nname = \"ppo\"\nprompts = 1\ngroup = 2\n"
                    "max_new_tokens = 4\n[reward]\nmodel = \"beside\"\n[train]\nmax_steps = 1\n"
                    "[checkpoint]\ndir = \"ppo\"\n");
    expect(
        LATHE " validate ppo.toml 2>&1", 2,
        "ppo.toml:12:9: error: reward.model = \"beside\" holds an adapter beside its model, and a "
        "reward model is a whole model; lathe merge beside -o OUT makes one of it");
    expect(LATHE " validate ppo.toml --reward.model nowhere 2>&1", 2,
           "--reward.model: error: reward.model: no such folder: nowhere");
    expect(LATHE " validate ppo.toml --reward.model merged 2>&1", 0, "valid");
    expect(LATHE " train runs/lora.toml --stage.name rm --generate.every 0 --train.max_steps 1 "
                 "--data.datasets '[{path = \"pairs/p.jsonl\"}]' --checkpoint.dir rm2 "
                 "--model.path rm/step-00000001 2>&1",
           0, "checkpoint rm2/step-00000001");
    expect(LATHE " eval rm --data pairs/p.jsonl 2>&1", 0, "accuracy");
}
