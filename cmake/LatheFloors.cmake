# The rooms (folders of core) of liblathe, each after those that it may include (docs/design/000-floors.md).
set(LATHE_ROOMS base base/json graph/ir graph/passes graph/ops plug config files/safetensors files/vocab files/gguf tokenizer/unicode
  tokenizer/encode tokenizer/json tokenizer/train chat/jinja chat/template data/records data/conversation data/rows
  model/family model/convert exec/store exec/program parallel/ranks optim generate reward metrics checkpoint/state
  parallel/islands checkpoint/lineage run/state run/decide run/parts run/resume run/folder run/plan run/open
  run/merge run/api run/calibrate train session jobs)
# The rooms above liblathe: libraries of the command and of the tests.
set(LATHE_TOOLS view check/harness check/device check/kinds cmd/line cmd/plugins cmd/saved cmd/text cmd/new cmd/plan
  cmd/pipeline cmd/chat)

# A room's name in the names of targets and folders of the build tree: graph/ir is graph_ir.
function(lathe_room_id room out)
  string(REPLACE "/" "_" id ${room})
  set(${out} ${id} PARENT_SCOPE)
endfunction()

# The folder from which "<room>/<file>.h" is found, and no other room: it holds a link to the room alone. Of a room with
# a room inside (base and base/json) it holds links to the headers, so that the inner room is not found there.
function(lathe_room_link room)
  lathe_room_id(${room} id)
  get_filename_component(storey ${room} DIRECTORY)
  set(inner ${LATHE_ROOMS} ${LATHE_TOOLS})
  list(FILTER inner INCLUDE REGEX "^${room}/")
  if(inner)
    if(IS_SYMLINK ${CMAKE_BINARY_DIR}/rooms/${id}/${room})
      file(REMOVE ${CMAKE_BINARY_DIR}/rooms/${id}/${room})
    endif()
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/rooms/${id}/${room})
    file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/${room}/*.h ${CMAKE_SOURCE_DIR}/core/${room}/*.inc)
    file(GLOB old ${CMAKE_BINARY_DIR}/rooms/${id}/${room}/*)
    foreach(link ${old})
      if(NOT EXISTS ${link}) # of a header that is gone
        file(REMOVE ${link})
      endif()
    endforeach()
    foreach(header ${headers})
      get_filename_component(name ${header} NAME)
      if(NOT EXISTS ${CMAKE_BINARY_DIR}/rooms/${id}/${room}/${name})
        file(CREATE_LINK ${header} ${CMAKE_BINARY_DIR}/rooms/${id}/${room}/${name} SYMBOLIC)
      endif()
    endforeach()
    return()
  endif()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/rooms/${id}/${storey})
  if(NOT EXISTS ${CMAKE_BINARY_DIR}/rooms/${id}/${room})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/core/${room} ${CMAKE_BINARY_DIR}/rooms/${id}/${room} SYMBOLIC)
  endif()
endfunction()

# lathe_see(target rooms...): the target may include the headers of these rooms.
function(lathe_see target)
  foreach(room ${ARGN})
    lathe_room_id(${room} id)
    target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/rooms/${id})
  endforeach()
endfunction()

# lathe_room(room SEES rooms... LIBS libs...): core/<room> as an object library of liblathe.
#
# SEES lists every room whose headers the room's sources reach, also through other headers. An include of another room
# does not compile.
function(lathe_room room)
  cmake_parse_arguments(A "" "" "SEES;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/${room}/*.c ${CMAKE_SOURCE_DIR}/core/${room}/*.cpp)
  lathe_room_id(${room} id)
  add_library(lathe_${id} OBJECT ${sources})
  lathe_flags(lathe_${id})
  target_include_directories(lathe_${id} PRIVATE ${CMAKE_SOURCE_DIR}/core/include)
  lathe_see(lathe_${id} ${room} ${A_SEES})
  target_link_libraries(lathe_${id} PRIVATE ${A_LIBS})
  target_sources(lathe PRIVATE $<TARGET_OBJECTS:lathe_${id}>)
  target_link_libraries(lathe PRIVATE ${A_LIBS})
endfunction()
