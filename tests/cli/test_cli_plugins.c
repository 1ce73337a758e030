/* Bad plugin files in the search path: `ls`, `doctor` and `train` survive each of them and print
 * one line. */
#include <elf.h>
#include <sys/stat.h>

#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define WILD LATHE_TEST_BUILD "/tests/wild/optimizer/"

/* A folder `p` with a good plugin, "mild", and those that a test adds; a separate cache. */
static void setup(void)
{
    char text[256];
    make_folder();
    cr_assert_eq(chmod(folder, 0755), 0);
    cr_assert_eq(run("mkdir -p p/optimizer p/device && cp " WILD "mild.so p/optimizer/"), 0);
    (void)snprintf(text, sizeof text, "%s/cache", folder);
    cr_assert_eq(setenv("XDG_CACHE_HOME", text, 1), 0);
    (void)snprintf(text, sizeof text, "%s/p", folder);
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", text, 1), 0);
    put_times("text.txt", "a line that a small model can learn\n", 100);
    put("run.toml", "[model]\nmodel_type = \"llama\"\nhidden_size = 16\nintermediate_size = 32\n"
                    "num_hidden_layers = 1\nnum_attention_heads = 2\n"
                    "[data]\ndatasets = [{ path = \"text.txt\", type = \"text\" }]\nseq_len = 16\n"
                    "[optimizer]\nname = \"mild\"\n[train]\nmax_steps = 2\nmicro_batch_size = 1\n"
                    "[checkpoint]\ndir = \"out\"\n");
}

TestSuite(bad_plugin, .init = setup, .fini = remove_folder);

static int count(const char *text)
{
    int n = 0;
    for (const char *at = output; (at = strstr(at, text)) != NULL; at += strlen(text))
        n++;
    return n;
}

/* Checks that the three commands survive p/optimizer/<name>.so; the first two print `part` in one
 * line. */
static void survived(const char *name, const char *part)
{
    char file[64];
    (void)snprintf(file, sizeof file, "p/optimizer/%s.so: ", name);
    expect(LATHE " ls 2>&1", 0, "optimizer/mild");
    cr_expect_eq(count(file), 1, "%s: %d lines in\n%s", name, count(file), output);
    cr_expect_not_null(strstr(output, part), "%s: no '%s' in\n%s", name, part, output);
    cr_expect_not_null(strstr(output, "optimizer/adamw"), "%s", output);
    expect(LATHE " doctor 2>&1", 0, part);
    cr_expect_eq(count(file), 1, "%s: %d lines in\n%s", name, count(file), output);
    expect(LATHE " train run.toml 2>&1", 0, "step");
    cr_assert_eq(run("rm -rf out p/optimizer/*; cp " WILD "mild.so p/optimizer/"), 0);
}

static void add(const char *name)
{
    char command[512];
    (void)snprintf(command, sizeof command, "cp " WILD "%s.so p/optimizer/", name);
    cr_assert_eq(run(command), 0);
}

/* Copies the good plugin to p/optimizer/<name>.so with the bytes at an offset replaced. */
static void put_patched(const char *name, long offset, const void *bytes, size_t n)
{
    char path[512];
    (void)snprintf(path, sizeof path, "cp " WILD "mild.so p/optimizer/%s.so", name);
    cr_assert_eq(run(path), 0);
    (void)snprintf(path, sizeof path, "p/optimizer/%s.so", name);
    FILE *file = fopen(path, "r+b");
    cr_assert_not_null(file);
    cr_assert_eq(fseek(file, offset, SEEK_SET), 0);
    cr_assert_eq(fwrite(bytes, 1, n, file), n);
    cr_assert_eq(fclose(file), 0);
}

Test(bad_plugin, a_truncated_library_is_one_line)
{
    cr_assert_eq(run("head -c 9000 " WILD "mild.so > p/optimizer/cut.so"), 0);
    survived("cut", "truncated");
}

Test(bad_plugin, a_text_and_an_empty_file_are_one_line)
{
    cr_assert_eq(run("echo text > p/optimizer/text.so"), 0);
    survived("text", "not an ELF file");
    cr_assert_eq(run(": > p/optimizer/empty.so"), 0);
    survived("empty", "the file is empty");
}

Test(bad_plugin, another_machine_and_a_32_bit_header_are_one_line)
{
    const unsigned char class32 = ELFCLASS32;
    const Elf64_Half machine = EM_S390;
    put_patched("narrow", EI_CLASS, &class32, 1);
    survived("narrow", "32-bit");
    put_patched("foreign", (long)offsetof(Elf64_Ehdr, e_machine), &machine, sizeof machine);
    survived("foreign", "another processor");
}

