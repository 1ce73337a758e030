/* A run's folder: the state that the view derives from it, with incomplete and missing files. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include "base/error.h"
#include "base/fs.h"
#include "view/watch_frame.h"

#define OK(call) cr_assert_eq((call), LATHE_OK, "%s: %s", #call, lathe_error_message())

static char dir[] = "/tmp/lathe_view_XXXXXX";
static lathe_run_view view;

static void prepare(void)
{
    cr_assert(mkdtemp(dir));
    OK(lathe_run_view_init(&view, dir));
}

static void clean(void)
{
    lathe_run_view_fini(&view);
    OK(lathe_dir_remove(dir));
}

TestSuite(run_view, .init = prepare, .fini = clean);

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

__attribute__((format(printf, 2, 3))) static void put(const char *name, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    OK(lathe_file_write_atomic(in_folder(name), text, n));
}

static void refresh(void)
{
    OK(lathe_run_view_refresh(&view));
}

/* run.json of 10 steps with one start on this machine. */
static void put_record(const char *host, long pid, long long ticks, const char *more)
{
    char now[32];
    const time_t t = time(NULL) - 5;
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime(&t));
    put("run.json",
        "{\"max_steps\": 10, \"model\": {\"family\": \"llama\", \"parameters\": 5}, \"lineage\": "
        "[{\"time\": \"%s\", \"host\": \"%s\", \"pid\": %ld, \"start_ticks\": %lld%s}]}",
        now, host, pid, ticks, more);
}

static const char *this_host(void)
{
    static char host[256];
    gethostname(host, sizeof host - 1);
    return host;
}

Test(run_view, an_empty_folder_waits)
{
    refresh();
    cr_expect_eq(lathe_run_pulse(&view), LATHE_PULSE_EMPTY);
    cr_expect_eq(view.step, -1);
    cr_expect_null(lathe_run_view_series(&view, "loss"));
    cr_expect(isnan(lathe_run_view_eta(&view)));
}

Test(run_view, a_missing_folder_is_named)
{
    lathe_run_view none;
    cr_expect_eq(lathe_run_view_init(&none, "/nowhere/at/all"), LATHE_E_NOT_FOUND);
    cr_expect_not_null(strstr(lathe_error_message(), "/nowhere/at/all"));
    lathe_run_view_fini(&none);
}

Test(run_view, a_process_that_lives_trains_and_one_that_died_stopped)
{
    put("metrics.jsonl", "{\"step\": 4, \"loss\": 2, \"step_seconds\": 0.5}\n");
    put_record(this_host(), (long)getpid(), 0, "");
    refresh();
    cr_expect_eq(lathe_run_pulse(&view), LATHE_PULSE_RUNNING);
    cr_expect_float_eq(lathe_run_view_eta(&view), 3.0, 1e-12); /* 6 steps of 0.5 s */
    put_record(this_host(), (long)getpid(), 12, ""); /* the same process id, but another process */
    refresh();
    cr_expect_eq(lathe_run_pulse(&view), LATHE_PULSE_STOPPED);
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    put_record(this_host(), (long)child, 0, "");
    siginfo_t info;
    cr_assert_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0); /* a zombie now */
    refresh();
    cr_expect_eq(lathe_run_pulse(&view), LATHE_PULSE_STOPPED);
    waitpid(child, NULL, 0);
    cr_expect_eq(lathe_run_pulse(&view), LATHE_PULSE_STOPPED);
}

Test(run_view, a_given_end_is_used)
{
    static const struct {
        const char *end;
        int32_t pulse;
    } rows[] = {{"stopped early", LATHE_PULSE_FINISHED},
                {"finished", LATHE_PULSE_FINISHED},
                {"paused", LATHE_PULSE_PAUSED},
                {"interrupted", LATHE_PULSE_INTERRUPTED},
                {"failed", LATHE_PULSE_FAILED}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char more[64];
        snprintf(more, sizeof more, ", \"end\": \"%s\"", rows[i].end);
        put_record(this_host(), (long)getpid(), 0, more);
        refresh();
        cr_expect_eq(lathe_run_pulse(&view), rows[i].pulse);
    }
}

Test(run_view, a_run_elsewhere_is_judged_by_what_it_writes)
{
    put("metrics.jsonl", "{\"step\": 4, \"loss\": 2, \"step_seconds\": 0.5}\n");
    put_record("another-machine", 1, 1, "");
    refresh();
    cr_expect_eq(lathe_run_pulse(&view), LATHE_PULSE_RUNNING);
    const struct utimbuf old = {time(NULL) - 1000, time(NULL) - 1000};
    cr_assert_eq(utime(in_folder("metrics.jsonl"), &old), 0);
    put("run.json",
        "{\"lineage\": [{\"host\": \"another-machine\", \"time\": \"2001-01-01T00:00:00Z\"}]}");
    refresh();
    cr_expect_eq(lathe_run_pulse(&view), LATHE_PULSE_STOPPED);
}

