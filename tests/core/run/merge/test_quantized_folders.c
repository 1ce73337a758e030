/* Model folders whose weights are quantized, as other libraries store them: logits, refusals.
 * Goldens: tests/golden/quantized_folders.py, quantized_layouts.py, awq_folders.py. */
#include <glob.h>

#include "base/fs.h"
#include "base/log.h"
#include "files/gguf/model_files.h"
#include "generate/generator.h"
#include "model/family/decoded_weights.h"
#include "support/run_case.h"

#define QUANTIZED LATHE_TEST_DATA "/golden/data/quantized/"
#define TOKENIZER "tokenizer.path=" LATHE_TEST_DATA "/golden/data/tokenizer/tiny_64.json"

enum { FOLDERS = 46, LINEAR = 7 };

/* Settings of a run that computes in fp32; `more`: further settings, NULL-terminated. */
static lathe_status open_folder(const char *path, int32_t mode, const char *const *more,
                                lathe_run **out)
{
    char model[600];
    const char *settings[MAX_SETTINGS] = {model, TOKENIZER, "data.seq_len=16",
                                          "train.precision=fp32", "train.max_steps=1"};
    int n = 5;
    snprintf(model, sizeof model, "model.path=%s", path);
    while (*more)
        settings[n++] = *more++;
    return open_run_status(mode, settings, out);
}

static const char *const lora[] = {"adapter.name=lora", NULL};

/* ---- reading ---- */

/* The number of rows whose planes came from the folder, and of those in the format `name`. */
static void count_rows(const lathe_run *run, const char *name, int *out_all, int *out_named)
{
    *out_all = *out_named = 0;
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *p = run->params.rows[i];
        *out_all += p->planes_on_file;
        *out_named += p->format && strcmp(p->format->component->plugin->name, name) == 0;
    }
}

/* Compares the logits of a run with those in the golden file of a folder. */
static void compare_logits(lathe_run *run, const char *path)
{
    char file[600];
    lathe_safetensors *golden = NULL;
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    snprintf(file, sizeof file, "%s/golden.safetensors", path);
    OK(lathe_safetensors_open(file, &golden));
    const lathe_st_tensor *tokens = lathe_safetensors_find(golden, "tokens");
    const lathe_st_tensor *logits = lathe_safetensors_find(golden, "logits");
    cr_assert(tokens && logits, "%s", file);
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = 1,
                                   .row_tokens = (int32_t)tokens->desc.dims[1],
                                   .tokens = tokens->data};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_LOGITS, &f));
    compare(path, f.logits, logits->data, lathe_desc_count(&logits->desc), 2e-6);
    lathe_safetensors_close(golden);
}

static void check_logits(const char *path)
{
    lathe_run *run = NULL;
    OK(open_folder(path, LATHE_OPEN_BATCHES, lora, &run));
    compare_logits(run, path);
    lathe_run_close(run);
}

/* Compares the decoded weights of a folder bit by bit with those of its golden file, which are of
 * a 16-bit dtype. Returns their number. */
static int compare_decoded(const char *path, int32_t dtype)
{
    char file[600];
    lathe_safetensors *golden = NULL, *set = NULL, *decoded = NULL;
    lathe_run *run = NULL;
    int weights = 0;
    snprintf(file, sizeof file, "%s/golden.safetensors", path);
    OK(lathe_safetensors_open(file, &golden));
    OK(open_folder(path, LATHE_OPEN_BATCHES, lora, &run));
    OK(lathe_model_weights(path, &set));
    OK(lathe_decoded_weights_open(set, &run->model, &run->params, &decoded));
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *p = run->params.rows[i];
        const int64_t n = lathe_desc_count(&p->desc);
        if (!p->planes_on_file)
            continue;
        const lathe_st_tensor *want = lathe_safetensors_find(golden, p->name);
        const lathe_st_tensor *got = lathe_safetensors_find(decoded, p->name);
        cr_assert(want && got && want->desc.dtype == dtype, "%s", p->name);
        cr_assert_eq(got->desc.rank, want->desc.rank, "%s", p->name);
        uint16_t *values = malloc((size_t)n * sizeof *values);
        OK(lathe_st_read(got, 0, n, values, dtype));
        for (int64_t k = 0; k < n; k++)
            cr_assert_eq(values[k], ((const uint16_t *)want->data)[k], "%s[%lld]", p->name,
                         (long long)k);
        free(values);
        weights++;
    }
    lathe_run_close(run);
    lathe_safetensors_close(decoded);
    lathe_safetensors_close(set);
    lathe_safetensors_close(golden);
    return weights;
}

