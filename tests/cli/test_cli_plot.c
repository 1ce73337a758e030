/* lathe plot schedule: its drawing, its numbers compared with formulas, and its refusals. */
#include "cli_case.h"

#include <jansson.h>
#include <math.h>

#define PLOT LATHE_TEST_BUILD "/bin/lathe plot schedule "

static void setup(void)
{
    make_folder();
    put("run.toml", "[optimizer]\nname = \"adamw\"\nlr = 2e-3\n"
                    "[scheduler]\nname = \"linear\"\nwarmup_steps = 4\n"
                    "[train]\nmax_steps = 12\n");
    put("endless.toml", "[scheduler]\nname = \"constant\"\n");
}

TestSuite(cli_plot, .init = setup, .fini = remove_folder);

/* The array that `command` prints. */
static json_t *points_of(const char *command)
{
    cr_assert_eq(run(command), 0, "%s:\n%s", command, output);
    json_t *all = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
    cr_assert(json_is_array(all), "%s: %s", command, output);
    return all;
}

static long long step_of(const json_t *all, size_t k)
{
    const json_t *step = json_object_get(json_array_get(all, k), "step");
    cr_assert(json_is_integer(step));
    return json_integer_value(step);
}

static double lr_of(const json_t *all, size_t k)
{
    const json_t *lr = json_object_get(json_array_get(all, k), "lr");
    cr_assert(json_is_real(lr));
    return json_real_value(lr);
}

Test(cli_plot, numbers_are_those_of_the_formula)
{
    /* 2e-3 * t/4 up to step 4, then 2e-3 * (12 - t)/8 */
    static const double want[12] = {0,      0.5e-3,  1e-3, 1.5e-3,  2e-3,   1.75e-3,
                                    1.5e-3, 1.25e-3, 1e-3, 0.75e-3, 0.5e-3, 0.25e-3};
    json_t *all = points_of(PLOT "run.toml --json");
    cr_assert_eq(json_array_size(all), 12);
    for (size_t k = 0; k < 12; k++) {
        cr_expect_eq(step_of(all, k), (long long)k + 1); /* as train counts */
        cr_expect_float_eq(lr_of(all, k), want[k], 1e-18, "step %zu: %.17g", k, lr_of(all, k));
    }
    json_decref(all);
}

Test(cli_plot, overrides_and_steps_choose_another_curve)
{
    const double pi = 3.14159265358979323846;
    json_t *all = points_of(PLOT "run.toml --json --steps 104 --scheduler.name cosine "
                                 "--optimizer.lr 1.0");
    cr_assert_eq(json_array_size(all), 104);
    for (size_t t = 4; t < 104; t++) /* 16 roundings of numbers up to 1 */
        cr_expect_float_eq(lr_of(all, t), 0.5 * (1.0 + cos(pi * (double)(t - 4) / 100.0)), 4e-15,
                           "step %zu", t);
    json_decref(all);
}

Test(cli_plot, long_runs_are_thinned_with_both_ends)
{
    json_t *all = points_of(PLOT "run.toml --json --steps 10000");
    cr_expect_eq(json_array_size(all), 10000);
    json_decref(all);
    all = points_of(PLOT "run.toml --json --steps 1000000000000");
    cr_assert_eq(json_array_size(all), 10000);
    cr_expect_eq(step_of(all, 0), 1);
    cr_expect_eq(step_of(all, 9999), 1000000000000);
    for (size_t k = 1; k < 10000; k++) { /* 999999999999/9999 = 100010001 */
        const long long gap = step_of(all, k) - step_of(all, k - 1);
        cr_expect(gap == 100010001, "%lld before point %zu", gap, k);
    }
    json_decref(all);
    all = points_of(PLOT "run.toml --json --steps 1 --scheduler.warmup_steps 0");
    cr_assert_eq(json_array_size(all), 1);
    cr_expect_float_eq(lr_of(all, 0), 2e-3, 1e-18);
    json_decref(all);
}

Test(cli_plot, text_tells_keys_and_figures)
{
    static const char *const lines[] = {
        "learning rate, linear",
        "\n  warmup_steps      4\n",
        "\n  min_lr            0.0  (default)\n",
        "base rate           0.002  (optimizer.lr of adamw)\n",
        "steps               12\n",
        "first rate          0\n",
        "peak rate           0.002 at step 5\n",
        "last rate           0.00025 at step 12\n",
        "least rate          0 at step 1\n",
        "warm-up seen        4 steps: the rate rises up to step 5\n",
    };
    cr_assert_eq(run(PLOT "run.toml"), 0);
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++)
        cr_expect_not_null(strstr(output, lines[k]), "no '%s' in\n%s", lines[k], output);
    expect(PLOT "run.toml --scheduler.warmup_steps 0", 0, "warm-up seen        none\n");
    expect(PLOT "run.toml --steps 1000000000", 0, "peak rate           0.002 at step 5\n");
    cr_expect_not_null(strstr(output, "warm-up seen        4 steps"), "%s", output);
    cr_expect_not_null(strstr(output, "of 10000000 evenly spaced steps"), "%s", output);
}

