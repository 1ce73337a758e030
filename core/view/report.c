/* Builds the report page: head, style, tiles. The sections are in report_*.c. */
#include "view/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "view/html.h"
#include "view/svg_plot.h"

extern const char *lathe_version(void);

static const char style[] =
    "*{box-sizing:border-box}html{color-scheme:light dark}\n"
    "body{margin:0;background:var(--page);color:var(--ink);font:15px/1.55 system-ui,-apple-system,"
    "\"Segoe UI\",Roboto,\"Liberation Sans\",sans-serif}\n"
    ":root{--page:#f5f6f8;--good:#0a7a4b;--bad:#c0322b;--warn:#a2660a}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#0f1218;--good:#58d39b;--bad:#ff8378;--warn:#"
    "f0b658}}\n"
    "main{max-width:1160px;margin:0 auto;padding:44px 24px 64px}\n"
    "header{display:flex;flex-wrap:wrap;align-items:flex-end;gap:8px 20px;margin-bottom:26px}\n"
    "header>div{flex:1 1 420px;min-width:0}\n"
    ".eyebrow{font-size:12px;letter-spacing:.09em;text-transform:uppercase;color:var(--quiet)}\n"
    "h1{font-size:32px;line-height:1.2;margin:2px 0 6px;letter-spacing:-.015em;overflow-wrap:"
    "anywhere}\n"
    "h2{font-size:19px;margin:44px 0 14px;letter-spacing:-.005em}\n"
    "h3{font-size:13px;font-weight:600;margin:0 0 8px;color:var(--quiet)}\n"
    ".sub{color:var(--quiet);margin:0;overflow-wrap:anywhere}\n"
    ".state{font-weight:600;padding:5px 14px 5px 12px;border-radius:999px;background:var(--card);"
    "border:1px solid var(--line);white-space:nowrap}\n"
    ".state::before{content:\"\";display:inline-block;width:9px;height:9px;border-radius:50%;"
    "margin-right:8px;background:currentColor}\n"
    ".good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}.quiet{color:var(--"
    "quiet)"
    "}\n"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:16px "
    "18px;"
    "min-width:0}\n"
    ".grid{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:16px}"
    ".grid>.wide{grid-column:1/-1}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(138px,1fr));gap:12px}\n"
    ".tile{padding:13px 16px}.tile b{display:block;font-size:23px;line-height:1.3;font-weight:600;"
    "letter-spacing:-.01em;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".tile span{display:block;font-size:12.5px;color:var(--quiet)}\n"
    ".scroll{overflow-x:auto}\n"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}\n"
    "th{text-align:left;font-weight:600;font-size:12.5px;color:var(--quiet);white-space:nowrap}\n"
    "th,td{padding:7px 16px 7px 0;border-bottom:1px solid var(--line);vertical-align:top}"
    "tr:last-child>td{border-bottom:0}td:last-child,th:last-child{padding-right:0}\n"
    "td.n,th.n{text-align:right}\n"
    "code,pre,.mono{font-family:ui-monospace,\"SF Mono\",Menlo,Consolas,\"Liberation Mono\","
    "monospace;font-size:13px}\n"
    "td code{overflow-wrap:anywhere}\n"
    "pre{margin:6px 0 0;white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.5}"
    "pre .prompt{color:var(--c0);font-weight:600}\n"
    ".bar{display:flex;height:30px;border-radius:8px;overflow:hidden;gap:2px;margin:4px 0 14px}"
    ".bar i{display:block}\n"
    ".swatch{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:9px}\n"
    ".tag{font-size:12px;font-weight:600;padding:1px 8px;border-radius:999px;border:1px solid;"
    "margin-left:8px;white-space:nowrap}\n"
    ".keys{columns:2;column-gap:16px}.keys>.card{break-inside:avoid;margin:0 0 16px}\n"
    ".keys td:first-child{width:46%;color:var(--quiet);overflow-wrap:anywhere}"
    ".keys td,.keys th{padding:4px 10px 4px 0;font-size:13px}\n"
    ".stack>.card+.card{margin-top:12px}\n"
    "section{scroll-margin-top:28px}\n"
    "footer{margin-top:44px;color:var(--quiet);font-size:13px}\n"
    "details{margin-bottom:10px}summary{cursor:pointer;color:var(--quiet)}\n"
    ".small{display:none}.phases{display:flex;flex-wrap:wrap;gap:6px 28px}\n"
    "@media(max-width:760px){.grid{grid-template-columns:minmax(0,1fr)}.keys{columns:1}main{"
    "padding:"
    "26px 14px}.large{display:none}.small{display:block}"
    /* in a narrow view, a table row becomes a block of lines, each with its column's name */
    "table.rows,table.rows tbody,table.rows tr,table.rows td{display:block}"
    "table.rows tr:first-child{display:none}"
    "table.rows tr{border-bottom:1px solid var(--line);padding:8px 0}"
    "table.rows td,table.rows td.n{border:0;padding:1px 0;text-align:left;overflow-wrap:anywhere}"
    "table.rows td:empty{display:none}"
    "table.rows td::before{content:attr(data-label) \": \";color:var(--quiet)}}\n"
    "@media print{body{background:#fff}.card{break-inside:avoid}}\n";

