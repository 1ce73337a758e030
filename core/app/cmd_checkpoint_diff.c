/* lathe checkpoint diff: what two checkpoints differ in. */
#include <stdio.h>

#include "app/commands.h"
#include "run/checkpoint_diff.h"
#include "run/checkpoint_folder.h"

static int run(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_buffer text = LATHE_BUFFER_INIT;
    const char *a = NULL, *b = NULL;
    int64_t n = 0;
    lathe_status status = lathe_checkpoint_resolve(&arena, args->words[0], &a);
    if (status == LATHE_OK)
        status = lathe_checkpoint_resolve(&arena, args->words[1], &b);
    if (status == LATHE_OK)
        status = lathe_checkpoint_diff(a, b, &text, &n);
    if (status == LATHE_OK && text.data)
        (void)fputs(text.data, stdout);
    const int code = status != LATHE_OK ? lathe_args_fail(args, status)
                     : n > 0            ? LATHE_EXIT_FAILED
                                        : LATHE_EXIT_OK;
    lathe_buffer_fini(&text);
    lathe_arena_fini(&arena);
    return code;
}

const lathe_command lathe_cmd_checkpoint_diff = {
    .name = "checkpoint diff",
    .arguments = "A B",
    .summary = "tell what two checkpoints differ in",
    .details =
        "Plugins and their versions, configuration keys, counters of the state, and for each\n"
        "tensor how many elements differ, the largest |b - a|, and that over the largest |a|.\n"
        "A run's folder stands for its latest, DIR/best for its best. Exit 0: no difference.\n"
        "Exit 1: some, or one of the two cannot be read.\n",
    .min_words = 2,
    .max_words = 2,
    .run = run,
};