Test(bad_plugin, a_fifo_is_one_line)
{
    cr_assert_eq(mkfifo("p/optimizer/fifo.so", 0600), 0);
    survived("fifo", "not a regular file");
}

Test(bad_plugin, a_constructor_that_exits_is_one_line)
{
    add("exits");
    survived("exits", "ends the process when it is loaded");
    add("exits_unseen");
    survived("exits_unseen", "ends the process when it is loaded");
}

Test(bad_plugin, a_constructor_that_crashes_is_one_line)
{
    add("aborts");
    survived("aborts", "crashes (Aborted) when it is loaded");
    add("faults");
    survived("faults", "crashes (Segmentation fault) when it is loaded");
}

Test(bad_plugin, a_create_that_exits_or_crashes_is_one_line)
{
    add("create_exits");
    survived("create_exits", "ends the process when it is loaded");
    add("create_faults");
    survived("create_faults", "crashes (Segmentation fault) when it is loaded");
}

/* Tried only once: the trial takes seconds, and the second command uses its result. */
Test(bad_plugin, a_constructor_that_hangs_is_one_line)
{
    add("hangs");
    survived("hangs", "does not return within 5 s when it is loaded");
}

Test(bad_plugin, a_device_that_crashes_when_it_is_opened_is_one_line_of_doctor)
{
    cr_assert_eq(
        run("cp " LATHE_TEST_BUILD "/tests/fixtures/faulty_info/device/info_faults.so p/device/"),
        0);
    expect(LATHE " doctor 2>&1", 0, "crashes (Segmentation fault) when it is opened");
    cr_expect_not_null(strstr(output, "cpu_avx2 "), "%s", output);
    expect(LATHE " ls 2>&1", 0, "device/info_faults");
}

Test(bad_plugin, many_at_once_leave_the_good_ones)
{
    add("exits");
    add("aborts");
    add("faults");
    add("create_exits");
    cr_assert_eq(run("echo text > p/optimizer/text.so"), 0);
    expect(LATHE " ls 2>&1", 0, "optimizer/mild");
    cr_expect_eq(count("lathe: warning: "), 5, "%s", output);
    cr_expect_not_null(strstr(output, "optimizer/adamw"), "%s", output);
}

Test(bad_plugin, one_that_the_run_names_ends_it_with_its_path)
{
    add("exits");
    expect(LATHE " train run.toml --optimizer.name exits 2>&1", 2,
           "p/optimizer/exits.so: ends the process when it is loaded");
    add("faults");
    expect(LATHE " train run.toml --optimizer.name faults 2>&1", 2,
           "p/optimizer/faults.so: crashes (Segmentation fault)");
}

/* No command runs a step before the run does. */
Test(bad_plugin, exit_in_a_step_is_not_the_end_of_a_run)
{
    add("step_exits");
    expect(LATHE " train run.toml --optimizer.name step_exits 2>&1", 1,
           "p/optimizer/step_exits.so ended the process by exit()");
}

Test(bad_plugin, answers_that_break_a_rule_end_a_run_with_the_rule)
{
    add("many_slots");
    expect(LATHE " train run.toml --optimizer.name many_slots 2>&1", 2,
           "breaks a rule of its kind: slots() returns 99");
    add("nameless_slot");
    expect(LATHE " train run.toml --optimizer.name nameless_slot 2>&1", 2,
           "slot 0 has no name (NULL)");
}

Test(bad_plugin, exit_is_no_pass_of_the_check)
{
    expect(LATHE " plugin check " WILD "exits.so 2>&1", 1, "exits.so");
    expect(LATHE " plugin check " WILD "exits_unseen.so 2>&1", 1, "ended the process");
    expect(LATHE " plugin check " WILD "create_exits.so 2>&1", 1, "create_exits.so");
    expect(LATHE " plugin check " WILD "step_exits.so 2>&1", 1, "step_exits.so");
}

Test(bad_plugin, a_candidate_of_an_auto_search_only_warns)
{
    cr_assert_eq(run("cp " WILD "exits.so p/device/exits.so"), 0);
    expect(LATHE " train run.toml 2>&1", 0, "p/device/exits.so: ends the process");
}

Test(plugin_cache, a_damaged_cache_costs_a_trial_and_nothing_else)
{
    setup();
    static char first[sizeof output];
    cr_assert_eq(run(LATHE " ls 2>&1"), 0);
    memcpy(first, output, sizeof first);
    cr_assert_eq(run("test -s cache/lathe/plugins"), 0, "there is no cache");
    static const char *const damage[] = {
        "head -c 100 cache/lathe/plugins > c && mv c cache/lathe/plugins",
        "tr 0-9 x < cache/lathe/plugins > c && mv c cache/lathe/plugins",
        "head -c 3000 /dev/urandom > cache/lathe/plugins",
        "rm cache/lathe/plugins && mkdir cache/lathe/plugins",
        "rm -rf cache && echo text > cache",
    };
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        cr_assert_eq(run(damage[i]), 0);
        cr_assert_eq(run(LATHE " ls 2>&1"), 0, "%s", output);
        cr_expect_str_eq(output, first, "after: %s", damage[i]);
    }
    remove_folder();
}

