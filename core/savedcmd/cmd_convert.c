/* lathe convert: a GGUF file to a Hugging Face folder, and back. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/model_path.h"
#include "base/print.h"
#include "cli/held_signals.h"
#include "cli/weights_option.h"
#include "convert/gguf_convert.h"
#include "savedcmd/convert_adapter.h"
#include "savedcmd/saved_commands.h"

static const struct {
    const char *name;
    int32_t type, dtype; /* in GGUF; in a folder, -1: none */
} types[] = {{"f32", LATHE_GGUF_F32, LATHE_F32},    {"f16", LATHE_GGUF_F16, LATHE_F16},
             {"bf16", LATHE_GGUF_BF16, LATHE_BF16}, {"q8_0", LATHE_GGUF_Q8_0, -1},
             {"q4_0", LATHE_GGUF_Q4_0, -1},         {"q4_k", LATHE_GGUF_Q4_K, -1},
             {"q6_k", LATHE_GGUF_Q6_K, -1}};

static int32_t find_type(const char *text)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, text) == 0)
            return (int32_t)i;
    return -1;
}

static int ends_in_gguf(const char *path)
{
    const size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

/* An adapter becomes a GGUF adapter, in f32 as by llama.cpp's converter unless --type says another
 * type of floats. */
static lathe_status convert_adapter(const lathe_args *args, const lathe_model_folder *folder,
                                    const char *to, const char *text, lathe_arena *arena)
{
    const int32_t type = text != NULL ? find_type(text) : find_type("f32");
    if (!ends_in_gguf(to))
        return lathe_error(LATHE_E_ARG, "-o %s: an adapter is converted to a file *.gguf", to);
    if (type < 0 || types[type].dtype < 0)
        return lathe_error(LATHE_E_ARG, "--type %s: expected f32, f16 or bf16 for an adapter",
                           text);
    return lathe_convert_adapter(folder, lathe_args_value(args, "--base"), to, types[type].type,
                                 arena);
}

/* Finds the model. An adapter alone is converted as one; beside a model it is part of that. */
static lathe_status find_model(const lathe_args *args, lathe_arena *arena, lathe_model_folder *out)
{
    int32_t which;
    LATHE_TRY(lathe_cli_weights(args, &which));
    LATHE_TRY(lathe_cli_find_model(args->words[0], which, arena, out));
    if (out->has_model)
        LATHE_TRY(lathe_model_folder_refuse_adapter(out));
    lathe_cli_say_weights(out);
    return lathe_model_folder_check(out);
}

static lathe_status convert(const lathe_args *args, const lathe_model_source *source,
                            lathe_arena *arena)
{
    const char *from = args->words[0], *to = lathe_args_value(args, "--output");
    const char *text = lathe_args_value(args, "--type");
    const int32_t type = text != NULL ? find_type(text) : -1;
    char hint[LATHE_HUB_HINT];
    lathe_model_folder folder;
    if (to == NULL)
        return lathe_error(LATHE_E_ARG,
                           "-o is missing: name the folder or the .gguf file to write");
    if (!lathe_path_exists(from))
        return lathe_error(LATHE_E_CONFIG, "%s: no such file or folder%s", from,
                           lathe_hub_hint(from, hint, sizeof hint));
    const int is_folder = lathe_path_is_dir(from);
    if (!lathe_path_is_model(from))
        return lathe_error(LATHE_E_CONFIG, "%s: neither a folder nor a GGUF file", from);
    LATHE_TRY(find_model(args, arena, &folder));
    if (folder.has_adapter)
        return convert_adapter(args, &folder, to, text, arena);
    if (is_folder && !ends_in_gguf(to))
        return lathe_error(LATHE_E_ARG, "-o %s: a folder is converted to a file *.gguf", to);
    if (!is_folder && ends_in_gguf(to))
        return lathe_error(LATHE_E_ARG,
                           "-o %s: a GGUF file is converted to a folder, and then to another type",
                           to);
    if (text != NULL && (type < 0 || (!is_folder && types[type].dtype < 0)))
        return lathe_error(LATHE_E_ARG, "--type %s: expected f32, f16%s", text,
                           is_folder ? ", bf16, q8_0, q4_0, q4_k or q6_k" : " or bf16");
    from = folder.weights;
    if (is_folder)
        return lathe_gguf_export(source, from, to, type >= 0 ? types[type].type : LATHE_GGUF_BF16,
                                 lathe_cli_check_signals);
    return lathe_gguf_import(source, from, to, type >= 0 ? types[type].dtype : -1,
                             lathe_cli_check_signals);
}

static int run(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_model_source source = {NULL, NULL};
    lathe_cli_hold_signals();
    lathe_status status = lathe_registry_create(&source.registry);
    if (status == LATHE_OK)
        status = convert(args, &source, &arena);
    lathe_registry_destroy(source.registry);
    lathe_arena_fini(&arena);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_cli_end_signals(code == LATHE_EXIT_OK); /* else a pending one ends the process here */
    if (code != LATHE_EXIT_OK)
        return code;
    lathe_print("%s\n", lathe_args_value(args, "--output"));
    return LATHE_EXIT_OK;
}

static const lathe_option options[] = {
    {"-o, --output", "PATH", "the folder, or the file *.gguf, to write; it must not exist yet"},
    {"--type", "TYPE",
     "type of the matrices. Of a GGUF file: f32, f16, bf16 (default), q8_0, q4_0, q4_k or q6_k; of "
     "a folder: f32, f16 or bf16 (default: that of the GGUF file, f32 if it is quantized); of an "
     "adapter: f32 (default), f16 or bf16"},
    {"--base", "DIR", "the model of an adapter, if it is not the one that the adapter names"},
    LATHE_WEIGHTS_OPTION,
};

const lathe_command lathe_cmd_convert = {
    .name = "convert",
    .arguments = "DIR|FILE.gguf",
    .summary = "convert a model's folder to a GGUF file, or back",
    .details =
        "DIR is a model's folder, a checkpoint (averaged weights, if it has them), or the folder\n"
        "of a run.\n"
        "An adapter of LoRA becomes a GGUF adapter (llama.cpp's --lora).\n"
        "A GGUF file runs in llama.cpp and Ollama; it holds the weights, the tokenizer and\n"
        "the chat template. Models: llama, mistral, qwen2, qwen3, gemma2, gemma3, phi3,\n"
        "olmo2, with a byte-level BPE tokenizer.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .names_models = 1,
    .computes = 1,
    .run = run,
};
