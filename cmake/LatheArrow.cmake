# Finds Apache Arrow's C++ library in PyPI's package pyarrow, which brings headers and libraries; Debian 12 has none.
# Sets LATHE_ARROW_FOUND, LATHE_ARROW_INCLUDE and LATHE_ARROW_LIBRARIES. The product does not need Python at run time.
set(LATHE_ARROW_ROOT "" CACHE STRING
  "Folder of PyPI's package pyarrow, for Parquet and Arrow files; empty: that of python3, if it has one; OFF: none")

set(LATHE_ARROW_FOUND FALSE)
set(root "${LATHE_ARROW_ROOT}")
if(root STREQUAL "")
  find_program(LATHE_PYTHON python3)
  if(LATHE_PYTHON)
    execute_process(COMMAND ${LATHE_PYTHON} -c
        "import importlib.util as u; s = u.find_spec('pyarrow'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
elseif(root AND NOT EXISTS "${root}/include/arrow/api.h")
  message(FATAL_ERROR "LATHE_ARROW_ROOT=${root}: no include/arrow/api.h in it; expected the folder of PyPI's package "
    "pyarrow (python3 -c 'import pyarrow; print(pyarrow.__path__[0])')")
endif()
set(version 0)
if(root AND EXISTS "${root}/include/arrow/util/config.h")
  file(STRINGS "${root}/include/arrow/util/config.h" version REGEX "define ARROW_VERSION_MAJOR ")
  string(REGEX REPLACE "[^0-9]" "" version "${version}")
endif()
if(version GREATER 0 AND version LESS 23)
  message(STATUS "Apache Arrow: ${root} has version ${version}; expected 23 or newer")
elseif(version GREATER 0)
  # The package has libarrow.so.2600 for version 26.0, and no links without the version.
  file(GLOB arrow_so "${root}/libarrow.so*")
  file(GLOB parquet_so "${root}/libparquet.so*")
  list(GET arrow_so 0 arrow_so)
  list(GET parquet_so 0 parquet_so)
  if(arrow_so AND parquet_so)
    set(LATHE_ARROW_FOUND TRUE)
    set(LATHE_ARROW_INCLUDE "${root}/include")
    set(LATHE_ARROW_FOLDER "${root}")
    set(LATHE_ARROW_LIBRARIES "${parquet_so}" "${arrow_so}")
  endif()
endif()
if(LATHE_ARROW_FOUND)
  message(STATUS "Apache Arrow: ${root}")
else()
  message(STATUS "Apache Arrow: not found; Parquet and Arrow files cannot be read (LATHE_ARROW_ROOT)")
endif()
