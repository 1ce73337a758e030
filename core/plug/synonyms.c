/* The table of synonyms: words that PyTorch, PEFT, llama.cpp and people use, beside the keys of
 * other trainers in plug/foreign_keys.inc. A word may be in several rows; the first one whose name
 * exists in that place is suggested. */
#include "plug/synonyms.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "plug/foreign_keys.h"

static const struct {
    const char *word, *section, *name; /* section NULL: a value, or a plugin's name */
} rows[] = {
    /* [model] */
    {"pretrained_model_name_or_path", "model", "path"},
    {"name_or_path", "model", "path"},
    {"model_name", "model", "path"},
    {"name", "model", "path"},
    {"repo_id", "model", "path"},
    {"adapter_path", "model", "adapter"},
    {"d_model", "model", "hidden_size"},
    {"dim", "model", "hidden_size"},
    {"ffn_dim", "model", "intermediate_size"},
    {"d_ff", "model", "intermediate_size"},
    {"n_layers", "model", "num_hidden_layers"},
    {"num_layers", "model", "num_hidden_layers"},
    {"n_heads", "model", "num_attention_heads"},
    {"num_heads", "model", "num_attention_heads"},
    {"n_kv_heads", "model", "num_key_value_heads"},
    {"tie_embeddings", "model", "tie_word_embeddings"},
    /* [data] */
    {"train_data", "data", "datasets"},
    {"train_file", "data", "datasets"},
    {"data_path", "data", "datasets"},
    {"val_data", "data", "validation"},
    {"validation_file", "data", "validation"},
    {"val_split", "data", "validation_split"},
    {"test_size", "data", "validation_split"},
    {"max_tokens", "data", "seq_len"},
    {"max_seq_len", "data", "seq_len"},
    {"max_seq_length", "data", "seq_len"},
    {"sequence_length", "data", "seq_len"},
    {"block_size", "data", "seq_len"},
    {"context_length", "data", "seq_len"},
    {"num_workers", "data", "prefetch"},
    {"dataloader_num_workers", "data", "prefetch"},
    {"file", "datasets", "path"},
    {"data_files", "datasets", "path"},
    {"format", "datasets", "type"},
    {"probability", "datasets", "weight"},
    {"content", "columns", "text"},
    {"accepted", "columns", "chosen"},
    {"question", "columns", "prompt"},
    /* [tokenizer] */
    {"tokenizer_name", "tokenizer", "path"},
    /* [train] */
    {"batch_size", "train", "micro_batch_size"},
    {"train_batch_size", "train", "micro_batch_size"},
    {"grad_accum", "train", "gradient_accumulation_steps"},
    {"grad_accumulation_steps", "train", "gradient_accumulation_steps"},
    {"accumulate_grad_batches", "train", "gradient_accumulation_steps"},
    {"max_epochs", "train", "epochs"},
    {"steps", "train", "max_steps"},
    {"num_steps", "train", "max_steps"},
    {"max_iters", "train", "max_steps"},
    {"iterations", "train", "max_steps"},
    {"grad_clip", "train", "max_grad_norm"},
    {"clip_grad_norm", "train", "max_grad_norm"},
    {"gradient_clip_val", "train", "max_grad_norm"},
    {"gradient_clipping", "train", "max_grad_norm"},
    {"clip", "train", "max_grad_norm"},
    {"dtype", "train", "precision"},
    {"torch_dtype", "train", "precision"},
    {"mixed_precision", "train", "precision"},
    {"bnb_4bit_compute_dtype", "train", "precision"},
    {"compute_dtype", "train", "precision"},
    {"log_interval", "train", "log_every"},
    {"eval_interval", "train", "eval_every"},
    {"eval_iters", "train", "eval_batches"},
    {"patience", "train", "early_stopping_patience"},
    {"ema_decay", "train", "weight_average_decay"},
    {"random_seed", "train", "seed"},
    {"num_threads", "train", "threads"},
    {"n_threads", "train", "threads"},
    /* [checkpoint] */
    {"out_dir", "checkpoint", "dir"},
    {"save_dir", "checkpoint", "dir"},
    {"save_every", "checkpoint", "every"},
    {"checkpoint_every", "checkpoint", "every"},
    {"max_checkpoints", "checkpoint", "keep_last"},
    {"resume_from", "checkpoint", "resume"},
    /* [generate] */
    {"max_tokens", "generate", "max_new_tokens"},
    {"n_predict", "generate", "max_new_tokens"},
    {"max_gen_tokens", "generate", "max_new_tokens"},
    {"temp", "generate", "temperature"},
    {"nucleus", "generate", "top_p"},
    /* [log] */
    {"verbosity", "log", "level"},
    /* keys of plugins; a key with Lathe's own name is for use outside its section */
    {"warmup_steps", "scheduler", "warmup_steps"},
    {"min_lr", "scheduler", "min_lr"},
    {"r", "adapter", "r"},
    {"alpha", "adapter", "alpha"},
    {"max_lr", "optimizer", "lr"},
    {"base_lr", "optimizer", "lr"},
    {"betas", "optimizer", "beta1"},
    {"epsilon", "optimizer", "eps"},
    {"wd", "optimizer", "weight_decay"},
    {"l2", "optimizer", "weight_decay"},
    {"param_groups", "optimizer", "groups"},
    {"warmup", "scheduler", "warmup_steps"},
    {"num_warmup_steps", "scheduler", "warmup_steps"},
    {"warmup_iters", "scheduler", "warmup_steps"},
    {"warmup_fraction", "scheduler", "warmup_ratio"},
    {"eta_min", "scheduler", "min_lr"},
    {"num_training_steps", "scheduler", "total_steps"},
    {"t_max", "scheduler", "total_steps"},
    {"rank", "adapter", "r"},
    {"target_modules", "adapter", "target_modules"},
    {"rslora", "adapter", "use_rslora"},
    {"freeze", "adapter", "no_train"},
    {"frozen", "adapter", "no_train"},
    {"bnb_4bit_use_double_quant", "quant", "double_quant"},
    {"granularity", "quant", "scaling"},
    {"nbits", "quant", "bits"},
    {"num_bits", "quant", "bits"},
    {"w_bit", "quant", "bits"},
    {"q_group_size", "quant", "group_size"},
    {"response_length", "stage", "max_new_tokens"},
    {"num_ppo_epochs", "stage", "epochs"},
    {"num_mini_batches", "stage", "minibatches"},
    {"adv_estimator", "stage", "advantage"},
    {"lam", "stage", "lambda"},
    {"gae_lambda", "stage", "lambda"},
    {"cliprange", "stage", "clip_low"},
    {"init_kl_coef", "stage", "kl_coef"},
    {"kl_penalty", "stage", "kl_estimator"},
    {"use_kl_in_reward", "stage", "kl_in_reward"},
    {"target", "stage", "kl_target"},
    {"horizon", "stage", "kl_horizon"},
    /* sections */
    {"trainer", NULL, "train"},
    {"training", NULL, "train"},
    {"training_args", NULL, "train"},
    {"dataset", NULL, "data"},
    {"datasets", NULL, "data"},
    {"lr_scheduler", NULL, "scheduler"},
    {"schedule", NULL, "scheduler"},
    {"optim", NULL, "optimizer"},
    {"peft", NULL, "adapter"},
    {"lora", NULL, "adapter"},
    {"quantization", NULL, "quant"},
    {"bitsandbytes", NULL, "quant"},
    {"logging", NULL, "log"},
    {"output", NULL, "checkpoint"},
    {"save", NULL, "checkpoint"},
    {"generation", NULL, "generate"},
    {"sampling", NULL, "generate"},
    {"method", NULL, "stage"},
    {"objective", NULL, "stage"},
    /* names of plugins and choices */
    {"adam", NULL, "adamw"},
    {"adamw_torch", NULL, "adamw"},
    {"adamw_hf", NULL, "adamw"},
    {"adamw_torch_fused", NULL, "adamw"},
    {"adamw_apex_fused", NULL, "adamw"},
    {"adamw_torch_xla", NULL, "adamw"},
    {"paged_adamw_32bit", NULL, "adamw"},
    {"adamw_torch_8bit", NULL, "adamw_8bit"},
    {"anyprecision_adamw", NULL, "adamw_anyprecision"},
    {"galore_adamw", NULL, "galore"},
    {"apollo_adamw", NULL, "apollo"},
    {"lion_32bit", NULL, "lion"},
    {"adamw8bit", NULL, "adamw_8bit"},
    {"adamw_bnb_8bit", NULL, "adamw_8bit"},
    {"paged_adamw_8bit", NULL, "adamw_8bit"},
    {"schedule_free", NULL, "schedule_free_adamw"},
    {"momentum", NULL, "sgd"},
    {"cosine_annealing", NULL, "cosine"},
    {"cosine_with_warmup", NULL, "cosine"},
    {"onecycle", NULL, "one_cycle"},
    {"plateau", NULL, "reduce_on_plateau"},
    {"linear_with_warmup", NULL, "linear"},
    {"warmup_stable_decay", NULL, "wsd"},
    {"none", NULL, "full"},
    {"all", NULL, "full"},
    {"4bit", NULL, "nf4"},
    {"int4", NULL, "nf4"},
    {"fp4", NULL, "nf4"},
    {"8bit", NULL, "int8"},
    {"finegrained_fp8", NULL, "fp8"},
    {"fbgemm_fp8", NULL, "fp8"},
    {"float_quantized", NULL, "fp8"},
    {"e4m3", NULL, "fp8"},
    {"mx4", NULL, "mxfp4"},
    {"mxfp4_pack_quantized", NULL, "mxfp4"},
    {"nvfp4_pack_quantized", NULL, "nvfp4"},
    {"modelopt", NULL, "nvfp4"},
    {"half_quadratic", NULL, "hqq"},
    {"load_in_4bit", NULL, "nf4"},
    {"load_in_8bit", NULL, "int8"},
    {"clm", NULL, "pretrain"},
    {"mlm", NULL, "masked"},
    {"prefix_lm", NULL, "prefix"},
    {"prefixlm", NULL, "prefix"},
    {"causal_lm", NULL, "pretrain"},
    {"lm", NULL, "pretrain"},
    {"pretraining", NULL, "pretrain"},
    {"preference", NULL, "dpo"},
    {"flash", NULL, "flash_cpu"},
    {"flash_attention", NULL, "flash_cpu"},
    {"flash_attention_2", NULL, "flash_cpu"},
    {"eager", NULL, "reference"},
    {"sdpa", NULL, "auto"},
    {"gpu", NULL, "cuda"},
    {"cuda:0", NULL, "cuda"},
    {"float32", NULL, "fp32"},
    {"bfloat16", NULL, "bf16"},
    {"float16", NULL, "fp16"},
    {"half", NULL, "fp16"},
    {"f32", NULL, "fp32"},
    {"f16", NULL, "fp16"},
    {"float8", NULL, "fp8"},
    {"full", NULL, "layer"},
    {"true", NULL, "on"},
    {"minimize", NULL, "min"},
    {"maximize", NULL, "max"},
    {"warning", NULL, "warn"},
    {"swish", NULL, "silu"},
    {"txt", NULL, "text"},
    {"tsv", NULL, "csv"},
};