Test(cli_plot, groups_with_their_own_rate_are_reported)
{
    put("groups.toml", "[optimizer]\nlr = 2e-3\n"
                       "[[optimizer.groups]]\nname = \"emb\"\nparams = [\"*embed*\"]\nlr = 1e-4\n"
                       "[[optimizer.groups]]\nparams = [\"*norm*\"]\nweight_decay = 0.0\n"
                       "[[optimizer.groups]]\nparams = [\"*\"]\nlr = 4e-3\n"
                       "[train]\nmax_steps = 12\n");
    expect(PLOT "groups.toml", 0,
           "group emb           base rate 0.0001: the same curve, times 0.05\n"
           "group 3             base rate 0.004: the same curve, times 2\n");
    expect(PLOT "groups.toml --optimizer.lr 0.0", 0, "peak rate           0 at step 1\n");
}

Test(cli_plot, piped_output_has_no_escape_codes)
{
    cr_assert_eq(run("TERM=xterm LC_ALL=C.UTF-8 " PLOT "run.toml"), 0);
    cr_expect_null(strchr(output, '\x1b'));
    cr_expect_not_null(strstr(output, "\xE2\xA0"), "no braille in\n%s", output);
    cr_assert_eq(run("TERM=xterm LC_ALL=C " PLOT "run.toml"), 0);
    for (const char *at = output; *at; at++)
        cr_expect((*at >= ' ' && *at <= '~') || *at == '\n', "byte %d", *at);
    cr_expect_not_null(strchr(output, '*'), "no curve in\n%s", output);
}

/* The longest line of `output` in UTF-8 characters, without colour codes. */
static int widest_line(void)
{
    int widest = 0, width = 0;
    for (const char *c = output; *c; c++) {
        if (*c == '\n') {
            widest = width > widest ? width : widest;
            width = 0;
        } else {
            width += ((unsigned char)*c & 0xc0) != 0x80;
        }
    }
    return widest;
}

Test(cli_plot, forty_columns_hold_curve_and_summary)
{
    static const char *const names[] = {"cosine", "cosine_with_restarts", "constant_with_warmup",
                                        "reduce_on_plateau", "wsd"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char command[256];
        (void)snprintf(command, sizeof command,
                       "COLUMNS=40 LC_ALL=C.UTF-8 " PLOT "run.toml --scheduler.name %s", names[i]);
        cr_assert_eq(run(command), 0, "%s", output);
        cr_expect_leq(widest_line(), 40, "%s:\n%s", names[i], output);
        cr_expect_not_null(strstr(output, names[i]), "%s:\n%s", names[i], output);
        cr_expect_not_null(strstr(output, "peak 0.002"), "%s:\n%s", names[i], output);
    }
}

Test(cli_plot, a_schedule_that_observes_says_so)
{
    expect(PLOT "endless.toml --steps 30 --scheduler.name reduce_on_plateau", 0,
           "looks at a metric");
    json_t *all = points_of(PLOT "endless.toml --steps 30 --scheduler.name reduce_on_plateau "
                                 "--optimizer.lr 3.0 --json");
    for (size_t k = 0; k < 30; k++)
        cr_expect_float_eq(lr_of(all, k), 3.0, 0.0);
    json_decref(all);
    cr_assert_eq(run(PLOT "run.toml"), 0);
    cr_expect_null(strstr(output, "looks at a metric"));
}

Test(cli_plot, svg_goes_to_a_file_or_to_stdout)
{
    static char file[sizeof output];
    expect(PLOT "run.toml -o lr.svg --size 400x200", 0, "written             lr.svg\n");
    cr_assert_eq(run("cat lr.svg"), 0);
    memcpy(file, output, sizeof file);
    cr_expect_eq(strncmp(file, "<svg xmlns=\"http://www.w3.org/2000/svg\"", 39), 0);
    cr_expect_not_null(strstr(file, "width=\"400\" height=\"200\""));
    cr_expect_not_null(strstr(file, "learning rate, linear"));
    cr_expect_not_null(strstr(file, "</svg>"));
    cr_assert_eq(run(PLOT "run.toml --output - --size 400x200"), 0);
    cr_expect_str_eq(output, file);
    expect(PLOT "run.toml -o no/such/folder/lr.svg 2>&1", 2, "no/such/folder");
}

Test(cli_plot, refuses_what_it_cannot_draw)
{
    expect(PLOT "endless.toml 2>&1", 2, "give --steps N");
    expect(PLOT "endless.toml --json 2>&1", 2, "train.max_steps is unset");
    expect(PLOT "run.toml --scheduler.name cosin 2>&1", 2, "did you mean 'cosine'?");
    expect(PLOT "run.toml --scheduler.warmup_steps 500 --scheduler.total_steps 12 2>&1", 2,
           "warmup_steps is 500, the schedule has 12 steps");
    expect(PLOT "run.toml --scheduler.warmup_stps 2 2>&1", 2, "did you mean 'warmup_steps'?");
    expect(PLOT "run.toml --optimizer.lr -1 2>&1", 2, "optimizer.lr");
    expect(PLOT "none.toml 2>&1", 2, "none.toml");
    expect(PLOT "run.toml --steps 0 2>&1", 2, "--steps is '0'");
    expect(PLOT "run.toml -o lr.png 2>&1", 2, "ends in .svg");
    expect(PLOT "run.toml -o - --json 2>&1", 2, "both want stdout");
    expect(PLOT "run.toml --size 400 -o lr.svg 2>&1", 2, "--size is '400'");
    expect(PLOT "run.toml --size 400x200 2>&1", 2, "-o FILE.svg is missing");
    expect(PLOT "2>&1", 2, "expected plot schedule RUN.toml");
    expect(LATHE_TEST_BUILD "/bin/lathe plot 2>&1", 2, "lathe plot schedule RUN.toml");
    cr_expect_neq(access("lr.svg", F_OK), 0);
}
