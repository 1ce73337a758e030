# bash completion of lathe: commands, kinds, components, files. Asks the command itself.
_lathe() {
    local cur prev words=("${COMP_WORDS[@]}")
    cur=${words[COMP_CWORD]}
    prev=${words[COMP_CWORD - 1]}
    local kinds="optimizer scheduler quant adapter stage attention device"
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$("${words[0]}" --list-commands 2>/dev/null) --help --version" -- "$cur")
        return
    fi
    case "${words[1]}" in
        ls)
            mapfile -t COMPREPLY < <(compgen -W "$kinds --json --help" -- "$cur")
            ;;
        show)
            mapfile -t COMPREPLY < <(compgen -W "$("${words[0]}" ls 2>/dev/null | awk '{print $1}') --json --help" -- "$cur")
            ;;
        plugin)
            if [ "$COMP_CWORD" -eq 2 ]; then
                mapfile -t COMPREPLY < <(compgen -W "new check --help" -- "$cur")
            elif [ "$prev" = new ]; then
                mapfile -t COMPREPLY < <(compgen -W "$kinds" -- "$cur")
            elif [ "${words[2]}" = check ]; then
                mapfile -t COMPREPLY < <(compgen -f -X '!*.so' -- "$cur" && compgen -d -- "$cur")
            fi
            ;;
        tokenizer)
            if [ "$COMP_CWORD" -eq 2 ]; then
                mapfile -t COMPREPLY < <(compgen -W "train encode decode check --help" -- "$cur")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            fi
            ;;
        plot)
            if [ "$COMP_CWORD" -eq 2 ]; then
                mapfile -t COMPREPLY < <(compgen -W "schedule --help" -- "$cur")
            else
                mapfile -t COMPREPLY < <(compgen -f -X '!*.toml' -- "$cur" && compgen -d -- "$cur")
            fi
            ;;
        train | validate | plan)
            mapfile -t COMPREPLY < <(compgen -f -X '!*.toml' -- "$cur" && compgen -d -- "$cur")
            ;;
        *)
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            ;;
    esac
    compopt -o filenames 2>/dev/null
}
complete -F _lathe lathe
