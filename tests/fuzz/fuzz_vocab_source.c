/* libFuzzer target: any bytes as a vocabulary in another form than tokenizer.json. The first byte
 * says which file they are; the class goes with it. What is made of an accepted vocabulary is JSON,
 * and a tokenizer that reads it gives ids of its own. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "files/gguf/model_files.h"
#include "fuzz/fuzz_folder.h"
#include "tokenizer/json/tokenizer_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    const char *name, *config;
} kinds[] = {
    {"tokenizer.model", "{}"},
    {"tokenizer.model", "{\"tokenizer_class\": \"LlamaTokenizer\", \"add_bos_token\": true}"},
    {"spiece.model", "{\"tokenizer_class\": \"T5Tokenizer\", \"extra_ids\": 3}"},
    {"sentencepiece.bpe.model", "{\"tokenizer_class\": \"XLMRobertaTokenizer\"}"},
    {"tekken.json", "{\"eos_token\": \"</s>\"}"},
    {"merges.txt", "{\"tokenizer_class\": \"Qwen2Tokenizer\"}"},
    {"vocab.json", "{\"tokenizer_class\": \"GPT2Tokenizer\"}"},
    {"vocab.txt", "{\"tokenizer_class\": \"BertTokenizer\"}"}};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static void drop(const char *name)
{
    char path[160];
    (void)snprintf(path, sizeof path, "%s/%s", fuzz_folder, name);
    (void)unlink(path);
}

static void check(const lathe_tokenizer *tok)
{
    static const char text[] = " the  a\xc3\xa9 \xff<s>\n12";
    lathe_ids ids = {NULL, 0, 0};
    char *back = NULL;
    int64_t n = 0;
    if (lathe_tokenizer_encode(tok, text, sizeof text - 1, LATHE_ENCODE_ADD_SPECIAL, &ids) ==
        LATHE_OK) {
        for (int64_t i = 0; i < ids.n; i++)
            if (ids.data[i] < 0 || ids.data[i] >= lathe_tokenizer_vocab_size(tok))
                abort();
        if (lathe_tokenizer_decode(tok, ids.data, ids.n, 0, &back, &n) == LATHE_OK)
            free(back);
    }
    lathe_ids_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lathe_tokenizer *tok = NULL;
    json_t *config = NULL;
    if (size == 0)
        return 0;
    if (fuzz_folder_make())
        lathe_log_set_level(LATHE_LOG_ERROR + 1);
    const size_t kind = data[0] % N_KINDS;
    for (size_t i = 0; i < N_KINDS; i++)
        drop(kinds[i].name);
    if (strcmp(kinds[kind].name, "merges.txt") == 0)
        fuzz_folder_put("vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2}", 26);
    if (strcmp(kinds[kind].name, "vocab.json") == 0)
        fuzz_folder_put("merges.txt", "#version: 0.2\na b\n", 18);
    fuzz_folder_put("tokenizer_config.json", kinds[kind].config, strlen(kinds[kind].config));
    fuzz_folder_put(kinds[kind].name, data + 1, size - 1);
    if (lathe_tokenizer_load(fuzz_folder, &tok) == LATHE_OK)
        check(tok);
    lathe_tokenizer_destroy(tok);
    if (lathe_model_json(fuzz_folder, "tokenizer_config.json", &config) == LATHE_OK)
        json_decref(config);
    return 0;
}
