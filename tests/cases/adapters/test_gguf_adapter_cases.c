/* lathe convert of an adapter: the GGUF adapter that llama.cpp reads. Names, keys and the order of
 * rows are those of convert_lora_to_gguf.py; the file was read with the package gguf 0.19. */
#include "cli/cli_case.h"
#include "files/gguf/gguf_file.h"
#include "files/safetensors/safetensors.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define PEFT LATHE_TEST_DATA "/golden/data/peft"
#define OUTER LATHE_TEST_DATA "/golden/data/adapters/outer_untied"
#define UNTIED LATHE_TEST_DATA "/golden/data/models/llama_untied"

TestSuite(gguf_adapter_cases, .init = make_folder, .fini = remove_folder, .timeout = 120);

static float of_peft(const lathe_st_tensor *t, int64_t r, int64_t c)
{
    float value = 0.0f;
    cr_assert_eq(lathe_st_read(t, r * t->desc.dims[1] + c, 1, &value, LATHE_F32), LATHE_OK);
    return value;
}

static float of_gguf(const lathe_gguf_tensor *t, int64_t r, int64_t c)
{
    float value;
    memcpy(&value, t->data + 4 * (r * t->cols + c), sizeof value);
    return value;
}

/* Compares an f32 tensor of the file with one of PEFT times the factor. heads > 0: its rows are in
 * llama.cpp's order, reshape(heads, 2, d/2).swapaxes(1, 2) of transformers'. */
static void expect_tensor(const lathe_gguf *gguf, const char *name, const lathe_safetensors *peft,
                          const char *key, int heads, int transposed, float factor)
{
    const lathe_gguf_tensor *a = lathe_gguf_find(gguf, name);
    const lathe_st_tensor *b = lathe_safetensors_find(peft, key);
    cr_assert(a != NULL && b != NULL, "%s, %s", name, key);
    cr_assert_str_eq(a->type->name, "F32");
    cr_expect_eq(a->rows, b->desc.dims[transposed]);
    cr_expect_eq(a->cols, b->desc.dims[!transposed]);
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->cols; c++) {
            const int64_t d = heads ? a->rows / heads : 2;
            const int64_t from = heads ? r / d * d + r % 2 * (d / 2) + r % d / 2 : r;
            const float want = factor * (transposed ? of_peft(b, c, from) : of_peft(b, from, c));
            cr_assert_float_eq(of_gguf(a, r, c), want, 1e-6f, "%s [%lld, %lld]", name, (long long)r,
                               (long long)c);
        }
}

static lathe_gguf *open_gguf(const char *path, double alpha)
{
    lathe_gguf *file = NULL;
    double seen = 0.0;
    cr_assert_eq(lathe_gguf_open(path, &file), LATHE_OK);
    cr_assert_eq(lathe_gguf_float(file, "adapter.lora.alpha", 0.0, &seen), LATHE_OK);
    cr_expect_float_eq(seen, alpha, 1e-9);
    const lathe_gguf_entry *type = lathe_gguf_value(file, "general.type");
    cr_assert_not_null(type);
    cr_expect_eq(memcmp(type->data + 8, "adapter", 7), 0);
    type = lathe_gguf_value(file, "adapter.type");
    cr_assert_not_null(type);
    cr_expect_eq(memcmp(type->data + 8, "lora", 4), 0);
    return file;
}

static lathe_safetensors *open_peft(const char *path)
{
    lathe_safetensors *set = NULL;
    cr_assert_eq(lathe_safetensors_open(path, &set), LATHE_OK);
    return set;
}

#define LAYER "base_model.model.model.layers.2.self_attn."

Test(gguf_adapter_cases, has_the_names_keys_and_rows_of_llama_cpp)
{
    expect(LATHE " convert " PEFT "/digits --base " PEFT "/base -o a.gguf 2>&1", 0, "a.gguf");
    lathe_gguf *gguf = open_gguf("a.gguf", 4.0);
    lathe_safetensors *peft = open_peft(PEFT "/digits/adapter_model.safetensors");
    cr_expect_eq(lathe_gguf_count(gguf), 12);
    expect_tensor(gguf, "blk.2.attn_q.weight.lora_a", peft, LAYER "q_proj.lora_A.weight", 0, 0, 1);
    expect_tensor(gguf, "blk.2.attn_q.weight.lora_b", peft, LAYER "q_proj.lora_B.weight", 2, 0, 1);
    expect_tensor(gguf, "blk.2.attn_v.weight.lora_a", peft, LAYER "v_proj.lora_A.weight", 0, 0, 1);
    /* alpha_pattern has 64 in place of 4: llama.cpp knows one alpha */
    expect_tensor(gguf, "blk.2.attn_v.weight.lora_b", peft, LAYER "v_proj.lora_B.weight", 0, 0, 16);
    lathe_gguf_close(gguf);
    lathe_safetensors_close(peft);
}

