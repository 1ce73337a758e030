/* The commands of the program, and words that users of other tools try instead. */
#include "cmd/main/commands.h"

static const lathe_command *const all[] = {
#define LATHE_X(name) &lathe_cmd_##name,
    LATHE_COMMAND_TABLE(LATHE_X)
#undef LATHE_X
};

/* Words that users of other tools try, and the advice for each. */
static const lathe_command_advice instead[] = {
    {"export", "each checkpoint is a Hugging Face folder already: copy DIR/step-N as it is"},
    {"save", "each checkpoint is a Hugging Face folder already: copy DIR/step-N as it is"},
    {"finetune", "use `lathe train RUN.toml` with adapter.name = \"lora\" or \"full\""},
    {"fine-tune", "use `lathe train RUN.toml` with adapter.name = \"lora\" or \"full\""},
    {"sft", "use `lathe train RUN.toml`; the stage is stage.name"},
    {"dpo", "use `lathe train RUN.toml` with stage.name = \"dpo\""},
    {"pretrain", "use `lathe train RUN.toml`; the stage is stage.name"},
    {"run", "use `lathe train RUN.toml`"},
    {"fit", "use `lathe train RUN.toml`"},
    {"resume", "use `lathe train RUN.toml`: it resumes from the latest checkpoint"},
    {"evaluate", "use `lathe eval DIR|RUN.toml`"},
    {"test", "use `lathe eval DIR|RUN.toml`"},
    {"perplexity", "use `lathe eval DIR|RUN.toml`"},
    {"infer", "use `lathe generate DIR --prompt TEXT`"},
    {"predict", "use `lathe generate DIR --prompt TEXT`"},
    {"sample", "use `lathe generate DIR --prompt TEXT`"},
    {"serve", "Lathe has no server; `lathe generate DIR --prompt TEXT` continues a text"},
    {"list", "use `lathe ls`"},
    {"plugins", "use `lathe ls`"},
    {"info", "use `lathe show KIND/NAME`, or `lathe doctor` for the machine"},
    {"config", "use `lathe show SECTION`, and `lathe validate RUN.toml`"},
    {"check", "use `lathe validate RUN.toml`, or `lathe plugin check FILE.so`"},
    {"memory", "use `lathe plan RUN.toml`"},
    {"estimate", "use `lathe plan RUN.toml`"},
    {"tensorboard", "set log.tensorboard = true, or use `lathe watch DIR`"},
};

const lathe_command_list lathe_app_commands = {
    .all = all,
    .n = (int32_t)(sizeof all / sizeof all[0]),
    .instead = instead,
    .n_instead = (int32_t)(sizeof instead / sizeof instead[0]),
};
