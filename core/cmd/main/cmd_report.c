/* lathe report: writes the report of a run as one page. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/output_file.h"
#include "base/print.h"
#include "cmd/main/commands.h"
#include "view/report.h"

static const lathe_option options[] = {
    {"-o, --output", "FILE", "the file to write (default DIR/report.html; \"-\": standard output)"},
    {"--no-verify", NULL, "do not read the files of the checkpoints to verify them"},
};

/* "-" gets the page alone, so that it can be piped; a file gets a line that names it. */
static lathe_status write_page(const lathe_buffer *page, const char *path)
{
    if (strcmp(path, "-") == 0) {
        lathe_print_output(stdout, page->data, page->len);
        return LATHE_OK;
    }
    LATHE_TRY(lathe_file_write_output(path, page->data, page->len));
    lathe_print("%s (%.0f kB)\n", path, (double)page->len / 1e3);
    return LATHE_OK;
}

static int run_command(const lathe_args *args)
{
    lathe_run_view view;
    lathe_buffer page = LATHE_BUFFER_INIT;
    const char *path = lathe_args_value(args, "--output");
    lathe_status status = lathe_run_view_init(&view, args->words[0]);
    if (status != LATHE_OK)
        goto out;
    if (path == NULL)
        path = lathe_path_join(&view.arena, view.dir, "report.html");
    if (path == NULL) {
        status = LATHE_E_NOMEM;
        goto out;
    }
    if ((status = lathe_run_view_refresh(&view)) != LATHE_OK)
        goto out;
    if ((status = lathe_run_view_check(&view)) != LATHE_OK)
        goto out;
    status = lathe_report_page(&view, lathe_args_value(args, "--no-verify") == NULL, &page);
    if (status != LATHE_OK)
        goto out;
    status = write_page(&page, path);
out:
    lathe_buffer_fini(&page);
    lathe_run_view_fini(&view);
    return status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
}

const lathe_command lathe_cmd_report = {
    .name = "report",
    .arguments = "DIR|RUN.toml [-o FILE]",
    .summary = "write one HTML page about a run: curves, plan, starts, samples, configuration",
    .details = "DIR is the run's checkpoint.dir; a run file means it. The page needs no network\n"
               "and no scripts, and uses the reader's light or dark theme. Checkpoints are "
               "verified against their\n"
               "manifests.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .names_runs = 1,
    .computes = 1,
    .run = run_command,
};
