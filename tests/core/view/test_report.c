/* The report: well-formed, self-contained, safe for any content of a run's files, small for long
 * runs. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "files/safetensors/manifest.h"
#include "view/html.h"
#include "view/jsonl_tail.h"
#include "view/report.h"
#include "view/svg_plot.h"

#define OK(call) cr_assert_eq((call), LATHE_OK, "%s: %s", #call, lathe_error_message())

static char dir[] = "/tmp/lathe_report_XXXXXX";
static lathe_buffer page = LATHE_BUFFER_INIT;

static void prepare(void)
{
    cr_assert(mkdtemp(dir));
}

static void clean(void)
{
    lathe_buffer_fini(&page);
    OK(lathe_dir_remove(dir));
}

TestSuite(report, .init = prepare, .fini = clean);

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const char *text)
{
    OK(lathe_file_write_atomic(in_folder(name), text, (int64_t)strlen(text)));
}

static const char *make_page(void)
{
    lathe_run_view view;
    page.len = 0;
    OK(lathe_run_view_init(&view, dir));
    OK(lathe_run_view_refresh(&view));
    OK(lathe_report_page(&view, 1, &page));
    lathe_run_view_fini(&view);
    return page.data;
}

static int is_void(const char *name)
{
    return strcmp(name, "meta") == 0 || strcmp(name, "br") == 0;
}

/* Checks that every tag is closed in order, every attribute is quoted, and nothing loads or
 * runs. */
static void expect_well_formed(const char *html)
{
    static const char *const allowed =
        " details summary html head meta title style body main header footer "
        "section div span p b i h1 h2 h3 table tr "
        "th td code pre br svg text tspan path line rect circle ";
    char stack[64][16];
    int depth = 0;
    for (const char *at = strchr(html + 1, '<'); at; at = strchr(at, '<')) {
        char name[16], padded[20];
        const int closes = at[1] == '/';
        size_t n = 0;
        at += 1 + closes;
        while (isalnum((unsigned char)at[n]) && n < sizeof name - 1)
            n++;
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        snprintf(padded, sizeof padded, " %s ", name);
        cr_assert(n > 0 && strstr(allowed, padded), "<%s> at %.60s", name, at);
        for (at += n; *at != '>'; at++) {
            cr_assert(*at && *at != '<', "an open tag <%s", name);
            if (*at == '"')
                at = strchr(at + 1, '"');
            cr_assert(at);
        }
        if (closes) {
            cr_assert(depth > 0 && strcmp(stack[depth - 1], name) == 0, "</%s> closes <%s>", name,
                      depth ? stack[depth - 1] : "nothing");
            depth--;
        } else if (at[-1] != '/' && !is_void(name)) {
            cr_assert_lt(depth, 64);
            snprintf(stack[depth++], sizeof stack[0], "%s", name);
            if (strcmp(name, "style") == 0)
                at = strstr(at, "</style>") - 1;
        }
    }
    cr_assert_eq(depth, 0, "<%s> stays open", depth ? stack[depth - 1] : "");
    cr_assert_null(strstr(html, "http://"), "%.80s", strstr(html, "http://"));
    cr_assert_null(strstr(html, "https://"));
    cr_assert_null(strstr(html, "<script"));
    cr_assert_null(strstr(html, "url("));
    cr_assert_null(strstr(html, "@import"));
}

static void put_metrics(void)
{
    put("metrics.jsonl",
        "{\"step\": 1, \"loss\": 8, \"lr\": 0, \"step_seconds\": 0.2, \"forward_seconds\": 0.1}\n"
        "{\"step\": 2, \"loss\": 7, \"lr\": 1e-3, \"step_seconds\": 0.2, \"forward_seconds\": 0.1, "
        "\"eval_loss\": 7.5}\n"
        "{\"step\": 3, \"loss\": null, \"lr\": 2e-3, \"step_seconds\": 0.2, \"forward_seconds\": "
        "0.1}\n");
}

Test(report, an_empty_folder_makes_a_page_too)
{
    expect_well_formed(make_page());
    cr_expect_not_null(strstr(page.data, "waiting"));
    cr_expect_not_null(strstr(page.data, "prefers-color-scheme:dark"));
}

