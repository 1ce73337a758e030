/* lathe lineage: the chain back to the first weights, and what is said of damage, of moved and of
 * missing parents. */
#include "cli_case.h"
#include "support/child_program.h"

#include <jansson.h>

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static const char base_file[] = "[model]\nmodel_type = \"llama\"\nvocab_size = 300\n"
                                "hidden_size = 16\nintermediate_size = 32\nnum_hidden_layers = 1\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                                "[tokenizer]\npath = \"bytes\"\n"
                                "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 32\n"
                                "[train]\nmax_steps = 2\nseed = 7\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n"
                                "[checkpoint]\ndir = \"out/base\"\nevery = 1\n";

static const char sft_file[] = "[model]\npath = \"out/base/step-00000002\"\n"
                               "[data]\ndatasets = [{ path = \"answers.jsonl\" }]\nseq_len = 32\n"
                               "[stage]\nname = \"sft\"\n"
                               "[train]\nmax_steps = 1\nthreads = 1\n[log]\nprogress = \"off\"\n"
                               "[checkpoint]\ndir = \"out/sft\"\n";

static const char dpo_file[] = "[model]\npath = \"out/sft/step-00000001\"\n"
                               "[data]\ndatasets = [{ path = \"pairs.jsonl\" }]\nseq_len = 32\n"
                               "[stage]\nname = \"dpo\"\nloss_type = \"ipo\"\n"
                               "[adapter]\nname = \"lora\"\nr = 2\n"
                               "[train]\nmax_steps = 2\nstop_after = 1\nthreads = 1\n"
                               "[log]\nprogress = \"off\"\n"
                               "[checkpoint]\ndir = \"out/dpo\"\n";

static void setup(void)
{
    child_programs_skip_the_leak_check();
    make_folder();
    put("base.toml", base_file);
    put("sft.toml", sft_file);
    put("dpo.toml", dpo_file);
    put_times("text.txt", "the wheel turns and the tool holds\n", 40);
    put_times("answers.jsonl", "{\"prompt\": \"why?\", \"completion\": \"so\"}\n", 4);
    put_times("pairs.jsonl", "{\"prompt\": \"a \", \"chosen\": \"good\", \"rejected\": \"no\"}\n",
              4);
    expect(LATHE " train base.toml 2>&1 && " LATHE " train sft.toml 2>&1 && " LATHE
                 " train dpo.toml 2>&1",
           0, "checkpoint out/dpo/step-00000001");
}

TestSuite(lineage, .init = setup, .fini = remove_folder, .timeout = 120);

static int says(const char *text)
{
    return strstr(output, text) != NULL;
}

Test(lineage, of_three_stages_names_each_back_to_the_random_weights)
{
    expect(LATHE " lineage out/dpo 2>&1", 0, "out/dpo/step-00000001\n");
    cr_expect(says("stage     dpo: beta 0.1, label_smoothing 0.0, loss_type \"ipo\""), "%s",
              output);
    cr_expect(says("adapter   lora: r 2"), "%s", output);
    cr_expect(says("/pairs.jsonl: "), "%s", output);
    cr_expect(says("<- model, reference: "), "%s", output);
    cr_expect(says("/out/sft/step-00000001\n"), "%s", output);
    cr_expect(says("/answers.jsonl: "), "%s", output);
    cr_expect(says("      <- model: ") && says("/out/base/step-00000002\n"), "%s", output);
    cr_expect(says("begins    with random weights of seed 7\n"), "%s", output);
    cr_expect(!says("damaged") && !says("recorded as"), "%s", output);
    expect(LATHE " lineage out/dpo --json 2>/dev/null", 0, "{");
    json_t *root = json_loads(output, 0, NULL);
    const json_t *sft = json_array_get(json_object_get(root, "parents"), 0);
    const json_t *base =
        json_array_get(json_object_get(json_object_get(sft, "node"), "parents"), 0);
    cr_expect_str_eq(json_string_value(json_object_get(sft, "state")), "same");
    cr_expect_str_eq(json_string_value(json_object_get(base, "state")), "same");
    cr_expect_eq(json_integer_value(json_object_get(json_object_get(base, "node"), "step")), 2);
    json_decref(root);
}