/* AutoAWQ quantized and saved this folder, read it again, and decoded each weight in f16. */
Test(quantized_folders, weights_that_autoawq_wrote_have_the_bits_that_it_decodes)
{
    cr_expect_eq(compare_decoded(QUANTIZED "awq", LATHE_F16), LINEAR);
}

/* Two projections of all experts in each of two layers. */
Test(quantized_folders, experts_of_gpt_oss_have_the_bits_that_transformers_decodes)
{
    cr_expect_eq(compare_decoded(QUANTIZED "gpt_oss_mxfp4", LATHE_BF16), 4);
}

/* `full` decodes the experts of gpt-oss, and its checkpoints are plain. */
Test(quantized_folders, full_trains_the_decoded_weights_and_saves_plain_ones)
{
    static const char *const folders[] = {"gpt_oss_mxfp4"};
    static const char *const full[] = {"adapter.name=full", "optimizer.name=sgd",
                                       "optimizer.lr=1e-30", "checkpoint.save_dtype=fp32", NULL};
    char out[] = "/tmp/lathe-decoded-XXXXXX", saved[600], path[600];
    cr_assert_not_null(mkdtemp(out));
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        lathe_run *run = NULL;
        int all, named;
        snprintf(path, sizeof path, QUANTIZED "%s", folders[i]);
        snprintf(saved, sizeof saved, "%s/%s", out, folders[i]);
        OK(open_folder(path, LATHE_OPEN_BATCHES, full, &run));
        count_rows(run, "mxfp4", &all, &named);
        cr_expect_eq(all, 0, "%s", folders[i]);
        compare_logits(run, path);
        OK(lathe_save(run, saved));
        lathe_run_close(run);
        OK(open_folder(saved, LATHE_OPEN_BATCHES, lora, &run));
        cr_expect_eq(run->model.is_quantized, 0, "%s", folders[i]);
        compare_logits(run, path);
        lathe_run_close(run);
    }
    OK(lathe_dir_remove(out));
}

Test(quantized_folders, logits_are_those_of_the_weights_that_the_other_library_decodes)
{
    glob_t found;
    cr_assert_eq(glob(QUANTIZED "*/golden.safetensors", 0, NULL, &found), 0);
    cr_assert_eq(found.gl_pathc, (size_t)FOLDERS);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        *strrchr(found.gl_pathv[i], '/') = '\0';
        check_logits(found.gl_pathv[i]);
    }
    globfree(&found);
}

Test(quantized_folders, a_layer_has_the_format_of_its_group_or_none)
{
    int all, named;
    lathe_run *run = NULL;
    OK(open_folder(QUANTIZED "mixed_ct", LATHE_OPEN_BATCHES, lora, &run));
    count_rows(run, "fp8", &all, &named);
    cr_expect_eq(all, LINEAR - 1, "%d", all);
    cr_expect_eq(named, 3, "q, k and v: %d", named);
    count_rows(run, "mxfp4", &all, &named);
    cr_expect_eq(named, 3, "gate, up and down: %d", named);
    const int32_t o = lathe_params_find(&run->params, "model.layers.0.self_attn.o_proj.weight");
    cr_expect_null(run->params.rows[o]->format);
    lathe_run_close(run);
}

/* [quant] may store what the folder does not. */
Test(quantized_folders, quant_stores_the_layers_that_the_folder_left)
{
    static const char *const more[] = {"quant.name=nf4", "adapter.name=lora", NULL};
    int all, named;
    lathe_run *run = NULL;
    OK(open_folder(QUANTIZED "mixed_ct", LATHE_OPEN_BATCHES, more, &run));
    count_rows(run, "nf4", &all, &named);
    cr_expect_eq(all, LINEAR - 1);
    cr_expect_eq(named, 1, "o_proj: %d", named);
    lathe_run_close(run);
}

