/* A base model in the folder "m": byte-level tokens, ChatML's two tokens, which its end tokens do
 * not have, and a ChatML template. It was made by a run, and says nothing of that run. */
#ifndef LATHE_TEST_CASES_TOKENS_CASE_H
#define LATHE_TEST_CASES_TOKENS_CASE_H

#include "cli/cli_case.h"

#include "base/byte_level.h"
#include "base/utf8.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

/* Ids: 0 to 255 are bytes; then the added tokens. */
enum { END_OF_TEXT = 256, IM_START = 257, IM_END = 258, N_TOKENS = 259 };

static const char template_text[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

static void put_bytes_vocabulary(FILE *file)
{
    for (int32_t byte = 0; byte < 256; byte++) {
        uint8_t text[5] = {0};
        text[lathe_utf8_put(text, lathe_byte_char(byte))] = 0;
        const int is_quoted = text[0] == '"' || text[0] == '\\';
        fprintf(file, "%s\"%s%s\": %d", byte ? ", " : "", is_quoted ? "\\" : "", (char *)text,
                byte);
    }
}

/* normalizer, post_processor: JSON. names: the added tokens, from 256 on; NULL ends the list. */
static void put_tokenizer(const char *path, const char *normalizer, const char *post_processor,
                          const char *const *names)
{
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    fprintf(file, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, "
                  "\"added_tokens\": [");
    for (int i = 0; names[i]; i++)
        fprintf(file,
                "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
                "\"rstrip\": false, \"normalized\": false, \"special\": true}",
                i ? ", " : "", 256 + i, names[i]);
    fprintf(file,
            "], \"normalizer\": %s, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
            "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true}, "
            "\"post_processor\": %s, \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
            "true, \"trim_offsets\": true, \"use_regex\": true}, \"model\": {\"type\": \"BPE\", "
            "\"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null, "
            "\"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, "
            "\"ignore_merges\": false, \"vocab\": {",
            normalizer, post_processor);
    put_bytes_vocabulary(file);
    fprintf(file, "}, \"merges\": []}}");
    cr_assert_eq(fclose(file), 0);
}

static const char *const chatml_tokens[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", NULL};

/* Makes "m" with these tokens and this chat template. */
static void make_model(const char *const *names, const char *text)
{
    cr_assert_eq(mkdir("tok", 0755), 0);
    put_tokenizer("tok/tokenizer.json", "null", "null", names);
    put("tok/tokenizer_config.json",
        "{\"eos_token\": \"<|endoftext|>\", \"tokenizer_class\": \"PreTrainedTokenizerFast\"}");
    if (text)
        put("tok/chat_template.jinja", text);
    put_times("words.txt", "the wheel turns and the tool holds\n", 20);
    put("make.toml", "[model]\nmodel_type = \"llama\"\nvocab_size = 264\nhidden_size = 64\n"
                     "intermediate_size = 96\nnum_hidden_layers = 2\nnum_attention_heads = 2\n"
                     "max_position_embeddings = 128\n[tokenizer]\npath = \"tok\"\n"
                     "[data]\ndatasets = [{ path = \"words.txt\", type = \"text\" }]\n"
                     "seq_len = 16\n[train]\nprecision = \"fp32\"\nmax_steps = 1\nthreads = 1\n"
                     "[checkpoint]\ndir = \"made\"\n");
    cr_assert_eq(run(LATHE " train make.toml 2>&1"), 0, "%s", output);
    cr_assert_eq(run("cp -r made/step-00000001 m && rm -r m/manifest.json m/state made tok"), 0);
}

static void setup(void)
{
    make_folder();
    make_model(chatml_tokens, template_text);
}

#endif
