/* ELF headers: files that are refused before the dynamic loader sees them; any content is safe to
 * read. */
#include "plug/elf_file.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"

#define FIXTURES LATHE_TEST_BUILD "/tests/fixtures"

static uint8_t *good; /* a plugin that loads */
static int64_t bytes;
static lathe_elf_facts facts;

static void setup(void)
{
    char *text = NULL;
    cr_assert_eq(lathe_file_read(FIXTURES "/good/optimizer/plain.so", 0, &text, &bytes), LATHE_OK);
    good = (uint8_t *)text;
}

static void teardown(void)
{
    free(good);
}

TestSuite(elf_file, .init = setup, .fini = teardown);

static void refused(const uint8_t *data, int64_t n, const char *part)
{
    cr_assert_eq(lathe_elf_check(data, n, &facts), LATHE_E_PLUGIN, "accepted: %s", part);
    cr_assert_not_null(strstr(lathe_error_message(), part), "%s", lathe_error_message());
}

/* The first program header of a type, in the good file. */
static Elf64_Phdr *segment(uint32_t type)
{
    Elf64_Ehdr *header = (Elf64_Ehdr *)(void *)good;
    Elf64_Phdr *all = (Elf64_Phdr *)(void *)(good + header->e_phoff);
    for (int i = 0; i < header->e_phnum; i++)
        if (all[i].p_type == type)
            return &all[i];
    cr_assert_fail("no segment of type %u", type);
    return NULL;
}

Test(elf_file, a_plugin_that_loads_is_accepted)
{
    cr_assert_eq(lathe_elf_check(good, bytes, &facts), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(facts.entry_bytes, 104);
    cr_assert_eq(facts.uses_origin, 0);
}

Test(elf_file, an_empty_file_and_a_text_are_refused)
{
    refused(good, 0, "the file is empty");
    refused((const uint8_t *)"#!/bin/sh\nexit 0\n", 17, "it is not an ELF file");
    refused(good, 40, "truncated");
}

Test(elf_file, a_truncated_library_is_refused_at_every_length)
{
    for (int64_t n = 4; n < bytes; n += n < 4096 ? 1 : 61) {
        /* A copy of exactly this size, so that a sanitizer detects a read past its end. */
        uint8_t *copy = malloc((size_t)n);
        memcpy(copy, good, (size_t)n);
        refused(copy, n, "truncated");
        free(copy);
    }
}

Test(elf_file, a_32_bit_library_is_refused)
{
    good[EI_CLASS] = ELFCLASS32;
    refused(good, bytes, "32-bit");
}

Test(elf_file, another_machine_and_another_byte_order_are_refused)
{
    good[EI_DATA] = ELFDATA2MSB;
    refused(good, bytes, "little-endian");
    good[EI_DATA] = ELFDATA2LSB;
    ((Elf64_Ehdr *)(void *)good)->e_machine = EM_RISCV;
    refused(good, bytes, "built for another processor (ELF machine 243)");
}

Test(elf_file, a_program_and_an_object_file_are_refused)
{
    char *program = NULL;
    int64_t n = 0;
    cr_assert_eq(lathe_file_read("/proc/self/exe", 0, &program, &n), LATHE_OK);
    cr_assert_eq(lathe_elf_check((uint8_t *)program, n, &facts), LATHE_E_PLUGIN);
    free(program);
    ((Elf64_Ehdr *)(void *)good)->e_type = ET_REL;
    refused(good, bytes, "link it with -shared");
}

Test(elf_file, a_huge_note_is_refused)
{
    const Elf64_Phdr *note = segment(PT_NOTE);
    Elf64_Nhdr *head = (Elf64_Nhdr *)(void *)(good + note->p_offset);
    head->n_descsz = 0xfffffff0u;
    refused(good, bytes, "a note of 4294967280 bytes");
    head->n_descsz = 4;
    head->n_namesz = 0xffffffffu;
    refused(good, bytes, "damaged: a note");
}

Test(elf_file, segments_outside_the_file_are_refused)
{
    segment(PT_LOAD)->p_filesz = INT64_MAX;
    refused(good, bytes, "program segment is outside");
}

Test(elf_file, a_dynamic_section_without_an_end_is_refused)
{
    segment(PT_DYNAMIC)->p_filesz = 2 * sizeof(Elf64_Dyn);
    refused(good, bytes, "has no end");
    segment(PT_DYNAMIC)->p_type = PT_NULL;
    refused(good, bytes, "no dynamic section");
}

Test(elf_file, a_second_symbol_a_function_and_a_call_of_exit_are_refused)
{
    static const char *const cases[][2] = {
        {"two_symbols", "exports helper beside lathe_plugin_v1"},
        {"entry_function", "exports lathe_plugin_v1 as a function"},
        {"entry_small", "exports lathe_plugin_v1 of 4 bytes"},
        {"calls_exit", "calls exit(): a plugin never ends the process"},
        {"no_symbol", "exports no lathe_plugin_v1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512], *text = NULL;
        int64_t n = 0;
        (void)snprintf(path, sizeof path, FIXTURES "/bad/optimizer/%s.so", cases[i][0]);
        cr_assert_eq(lathe_file_read(path, 0, &text, &n), LATHE_OK, "%s", lathe_error_message());
        refused((const uint8_t *)text, n, cases[i][1]);
        free(text);
    }
}

/* No value of any byte causes a read outside the file; a sanitizer checks it. */
Test(elf_file, damaged_bytes_are_read_safely)
{
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const int64_t at = (int64_t)((seed >> 20) % (uint64_t)(i % 2 ? 1024 : bytes));
        const uint8_t was = good[at];
        good[at] = (uint8_t)(seed >> 56);
        (void)lathe_elf_check(good, bytes, &facts);
        good[at] = was;
    }
}
