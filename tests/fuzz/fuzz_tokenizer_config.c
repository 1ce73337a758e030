/* libFuzzer target: any bytes as a tokenizer_config.json beside a tokenizer. Special tokens are in
 * its vocabulary, and the chat template is read or refused. */
#include <string.h>

#include "base/log.h"
#include "chat/template/chat_template.h"
#include "fuzz/fuzz_folder.h"
#include "tokenizer/json/tokenizer_file.h"

static const char tokenizer[] =
    "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 3, \"content\": \"<e>\", \"single_word\": "
    "false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}], "
    "\"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": null, \"decoder\": null, "
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"<e>\": 3}, "
    "\"merges\": [\"a b\"]}}";

static void check(const lathe_tokenizer *tok, int32_t id)
{
    if (id < -1 || id >= lathe_tokenizer_vocab_size(tok))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lathe_tokenizer *tok = NULL;
    lathe_chat_template *chat = NULL;
    if (fuzz_folder_make()) {
        lathe_log_set_level(LATHE_LOG_ERROR + 1);
        fuzz_folder_put("tokenizer.json", tokenizer, sizeof tokenizer - 1);
    }
    fuzz_folder_put("tokenizer_config.json", data, size);
    if (lathe_tokenizer_load(fuzz_folder, &tok) == LATHE_OK) {
        check(tok, lathe_tokenizer_bos(tok));
        check(tok, lathe_tokenizer_eos(tok));
        check(tok, lathe_tokenizer_pad(tok));
    }
    if (lathe_chat_template_load(fuzz_folder, &chat) == LATHE_OK)
        lathe_chat_template_destroy(chat);
    lathe_tokenizer_destroy(tok);
    return 0;
}
