/* TOML in: toml++ to the plain tree of toml.h. No exception leaves this file. */
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <sstream>
#include <string>
#include <string_view>

#include <toml++/toml.h>

extern "C" {
#include "base/error.h"
#include "base/toml.h"
}

namespace
{

constexpr int max_depth = 64;
/* More dots than this in one key are refused before the parser, whose tables nest and unwind by
 * recursion. */
constexpr int max_dots = 1000;
/* A value or a table takes up to 400 bytes here, and every two bytes of text may make one. */
constexpr int max_values = 150000;

/* A failure of the conversion, with its place. */
struct failure {
    lathe_status code;
    int32_t line, column;
    const char *text;
};

struct converter {
    lathe_arena *arena;

    char *copy(std::string_view text, const lathe_toml_node &place)
    {
        if (std::memchr(text.data(), 0, text.size()) != nullptr)
            throw failure{LATHE_E_PARSE, place.line, place.column, "NUL inside a string"};
        char *out = lathe_arena_strndup(arena, text.data(), static_cast<int64_t>(text.size()));
        if (out == nullptr)
            throw std::bad_alloc();
        return out;
    }

    void scalar(const toml::node &node, lathe_toml_node *out)
    {
        if (const auto *text = node.as_string()) {
            out->kind = LATHE_TOML_STRING;
            out->s = copy(text->get(), *out);
        } else if (const auto *integer = node.as_integer()) {
            out->kind = LATHE_TOML_INT;
            out->i = integer->get();
            out->f = static_cast<double>(out->i);
        } else if (const auto *real = node.as_floating_point()) {
            out->kind = LATHE_TOML_FLOAT;
            out->f = real->get();
        } else if (const auto *boolean = node.as_boolean()) {
            out->kind = LATHE_TOML_BOOL;
            out->i = boolean->get() ? 1 : 0;
        } else {
            std::ostringstream stream;
            if (const auto *date = node.as_date())
                stream << date->get();
            else if (const auto *time = node.as_time())
                stream << time->get();
            else if (const auto *both = node.as_date_time())
                stream << both->get();
            out->kind = LATHE_TOML_TIME;
            out->s = copy(stream.str(), *out);
        }
    }

    lathe_toml_node *node(const toml::node &from, const toml::key *key, int depth)
    {
        void *memory = lathe_arena_alloc(arena, sizeof(lathe_toml_node));
        if (memory == nullptr)
            throw std::bad_alloc();
        auto *out = static_cast<lathe_toml_node *>(memory);
        const toml::source_region &place = from.source();
        out->line = static_cast<int32_t>(place.begin.line);
        out->column = static_cast<int32_t>(place.begin.column);
        if (key != nullptr) {
            out->key_line = static_cast<int32_t>(key->source().begin.line);
            out->key_column = static_cast<int32_t>(key->source().begin.column);
            out->key = copy(key->str(), *out);
        }
        if (depth > max_depth)
            throw failure{LATHE_E_PARSE, out->line, out->column, "nested deeper than 64"};
        if (const auto *table = from.as_table()) {
            out->kind = LATHE_TOML_TABLE;
            children(out, table->size());
            for (const auto &[name, value] : *table)
                out->children[out->n_children++] = node(value, &name, depth + 1);
            std::stable_sort(out->children, out->children + out->n_children, before);
        } else if (const auto *array = from.as_array()) {
            out->kind = LATHE_TOML_ARRAY;
            children(out, array->size());
            for (const auto &value : *array)
                out->children[out->n_children++] = node(value, nullptr, depth + 1);
        } else {
            scalar(from, out);
        }
        return out;
    }

    void children(lathe_toml_node *out, std::size_t n)
    {
        void *memory = lathe_arena_alloc(arena, static_cast<int64_t>(n * sizeof(void *)));
        if (memory == nullptr)
            throw std::bad_alloc();
        out->children = static_cast<lathe_toml_node **>(memory);
    }

    static bool before(const lathe_toml_node *a, const lathe_toml_node *b)
    {
        return a->key_line != b->key_line ? a->key_line < b->key_line
                                          : a->key_column < b->key_column;
    }
};

void check_size(std::string_view text)
{
    int32_t line = 1;
    int dots = 0, values = 0;
    for (const char c : text) {
        if (c == '\n')
            line++;
        if (c != 0 && std::strchr(",=[{.", c) != nullptr && ++values > max_values)
            throw failure{LATHE_E_PARSE, line, 1, "more than 150000 values"};
        if (c == '\n' || c == '=')
            dots = 0;
        else if (c == '.' && ++dots > max_dots)
            throw failure{LATHE_E_PARSE, line, 1, "more than 1000 dots in one line"};
    }
}

} // namespace

extern "C" lathe_status lathe_toml_load(const char *name, const char *text, int64_t bytes,
                                        lathe_arena *arena, lathe_toml_node **out)
{
    *out = nullptr;
    try {
        const std::string_view view(text, static_cast<std::size_t>(bytes));
        check_size(view);
        const toml::table root = toml::parse(view);
        converter convert{arena};
        *out = convert.node(root, nullptr, 0);
        return LATHE_OK;
    } catch (const failure &e) {
        return lathe_error(e.code, "%s:%d:%d: %s", name, e.line, e.column, e.text);
    } catch (const toml::parse_error &e) {
        const std::string_view what = e.description();
        return lathe_error(LATHE_E_PARSE, "%s:%u:%u: %.*s", name,
                           static_cast<unsigned>(e.source().begin.line),
                           static_cast<unsigned>(e.source().begin.column),
                           static_cast<int>(what.size()), what.data());
    } catch (const std::bad_alloc &) {
        return lathe_error(LATHE_E_NOMEM, "%s: out of memory", name);
    } catch (const std::exception &e) {
        return lathe_error(LATHE_E_PARSE, "%s: %s", name, e.what());
    }
}