void lathe__report_date(double seconds, char *out, int64_t bytes)
{
    const time_t t = (time_t)seconds;
    struct tm parts;
    if (!isfinite(seconds) || gmtime_r(&t, &parts) == NULL ||
        strftime(out, (size_t)bytes, "%Y-%m-%d %H:%M UTC", &parts) == 0)
        out[0] = '\0';
}

/* The folder's name, also for "out/run/"; for "." the whole path. */
static void put_name(const lathe_run_view *v, lathe_buffer *out)
{
    size_t n = strlen(v->dir), begin;
    while (n > 1 && v->dir[n - 1] == '/')
        n--;
    for (begin = n; begin > 0 && v->dir[begin - 1] != '/'; begin--)
        ;
    lathe_html_text_n(out, v->dir + begin, (int64_t)(n - begin));
}

static void put_header(const lathe_run_view *v, int32_t pulse, lathe_buffer *out)
{
    static const char *const classes[] = {"quiet", "good", "warn", "good",
                                          "warn",  "warn", "bad",  "bad"};
    char n[32];
    lathe_buffer_puts(out, "<header><div><div class=\"eyebrow\">Lathe run</div><h1>");
    put_name(v, out);
    lathe_buffer_puts(out, "</h1>");
    if (v->record) {
        lathe_axis_text(lathe_run_view_number(v, "model.parameters"), 0.0, LATHE_UNIT_NONE, n,
                        sizeof n);
        lathe_buffer_puts(out, "<p class=\"sub\">");
        lathe_html_printf(
            out, "%s, %s parameters, %s; %s, %s, %s; %s", lathe_run_view_text(v, "model.family"), n,
            lathe_run_view_text(v, "precision.used"), lathe_run_view_text(v, "config.stage.name"),
            lathe_run_view_text(v, "config.optimizer.name"),
            lathe_run_view_text(v, "config.scheduler.name"),
            lathe_run_view_text(v, "machine.model"));
        lathe_buffer_puts(out, "</p>");
    }
    lathe_buffer_printf(out, "</div><span class=\"state %s\">%s</span></header>\n", classes[pulse],
                        lathe_run_pulse_text(pulse));
}

static void put_tile(lathe_buffer *out, const char *name, double value, int32_t unit,
                     const char *more)
{
    char text[32];
    if (!isfinite(value))
        return;
    lathe_axis_text(value, 0.0, unit, text, sizeof text);
    lathe_buffer_puts(out, "<div class=\"card tile\"><span>");
    lathe_html_text(out, name);
    lathe_buffer_puts(out, "</span><b>");
    lathe_html_text(out, text);
    lathe_buffer_puts(out, "</b><span>");
    lathe_html_text(out, more);
    lathe_buffer_puts(out, "</span></div>\n");
}

static void put_loss_tiles(const lathe_run_view *v, lathe_buffer *out)
{
    const lathe_series *loss = lathe_run_view_series(v, "loss");
    const lathe_series *eval = lathe_run_view_series(v, "eval_loss");
    char more[64], number[32];
    int64_t step = 0;
    if (loss) {
        lathe_axis_text(loss->buckets[0].sum / (double)loss->buckets[0].n, 0.0, LATHE_UNIT_NONE,
                        number, sizeof number);
        (void)snprintf(more, sizeof more, "from %s", number);
        put_tile(out, "Training loss", lathe_series_last(loss), LATHE_UNIT_NONE, more);
    }
    if (eval) {
        const double least = lathe_series_least(eval, &step);
        (void)snprintf(more, sizeof more, "at step %lld", (long long)step);
        put_tile(out, "Best validation", least, LATHE_UNIT_NONE, more);
    }
}

/* How long the fastest rank waits for the slowest, as a share of its micro-batches. */
static void put_spread(const lathe_run_view *v, lathe_buffer *out)
{
    const lathe_series *slow = lathe_run_view_series(v, "ranks_slowest_seconds");
    const lathe_series *fast = lathe_run_view_series(v, "ranks_fastest_seconds");
    char text[32], more[64];
    if (slow == NULL || fast == NULL)
        return;
    const double longest = lathe_series_mean(slow, 200);
    lathe_axis_text(longest, 0.0, LATHE_UNIT_SECONDS, text, sizeof text);
    (void)snprintf(more, sizeof more, "of %s of the slowest", text);
    put_tile(out, "Spread of ranks", 1.0 - lathe_series_mean(fast, 200) / longest, LATHE_UNIT_SHARE,
             more);
}

