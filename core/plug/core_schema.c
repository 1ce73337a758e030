/* The keys of the core's own tables. `lathe show`, the man pages and the tables in docs/ print
 * these texts. */
#include "plug/core_schema.h"

#include <string.h>

#define STRING(key, def, choices, doc) LATHE_FIELD_STRING(key, def, choices, doc)
#define BOOL(key, def, doc) LATHE_FIELD_BOOL(key, def, doc)
#define INT(key, def, lo, hi, unit, doc) LATHE_FIELD_INT(key, def, lo, hi, unit, doc)
#define FLOAT(key, def, lo, hi, unit, doc) LATHE_FIELD_FLOAT(key, def, lo, hi, unit, doc)
#define TABLE(key, doc)                                                                            \
    {                                                                                              \
        key, LATHE_T_TABLE, 0, NULL, LATHE_NO_RANGE, NULL, NULL, doc                               \
    }
#define ANY 1e18 /* no upper bound worth showing */

/* Beside the keys of the plugin that serves the model_type. */
static const lathe_field model_fields[] = {
    STRING("path", NULL, NULL, "Hugging Face folder (config.json, *.safetensors) to start from"),
    STRING("model_type", NULL, NULL,
           "architecture of a new model, made from the keys of its family (lathe ls model, lathe "
           "show model/NAME); only without path"),
    INT("seed", NULL, 0, ANY, NULL, "seed of the initial weights; unset: train.seed"),
};

static const lathe_field data_fields[] = {
    TABLE("datasets", "array of { path, type, columns, weight }"),
    TABLE("validation",
          "datasets for evaluation, in the same form as datasets; instead of validation_split"),
    {"validation_split", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.0", 0.0, 1.0, NULL, "1",
     "share of the documents (for pairs: records) that is used for evaluation only"},
    INT("validation_count", "0", 0, ANY, "documents",
        "number of documents (for pairs: records) used for evaluation only; instead of "
        "validation_split"),
    INT("seq_len", "1024", 2, 1e8, "tokens", "tokens of a row"),
    STRING("packing", "\"sequential\"", "sequential|multipack",
           "sequential: documents in a row, cut every seq_len tokens; multipack: whole documents "
           "packed into rows by first-fit decreasing"),
    BOOL("shuffle", "true", "use a new order in each epoch, which depends only on the seed"),
    INT("seed", NULL, 0, ANY, NULL, "seed of the order and of the split; unset: train.seed"),
    STRING("cache_dir", "\".lathe/cache\"", NULL, "folder of the tokenised shards"),
    INT("prefetch", "2", 0, 1024, "batches", "batches that are prepared in advance; 0: none"),
};

static const lathe_field dataset_fields[] = {
    {"path", LATHE_T_STRING, LATHE_FIELD_REQUIRED, NULL, LATHE_NO_RANGE, NULL, NULL,
     "file, folder, or pattern of *, ?, [..] and **"},
    STRING("type", NULL, "text|jsonl|json|csv",
           "text: whole files; jsonl: a record a line; json: an array of records; csv: with a "
           "header row; unset: by the names"),
    TABLE("columns", "the file's names for the columns text, prompt, chosen, rejected"),
    {"weight", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, NULL, 0.0, 1e6, NULL, "1",
     "how often an epoch uses each row of the dataset; 0.5: half of the rows, the next epoch uses "
     "the others; unset: 1"},
};

/* As dataset_fields but without weight, because an evaluation uses every row once. */
static const lathe_field validation_fields[] = {
    {"path", LATHE_T_STRING, LATHE_FIELD_REQUIRED, NULL, LATHE_NO_RANGE, NULL, NULL,
     "file, folder, or pattern of *, ?, [..] and **"},
    STRING("type", NULL, "text|jsonl|json|csv",
           "text: whole files; jsonl: a record a line; json: an array of records; csv: with a "
           "header row; unset: by the names"),
    TABLE("columns", "the file's names for the columns text, prompt, chosen, rejected"),
};

static const lathe_field dataset_column_fields[] = {
    STRING("text", NULL, NULL, "column of the text"),
    STRING("prompt", NULL, NULL, "column of the prompt"),
    STRING("chosen", NULL, NULL, "column of the preferred completion"),
    STRING("rejected", NULL, NULL, "column of the other completion"),
};

static const lathe_field tokenizer_fields[] = {
    STRING("path", NULL, NULL, "folder or tokenizer.json; \"bytes\": raw bytes; unset: model.path"),
    TABLE("train", "trains a byte-level BPE on data.datasets: { vocab_size, ... }"),
};