Test(gguf_adapter_cases, of_the_embedding_and_the_head_are_as_llama_cpp_looks_them_up)
{
    expect(LATHE " convert " OUTER " --base " UNTIED " -o b.gguf 2>&1", 0, "b.gguf");
    lathe_gguf *gguf = open_gguf("b.gguf", 6.0);
    lathe_safetensors *peft = open_peft(OUTER "/adapter_model.safetensors");
    /* rsLoRA: the factors are alpha/sqrt(r), and llama.cpp computes 6/r */
    expect_tensor(gguf, "token_embd.weight.lora_a", peft,
                  "base_model.model.model.embed_tokens.lora_embedding_A", 0, 1, 1);
    expect_tensor(gguf, "token_embd.weight.lora_b", peft,
                  "base_model.model.model.embed_tokens.lora_embedding_B", 0, 0,
                  2.0f * 5.0f / 6.0f); /* r 4, alpha 5 */
    expect_tensor(gguf, "output.weight.lora_b", peft, "base_model.model.lm_head.lora_B.weight", 0,
                  0, 1.7320508f); /* r 3, alpha 6 */
    lathe_gguf_close(gguf);
    lathe_safetensors_close(peft);
}

Test(gguf_adapter_cases, what_a_gguf_adapter_cannot_hold_is_refused)
{
    expect(LATHE " convert " PEFT "/dora --base " PEFT "/base -o a.gguf 2>&1", 2, "plain LoRA");
    expect(LATHE " convert " PEFT "/lora_bias --base " PEFT "/base -o a.gguf 2>&1", 2,
           "plain LoRA");
    expect(LATHE " convert " PEFT "/oft_layers --base " PEFT "/base -o a.gguf 2>&1", 2,
           "this one is \"oft\"");
    expect(LATHE " convert " PEFT "/tied_both --base " PEFT "/tied -o a.gguf 2>&1", 2,
           "is trained whole");
    expect(LATHE " convert " PEFT "/alpha_zero --base " PEFT "/base -o a.gguf 2>&1", 2,
           "alpha is 0");
    expect(LATHE " convert " PEFT "/digits --base " PEFT "/base -o a.gguf --type q8_0 2>&1", 2,
           "expected f32, f16 or bf16 for an adapter");
    expect(LATHE " convert " PEFT "/digits --base " PEFT "/base -o folder 2>&1", 2,
           "an adapter is converted to a file *.gguf");
    expect(LATHE " convert " PEFT "/dora --base " PEFT "/base -o a.gguf 2>&1", 2,
           "merge others, and convert the model");
    cr_expect_neq(access("a.gguf", F_OK), 0);
}

/* It has tensors, and no model. */
Test(gguf_adapter_cases, a_gguf_adapter_is_taken_for_no_model)
{
    static const char want[] = "a.gguf: the file holds an adapter (general.type), and a model is "
                               "expected";
    put("run.toml", "[model]\npath = \"a.gguf\"\n[data]\ndatasets = [{ path = \"x.txt\" }]\n");
    put_times("x.txt", "one line\n", 40);
    expect(LATHE " convert " PEFT "/digits --base " PEFT "/base -o a.gguf 2>&1", 0, "a.gguf");
    expect(LATHE " eval a.gguf --data x.txt --data.seq_len 8 2>&1", 2, want);
    expect(LATHE " generate a.gguf --prompt a 2>&1", 2, want);
    expect(LATHE " generate " PEFT
                 "/base --generate.draft a.gguf --tokenizer.path bytes --prompt a "
                 "2>&1",
           2, want);
    expect(LATHE " convert a.gguf -o folder 2>&1", 2, want);
    expect(LATHE " quantize a.gguf --quant.name nf4 -o q 2>&1", 2, want);
    expect(LATHE " merge a.gguf " PEFT "/digits -o m 2>&1", 2, want);
    expect(LATHE " validate run.toml 2>&1", 2, want);
}
