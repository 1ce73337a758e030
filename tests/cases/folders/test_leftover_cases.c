/* A quantization_config that a merge into decoded weights left over plain ones (unsloth#1601,
 * transformers#34847): the checkpoint of full and of freeze has none, and such a folder is
 * quantized and scored with like any plain one. */
#include "kinds_case.h"

static void setup_leftover(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put_times("other.txt", "a dog ran by and never came back to the old barn again.\n", 40);
    put_times("pairs.jsonl",
              "{\"prompt\": \"q\", \"chosen\": \" a good answer\", \"rejected\": \" no\"}\n", 16);
    put("base.toml", base_file);
    put("kind.toml", kind_file);
    cr_assert_eq(run(LATHE " train base.toml 2>&1 && mv first/step-00000012 base && rm -r "
                           "base/manifest.json base/state && "
                           "sed -i '1s/{/{\"quantization_config\": {\"quant_method\": "
                           "\"bitsandbytes\", \"load_in_4bit\": true, \"bnb_4bit_quant_type\": "
                           "\"nf4\"},/' base/config.json && grep -c quantization_config "
                           "base/config.json"),
                 0, "%s", output);
}

TestSuite(leftover, .init = setup_leftover, .fini = remove_folder, .timeout = 120);

Test(leftover, configurations_of_formats_are_not_saved_over_plain_weights)
{
    static const char *const adapters[] = {"full", "freeze --adapter.layers 1",
                                           "lora --adapter.merge_every 3"};
    char command[512];
    for (size_t i = 0; i < sizeof adapters / sizeof adapters[0]; i++) {
        snprintf(command, sizeof command,
                 "rm -rf out && " LATHE " train kind.toml --checkpoint.dir out "
                 "--train.weight_average %s --adapter.name %s 2>&1",
                 i == 0 ? "ema" : "none", adapters[i]);
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
        cr_expect_neq(run("grep -rl --include=config.json quantization_config out"), 0, "%s: %s",
                      adapters[i], output);
    }
}

Test(leftover, configurations_of_formats_do_not_make_a_folder_quantized)
{
    expect(LATHE " quantize base --quant.name nf4 -o q 2>&1", 0, "wrote q");
    cr_expect_not_null(strstr(output, "warning: base/config.json: quantization_config changes "
                                      "nothing: the weights beside it are plain numbers"),
                       "%s", output);
    expect(LATHE " eval q --data other.txt 2>&1", 0, "loss");
    cr_expect_null(strstr(output, "changes nothing"), "%s", output);
    expect(LATHE " quantize q --quant.name nf4 -o r 2>&1", 2, "already quantized");
    cr_assert_eq(run(LATHE " train kind.toml --checkpoint.dir rm --stage.name rm --data.datasets "
                           "'[{path = \"pairs.jsonl\"}]' 2>&1 && cp base/config.json c.json && "
                           "sed -i '1s/{/{\"quantization_config\": {\"quant_method\": "
                           "\"bitsandbytes\", \"load_in_4bit\": true, \"bnb_4bit_quant_type\": "
                           "\"nf4\"},/' rm/step-00000008/config.json && rm "
                           "rm/step-00000008/manifest.json"),
                 0, "%s", output);
    put("ppo.toml",
        "[model]\npath = \"base\"\n[data]\ndatasets = [{path = \"pairs.jsonl\"}]\nseq_len = 16\n"
        "[stage]\nname = \"ppo\"\nprompts = 1\ngroup = 2\nmax_new_tokens = 4\n"
        "[reward]\nmodel = \"rm\"\n[train]\nmax_steps = 1\n[checkpoint]\ndir = \"ppo\"\n");
    expect(LATHE " validate ppo.toml 2>&1", 0, "valid");
}
