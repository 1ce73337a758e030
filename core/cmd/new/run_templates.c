/* Run files to begin with. */
#include "cmd/new/run_templates.h"

#include <stddef.h>
#include <string.h>

#define MODEL                                                                                      \
    "[model]\n"                                                                                    \
    "path = @MODEL@   # a Hugging Face folder: hf download ORG/NAME --local-dir DIR\n"

#define ADAPTER                                                                                    \
    "\n[adapter]\n"                                                                                \
    "name = \"lora\"       # full: every weight; auto: the first method that fits the memory\n"    \
    "r = 16\n"                                                                                     \
    "alpha = 32\n"

#define OPTIMIZER(lr, remark)                                                                      \
    "\n[optimizer]\n"                                                                              \
    "name = \"adamw\"\n"                                                                           \
    "lr = " lr "           # " remark "\n"                                                         \
    "\n[scheduler]\n"                                                                              \
    "name = \"cosine\"\n"                                                                          \
    "warmup_ratio = 0.03   # share of the run in which the rate rises from 0\n"

/* @ROWS@, @STEPS@: how many records a step takes. @FEW{...}@: only where the data are few records;
 * @MANY{...}@: else. */
#define TRAIN(eval)                                                                                \
    "\n[train]\n"                                                                                  \
    "micro_batch_size = @ROWS@  # rows at a time; lathe plan tells what fits\n"                    \
    "gradient_accumulation_steps = @STEPS@\n"                                                      \
    "epochs = @EPOCHS@            # or max_steps\n"                                                \
    "@MANY{eval_every = " eval "\n}@"

#define CHECKPOINT                                                                                 \
    "\n[checkpoint]\n"                                                                             \
    "dir = @OUT@      # the same command goes on where a run was stopped\n"                        \
    "every = 100           # steps\n"                                                              \
    "keep_last = 2\n"

/* The share of the records that is kept for evaluation; of few records it would be one or none. */
#define SPLIT(share)                                                                               \
    "@MANY{validation_split = " share "\n}@"                                                       \
    "@FEW{# validation_split = 0.1   # there are @N@ records; more are worth an evaluation\n}@"

/* The data of a stage that learns from records: rows of 1024 tokens, a share kept for evaluation.
 * Texts of a record stand for themselves, which is right for a base model alone. */
#define DATA(split, remark)                                                                        \
    "# prompts and answers that are texts: { path = ..., chat = true } writes them as the "        \
    "model's "                                                                                     \
    "chat template does\n"                                                                         \
    "datasets = [{ path = @DATA@ }]\n" SPLIT(split) "seq_len = 1024" remark "\n"

#define STAGE(name)                                                                                \
    "\n[stage]\n"                                                                                  \
    "name = \"" name "\"\n"

/* The sections after the stage of a run with LoRA. full_lr: the usual rate where every weight
 * trains. */
#define LORA_RUN(lr, full_lr)                                                                      \
    ADAPTER OPTIMIZER(lr, "for LoRA; about " full_lr " where every weight trains") TRAIN("50")     \
        CHECKPOINT

static const char sft[] =
    "# Fine-tuning on conversations, or on questions and answers. Only the answers are "
    "learnt.\n" MODEL "\n[data]\n"
    "# JSONL with \"messages\", or alpaca or sharegpt records, or columns that you name "
    "(docs/data.md).\n" DATA("0.02", "        # tokens of a row@MANY{; examples are packed into "
                                     "rows}@") "@FEW{packing = \"none\"      # an example a row, "
                                               "because there are few\n}@" STAGE("sft")
                                                   LORA_RUN("2e-4", "1e-5");

static const char pretrain_new[] =
    "# A new model on a folder of texts: about 30 million parameters, with a tokenizer of its "
    "own.\n"
    "[model]\n"
    "model_type = \"llama\"  # its keys are those of config.json\n"
    "hidden_size = 512\n"
    "intermediate_size = 1408\n"
    "num_hidden_layers = 8\n"
    "num_attention_heads = 8\n"
    "max_position_embeddings = 512\n"
    "\n[tokenizer]\n"
    "train = { vocab_size = 8192 }   # learnt from the data\n"
    "\n[data]\n"
    "datasets = [{ path = @DATA@ }]  # a file or a folder of texts, or JSONL with \"text\"\n" SPLIT(
        "0.02") "seq_len = 512\n" STAGE("pretrain") OPTIMIZER("1e-3", "for a small new model")
        TRAIN("100") CHECKPOINT;