/* A forged entry only skips the trial; the file is still checked, and its exit is still caught. */
Test(plugin_cache, a_forged_cache_is_never_trusted_for_code)
{
    setup();
    cr_assert_eq(run(LATHE " ls >/dev/null 2>&1; cp " WILD "exits.so p/optimizer/ && "
                           "sum=$(sha256sum p/optimizer/exits.so | cut -d' ' -f1) && "
                           "echo \"$sum 0 0 0 0 0 0 0\" >> cache/lathe/plugins"),
                 0);
    expect(LATHE " ls 2>&1", 1, "p/optimizer/exits.so ended the process by exit()");
    remove_folder();
}

Test(plugin_cache, many_writers_leave_a_cache_that_reads)
{
    setup();
    cr_assert_eq(run("for i in 1 2 3 4 5 6 7 8; do " LATHE " ls >/dev/null & done; wait"), 0);
    cr_assert_eq(run("grep -cvE '^(lathe plugins 1 .*|[0-9a-f]{64}( [0-9]+){7})$' "
                     "cache/lathe/plugins"),
                 1, "%s", output); /* grep -c: there is no other line */
    remove_folder();
}

Test(plugin_path, a_builtin_name_is_not_taken_without_an_override)
{
    setup();
    cr_assert_eq(run("cp " WILD "adamw.so p/optimizer/"), 0);
    expect(LATHE " ls 2>&1", 0, "p/optimizer/adamw.so: has the name of the built-in");
    cr_expect_not_null(strstr(output, "\noptimizer/adamw "), "%s", output);
    expect(LATHE " train run.toml --optimizer.name adamw 2>&1", 2,
           "plugins.override = [\"optimizer/adamw\"]");
    expect(LATHE " train run.toml --optimizer.name adamw "
                 "--plugins.override '[\"optimizer/adamw\"]' 2>&1",
           0, "step");
    expect("LATHE_PLUGIN_OVERRIDE=optimizer/adamw " LATHE " show optimizer/adamw 2>&1", 0,
           "a fixture");
    expect(LATHE " validate run.toml --plugins.override '[\"adamw\"]' 2>&1", 2,
           "expected KIND/NAME, such as optimizer/adamw");
    remove_folder();
}

Test(plugin_path, a_relative_folder_is_refused_aloud)
{
    setup();
    expect("LATHE_PLUGIN_PATH=p " LATHE " ls 2>&1", 0,
           "LATHE_PLUGIN_PATH: 'p' is skipped, expected an absolute folder");
    expect("LATHE_PLUGIN_PATH=p " LATHE " train run.toml 2>&1", 2,
           "not searched: LATHE_PLUGIN_PATH");
    expect("LATHE_PLUGIN_PATH=/no/such/folder " LATHE " ls 2>&1 | grep -c such/folder", 0, "1\n");
    expect("LATHE_PLUGIN_PATH=/no/such/folder " LATHE " ls 2>&1", 0,
           "lathe: warning: LATHE_PLUGIN_PATH: '/no/such/folder' is skipped, no such folder");
    remove_folder();
}

Test(plugin_path, every_folder_above_must_belong_to_the_user)
{
    setup();
    char command[512];
    (void)snprintf(command, sizeof command,
                   "unset LATHE_PLUGIN_PATH; " LATHE
                   " validate run.toml --plugins.paths '[\"%s/open/p\"]' 2>&1",
                   folder);
    cr_assert_eq(run("mkdir -p open/p && cp -r p/optimizer open/p/"), 0);
    expect(command, 0, "");
    cr_assert_eq(run("chmod 777 open"), 0);
    expect(command, 2, "open; run: chmod go-w");
    cr_assert_eq(run("chmod 1777 open"), 0);
    expect(command, 0, ""); /* sticky: nobody else can rename files in it */
    cr_assert_eq(run("chmod 755 open && chmod 646 open/p/optimizer/mild.so"), 0);
    expect(command, 2, "mild.so: anyone may write it");
    if (geteuid() == 0) {
        cr_assert_eq(run("chmod 644 open/p/optimizer/mild.so && chown 12345 open"), 0);
        expect(command, 2, "belongs to user 12345, expected you or root");
    }
    remove_folder();
}
