/* Folders that are made beside their place, and what ended processes leave unfinished. */
#include "base/new_folder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/lock.h"
#include "base/stale.h"
#include "base/unfinished.h"

static char root[64];
static lathe_arena arena;

static void setup(void)
{
    strcpy(root, "/tmp/lathe_new_folder_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void teardown(void)
{
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    lathe_arena_fini(&arena);
}

static char *at(const char *name)
{
    return lathe_path_join(&arena, root, name);
}

/* The PID of a process that has ended. */
static long dead(void)
{
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    return (long)child;
}

static void put(const char *path)
{
    cr_assert_eq(lathe_file_write_atomic(path, "x", 1), LATHE_OK, "%s", lathe_error_message());
}

TestSuite(new_folder, .init = setup, .fini = teardown);

Test(new_folder, has_its_name_only_when_it_is_complete)
{
    const char *beside = NULL;
    cr_assert_eq(lathe_new_folder_begin(&arena, at("made/"), &beside), LATHE_OK);
    put(lathe_path_join(&arena, beside, "a"));
    cr_expect_not(lathe_path_exists(at("made")));
    cr_assert_eq(lathe_new_folder_end(LATHE_OK, beside, at("made/")), LATHE_OK);
    cr_expect(lathe_path_exists(at("made/a")));
    cr_expect_not(lathe_path_exists(beside));
}

Test(new_folder, is_removed_when_its_content_failed)
{
    const char *beside = NULL;
    cr_assert_eq(lathe_new_folder_begin(&arena, at("made"), &beside), LATHE_OK);
    put(lathe_path_join(&arena, beside, "a"));
    const lathe_status failed = lathe_error(LATHE_E_IO, "the disk is full");
    cr_expect_eq(lathe_new_folder_end(failed, beside, at("made")), LATHE_E_IO);
    cr_expect_str_eq(lathe_error_message(), "the disk is full");
    cr_expect_not(lathe_path_exists(beside));
    cr_expect_not(lathe_path_exists(at("made")));
}

Test(new_folder, takes_the_place_of_nothing_or_of_an_empty_folder)
{
    cr_expect_eq(lathe_new_folder_check(at("none")), LATHE_OK);
    cr_assert_eq(lathe_dir_create(at("empty")), LATHE_OK);
    cr_expect_eq(lathe_new_folder_check(at("empty")), LATHE_OK);
    cr_assert_eq(lathe_dir_create(at("full/inner")), LATHE_OK);
    cr_expect_eq(lathe_new_folder_check(at("full")), LATHE_E_CONFIG);
    put(at("file"));
    cr_expect_eq(lathe_new_folder_check(at("file")), LATHE_E_CONFIG);
    cr_assert_eq(symlink(at("gone"), at("link")), 0);
    cr_expect_eq(lathe_new_folder_check(at("link")), LATHE_E_CONFIG, "a link to nothing");
}

Test(new_folder, replaces_a_folder_and_removes_it)
{
    const char *beside = NULL;
    cr_assert_eq(lathe_dir_create(at("made")), LATHE_OK);
    put(at("made/old"));
    cr_assert_eq(lathe_new_folder_begin(&arena, at("made"), &beside), LATHE_OK);
    put(lathe_path_join(&arena, beside, "new"));
    cr_assert_eq(lathe_new_folder_replace(LATHE_OK, beside, at("made")), LATHE_OK);
    cr_expect(lathe_path_exists(at("made/new")));
    cr_expect_not(lathe_path_exists(at("made/old")));
    cr_expect_not(lathe_path_exists(beside));
}

Test(new_folder, sweeps_what_ended_processes_left_of_it_and_nothing_else)
{
    const long ended = dead(), living = (long)getppid();
    const char *beside = NULL;
    const char *left = lathe_arena_printf(&arena, "made.tmp.%ld", ended);
    const char *twice = lathe_arena_printf(&arena, "made.tmp.%ld.tmp.%ld", ended, ended);
    const char *busy = lathe_arena_printf(&arena, "made.tmp.%ld", living);
    const char *other = lathe_arena_printf(&arena, "another.tmp.%ld", ended);
    cr_assert_eq(lathe_dir_create(at(left)), LATHE_OK);
    put(lathe_path_join(&arena, at(left), "a"));
    cr_assert_eq(lathe_dir_create(at(twice)), LATHE_OK);
    cr_assert_eq(lathe_dir_create(at(busy)), LATHE_OK);
    put(at(other));
    cr_assert_eq(lathe_new_folder_begin(&arena, at("made"), &beside), LATHE_OK);
    cr_expect_not(lathe_path_exists(at(left)));
    cr_expect_not(lathe_path_exists(at(twice)));
    cr_expect(lathe_path_exists(at(busy)));
    cr_expect(lathe_path_exists(at(other)));
    cr_assert_eq(lathe_stale_remove_locked(root, "made"), LATHE_OK);
    cr_expect_not(lathe_path_exists(at(busy)), "the holder of a lock sweeps all of them");
    cr_assert_eq(lathe_stale_remove(root, NULL), LATHE_OK);
    cr_expect_not(lathe_path_exists(at(other)));
}

Test(new_folder, messages_show_the_final_name)
{
    char shown[PATH_MAX], path[256];
    (void)snprintf(path, sizeof path, "out/a.tmp.%ld/model.safetensors.tmp.%ld", (long)getpid(),
                   (long)getpid());
    cr_expect_str_eq(lathe_path_final(path, shown), "out/a/model.safetensors");
    cr_expect_str_eq(lathe_path_final("a.tmp.1/b", shown), "a.tmp.1/b", "of another process");
    (void)snprintf(path, sizeof path, "a.tmp.%ldx", (long)getpid());
    cr_expect_str_eq(lathe_path_final(path, shown), path);
    (void)snprintf(path, sizeof path, "/dev/null/a.tmp.%ld", (long)getpid());
    char *data = NULL;
    int64_t n;
    cr_expect_neq(lathe_file_read(path, 1, &data, &n), LATHE_OK);
    cr_expect(strstr(lathe_error_message(), "/dev/null/a: cannot"), "%s", lathe_error_message());
}

Test(new_folder, names_of_unfinished_entries)
{
    cr_expect(lathe_stale_is_unfinished("a.tmp.7", NULL));
    cr_expect(lathe_stale_is_unfinished("a.tmp.7.tmp.8", "a"));
    cr_expect_not(lathe_stale_is_unfinished("a.tmp.7", "b"));
    cr_expect_not(lathe_stale_is_unfinished("ab.tmp.7", "a"));
    cr_expect_not(lathe_stale_is_unfinished("a.tmp.", NULL));
    cr_expect_not(lathe_stale_is_unfinished("a.tmp.7x", NULL));
    cr_expect_not(lathe_stale_is_unfinished("a.tmp.-7", NULL));
    cr_expect_not(lathe_stale_is_unfinished("a.tmp.99999999999999999999", NULL));
    cr_expect_not(lathe_stale_is_unfinished("a", NULL));
}

Test(new_folder, a_lock_knows_when_its_file_is_gone)
{
    lathe_lock lock;
    cr_assert_eq(lathe_lock_take(at("lock"), &lock), LATHE_OK);
    cr_expect(lathe_lock_is_there(&lock, at("lock")));
    cr_assert_eq(rename(at("lock"), at("moved")), 0);
    cr_expect_not(lathe_lock_is_there(&lock, at("lock")));
    put(at("lock"));
    cr_expect_not(lathe_lock_is_there(&lock, at("lock")), "another file of this name");
    lathe_lock_release(&lock);
    cr_expect(lathe_lock_is_there(&lock, at("lock")), "a lock that is not held");
}
