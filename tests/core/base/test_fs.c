/* Files and folders. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/map.h"
#include "base/output_file.h"

static char root[64];
static lathe_arena arena;

static void setup(void)
{
    strcpy(root, "/tmp/lathe_fs_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void teardown(void)
{
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    cr_assert_not(lathe_path_exists(root));
    lathe_arena_fini(&arena);
}

static char *at(const char *name)
{
    return lathe_path_join(&arena, root, name);
}

TestSuite(fs, .init = setup, .fini = teardown);

Test(fs, what_is_written_is_read_and_replaced_whole)
{
    char *text = NULL;
    int64_t bytes = 0, n = 0;
    char **names = NULL;
    cr_assert_eq(lathe_file_write_atomic(at("a"), "first, longer", 13), LATHE_OK);
    cr_assert_eq(lathe_file_write_atomic(at("a"), "se\0nd", 5), LATHE_OK);
    cr_assert_eq(lathe_file_read(at("a"), 0, &text, &bytes), LATHE_OK);
    cr_assert_eq(bytes, 5);
    cr_assert_eq(memcmp(text, "se\0nd", 6), 0);
    free(text);
    cr_assert_eq(lathe_dir_list(root, &arena, &names, &n), LATHE_OK);
    cr_assert_eq(n, 1, "the file written beside is gone");
}

Test(fs, a_failed_write_leaves_nothing_and_names_the_path)
{
    cr_assert_eq(lathe_file_write_atomic(at("no/such/a"), "x", 1), LATHE_E_NOT_FOUND);
    cr_assert_not_null(strstr(lathe_error_message(), "no/such/a"));
    cr_assert_eq(lathe_dir_create(at("d")), LATHE_OK);
    cr_assert_eq(lathe_file_write_atomic(at("d"), "x", 1), LATHE_E_IO);
    char **names = NULL;
    int64_t n = 0;
    cr_assert_eq(lathe_dir_list(root, &arena, &names, &n), LATHE_OK);
    cr_assert_eq(n, 1);
}

Test(fs, reads_are_limited_and_refuse_folders)
{
    char *text = NULL;
    int64_t bytes = 0;
    cr_assert_eq(lathe_file_write_atomic(at("a"), "12345", 5), LATHE_OK);
    cr_assert_eq(lathe_file_read(at("a"), 4, &text, &bytes), LATHE_E_IO);
    cr_assert_null(text);
    cr_assert_eq(lathe_file_read(at("a"), 5, &text, &bytes), LATHE_OK);
    free(text);
    cr_assert_eq(lathe_file_read(root, 0, &text, &bytes), LATHE_E_CONFIG);
    cr_assert_eq(lathe_file_read(at("none"), 0, &text, &bytes), LATHE_E_NOT_FOUND);
}

Test(fs, maps_a_file_and_an_empty_one)
{
    lathe_map map;
    cr_assert_eq(lathe_file_write_atomic(at("a"), "hello", 5), LATHE_OK);
    cr_assert_eq(lathe_map_open(at("a"), &map), LATHE_OK);
    cr_assert_eq(map.bytes, 5);
    cr_assert_eq(memcmp(map.data, "hello", 5), 0);
    lathe_map_close(&map);
    cr_assert_eq(lathe_file_write_atomic(at("empty"), "", 0), LATHE_OK);
    cr_assert_eq(lathe_map_open(at("empty"), &map), LATHE_OK);
    cr_assert_null(map.data);
    cr_assert_eq(map.bytes, 0);
    lathe_map_close(&map);
}

Test(fs, folders_are_made_with_their_parents)
{
    cr_assert_eq(lathe_dir_create(at("x/y//z/")), LATHE_OK);
    cr_assert_eq(lathe_dir_create(at("x/y/z")), LATHE_OK);
    cr_assert(lathe_path_is_dir(at("x/y/z")));
    cr_assert_eq(lathe_file_write_atomic(at("x/file"), "", 0), LATHE_OK);
    cr_assert_eq(lathe_dir_create(at("x/file/below")), LATHE_E_IO);
}

Test(fs, walk_is_sorted_and_enters_no_links)
{
    char **paths = NULL;
    int64_t n = 0;
    cr_assert_eq(lathe_dir_create(at("b/c")), LATHE_OK);
    cr_assert_eq(lathe_file_write_atomic(at("b/c/2"), "", 0), LATHE_OK);
    cr_assert_eq(lathe_file_write_atomic(at("b/1"), "", 0), LATHE_OK);
    cr_assert_eq(lathe_file_write_atomic(at("a"), "", 0), LATHE_OK);
    cr_assert_eq(symlink(root, at("b/loop")), 0);
    cr_assert_eq(symlink(at("a"), at("z")), 0);
    cr_assert_eq(lathe_dir_walk(root, &arena, &paths, &n), LATHE_OK);
    cr_assert_eq(n, 4);
    cr_assert_str_eq(paths[0], at("a"));
    cr_assert_str_eq(paths[1], at("b/1"));
    cr_assert_str_eq(paths[2], at("b/c/2"));
    cr_assert_str_eq(paths[3], at("z"));
}

Test(fs, remove_does_not_follow_links)
{
    cr_assert_eq(lathe_dir_create(at("keep")), LATHE_OK);
    cr_assert_eq(lathe_file_write_atomic(at("keep/a"), "", 0), LATHE_OK);
    cr_assert_eq(lathe_dir_create(at("gone/deep")), LATHE_OK);
    cr_assert_eq(symlink(at("keep"), at("gone/deep/link")), 0);
    cr_assert_eq(lathe_dir_remove(at("gone")), LATHE_OK);
    cr_assert_not(lathe_path_exists(at("gone")));
    cr_assert(lathe_path_exists(at("keep/a")));
    cr_assert_eq(lathe_dir_remove(at("gone")), LATHE_OK);
}

Test(fs, join_keeps_absolute_names)
{
    cr_assert_str_eq(lathe_path_join(&arena, "a", "b"), "a/b");
    cr_assert_str_eq(lathe_path_join(&arena, "a/", "b"), "a/b");
    cr_assert_str_eq(lathe_path_join(&arena, "a", "/b"), "/b");
    cr_assert_str_eq(lathe_path_join(&arena, "", "b"), "b");
}

Test(fs, an_output_is_written_through_links_pipes_and_devices_and_replaces_none_of_them)
{
    struct stat info;
    char *text = NULL, got[8] = "";
    int64_t bytes = 0;
    cr_assert_eq(lathe_file_write_output(at("target"), "old", 3), LATHE_OK);
    cr_assert_eq(symlink("target", at("link")), 0);
    cr_assert_eq(lathe_file_write_output(at("link"), "new", 3), LATHE_OK);
    cr_assert_eq(lstat(at("link"), &info), 0);
    cr_expect(S_ISLNK(info.st_mode), "the link was replaced");
    cr_assert_eq(lathe_file_read(at("target"), 0, &text, &bytes), LATHE_OK);
    cr_expect_str_eq(text, "new");
    free(text);

    cr_assert_eq(mkfifo(at("pipe"), 0600), 0);
    const int reader = open(at("pipe"), O_RDONLY | O_NONBLOCK);
    cr_assert_geq(reader, 0);
    cr_expect_eq(lathe_file_write_output(at("pipe"), "text", 4), LATHE_OK);
    cr_expect_eq(read(reader, got, sizeof got), 4);
    cr_expect_str_eq(got, "text");
    cr_assert_eq(stat(at("pipe"), &info), 0);
    cr_expect(S_ISFIFO(info.st_mode), "the pipe was replaced");
    close(reader);

    cr_assert_eq(symlink("/dev/full", at("full")), 0);
    cr_expect_neq(lathe_file_write_output(at("full"), "x", 1), LATHE_OK);
    cr_expect_not_null(strstr(lathe_error_message(), "No space left on device"));
    cr_assert_eq(stat("/dev/full", &info), 0);
    cr_expect(S_ISCHR(info.st_mode));
    cr_assert_eq(lathe_dir_create(at("dir")), LATHE_OK);
    cr_expect_eq(lathe_file_write_output(at("dir"), "x", 1), LATHE_E_IO);
    cr_expect_not_null(strstr(lathe_error_message(), "is a folder"), "%s", lathe_error_message());
}
