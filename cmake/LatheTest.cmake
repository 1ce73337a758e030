# lathe_add_test(file.c [LABELS cpu|gpu|slow] [PLUGIN target] [LIBS libs...]): one Criterion program per file.
#
# Tests may include headers of every room, and link liblathe. A plugin's test names the plugin's target and finds the
# .so through LATHE_TEST_PLUGIN. LATHE_TEST_DATA is the folder tests/.
# tests/mock_*.c: mock objects that any test may use; a test links only those that it uses.
function(lathe_test_mocks)
  if(TARGET lathe_test_mocks)
    return()
  endif()
  file(GLOB mocks CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/mock_*.c)
  add_library(lathe_test_mocks STATIC ${mocks})
  lathe_flags(lathe_test_mocks)
  target_compile_options(lathe_test_mocks PRIVATE -Wno-pedantic) # _Float16
  target_include_directories(lathe_test_mocks PRIVATE ${CMAKE_SOURCE_DIR}/core/include ${CMAKE_SOURCE_DIR}/tests)
endfunction()

# The tests that take longest, in that order: ctest starts them first, so that none of them runs alone at the end.
# Those of tests/ranks wait for disks and launchers: what computes runs beside them.
set(LATHE_LONG_TESTS test_optimizer_images test_busy_ranks test_shard_ranks test_lost_rank_work test_one_line test_conformance_device test_hybrid_ranks
  test_diloco_ranks test_nccl_ranks test_far_ranks test_cudnn_planning test_reward_failures_cases test_cli_gguf test_fp8_cuda test_generate_cuda test_cuda_derive test_conformance
  test_resume_everywhere test_kinds_read_cases test_launch test_far_offload test_far_activations test_cli_quantize test_train_ranks test_cli_convert test_far_training test_reference_cuda test_cudnn_planning test_bad_configs test_interrupt test_cli_plugins
  test_generate_prompts test_op_linear test_cli_signals test_faults_survive test_ppo_training test_flash_cpu test_cli_examples test_cli_lineage
  test_adapter_folder test_checkpoint_faults test_parser_memory test_op_fp8 test_op_linear_gelu test_frozen_weights test_identity test_validate
  test_far_checkpoint test_resume test_tokenizer_equality test_checkpoint_resume test_checkpoint_kill test_cudnn)

function(lathe_add_test file)
  lathe_test_mocks()
  cmake_parse_arguments(A "" "PLUGIN;TIMEOUT" "LABELS;LIBS;ENV" ${ARGN})
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} ${file})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  lathe_flags(${name})
  # -Wno-pedantic: Criterion's macros. -O1: most of a test's time passes in the library, and -O3 compiles twice as long.
  target_compile_options(${name} PRIVATE -Wno-pedantic -O1)
  target_compile_definitions(${name} PRIVATE LATHE_TEST_DATA="${CMAKE_SOURCE_DIR}/tests"
    LATHE_TEST_BUILD="${CMAKE_BINARY_DIR}")
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/core/include ${CMAKE_SOURCE_DIR}/tests)
  lathe_see(${name} ${LATHE_ROOMS} ${LATHE_TOOLS})
  target_link_libraries(${name} PRIVATE lathe_test_mocks lathe PkgConfig::JANSSON criterion ${A_LIBS} m dl)
  if(A_PLUGIN)
    target_compile_definitions(${name} PRIVATE LATHE_TEST_PLUGIN="$<TARGET_FILE:${A_PLUGIN}>")
    add_dependencies(${name} ${A_PLUGIN})
  endif()
  if(NOT A_LABELS)
    set(A_LABELS cpu)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${name} --jobs 1)
  set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}" TIMEOUT ${A_TIMEOUT}
    ENVIRONMENT "OMP_WAIT_POLICY=passive;${A_ENV}")
  list(FIND LATHE_LONG_TESTS ${name} place)
  if(NOT place EQUAL -1)
    math(EXPR cost "1000 - ${place}")
    set_tests_properties(${name} PROPERTIES COST ${cost})
  endif()
  if(LATHE_SANITIZE) # Criterion has counted a test before its process looks for leaks
    set_tests_properties(${name} PROPERTIES
      FAIL_REGULAR_EXPRESSION "ERROR: [A-Za-z]+Sanitizer;runtime error:")
  endif()
endfunction()
