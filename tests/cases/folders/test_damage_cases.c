/* Weights that are not those that were written are told by every command that reads them: a flipped
 * bit in a folder with a manifest, and other weights under an adapter. */
#include "kinds_case.h"

static void setup_two(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put_times("other.txt", "a dog ran by and never came back to the old barn again.\n", 40);
    put_times("answers.jsonl", "{\"prompt\": \"a dog\", \"completion\": \" ran by\"}\n", 8);
    put("base.toml", base_file);
    put("kind.toml", kind_file);
    put("still.toml", still_file);
    cr_assert_eq(run(LATHE " train base.toml 2>&1 && mv first/step-00000012 base && rm -r "
                           "base/manifest.json base/state"),
                 0, "%s", output);
    cr_assert_eq(run(LATHE " train kind.toml --checkpoint.dir average --train.weight_average ema "
                           "2>&1 && " LATHE
                           " train kind.toml --checkpoint.dir lora --adapter.name lora 2>&1"),
                 0, "%s", output);
}

TestSuite(damage, .init = setup_two, .fini = remove_folder, .timeout = 200);

/* Flips one bit of a file, at a place in percent of its length. */
static void flip(const char *path, int percent)
{
    FILE *file = fopen(path, "r+b");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    const long at = ftell(file) * percent / 100;
    cr_assert_eq(fseek(file, at, SEEK_SET), 0);
    const int byte = fgetc(file);
    cr_assert_eq(fseek(file, at, SEEK_SET), 0);
    cr_assert_neq(fputc(byte ^ 1, file), EOF);
    cr_assert_eq(fclose(file), 0);
}

static void expect_all_refuse(const char *const *commands, size_t n, const char *text)
{
    for (size_t i = 0; i < n; i++)
        expect_refusal(commands[i], text);
}

#define N(list) (sizeof(list) / sizeof((list)[0]))

