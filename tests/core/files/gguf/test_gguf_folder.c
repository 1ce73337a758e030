/* A GGUF file as a folder: tokenizers with scores, texts, tensors, and what is refused. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json/json.h"
#include "files/gguf/gguf_family.h"
#include "files/gguf/gguf_folder.h"
#include "files/gguf/model_files.h"
#include "model/convert/gguf_tokenizer_write.h"
#include "tokenizer/json/tokenizer_file.h"

#define DATA LATHE_TEST_DATA "/golden/data/gguf/"

/* ---- SentencePiece ---- */

static json_t *cases_of(const char *name)
{
    char path[512];
    json_t *out = NULL;
    (void)snprintf(path, sizeof path, DATA "%s.json", name);
    cr_assert_eq(lathe_json_load_file(path, &out), LATHE_OK, "%s", lathe_error_message());
    cr_assert(json_array_size(out) > 80);
    return out;
}

/* Ids of a text must be those of sentencepiece. */
static void check_case(const lathe_tokenizer *tok, const json_t *c, const char *name)
{
    const json_t *text = json_object_get(c, "text"), *want = json_object_get(c, "ids");
    const int64_t n_want = (int64_t)json_array_size(want);
    lathe_ids ids = {0};
    cr_assert_eq(lathe_tokenizer_encode(tok, json_string_value(text),
                                        (int64_t)json_string_length(text), 0, &ids),
                 LATHE_OK, "%s", lathe_error_message());
    const int64_t n = ids.n;
    cr_expect_eq(n, n_want, "%s: \"%s\": %lld ids, want %lld", name, json_string_value(text),
                 (long long)n, (long long)n_want);
    for (int64_t i = 0; i < n && n == n_want; i++)
        cr_expect_eq(ids.data[i], json_integer_value(json_array_get(want, (size_t)i)),
                     "%s: \"%s\": id %lld is %d", name, json_string_value(text), (long long)i,
                     ids.data[i]);
    lathe_ids_fini(&ids);
}

static void check_ids(const char *name, const char *model)
{
    lathe_tokenizer *tok = NULL;
    json_t *cases = cases_of(name), *c;
    size_t i;
    cr_assert_eq(lathe_tokenizer_load(model, &tok), LATHE_OK, "%s", lathe_error_message());
    json_array_foreach(cases, i, c)
    {
        check_case(tok, c, model);
    }
    lathe_tokenizer_destroy(tok);
    json_decref(cases);
}

Test(gguf_spm, ids_are_those_of_sentencepiece)
{
    check_ids("spm_llama", DATA "spm_llama.gguf");
    check_ids("spm_gemma", DATA "spm_gemma.gguf");
}

/* The folder's tokenizer is the one that transformers' converter makes: the cases can fail for
 * another reason only here. */
Test(gguf_spm, the_converted_folder_has_the_same_ids)
{
    check_ids("spm_llama", DATA "spm_llama");
    check_ids("spm_gemma", DATA "spm_gemma");
}

Test(gguf_spm, special_tokens_are_those_of_the_keys)
{
    lathe_tokenizer *tok = NULL;
    lathe_ids ids = {0};
    cr_assert_eq(lathe_tokenizer_load(DATA "spm_llama.gguf", &tok), LATHE_OK, "%s",
                 lathe_error_message());
    cr_expect_eq(lathe_tokenizer_bos(tok), 1);
    cr_expect_eq(lathe_tokenizer_eos(tok), 2);
    /* llama.cpp begins with bos unless the file says otherwise */
    cr_assert_eq(lathe_tokenizer_encode(tok, "the", 3, LATHE_ENCODE_ADD_SPECIAL, &ids), LATHE_OK);
    cr_expect(ids.n > 1 && ids.data[0] == 1);
    lathe_ids_fini(&ids);
    lathe_tokenizer_destroy(tok);
}

/* ---- names ---- */

