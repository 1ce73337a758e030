#!/usr/bin/env bash
# check_sees.sh CC SOURCE BUILD: with the include folders that each room of core is really compiled with, a header of a
# room that its SEES lists (core/CMakeLists.txt) is found, and one of any other room is not. Fails too when SEES lists a
# room that no source of the room reaches.
set -euo pipefail
cc=$1 source=$2 build=$3
failures=0
fail() {
    printf 'rooms: %s\n' "$*" >&2
    failures=$((failures + 1))
}

# Writes a line "room seen-room..." for each room of liblathe, and for each tool "+room seen-tool...".
lists() {
    sed 's/#.*//' "$source/core/CMakeLists.txt" | tr '\n' ' ' | grep -oE 'lathe_(room|tool)\([a-z][^)]*\)' |
        sed -E 's/ +LIBS .*//; s/\)$//; s/ +SEES +/ /; s/^lathe_room\(//; s/^lathe_tool\(/+/; s/ +/ /g'
}

declare -A sees=() header=()
rooms=() tools=()
while read -r room seen; do
    case $room in
    +*) tools+=("${room#+}"); sees[${room#+}]=" $seen " ;;
    *) rooms+=("$room"); sees[$room]=" $seen " ;;
    esac
done < <(lists)
for tool in "${tools[@]}"; do # the command and the checks see all of liblathe
    sees[$tool]+="${rooms[*]} "
done
all=("${rooms[@]}" "${tools[@]}")
for room in "${all[@]}"; do
    file=$(find "$source/core/$room" -maxdepth 1 -name '*.h' | sort | head -1)
    [ -n "$file" ] || fail "core/$room has no header"
    header[$room]=$(basename "$file")
done

# The -I flags of one file of the room, from the build's own record.
includes_of() {
    grep -F '"command":' "$build/compile_commands.json" | grep -E -- "-c $source/core/$1/[^/ ]+( |\"|$)" | head -1 |
        grep -oE -- '(-I|-isystem )[^ ]+' || true
}

# One source asks for a header of every room; what is found remains after the preprocessor.
question() {
    local other
    for other in "${all[@]}"; do
        printf '#if __has_include("%s/%s")\nfound %s\n#endif\n' "$other" "${header[$other]}" "$other"
    done
}

tried=0
for room in "${all[@]}"; do
    mapfile -t flags < <(includes_of "$room" | sed 's/^-isystem /-I/')
    if [ ${#flags[@]} -eq 0 ]; then
        fail "the build has no file of core/$room"
        continue
    fi
    found=" $(question | "$cc" -std=gnu11 -E -P "${flags[@]}" -xc - | sed -n 's/^found //p' | tr '\n' ' ')"
    [[ "$found" == *" $room "* ]] || fail "core/$room does not find its own $room/${header[$room]}"
    for other in "${all[@]}"; do
        [ "$other" = "$room" ] && continue
        tried=$((tried + 1))
        if [[ "$found" == *" $other "* ]]; then
            [[ "${sees[$room]}" == *" $other "* ]] || fail "core/$room can include $other/${header[$other]}"
        else
            [[ "${sees[$room]}" != *" $other "* ]] || fail "core/$room cannot include $other/${header[$other]}"
        fi
    done
done

# A source of the optimizer's room that includes a header of `data` does not compile; without that line it does.
optim=$(find "$source/core/optim" -maxdepth 1 -name '*.c' | sort | head -1)
mapfile -t flags < <(includes_of optim | sed 's/^-isystem /-I/')
compiles() { "$cc" -std=gnu11 -fsyntax-only "${flags[@]}" -xc - 2>/dev/null; }
compiles <"$optim" || fail "$optim does not compile alone"
for data in data/records data/conversation data/rows; do
    ! { printf '#include "%s/%s"\n' "$data" "${header[$data]}" && cat "$optim"; } | compiles ||
        fail "core/optim compiles with $data/${header[$data]}"
done

# The rooms that the sources of a room reach, through headers too.
reached() {
    local -A seen=()
    local queue=() file name
    mapfile -t queue < <(find "$source/core/$1" -maxdepth 1 -name '*.[ch]' -o -maxdepth 1 -name '*.cpp')
    while [ ${#queue[@]} -gt 0 ]; do
        mapfile -t names < <(grep -hoE '^#include "[^"]+"' "${queue[@]}" | cut -d'"' -f2 | sort -u)
        queue=()
        for name in "${names[@]}"; do
            file=$source/core/$name
            if [ -z "${seen[$name]:-}" ] && [ -e "$file" ]; then
                seen[$name]=1
                queue+=("$file")
            fi
        done
    done
    printf '%s\n' "${!seen[@]}" | xargs -rn1 dirname | sort -u | tr '\n' ' '
}
for room in "${rooms[@]}"; do
    used=" $(reached "$room")"
    for other in ${sees[$room]}; do
        [[ "$used" == *" $other "* ]] || fail "core/CMakeLists.txt: no source of $room reaches $other, which its SEES lists"
    done
done

listed=$(sed -n '/^set(LATHE_\(ROOMS\|TOOLS\) /,/)/p' "$source/cmake/LatheFloors.cmake" | tr -d ')' | sed 's/^set(LATHE_[A-Z]*//' |
    xargs -n1 | sort | tr '\n' ' ')
[ "$listed" = "$(printf '%s\n' "${all[@]}" | sort | tr '\n' ' ')" ] ||
    fail "cmake/LatheFloors.cmake has other rooms than core/CMakeLists.txt"
[ "$failures" -eq 0 ] || exit 1
printf '%d pairs of rooms are as listed\n' "$tried"
