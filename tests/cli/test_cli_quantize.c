/* lathe quantize: folders in every format, and what is refused. */
#include "cli/cli_case.h"

#include <unistd.h>

#define LATHE LATHE_TEST_BUILD "/bin/lathe "
#define QUANTIZE LATHE "quantize "

/* A random model whose matrices hold whole groups of every format. */
static const char run_file[] =
    "[model]\nmodel_type = \"llama\"\nvocab_size = 260\nhidden_size = 64\n"
    "intermediate_size = 128\nnum_hidden_layers = 2\n"
    "num_attention_heads = 2\nnum_key_value_heads = 1\n"
    "max_position_embeddings = 64\ninitializer_range = 0.2\n"
    "[tokenizer]\npath = \"bytes\"\n"
    "[data]\ndatasets = [{ path = \"text.txt\", type = \"text\" }]\n"
    "seq_len = 16\n"
    "[train]\nmax_steps = 1\nthreads = 1\n"
    "[checkpoint]\ndir = \"run\"\n";

static void setup(void)
{
    make_folder();
    put("run.toml", run_file);
    put_times("text.txt", "the wheel turns and the tool holds, so the part is made\n", 40);
    cr_assert_eq(run(LATHE "train run.toml 2>&1 && mv run/step-* model"), 0, "%s", output);
}

TestSuite(cli_quantize, .init = setup, .fini = remove_folder);

/* The folder says the same as the plain model that a run quantizes when it starts. */
Test(cli_quantize, a_quantized_folder_computes_as_a_run_that_quantizes)
{
    static const char *const formats[] = {"nf4",
                                          "nf4 --quant.double_quant false",
                                          "int8",
                                          "fp8",
                                          "mxfp4",
                                          "fp8 --quant.scaling row",
                                          "nvfp4",
                                          "fp8 --quant.scaling tensor",
                                          "eetq",
                                          "nvfp4 --quant.layout modelopt",
                                          "hqq",
                                          "hqq --quant.bits 3",
                                          "hqq --quant.compute_dtype bfloat16",
                                          "fp8 --quant.layout compressed-tensors",
                                          "fp8 --quant.block_rows 16 --quant.scales e8m0",
                                          "fp8 --quant.scaling tensor --quant.layout modelopt",
                                          "fp8 --quant.scaling tensor --quant.layout fp8",
                                          "rtn --quant.group_size -1",
                                          "rtn --quant.bits 3 --quant.group_size 8 "
                                          "--quant.symmetric false",
                                          "rtn --quant.bits 8 --quant.packed false "
                                          "--quant.group_size 0 --quant.symmetric false"};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        char command[1024];
        (void)snprintf(
            command, sizeof command,
            QUANTIZE
            "model -o q --quant.name %s 2>&1 && "
            "for d in q 'model --adapter.name lora --quant.name %s'; do " LATHE
            "eval $d --data text.txt --data.seq_len 16 --train.precision fp32 --json 2>/dev/null "
            "|| exit 1; done >both",
            formats[i], formats[i]);
        cr_expect_eq(run(command), 0, "%s: %s", formats[i], output);
        expect("test $(wc -l <both) = 2 && uniq both | wc -l", 0, "1");
        (void)run("rm -rf q");
    }
}

Test(cli_quantize, the_report_names_each_weight_and_the_sum)
{
    expect(QUANTIZE "model -o q --quant.name int8 --quant.exclude_modules '[\"q_proj\"]'", 0,
           "     2  model.layers.*.mlp.down_proj.weight  ");
    cr_expect_null(strstr(output, "layers.1."), "%s", output);
    expect(QUANTIZE "model -o qv -v --quant.name int8 --quant.exclude_modules '[\"q_proj\"]'", 0,
           "model.layers.1.mlp.down_proj.weight");
    expect(QUANTIZE
           "model -o q2 --quant.name int8 --quant.exclude_modules '[\"q_proj\"]' | tail -n 2",
           0, "12 weights quantized to 8.4");
    expect(LATHE "lineage q", 0, "made      by lathe quantize, Lathe ");
    expect(LATHE "lineage q", 0, "<- model: ");
    expect("grep -A3 llm_int8_skip_modules q/config.json | tr -d ' \\n'", 0,
           "\"llm_int8_skip_modules\":[\"lm_head\",\"model.layers.0.self_attn.q_proj\",");
    expect("cmp q/model.safetensors q2/model.safetensors && echo same", 0, "same");
    expect(QUANTIZE "model -o q3 --quant.name nf4 --text text.txt --json 2>/dev/null", 0,
           "\"perplexity_before\": ");
}