Test(quantized_folders, modules_choose_what_quant_stores)
{
    static const char *const mlp[] = {
        "quant.name=nf4", "adapter.name=lora", "quant.include_modules=[\"mlp\"]",
        "quant.exclude_modules=[\"model.layers.0.mlp.down_*\"]", NULL};
    int all, named;
    lathe_run *run = NULL;
    OK(open_folder(MODELS "llama_tied", LATHE_OPEN_BATCHES, mlp, &run));
    count_rows(run, "nf4", &all, &named);
    cr_expect_eq(all, 0);
    cr_expect_eq(named, 5, "gate and up of two layers, down of one: %d", named);
    lathe_run_close(run);
}

/* ---- as another model of a run ---- */

/* The divergence of a student from a teacher, per token. */
static double divergence(const char *student, const char *teacher)
{
    char path[600];
    const char *more[] = {"adapter.name=lora",
                          "stage.name=distill",
                          "stage.alpha=0.0",
                          "teacher.precision=fp32",
                          path,
                          NULL};
    int32_t tokens[16], targets[16];
    lathe_run *run = NULL;
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    snprintf(path, sizeof path, "teacher.path=%s", teacher);
    OK(open_folder(student, LATHE_OPEN_BATCHES, more, &run));
    for (int32_t i = 0; i < 16; i++) {
        tokens[i] = (i * i + 7 * i) % 60;
        targets[i] = ((i + 1) * (i + 1) + 7 * (i + 1)) % 60;
    }
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = 1,
                                   .row_tokens = 16,
                                   .tokens = tokens,
                                   .targets = targets};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
    for (int32_t k = 0; k < LATHE_N_MEM; k++)
        cr_expect_eq(run->machine.peak.by[k], run->planned.by[k], "%s: %s", teacher,
                     lathe_mem_name(k));
    lathe_run_close(run);
    return f.loss_sum / f.count;
}

