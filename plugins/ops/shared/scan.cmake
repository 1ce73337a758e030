# Sources of an op with a decaying state, in scan_sources. The kernels of the CPU are compiled once per instruction set;
# scan_op.c scores them.
set(scan_sources ../shared/scan_op.c ../shared/scan_exact.c ../shared/scan_generic.c)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND scan_sources ../shared/scan_avx2.c ../shared/scan_avx512.c)
  set_source_files_properties(../shared/scan_avx2.c PROPERTIES COMPILE_OPTIONS "-march=x86-64-v3")
  set_source_files_properties(../shared/scan_avx512.c PROPERTIES
    COMPILE_OPTIONS "-march=x86-64-v4;-mprefer-vector-width=512")
endif()