Test(gguf_family, names_go_to_the_folder_and_back)
{
    static const char *const archs[] = {"llama",   "qwen3",    "gemma2",  "gemma3",
                                        "phi3",    "olmo2",    "smollm3", "granite",
                                        "chatglm", "seed_oss", "glm4",    "ernie4_5"};
    static const char *const names[] = {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "model.layers.12.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_norm.weight",
        "model.layers.3.self_attn.k_proj.bias",
        "model.layers.3.post_attention_layernorm.weight",
        "model.layers.3.mlp.down_proj.weight",
    };
    lathe_arena arena = LATHE_ARENA_INIT;
    for (size_t a = 0; a < sizeof archs / sizeof archs[0]; a++) {
        const lathe_gguf_family *family =
            lathe_gguf_family_of_arch(archs[a], (int64_t)strlen(archs[a]));
        const int fused = family->fused_mlp;
        const char *up =
            fused ? "model.layers.1.mlp.gate_up_proj.weight" : "model.layers.1.mlp.up_proj.weight";
        for (size_t i = 0; i <= sizeof names / sizeof names[0]; i++) {
            const char *name = i == 0 ? up : names[i - 1], *stored = NULL, *back = NULL;
            cr_assert_eq(lathe_gguf_name(family, name, &arena, &stored), LATHE_OK, "%s", name);
            cr_assert_eq(lathe_gguf_folder_name(family, stored, &arena, &back), LATHE_OK);
            cr_expect_str_eq(back, name, "%s: %s", archs[a], stored);
        }
    }
    lathe_arena_fini(&arena);
}

/* Names that one architecture has alone, and tensors with which llama.cpp reads no file. */
Test(gguf_family, names_of_one_architecture)
{
    static const struct {
        const char *type, *folder, *gguf; /* gguf NULL: refused */
    } names[] = {
        {"llama", "lm_head.weight", "output.weight"},
        {"olmo3", "lm_head.weight", "output.weight"},
        {"gemma", "lm_head.weight", NULL},
        {"gemma2", "lm_head.weight", NULL},
        {"cohere", "lm_head.weight", NULL},
        {"cohere2", "lm_head.weight", NULL},
        {"glm4", "model.layers.2.post_self_attn_layernorm.weight",
         "blk.2.post_attention_norm.weight"},
        {"glm4", "model.layers.2.post_mlp_layernorm.weight", "blk.2.post_ffw_norm.weight"},
        {"glm4", "model.layers.2.post_attention_layernorm.weight", "blk.2.ffn_norm.weight"},
        {"glm", "model.layers.2.mlp.gate_up_proj.weight", "blk.2.ffn_up.weight"},
        {"seed_oss", "model.layers.2.post_attention_layernorm.weight",
         "blk.2.post_attention_norm.weight"},
        {"hunyuan_v1_dense", "model.layers.0.self_attn.query_layernorm.weight",
         "blk.0.attn_q_norm.weight"},
        {"hunyuan_v1_dense", "model.layers.0.self_attn.key_layernorm.weight",
         "blk.0.attn_k_norm.weight"},
        {"starcoder2", "model.layers.1.mlp.c_fc.bias", "blk.1.ffn_up.bias"},
        {"starcoder2", "model.layers.1.mlp.c_proj.weight", "blk.1.ffn_down.weight"},
        {"stablelm", "model.layers.1.self_attn.q_layernorm.norms.weight",
         "blk.1.attn_q_norm.weight"},
        {"stablelm", "model.norm.bias", "output_norm.bias"},
        {"phi", "model.layers.1.mlp.fc1.weight", "blk.1.ffn_up.weight"},
        {"phi", "model.layers.1.self_attn.dense.bias", "blk.1.attn_output.bias"},
        {"phi", "model.final_layernorm.weight", "output_norm.weight"},
        {"phi", "lm_head.bias", "output.bias"},
        {"exaone4", "model.layers.2.post_attention_layernorm.weight",
         "blk.2.post_attention_norm.weight"},
        {"qwen3", "model.layers.0.self_attn.k_norm.weight", "blk.0.attn_k_norm.weight"},
        {"granite", "model.layers.0.self_attn.o_proj.bias", "blk.0.attn_output.bias"},
        {"granite", "model.layers.0.mlp.up_proj.bias", "blk.0.ffn_up.bias"},
        {"ernie4_5", "model.layers.0.self_attn.o_proj.bias", "blk.0.attn_output.bias"},
        {"ernie4_5", "model.layers.0.mlp.up_proj.bias", NULL},
        {"qwen3", "model.layers.0.self_attn.o_proj.bias", NULL},
        {"smollm3", "model.layers.0.self_attn.o_proj.bias", NULL},
        {"smollm3", "model.layers.0.mlp.down_proj.bias", NULL},
        {"smollm3", "model.layers.0.self_attn.q_proj.bias", "blk.0.attn_q.bias"},
    };
    lathe_arena arena = LATHE_ARENA_INIT;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const lathe_gguf_family *family = lathe_gguf_family_of_type(names[i].type);
        const char *stored = NULL, *back = NULL;
        const lathe_status status = lathe_gguf_name(family, names[i].folder, &arena, &stored);
        if (names[i].gguf == NULL) {
            cr_expect_eq(status, LATHE_E_UNSUPPORTED, "%s: %s", names[i].type, names[i].folder);
            continue;
        }
        cr_assert_eq(status, LATHE_OK, "%s", lathe_error_message());
        cr_expect_str_eq(stored, names[i].gguf, "%s", names[i].type);
        cr_assert_eq(lathe_gguf_folder_name(family, stored, &arena, &back), LATHE_OK);
        cr_expect_str_eq(back, names[i].folder, "%s", names[i].type);
    }
    lathe_arena_fini(&arena);
}