static const lathe_field tokenizer_train_fields[] = {
    {"vocab_size", LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, 257, 1e7, NULL, "tokens",
     "size of the vocabulary, including the special tokens and the 256 bytes"},
    INT("min_frequency", "2", 1, ANY, NULL, "pairs rarer than this are not merged"),
    STRING("pattern", NULL, NULL, "regular expression that splits the text; unset: GPT-2's"),
    {"special_tokens", LATHE_T_STRING_LIST, 0, "[\"<|endoftext|>\"]", LATHE_NO_RANGE, NULL, NULL,
     "special tokens, which get the ids 0, 1, ...; the first one ends a document"},
};

static const lathe_field train_fields[] = {
    STRING("precision", "\"bf16\"", "bf16|fp16|fp32|fp8",
           "number format of the computation; master weights and sums are fp32"),
    STRING("fp8_recipe", "\"auto\"", "auto|tensorwise|rowwise",
           "fp8: one scale per tensor, or one per row; auto: the better one for the device"),
    STRING("grad_dtype", "\"fp32\"", "fp32|bf16",
           "number format of the summed gradients of the layers' matrices; bf16, in bf16 and fp8 "
           "runs, halves their memory"),
    {"loss_scale_init", LATHE_T_FLOAT, 0, "1024.0", 1.0, 16777216.0, NULL, "1",
     "fp16: first loss scale, which multiplies the loss before the backward pass"},
    INT("loss_scale_growth_interval", "2000", 1, 1e9, "steps",
        "fp16: number of steps without overflow after which the loss scale doubles"),
    STRING("on_nonfinite", "\"stop\"", "stop|skip|rewind",
           "after a NaN or infinite loss or gradient: stop, skip the step, or go back to the last "
           "checkpoint and continue with the data after the bad step"),
    STRING("on_spike", "\"ignore\"", "ignore|stop|skip|rewind",
           "after a loss far above the previous ones: ignore it, stop, skip the step, or go back "
           "to the last checkpoint and continue with the data after the bad step"),
    {"spike_threshold", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "6.0", 0.0, ANY, NULL, "1",
     "a loss is a spike if it is more than this many standard deviations above the mean of the "
     "last losses"},
    INT("spike_window", "64", 2, 1024, "steps",
        "number of losses in that mean and standard deviation; no spike is detected before half of "
        "them are known"),
    INT("micro_batch_size", "1", 1, 1e6, "rows", "rows that are computed at once"),
    INT("gradient_accumulation_steps", "1", 1, 1e6, "micro-batches", "micro-batches of one step"),
    INT("max_steps", NULL, 1, ANY, "steps", "length of the run; unset: computed from epochs"),
    INT("epochs", "1", 1, 1e9, "epochs", "passes over the data, when max_steps is unset"),
    INT("stop_after", NULL, 1, ANY, "steps",
        "pauses the run after this step; the schedule still covers the whole run"),
    FLOAT("max_grad_norm", "1.0", 0.0, ANY, "1", "clips the gradient to this norm; 0: no clipping"),
    FLOAT("max_grad_value", "0.0", 0.0, ANY, "1",
          "clips every element of the averaged gradient to this size, before max_grad_norm; 0: no "
          "clipping"),
    INT("seed", "42", 0, ANY, NULL, "seed of everything that has no seed of its own"),
    BOOL("deterministic", "true",
         "every run gives the same bits; kernels that cannot guarantee this are refused"),
    INT("threads", "0", 0, 4096, "threads", "CPU threads; 0: one per CPU"),
    STRING("recompute", "\"pointwise\"", "none|layer|attention|mlp|pointwise",
           "activations that the backward pass computes again, to save memory"),
    STRING("capture", "\"auto\"", "auto|on|off",
           "records the device's work of one step and replays it in the next ones; auto: if the "
           "device supports it"),
    INT("log_every", NULL, 1, ANY, "steps",
        "steps from one progress line to the next; unset: a line about every ten seconds"),
    INT("eval_every", "0", 0, ANY, "steps",
        "steps from one evaluation to the next; 0: at the end only"),
    INT("eval_batches", "0", 0, ANY, "micro-batches",
        "length of an evaluation; 0: the whole split"),
    INT("early_stopping_patience", "0", 0, 1e9, "evaluations",
        "ends the run after this many evaluations in a row without improvement; 0: off"),
    FLOAT("early_stopping_threshold", "0.0", 0.0, ANY, "1",
          "smallest change of checkpoint.best_metric that counts as an improvement"),
    STRING("weight_average", "\"none\"", "none|ema|swa",
           "also keeps and evaluates the exponential moving average (ema) or the mean (swa) of the "
           "weights"),
    {"weight_average_decay", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.999", 0.0, 1.0, NULL, "1",
     "decay of ema: average = decay*average + (1-decay)*weights"},
    INT("weight_average_start", "0", 0, ANY, "steps",
        "step at which averaging begins; until then the average equals the weights"),
    INT("weight_average_every", "1", 1, ANY, "steps",
        "the average takes in the weights of every n-th step; 1: of every step"),
    FLOAT(
        "memory_limit", "0", 0.0, 1e6, "GiB",
        "a run whose plan needs more memory is refused; 0: the memory that is free on the machine"),
    BOOL("offload_optimizer", "false",
         "keeps the optimizer's state in pinned host memory, if the device has its own memory"),
    BOOL("offload_activations", "false",
         "keeps activations in pinned host memory from the forward to the backward pass, if the "
         "device has its own memory"),
    {"offload_buffer", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "64", 0.0, 1e6, NULL, "MiB",
     "size of each of the two device buffers for the offloaded state; larger if the state of one "
     "tensor cannot be split"},
    INT("head_chunk_rows", "0", 0, ANY, "tokens",
        "number of tokens whose logits are in memory at once; 0: chosen by the planner"),
};