static void put_tiles(const lathe_run_view *v, lathe_buffer *out)
{
    const double max_steps = lathe_run_view_number(v, "max_steps");
    const lathe_series *seconds = lathe_run_view_series(v, "step_seconds");
    const lathe_series *speed = lathe_run_view_series(v, "tokens_per_s");
    const lathe_series *share = lathe_run_view_series(v, "share_of_peak");
    char more[64] = "", text[32];
    lathe_buffer_puts(out, "<section class=\"tiles\">\n");
    put_loss_tiles(v, out);
    if (max_steps > 0.0)
        (void)snprintf(more, sizeof more, "of %.0f", max_steps);
    put_tile(out, "Steps", v->step >= 0 ? (double)v->step : (double)NAN, LATHE_UNIT_COUNT, more);
    const double epoch = lathe_run_view_last(v, "epoch");
    (void)snprintf(more, sizeof more, isfinite(epoch) ? "%.4g epochs" : "", epoch);
    put_tile(out, "Tokens", lathe_run_view_last(v, "tokens"), LATHE_UNIT_COUNT, more);
    if (speed) {
        lathe_axis_text(share ? lathe_series_mean(share, 200) : (double)NAN, 0.0, LATHE_UNIT_SHARE,
                        text, sizeof text);
        (void)snprintf(more, sizeof more, share ? "%s of peak" : "", text);
        put_tile(out, "Tokens a second", lathe_series_mean(speed, 200), LATHE_UNIT_NONE, more);
    }
    if (seconds) {
        lathe_duration_text(lathe_series_sum(seconds), text, sizeof text);
        lathe_buffer_printf(
            out, "<div class=\"card tile\"><span>Time in steps</span><b>%s</b><span>", text);
        lathe_axis_text(lathe_series_mean(seconds, 200), 0.0, LATHE_UNIT_SECONDS, text,
                        sizeof text);
        lathe_buffer_printf(out, "%s a step</span></div>\n", text);
    }
    put_spread(v, out);
    put_tile(out, "Planned memory", lathe_run_view_number(v, "plan.memory_bytes"), LATHE_UNIT_BYTES,
             lathe_run_view_text(v, "machine.device"));
    lathe_buffer_puts(out, "</section>\n");
}

/* Shows at the top how the run ended, if it did not end well. */
static void put_failure(const lathe_run_view *v, int32_t pulse, lathe_buffer *out)
{
    const char *message = json_string_value(json_object_get(lathe_run_view_start(v), "message"));
    if (pulse == LATHE_PULSE_STOPPED)
        message = "The process of this run has ended without a record: it was killed, or the "
                  "machine failed.";
    if ((pulse != LATHE_PULSE_STOPPED && pulse != LATHE_PULSE_FAILED) || message == NULL)
        return;
    lathe_buffer_puts(out, "<p class=\"card bad\">");
    lathe_html_text(out, message);
    lathe_buffer_puts(out, "</p>\n");
}

static void put_footer(const lathe_run_view *v, lathe_buffer *out)
{
    char date[64];
    const int64_t bad = lathe_metrics_reader_bad_lines(v->reader);
    lathe__report_date(lathe_time_now(), date, sizeof date);
    lathe_buffer_puts(out, "<footer>");
    lathe_html_printf(out, "Made by lathe report, version %s, on %s from %s.", lathe_version(),
                      date, v->dir);
    if (bad > 0)
        lathe_html_printf(out, " Lines of metrics.jsonl that cannot be read: %lld.",
                          (long long)bad);
    lathe_buffer_puts(out, "</footer>\n</main>\n</body>\n</html>\n");
}

lathe_status lathe_report_page(const lathe_run_view *v, int32_t verify, lathe_buffer *out)
{
    const int32_t pulse = lathe_run_pulse(v);
    lathe_buffer_puts(
        out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
             "'unsafe-inline'\">\n<title>");
    put_name(v, out);
    lathe_buffer_puts(out, " \xC2\xB7 Lathe run</title>\n<style>\n");
    lathe_svg_style(out);
    lathe_buffer_puts(out, style);
    lathe_buffer_puts(out, "</style>\n</head>\n<body>\n<main>\n");
    put_header(v, pulse, out);
    put_failure(v, pulse, out);
    put_tiles(v, out);
    LATHE_TRY(lathe__report_curves(v, out));
    LATHE_TRY(lathe__report_time(v, out));
    lathe__report_plan(v, out);
    lathe__report_checkpoints(v, verify, out);
    LATHE_TRY(lathe__report_chain(v, verify, out));
    lathe__report_starts(v, out);
    LATHE_TRY(lathe__report_samples(v, out));
    LATHE_TRY(lathe__report_events(v, out));
    lathe__report_setup(v, out);
    put_footer(v, out);
    return out->status;
}
