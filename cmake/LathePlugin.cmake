# lathe_add_plugin(kind name SOURCES files... [CUDA file] [GOLDEN folder] [LIBS libs...] [OPTIONS flags...]): builds the
# plugin <prefix>/lib/lathe/plugins/<kind>/<name>.so, which sees only the public headers and exports one symbol.
#
# GOLDEN: for a model family, a folder with config.json, *.safetensors and golden.safetensors (input_ids, logits), which
# `lathe plugin check` finds as <name>.golden beside the plugin.
# CUDA: the source with its kernels (lathe/kit/code_image.h), embedded as a fatbin if nvcc is found.
#
# Works in this tree and, after find_package(lathe), in the tree of a third party. There `cmake --install` copies the
# plugin to ~/.local/lib/lathe/plugins/<kind>, or below the prefix that the user gives.
include(${CMAKE_CURRENT_LIST_DIR}/LatheCuda.cmake)

function(lathe_add_plugin kind name)
  cmake_parse_arguments(A "" "CUDA;GOLDEN" "SOURCES;LIBS;OPTIONS" ${ARGN})
  set(target lathe_${kind}_${name})
  if(LATHE_SANITIZE) # loops take three to seven times as long to compile with -O3 as with the build's own -O1
    list(REMOVE_ITEM A_OPTIONS -O3)
  endif()
  # A family describes its graph once at the start, and -O3 compiles twice as long.
  if(kind STREQUAL model AND CMAKE_BUILD_TYPE STREQUAL Release AND NOT "${A_OPTIONS}" MATCHES "-O")
    list(APPEND A_OPTIONS -O1)
  endif()
  add_library(${target} MODULE ${A_SOURCES})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${name} C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden C_STANDARD 11 POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE -fno-math-errno -ffp-contract=off ${A_OPTIONS})
  if(NOT LATHE_FUZZ) # Clang's sanitizers are in the program alone
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
  target_link_libraries(${target} PRIVATE ${A_LIBS} m)
  if(TARGET lathe::headers) # out of tree
    target_link_libraries(${target} PRIVATE lathe::headers)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/plugins/${kind})
    # cmake --install copies to ~/.local/lib/lathe/plugins, which Lathe searches, unless a prefix is given. With Lathe's
    # own prefix the plugin becomes one of the built-in plugins.
    if(CMAKE_INSTALL_PREFIX_INITIALIZED_TO_DEFAULT AND DEFINED ENV{HOME})
      set(CMAKE_INSTALL_PREFIX $ENV{HOME}/.local CACHE PATH "where cmake --install puts the plugin" FORCE)
    endif()
    install(TARGETS ${target} LIBRARY DESTINATION lib/lathe/plugins/${kind}
      PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  else()
    lathe_flags(${target})
    # "shared/...": headers in plugins/<kinds>/shared that plugins of one kind share.
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/core/include ${CMAKE_CURRENT_SOURCE_DIR}/..)
    set_target_properties(${target} PROPERTIES
      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/lathe/plugins/${kind})
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lathe/plugins/${kind})
    set_property(GLOBAL APPEND PROPERTY LATHE_PLUGINS ${target})
  endif()
  # The loader refuses files that others may write, and with some systems' umask the group may.
  add_custom_command(TARGET ${target} POST_BUILD COMMAND chmod go-w $<TARGET_FILE:${target}>)
  if(A_GOLDEN)
    get_filename_component(golden ${A_GOLDEN} ABSOLUTE)
    add_custom_command(TARGET ${target} POST_BUILD COMMAND ${CMAKE_COMMAND} -E copy_directory ${golden}
      $<TARGET_FILE_DIR:${target}>/${name}.golden)
  endif()
  if(A_CUDA)
    get_filename_component(cuda ${A_CUDA} ABSOLUTE)
    set_target_properties(${target} PROPERTIES LATHE_CUDA_SOURCE ${cuda} LATHE_C_SOURCES "${A_SOURCES}")
    lathe_embed_cuda(${target} ${A_CUDA})
  endif()
endfunction()