Test(quantized_folders, serve_as_teachers)
{
    glob_t found;
    cr_assert_eq(glob(QUANTIZED "*/golden.safetensors", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        *strrchr(found.gl_pathv[i], '/') = '\0';
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *folder = found.gl_pathv[i], *next = found.gl_pathv[(i + 1) % found.gl_pathc];
        const double same = divergence(folder, folder), other = divergence(next, folder);
        cr_expect_lt(fabs(same), 1e-7, "%s: diverges from itself by %g", folder, same);
        cr_expect_gt(other, 1e-6, "%s is not read: %s diverges from it by %g", folder, next, other);
    }
    globfree(&found);
}

/* A draft model with the same weights proposes what the model itself would choose. */
Test(quantized_folders, serve_as_draft_models)
{
    static const int32_t ids[] = {7, 18, 33, 50, 11};
    static const char *const drafts[] = {"bnb_nf4", "gptq_4bit", "mixed_ct"};
    const lathe_sampling greedy = {
        .size = (uint32_t)sizeof greedy, .max_new_tokens = 10, .top_p = 1.0};
    const lathe_prompt prompt = {
        .size = (uint32_t)sizeof prompt, .n_tokens = 5, .tokens = ids, .seed = 1};
    for (size_t i = 0; i < sizeof drafts / sizeof drafts[0]; i++) {
        char path[600], draft[700];
        const char *more[] = {"adapter.name=lora", draft, NULL};
        int64_t proposed = 0, accepted = 0;
        lathe_run *run = NULL;
        lathe_generation got = {.size = (uint32_t)sizeof got};
        snprintf(path, sizeof path, QUANTIZED "%s", drafts[i]);
        snprintf(draft, sizeof draft, "generate.draft=%s", path);
        OK(open_folder(path, LATHE_OPEN_BATCHES, more, &run));
        OK(lathe_generate_many(run, &prompt, 1, &greedy, &got));
        lathe_generator_drafts(run->generator, &proposed, &accepted);
        cr_expect_gt(proposed, 3, "%s", drafts[i]);
        cr_expect_eq(accepted, proposed, "%s: %lld of %lld", drafts[i], (long long)accepted,
                     (long long)proposed);
        lathe_run_close(run);
    }
}

/* ---- refusals ---- */

static char copy[64];

static void setup(void)
{
    strcpy(copy, "/tmp/lathe-quant-XXXXXX");
    cr_assert_not_null(mkdtemp(copy));
}

static void teardown(void)
{
    OK(lathe_dir_remove(copy));
}

TestSuite(quantized_folder_faults, .init = setup, .fini = teardown);

typedef struct fault {
    const char *folder, *file;
    const char *from, *to; /* replaced text; in a safetensors file, of the same length */
    const char *more[4];   /* settings */
    const char *message;   /* %s: the folder */
} fault;

#define ST "model.safetensors"
#define JSON "config.json"

static const fault faults[] = {
    {"bnb_nf4",
     JSON,
     "\"bitsandbytes\"",
     "\"aqlm\"",
     {"adapter.name=lora"},
     "%s/config.json: quantization_config: quant_method \"aqlm\" is not read; those that are: "},
    {"bnb_nf4",
     JSON,
     "\"quant_method\"",
     "\"method\"",
     {"adapter.name=lora"},
     "%s/config.json: quantization_config has no quant_method"},
    {"bnb_nf4",
     JSON,
     "\"bnb_4bit_quant_type\": \"nf4\"",
     "\"bnb_4bit_quant_type\": \"fp4\"",
     {"adapter.name=lora"},
     "%s/config.json: quantization_config: nf4 reads weights with bnb_4bit_quant_type = nf4, and "
     "here it is fp4"},
    {"bnb_nf4",
     JSON,
     "\"bnb_4bit_use_double_quant\": true",
     "\"bnb_4bit_use_double_quant\": false",
     {"adapter.name=lora"},
     "%s/model.safetensors: tensor model.layers.0.self_attn.q_proj.weight.absmax is u8[64], "
     "plane absmax of format nf4 expects f32[64]"},
    {"fp8_block",
     JSON,
     "[\n      128,",
     "[\n      64,",
     {"adapter.name=lora"},
     "%s/model.safetensors: tensor model.layers.0.mlp.gate_proj.weight_scale_inv is f32[1,1], "
     "plane scale of format fp8 expects f32[2,1]"},
    {"fp8_block",
     JSON,
     "[\n      128,",
     "[\n      -1,",
     {"adapter.name=lora"},
     "%s/config.json: quantization_config: fp8 reads blocks of rows and columns, and here "
     "weight_block_size.0 or weight_block_size.1 is no number of them"},
    {"fp8_block",
     ST,
     "q_proj.weight_scale_inv",
     "q_proj.weight_scale_xxx",
     {"adapter.name=lora"},
     "%s/model.safetensors: no tensor model.layers.0.self_attn.q_proj.weight_scale_inv: plane "
     "scale "
     "of format fp8, f32[1,1]"},
    {"ct_mxfp4",
     JSON,
     "\"quantization_status\": \"compressed\"",
     "\"quantization_status\": \"initialized\"",
     {"adapter.name=lora"},
     "%s/config.json: quantization_config: mxfp4 reads weights with quantization_status = "
     "compressed, and here it is initialized"},
    {"hqq",
     JSON,
     "\"nbits\": 4",
     "\"nbits\": 5",
     {"adapter.name=lora"},
     "%s/config.json: quantization_config: quant hqq: bits = 5; expected 1, 2, 3, 4 or 8"},
    {"hqq",
     JSON,
     "\"group_size\": 32",
     "\"group_size\": 64",
     {"adapter.name=lora"},
     "%s/model.safetensors: tensor model.layers.0.self_attn.q_proj.scale is bf16[128,1], plane "
     "scale "
     "of format hqq expects bf16[64,1]"},
    {"bnb_int8",
     JSON,
     "\"llm_int8_threshold\": 6.0",
     "\"llm_int8_threshold\": \"six\"",
     {"adapter.name=lora"},
     "%s/config.json: quantization_config: int8 reads a number as llm_int8_threshold, and here it "
     "is six"},
    {"bnb_int8",
     JSON,
     "\"model_type\"",
     "\"model_type\"",
     {"quant.name=nf4", "adapter.name=lora"},
     "quant.name = \"nf4\" would quantize nothing: the weights of %s are already quantized "
     "(bitsandbytes); remove [quant]"},
    {"bnb_int8",
     JSON,
     "\"model_type\"",
     "\"model_type\"",
     {"adapter.name=full", "adapter.no_train=[\"*proj*\"]"},
     "adapter \"full\" trains model.embed_tokens.weight of the model itself, and %s stores its "
     "weights "
     "quantized (bitsandbytes): only adapters of their own, such as lora, can be trained beside "
     "them"},
};

static void replace(const char *path, const char *from, const char *to)
{
    lathe_map map;
    OK(lathe_map_open(path, &map));
    char *at = memmem(map.data, (size_t)map.bytes, from, strlen(from));
    cr_assert_not_null(at, "%s has no %s", path, from);
    const int64_t head = at - (const char *)map.data,
                  tail = map.bytes - head - (int64_t)strlen(from);
    const int64_t bytes = head + (int64_t)strlen(to) + tail;
    char *made = malloc((size_t)bytes);
    memcpy(made, map.data, (size_t)head);
    memcpy(made + head, to, strlen(to));
    memcpy(made + head + strlen(to), at + strlen(from), (size_t)tail);
    lathe_map_close(&map);
    OK(lathe_file_write_atomic(path, made, bytes));
    free(made);
}

Test(quantized_folder_faults, each_is_refused_in_these_words)
{
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        const fault *f = &faults[i];
        char command[400], path[200], want[800];
        lathe_run *run = NULL;
        snprintf(command, sizeof command, "cp " QUANTIZED "%s/[cm]*.* %s/ && chmod u+w %s/*",
                 f->folder, copy, copy);
        cr_assert_eq(system(command), 0);
        snprintf(path, sizeof path, "%s/%s", copy, f->file);
        replace(path, f->from, f->to);
        const char *mark = strstr(f->message, "%s");
        snprintf(want, sizeof want, "%.*s%s%s", mark ? (int)(mark - f->message) : 0, f->message,
                 mark ? copy : "", mark ? mark + 2 : f->message);
        const lathe_status status = open_folder(copy, LATHE_OPEN_BATCHES, f->more, &run);
        cr_expect_neq(status, LATHE_OK, "%zu: %s", i, want);
        cr_expect(strstr(lathe_error_message(), want) != NULL, "%zu: %s\nnot: %s", i,
                  lathe_error_message(), want);
        lathe_run_close(run);
    }
}

