/* Runs that begin with an adapter: model.adapter, or an adapter's folder as model.path. */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

#define MODEL                                                                                      \
    "hidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = 2\n"                            \
    "num_attention_heads = 2\nmax_position_embeddings = 64\nvocab_size = 260\n"
static const char base_file[] =
    "[model]\nmodel_type = \"llama\"\n" MODEL "[tokenizer]\npath = \"bytes\"\n"
    "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 32\n"
    "[train]\nmax_steps = 4\nprecision = \"fp32\"\nthreads = 1\n"
    "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"first\"\n";

static const char first_file[] = "[model]\npath = \"base\"\n"
                                 "[adapter]\nname = \"lora\"\nr = 4\nalpha = 16.0\n"
                                 "target_modules = [\"q_proj\", \"down_proj\"]\n"
                                 "[tokenizer]\npath = \"bytes\"\n"
                                 "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 32\n"
                                 "[optimizer]\nlr = 0.05\n"
                                 "[train]\nmax_steps = 8\nprecision = \"fp32\"\nthreads = 1\n"
                                 "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"out\"\n";

static const char next_file[] = "[model]\npath = \"../out\"\n"
                                "[tokenizer]\npath = \"bytes\"\n"
                                "[data]\ndatasets = [{ path = \"../text.txt\" }]\nseq_len = 32\n"
                                "[train]\nmax_steps = 2\nprecision = \"fp32\"\nthreads = 1\n"
                                "[optimizer]\nlr = 0.0\nweight_decay = 0.0\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"../next\"\n";

static const char dpo_file[] =
    "[model]\npath = \"out\"\n"
    "[tokenizer]\npath = \"bytes\"\n"
    "[data]\ndatasets = [{ path = \"pairs.jsonl\" }]\nseq_len = 32\n"
    "validation = [{ path = \"pairs.jsonl\" }]\n"
    "[stage]\nname = \"dpo\"\n[optimizer]\nlr = 0.01\n"
    "[train]\nmax_steps = 4\nprecision = \"fp32\"\nthreads = 1\n"
    "[log]\nprogress = \"plain\"\n[checkpoint]\ndir = \"dpo\"\nevery = 2\n";

static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put_times("pairs.jsonl",
              "{\"prompt\": \"a \", \"chosen\": \"good cat\", \"rejected\": \"no\"}\n", 8);
    put("base.toml", base_file);
    put("first.toml", first_file);
    cr_assert_eq(run("mkdir runs"), 0);
    put("runs/next.toml", next_file);
    put("dpo.toml", dpo_file);
    expect(LATHE " train base.toml 2>&1 && mv first/step-00000004 base", 0, "checkpoint");
    expect(LATHE " train first.toml 2>&1", 0, "step-00000008");
}

TestSuite(begin_adapter, .init = setup, .fini = remove_folder, .timeout = 120);

/* With a learning rate of 0 the adapter after two steps is the one before. */
Test(begin_adapter, its_weights_and_settings_are_those_of_the_folder)
{
    expect(LATHE " validate runs/next.toml 2>&1", 0, "valid");
    expect(LATHE " train runs/next.toml 2>&1", 0, "begins with the adapter in runs/../out/step-");
    cr_expect_eq(run("cmp out/step-00000008/adapter_model.safetensors "
                     "next/step-00000002/adapter_model.safetensors"),
                 0);
    cr_expect_eq(run("cmp out/step-00000008/adapter_config.json "
                     "next/step-00000002/adapter_config.json"),
                 0);
    expect(LATHE " lineage next", 0, "<- adapter: ");
    /* another method of the same tensors, and a setting of training alone */
    expect(LATHE " train runs/next.toml --adapter.name lora_plus --adapter.dropout 0.1 "
                 "--checkpoint.dir plus 2>&1 && cmp out/step-00000008/adapter_model.safetensors "
                 "plus/step-00000002/adapter_model.safetensors && echo same",
           0, "same");
}

/* A folder as PEFT writes it has no manifest, and its base may be given. */
Test(begin_adapter, of_peft_is_taken_over_a_model_that_is_named)
{
    cr_assert_eq(run("mkdir peft && cp out/step-00000008/adapter_* peft && mv base moved"), 0);
    expect(LATHE " validate runs/next.toml --model.path peft 2>&1", 2,
           "base, which does not exist: name the model's folder");
    expect(LATHE " validate runs/next.toml --model.path moved --model.adapter peft "
                 "--adapter.r 3 2>&1",
           2, "adapter.r is 3, but the adapter in peft was trained with 4");
    expect(LATHE " train runs/next.toml --model.path moved --model.adapter peft 2>&1", 0,
           "begins with the adapter in peft, over the model in moved");
    cr_expect_eq(run("cmp peft/adapter_model.safetensors "
                     "next/step-00000002/adapter_model.safetensors"),
                 0);
}