Test(gguf_family, tensors_that_no_model_has_get_no_name)
{
    static const char *const names[] = {"blk.0.ffn_gate_exps.weight",
                                        "blk.x.attn_q.weight",
                                        "blk.0.token_embd.weight",
                                        "attn_q.weight",
                                        "blk.-1.attn_q.weight",
                                        "token_embd",
                                        "blk.0",
                                        ""};
    const lathe_gguf_family *family = lathe_gguf_family_of_arch("llama", 5);
    lathe_arena arena = LATHE_ARENA_INIT;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *out = "x";
        cr_assert_eq(lathe_gguf_folder_name(family, names[i], &arena, &out), LATHE_OK);
        cr_expect_null(out, "%s -> %s", names[i], out);
    }
    lathe_arena_fini(&arena);
}

/* ---- the files of a model ---- */

Test(model_files, a_gguf_file_has_the_texts_that_its_keys_give)
{
    const char *model = DATA "spm_llama.gguf";
    char *text = NULL;
    int64_t n = 0;
    cr_expect(lathe_model_has(model, "tokenizer.json"));
    cr_expect(lathe_model_has(model, "chat_template.jinja"));
    cr_expect_not(lathe_model_has(model, "config.json")); /* no tensors */
    cr_expect_not(lathe_model_has(model, "adapter_config.json"));
    cr_assert_eq(lathe_model_read(model, "chat_template.jinja", 0, &text, &n), LATHE_OK);
    cr_expect_str_eq(text, "{% for m in messages %}{{ m.content }}{% endfor %}");
    free(text);
    cr_expect_eq(lathe_model_read(model, "tokenizer.json", 100, &text, &n), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "(tokenizer.json): "));
    cr_expect_eq(lathe_model_read(model, "config.json", 0, &text, &n), LATHE_E_NOT_FOUND);
}

/* The scores of a SentencePiece model follow from the merges that transformers' converter makes of
 * it. */
Test(gguf_spm, scores_from_merges_are_those_of_the_model)
{
    static const char *const names[] = {"spm_llama", "spm_gemma"};
    for (int i = 0; i < 2; i++) {
        const lathe_model_config config = {.vocab = 560};
        char path[512], made[] = "/tmp/lathe_spm_XXXXXX.gguf";
        lathe_gguf_writer *w = NULL;
        lathe_gguf *was = NULL, *is = NULL;
        const lathe_gguf_entry *want = NULL, *got = NULL;
        const int fd = mkstemps(made, 5);
        cr_assert(fd >= 0 && close(fd) == 0 && unlink(made) == 0);
        (void)snprintf(path, sizeof path, DATA "%s", names[i]);
        cr_assert_eq(lathe_gguf_writer_create(made, &w), LATHE_OK);
        cr_assert_eq(lathe_gguf_tokenizer_write(path, &config, w), LATHE_OK, "%s",
                     lathe_error_message());
        cr_assert_eq(lathe_gguf_writer_begin(w), LATHE_OK);
        cr_assert_eq(lathe_gguf_writer_finish(w), LATHE_OK);
        lathe_gguf_writer_destroy(w);
        (void)snprintf(path, sizeof path, DATA "%s.gguf", names[i]);
        cr_assert_eq(lathe_gguf_open(path, &was), LATHE_OK);
        cr_assert_eq(lathe_gguf_open(made, &is), LATHE_OK, "%s", lathe_error_message());
        static const char *const keys[] = {"tokenizer.ggml.scores", "tokenizer.ggml.token_type",
                                           "tokenizer.ggml.tokens"};
        for (int k = 0; k < 3; k++) {
            want = lathe_gguf_value(was, keys[k]);
            got = lathe_gguf_value(is, keys[k]);
            cr_assert(want != NULL && got != NULL && want->n == 560 && got->n == 560);
            cr_expect(want->end - want->data == got->end - got->data &&
                          memcmp(want->data, got->data, (size_t)(want->end - want->data)) == 0,
                      "%s: %s", names[i], keys[k]);
        }
        lathe_gguf_close(was);
        lathe_gguf_close(is);
        (void)unlink(made);
    }
}