Test(damage, of_a_folder_with_a_manifest_is_told_by_all_that_read_it)
{
    static const char *const average[] = {
        LATHE " eval average --data other.txt 2>&1",
        LATHE " generate average --prompt a --max-new-tokens 2 2>&1",
        "echo a | " LATHE " chat average --data.chat_template t.jinja 2>&1",
        LATHE " convert average -o a.gguf 2>&1",
        LATHE " quantize average --quant.name nf4 -o q 2>&1",
        LATHE " merge average lora -o m 2>&1",
        LATHE " train still.toml --model.path average 2>&1",
        LATHE " validate still.toml --model.path average --checkpoint.dir n 2>&1",
        LATHE " generate base --generate.draft average --prompt a 2>&1",
        LATHE " validate distill.toml --teacher.path average 2>&1",
        LATHE " logprobs distill.toml --teacher.path average -o lp 2>&1"};
    static const char *const training[] = {
        LATHE " eval average --weights training --data other.txt 2>&1",
        LATHE " convert average --weights training -o a.gguf 2>&1",
        LATHE " quantize average --weights training --quant.name nf4 -o q 2>&1",
        LATHE " validate still.toml --model.path average --model.weights training "
              "--checkpoint.dir n 2>&1"};
    put("t.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
    put("distill.toml",
        "[model]\npath = \"base\"\n[data]\ndatasets = [{path = \"answers.jsonl\"}]\nseq_len = 16\n"
        "[stage]\nname = \"distill\"\n[teacher]\npath = \"base\"\n[train]\nmax_steps = 1\n"
        "[checkpoint]\ndir = \"distilled\"\n");
    expect(LATHE " eval average --data other.txt 2>&1", 0, "loss"); /* both are whole */
    flip("average/step-00000008/average/model.safetensors", 60);
    expect_all_refuse(average, N(average),
                      "average/step-00000008/average/model.safetensors: its content changed");
    expect(LATHE " eval average --weights training --data other.txt 2>&1", 0, "loss");
    flip("average/step-00000008/model.safetensors", 60);
    expect_all_refuse(training, N(training),
                      "average/step-00000008/model.safetensors: its content changed");
    expect(LATHE " eval average --data other.txt 2>&1", 1,
           "lathe checkpoint verify average/step-00000008 lists every damaged file); if it was "
           "changed on purpose, remove average/step-00000008/manifest.json");
    cr_assert_eq(run("rm average/step-00000008/manifest.json"), 0);
    expect(LATHE " eval average --data other.txt 2>&1", 0, "loss");
}

/* Files beside the weights: what describes them must be whole; texts that people edit are told. */
Test(damage, of_a_configuration_is_an_error_and_of_a_text_a_warning)
{
    cr_assert_eq(run("sed -i 's/\"rms_norm_eps\"/\"rms_norm_epx\"/' "
                     "average/step-00000008/average/config.json"),
                 0);
    expect(LATHE " eval average --data other.txt 2>&1", 1, "average/config.json: its content");
    expect(LATHE " eval average --weights training --data other.txt 2>&1", 0, "loss");
    put("average/step-00000008/tokenizer_config.json", "{}");
    expect(LATHE " eval average --weights training --data other.txt 2>&1", 0,
           "tokenizer_config.json: 2 bytes, recorded:");
    cr_expect_not_null(strstr(output, "it is read as it is now"), "%s", output);
}

Test(damage, of_an_adapter_and_of_a_merged_folder_is_told)
{
    cr_assert_eq(run(LATHE " merge base lora -o merged 2>&1"), 0, "%s", output);
    flip("merged/model.safetensors", 70);
    expect_refusal(LATHE " generate merged --prompt a 2>&1",
                   "merged/model.safetensors: its content");
    flip("lora/step-00000008/adapter_model.safetensors", 70);
    static const char *const uses[] = {LATHE " eval lora --data other.txt 2>&1",
                                       LATHE " merge base lora -o m 2>&1",
                                       LATHE " merge lora -o m 2>&1",
                                       LATHE " validate still.toml --model.path lora 2>&1",
                                       LATHE " validate still.toml --model.adapter lora 2>&1",
                                       LATHE " generate base --adapter a=lora --prompt a 2>&1"};
    expect_all_refuse(uses, N(uses), "adapter_model.safetensors: its content changed");
}

Test(damage, other_weights_under_an_adapter_are_refused_unless_they_are_named)
{
    static const char *const own[] = {
        LATHE " eval lora --data other.txt 2>&1",
        LATHE " generate lora --prompt a --max-new-tokens 2 2>&1",
        LATHE " generate kind.toml --checkpoint.dir lora --adapter.name lora --prompt a 2>&1",
        LATHE " eval kind.toml --checkpoint.dir lora --adapter.name lora --data other.txt 2>&1",
        LATHE " merge lora -o m 2>&1",
        LATHE " train still.toml --model.path lora 2>&1",
        LATHE " generate base --adapter a=lora --prompt a 2>&1"};
    static const char *const named[] = {
        LATHE " eval lora --model.path base --data other.txt 2>&1",
        LATHE " eval kind.toml --checkpoint.dir lora --adapter.name lora --model.path base --data "
              "other.txt 2>&1",
        LATHE " merge base lora -o m 2>&1", LATHE " train still.toml --model.adapter lora 2>&1"};
    const double before = loss_of("lora", 0);
    flip("base/model.safetensors", 60);
    expect_all_refuse(own, N(own), "base/model.safetensors: its content changed");
    expect(LATHE " eval lora --data other.txt 2>&1", 2,
           "restore it, or, if this model is meant, name it in model.path");
    for (size_t i = 0; i < N(named); i++)
        expect(named[i], 0, "base/model.safetensors: its content changed");
    flip("base/model.safetensors", 60);
    cr_expect_eq(loss_of("lora", 0), before);
    cr_assert_eq(run("cp -r base copy"), 0);
    cr_assert_eq(run(LATHE " eval lora --model.path copy --data other.txt 2>&1"), 0, "%s", output);
    cr_expect_null(strstr(output, "warning"), "%s", output);
}