Test(cli_quantize, what_cannot_be_quantized_is_refused)
{
    expect(QUANTIZE "model --quant.name nf4 2>&1", 2, "--output DIR is missing");
    expect(QUANTIZE "model -o q 2>&1", 2, "--quant.name NAME is missing");
    expect(QUANTIZE "model -o q --quant.name none 2>&1", 2, "--quant.name NAME is missing");
    expect(QUANTIZE "model -o run --quant.name nf4 2>&1", 2, "run exists already");
    expect(QUANTIZE "run.toml -o q --quant.name nf4 2>&1", 2, "run.toml");
    expect(QUANTIZE "model -o q --quant.name nf5 2>&1", 2, "no quant named 'nf5'");
    expect(QUANTIZE "model -o q --quant.name nf4 --adapter.name full 2>&1", 2,
           "--adapter.name has no effect");
    expect(QUANTIZE "model -o q --quant.name nf4 --data.seq_len 8 2>&1", 2,
           "--data.seq_len has no effect without --text");
    expect(QUANTIZE "model -o q --quant.name nf4 --quant.include_modules '[\"mpl\"]' 2>&1", 2,
           "quant.include_modules[0] = \"mpl\" matches no linear layer");
    expect(QUANTIZE "model -o q --quant.name hqq --quant.group_size 48 2>&1", 2,
           "; or leave it as it is with quant.exclude_modules");
    expect(QUANTIZE "model -o q --quant.name nf4 >/dev/null && " QUANTIZE
                    "q -o q2 --quant.name int8 2>&1",
           2,
           "the weights of q are already quantized (bitsandbytes), and only plain weights are "
           "quantized: name the folder that it was made from, or decode its weights first with "
           "lathe convert q -o PLAIN.gguf");
    expect(QUANTIZE LATHE_TEST_DATA "/golden/data/models/gpt2 -o q2 --quant.name hqq 2>&1", 2,
           "transformer.h.0.attn.c_attn.weight is a Conv1D weight, and no library reads Conv1D "
           "weights "
           "in format hqq: use nf4, int8 or gptq");
    expect(QUANTIZE "model -o q2 --quant.name mxfp4 --quant.layout gpt-oss 2>&1", 2,
           "quant.name = \"mxfp4\": the format has no layout in files");
    expect("ls -d q2* run.tmp* q.tmp* 2>/dev/null | wc -l", 0, "0");
}

/* The sizes of this model are no multiples of 128. */
Test(cli_quantize, blocks_of_fp8_that_transformers_cannot_load_are_a_warning)
{
    expect(QUANTIZE "model -o q --quant.name fp8 2>&1", 0,
           "warning: fp8: a weight of [64, 64] is no whole number of blocks of 128 x 128");
    expect(QUANTIZE "model -o r --quant.name fp8 --quant.scaling row 2>&1", 0, "wrote r");
    cr_expect_null(strstr(output, "warning"), "%s", output);
}

/* One bit for each number leaves nothing of a trained model. */
Test(cli_quantize, a_perplexity_that_grows_tenfold_is_a_warning)
{
    expect(LATHE "train run.toml --checkpoint.dir long --train.max_steps 150 --optimizer.lr 0.01 "
                 "2>&1 && " QUANTIZE
                 "long -o q --quant.name hqq --quant.bits 1 --text text.txt 2>&1",
           0,
           "times that before: the quantized model has lost most of what it knew; use more bits "
           "(--quant.bits), smaller groups (--quant.group_size), or a format with more bits");
    expect(QUANTIZE "long -o r --quant.name int8 --text text.txt 2>&1", 0, "perplexity ");
    cr_expect_null(strstr(output, "times that before"), "%s", output);
}

