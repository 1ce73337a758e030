/* Model folders with one fault each: the exact message of a run; `%s` stands for the folder. */
#include "base/log.h"
#include "support/small_run.h"

static char folder[32], warned[1024];

static void setup(void)
{
    strcpy(folder, "/tmp/lathe-bad-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void teardown(void)
{
    OK(lathe_dir_remove(folder));
}

TestSuite(bad_input, .init = setup, .fini = teardown);

/* A change to one file of a good folder. */
typedef struct fault {
    const char *name;      /* printed when the case fails */
    const char *model;     /* folder under golden/data/models */
    const char *file;      /* file to change; a new one if `from` is NULL */
    const char *from, *to; /* replaced text; in a safetensors file, of the same length */
    const char *setting;   /* additional setting, or NULL */
    int64_t cut;           /* > 0: new length of the file; < 0: the file is removed */
    lathe_status status;
    const char *message;
} fault;

#define ST "model.safetensors"
#define SHARDED "model.safetensors.index.json"

static const fault faults[] = {
    {"malformed safetensors", "llama_tied", ST, "{\"__metadata__\"", "[\"__metadata__\"", NULL, 0,
     LATHE_E_CORRUPT, "safetensors header: %s/model.safetensors:1:16: ']' or ',' expected"},
    {"truncated safetensors", "llama_tied", ST, NULL, NULL, NULL, 90000, LATHE_E_CORRUPT,
     "%s/model.safetensors: tensor model.layers.1.mlp.up_proj.weight is at bytes 80256..90496 of "
     "87968 data bytes: the file is truncated"},
    {"overlapping tensors", "llama_tied", ST, "[16384,16512]", "[16383,16511]", NULL, 0,
     LATHE_E_CORRUPT,
     "%s/model.safetensors: tensor model.layers.0.input_layernorm.weight begins at 16383, "
     "expected 16384 (overlap)"},
    {"no weights", "llama_tied", ST, NULL, NULL, NULL, -1, LATHE_E_NOT_FOUND,
     "%s: neither model.safetensors nor model.safetensors.index.json in it"},
    {"missing tensor", "llama_tied", ST, "layers.0.mlp.up_proj", "layers.0.mlp.xx_proj", NULL, 0,
     LATHE_E_NOT_FOUND,
     "%s/model.safetensors: no tensor model.layers.0.mlp.up_proj.weight, the configuration expects "
     "f32[80,32]"},
    {"mis-shaped tensor", "llama_tied", ST, "[32,80]", "[80,32]", NULL, 0, LATHE_E_SHAPE,
     "%s/model.safetensors: tensor model.layers.0.mlp.down_proj.weight is f32[80,32], the "
     "configuration expects f32[32,80]"},
    {"tensor of a wrong type", "llama_tied", ST, "\"dtype\":\"F32\",\"shape\":[32]",
     "\"dtype\":\"I32\",\"shape\":[32]", NULL, 0, LATHE_E_DTYPE,
     "%s/model.safetensors: tensor model.layers.0.input_layernorm.weight is i32, a weight must be "
     "f32, bf16, f16 or f64"},
    {"no head", "llama_untied", ST, "lm_head", "xx_head", NULL, 0, LATHE_E_CONFIG,
     "%s/model.safetensors: no tensor lm_head.weight, and tie_word_embeddings is false: set it, or "
     "supply the tensor"},
    {"missing shard", "llama_sharded", "model-00002-of-00003.safetensors", NULL, NULL, NULL, -1,
     LATHE_E_NOT_FOUND,
     "%s/" SHARDED
     " names a shard that does not exist: %s/model-00002-of-00003.safetensors: cannot "
     "open: No such file or directory"},
    {"index and shard disagree", "llama_sharded", SHARDED, "down_proj.weight\": \"model-00002",
     "down_proj.weight\": \"model-00001", NULL, 0, LATHE_E_CORRUPT,
     "%s/" SHARDED ": tensor model.layers.0.mlp.down_proj.weight should be in "
     "model-00001-of-00003.safetensors, found in model-00002-of-00003.safetensors"},
    {"index leaves a tensor out", "llama_sharded", SHARDED,
     "    \"model.layers.0.mlp.down_proj.weight\": \"model-00002-of-00003.safetensors\",\n", "",
     NULL, 0, LATHE_E_CORRUPT,
     "%s/" SHARDED ": tensor model.layers.0.mlp.down_proj.weight of "
     "%s/model-00002-of-00003.safetensors is not in its weight_map"},
    {"index leads out of the folder", "llama_sharded", SHARDED,
     "\"model-00001-of-00003.safetensors\"", "\"../other.safetensors\"", NULL, 0, LATHE_E_CORRUPT,
     "%s/" SHARDED ": tensor model.embed_tokens.weight is mapped to ../other.safetensors, which is "
     "no file name"},
    {"malformed config.json", "llama_tied", "config.json", "\"hidden_size\": 32,",
     "\"hidden_size\": ,", NULL, 0, LATHE_E_PARSE,
     "%s/config.json:10:18: unexpected token near ','"},
    {"config.json of another kind", "llama_tied", "config.json", "\"llama\"", "\"mamba\"", NULL, 0,
     LATHE_E_CONFIG, "%s/config.json: model_type is \"mamba\"; no plugin serves it; ..."},
    {"malformed tokenizer.json", "llama_tied", "tokenizer.json", NULL, "{\"model\": {\"type\": }}",
     NULL, 0, LATHE_E_PARSE, "%s/tokenizer.json:1:20: unexpected token near '}'"},
    {"end of text beyond the vocabulary", "llama_tied", "config.json", "\"eos_token_id\": 2",
     "\"eos_token_id\": 128", NULL, 0, LATHE_E_CONFIG,
     "%s/config.json: eos_token_id is 128, but vocab_size is only 128"},
    {"T beyond the positions", "llama_tied", NULL, NULL, NULL, "data.seq_len=65", 0, LATHE_E_CONFIG,
     "--data.seq_len: error: data.seq_len = 65 is longer than the 64 positions of the model in %s"},
};

/* Inserts the folder for each %s of `format`. */
static void expand(const char *format, char *out, size_t capacity)
{
    size_t n = 0;
    for (; *format != '\0' && n + sizeof folder < capacity; format++) {
        if (format[0] == '%' && format[1] == 's') {
            n += (size_t)snprintf(out + n, capacity - n, "%s", folder);
            format++;
        } else {
            out[n++] = *format;
        }
    }
    out[n] = '\0';
}

static char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void copy_model(const char *model)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf %s && mkdir %s && cp %s%s/* %s/", folder, folder,
             MODELS, model, folder);
    cr_assert_eq(system(command), 0);
}

/* Replaces every `from` in the file. */
static void replace(const char *name, const char *from, const char *to)
{
    char *data = NULL;
    int64_t n = 0, at = 0, hits = 0;
    lathe_buffer out = LATHE_BUFFER_INIT;
    OK(lathe_file_read(in_folder(name), 0, &data, &n));
    const int64_t length = (int64_t)strlen(from);
    while (at < n) {
        if (n - at >= length && memcmp(data + at, from, (size_t)length) == 0) {
            lathe_buffer_append(&out, to, (int64_t)strlen(to));
            at += length;
            hits++;
        } else {
            lathe_buffer_append(&out, data + at++, 1);
        }
    }
    cr_assert(hits > 0, "%s has no %s", name, from);
    OK(out.status);
    OK(lathe_file_write_atomic(in_folder(name), out.data, out.len));
    lathe_buffer_fini(&out);
    free(data);
}

static void damage(const fault *f)
{
    copy_model(f->model);
    if (f->cut < 0)
        cr_assert_eq(unlink(in_folder(f->file)), 0);
    else if (f->cut > 0)
        cr_assert_eq(truncate(in_folder(f->file), f->cut), 0);
    else if (f->from != NULL)
        replace(f->file, f->from, f->to);
    else if (f->file != NULL)
        OK(lathe_file_write_atomic(in_folder(f->file), f->to, (int64_t)strlen(f->to)));
}

static lathe_status open_folder(const char *setting)
{
    lathe_override list[5] = {{"model.path", folder}, {"train.precision", "fp32"}};
    char key[64];
    int32_t n = 2;
    if (!lathe_path_exists(in_folder("tokenizer.json")))
        list[n++] = (lathe_override){"tokenizer.path", "bytes"};
    if (setting == NULL || strncmp(setting, "data.seq_len=", 13) != 0)
        list[n++] = (lathe_override){"data.seq_len", "32"};
    if (setting != NULL) {
        const char *equals = strchr(setting, '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - setting), setting);
        list[n++] = (lathe_override){key, equals + 1};
    }
    lathe_run *run = NULL;
    const lathe_status status = open_options(NULL, list, n, LATHE_OPEN_INFER, &run);
    cr_assert((run != NULL) == (status == LATHE_OK));
    lathe_run_close(run);
    return status;
}

Test(bad_input, each_fault_of_a_model_folder_is_named_with_file_and_place)
{
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        char want[1024];
        damage(&faults[i]);
        cr_expect_eq(open_folder(faults[i].setting), faults[i].status, "%s", faults[i].name);
        expand(faults[i].message, want, sizeof want);
        /* a message that ends in ... may continue */
        const size_t n = strlen(want), open = n > 3 && strcmp(want + n - 3, "...") == 0;
        cr_expect_eq(strncmp(lathe_error_message(), want, open ? n - 3 : n + 1), 0,
                     "%s:\n got %s\nwant %s", faults[i].name, lathe_error_message(), want);
    }
}

Test(bad_input, the_folders_are_good_before)
{
    static const char *const models[] = {"llama_tied", "llama_untied", "llama_sharded"};
    for (int i = 0; i < 3; i++) {
        copy_model(models[i]);
        cr_expect_eq(open_folder(NULL), LATHE_OK, "%s: %s", models[i], lathe_error_message());
    }
}

/* Evaluation applies no dropout, so it accepts the key. */
Test(bad_input, attention_dropout_is_refused_in_training_alone)
{
    char want[512];
    lathe_run *run = NULL;
    const lathe_override list[] = {{"model.path", folder}, {"data.seq_len", "32"}};
    copy_model("llama_tied");
    replace("config.json", "\"attention_dropout\": 0.0", "\"attention_dropout\": 0.1");
    cr_expect_eq(open_folder(NULL), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(open_options(NULL, list, 2, LATHE_OPEN_PLAN, &run), LATHE_E_CONFIG);
    expand("%s/config.json: attention_dropout is 0.1, and training applies no dropout of the "
           "model: set it to 0 in that file to train without dropout",
           want, sizeof want);
    cr_expect_str_eq(lathe_error_message(), want, "%s", lathe_error_message());
}

static void keep_warning(void *user, int32_t level, const char *message)
{
    (void)user;
    (void)level;
    snprintf(warned, sizeof warned, "%s", message);
}

static void expect_warning(const char *format, lathe_status expected)
{
    char want[1024];
    warned[0] = '\0';
    lathe_log_set_sink(keep_warning, NULL);
    const lathe_status status = open_folder(NULL);
    lathe_log_set_sink(NULL, NULL);
    cr_expect_eq(status, expected, "%s", lathe_error_message());
    expand(format, want, sizeof want);
    cr_expect_str_eq(warned, want, "\n got %s\nwant %s", warned, want);
}

Test(bad_input, tensors_that_are_not_the_models_are_refused)
{
    char want[1024];
    copy_model("llama_tied");
    replace("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    cr_expect_eq(open_folder(NULL), LATHE_E_CONFIG, "%s", lathe_error_message());
    expand("%s/model.safetensors: 9 tensors are not part of this model: "
           "model.layers.1.input_layernorm.weight, model.layers.1.mlp.down_proj.weight, "
           "model.layers.1.mlp.gate_proj.weight, model.layers.1.mlp.up_proj.weight, "
           "model.layers.1.post_attention_layernorm.weight, "
           "model.layers.1.self_attn.k_proj.weight, model.layers.1.self_attn.o_proj.weight, "
           "model.layers.1.self_attn.q_proj.weight, ...; correct config.json if it describes "
           "another model, or remove them from the file",
           want, sizeof want);
    cr_expect_str_eq(lathe_error_message(), want, "\n got %s\nwant %s", lathe_error_message(),
                     want);
}

Test(bad_input, dropout_that_gpt2_names_is_a_warning_in_training)
{
    char want[512];
    lathe_run *run = NULL;
    const lathe_override list[] = {
        {"model.path", folder}, {"data.seq_len", "32"}, {"scheduler.name", "constant"}};
    copy_model("gpt2");
    replace("config.json", "\"attn_pdrop\": 0.0", "\"attn_pdrop\": 0.1");
    expect_warning("", LATHE_OK); /* for generation */
    lathe_log_set_sink(keep_warning, NULL);
    cr_expect_eq(open_options(NULL, list, 3, LATHE_OPEN_PLAN, &run), LATHE_OK, "%s",
                 lathe_error_message());
    lathe_log_set_sink(NULL, NULL);
    expand("%s/config.json: attn_pdrop is 0.1 and not applied: training uses no dropout", want,
           sizeof want);
    cr_expect_str_eq(warned, want, "%s", warned);
    lathe_run_close(run);
}

/* Byte-level tokenizers have at least 256 tokens, more than the golden models: the error is the
 * size of the vocabulary, and the weights are not read. */
Test(bad_input, a_tokenizer_that_is_not_the_models_is_named)
{
    char command[512], want[512];
    copy_model("llama_tied");
    snprintf(command, sizeof command, "cp %s/golden/data/tokenizer/gpt2.json %s/tokenizer.json",
             LATHE_TEST_DATA, folder);
    cr_assert_eq(system(command), 0);
    cr_expect_eq(open_folder(NULL), LATHE_E_CONFIG);
    expand("--model.path: error: %s: vocab_size is 128, but %s has 487 tokens: model and tokenizer "
           "do not belong "
           "together",
           want, sizeof want);
    cr_expect_str_eq(lathe_error_message(), want, "%s", lathe_error_message());
    replace("config.json", "\"vocab_size\": 128", "\"vocab_size\": 50000");
    OK(lathe_file_write_atomic(in_folder("tokenizer_config.json"),
                               "{\"eos_token\": \"<|endoftext|>\"}", 30));
    expect_warning("%s/config.json: eos_token_id is 2 (\"\"\"), but the tokenizer of %s ends a "
                   "text with 0 (\"<|endoftext|>\"): documents end with the latter in training",
                   LATHE_E_SHAPE);
    replace("config.json", "\"eos_token_id\": 2", "\"eos_token_id\": 0");
    expect_warning("", LATHE_E_SHAPE);
    replace("config.json", "\"eos_token_id\": 0", "\"eos_token_id\": 40000");
    cr_expect_eq(open_folder(NULL), LATHE_E_CONFIG);
    expand("%s/config.json: eos_token_id is 40000, which is not a token of %s (487 tokens)", want,
           sizeof want);
    cr_expect_str_eq(lathe_error_message(), want, "%s", lathe_error_message());
}

Test(bad_input, an_adapter_pattern_without_a_module_is_refused_with_the_modules)
{
    copy_model("llama_tied");
    static const struct {
        const char *value, *message;
        int column; /* column of the value */
    } rows[] = {
        {"{name = \"lora\", target_modules = [\"q_proj\", \"q_porj\"]}",
         "lora: target_modules[1] = \"q_porj\" matches no module", 55},
        {"{name = \"lora\", target_modules = [\"embed_out\"]}",
         "lora: target_modules[0] = \"embed_out\" matches no module", 45},
        {"{name = \"lora\", rank_pattern = {\"layers.2.*\" = 4}}",
         "lora: rank_pattern \"layers.2.*\" matches no module", 42},
        {"{name = \"lora\", alpha_pattern = {\"fc1\" = 4}}",
         "lora: alpha_pattern \"fc1\" matches no module", 43},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char toml[512], want[512];
        lathe_run *run = NULL;
        snprintf(toml, sizeof toml, "adapter = %s\n[model]\npath = \"%s\"\n[data]\nseq_len = 32\n",
                 rows[i].value, folder);
        OK(lathe_file_write_atomic(in_folder("run.toml"), toml, (int64_t)strlen(toml)));
        cr_expect_eq(open_options(in_folder("run.toml"), NULL, 0, LATHE_OPEN_PLAN, &run),
                     LATHE_E_CONFIG);
        snprintf(want, sizeof want,
                 "%s/run.toml:1:%d: error: %s; the model has q_proj, k_proj, v_proj, o_proj, "
                 "gate_proj, up_proj, down_proj, embed_tokens, lm_head",
                 folder, rows[i].column, rows[i].message);
        cr_expect_str_eq(lathe_error_message(), want, "\n got %s\nwant %s", lathe_error_message(),
                         want);
        lathe_run_close(run);
    }
}