/* A byte is flipped at several places of each manifest. */
Test(lineage, a_manifest_edited_by_one_byte_is_named)
{
    static const char *const manifests[] = {"out/dpo/step-00000001/manifest.json",
                                            "out/sft/step-00000001/manifest.json",
                                            "out/base/step-00000002/manifest.json"};
    for (size_t i = 0; i < sizeof manifests / sizeof manifests[0]; i++)
        for (int at = 20; at < 1000; at += 301) {
            char command[400], named[200];
            snprintf(command, sizeof command,
                     "cp %s kept && printf '\\001' | dd of=%s bs=1 seek=%d conv=notrunc "
                     "2>/dev/null; " LATHE " lineage out/dpo 2>&1",
                     manifests[i], manifests[i], at);
            snprintf(named, sizeof named,
                     "/%s: its content does not match the SHA-256 in its last line", manifests[i]);
            expect(command, 1, named);
            snprintf(command, sizeof command, "mv kept %s", manifests[i]);
            cr_assert_eq(run(command), 0);
        }
    expect(LATHE " lineage out/dpo 2>&1", 0, "whole");
}

Test(lineage, an_edited_file_is_named_once)
{
    cr_assert_eq(run("printf 'x' | dd of=out/base/step-00000002/model.safetensors bs=1 seek=900 "
                     "conv=notrunc 2>/dev/null"),
                 0);
    expect(LATHE " lineage out/dpo 2>&1", 1,
           "/out/base/step-00000002/model.safetensors: its content changed (SHA-256 ");
    cr_expect(says("1 of these are not as recorded"), "%s", output);
    expect(LATHE " lineage out/dpo --no-verify 2>&1", 0, "complete by their sizes; not hashed");
}

Test(lineage, a_whole_manifest_of_another_run_is_not_the_parent)
{
    cr_assert_eq(run("sed -i 's/^seed.*/seed = 8/; s/out.base/other/' base.toml && " LATHE
                     " train base.toml >log 2>&1 && rm -r out/base/step-00000002 && "
                     "mv other/step-00000002 out/base/"),
                 0);
    expect(LATHE " lineage out/sft 2>&1", 1,
           "/out/base/step-00000002/model.safetensors: its content changed");
    cr_expect(says("/out/base/step-00000002/manifest.json: another one than recorded"), "%s",
              output);
}

Test(lineage, a_missing_parent_is_said_and_is_no_error)
{
    cr_assert_eq(run("rm -r out/base"), 0);
    expect(LATHE " lineage out/dpo 2>&1", 0,
           "/out/base/step-00000002: no longer there, or not on this machine");
    cr_expect(says("model.safetensors  ") && says("  recorded\n"), "%s", output);
}

Test(lineage, of_folders_that_moved_is_followed)
{
    /* all of them */
    cr_assert_eq(run("mkdir away && mv out away/"), 0);
    expect(LATHE " lineage away/out/dpo 2>&1", 0, "/away/out/base/step-00000002 (recorded as ");
    cr_expect(says("begins    with random weights of seed 7"), "%s", output);
    /* one of them, with another name */
    cr_assert_eq(run("mv away/out . && mv out/base out/first"), 0);
    expect(LATHE " lineage out/dpo 2>&1", 0, "/out/first/step-00000002 (recorded as ");
    cr_expect(says("begins    with random weights of seed 7"), "%s", output);
    /* a copy of the last alone */
    cr_assert_eq(run("mkdir far && cp -r out/dpo/step-00000001 far/mine && mv out gone"), 0);
    expect(LATHE " lineage far/mine 2>&1", 0, "/gone/sft/step-00000001 (recorded as ");
}

Test(lineage, of_changed_and_missing_data_is_said)
{
    cr_assert_eq(run("printf 'x' >>answers.jsonl && rm text.txt"), 0);
    expect(LATHE " lineage out/sft 2>&1", 1, "/answers.jsonl: ");
    cr_expect(says("the files changed since"), "%s", output);
    cr_expect(says("files that were read are no longer there"), "%s", output);
}

Test(lineage, of_a_resumed_run_keeps_its_parents_and_names_the_checkpoint)
{
    expect(LATHE " train dpo.toml --train.stop_after 2 2>&1", 0,
           "checkpoint out/dpo/step-00000002");
    expect(LATHE " lineage out/dpo 2>&1", 0, "resumed   from ");
    cr_expect(says("/out/dpo/step-00000001\n") && says("<- model, reference: "), "%s", output);
    cr_assert_eq(run("rm -r out/dpo/step-00000001"), 0);
    expect(LATHE " lineage out/dpo 2>&1", 0, "/out/dpo/step-00000001, no longer there");
}

