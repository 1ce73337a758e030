/* lathe completion: the script that lets a shell complete lathe's commands, options, keys and
 * plugins.
 *
 * The scripts know nothing themselves: they ask `lathe --complete WORDS`, which answers from the
 * tables of commands and the schemas (complete.c).
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/print.h"
#include "cmd/main/commands.h"

static const char bash[] =
    "# bash completion of lathe; made by `lathe completion bash`\n"
    "_lathe() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} line pattern\n"
    "    COMPREPLY=()\n"
    "    [ \"$cur\" = = ] && cur=\n"
    "    while IFS= read -r line; do\n"
    "        case $line in\n"
    "            ':files '*)\n"
    "                pattern=${line#:files }\n"
    "                compopt -o filenames 2>/dev/null\n"
    "                while IFS= read -r line; do\n"
    "                    COMPREPLY+=(\"$line\")\n"
    "                done < <(compgen -d -- \"$cur\"; compgen -f -X \"!$pattern\" -- \"$cur\")\n"
    "                ;;\n"
    "            *) COMPREPLY+=(\"$line\") ;;\n"
    "        esac\n"
    "    done < <(\"${COMP_WORDS[0]}\" --complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n"
    "}\n"
    "complete -F _lathe lathe\n";

static const char zsh[] =
    "#compdef lathe\n"
    "# zsh completion of lathe; made by `lathe completion zsh`\n"
    "_lathe() {\n"
    "    local line\n"
    "    local -a found\n"
    "    for line in \"${(@f)$(\"${words[1]}\" --complete \"${(@)words[2,CURRENT]}\" "
    "2>/dev/null)}\"; do\n"
    "        case $line in\n"
    "            ':files '*) _files -g \"${line#:files }\" ;;\n"
    "            ?*) found+=(\"$line\") ;;\n"
    "        esac\n"
    "    done\n"
    "    (( ${#found} )) && compadd -a found\n"
    "}\n"
    "if [ \"$funcstack[1]\" = _lathe ]; then _lathe \"$@\"; else compdef _lathe lathe; fi\n";

static const char fish[] =
    "# fish completion of lathe; made by `lathe completion fish`\n"
    "function __lathe_complete\n"
    "    set -l words (commandline -opc)\n"
    "    for line in ($words[1] --complete $words[2..-1] (commandline -ct) 2>/dev/null)\n"
    "        switch $line\n"
    "            case ':files \\*'\n"
    "                __fish_complete_path (commandline -ct)\n"
    "            case ':files *'\n"
    "                __fish_complete_suffix (string replace -r '^:files \\*' '' -- $line)\n"
    "            case '*'\n"
    "                echo $line\n"
    "        end\n"
    "    end\n"
    "end\n"
    "complete -c lathe -f -a '(__lathe_complete)'\n";

static int run(const lathe_args *args)
{
    static const struct {
        const char *shell, *script;
    } all[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    for (int i = 0; i < 3; i++)
        if (strcmp(args->words[0], all[i].shell) == 0) {
            lathe_print_text(stdout, all[i].script);
            return LATHE_EXIT_OK;
        }
    return lathe_args_fail(
        args,
        lathe_error(LATHE_E_ARG, "SHELL is '%s', expected bash, zsh or fish", args->words[0]));
}

const lathe_command lathe_cmd_completion = {
    .name = "completion",
    .arguments = "SHELL",
    .summary = "print a script that completes lathe's commands and keys in bash, zsh or fish",
    .details = "Installing lathe also installs these scripts. Otherwise run:\n"
               "  bash   source <(lathe completion bash)\n"
               "  zsh    source <(lathe completion zsh)\n"
               "  fish   lathe completion fish | source\n",
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
