# The rooms (folders of core) of liblathe, each after those that it may include (docs/design/000-floors.md).
set(LATHE_ROOMS base plug config reward ir passes io gguf jinja template unicode text tokenjson tokentrain records dialog data model convert store exec ranks update generate metrics checkpoint lineage islands run opening primitives rollout loop)
# The rooms above liblathe: libraries of the command and of the tests.
set(LATHE_TOOLS view harness devicecheck conformance cli plugcmd savedcmd textcmd newcmd plancmd pipeline chat)

# lathe_floor(name SEES floors... LIBS libs...): core/<name> as an object library.
#
# Headers are included as "<floor>/<file>.h" through links in the build tree. A floor's target gets only the links of
# the floors that it may see, so an include of a higher floor does not compile.
function(lathe_floor_link name)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/floors/${name})
  if(NOT EXISTS ${CMAKE_BINARY_DIR}/floors/${name}/${name})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/core/${name} ${CMAKE_BINARY_DIR}/floors/${name}/${name} SYMBOLIC)
  endif()
endfunction()

function(lathe_floor name)
  cmake_parse_arguments(A "" "" "SEES;LIBS" ${ARGN})
  lathe_floor_link(${name})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/${name}/*.c ${CMAKE_SOURCE_DIR}/core/${name}/*.cpp)
  if(name STREQUAL ir)
    file(GLOB ops CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/ir/ops/*.c)
    list(APPEND sources ${ops})
  endif()
  if(NOT sources)
    return()
  endif()
  add_library(lathe_${name} OBJECT ${sources})
  lathe_flags(lathe_${name})
  target_include_directories(lathe_${name} PRIVATE ${CMAKE_SOURCE_DIR}/core/include)
  foreach(floor ${name} ${A_SEES})
    target_include_directories(lathe_${name} PRIVATE ${CMAKE_BINARY_DIR}/floors/${floor})
  endforeach()
  target_link_libraries(lathe_${name} PRIVATE ${A_LIBS})
  target_sources(lathe PRIVATE $<TARGET_OBJECTS:lathe_${name}>)
  target_link_libraries(lathe PRIVATE ${A_LIBS})
endfunction()