Test(report, data_of_the_run_are_shown)
{
    put_metrics();
    put("run.json",
        "{\"max_steps\": 10, \"model\": {\"family\": \"llama\", \"parameters\": 9990000}, "
        "\"precision\": {\"used\": \"bf16\"}, \"plan\": {\"memory\": {\"parameters\": 750, "
        "\"gradients\": 250}, \"memory_bytes\": 1000, \"flops_per_step\": 1.45e10}, \"config\": "
        "{\"optimizer\": {\"name\": \"adamw\", \"lr\": 0.001}}, \"lineage\": [{\"time\": "
        "\"2026-01-31T12:00:00Z\", \"step\": 0, \"end\": \"paused\", \"end_step\": 2, "
        "\"end_time\": "
        "\"2026-01-31T12:01:30Z\"}, {\"time\": \"2026-02-01T12:00:00Z\", \"step\": 2, \"from\": "
        "\"/x/step-00000002\", \"end\": \"failed\", \"message\": \"disk full\", \"changed\": "
        "{\"optimizer.lr\": {\"from\": 0.001, \"to\": 0.002}}}]}");
    put("samples.jsonl", "{\"step\": 2, \"prompt\": \"Once \", \"text\": \"upon a time\"}\n");
    put("events.jsonl", "{\"time\": \"2026-02-01T12:00:00Z\", \"level\": \"warning\", \"text\": "
                        "\"a checkpoint is damaged\"}\n");
    const char *html = make_page();
    static const char *const texts[] = {"9.990M parameters",
                                        "14.50 GFLOP",
                                        "width:75.00%",
                                        "2026-01-31 12:00 UTC",
                                        "paused at step 2",
                                        "01:30",
                                        "step-00000002",
                                        "disk full",
                                        "<code>optimizer.lr</code> 0.001 \xE2\x86\x92 0.002",
                                        "upon a time",
                                        "a checkpoint is damaged",
                                        "adamw",
                                        ">Loss<",
                                        ">Learning rate<",
                                        "validation 7.500",
                                        "<section id=\"configuration\">",
                                        "forward"};
    expect_well_formed(html);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        cr_expect_not_null(strstr(html, texts[i]), "no '%s'", texts[i]);
    cr_expect_null(strstr(html, ">Gradient norm<"), "a curve that is not there");
}

/* Texts that look like markup, in every place that can have text. */
/* Sixty starts: ten are shown, fifty are folded. Each cell names its column for pages that are too
 * narrow for a table, and wide plots also have a narrow form. */
/* The micro-batches of the slowest rank take 0.5 s, those of the fastest 0.4 s; on one rank the
 * page says nothing of ranks. */