static int is_separator(char c)
{
    return c == '-' || c == '_' || c == '.' || c == ' ';
}

int lathe_same_word(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (is_separator(*a))
            a++;
        while (is_separator(*b))
            b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return 0;
        if (*a == '\0')
            return 1;
    }
}

/* The section of a target "optimizer.lr" or "data.datasets.columns.text": the word before the last
 * dot, as a text that lasts. */
static const char *section_of(const char *target)
{
    static const char *const sections[] = {
        "model",     "data",  "datasets",  "columns",  "tokenizer", "train",  "checkpoint",
        "generate",  "log",   "parallel",  "teacher",  "adapter",   "quant",  "optimizer",
        "scheduler", "stage", "attention", "renderer", "device",    "reward", "moe"};
    const char *end = strrchr(target, '.'), *begin = end;
    while (begin > target && begin[-1] != '.')
        begin--;
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (strlen(sections[i]) == (size_t)(end - begin) &&
            memcmp(begin, sections[i], (size_t)(end - begin)) == 0)
            return sections[i];
    return NULL;
}

/* The k-th key of another trainer with an equal whose name, without its section, is `word`. */
static const lathe_foreign_key *foreign_key(const char *word, int32_t k)
{
    int32_t n = 0;
    const lathe_foreign_key *keys = lathe_foreign_keys(&n);
    for (int32_t i = 0; i < n; i++) {
        const char *dot = strrchr(keys[i].name, '.');
        if (keys[i].target[0] != '\0' && lathe_same_word(word, dot ? dot + 1 : keys[i].name) &&
            k-- == 0)
            return &keys[i];
    }
    return NULL;
}

const char *lathe_synonym(const char *word, int32_t k, const char **out_section)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (lathe_same_word(word, rows[i].word) && k-- == 0) {
            *out_section = rows[i].section;
            return rows[i].name;
        }
    const lathe_foreign_key *key = foreign_key(word, k);
    *out_section = key ? section_of(key->target) : NULL;
    return key ? strrchr(key->target, '.') + 1 : NULL;
}
