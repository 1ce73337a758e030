/* lathe watch: shows a run's curves in the terminal until the user quits. */
#include <stdio.h>

#include "base/error.h"
#include "base/print.h"
#include "cmd/main/commands.h"
#include "view/terminal.h"
#include "view/watch_frame.h"

static const lathe_option options[] = {
    {"--once", NULL, "draw once and exit; this is also done if the output is not a terminal"},
};

/* Makes the text of a frame. screen: adds the codes with which it replaces the frame before. */
static lathe_status frame(const lathe_run_view *v, int screen, int colors, int utf8,
                          lathe_buffer *out)
{
    lathe_canvas canvas;
    int32_t width, height;
    lathe_terminal_size(&width, &height);
    LATHE_TRY(lathe_canvas_init(&canvas, width, height, utf8));
    const lathe_status status = lathe_watch_draw(&canvas, v, screen);
    if (screen)
        lathe_buffer_puts(out, "\x1b[H");
    lathe_canvas_write(&canvas, colors, screen ? "\x1b[K\r\n" : "\n", out);
    if (screen && out->status == LATHE_OK) { /* no line end after the last row, because the screen
                                              * would scroll */
        out->len -= 2;
        lathe_buffer_puts(out, "\x1b[J");
    }
    lathe_canvas_fini(&canvas);
    return status != LATHE_OK ? status : out->status;
}

static lathe_status show_once(lathe_run_view *v, int colors, int utf8)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_status status = frame(v, 0, colors, utf8, &text);
    if (status == LATHE_OK)
        lathe_print_raw(stdout, text.data, text.len);
    lathe_buffer_fini(&text);
    return status;
}

static lathe_status follow(lathe_run_view *v, int colors, int utf8)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_status status = lathe_terminal_take();
    while (status == LATHE_OK) {
        text.len = 0;
        if ((status = frame(v, 1, colors, utf8, &text)) != LATHE_OK)
            break;
        if ((status = lathe_terminal_write(text.data, text.len)) != LATHE_OK)
            break;
        if (lathe_terminal_wait(1.0) == LATHE_EVENT_QUIT)
            break;
        status = lathe_run_view_refresh(v);
    }
    lathe_terminal_give_back();
    lathe_buffer_fini(&text);
    return status;
}

static int run_command(const lathe_args *args)
{
    lathe_run_view view;
    const int screen = lathe_terminal_is_screen(), utf8 = lathe_terminal_is_utf8();
    const int colors = screen && lathe_terminal_has_colors();
    lathe_status status = lathe_run_view_init(&view, args->words[0]);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_run_view_refresh(&view)) != LATHE_OK)
        goto out;
    if ((status = lathe_run_view_check(&view)) != LATHE_OK)
        goto out;
    status = screen && !lathe_args_value(args, "--once") ? follow(&view, colors, utf8)
                                                         : show_once(&view, colors, utf8);
out:
    lathe_run_view_fini(&view);
    return status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
}

const lathe_command lathe_cmd_watch = {
    .name = "watch",
    .arguments = "DIR|RUN.toml",
    .summary = "draw the curves of a run in the terminal",
    .details = "DIR is the run's checkpoint.dir; a run file means it. Only reads files: the run\n"
               "may be in another terminal, on another machine that shares the folder, or\n"
               "finished. q or Ctrl-C quits.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .names_runs = 1,
    .run = run_command,
};