Test(report, ranks_are_shown)
{
    put("metrics.jsonl",
        "{\"step\": 1, \"loss\": 5.0, \"ranks_bytes_sent\": 3000000, \"ranks_slowest\": 1, "
        "\"ranks_slowest_seconds\": 0.5, \"ranks_fastest_seconds\": 0.4}\n"
        "{\"step\": 2, \"loss\": 4.0, \"ranks_bytes_sent\": 3000000, \"ranks_slowest\": 0, "
        "\"ranks_slowest_seconds\": 0.5, \"ranks_fastest_seconds\": 0.4}\n");
    expect_well_formed(make_page());
    static const char *const texts[] = {">Spread of ranks<",
                                        ">20%<",
                                        "of 500 ms of the slowest",
                                        ">Micro-batches of a step, by rank<",
                                        "fastest",
                                        ">Bytes that rank 0 sends<"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        cr_expect_not_null(strstr(page.data, texts[i]), "no '%s'", texts[i]);
    put("metrics.jsonl", "{\"step\": 1, \"loss\": 5.0}\n");
    make_page();
    cr_expect_null(strstr(page.data, "anks<"), "%s", page.data);
    cr_expect_null(strstr(page.data, "by rank"), "%s", page.data);
}

Test(report, many_starts_are_folded_and_narrow_pages_are_served)
{
    lathe_buffer record = LATHE_BUFFER_INIT;
    put_metrics();
    lathe_buffer_puts(&record, "{\"lineage\": [");
    for (int i = 0; i < 60; i++)
        lathe_buffer_printf(&record,
                            "%s{\"time\": \"2026-11-22T18:00:00Z\", \"host\": \"host-%d\"}",
                            i ? ", " : "", i);
    lathe_buffer_puts(&record, "]}");
    put("run.json", record.data);
    lathe_buffer_fini(&record);
    const char *html = make_page();
    expect_well_formed(html);
    const char *folded = strstr(html, "<summary>50 earlier starts</summary>");
    cr_assert_not_null(folded);
    const char *end = strstr(folded, "</details>");
    cr_assert_not_null(end);
    cr_expect_lt(strstr(html, "host-49<"), end);
    cr_expect_gt(strstr(html, "host-50<"), end);
    cr_expect_not_null(strstr(html, "<td data-label=\"Host\">host-59</td>"));
    cr_expect_not_null(
        strstr(html, "<div class=\"small\"><svg class=\"plot\" viewBox=\"0 0 380 230\""));
    cr_expect_not_null(strstr(html, "@media(max-width:760px)"));
}

Test(report, hostile_texts_stay_texts)
{
    put("metrics.jsonl", "{\"step\": 1, \"loss\": 1, \"</text><script>\": 2}\n<script>\n");
    put("run.json",
        "{\"max_steps\": 10, \"attention\": \"<script>a\", \"model\": {\"family\": "
        "\"<script>f\", \"parameters\": \"<script>\"}, \"precision\": {\"used\": \"<script>p\"}, "
        "\"machine\": {\"model\": \"<script>m\", \"<script>key\": \"<script>v\"}, \"plan\": "
        "{\"memory\": {\"<script>cat\": 5}, \"memory_bytes\": 5}, \"plugins\": [{\"kind\": "
        "\"<script>k\", \"name\": \"<script>n\", \"version\": \"<script>v\", \"sha256\": "
        "\"<script>h\"}], \"config\": {\"<script>section\": {\"<script>key\": "
        "[\"<script>list\"]}}, "
        "\"lineage\": [{\"time\": \"<script>t\", \"from\": \"<script>f\", \"host\": \"<script>h\", "
        "\"lathe\": \"<script>l\", \"end\": \"failed\", \"message\": \"<script>m\", \"changed\": "
        "{\"<script>c\": {\"from\": \"<script>o\", \"to\": {\"<script>\": 1}}}}]}");
    put("samples.jsonl", "{\"step\": 1, \"prompt\": \"<script>\\\"'\", \"text\": "
                         "\"</pre><script>alert(1)</script>&amp;\\u001b[31m\"}\n<script>\n");
    put("events.jsonl", "{\"time\": \"<script>\", \"level\": \"error\", \"text\": "
                        "\"<img src=x onerror=alert(1)>\"}\n");
    OK(lathe_dir_create(in_folder("step-00000001")));
    put("step-00000001/manifest.json", "<script>");
    const char *html = make_page();
    expect_well_formed(html);
    cr_expect_null(strstr(html, "<img"));
    cr_expect_null(strchr(html, '\x1b'));
    cr_expect_not_null(strstr(html, "&lt;script&gt;list"));
    cr_expect_not_null(strstr(html, "&lt;/pre&gt;&lt;script&gt;alert(1)"));
    cr_expect_not_null(strstr(html, "&amp;amp;"));
}

Test(report, bytes_that_are_no_utf8_do_not_reach_the_page)
{
    lathe_buffer out = LATHE_BUFFER_INIT;
    lathe_html_text(&out, "a\xff\xc3(\xe2\x82\xed\xa0\x80\x01 \xe2\x82\xac");
    cr_expect_str_eq(out.data, "a\xEF\xBF\xBD\xEF\xBF\xBD(\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
                               "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD \xe2\x82\xac");
    lathe_buffer_fini(&out);
}

Test(report, checkpoints_are_verified)
{
    OK(lathe_dir_create(in_folder("step-00000001")));
    put("step-00000001/weights", "12345678");
    char path[256];
    snprintf(path, sizeof path, "%s/step-00000001", dir);
    OK(lathe_manifest_write(path, "{\"read_back\": true}"));
    cr_expect_not_null(strstr(make_page(), "verified</span><span class=\"quiet\">, read back"));
    put("step-00000001/weights", "12345679");
    cr_expect_not_null(strstr(make_page(), "weights: its content changed"));
    cr_expect_null(strstr(page.data, ">verified"));
    expect_well_formed(page.data);
}

/* The first weights are those of a folder that is gone; its name is no markup. */
Test(report, the_chain_back_to_the_first_weights_is_drawn)
{
    char meta[900];
    OK(lathe_dir_create(in_folder("base/step-00000002")));
    put("base/step-00000002/config.json", "{}");
    OK(lathe_dir_create(in_folder("step-00000004")));
    OK(lathe_manifest_write(in_folder("base/step-00000002"),
                            "{\"step\": 2, \"config\": {\"stage\": {\"name\": \"pretrain\"}}, "
                            "\"parents\": [{\"roles\": [\"model\"], \"path\": \"/no/<b>such\", "
                            "\"files\": {\"config.json\": {\"bytes\": 1, \"sha256\": \"00\"}}}]}"));
    put("step-00000004/config.json", "{}");
    snprintf(meta, sizeof meta,
             "{\"step\": 4, \"config\": {\"stage\": {\"name\": \"dpo\"}, \"adapter\": {\"name\": "
             "\"lora\"}}, \"parents\": [{\"roles\": [\"model\", \"reference\"], \"path\": "
             "\"%s/base/step-00000002\"}]}",
             dir);
    OK(lathe_manifest_write(in_folder("step-00000004"), meta));
    put("latest", "step-00000004\n");
    const char *html = make_page();
    expect_well_formed(html);
    const char *const in_order[] = {"<section id=\"lineage\">",
                                    "stage dpo, adapter lora",
                                    "model, reference of ",
                                    "base/step-00000002",
                                    "stage pretrain",
                                    "no/&lt;b&gt;such",
                                    "not there"};
    const char *at = html;
    for (size_t i = 0; i < sizeof in_order / sizeof in_order[0]; i++) {
        at = strstr(at, in_order[i]);
        cr_assert_not_null(at, "%s", in_order[i]);
    }
}

Test(report, a_long_run_makes_a_small_page)
{
    FILE *f = fopen(in_folder("metrics.jsonl"), "w");
    for (int i = 1; i <= 60000; i++)
        fprintf(
            f,
            "{\"step\": %d, \"loss\": %d.%d, \"grad_norm\": 1.%d, \"lr\": 0.001, \"tokens_per_s\": "
            "%d, \"step_seconds\": 0.%d, \"forward_seconds\": 0.01}\n",
            i, 1 + i % 7, i % 97, i % 31, 1000 + i % 113, 1 + i % 9);
    fclose(f);
    f = fopen(in_folder("samples.jsonl"), "w");
    for (int i = 1; i <= 1000; i++)
        fprintf(f, "{\"step\": %d, \"prompt\": \"p\", \"text\": \"sample %d.\"}\n", i, i);
    fclose(f);
    const char *html = make_page();
    expect_well_formed(html);
    cr_expect_lt(page.len, 200000, "%lld bytes", (long long)page.len);
    cr_expect_not_null(strstr(html, "sample 1000."));
    cr_expect_not_null(strstr(html, "sample 977."));
    cr_expect_null(strstr(html, "sample 976."));
    cr_expect_not_null(strstr(html, "The last 24 of 1000"));
}

Test(jsonl_tail, keeps_the_last_in_order_and_counts_the_rest)
{
    char path[] = "/tmp/lathe_tail_XXXXXX";
    const int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    lathe_jsonl_tail tail;
    for (int i = 0; i < 25; i++)
        fprintf(f, "{\"i\": %d}\n%s", i, i % 10 == 0 ? "bad\n[1]\n" : "");
    fputs("{\"i\": 99}", f); /* incomplete */
    fclose(f);
    OK(lathe_jsonl_tail_read(path, 7, &tail));
    cr_assert_eq(tail.n, 7);
    cr_expect_eq(tail.n_all, 25);
    cr_expect_eq(tail.n_bad, 6);
    for (int i = 0; i < 7; i++)
        cr_expect_eq(json_integer_value(json_object_get(tail.items[i], "i")), 18 + i);
    lathe_jsonl_tail_fini(&tail);
    OK(lathe_jsonl_tail_read("/nowhere/at/all", 7, &tail));
    cr_expect_eq(tail.n, 0);
    lathe_jsonl_tail_fini(&tail);
    remove(path);
}

Test(svg, a_line_runs_from_corner_to_corner)
{
    const double x[] = {0, 10}, y[] = {0, 100};
    const lathe_curve curve = {.x = x, .y = y, .n = 2, .last = 100.0};
    const lathe_plot plot = {.title = "<up>", .curves = &curve, .n_curves = 1};
    lathe_buffer out = LATHE_BUFFER_INIT;
    lathe_svg_file(&out, &plot, 400, 200);
    cr_expect_not_null(strstr(out.data, "&lt;up&gt;"));
    /* left: three digits of 7.4 and 12; right: 400 - 14; top 36; bottom 200 - 26 */
    cr_expect_not_null(strstr(out.data, "d=\"M34.2,174.0 386.0,36.0 \""), "%s", out.data);
    lathe_buffer_fini(&out);
}

Test(svg, gaps_and_wild_values_make_no_numbers_that_readers_refuse)
{
    const double x[] = {0, 1, 2, 3, 4}, y[] = {1, (double)NAN, 3, 1e300, (double)INFINITY},
                 lo[] = {0, (double)NAN, 2, -1e300, 0}, hi[] = {2, 1, 4, 1e300, 1};
    const lathe_curve curve = {.x = x, .y = y, .lo = lo, .hi = hi, .n = 5, .last = 1.0};
    const lathe_plot plot = {.title = "t", .curves = &curve, .n_curves = 1};
    lathe_buffer out = LATHE_BUFFER_INIT;
    lathe_svg_plot(&out, &plot, 400, 200);
    cr_expect_null(strstr(out.data, "nan"));
    cr_expect_null(strstr(out.data, "inf"));
    cr_expect_lt(out.len, 4000);
    lathe_buffer_fini(&out);
}