Test(run_view, a_torn_record_leaves_the_last_good_one)
{
    put_record(this_host(), 1, 1, "");
    refresh();
    cr_expect_str_eq(lathe_run_view_text(&view, "model.family"), "llama");
    put("run.json", "{\"max_st");
    refresh();
    cr_expect_str_eq(lathe_run_view_text(&view, "model.family"), "llama");
    cr_expect_str_eq(lathe_run_view_text(&view, "model.family.deeper"), "");
    cr_expect(isnan(lathe_run_view_number(&view, "model.family")));
}

Test(run_view, follows_growth_and_a_resume)
{
    put("metrics.jsonl", "{\"step\": 1, \"loss\": 4}\n{\"step\": 2, \"loss\": 3}\n{\"step\": 3");
    refresh();
    cr_expect_eq(view.step, 2);
    cr_expect_eq(lathe_run_view_last(&view, "loss"), 3.0);
    put("metrics.jsonl", "{\"step\": 1, \"loss\": 5}\n");
    refresh();
    cr_expect_eq(view.step, 1);
    cr_expect_eq(lathe_run_view_last(&view, "loss"), 5.0);
    cr_expect_eq(lathe_run_view_series(&view, "loss")->n, 1);
}

Test(run_view, a_run_that_goes_back_in_one_file_takes_all_curves_along)
{
    put("metrics.jsonl",
        "{\"step\": 1, \"loss\": 5}\n{\"step\": 2, \"loss\": 4, \"eval_loss\": 9}\n"
        "{\"step\": 1, \"loss\": 6}\n");
    refresh();
    cr_expect_eq(lathe_run_view_last(&view, "loss"), 6.0);
    cr_expect_null(lathe_run_view_series(&view, "eval_loss"));
}

Test(run_view, checkpoints_have_their_loss_and_the_best_is_marked)
{
    OK(lathe_dir_create(in_folder("step-00000002")));
    OK(lathe_dir_create(in_folder("step-00000004")));
    OK(lathe_dir_create(in_folder("step-00000006")));
    OK(lathe_dir_create(in_folder("step-00000008"))); /* without a manifest: not complete */
    put("step-00000002/manifest.json", "12345");
    put("step-00000004/manifest.json", "1234567");
    put("step-00000006/manifest.json", "1");
    put("latest", "step-00000006\n");
    put("metrics.jsonl", "{\"step\": 2, \"eval_loss\": 3}\n{\"step\": 4, \"eval_loss\": 2}\n"
                         "{\"step\": 5, \"eval_loss\": 1}\n{\"step\": 6, \"loss\": 1}\n");
    refresh();
    cr_assert_eq(view.n_checkpoints, 3);
    cr_expect_eq(view.checkpoints[0].eval_loss, 3.0);
    cr_expect_eq(view.checkpoints[1].eval_loss, 2.0);
    cr_expect(isnan(view.checkpoints[2].eval_loss));
    cr_expect_eq(view.checkpoints[1].bytes, 7);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(view.checkpoints[i].is_best, i == 1);
        cr_expect_eq(view.checkpoints[i].is_latest, i == 2);
    }
}

Test(run_view, a_frame_of_any_size_can_be_drawn)
{
    put("metrics.jsonl",
        "{\"step\": 1, \"loss\": 5, \"lr\": 0}\n{\"step\": 2, \"loss\": null}\nx\n");
    put_record("h\\u001b[31m", 1, 1, ", \"end\": \"failed\", \"message\": \"\\u001b[2J<boom>\"");
    refresh();
    for (int32_t width = 1; width < 160; width += 13)
        for (int32_t height = 1; height < 50; height += 7) {
            lathe_canvas c;
            lathe_buffer text = LATHE_BUFFER_INIT;
            OK(lathe_canvas_init(&c, width, height, width % 2));
            OK(lathe_watch_draw(&c, &view, height % 2));
            lathe_canvas_write(&c, 0, "\n", &text);
            cr_expect_null(strchr(text.data, '\x1b'));
            if (width > 60 && height > 20) {
                cr_expect_not_null(strstr(text.data, "step 2/10"));
                cr_expect_not_null(strstr(text.data, "?[2J<boom>"));
                cr_expect_not_null(strstr(text.data, "cannot be read: 1"));
            }
            lathe_buffer_fini(&text);
            lathe_canvas_fini(&c);
        }
}