/* The adapter continues over the weights that it was trained over, or not at all. */
Test(lineage, another_base_under_a_resumed_adapter_is_refused)
{
    cr_assert_eq(run("printf 'x' | dd of=out/sft/step-00000001/model.safetensors bs=1 seek=3000 "
                     "conv=notrunc 2>/dev/null"),
                 0);
    for (int i = 0; i < 2; i++)
        expect(i ? LATHE " train dpo.toml 2>&1" : LATHE " validate dpo.toml 2>&1", 2,
               "dpo.toml:2:8: error: out/sft/step-00000001/model.safetensors: its content changed");
}

/* A student of the first model learns from the second. */
Test(lineage, of_a_distilled_model_names_its_teacher_and_keeps_to_it)
{
    put("distill.toml", "[model]\npath = \"out/base/step-00000002\"\n"
                        "[teacher]\npath = \"out/sft/step-00000001\"\n"
                        "[data]\ndatasets = [{ path = \"answers.jsonl\" }]\nseq_len = 32\n"
                        "[stage]\nname = \"distill\"\n"
                        "[train]\nmax_steps = 2\nstop_after = 1\nthreads = 1\n"
                        "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"out/small\"\n");
    expect(LATHE " train distill.toml 2>&1", 0, "checkpoint out/small/step-00000001");
    expect(LATHE " lineage out/small 2>&1", 0, "<- model: ");
    cr_expect(says("<- teacher: ") && says("/out/sft/step-00000001\n"), "%s", output);
    cr_assert_eq(run("printf 'x' | dd of=out/sft/step-00000001/model.safetensors bs=1 seek=3000 "
                     "conv=notrunc 2>/dev/null"),
                 0);
    expect(LATHE " train distill.toml 2>&1", 2,
           "distill.toml:4:8: error: out/sft/step-00000001/model.safetensors: its content changed");
}

/* Two reward models of the same pairs: the second one of another seed of the head. */
static void train_reward_models(void)
{
    put("rm.toml", "[model]\npath = \"out/base/step-00000002\"\n"
                   "[data]\ndatasets = [{ path = \"pairs.jsonl\" }]\nseq_len = 32\n"
                   "[stage]\nname = \"rm\"\n[train]\nmax_steps = 1\nthreads = 1\n"
                   "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"out/rm\"\n");
    put("ppo.toml", "[model]\npath = \"out/sft/step-00000001\"\n"
                    "[reward]\nmodel = \"out/rm/step-00000001\"\n"
                    "[data]\ndatasets = [{ path = \"answers.jsonl\" }]\nseq_len = 32\n"
                    "[stage]\nname = \"ppo\"\nprompts = 2\ngroup = 2\nmax_new_tokens = 4\n"
                    "[train]\nmax_steps = 4\nstop_after = 1\nthreads = 1\n"
                    "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"out/ppo\"\n");
    expect(LATHE " train rm.toml 2>&1", 0, "checkpoint out/rm/step-00000001");
    expect(LATHE " train rm.toml --train.seed 5 --checkpoint.dir out/rm5 2>&1", 0,
           "checkpoint out/rm5/step-00000001");
    expect(LATHE " train ppo.toml 2>&1", 0, "checkpoint out/ppo/step-00000001");
}

Test(lineage, of_a_rewarded_model_names_its_reward_model_and_keeps_to_it)
{
    static const char other[] = "cp out/rm5/step-00000001/* out/rm/step-00000001/ 2>/dev/null; ";
    char command[400];
    train_reward_models();
    expect(LATHE " lineage out/ppo 2>&1", 0, "<- reward: ");
    cr_expect(says("/out/rm/step-00000001\n"), "%s", output);
    expect(LATHE " train ppo.toml --train.stop_after 2 2>&1", 0,
           "checkpoint out/ppo/step-00000002");
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "%s" LATHE " %s ppo.toml 2>&1", other,
                 i ? "train" : "validate");
        expect(command, 2,
               "ppo.toml:4:9: error: out/rm/step-00000001/model.safetensors: its content changed");
        cr_expect(says("put the former files back, set checkpoint.allow_changed = "
                       "[\"reward.model\"] to continue with another objective, or choose another "),
                  "%s", output);
    }
    expect(LATHE " train ppo.toml --reward.model out/rm5/step-00000001 2>&1", 2,
           "--reward.model: error: reward.model is \"out/rm5/step-00000001\", but ");
    /* with the permission, the lineage has the new one */
    expect(LATHE " validate ppo.toml --checkpoint.allow_changed '[\"reward.model\"]' 2>&1", 0,
           "its content changed");
    cr_expect(says("; the run continues with it, as checkpoint.allow_changed permits"), "%s",
              output);
    expect(LATHE " train ppo.toml --reward.model out/rm5/step-00000001 --train.stop_after 3 "
                 "--checkpoint.allow_changed '[\"reward.model\"]' 2>&1",
           0, "checkpoint out/ppo/step-00000003");
    expect(LATHE " lineage out/ppo 2>&1", 0, "/out/rm5/step-00000001\n");
    expect(LATHE " train ppo.toml --reward.model out/rm5/step-00000001 --train.stop_after 4 2>&1",
           0, "checkpoint out/ppo/step-00000004");
}

