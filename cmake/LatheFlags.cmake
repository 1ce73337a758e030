# Warnings and sanitizers for our own targets: lathe_flags(target).
set(LATHE_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion -Wformat=2 -Wundef
    -Wvla -Wcast-qual -Wwrite-strings)
set(LATHE_C_WARNINGS -Wstrict-prototypes -Wmissing-prototypes)

function(lathe_flags target)
  target_compile_options(${target} PRIVATE ${LATHE_WARNINGS} -fno-math-errno -ffp-contract=off
    $<$<COMPILE_LANGUAGE:C>:${LATHE_C_WARNINGS}> $<$<BOOL:${LATHE_WERROR}>:-Werror>)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  if(LATHE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${LATHE_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${LATHE_SANITIZE})
  endif()
endfunction()