static const lathe_field checkpoint_fields[] = {
    STRING("dir", "\"out\"", NULL, "folder of checkpoints, metrics and logs"),
    INT("every", "0", 0, ANY, "steps", "steps from one checkpoint to the next; 0: at the end only"),
    FLOAT("every_minutes", "0", 0.0, 1e6, "minutes",
          "also writes a checkpoint when the last one is this many minutes old; 0: off"),
    INT("every_epochs", "0", 0, 1e9, "epochs",
        "also writes a checkpoint after every so many passes over the data; 0: off"),
    STRING("resume", "\"auto\"", NULL,
           "auto: resume from the latest checkpoint in dir, if there is one; never; or the path of "
           "a checkpoint or of a folder of checkpoints"),
    INT("keep_last", "0", 0, 1e6, "checkpoints",
        "number of latest checkpoints to keep; 0: all are kept"),
    INT("keep_best", "0", 0, 1000, "checkpoints",
        "number of checkpoints with the best best_metric to keep beside those of keep_last; 0: "
        "none. If above 0, an evaluation that is among the best so far also writes a checkpoint"),
    STRING("best_metric", "\"eval_loss\"", NULL,
           "metric in metrics.jsonl that decides which checkpoint is best"),
    STRING("best_mode", "\"auto\"", "auto|min|max",
           "whether a lower or a higher metric is better; auto: max for accuracy, reward, margin, "
           "score, f1, bleu, otherwise min"),
    STRING("save_dtype", "\"auto\"", "auto|fp32|bf16|fp16",
           "number format of the tensors in model.safetensors; auto: as each tensor in model.path, "
           "fp32 for a new model. The fp32 master weights are in state/"),
    FLOAT("shard_size", "5.0", 0.0, 1e6, "GB",
          "model.safetensors is split into files of at most this size (1 GB: 10^9 bytes); 0: one "
          "file"),
    BOOL("gate", "true",
         "before `best` points to a new checkpoint, reads it back from the disk and compares it "
         "with what was written; only with keep_best"),
    BOOL("async", "true",
         "writes checkpoints while training goes on, from a copy of the state; false: needs less "
         "memory"),
};

static const lathe_field generate_fields[] = {
    STRING("prompt", NULL, NULL, "text to continue"),
    INT("every", "0", 0, ANY, "steps",
        "steps between two samples: training continues the prompt and writes the text to "
        "samples.jsonl; 0: never"),
    INT("max_new_tokens", "128", 1, 1e8, "tokens", "maximum number of tokens to generate"),
    FLOAT("temperature", "1.0", 0.0, 100.0, "1",
          "temperature of the sampling; 0: always the most likely token. If unset, this and the "
          "keys below come from the model's generation_config.json, if it has one"),
    INT("top_k", "0", 0, 1e7, "tokens", "sample only from the k most likely tokens; 0: from all"),
    {"top_p", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "1.0", 0.0, 1.0, NULL, "1",
     "sample only from the most likely tokens whose probabilities add up to this"},
    FLOAT(
        "min_p", "0.0", 0.0, 1.0, "1",
        "sample only from tokens with at least this share of the highest probability; 0: from all"),
    {"repetition_penalty", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "1.0", 0.0, 100.0, NULL, "1",
     "above 1: tokens of the prompt and of the continuation so far become less likely; 1: off"},
    INT("seed", NULL, 0, ANY, NULL, "seed of the sampling; unset: train.seed"),
};

static const lathe_field log_fields[] = {
    STRING("level", "\"info\"", "debug|info|warn|error", "lowest level that is shown"),
    BOOL("tensorboard", "false",
         "writes event files for TensorBoard to tensorboard/ in checkpoint.dir"),
    STRING("progress", "\"auto\"", "auto|plain|off",
           "auto: one updated progress line on a terminal, otherwise plain lines"),
};