static const char pretrain_more[] =
    "# More pretraining of a model, on a folder of texts.\n" MODEL "\n[data]\n"
    "datasets = [{ path = @DATA@ }]  # a file or a folder of texts, or JSONL with \"text\"\n" SPLIT(
        "0.02") "seq_len = 1024\n" STAGE("pretrain") OPTIMIZER("2e-5", "every weight trains")
        TRAIN("100") CHECKPOINT;

static const char dpo[] =
    "# Direct preference optimization: of two answers, the better one becomes likelier.\n" MODEL
    "\n[data]\n"
    "# JSONL with \"prompt\", \"chosen\" and \"rejected\": texts, or lists of messages "
    "(docs/data.md).\n" DATA("0.05", "        # longer pairs are cut")
        STAGE("dpo") "beta = 0.1            # how far the model may go from where it "
                     "began\n" LORA_RUN("2e-5", "1e-6");

static const char kto[] =
    "# Kahneman-Tversky optimization: single answers, each marked as good or bad.\n" MODEL
    "\n[data]\n"
    "# JSONL with \"prompt\", \"completion\" and \"label\" (true or false).\n" DATA("0.05", "")
        STAGE("kto") "beta = 0.1\n" LORA_RUN("2e-5", "1e-6");

static const char rm[] =
    "# A reward model: a score that is higher for the better of two answers.\n" MODEL "\n[data]\n"
    "# JSONL with \"prompt\", \"chosen\" and \"rejected\".\n" DATA("0.05", "") STAGE("rm")
        LORA_RUN("1e-4", "1e-5");

static const char ppo[] =
    "# Policy optimization: the model answers prompts, and a reward says how well.\n" MODEL
    "\n[data]\n"
    "# JSONL with \"prompt\" (a text, or messages) and the columns that the reward reads.\n"
    "datasets = [{ path = @DATA@ }]\n"
    "seq_len = 1024        # prompt and answer together\n" STAGE(
        "ppo") "prompts = 8           # of a rollout\n"
               "group = 8             # answers to each prompt; an advantage is relative to its "
               "group\n"
               "max_new_tokens = 256\n"
               "\n[reward]\n"
               "name = \"match\"        # 1 if the number after #### is that of the column "
               "\"answer\";\n"
               "# or command: a program of yours (plugins/rewards)\n"
               "pattern = '####\\s*([^\\s\\w]*\\d(?:[\\d.,]|\\h\\d{3}(?!\\d))*[^\\s\\w]*)'\n"
               "column_pattern = '####\\s*(\\S+)'\n" ADAPTER "\n[optimizer]\n"
               "name = \"adamw\"\n"
               "lr = 2e-5             # for LoRA; about 1e-6 where every weight trains\n"
               "\n[train]\n"
               "micro_batch_size = 8  # the stage decides how many of them a step has\n"
               "max_steps = 200\n" CHECKPOINT;

static const lathe_run_template templates[] = {
    {"sft", 0, "chats.jsonl", sft},          {"pretrain", 1, "texts", pretrain_new},
    {"pretrain", 0, "texts", pretrain_more}, {"dpo", 0, "pairs.jsonl", dpo},
    {"kto", 0, "labelled.jsonl", kto},       {"rm", 0, "pairs.jsonl", rm},
    {"ppo", 0, "questions.jsonl", ppo},
};

enum { N_TEMPLATES = sizeof templates / sizeof templates[0] };

const lathe_run_template *lathe_run_template_find(const char *stage, int has_model)
{
    for (size_t i = 0; i < N_TEMPLATES; i++)
        if (strcmp(templates[i].stage, stage) == 0 && !(has_model && templates[i].from_scratch))
            return &templates[i];
    return NULL;
}

void lathe_run_template_names(lathe_buffer *out)
{
    for (size_t i = 0; i < N_TEMPLATES; i++)
        if (i == 0 || strcmp(templates[i].stage, templates[i - 1].stage) != 0)
            lathe_buffer_printf(out, "%s%s", i ? ", " : "", templates[i].stage);
}