/* A folder that says fp8 and whose experts have no plain numbers under their names. */
Test(quantized_folder_faults, experts_that_are_stored_one_by_one_are_refused_as_such)
{
    char command[400], path[200], want[300];
    lathe_run *run = NULL;
    snprintf(command, sizeof command,
             "cp " LATHE_TEST_DATA "/golden/data/models/qwen3_moe/[cm]*.* %s/ && chmod u+w %s/*",
             copy, copy);
    cr_assert_eq(system(command), 0);
    snprintf(path, sizeof path, "%s/config.json", copy);
    replace(path, "{",
            "{\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", "
            "\"activation_scheme\": \"dynamic\", \"weight_block_size\": [128, 128]},");
    snprintf(path, sizeof path, "%s/model.safetensors", copy);
    replace(path, "layers.0.mlp.experts.0.gate_proj.weight",
            "layers.0.mlp.experts.0.gate_proj.packed");
    snprintf(want, sizeof want,
             "%s: model.layers.0.mlp.experts.gate_proj.weight: the experts are stored in format "
             "fp8, one by one, which is not read: take a folder with plain experts, and set "
             "quant.name",
             copy);
    cr_expect_eq(open_folder(copy, LATHE_OPEN_BATCHES, lora, &run), LATHE_E_UNSUPPORTED);
    cr_expect(strstr(lathe_error_message(), want) != NULL, "%s", lathe_error_message());
    lathe_run_close(run);
}