static const lathe_field plugins_fields[] = {
    {"paths", LATHE_T_STRING_LIST, 0, "[]", LATHE_NO_RANGE, NULL, NULL,
     "folders with plugins as <kind>/<name>.so; they are searched first"},
    {"override", LATHE_T_STRING_LIST, 0, "[]", LATHE_NO_RANGE, NULL, NULL,
     "built-in plugins that a plugin in another folder may replace: [\"optimizer/adamw\"]"},
    TABLE("pins", "SHA-256 of plugins: { \"optimizer/adamw\" = \"<64 hex digits>\" }"),
};

/* Keys that the core adds to every optimizer's table, after the plugin's own keys. */
static const lathe_field optimizer_fields[] = {
    {"no_decay_modules", LATHE_T_STRING_LIST, 0, "[]", LATHE_NO_RANGE, NULL, NULL,
     "modules without weight decay: one part of a module's path (\"embed_tokens\"), or a pattern "
     "for the whole path (\"model.layers.0.*\"); norms and biases never have weight decay"},
    {"no_decay_params", LATHE_T_STRING_LIST, 0, "[]", LATHE_NO_RANGE, NULL, NULL,
     "parameters without weight decay: patterns for whole parameter names"},
    TABLE("groups", "array of { name, params, lr, weight_decay }; a parameter belongs to the first "
                    "group that matches it"),
};

static const lathe_field group_fields[] = {
    STRING("name", NULL, NULL,
           "name in the metrics (grad_norm/NAME); unset: the number of the group"),
    {"params", LATHE_T_STRING_LIST, LATHE_FIELD_REQUIRED, NULL, LATHE_NO_RANGE, NULL, NULL,
     "patterns for whole parameter names; * matches any characters"},
    FLOAT("lr", NULL, 0.0, 1e3, "1", "learning rate; unset: the optimizer's"),
    FLOAT("weight_decay", NULL, 0.0, 1e3, "1", "weight decay; unset: the optimizer's"),
};

#define SECTION(name, key, list, doc)                                                              \
    {                                                                                              \
        name, key, list, (int32_t)(sizeof(list) / sizeof((list)[0])), doc                          \
    }

static const lathe_core_section sections[] = {
    SECTION("model", NULL, model_fields, "the model: a folder, or the shape of a new one"),
    SECTION("data", NULL, data_fields, "the data of training and evaluation"),
    SECTION("tokenizer", NULL, tokenizer_fields, "the tokenizer"),
    SECTION("train", NULL, train_fields, "the training"),
    SECTION("checkpoint", NULL, checkpoint_fields, "checkpoints and resuming"),
    SECTION("generate", NULL, generate_fields, "sampling from the model"),
    SECTION("log", NULL, log_fields, "log and progress output"),
    SECTION("plugins", NULL, plugins_fields, "the plugins' folders and checks"),
};

static const lathe_core_section tables[] = {
    SECTION("data", "datasets", dataset_fields, "keys of each dataset"),
    SECTION("data.datasets", "columns", dataset_column_fields, "the file's names for the columns"),
    SECTION("data", "validation", validation_fields, "keys of each dataset for evaluation"),
    SECTION("data.validation", "columns", dataset_column_fields,
            "the file's names for the columns"),
    SECTION("tokenizer", "train", tokenizer_train_fields, "training a tokenizer from the data"),
    SECTION("optimizer", "groups", group_fields, "keys of each parameter group"),
};

const lathe_core_section *lathe_core_sections(int32_t *out_n)
{
    *out_n = (int32_t)(sizeof sections / sizeof sections[0]);
    return sections;
}

const lathe_core_section *lathe_core_tables(int32_t *out_n)
{
    *out_n = (int32_t)(sizeof tables / sizeof tables[0]);
    return tables;
}

const lathe_core_section *lathe_core_section_find(const char *name)
{
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (strcmp(sections[i].name, name) == 0)
            return &sections[i];
    return NULL;
}

const lathe_core_section *lathe_core_table_find(const char *section, const char *key)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (strcmp(tables[i].name, section) == 0 && strcmp(tables[i].key, key) == 0)
            return &tables[i];
    return NULL;
}

const lathe_field *lathe_core_kind_fields(int32_t kind, int32_t *out_n)
{
    *out_n = 0;
    if (kind == LATHE_KIND_MODEL) {
        *out_n = (int32_t)(sizeof model_fields / sizeof model_fields[0]);
        return model_fields;
    }
    if (kind != LATHE_KIND_OPTIMIZER)
        return NULL;
    *out_n = (int32_t)(sizeof optimizer_fields / sizeof optimizer_fields[0]);
    return optimizer_fields;
}
