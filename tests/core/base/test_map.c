/* Maps of files that become shorter while they are read: reads give zeros instead of a signal, and
 * an error names the file. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/map.h"

static char dir[] = "/tmp/lathe_map_XXXXXX";
static char path[64], other[64];
static int64_t page;

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (!lathe_map_fault(info->si_addr))
        (void)signal(number, SIG_DFL);
}

static void put(const char *name, int64_t bytes)
{
    FILE *f = fopen(name, "w");
    cr_assert(f);
    for (int64_t i = 0; i < bytes; i++)
        fputc('x', f);
    cr_assert_eq(fclose(f), 0);
}

static void prepare(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    action.sa_sigaction = on_fault;
    cr_assert_eq(sigaction(SIGBUS, &action, NULL), 0);
    cr_assert(mkdtemp(dir));
    page = sysconf(_SC_PAGESIZE);
    snprintf(path, sizeof path, "%s/file", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    put(path, 4 * page);
    put(other, 4 * page);
}

static void clean(void)
{
    cr_expect_eq(lathe_dir_remove(dir), LATHE_OK);
}

TestSuite(map, .init = prepare, .fini = clean);

static void expect_named(lathe_status status)
{
    cr_expect_eq(status, LATHE_E_IO);
    cr_expect_not_null(strstr(lathe_error_message(), path), "%s", lathe_error_message());
    cr_expect_not_null(strstr(lathe_error_message(), "became shorter"), "%s",
                       lathe_error_message());
}

Test(map, a_file_cut_while_it_is_read_is_an_error_that_names_it)
{
    lathe_map map, whole;
    cr_assert_eq(lathe_map_open(path, &map), LATHE_OK);
    cr_assert_eq(lathe_map_open(other, &whole), LATHE_OK);
    cr_expect_eq(lathe_map_check(&map), LATHE_OK);
    cr_assert_eq(truncate(path, page), 0);
    cr_expect_eq(map.data[0], 'x');
    cr_expect_eq(map.data[2 * page], 0);
    cr_expect_eq(map.data[4 * page - 1], 0);
    cr_expect_eq(whole.data[3 * page], 'x');
    expect_named(lathe_map_check(&map));
    cr_expect_eq(lathe_map_check(&whole), LATHE_OK);
    lathe_map_close(&map);
    lathe_map_close(&whole);
    expect_named(lathe_maps_check()); /* also after the map was closed */
    lathe_maps_forget();
    cr_expect_eq(lathe_maps_check(), LATHE_OK);
}

/* The rest of the last page is zeros, without a signal. */
Test(map, a_file_cut_within_its_last_page_is_found_too)
{
    lathe_map map;
    cr_assert_eq(lathe_map_open(path, &map), LATHE_OK);
    cr_assert_eq(truncate(path, 4 * page - 7), 0);
    cr_expect_eq(map.data[4 * page - 1], 0);
    expect_named(lathe_map_check(&map));
    lathe_map_close(&map);
}

/* Another file under the name, or none, does not affect the map. */
Test(map, a_file_replaced_or_removed_is_none_that_was_cut)
{
    lathe_map map;
    cr_assert_eq(lathe_map_open(path, &map), LATHE_OK);
    put(other, 10);
    cr_assert_eq(rename(other, path), 0);
    cr_expect_eq(map.data[3 * page], 'x');
    cr_expect_eq(lathe_map_check(&map), LATHE_OK);
    cr_assert_eq(unlink(path), 0);
    cr_expect_eq(lathe_map_check(&map), LATHE_OK);
    lathe_map_close(&map);
}

static void *read_all(void *arg)
{
    const lathe_map *map = arg;
    int64_t sum = 0;
    for (int64_t i = 0; i < map->bytes; i++)
        sum += map->data[i];
    return (void *)(uintptr_t)(sum > 0);
}

Test(map, several_threads_may_meet_the_missing_pages)
{
    lathe_map map;
    pthread_t threads[4];
    cr_assert_eq(lathe_map_open(path, &map), LATHE_OK);
    cr_assert_eq(truncate(path, page), 0);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, read_all, &map), 0);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    expect_named(lathe_maps_check());
    lathe_map_close(&map);
}

/* Opening never waits for another process. */
Test(map, pipes_sockets_devices_and_folders_are_refused_at_once, .timeout = 10)
{
    char name[128];
    lathe_map map;
    char *data = NULL;
    int64_t bytes = 0;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(name, sizeof name, "%s/pipe", dir);
    cr_assert_eq(mkfifo(name, 0600), 0);
    cr_expect_eq(lathe_map_open(name, &map), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "pipe: is a named pipe (FIFO); expected a "),
                       "%s", lathe_error_message());
    cr_expect_eq(lathe_file_read(name, 0, &data, &bytes), LATHE_E_CONFIG);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", dir);
    const int s = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert_eq(bind(s, (const struct sockaddr *)&address, sizeof address), 0);
    cr_expect_eq(lathe_map_open(address.sun_path, &map), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "socket"), "%s", lathe_error_message());
    (void)close(s);
    cr_expect_eq(lathe_map_open("/dev/null", &map), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "is a device"), "%s", lathe_error_message());
    cr_expect_eq(lathe_map_open(dir, &map), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "is a folder"), "%s", lathe_error_message());
}
