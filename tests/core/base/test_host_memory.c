/* Memory left to the process, computed from synthetic /proc and /sys trees. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fs.h"
#include "base/host_memory.h"

#define MIB ((int64_t)1 << 20)

static char root[64];
static lathe_arena arena;

static void setup(void)
{
    strcpy(root, "/tmp/lathe-memory-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void teardown(void)
{
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    lathe_arena_fini(&arena);
}

TestSuite(host_memory, .init = setup, .fini = teardown);

static void put(const char *path, const char *text)
{
    char *file = lathe_arena_printf(&arena, "%s/%s", root, path);
    char *dir = lathe_arena_strdup(&arena, file);
    *strrchr(dir, '/') = '\0';
    cr_assert_eq(lathe_dir_create(dir), LATHE_OK);
    cr_assert_eq(lathe_file_write_atomic(file, text, (int64_t)strlen(text)), LATHE_OK);
}

static void expect(int64_t available, const char *source)
{
    lathe_host_memory memory;
    lathe_host_memory_read(root, &memory);
    cr_expect_eq(memory.available, available, "%lld", (long long)memory.available);
    cr_expect_str_eq(memory.source, source);
}

#define MEMINFO "MemTotal:       1000000 kB\nMemFree: 1 kB\nMemAvailable:    409600 kB\n"

Test(host_memory, nothing_known_limits_nothing)
{
    expect(INT64_MAX, "");
    put("proc/meminfo", "MemAvailable: many\n");
    put("proc/self/cgroup", "garbage\n1:memory\n0::\n:::\n");
    expect(INT64_MAX, "");
}

Test(host_memory, without_groups_the_machine_decides)
{
    put("proc/meminfo", MEMINFO);
    expect(400 * MIB, "MemAvailable of /proc/meminfo");
}

Test(host_memory, version_2_the_tightest_group_above_decides)
{
    put("proc/meminfo", MEMINFO);
    put("proc/self/cgroup", "0::/jobs/one\n");
    put("sys/fs/cgroup/jobs/one/memory.max", "max\n");
    put("sys/fs/cgroup/jobs/one/memory.current", "1048576\n");
    put("sys/fs/cgroup/jobs/memory.max", "209715200\n"); /* 200 MiB, 150 held, 50 of them cache */
    put("sys/fs/cgroup/jobs/memory.current", "157286400\n");
    put("sys/fs/cgroup/jobs/memory.stat", "anon 1\nactive_file 7\ninactive_file 52428800\n");
    expect(100 * MIB, "/sys/fs/cgroup/jobs/memory.max");
    put("sys/fs/cgroup/jobs/one/memory.max", "10485760\n");
    expect(9 * MIB, "/sys/fs/cgroup/jobs/one/memory.max");
    put("sys/fs/cgroup/jobs/one/memory.current", "99999999999\n"); /* above its limit */
    expect(0, "/sys/fs/cgroup/jobs/one/memory.max");
}

Test(host_memory, version_1_the_memory_controller_decides)
{
    put("proc/meminfo", MEMINFO);
    put("proc/self/cgroup", "12:cpu,cpuacct:/x\n5:memory:/docker/abc\n0::/\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
    put("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "104857600\n");
    put("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "52428800\n");
    put("sys/fs/cgroup/memory/docker/abc/memory.stat", "inactive_file 1\ntotal_inactive_file 0\n");
    expect(50 * MIB, "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes");
}

Test(host_memory, a_container_sees_its_group_as_the_top)
{
    put("proc/meminfo", MEMINFO);
    put("proc/self/cgroup", "0::/../../elsewhere\n");
    put("sys/fs/cgroup/memory.max", "52428800\n");
    put("sys/fs/cgroup/memory.current", "0\n");
    expect(50 * MIB, "/sys/fs/cgroup/memory.max");
}

Test(host_memory, this_machine_has_some)
{
    lathe_host_memory memory;
    lathe_host_memory_read("", &memory);
    cr_assert(memory.available > 0);
    cr_assert_neq(memory.source[0], '\0', "Linux has /proc/meminfo");
}