/* 40 lines of 56 bytes and an end of text each: 2,280 tokens. */
Test(cli_quantize, calibration_data_are_needed_and_enough)
{
    expect(QUANTIZE "model -o q --quant.name gptq 2>&1", 2, "--calibration PATH is missing");
    expect(QUANTIZE "model -o q --quant.name nf4 --calibration text.txt 2>&1", 2,
           "--calibration and --rows have no effect: format \"nf4\" needs no data");
    expect(QUANTIZE "model -o q --quant.name gptq --calibration text.txt --rows 1000 2>&1", 2,
           "--rows 1000: the calibration data have ");
    expect(QUANTIZE "model -o q --quant.name gptq --calibration text.txt --rows 1 2>&1", 2,
           "the calibration data are too small: 1 row of 64 tokens for layers of 128 inputs");
    expect(QUANTIZE "model -o q --quant.name gptq --quant.group_size 32 --calibration text.txt", 0,
           "14 weights quantized to 5.");
    expect(QUANTIZE "model -o a --quant.name awq --quant.group_size 32 --calibration text.txt", 0,
           "14 weights quantized to 4.6");
    expect(LATHE "lineage a", 0, "calibrated on their first 35 rows of 64 tokens");
    expect(LATHE "lineage a --json | tr -d ' \\n'", 0, "\"row_tokens\":64");
    expect("echo more >>text.txt; " LATHE "lineage a", 1, "the files changed since");
    expect("sed -i '$d' text.txt; " LATHE "lineage a", 0,
           "content 9e171b64c992; the files are those that were read");
    expect(LATHE "generate q --prompt a --max-new-tokens 2 2>/dev/null && " LATHE
                 "generate a --prompt a --max-new-tokens 2 2>/dev/null",
           0, "a");
    /* every run gives the same bits */
    expect(QUANTIZE "model -o q2 --quant.name gptq --quant.group_size 32 --calibration text.txt "
                    ">/dev/null && cmp q/model.safetensors q2/model.safetensors && echo same",
           0, "same");
}

#define CALIBRATE QUANTIZE "model -o q --quant.name awq --quant.group_size 32 --calibration "

Test(cli_quantize, calibration_data_that_cannot_be_read_are_refused_by_name)
{
    put("empty.txt", "");
    put("latin.txt", "caf\xe9\n");
    expect(CALIBRATE "none.txt 2>&1", 2, "--calibration none.txt: no such file or folder");
    expect(CALIBRATE "empty.txt 2>&1", 2, "empty.txt: no documents in it; the file is empty");
    expect(CALIBRATE "latin.txt 2>&1", 2, "1 file is not UTF-8 text: latin.txt");
    expect("mkdir folder; " CALIBRATE "folder 2>&1", 2, "folder: the folder holds no files");
    expect(CALIBRATE "text.txt --text none.txt 2>&1", 2, "--text none.txt: no such file or folder");
    if (geteuid() != 0) /* root reads everything */
        expect("chmod 0 text.txt; " CALIBRATE "text.txt 2>&1", 2, "text.txt: ");
    expect("ls -d q q.tmp* 2>/dev/null | wc -l", 0, "0");
}

/* Libraries transpose Conv1D weights (GPT-2) before they quantize them. */
Test(cli_quantize, conv1d_weights_are_stored_as_those_of_linear_layers)
{
    static const char *const formats[] = {"nf4", "int8",
                                          "gptq --quant.group_size 16 --calibration text.txt"};
    static const char eval[] =
        "eval %s --data text.txt --data.seq_len 16 --train.precision fp32 --json";
    for (int i = 0; i < 3; i++) {
        char command[1024], plain[256], made[256];
        expect("rm -rf g q m a; mkdir g && cp " LATHE_TEST_DATA
               "/golden/data/models/gpt2/[cm]*.* g/ && cp " LATHE_TEST_DATA
               "/golden/data/tokenizer/tiny_128.json g/tokenizer.json && echo copied",
               0, "copied");
        (void)snprintf(command, sizeof command, QUANTIZE "g -o q --quant.name %s --data.seq_len 16",
                       formats[i]);
        if (i < 2)
            *strstr(command, " --data.seq_len") = '\0';
        expect(command, 0, "8 weights quantized");
        (void)snprintf(made, sizeof made, eval, "q");
        (void)snprintf(command, sizeof command, LATHE "%s 2>/dev/null >q.json", made);
        expect(command, 0, "");
        if (i < 2) { /* a run that quantizes the plain folder computes the same numbers */
            (void)snprintf(plain, sizeof plain, eval, "g");
            (void)snprintf(command, sizeof command,
                           LATHE
                           "%s --quant.name %s 2>/dev/null >g.json; cmp g.json q.json && echo same",
                           plain, formats[i]);
            expect(command, 0, "same");
        }
    }
}