/* The permission of the test above holds for a teacher, in a folder or stored. */
Test(lineage, another_teacher_is_taken_with_permission)
{
    put("distill.toml", "[model]\npath = \"out/base/step-00000002\"\n"
                        "[teacher]\npath = \"out/sft/step-00000001\"\n"
                        "[data]\ndatasets = [{ path = \"answers.jsonl\" }]\nseq_len = 32\n"
                        "[stage]\nname = \"distill\"\n"
                        "[train]\nmax_steps = 3\nstop_after = 1\nthreads = 1\n"
                        "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"out/small\"\n");
    expect(LATHE " train distill.toml 2>&1", 0, "checkpoint out/small/step-00000001");
    expect(LATHE " train distill.toml --train.stop_after 2 "
                 "--teacher.path out/base/step-00000002 2>&1",
           2, "--teacher.path: error: teacher.path is \"out/base/step-00000002\", but ");
    expect(LATHE " train distill.toml --train.stop_after 2 --checkpoint.allow_changed "
                 "'[\"teacher.path\", \"teacher.stored\"]' "
                 "--teacher.path out/base/step-00000002 2>&1",
           0, "checkpoint out/small/step-00000002");
    expect(LATHE " lineage out/small 2>&1", 0, "<- teacher: ");
    cr_expect(!says("/out/sft/step-00000001\n"), "%s", output);
}

/* The lineage leads through the folder of a stored teacher to the teacher. */
Test(lineage, of_a_stored_teacher_goes_on_to_the_teacher)
{
    put("distill.toml", "[model]\npath = \"out/base/step-00000002\"\n"
                        "[teacher]\nstored = \"top4\"\n"
                        "[data]\ndatasets = [{ path = \"answers.jsonl\" }]\nseq_len = 32\n"
                        "[stage]\nname = \"distill\"\n"
                        "[train]\nmax_steps = 2\nstop_after = 1\nthreads = 1\n"
                        "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"out/small\"\n");
    static const char store[] = LATHE " logprobs distill.toml --teacher.path out/sft/step-00000001 "
                                      "--top-k 4 -o top4 2>&1";
    expect(store, 0, "top4: the 4 most likely tokens at 12 targets of 4 examples");
    expect(LATHE " train distill.toml 2>&1", 0, "checkpoint out/small/step-00000001");
    expect(LATHE " lineage out/small 2>&1", 0, "<- model: ");
    cr_expect(says("<- teacher: ") && says("/top4\n"), "%s", output);
    cr_expect(says("/out/sft/step-00000001\n"), "%s", output);
    cr_expect(!says("damaged"), "%s", output);
    /* another teacher's numbers in the same folder */
    cr_assert_eq(run("rm -r top4"), 0);
    expect(LATHE " logprobs distill.toml --teacher.path out/base/step-00000002 --top-k 4 -o top4 "
                 "2>&1",
           0, "top4: ");
    expect(LATHE " train distill.toml 2>&1", 2,
           "distill.toml:4:10: error: top4: its content changed since the run began");
}

Test(lineage, of_a_folder_without_a_manifest_is_its_weights)
{
    cr_assert_eq(run("cp -r out/base/step-00000002 plain && rm plain/manifest.json"), 0);
    expect(LATHE " lineage plain 2>&1", 0,
           "begins    here: no manifest tells where these weights come from");
    cr_expect(says("file      model.safetensors  "), "%s", output);
    /* as PEFT writes it */
    cr_assert_eq(run("cp -r out/dpo/step-00000001 peft && rm -r peft/manifest.json peft/state"), 0);
    expect(LATHE " lineage peft 2>&1", 0, "/out/sft/step-00000001; its hash was not recorded");
}

Test(lineage, of_something_else_is_refused)
{
    expect(LATHE " lineage nothing 2>&1", 2, "nothing: no such folder");
    expect("mkdir empty; " LATHE " lineage empty 2>&1", 2,
           "/empty: has no manifest.json, config.json or adapter_config.json; expected a "
           "checkpoint, the folder of a run, or a model's folder");
}
