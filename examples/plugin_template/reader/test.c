/* @NAME@, by hand. Run with the path of the .so. */
#include <lathe/reader.h>
#include <lathe/kit/testing.h>

#include <unistd.h>

int main(int argc, char **argv)
{
    static const char text[] = "prompt: why?\ncompletion: \"so\"\n\nprompt: how?\n";
    const lathe_plugin *const plugin = lathe_test_open(argc > 1 ? argv[1] : NULL);
    const lathe_reader_v1 *const table = plugin->table;
    FILE *const file = tmpfile();
    lathe_reader_file source = {.size = (uint32_t)sizeof source, .row = 1, .wants_all = 1};
    lathe_reader_row row = {0}, again = {0};
    void *self, *opened = NULL;
    LATHE_CHECK(file != NULL && fputs(text, file) >= 0 && fflush(file) == 0);
    source.fd = fileno(file);
    source.bytes = (int64_t)strlen(text);
    LATHE_CHECK(lathe_test_create(plugin, "", &self) == LATHE_OK);
    LATHE_CHECK(table->open(self, &source, &opened) == LATHE_OK);
    LATHE_CHECK(strcmp(table->column(opened, 1), "completion") == 0);
    LATHE_CHECK(table->column(opened, 2) == NULL);
    LATHE_CHECK(table->next(opened, &row) == LATHE_OK);
    static const char first[] = "{\"prompt\":\"why?\", \"completion\":\"\\u0022so\\u0022\"}";
    LATHE_CHECK(row.bytes == 48 && memcmp(row.text, first, 48) == 0);
    const int64_t offset = row.offset;
    LATHE_CHECK(table->next(opened, &row) == LATHE_OK);
    LATHE_CHECK(row.bytes == 17 && memcmp(row.text, "{\"prompt\":\"how?\"}", 17) == 0);
    LATHE_CHECK(table->next(opened, &row) == LATHE_OK && row.text == NULL);
    table->close(opened);
    source.offset = offset;
    source.row = 2;
    LATHE_CHECK(table->open(self, &source, &opened) == LATHE_OK);
    LATHE_CHECK(table->next(opened, &again) == LATHE_OK && again.bytes == 17);
    table->close(opened);
    (void)fclose(file);
    return lathe_test_failures != 0;
}