/* Records whose text is in other columns. */
Test(cli_quantize, columns_of_the_calibration_data_can_be_named)
{
    expect("sed 's/.*/{\"body\": \"&\", \"head\": \"h\"}/' text.txt >r.jsonl; head -c 9 r.jsonl", 0,
           "{\"body\": ");
    expect(
        CALIBRATE "r.jsonl 2>&1", 2,
        "--calibration: error: r.jsonl:1: no column \"text\"; the columns are body, head; name it "
        "in columns.text, or make it of them in format.text (--columns '{text = \"NAME\"}', "
        "--format '{text = \"{NAME} {NAME}\"}')");
    expect(CALIBRATE "text.txt --text r.jsonl 2>&1", 2, "--text: error: r.jsonl:1: no column");
    expect(CALIBRATE "r.jsonl --rows 20 --columns '{text = \"head\"}' 2>&1", 2,
           "--rows 20: the calibration data have ");
    expect(CALIBRATE "r.jsonl --columns '{text = \"body\"}' >/dev/null && echo done", 0, "done");
    expect("rm -r q; " CALIBRATE "r.jsonl --format '{text = \"{head} {body}\"}' | tail -n 1", 0,
           "wrote q");
    expect("rm -r q; " CALIBRATE "r.jsonl --columns body 2>&1", 2, "--calibration: error: ");
    expect(QUANTIZE "model -o q --quant.name nf4 --columns '{text = \"body\"}' 2>&1", 2,
           "--columns and --format have no effect without --text or --calibration");
}

/* A folder that a killed process left is removed by the next one that writes it. */
Test(cli_quantize, folders_that_a_killed_process_left_are_removed)
{
    expect("sh -c 'mkdir q.tmp.$$ q.tmp.1 other.tmp.$$ q.tmp.$$x'; " QUANTIZE
           "model -o q --quant.name nf4 2>&1 >/dev/null | grep -c 'removed, because the process'",
           0, "1");
    expect("ls -d q.tmp.1 other.tmp.* q.tmp.*x | wc -l", 0, "3");
    expect("ls -d q.tmp.* | wc -l", 0, "2");
}

Test(cli_quantize, scales_of_inputs_are_counted_and_can_be_left_out)
{
    expect(CALIBRATE "text.txt", 0, "the scales of 8 inputs of layers are folded into the norms");
    expect(QUANTIZE "model -o p --quant.name awq --quant.group_size 32 --quant.scale_inputs false "
                    "--calibration text.txt | grep -c folded",
           1, "0");
    /* one layer of the inputs stays plain: its inputs are not scaled */
    expect(QUANTIZE "model -o r --quant.name awq --quant.group_size 32 --calibration text.txt "
                    "--quant.exclude_modules '[\"k_proj\"]'",
           0, "the scales of 6 inputs of layers are folded");
}

Test(cli_quantize, a_reader_that_ends_and_ctrl_c_leave_nothing_half_written)
{
    expect(QUANTIZE "model -o q --quant.name nf4 | head -n 1", 0, "weight");
    expect("ls -d q*", 0, "q\n");
    (void)run("(trap - INT; " QUANTIZE "model -o c --quant.name hqq >/dev/null 2>&1 & p=$!; "
              "while kill -0 $p 2>/dev/null && ! ls -d c.tmp.* >/dev/null 2>&1; do :; done; "
              "kill -TERM $p; wait $p)");
    expect("ls -d c.tmp* 2>/dev/null | wc -l", 0, "0");
}

/* A run of stage sft leaves its stage and columns in its folder; texts are read as texts. */
Test(cli_quantize, of_a_folder_that_learnt_answers_reads_plain_texts)
{
    put_times("answers.jsonl", "{\"q\": \"the wheel\", \"a\": \"turns\"}\n", 8);
    put("sft.toml", "[model]\npath = \"model\"\n[tokenizer]\npath = \"bytes\"\n"
                    "[data]\ndatasets = [{ path = \"answers.jsonl\", columns = { prompt = \"q\", "
                    "completion = \"a\" } }]\nseq_len = 32\n[stage]\nname = \"sft\"\n"
                    "[train]\nmax_steps = 1\nthreads = 1\n[checkpoint]\ndir = \"sft\"\n");
    expect(LATHE "train sft.toml 2>&1", 0, "checkpoint sft/step-00000001");
    expect(QUANTIZE "sft --quant.name nf4 --text text.txt -o a 2>&1", 0,
           "evaluates by stage pretrain, with the length of rows and micro-batch with which "
           "sft/step-00000001 was trained");
    cr_expect_not_null(strstr(output, ", before "), "%s", output);
    expect(QUANTIZE "sft --quant.name gptq --quant.group_size 32 --calibration text.txt "
                    "--data.seq_len 16 -o b 2>&1",
           0, "wrote b");
    expect(QUANTIZE "sft --quant.name nf4 --text answers.jsonl "
                    "--format '{text = \"{q} {a}\"}' -o c 2>&1",
           0, ", before ");
    expect(QUANTIZE "sft --quant.name nf4 --text answers.jsonl -o d 2>&1", 2,
           "answers.jsonl:1: no column \"text\"");
    expect(LATHE "eval sft --data text.txt --stage.name pretrain 2>&1", 0, "perplexity");
}