Test(begin_adapter, settings_that_change_it_are_refused)
{
    expect(LATHE " train runs/next.toml --adapter.alpha 8 2>&1", 2,
           "adapter.alpha is 8.0, but the adapter in runs/../out/step-00000008 was trained with "
           "16.0, and computes something else with another value: leave the key out");
    expect(
        LATHE " validate runs/next.toml --adapter.init gaussian 2>&1", 2,
        "adapter.init is \"gaussian\", but the adapter in runs/../out/step-00000008 has its values "
        "already: leave the key out");
    expect(LATHE " validate runs/next.toml --adapter.target_modules '[\"q_proj\"]' 2>&1", 2,
           "adapter.target_modules is [\"q_proj\"], but the adapter in ");
    expect(LATHE " validate runs/next.toml --adapter.name auto 2>&1", 2,
           "adapter.name = \"auto\" chooses a method, but model.path names an adapter");
    expect(LATHE " validate runs/next.toml --adapter.alpha 16 --adapter.r 4 2>&1", 0, "valid");
    /* keys that the folder of PEFT does not have */
    cr_assert_eq(run("mkdir peft && cp out/step-00000008/adapter_* peft"), 0);
    expect(LATHE " validate runs/next.toml --model.path peft --adapter.use_rslora true 2>&1", 2,
           "adapter.use_rslora is true, but the adapter in peft was trained with false");
    expect(LATHE " validate runs/next.toml --model.path peft "
                 "--adapter.alpha_pattern '{q_proj = 4}' 2>&1",
           2, "--adapter.alpha_pattern: error: adapter.alpha_pattern is ");
    expect(LATHE " validate runs/next.toml --model.path peft "
                 "--adapter.target_pattern '.*q_proj' 2>&1",
           2, "target_pattern is set, but the adapter in peft was trained without it");
}

Test(begin_adapter, another_method_is_refused_unless_its_tensors_fit)
{
    expect(LATHE " validate runs/next.toml --adapter.name dora 2>&1", 2,
           "does not fit: the adapter's file lacks ");
    expect(LATHE " validate runs/next.toml --adapter.name oft 2>&1", 2,
           "does not fit: the adapter's file lacks ");
    expect(LATHE " validate runs/next.toml --adapter.name full 2>&1", 2,
           "holds an adapter, but adapter \"full\" has no parameters of its own");
    cr_assert_eq(run("sed -i 's/\"lora\"/\"dora\"/; s/\"out\"/\"dora\"/' first.toml"), 0);
    expect(LATHE " train first.toml 2>&1", 0, "step-00000008");
    expect(LATHE " validate runs/next.toml --model.path dora --adapter.name lora 2>&1", 2,
           "belongs to no parameter of adapter \"lora\" with its settings");
}

Test(begin_adapter, folders_without_an_adapter_are_refused)
{
    expect(LATHE " validate runs/next.toml --model.adapter base 2>&1", 2,
           "model.adapter = \"base\": the folder has no adapter_model.safetensors, so it is not an "
           "adapter's");
    expect(LATHE " validate runs/next.toml --model.adapter nowhere 2>&1", 2,
           "model.adapter: no such folder: nowhere");
    cr_assert_eq(run("mkdir damaged && echo step-x > damaged/latest"), 0);
    expect(LATHE " validate runs/next.toml --model.path base --model.adapter damaged 2>&1", 2,
           "--model.adapter: error: model.adapter: damaged/latest does not name a checkpoint");
    expect(LATHE " validate base.toml --model.adapter out 2>&1", 2,
           "model.adapter and model.model_type exclude each other");
}

/* The loss of the first step is ln 2: the model before training is the base with the adapter. */
Test(begin_adapter, the_reference_has_it_too)
{
    expect(LATHE " train dpo.toml 2>&1", 0, "step 1/4  loss 0.6931");
    expect(LATHE " lineage dpo", 0, "<- adapter, reference: ");
    char of_run[4096];
    cr_assert_eq(run(LATHE " eval dpo.toml --train.precision fp32 2>/dev/null"), 0);
    strcpy(of_run, output);
    cr_expect_eq(run(LATHE " eval dpo --data pairs.jsonl --train.precision fp32 2>/dev/null"), 0);
    cr_expect_str_eq(output, of_run);
    cr_assert_eq(run("mv out elsewhere"), 0);
    expect(LATHE " eval dpo --data pairs.jsonl 2>&1", 2, "model.adapter: no such folder: ");
}

Test(begin_adapter, a_run_that_resumes_keeps_its_reference)
{
    expect(LATHE " train dpo.toml 2>&1", 0, "step-00000004");
    expect(LATHE " train dpo.toml --checkpoint.dir part --train.stop_after 2 2>&1", 0,
           "step-00000002");
    expect(LATHE " train dpo.toml --checkpoint.dir part 2>&1", 0, "step-00000004");
    cr_expect_eq(run("cmp dpo/step-00000004/adapter_model.safetensors "
                     "part/step-00000004/adapter_model.safetensors"),
                 0);
    cr_assert_eq(run("printf ' ' >>out/step-00000008/adapter_config.json; "
                     "rm -r part/step-00000004; echo step-00000002 >part/latest"),
                 0);
    expect(LATHE " train dpo.toml --checkpoint.dir part 2>&1", 2, "adapter_config.json: ");
}
