/* Keys of a GGUF file that nothing reads are named, and all end tokens go into one and back. */
#include "tokens_case.h"

TestSuite(gguf_key_cases, .init = setup, .fini = remove_folder);

/* Replaces the first `from` in a file by `to`, of the same length. */
static void edit(const char *path, const char *from, const char *to)
{
    static char bytes[1 << 20];
    FILE *file = fopen(path, "r+b");
    cr_assert_not_null(file);
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    char *at = memmem(bytes, n, from, strlen(from));
    cr_assert_eq(strlen(from), strlen(to));
    cr_assert_not_null(at, "%s has no %s", path, from);
    cr_assert_eq(fseek(file, at - bytes, SEEK_SET), 0);
    cr_assert_eq(fwrite(to, strlen(to), 1, file), 1);
    cr_assert_eq(fclose(file), 0);
}

Test(gguf_key_cases, that_nothing_reads_are_named)
{
    static const char *const commands[] = {
        LATHE " eval m.gguf --data words.txt --data.seq_len 16 2>&1",
        LATHE " generate m.gguf --prompt the --max-new-tokens 2 2>&1",
        "rm -rf back && " LATHE " convert m.gguf -o back 2>&1"};
    static const char want[] = "m.gguf: keys that nothing reads: llama.foo_factor\n";
    expect(LATHE " convert m -o m.gguf 2>&1", 0, "m.gguf");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        cr_assert_eq(run(commands[i]), 0, "%s: %s", commands[i], output);
        cr_expect_null(strstr(output, "keys that nothing reads"), "%s: %s", commands[i], output);
    }
    edit("m.gguf", "llama.vocab_size", "llama.foo_factor"); /* a number above 0 */
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        expect(commands[i], 0, want);
        cr_expect_null(strstr(strstr(output, want) + 1, want), "told twice: %s", output);
    }
}

Test(gguf_key_cases, have_room_for_three_ends)
{
    put("m/generation_config.json", "{\"eos_token_id\": [256, 257, 258]}");
    expect(LATHE " convert m -o m.gguf 2>&1", 0, "m.gguf");
    cr_expect_null(strstr(output, "are lost"), "%s", output);
    expect(LATHE " convert m.gguf -o back 2>&1", 0, "back");
    expect("tr -d ' \\n' <back/generation_config.json", 0, "\"eos_token_id\":[256,257,258]");
    put("m/generation_config.json", "{\"eos_token_id\": [256, 257, 258, 3]}");
    expect(
        LATHE " convert m -o four.gguf 2>&1", 0,
        "generation ends at 3 tokens beside the end of text, and GGUF has keys for 2: the others "
        "are lost");
}

/* llama.cpp applies a scaling and factors of the frequencies together. */
Test(gguf_key_cases, of_a_scaling_beside_factors_are_refused)
{
    cr_assert_eq(run("sed -i 's/\"rope_theta\": 10000.0/&, \"rope_scaling\": {\"rope_type\": "
                     "\"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
                     "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}/' "
                     "m/config.json && grep -q llama3 m/config.json"),
                 0);
    expect(LATHE " convert m -o m.gguf 2>&1", 0, "m.gguf");
    expect(LATHE " generate m.gguf --prompt the --max-new-tokens 2 2>&1", 0, "the");
    edit("m.gguf", "tokenizer.chat_template", "llama.rope.scaling.type"); /* both are texts */
    expect(LATHE " generate m.gguf --prompt the --max-new-tokens 2 2>&1", 1,
           "the key llama.rope.scaling.type is \"{% for");
}
