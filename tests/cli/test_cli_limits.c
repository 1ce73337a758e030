/* Limits of the process: ulimit -v and -d count as the machine's memory, and a run that needs more
 * is refused before it allocates anything. */
#include <sys/resource.h>

#include "base/host_memory.h"
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

TestSuite(limits, .init = make_folder, .fini = remove_folder);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SKIP_UNDER_SANITIZERS() cr_skip("a sanitizer reserves terabytes of address space")
#else
#define SKIP_UNDER_SANITIZERS() (void)0
#endif

static void write_run(void)
{
    put("run.toml", "[model]\nmodel_type = \"llama\"\nhidden_size = 32\nintermediate_size = 64\n"
                    "num_hidden_layers = 1\nnum_attention_heads = 2\n"
                    "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                    "[train]\nmax_steps = 2\nthreads = 2\n");
    put_times("text.txt", "the wheel turns and a thread is cut\n", 50);
}

/* Runs every command under limits from too little for a process up to enough for the run. */
static void sweep(const char *flag, const char *name)
{
    static const char *const rest[] = {
        "train run.toml --checkpoint.dir out-$v", "plan run.toml", "validate run.toml",
        "generate run.toml --prompt the --checkpoint.dir out-400000"};
    static const int kib[] = {400000, 30000, 50000, 70000, 75000, 90000, 120000, 160000, 200000};
    char command[512];
    int n_refused = 0;
    for (size_t k = 0; k < sizeof kib / sizeof kib[0]; k++)
        for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
            snprintf(command, sizeof command,
                     "v=%d; ulimit -c 0; ulimit -%s $v; exec " LATHE " %s 2>&1", kib[k], flag,
                     rest[i]);
            const int code = run(command); /* asserts that no signal ended it */
            cr_expect(code == (kib[k] == 400000 ? 0 : code) && (code == 0 || code == 2),
                      "%s: exit %d\n%s", command, code, output);
            cr_expect(code == 0 || strstr(output, name), "%s:\n%s", command, output);
            n_refused += code != 0;
        }
    cr_expect_gt(n_refused, 8);
}

Test(limits, too_little_address_space_is_refused_and_never_a_crash)
{
    SKIP_UNDER_SANITIZERS();
    write_run();
    sweep("v", "RLIMIT_AS, ulimit -v");
}

Test(limits, too_little_data_is_refused_and_never_a_crash)
{
    SKIP_UNDER_SANITIZERS();
    write_run();
    sweep("d", "RLIMIT_DATA, ulimit -d");
}

/* Runs in a child: lowers a limit to the present use plus `more`, and compares the reported free
 * memory. Returns 0 if it is right. */
static int left_of(int resource, int64_t more)
{
    lathe_host_memory before, after;
    lathe_host_limits_read("", &before);
    if (before.available != INT64_MAX)
        return 2;
    struct rlimit limit = {(rlim_t)1 << 46, (rlim_t)1 << 46};
    if (setrlimit((__rlimit_resource_t)resource, &limit) != 0)
        return 3;
    lathe_host_limits_read("", &before);
    limit.rlim_cur = limit.rlim_cur - (rlim_t)before.available + (rlim_t)more;
    if (setrlimit((__rlimit_resource_t)resource, &limit) != 0)
        return 4;
    lathe_host_limits_read("", &after);
    const int64_t off = after.available - more;
    return off <= 1 << 20 && off >= -(1 << 20) &&
                   after.is_address_space == (resource == RLIMIT_AS) &&
                   strstr(after.source, resource == RLIMIT_AS ? "RLIMIT_AS" : "RLIMIT_DATA")
               ? 0
               : 5;
}

Test(limits, of_the_process_are_reduced_by_its_use)
{
    SKIP_UNDER_SANITIZERS();
    static const int resources[] = {RLIMIT_AS, RLIMIT_DATA};
    for (int i = 0; i < 2; i++) {
        int status = 0;
        const pid_t child = fork();
        cr_assert_geq(child, 0);
        if (child == 0)
            _exit(left_of(resources[i], (int64_t)300 << 20));
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "resource %d: %d", resources[i],
                  WEXITSTATUS(status));
    }
}
