# lathe_embed_cuda(target file): compiles `file`, the C/CUDA source of a plugin's kernels, with nvcc to a
# fatbin and embeds it in the target as lathe_cuda_image (lathe/kit/code_image.h). Without nvcc nothing is
# embedded and the plugin's cuda_image is NULL, so building does not need the CUDA toolkit.
set(LATHE_CUDA_ARCHS 80 89 90a 100 CACHE STRING "Architectures of embedded CUDA code (sm_XX)")
option(LATHE_CUDA_IMAGES "Embed CUDA code in plugins when nvcc is found" ON)

if(LATHE_CUDA_IMAGES)
  find_program(LATHE_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
endif()

# lathe_cuda_gencode(out source): the -gencode flags for LATHE_CUDA_ARCHS. For the newest architecture, PTX is embedded
# too, so that later GPUs can run it. For every architecture before 100, nvcc generates the same PTX, and from it the
# same machine code, from our kernels. So only the PTX of the oldest is generated, because each PTX takes half of the
# time of a compilation. A source that compares __CUDA_ARCH__ gets separate PTX for each architecture (headers do not
# compare it: tests/house/check_sources.sh).
function(lathe_cuda_gencode out source)
  file(STRINGS ${source} own_ptx REGEX "__CUDA_ARCH__ *[<>=!]" LIMIT_COUNT 1)
  list(GET LATHE_CUDA_ARCHS 0 oldest)
  list(GET LATHE_CUDA_ARCHS -1 newest)
  set(flags)
  set(shared)
  foreach(arch ${LATHE_CUDA_ARCHS})
    string(REGEX MATCH "^[0-9]+" number ${arch})
    if(number LESS 100 AND NOT own_ptx)
      list(APPEND shared sm_${arch})
    else()
      list(APPEND flags -gencode arch=compute_${arch},code=sm_${arch})
    endif()
  endforeach()
  if(shared)
    list(JOIN shared "," shared)
    list(PREPEND flags -gencode arch=compute_${oldest},code=[${shared}])
  endif()
  set(${out} ${flags} -gencode arch=compute_${newest},code=compute_${newest} PARENT_SCOPE)
endfunction()

# Runs nvcc, or copies the cached result for the same content; stores ptxas' report about registers beside the object.
set(lathe_nvcc_cached ${CMAKE_CURRENT_LIST_DIR}/nvcc_cached.sh)

# lathe_cuda_sources(target files...): compiles CUDA C++ with nvcc into the target. Needs LATHE_NVCC.
function(lathe_cuda_sources target)
  foreach(file ${ARGN})
    get_filename_component(source ${file} ABSOLUTE)
    get_filename_component(name ${file} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}_${name}.o)
    set(includes $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
    lathe_cuda_gencode(gencode ${source})
    add_custom_command(OUTPUT ${object}
      COMMAND ${lathe_nvcc_cached} -c ${object} ${source} ${LATHE_NVCC} -x cu ${gencode}
        -std=c++17 -O3 -DNDEBUG -Xptxas -v -Werror all-warnings -Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden
        "$<$<BOOL:${includes}>:-I$<JOIN:${includes},;-I>>"
      DEPENDS ${source} DEPFILE ${object}.d COMMAND_EXPAND_LISTS VERBATIM
      COMMENT "CUDA object ${target}/${name}")
    target_sources(${target} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  endforeach()
endfunction()

function(lathe_embed_cuda target file)
  if(NOT LATHE_CUDA_IMAGES OR NOT LATHE_NVCC)
    return()
  endif()
  get_filename_component(source ${file} ABSOLUTE)
  set(image ${CMAKE_CURRENT_BINARY_DIR}/${target}.fatbin)
  set(holder ${CMAKE_CURRENT_BINARY_DIR}/${target}_cuda_image.c)
  set(includes $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
  lathe_cuda_gencode(gencode ${source})
  # No contraction and no approximations, so that results have the same bits as the CPU loop.
  add_custom_command(OUTPUT ${image}
    COMMAND ${lathe_nvcc_cached} -fatbin ${image} ${source} ${LATHE_NVCC} -x cu ${gencode} -std=c++17
      -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -Xptxas -v -Werror all-warnings -Xcompiler -Wall,-Wextra
      "$<$<BOOL:${includes}>:-I$<JOIN:${includes},;-I>>"
    DEPENDS ${source} DEPFILE ${image}.d COMMAND_EXPAND_LISTS VERBATIM
    COMMENT "CUDA code of ${target}")
  file(CONFIGURE OUTPUT ${holder} @ONLY CONTENT [[/* Generated: the fatbin as bytes of the plugin. */
__asm__(".section .rodata\n"
        ".hidden lathe_cuda_image\n"
        ".globl lathe_cuda_image\n"
        ".balign 64\n"
        "lathe_cuda_image:\n"
        ".incbin \"@image@\"\n"
        ".byte 0\n"
        ".previous\n");
/* ISO C wants a declaration in every file. */
extern const unsigned char lathe_cuda_image[];
]])
  set_source_files_properties(${holder} PROPERTIES OBJECT_DEPENDS ${image})
  target_sources(${target} PRIVATE ${holder})
  target_compile_definitions(${target} PRIVATE LATHE_CUDA_EMBEDDED=1)
endfunction()
