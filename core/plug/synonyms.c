/* The table of synonyms: the names that transformers, TRL, PEFT, PyTorch, llama.cpp and their users
 * use. A word may be in several rows; the first one whose name exists in that place is
 * suggested. */
#include "plug/synonyms.h"

#include <ctype.h>
#include <stddef.h>

static const struct {
    const char *word, *section, *name; /* section NULL: a value, or a plugin's name */
} rows[] = {
    /* [model] */
    {"model_name_or_path", "model", "path"},
    {"pretrained_model_name_or_path", "model", "path"},
    {"base_model", "model", "path"},
    {"model_path", "model", "path"},
    {"name_or_path", "model", "path"},
    {"model_name", "model", "path"},
    {"name", "model", "path"},
    {"repo_id", "model", "path"},
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
    {"dataset", "data", "datasets"},
    {"train_data", "data", "datasets"},
    {"train_file", "data", "datasets"},
    {"data_path", "data", "datasets"},
    {"eval_dataset", "data", "validation"},
    {"val_data", "data", "validation"},
    {"validation_file", "data", "validation"},
    {"val_split", "data", "validation_split"},
    {"test_size", "data", "validation_split"},
    {"max_tokens", "data", "seq_len"},
    {"max_length", "data", "seq_len"},
    {"max_seq_len", "data", "seq_len"},
    {"max_seq_length", "data", "seq_len"},
    {"sequence_length", "data", "seq_len"},
    {"block_size", "data", "seq_len"},
    {"context_length", "data", "seq_len"},
    {"cutoff_len", "data", "seq_len"},
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
    {"per_device_train_batch_size", "train", "micro_batch_size"},
    {"train_batch_size", "train", "micro_batch_size"},
    {"grad_accum", "train", "gradient_accumulation_steps"},
    {"grad_accumulation_steps", "train", "gradient_accumulation_steps"},
    {"accumulate_grad_batches", "train", "gradient_accumulation_steps"},
    {"num_train_epochs", "train", "epochs"},
    {"num_epochs", "train", "epochs"},
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
    {"gradient_checkpointing", "train", "recompute"},
    {"activation_checkpointing", "train", "recompute"},
    {"dtype", "train", "precision"},
    {"torch_dtype", "train", "precision"},
    {"bf16", "train", "precision"},
    {"fp16", "train", "precision"},
    {"mixed_precision", "train", "precision"},
    {"bnb_4bit_compute_dtype", "train", "precision"},
    {"compute_dtype", "train", "precision"},
    {"logging_steps", "train", "log_every"},
    {"log_interval", "train", "log_every"},
    {"eval_steps", "train", "eval_every"},
    {"eval_interval", "train", "eval_every"},
    {"eval_iters", "train", "eval_batches"},
    {"patience", "train", "early_stopping_patience"},
    {"ema_decay", "train", "weight_average_decay"},
    {"random_seed", "train", "seed"},
    {"num_threads", "train", "threads"},
    {"n_threads", "train", "threads"},
    /* [checkpoint] */
    {"output_dir", "checkpoint", "dir"},
    {"out_dir", "checkpoint", "dir"},
    {"save_dir", "checkpoint", "dir"},
    {"save_steps", "checkpoint", "every"},
    {"save_every", "checkpoint", "every"},
    {"checkpoint_every", "checkpoint", "every"},
    {"save_total_limit", "checkpoint", "keep_last"},
    {"max_checkpoints", "checkpoint", "keep_last"},
    {"metric_for_best_model", "checkpoint", "best_metric"},
    {"resume_from_checkpoint", "checkpoint", "resume"},
    {"resume_from", "checkpoint", "resume"},
    /* [generate] */
    {"max_tokens", "generate", "max_new_tokens"},
    {"n_predict", "generate", "max_new_tokens"},
    {"max_gen_tokens", "generate", "max_new_tokens"},
    {"temp", "generate", "temperature"},
    {"topk", "generate", "top_k"},
    {"nucleus", "generate", "top_p"},
    /* [log] */
    {"verbosity", "log", "level"},
    {"log_level", "log", "level"},
    {"report_to", "log", "tensorboard"},
    /* keys of plugins; a key with Lathe's own name is for use outside its section */
    {"lr", "optimizer", "lr"},
    {"weight_decay", "optimizer", "weight_decay"},
    {"warmup_steps", "scheduler", "warmup_steps"},
    {"warmup_ratio", "scheduler", "warmup_ratio"},
    {"min_lr", "scheduler", "min_lr"},
    {"r", "adapter", "r"},
    {"alpha", "adapter", "alpha"},
    {"lora_alpha", "adapter", "alpha"},
    {"learning_rate", "optimizer", "lr"},
    {"max_lr", "optimizer", "lr"},
    {"base_lr", "optimizer", "lr"},
    {"adam_beta1", "optimizer", "beta1"},
    {"adam_beta2", "optimizer", "beta2"},
    {"betas", "optimizer", "beta1"},
    {"adam_epsilon", "optimizer", "eps"},
    {"epsilon", "optimizer", "eps"},
    {"wd", "optimizer", "weight_decay"},
    {"l2", "optimizer", "weight_decay"},
    {"param_groups", "optimizer", "groups"},
    {"warmup", "scheduler", "warmup_steps"},
    {"num_warmup_steps", "scheduler", "warmup_steps"},
    {"warmup_iters", "scheduler", "warmup_steps"},
    {"warmup_fraction", "scheduler", "warmup_ratio"},
    {"lr_min", "scheduler", "min_lr"},
    {"eta_min", "scheduler", "min_lr"},
    {"num_training_steps", "scheduler", "total_steps"},
    {"t_max", "scheduler", "total_steps"},
    {"rank", "adapter", "r"},
    {"lora_r", "adapter", "r"},
    {"lora_rank", "adapter", "r"},
    {"lora_alpha", "adapter", "alpha"},
    {"lora_dropout", "adapter", "dropout"},
    {"lora_target_modules", "adapter", "target_modules"},
    {"target_modules", "adapter", "target_modules"},
    {"rslora", "adapter", "use_rslora"},
    {"freeze", "adapter", "no_train"},
    {"frozen", "adapter", "no_train"},
    {"bnb_4bit_use_double_quant", "quant", "double_quant"},
    {"dpo_beta", "stage", "beta"},
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
    {"qlora", NULL, "lora"},
    {"none", NULL, "full"},
    {"all", NULL, "full"},
    {"4bit", NULL, "nf4"},
    {"int4", NULL, "nf4"},
    {"fp4", NULL, "nf4"},
    {"8bit", NULL, "int8"},
    {"load_in_4bit", NULL, "nf4"},
    {"load_in_8bit", NULL, "int8"},
    {"clm", NULL, "pretrain"},
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

const char *lathe_synonym(const char *word, int32_t k, const char **out_section)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (lathe_same_word(word, rows[i].word) && k-- == 0) {
            *out_section = rows[i].section;
            return rows[i].name;
        }
    *out_section = NULL;
    return NULL;
}
